"""Reads a folder of tables, and the single file, with DuckDB and pyarrow; prints what they add up to."""

import json
import pathlib
import sys

import duckdb
import pyarrow.parquet as parquet

folder, single = sys.argv[1:]


def ask(query):
    return duckdb.sql(query.replace("@", folder)).fetchall()[0]


count, size, leaked, leaked_count, temporary = ask(
    """select count(*), sum(size), sum(size) filter (died_ns is null), count(*) filter (died_ns is null),
              count(*) filter (temporary) from '@/allocations.parquet'"""
)
sites = ask("select sum(allocated_bytes), sum(leaked_bytes), sum(peak_bytes) from '@/sites.parquet'")
unnamed = ask(
    """select count(*) from '@/allocations.parquet' a where not exists
       (select * from '@/stacks.parquet' s, unnest(s.frames) as u(frame) join '@/frames.parquet' f using (frame)
        where s.stack = a.stack)"""
)
leaf = ask(
    """select f.function from '@/allocations.parquet' a join '@/stacks.parquet' s using (stack)
       join '@/frames.parquet' f on f.frame = s.frames[1]
       where f.level = 0 and f.inlined and a.size = 1100 and length(f.build_id) = 40 limit 1"""
)
curve = parquet.read_table(folder + "/timeline.parquet")["live_bytes_max"].to_pylist()
tables = [parquet.read_table(path) for path in sorted(pathlib.Path(folder).glob("*.parquet"))]
unsigned = [f"{field.name} {field.type}" for table in tables for field in table.schema if "uint" in str(field.type)]
info = json.loads(parquet.read_metadata(folder + "/sites.parquet").metadata[b"heaptrace.info"])
print(
    json.dumps(
        {
            "count": count, "bytes": int(size), "leaked_bytes": int(leaked), "leaked_count": leaked_count,
            "temporary": temporary, "site_bytes": int(sites[0]), "site_leaked": int(sites[1]),
            "site_peak": int(sites[2]), "curve_peak": max(curve), "unnamed_stacks": unnamed[0], "leaf": leaf[0],
            "unsigned": unsigned,
            "single_bytes": sum(parquet.read_table(single)["size"].to_pylist()), "tables": len(tables),
            "threads": parquet.read_table(folder + "/threads.parquet").num_rows, "info_peak": info["peak"]["bytes"],
        }
    )
)
