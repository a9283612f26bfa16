#!/usr/bin/env bash
# The page in a real Chromium against the real server: records, serves, runs web/e2e.
set -euo pipefail
cd "$(dirname "$0")/.."
built=$(realpath "${CARGO_TARGET_DIR:-target}")/${BUILD_PROFILE:-release}
out=$(mktemp -d)
log=$out/server.log
server=0
finish() {
    if [ "$server" != 0 ]; then
        kill "$server" 2>/dev/null || true
        # It may be writing an index into the folder.
        wait "$server" 2>/dev/null || true
    fi
    rm -rf "$out"
}
trap finish EXIT

rustc --edition 2024 -g -O -o "$out/leak" tests/programs/leak.rs
"$built/heaptrace" run -o "$out/memory-leak.dat" -- "$out/leak" 1500 >/dev/null 2>&1
python=$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')
PYTHONMALLOC=malloc "$built/heaptrace" run -o "$out/memory-python.dat" -- "$python" tests/programs/work.py >/dev/null 2>&1

# Port 0: the system chooses; the server prints the address that it got.
"$built/heaptrace" server "$out/memory-leak.dat" "$out/memory-python.dat" --port 0 >"$log" 2>&1 &
server=$!
url=
for _ in $(seq 200); do
    url=$(grep -oE 'http://[0-9.:]+' "$log" | head -1 || true)
    [ -z "$url" ] || break
    sleep 0.1
done
if [ -z "$url" ]; then
    echo "the server did not print its address:" >&2
    cat "$log" >&2
    exit 1
fi
cd web
HEAPTRACE_URL=$url HEAPTRACE=$built/heaptrace TRACEHOUND_LIBRARY=$built/libtracehound.so npm run e2e --silent
