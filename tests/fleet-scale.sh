#!/usr/bin/env bash
# RECORDINGS (1000) of STACKS (17000) each in a compacted data set: how long every question takes, by heaptrace and in SQL by
# DuckDB (each below LIMIT seconds, 10), and whether what was planted is found: more in one stack of a thousand, and a host.
# Then Spark with two executors is asked the same: its rows must be those of DuckDB.
set -euo pipefail
cd "$(dirname "$0")/.."
heaptrace=${CARGO_TARGET_DIR:-target}/release/heaptrace
tests/clients.sh engines
python=${CARGO_TARGET_DIR:-target}/clients/python/bin/python
out=$(mktemp -d "${TMPDIR:-/tmp}/fleet-scale.XXXXXX")
trap 'rm -rf "$out"' EXIT
"$python" tests/clients/fleet_scale.py "$out" "${RECORDINGS:-1000}" "${STACKS:-17000}" >"$out/planted.json"
"$python" - "$heaptrace" "$out" "${LIMIT:-10}" <<'END'
import json, resource, subprocess, sys, time
heaptrace, out, limit = sys.argv[1], sys.argv[2], float(sys.argv[3])
planted = json.load(open(out + "/planted.json"))
print(f"{planted['rows']} rows of sites, {planted['bytes'] / 1e6:.1f} MB, {planted['bytes'] / planted['rows']:.2f} bytes a row")
slow = []

def timed(what, run):
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = run()
    took, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    most = f", at most {after.ru_maxrss / 1024:.0f} MiB until now" if processor else ""
    print(f"{what:20} {took:6.2f} s" + (f", {processor:.2f} s of processor{most}" if processor else ""))
    if took > limit:
        slow.append(what)
    return answer

def ask(question, *options):
    done = subprocess.run([heaptrace, "fleet", question, "file://" + out, "--json", *options], capture_output=True, text=True)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)

answers = {question: timed("heaptrace " + question, lambda: ask(question, *options))
           for question, *options in [["top"], ["leaks"], ["regress", "-n", "1000"], ["outliers"], ["budget", "--max-peak", "2G"]]}
found = {row["function"] for row in answers["regress"]["rows"]}
wanted = set(planted["planted"])
print(f"regress: {len(found & wanted)} of {len(wanted)} planted stacks found among {answers['regress']['stacks']}, {len(found - wanted)} others named")
hosts = [row["host"] for row in answers["outliers"]["rows"]]
print(f"outliers: {sorted(set(hosts))}")

import duckdb
duckdb.sql("set threads = 2")
for question in ["top", "leaks", "regress", "outliers", "budget"]:
    text = subprocess.check_output([heaptrace, "fleet", "sql", "file://" + out, question], text=True)
    def run():
        for statement in text.split(";\n"):
            if statement.strip():
                rows = duckdb.sql(statement)
                rows = rows.fetchall() if rows is not None else None
        return rows
    rows = timed("DuckDB " + question, run)
    if question == "top":
        ours = [(row["bytes"], row["recordings"], row["function"]) for row in answers["top"]["rows"]]
        assert sorted(ours) == sorted((int(row[0]), row[1], row[2]) for row in rows), "DuckDB and heaptrace differ"
assert wanted <= found and len(found - wanted) <= 0.05 * len(found) + 1, found ^ wanted
assert set(hosts) == {"host-7"}, hosts
assert not slow, f"slower than {limit} s: {slow}"
END
engines=$(realpath "${CARGO_TARGET_DIR:-target}")/clients/engines
heaptrace=$(realpath "$heaptrace")
script=$(realpath tests/clients/fleet_engines.py)
export PYSPARK_PYTHON="$engines/bin/python"
# Spark writes its folders of work where it is started.
(cd "$out" && "$engines/bin/python" "$script" "$heaptrace" "file://$out" spark >"$out/answers.json")
