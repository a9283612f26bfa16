"""Reads and writes documents, and keeps every third one: blocks as a real program has them."""

import json
import random
import re
import sys

random.seed(1)
kept = []
for number in range(int(sys.argv[1])):
    tags = [random.choice("abcdefgh") * random.randint(1, 40) for _ in range(5)]
    text = json.dumps({"id": number, "name": f"n{number}", "tags": tags})
    document = json.loads(text)
    if number % 3 == 0:
        kept.append(document)
    re.findall(r"\w+", text)
