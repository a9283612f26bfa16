#!/usr/bin/env bash
# Pictures of every view, to be looked at: tests/looks.sh OUT. Recordings: a tiny program, two of real ones (python3 at
# work, shorter and longer), two with a call tree of a million nodes, and one of a program that runs. In both themes at
# 1280 and 2560 pixels; WIDTHS, THEMES and ONLY (a regular expression over `view.recording.width.theme`) choose.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:?usage: tests/looks.sh OUT}")
release=$(realpath "${CARGO_TARGET_DIR:-target}")/release
work=$(mktemp -d)
server=0
running=0
finish() {
    for pid in "$server" "$running"; do [ "$pid" = 0 ] || kill "$pid" 2>/dev/null || true; done
    rm -rf "$work"
}
trap finish EXIT

record() { "$release/heaptrace" run -o "$work/memory-$1.dat" -- "${@:2}" >/dev/null 2>&1; }
million() {
    cargo run --quiet --release -p tracehound-bench -- generate "$work/memory-$1.dat" \
        --events 10m --nodes 1000000 --functions 30000 --sites 250000 --seed "$2" >/dev/null
    "$release/heaptrace" info "$work/memory-$1.dat" >/dev/null
}

gcc -g -O1 -o "$work/tiny" tests/programs/five.c
record tiny "$work/tiny"
python=$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')
cp tests/programs/work.py "$work/work.py"
PYTHONMALLOC=malloc record typical "$python" "$work/work.py"
sed 's/range(40)/range(60)/' "$work/work.py" >"$work/work-longer.py"
PYTHONMALLOC=malloc record typical-after "$python" "$work/work-longer.py"
million million 1
million million-after 2
gcc -g -O1 -I preload/include -o "$work/live" web/e2e/programs/steady.c
LD_PRELOAD=$release/libtracehound.so TRACEHOUND_OUTPUT=$work/memory-live.dat "$work/live" >/dev/null 2>&1 &
running=$!
"$release/heaptrace" report "$work/memory-typical.dat" -o "$work/report.html" >/dev/null 2>&1

recordings=()
for name in tiny typical typical-after million million-after live; do recordings+=("$work/memory-$name.dat"); done
"$release/heaptrace" server "${recordings[@]}" --port 0 >"$work/log" 2>&1 &
server=$!
url=
for _ in $(seq 300); do
    url=$(grep -oE 'http://[0-9.:]+' "$work/log" | head -1 || true)
    [ -z "$url" ] || break
    sleep 0.1
done
cd web
node e2e/looks.mjs "$out" "$url" "$work/report.html"
