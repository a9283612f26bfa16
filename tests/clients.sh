#!/usr/bin/env bash
# Installs the programs that open our exports, from npm and PyPI, into target/clients; only what is not there yet.
set -euo pipefail
cd "$(dirname "$0")/.."
clients=${CARGO_TARGET_DIR:-target}/clients
mkdir -p "$clients"
if ! cmp -s tests/clients/package.json "$clients/package.json"; then
    # package.json comes last: it says that the rest is there.
    rm -rf "$clients/node_modules" "$clients/npm"
    mkdir "$clients/npm"
    cp tests/clients/package.json tests/clients/package-lock.json "$clients/npm/"
    (cd "$clients/npm" && npm ci --no-audit --no-fund --loglevel=error)
    mv "$clients/npm/node_modules" "$clients/"
    cp tests/clients/package.json "$clients/"
    rm -rf "$clients/npm"
fi
if ! cmp -s tests/clients/requirements.txt "$clients/requirements.txt"; then
    rm -rf "$clients/python"
    /usr/bin/python3 -m venv "$clients/python"
    "$clients/python/bin/pip" install --quiet --disable-pip-version-check -r tests/clients/requirements.txt
    cp tests/clients/requirements.txt "$clients/"
fi
