#!/usr/bin/env bash
# Numbers and ratios, side by side: what recording costs, and how fast recordings are read.
#   tests/bench.sh [--quick] [--json] [overhead] [reading]      (no names: both)
# Other options, and --json, go to the overhead bench alone. Nothing is asserted: goals stand beside the results.
set -euo pipefail
cd "$(dirname "$0")/.."

options=()
parts=()
sizes=1m,10m
for word in "$@"; do
    case $word in
        overhead | reading) parts+=("$word") ;;
        -*)
            options+=("$word")
            [ "$word" != --quick ] || sizes=1m
            ;;
        *)
            echo "usage: tests/bench.sh [--quick] [--json] [overhead] [reading]" >&2
            exit 2
            ;;
    esac
done
[ "${#parts[@]}" -gt 0 ] || parts=(overhead reading)

for part in "${parts[@]}"; do
    case $part in
        overhead) cargo run --quiet --release -p tracehound-overhead -- "${options[@]}" ;;
        reading) cargo run --quiet --release -p tracehound-bench -- scale --sizes "$sizes" ;;
    esac
done
