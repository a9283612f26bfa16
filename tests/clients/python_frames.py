"""Prints the names of the frames of a Python script in a table of frames: function, line and the frame's hash."""

import sys

import pyarrow.parquet as parquet

table, script = sys.argv[1:]
rows = parquet.read_table(table).to_pylist()
for row in sorted((row["function"], row["line"], row["frame"].hex()) for row in rows if (row["file"] or "").endswith(script)):
    print(*row)
