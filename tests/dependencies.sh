#!/usr/bin/env bash
# Holds the dependencies to deny.toml: licences, second versions, sources; fuzz/Cargo.lock to what the fuzz targets need;
# and all to the lists of known vulnerabilities of RustSec and npm, where these can be reached. Where they cannot, it says
# so and goes on.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$(tests/kept-folder.sh tools tests/dependencies.sh)
version=0.20.2
exec 9>"$tools/lock"
flock 9
if ! "$tools/bin/cargo-deny" --version 2>/dev/null | grep -q " $version\$"; then
    echo "installing cargo-deny $version into $tools" >&2
    cargo install --quiet --locked --debug --root "$tools" --target-dir "$tools/build" "cargo-deny@$version"
    rm -rf "$tools/build"
fi
flock -u 9
export PATH="$tools/bin:$PATH"
cargo deny --log-level warn check --hide-inclusion-graph bans licenses sources
cargo metadata --locked --format-version 1 --manifest-path fuzz/Cargo.toml >/dev/null || {
    echo "fuzz/Cargo.lock is not what its crates need: run cargo update --workspace in fuzz" >&2
    exit 1
}

said=$(mktemp)
trap 'rm -f "$said"' EXIT
if ! cargo deny --log-level error check advisories >"$said" 2>&1; then
    if grep -q "failed to fetch advisory database" "$said"; then
        echo "advisories of crates: NOT CHECKED, the database cannot be reached" >&2
    else
        cat "$said" >&2
        exit 1
    fi
fi
if ! (cd web && npm audit --omit=dev --json) >"$said" 2>/dev/null; then
    if grep -q '"vulnerabilities"' "$said"; then
        (cd web && npm audit --omit=dev) >&2 || true
        exit 1
    fi
    echo "advisories of npm packages: NOT CHECKED, the registry does not answer" >&2
fi
