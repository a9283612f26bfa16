#!/usr/bin/env bash
# Twenty processes of two versions of a service, one of which leaks; collected into a folder, and asked.
set -euo pipefail
cd "$(dirname "$0")/.."
release=${CARGO_TARGET_DIR:-target}/release
out=$(pwd)/target/demo-fleet
rm -rf "$out"
mkdir -p "$out/spool"

echo "== compiling the service (tests/programs/planted.c)"
cc -O1 -g -o "$out/shop" tests/programs/planted.c

echo "== a collector follows the spool: heaptrace collect --spool $out/spool --store file://$out/store"
"$release/heaptrace" collect --spool "$out/spool" --store "file://$out/store" &
collector=$!
trap 'kill $collector 2>/dev/null || true' EXIT

echo "== ten processes each of version 1.4 and 1.5"
export TRACEHOUND_OUTPUT="$out/spool/%e-%p-%i.dat"
processes=()
for number in $(seq 20); do
    if [ $((number % 2)) = 0 ]; then version=1.4 fault=none; else version=1.5 fault=leak; fi
    TRACEHOUND_LABELS="service=shop,version=$version" LD_PRELOAD="$release/libtracehound.so" "$out/shop" $fault &
    processes+=($!)
done
wait "${processes[@]}"
kill $collector
wait $collector || true
# What was under way when it was told to stop.
"$release/heaptrace" collect --once --spool "$out/spool" --store "file://$out/store"
"$release/heaptrace" fleet pack "file://$out/store"
trap - EXIT

echo
echo "== heaptrace fleet leaks file://$out/store"
"$release/heaptrace" fleet leaks "file://$out/store"
echo
echo "== heaptrace fleet regress file://$out/store --service shop --before 1.4 --after 1.5"
"$release/heaptrace" fleet regress "file://$out/store" --service shop --before 1.4 --after 1.5
