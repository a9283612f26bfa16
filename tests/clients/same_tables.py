"""Compares the tables of an export with those that a store has of the recording; prints the names of those that are the
same."""

import pathlib
import sys

import pyarrow.parquet as parquet

tables, store, recording = sys.argv[1:]
same = []
for path in sorted(pathlib.Path(tables).glob("*.parquet")):
    [stored] = pathlib.Path(store).glob(f"data/v1/{path.stem}/*/*/*/recording={recording}/{path.name}")
    # One file, not the partitions above it.
    if parquet.ParquetFile(path).read().equals(parquet.ParquetFile(stored).read()):
        same.append(path.stem)
print(*same)
