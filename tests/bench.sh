#!/usr/bin/env bash
# Numbers and ratios, side by side: what recording costs, and a backtrace alone; how fast recordings are read, how well leaks are
# judged, how fast the page is, and how long its main thread is busy at once.
#   tests/bench.sh [--quick] [--json] [overhead] [threads] [python] [looks] [reading] [verdicts] [page]      (no names: all)
# Other options, and --json, go to the overhead bench alone. Nothing is asserted but the verdicts: goals are beside
# the results.
set -euo pipefail
cd "$(dirname "$0")/.."

options=()
parts=()
sizes=1m,10m,100m
many=10m
pairs_of_runs=9
for word in "$@"; do
    case $word in
        overhead | threads | python | looks | reading | verdicts | page) parts+=("$word") ;;
        -*)
            options+=("$word")
            [ "$word" != --quick ] || sizes=1m many=1m pairs_of_runs=3
            ;;
        *)
            echo "usage: tests/bench.sh [--quick] [--json] [overhead] [threads] [python] [looks] [reading] [verdicts] [page]" >&2
            exit 2
            ;;
    esac
done
[ "${#parts[@]}" -gt 0 ] || parts=(overhead threads python looks reading verdicts page)

# Serves a recording; sets `server`, its process, and `url`.
serve() {
    target/release/heaptrace server "$1" --port 0 >"$1.log" 2>&1 &
    server=$! url=
    for _ in $(seq 300); do
        url=$(grep -oE 'http://[0-9.:]+' "$1.log" | head -1 || true)
        [ -z "$url" ] || break
        sleep 0.1
    done
}

# The page in a browser on the recording that its goals name: ten million events, a million call-tree nodes; and its
# flame graph beside speedscope's on the same stacks. speedscope comes from npm, for this alone; without network it is
# left out.
page() {
    local out server url
    out=$(mktemp -d)
    # shellcheck disable=SC2064  # the folder is known now
    trap "rm -rf '$out'" RETURN
    cargo run --quiet --release -p tracehound-bench -- generate "$out/memory-big.dat" \
        --events 10m --nodes 1000000 --sites 250000 >/dev/null
    target/release/heaptrace info "$out/memory-big.dat" >/dev/null
    serve "$out/memory-big.dat"
    echo "page: 10m events, a million call-tree nodes"
    (cd web && HEAPTRACE_URL=$url npm run --silent bench) || true
    if npm install --silent --no-audit --no-fund --prefix "$out/npm" speedscope@1.25.0 >/dev/null 2>&1; then
        target/release/heaptrace export "$out/memory-big.dat" --format folded --metric allocated -o "$out/big.folded"
        set -- "$out/big.folded" "$out/npm/node_modules/speedscope/dist/release"
    else
        echo "no speedscope: npm cannot install it" >&2
        set --
    fi
    (cd web && node e2e/bench-graphs.mjs "$url" "$@") || true
    kill "$server"
    wait "$server" || true
    walk "$out"
}

# The page's main thread in a walk through every view, and brushes, on the recording that these goals name.
walk() {
    local server url
    rm -rf "$1"/memory-big.dat* "$1/big.folded"
    cargo run --quiet --release -p tracehound-bench -- generate "$1/memory-huge.dat" \
        --events 23m --nodes 3000000 --sites 1000000 >/dev/null
    target/release/heaptrace info "$1/memory-huge.dat" >/dev/null
    serve "$1/memory-huge.dat"
    echo "page: 23m events, 850,000 sites, 70 steps through every view"
    (cd web && node e2e/bench-walk.mjs "$url") || true
    kill "$server"
    wait "$server" || true
}

# Many threads alive at once: a plain run and a traced one in turn, medians of all pairs.
threads() {
    local out
    out=$(mktemp -d)
    # shellcheck disable=SC2064  # the folder is known now
    trap "rm -rf '$out'" RETURN
    cc -O2 -pthread -o "$out/alive" preload/tests/traced/programs/alive.c
    echo "threads alive at once: one traced run beside one plain run, medians of $pairs_of_runs pairs"
    printf '%8s %9s %10s %11s %10s %12s\n' threads 'plain, s' 'traced, s' 'time ratio' 'CPU ratio' 'traced, MiB'
    for arguments in '8 20000 1' '200 500 1' '1000 50 1' '10000 3 2'; do
        for ((pair = 0; pair < pairs_of_runs; pair++)); do
            # shellcheck disable=SC2086  # several arguments
            cost "$out" '' $arguments
            # shellcheck disable=SC2086
            cost "$out" "$PWD/target/release/libtracehound.so" $arguments
            lost=$(target/release/heaptrace info --json "$out/memory.dat" | awk '/"lost":/ { print $2 + 0; exit }')
            [ "$lost" = 0 ] || echo "lost $lost events with ${arguments%% *} threads" >&2
            rm -rf "$out"/memory.dat*
        done >"$out/costs"
        # wall, CPU and memory of a plain run, then of the traced one
        paste - - <"$out/costs" | awk -v threads="${arguments%% *}" '
            function median(values, n,    i, j, t) {
                for (i = 2; i <= n; i++)
                    for (j = i; j > 1 && values[j] < values[j - 1]; j--) { t = values[j]; values[j] = values[j - 1]; values[j - 1] = t }
                return n % 2 ? values[(n + 1) / 2] : (values[n / 2] + values[n / 2 + 1]) / 2
            }
            function over(a, b) { return a / (b > 0.01 ? b : 0.01) }
            { plain[NR] = $1; traced[NR] = $4; wall[NR] = over($4, $1); cpu[NR] = over($5, $2); memory[NR] = $6 }
            END { printf "%8d %9.2f %10.2f %11.2f %10.2f %12d\n", threads, median(plain, NR), median(traced, NR),
                  median(wall, NR), median(cpu, NR), median(memory, NR) / 1024 }'
    done
}

# What looks at the page tables cost a large process: as tests/programs/looked_at.c says, with and without them in turn.
looks() {
    local out pages
    out=$(mktemp -d)
    # shellcheck disable=SC2064  # the folder is known now
    trap "rm -rf '$out'" RETURN
    cc -O2 -pthread -Ipreload/include -o "$out/looked_at" tests/programs/looked_at.c
    echo "looks: GiB in pages of 4 KiB, 4 TiB of PROT_NONE, and no or 60,000 more mappings; nanoseconds"
    for size in "1 0" "4 0" "4 60000"; do
        for pages in off auto off auto; do
            printf '%-8s %-5s ' "$size" "$pages"
            # shellcheck disable=SC2086  # two arguments
            TRACEHOUND_PAGES=$pages LD_PRELOAD=$PWD/target/release/libtracehound.so TRACEHOUND_OUTPUT=$out/memory.dat \
                "$out/looked_at" $size 10
        done
    done
}

# Seconds, CPU seconds and KiB of one run: cost FOLDER LIBRARY ARGUMENTS…
cost() {
    local folder=$1 library=$2
    shift 2
    python3 - "$folder" "$library" "$@" <<'PYTHON'
import os, resource, subprocess, sys, time
folder, library, *arguments = sys.argv[1:]
environment = dict(os.environ, TRACEHOUND_OUTPUT=folder + "/memory.dat")
if library:
    environment["LD_PRELOAD"] = library
began = time.monotonic()
subprocess.run([folder + "/alive", *arguments], env=environment, stdout=subprocess.DEVNULL, check=True)
wall, used = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
print(f"{wall:.3f} {used.ru_utime + used.ru_stime:.3f} {used.ru_maxrss}")
PYTHON
}

for part in "${parts[@]}"; do
    case $part in
        overhead)
            cargo run --quiet --release -p tracehound-overhead -- "${options[@]}"
            # One document is one document.
            [[ " ${options[*]} " == *" --json "* ]] ||
                cargo run --quiet --release -p tracehound-unwind-tests --bin capture-cost
            ;;
        threads) threads ;;
        python) tests/python-cost.py --rounds "$pairs_of_runs" ;;
        looks) looks ;;
        reading)
            cargo run --quiet --release -p tracehound-bench -- scale --sizes "$sizes"
            echo "the same with a million call-tree nodes"
            cargo run --quiet --release -p tracehound-bench -- scale --sizes "$many" --windows 20 --nodes 1000000 --sites 250000
            cargo run --quiet --release -p tracehound-bench -- rival
            ;;
        verdicts)
            echo "verdicts: what a history does, and what heaptrace said of it with six seeds each"
            cargo test --quiet -p tracehound-query --test verdicts -- --nocapture
            echo "verdicts: what a program does, and the shape that heaptrace saw"
            cargo test --quiet -p tracehound-tests --test verdicts -- --nocapture
            ;;
        page) page ;;
    esac
done
