"""A large JSON document, built, written and read again: json_work.py ROUNDS (with PYTHONMALLOC=malloc)."""

import json
import sys


def document(rows):
    return [
        {
            "id": row,
            "name": f"row {row}",
            "tags": [f"tag-{row % 17}", f"tag-{row % 31}"],
            "position": {"x": row * 0.5, "y": row / 3, "label": str(row)},
            "history": [row - 1, row, row + 1],
        }
        for row in range(rows)
    ]


def main():
    kept = 0
    for _ in range(int(sys.argv[1])):
        text = json.dumps(document(20_000), indent=1)
        kept += len(json.loads(text))
    with open("/proc/self/status") as status:
        peak = next(line for line in status if line.startswith("VmHWM:"))
    print("pairs 0")
    print("peak_kib", peak.split()[1])
    assert kept


main()
