#!/usr/bin/env bash
# Numbers and ratios, side by side: what recording costs, and a backtrace alone; how fast recordings are read, how well leaks are
# judged, how fast the page is.
#   tests/bench.sh [--quick] [--json] [overhead] [reading] [verdicts] [page]      (no names: all)
# Other options, and --json, go to the overhead bench alone. Nothing is asserted but the verdicts: goals stand beside
# the results.
set -euo pipefail
cd "$(dirname "$0")/.."

options=()
parts=()
sizes=1m,10m,100m
many=10m
for word in "$@"; do
    case $word in
        overhead | reading | verdicts | page) parts+=("$word") ;;
        -*)
            options+=("$word")
            [ "$word" != --quick ] || sizes=1m many=1m
            ;;
        *)
            echo "usage: tests/bench.sh [--quick] [--json] [overhead] [reading] [verdicts] [page]" >&2
            exit 2
            ;;
    esac
done
[ "${#parts[@]}" -gt 0 ] || parts=(overhead reading verdicts page)

# The page in a browser on the recording that its goals name: ten million events, a million call-tree nodes.
page() {
    local out server url
    out=$(mktemp -d)
    # shellcheck disable=SC2064  # the folder is known now
    trap "rm -rf '$out'" RETURN
    cargo run --quiet --release -p tracehound-bench -- generate "$out/memory-big.dat" \
        --events 10m --nodes 1000000 --sites 250000 >/dev/null
    target/release/heaptrace info "$out/memory-big.dat" >/dev/null
    target/release/heaptrace server "$out/memory-big.dat" --port 0 >"$out/log" 2>&1 &
    server=$!
    for _ in $(seq 300); do
        url=$(grep -oE 'http://[0-9.:]+' "$out/log" | head -1 || true)
        [ -z "$url" ] || break
        sleep 0.1
    done
    echo "page: 10m events, a million call-tree nodes"
    (cd web && HEAPTRACE_URL=$url npm run --silent bench) || true
    kill "$server"
    wait "$server" || true
}

for part in "${parts[@]}"; do
    case $part in
        overhead)
            cargo run --quiet --release -p tracehound-overhead -- "${options[@]}"
            # One document is one document.
            [[ " ${options[*]} " == *" --json "* ]] ||
                cargo run --quiet --release -p tracehound-unwind-tests --bin capture-cost
            ;;
        reading)
            cargo run --quiet --release -p tracehound-bench -- scale --sizes "$sizes"
            echo "the same with a million call-tree nodes"
            cargo run --quiet --release -p tracehound-bench -- scale --sizes "$many" --windows 20 --nodes 1000000 --sites 250000
            cargo run --quiet --release -p tracehound-bench -- rival
            ;;
        verdicts)
            echo "verdicts: what a history does, and what heaptrace said of it with six seeds each"
            cargo test --quiet -p tracehound-server --test verdicts -- --nocapture
            echo "verdicts: what a program does, and the shape that heaptrace saw"
            cargo test --quiet -p tracehound-tests --test verdicts -- --nocapture
            ;;
        page) page ;;
    esac
done
