"""Prints how many stacks the sites of two folders of tables have in common, and how many there are."""

import sys

import duckdb

one, other = sys.argv[1:]
sites = [f"select distinct stack from '{folder}/sites.parquet'" for folder in (one, other)]
both = duckdb.sql(f"select count(*) from ({sites[0]} intersect {sites[1]})").fetchall()[0][0]
either = duckdb.sql(f"select count(*) from ({sites[0]} union {sites[1]})").fetchall()[0][0]
print(both, either)
