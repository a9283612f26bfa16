#!/usr/bin/env bash
# RECORDERS (200) recorded processes for LOAD_SECONDS (60) against one collector, which brings them into a folder. Says how
# many events were lost (there must be none), and what the collector took. TABLES=1 has it write the tables, too; REST is
# how many microseconds each process rests after 64 blocks.
set -euo pipefail
cd "$(dirname "$0")/.."
release=$(pwd)/${CARGO_TARGET_DIR:-target}/release
recorders=${RECORDERS:-200} seconds=${LOAD_SECONDS:-60} rest=${REST:-20000}
out=$(mktemp -d "${TMPDIR:-/tmp}/fleet-load.XXXXXX")
mkdir "$out/spool" "$out/done"
cc -O1 -o "$out/load" tests/programs/counted_blocks.c
tables=--no-tables
if [ "${TABLES:-0}" = 1 ]; then tables=--interval=500; fi
port=$((20000 + RANDOM % 20000))

"$release/heaptrace" collect --spool "$out/spool" --store "file://$out/store" --listen "127.0.0.1:$port" --quota 2G $tables &
collector=$!
pids=()
cleanup() {
    kill -9 "${pids[@]}" 2>/dev/null || true
    kill "$collector" 2>/dev/null || true
    rm -rf "$out"
}
trap cleanup EXIT
export TRACEHOUND_OUTPUT="$out/spool/%e-%p-%i.dat" TRACEHOUND_LABELS=service=load
for number in $(seq "$recorders"); do
    LD_PRELOAD="$release/libtracehound.so" "$out/load" "$out/done/$number" 0 "$rest" &
    pids+=($!)
done
# The shell must not print for each that it was killed.
disown "${pids[@]}"
sleep "$seconds"
running=$(ls "$out/spool" | grep -c '\.dat$')
kill -9 "${pids[@]}"
pids=()
for _ in $(seq 600); do
    if ! compgen -G "$out/spool/*.dat" >/dev/null; then break; fi
    sleep 0.5
done

RELEASE=$release OUT=$out PORT=$port COLLECTOR=$collector RECORDERS=$recorders LOAD_SECONDS=$seconds AT_ONCE=$running python3 - <<'END'
import glob, json, os, struct, subprocess, sys
release, out, pid = os.environ["RELEASE"], os.environ["OUT"], os.environ["COLLECTOR"]
heaptrace = release + "/heaptrace"
status = json.loads(subprocess.check_output([heaptrace, "collect", "status", "--json", "127.0.0.1:" + os.environ["PORT"]]))
memory = {line.split(":")[0]: line.split()[1] for line in open(f"/proc/{pid}/status") if line.startswith("Vm")}
fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
processor = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
done = sum(struct.unpack("<Q", open(path, "rb").read(8))[0] for path in glob.glob(out + "/done/*"))
stored = glob.glob(out + "/store/raw/*.dat")
lost = allocations = events = 0
for path in stored:
    info = json.loads(subprocess.check_output([heaptrace, "info", "--json", path]))
    lost += info["events"]["lost"]
    allocations += info["events"]["alloc"]
    events += info["events"]["alloc"] + info["events"]["free"]
shipped = status["shipped_bytes"]
size = sum(os.path.getsize(path) for path in stored)
print(f"{os.environ['AT_ONCE']} recordings at once, {len(stored)} stored, {size / 1e6:.1f} MB, {events} events in {os.environ['LOAD_SECONDS']} s")
print(f"events lost: {lost}; blocks counted by the programs: {done}, recorded: {allocations}")
print(f"collector: peak resident memory {int(memory['VmHWM']) / 1024:.1f} MiB, processor {processor:.1f} s, {processor / (shipped / 1e9):.1f} s a gigabyte shipped ({shipped / 1e6:.1f} MB as they grew)")
print(f"errors: {status['errors']} {status['last_error']}")
complete = len(stored) == int(os.environ["RECORDERS"]) and done <= allocations <= done + len(stored)
sys.exit(0 if lost == 0 and complete else 1)
END
