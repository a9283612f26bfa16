#!/usr/bin/env bash
# Makes target/NAME a link to a folder outside of this clone, in which what tests install stays for later clones, and prints
# that folder: kept-folder.sh NAME FILE…, where the files say what is installed. Without a home there is a plain target/NAME.
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1
shift
link=${CARGO_TARGET_DIR:-target}/$name
mkdir -p "$(dirname "$link")"
kept=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/tracehound-tests/$name-$(cat "$@" | sha256sum | cut -c1-12)
if ! mkdir -p "$kept" 2>/dev/null; then
    mkdir -p "$link"
    realpath "$link"
    exit 0
fi
# Tests run at the same time.
exec 9>"$link.lock"
flock 9
if [ "$(readlink "$link" || true)" != "$kept" ]; then
    rm -rf "$link"
    ln -s "$kept" "$link"
fi
echo "$kept"
