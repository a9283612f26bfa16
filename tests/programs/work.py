"""Real work for the demo: a growing cache, a phase of parsing, a phase of freeing."""
import json
import re

cache = {}
for round_number in range(40):
    document = {f"key {i}": [i, str(i), {"nested": i * 0.5}] for i in range(3000)}
    text = json.dumps(document)
    back = json.loads(text)
    cache[round_number] = [word for word in re.findall(r"[a-z]+", text) if len(word) > 3][:2000]
    if round_number % 10 == 9:
        for old in list(cache)[:5]:
            del cache[old]
print(len(cache), "rounds kept,", sum(map(len, cache.values())), "words")
