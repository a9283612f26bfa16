"""Compares the table of sites by the minute with what the table of blocks comes to, block by block; prints how many
minutes and rows there are."""

import collections
import json
import sys

import pyarrow.parquet as parquet

[folder] = sys.argv[1:]
MINUTE = 60_000_000_000


def rows(table):
    return parquet.ParquetFile(f"{folder}/{table}.parquet").read().to_pylist()


events = []
for block in rows("allocations"):
    events.append((block["born_ns"], 1, block["row"], block["stack"], block["size"]))
    if block["died_ns"] is not None:
        events.append((block["died_ns"], -1, block["row"], block["stack"], -block["size"]))
live = collections.defaultdict(lambda: [0, 0])
minutes = {}
# Of the same instant it is not known here what came first: such recordings are not compared.
events.sort()
assert len({event[0] for event in events}) == len(events), "two events at one time"
for t_ns, sign, _, stack, change in events:
    of = live[stack]
    row = minutes.setdefault((t_ns // MINUTE * MINUTE, stack), [0, 0, 0, 0, 0, 0, of[1]])
    of[0] += sign
    of[1] += change
    at = 0 if sign > 0 else 2
    row[at] += 1
    row[at + 1] += abs(change)
    row[4:6] = of
    row[6] = min(row[6], of[1])
names = ["allocated_count", "allocated_bytes", "freed_count", "freed_bytes", "live_count", "live_bytes", "lowest_live_bytes"]
written = {(row["minute_unix_ns"], row["stack"]): [row[name] for name in names] for row in rows("site_minutes")}
for key in minutes.keys() | written.keys():
    assert minutes.get(key) == written.get(key), (key, minutes.get(key), written.get(key))
print(json.dumps({"minutes": len({minute for minute, _ in written}), "rows": len(written)}))
