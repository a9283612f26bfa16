#!/usr/bin/env bash
# Installs the programs that open our exports, from npm and PyPI, into target/clients, which other clones use, too; only
# what is not there yet.
# `tests/clients.sh engines` installs Spark and DataFusion (460 MB) too.
set -euo pipefail
cd "$(dirname "$0")/.."
clients=$(tests/kept-folder.sh clients tests/clients.sh tests/clients/package-lock.json tests/clients/requirements.txt)
# Test files run at the same time.
exec 9>"$clients/lock"
flock 9
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
if [ ! -e "$clients/junit-10.xsd" ]; then
    # The schema of JUnit reports that Jenkins has is among the tests of pytest.
    rm -rf "$clients/pytest"
    "$clients/python/bin/pip" download --quiet --disable-pip-version-check --no-deps --no-binary :all: \
        -d "$clients/pytest" pytest==8.4.2
    tar -xzf "$clients"/pytest/pytest-*.tar.gz -C "$clients/pytest" --strip-components=3 --wildcards '*/junit-10.xsd'
    mv "$clients/pytest/junit-10.xsd" "$clients/"
    rm -rf "$clients/pytest"
fi
engines="$clients/engines"
if [ "${1-}" = engines ] && [ ! -e "$engines/installed" ]; then
    rm -rf "$engines"
    /usr/bin/python3 -m venv "$engines"
    "$engines/bin/pip" install --quiet --disable-pip-version-check duckdb==2.0.0 pyarrow==26.0.1 datafusion==55.0.0 pyspark==4.3.0
    touch "$engines/installed"
fi
