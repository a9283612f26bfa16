#!/usr/bin/env bash
# Numbers and ratios, side by side: what recording costs, how fast recordings are read, how well leaks are judged.
#   tests/bench.sh [--quick] [--json] [overhead] [reading] [verdicts]      (no names: all)
# Other options, and --json, go to the overhead bench alone. Nothing is asserted but the verdicts: goals stand beside
# the results.
set -euo pipefail
cd "$(dirname "$0")/.."

options=()
parts=()
sizes=1m,10m,100m
for word in "$@"; do
    case $word in
        overhead | reading | verdicts) parts+=("$word") ;;
        -*)
            options+=("$word")
            [ "$word" != --quick ] || sizes=1m
            ;;
        *)
            echo "usage: tests/bench.sh [--quick] [--json] [overhead] [reading] [verdicts]" >&2
            exit 2
            ;;
    esac
done
[ "${#parts[@]}" -gt 0 ] || parts=(overhead reading verdicts)

for part in "${parts[@]}"; do
    case $part in
        overhead) cargo run --quiet --release -p tracehound-overhead -- "${options[@]}" ;;
        reading)
            cargo run --quiet --release -p tracehound-bench -- scale --sizes "$sizes"
            cargo run --quiet --release -p tracehound-bench -- rival
            ;;
        verdicts)
            echo "verdicts: the program's label, and the shape that heaptrace saw in three runs each"
            cargo test --quiet -p tracehound-tests --test verdicts -- --nocapture
            ;;
    esac
done
