#!/usr/bin/env bash
# Puts the interpreters that Debian's testing suite has and this system has not into target/pythons (a link, see
# kept-folder.sh), each able to run here: with its own loader and libraries. Without apt or patchelf it says so, and tests
# use what the system has.
set -euo pipefail
cd "$(dirname "$0")/.."

suite=testing
versions=(3.14 3.15)
kept=$(tests/kept-folder.sh pythons tests/newer-pythons.sh)
root=$kept/root
libraries=(libc6 libexpat1 zlib1g libssl3t64 libffi8 libbz2-1.0 liblzma5 libuuid1 libzstd1 libgcc-s1 libstdc++6)

exec 9>"$kept/lock"
flock 9
[ ! -e "$root/complete" ] || exit 0
# shellcheck disable=SC2016  # apt's own variable
site=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Component: main' 2>/dev/null | grep -m1 '/debian/*$' || true)
if [ -z "$site" ] || ! command -v patchelf >/dev/null; then
    echo "newer versions of Python are not tested: they need patchelf, and apt with a mirror of Debian" >&2
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists/partial,cache/archives/partial,debs}
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $site $suite main" >"$work/sources.list"
apt() {
    apt-get -qq -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/nonexistent \
        -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work/cache" -o APT::Sandbox::User=root \
        -o APT::Architecture=amd64 -o APT::Architectures=amd64 -o Acquire::Languages=none "$@"
}
packages=("${libraries[@]}")
for version in "${versions[@]}"; do
    packages+=("python$version-minimal" "libpython$version-minimal" "libpython$version-stdlib")
done
if ! { apt update && (cd "$work/debs" && apt download "${packages[@]}"); } >"$work/log" 2>&1; then
    echo "newer versions of Python are not tested: $(tail -1 "$work/log")" >&2
    exit 0
fi
rm -rf "$root"
mkdir -p "$root"
for package in "$work"/debs/*.deb; do dpkg-deb -x "$package" "$root"; done
for version in "${versions[@]}"; do
    patchelf --set-interpreter "$root/usr/lib64/ld-linux-x86-64.so.2" \
        --force-rpath --set-rpath "$root/usr/lib/x86_64-linux-gnu" "$root/usr/bin/python$version"
    "$root/usr/bin/python$version" -c 'import asyncio, ctypes, zlib, ssl'
done
touch "$root/complete"
