#!/usr/bin/env bash
# Installs the Debian packages that the tests need; without root or apt it lists what is missing and fails.
set -euo pipefail

# package:a file that it brings
needs=(
    gcc:/usr/bin/cc g++:/usr/bin/c++ valgrind:/usr/bin/valgrind python3:/usr/bin/python3 sqlite3:/usr/bin/sqlite3
    chromium:/usr/bin/chromium libunwind-dev:/usr/include/libunwind.h libunwind8:/usr/lib/x86_64-linux-gnu/libunwind.so.8
)
missing=()
for need in "${needs[@]}"; do
    [ -e "${need#*:}" ] || missing+=("${need%%:*}")
done
[ "${#missing[@]}" -gt 0 ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing ${missing[*]}" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
else
    echo "the tests need these Debian packages: ${missing[*]}" >&2
    echo "install them with: sudo apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
fi
