#!/usr/bin/env bash
# Installs the packages that tests/python/packages uses into target/python-packages; prints the path of the interpreter
# that has them.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${CARGO_TARGET_DIR:-$PWD/target}/python-packages
requirements=tests/python/packages/requirements.txt
mkdir -p "$folder"
exec 9>"$folder/lock"
flock 9
if ! cmp -s "$requirements" "$folder/requirements.txt"; then
    rm -rf "$folder/venv"
    /usr/bin/python3 -m venv "$folder/venv" >&2
    "$folder/venv/bin/pip" install --quiet --disable-pip-version-check -r "$requirements" >&2
    cp "$requirements" "$folder/"
fi
echo "$folder/venv/bin/python"
