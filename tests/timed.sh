#!/usr/bin/env bash
# Runs a part of the tests and says how long it took, on the screen and in target/test-times.txt:
#   tests/timed.sh NAME COMMAND…
# With CI set the screen shows closing lines alone. All output is in target/test-logs/NAME.log, and the lines that say
# what failed are in target/test-logs/NAME.failed, for `make test` to print at its end.
set -uo pipefail
name=$1
shift
mkdir -p target/test-logs
log="target/test-logs/$name.log"
rm -f "$log" "${log%.log}.failed"
start=$EPOCHREALTIME
if [ -n "${CI:-}" ]; then
    # Into a file and not through a pipe: a process that a test leaves behind would hold a pipe open.
    "$@" >"$log" 2>&1
    status=$?
    grep -E '^ +(Running|Doc-tests) |^test result: |^(.\[[0-9;]*m)* *(Test Files|Tests|Duration) |^== ' "$log"
    if [ "$status" != 0 ]; then tests/failures.sh "$log" >"${log%.log}.failed"; fi
else
    "$@"
    status=$?
fi
end=$EPOCHREALTIME
line=$(awk -v name="$name" -v s="$start" -v e="$end" -v status="$status" \
    'BEGIN { printf "%-24s %7.1f s  %s", name, e - s, status == 0 ? "ok" : "failed (exit " status ")" }')
echo "$line"
echo "$line" >>target/test-times.txt
exit "$status"
