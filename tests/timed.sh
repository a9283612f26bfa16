#!/usr/bin/env bash
# Runs a part of the tests and says how long it took, on the screen and in target/test-times.txt:
#   tests/timed.sh NAME COMMAND…
set -uo pipefail
name=$1
shift
start=$EPOCHREALTIME
"$@"
status=$?
end=$EPOCHREALTIME
line=$(awk -v name="$name" -v s="$start" -v e="$end" -v status="$status" \
    'BEGIN { printf "%-24s %7.1f s  %s", name, e - s, status == 0 ? "ok" : "failed (exit " status ")" }')
echo "$line"
mkdir -p target
echo "$line" >>target/test-times.txt
exit "$status"
