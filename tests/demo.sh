#!/usr/bin/env bash
# Records a leaking Rust program and a real one, prints the leak report, then serves both (first argument 0: does not).
set -euo pipefail
cd "$(dirname "$0")/.."
serve=${1:-1}
port=${2:-8080}
built=${CARGO_TARGET_DIR:-target}/quick
out=target/demo-recordings
rm -rf "$out"
mkdir -p "$out"

echo "== compiling the leaking program (tests/programs/leak.rs)"
rustc --edition 2024 -g -O -o "$out/leak" tests/programs/leak.rs

echo "== recording it for three seconds"
"$built/heaptrace" run -o "$out/memory-leak.dat" -- "$out/leak" 3000

echo
echo "== recording python3 at work: building, dumping and parsing JSON"
# The interpreter itself: a version manager's python3 is a script that would be recorded in its place.
python=$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')
PYTHONMALLOC=malloc "$built/heaptrace" run -o "$out/memory-python.dat" -- "$python" tests/programs/work.py

echo
"$built/heaptrace" info "$out/memory-python.dat"
echo
"$built/heaptrace" leaks "$out/memory-leak.dat"

if [ "$serve" = 0 ]; then
    exit 0
fi
echo
exec "$built/heaptrace" server "$out/memory-leak.dat" "$out/memory-python.dat" --port "$port"
