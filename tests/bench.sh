#!/usr/bin/env bash
# Numbers and ratios, side by side: what recording costs, what a stack costs, how fast recordings are read.
#   tests/bench.sh [--quick] [--json] [overhead] [unwind] [reading]      (no names: all of them)
# Nothing is asserted: goals stand beside the results.
set -euo pipefail
cd "$(dirname "$0")/.."

options=()
parts=()
for word in "$@"; do
    case $word in
        overhead | unwind | reading) parts+=("$word") ;;
        -*) options+=("$word") ;;
        *)
            echo "usage: tests/bench.sh [--quick] [--json] [overhead] [unwind] [reading]" >&2
            exit 2
            ;;
    esac
done
[ "${#parts[@]}" -gt 0 ] || parts=(overhead unwind reading)

for part in "${parts[@]}"; do
    case $part in
        overhead) cargo run --quiet --release -p tracehound-overhead -- "${options[@]}" ;;
        unwind) [ ! -x tests/unwind/bench.sh ] || tests/unwind/bench.sh "${options[@]}" ;;
        reading) [ ! -x tests/bench/bench.sh ] || tests/bench/bench.sh "${options[@]}" ;;
    esac
done
