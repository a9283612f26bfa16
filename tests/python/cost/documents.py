"""A large JSON document, built, written and read again: documents.py ROUNDS."""

import json
import sys


def document(rows):
    return [
        {
            "id": row,
            "name": f"row {row}",
            "tags": [f"tag-{row % 17}", f"tag-{row % 31}"],
            "position": {"x": row * 0.5, "y": row / 3, "label": str(row)},
        }
        for row in range(rows)
    ]


for _ in range(int(sys.argv[1])):
    assert json.loads(json.dumps(document(2000), indent=1))
