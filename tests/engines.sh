#!/usr/bin/env bash
# Asks the questions of `heaptrace fleet sql` of DuckDB, of Spark with two executors of their own (local-cluster) and of
# DataFusion, over one store as it came and compacted: all rows must be equal. Then Spark reads a Parquet export. Installs
# Spark (460 MB) and DataFusion into target/clients, once; Java is installed by tests/needs.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
built=$(realpath "${CARGO_TARGET_DIR:-target}")/${BUILD_PROFILE:-release}
engines=$(realpath "${CARGO_TARGET_DIR:-target}")/clients/engines
tests/clients.sh engines
out=$(mktemp -d "${TMPDIR:-/tmp}/engines.XXXXXX")
trap 'rm -rf "$out"' EXIT
cc -O1 -g -o "$out/shop" tests/programs/planted.c
export TRACEHOUND_OUTPUT="$out/spool/%e-%p-%i.dat" PYSPARK_PYTHON="$engines/bin/python"
mkdir "$out/spool"
for number in 1 2 3 4 5 6; do
    # A version that a reader of numbers would take for another.
    if [ $((number % 2)) = 0 ]; then version=1.1 fault=none; else version=1.10 fault=leak; fi
    TRACEHOUND_LABELS="service=shop,version=$version" LD_PRELOAD="$built/libtracehound.so" "$out/shop" $fault >/dev/null
done
"$built/heaptrace" collect --once --spool "$out/spool" --store "file://$out/store"
ask() { (cd "$out" && "$engines/bin/python" "$OLDPWD/tests/clients/fleet_engines.py" "$built/heaptrace" "file://$out/store" spark datafusion); }
echo "== as they came"
ask
"$built/heaptrace" fleet compact "file://$out/store" --before 9999-01-01
echo "== compacted"
ask
echo "== an export, its types given to Spark"
exported=$(find "$out/store" -name '*.dat' | sort | head -1)
"$built/heaptrace" export --format parquet --output "$out/tables/" "$exported"
"$engines/bin/python" tests/clients/spark_types.py "$out/tables"
