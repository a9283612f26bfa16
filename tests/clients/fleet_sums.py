"""Adds up a store's sites with DuckDB, by the folders that are columns."""

import json
import sys

import duckdb

files = f"{sys.argv[1]}/data/v1/sites/**/*.parquet"
[[leaked, services]] = duckdb.sql(
    f"""select sum(leaked_bytes), count(distinct service)
        from read_parquet('{files}', hive_partitioning = true, union_by_name = true)"""
).fetchall()
print(json.dumps({"leaked": int(leaked), "services": services}))
