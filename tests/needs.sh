#!/usr/bin/env bash
# Installs the Debian packages that the tests need; without root or apt it lists what is missing and fails.
set -euo pipefail

# package:a file that it brings
needs=(
    gcc:/usr/bin/cc g++:/usr/bin/c++ binutils:/usr/bin/objdump valgrind:/usr/bin/valgrind strace:/usr/bin/strace
    python3:/usr/bin/python3 sqlite3:/usr/bin/sqlite3
    chromium:/usr/bin/chromium firefox-esr:/usr/bin/firefox-esr libunwind-dev:/usr/include/x86_64-linux-gnu/libunwind.h libunwind8:/usr/lib/x86_64-linux-gnu/libunwind.so.8
    # allocators that programs are linked with, and real programs to be recorded
    libjemalloc-dev:/usr/lib/x86_64-linux-gnu/libjemalloc.so libmimalloc-dev:/usr/lib/x86_64-linux-gnu/libmimalloc.so
    libgoogle-perftools-dev:/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so gcc-multilib:/usr/lib32/crt1.o
    redis-server:/usr/bin/redis-server redis-tools:/usr/bin/redis-benchmark git:/usr/bin/git nodejs:/usr/bin/node
    default-jdk-headless:/usr/bin/javac gdb:/usr/bin/gdb perl:/usr/bin/perl xz-utils:/usr/bin/xz make:/usr/bin/make
    rpm:/usr/bin/rpmbuild patchelf:/usr/bin/patchelf openssl:/usr/bin/openssl
    musl-tools:/usr/bin/musl-gcc
    # programs that open our exports; more of them come from npm and PyPI, see clients.sh
    heaptrack:/usr/bin/heaptrack_print debuginfod:/usr/bin/debuginfod-find zstd:/usr/bin/zstd libxml2-utils:/usr/bin/xmllint
)
/usr/bin/python3 -c 'import ensurepip' 2>/dev/null || needs+=(python3-venv:/nowhere)
# Any Go will do, wherever it was installed.
command -v go >/dev/null || needs+=(golang-go:/usr/bin/go)
missing=()
for need in "${needs[@]}"; do
    [ -e "${need#*:}" ] || missing+=("${need%%:*}")
done
newer() {
    "$(dirname "$0")/newer-pythons.sh"
    "$(dirname "$0")/newer-javas.sh"
}
if [ "${#missing[@]}" -eq 0 ]; then
    newer
elif [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing ${missing[*]}" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
    newer
else
    echo "the tests need these Debian packages: ${missing[*]}" >&2
    echo "install them with: sudo apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
fi
