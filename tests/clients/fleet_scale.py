"""Makes a compacted data set of many recordings, as `heaptrace fleet compact` leaves one: fleet_scale.py FOLDER RECORDINGS
STACKS. Two versions on five days; one stack in a thousand has half as much again in the second one. Prints how many rows
and bytes of sites there are, and the functions that have more."""

import json
import os
import sys

import duckdb
import pyarrow as arrow
import pyarrow.parquet as parquet

folder, recordings, stacks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
name = arrow.binary(16)
types = {"stack": name, "names": name, "frame": name, "frames": arrow.list_(arrow.field("element", name, nullable=False))}
duckdb.sql("select setseed(0.18)").fetchall()
duckdb.sql(f"""
    create table r as select i, md5('recording' || i) as recording, if(i % 2 = 0, '1.0', '1.1') as version, i // 2 % 5 as d,
      'host-' || (i % 40) as host from range({recordings}) t(i);
    create table s as select i, unhex(md5('stack' || i)) as stack, unhex(md5('names' || i)) as names,
      unhex(md5('frame' || i)) as frame, 'function_' || i as function, i % 1000 = 500 as planted,
      (64 * pow(2, i % 12))::bigint as size from range({stacks}) t(i);
""")
DAY = 86_400_000_000_000
written = {"rows": 0, "bytes": 0}


def write(table, version, day, query):
    found = duckdb.sql(query).to_arrow_table()
    fields = [arrow.field(f.name, types.get(f.name, f.type)) for f in found.schema]
    found = arrow.table([found[f.name].cast(f.type) for f in fields], schema=arrow.schema(fields))
    path = f"{folder}/data/v1/{table}/service=scale/version={version}/day=2026-11-0{day + 1}/compact-000001.parquet"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    parquet.write_table(found, path, compression="zstd", store_schema=False)
    if table == "sites":
        written["rows"] += found.num_rows
        written["bytes"] += os.path.getsize(path)


for version in ["1.0", "1.1"]:
    for day in range(5):
        some = f"(select * from r where version = '{version}' and d = {day})"
        # About as much as always, a bit more or less; where it is planted, half as much again.
        count = "greatest(0, 10 + (random() + random() + random() - 1.5) * 6)::bigint"
        factor = "if(s.planted and version = '1.1', 1.5, 1.0)"
        write("sites", version, day, f"""
            with c as (select recording, s.i as site, stack, size, ({count} * {factor})::bigint as n from {some} r, s)
            select recording, site, stack, n * 20 as allocated_count, n * 20 * size as allocated_bytes, n * 19 as freed_count,
              n * 19 * size as freed_bytes, n * 2 as peak_count, n * 2 * size as peak_bytes, n as leaked_count,
              n * size as leaked_bytes, n * 3 as temporary_count, n * 3 * size as temporary_bytes
            from c order by stack, recording""")
        write("verdicts", version, day, f"""
            select recording, stack, 'growing' as kind, false as freed_at_exit, 10::bigint as count, (10 * size)::bigint as bytes,
              size * 0.5::double as bytes_per_second, 'planted' as why
            from {some} r, s where planted and version = '1.1' order by stack, recording""")
        write("stacks", version, day, "select stack, names, [frame] as frames from s order by stack")
        write("frames", version, day, """select frame, 0::bigint as level, 'build' as build_id, '/srv/scale' as module,
            i as "offset", function, 'scale.c' as file, i as line, false as inlined from s order by frame""")
        # One host holds three times as much.
        write("recordings", version, day, f"""
            select recording, host, {(20_760 + day) * DAY} + i * 1000000 as started_unix_ns, 60000000000 as duration_ns,
              ((1000000000 + random() * 50000000) * if(host = 'host-7', 3, 1))::bigint as peak_bytes,
              500000000::bigint as leaked_bytes, 9000000000::bigint as allocated_bytes, 1500000000::bigint as peak_rss_bytes,
              true as complete from {some} r order by recording""")
        path = f"{folder}/data/v1/_state/service=scale/version={version}/day=2026-11-0{day + 1}.json"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        ids = [row[0] for row in duckdb.sql(f"select recording from {some}").fetchall()]
        tables = ["sites", "verdicts", "stacks", "frames", "recordings"]
        state = {"schema": "heaptrace.fleet-day/1", "generation": 1, "recordings": ids,
                 "files": {table: "compact-000001.parquet" for table in tables}}
        with open(path, "w") as file:
            json.dump(state, file)
planted = [row[0] for row in duckdb.sql("select function from s where planted order by function").fetchall()]
print(json.dumps({**written, "planted": planted}))
