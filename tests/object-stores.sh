#!/usr/bin/env bash
# Installs a server of object storage into target/clients, unless it is there (some minutes, once), and prints where it is:
# versitygw (S3) by Go, azurite (Azure) from npm. Google's is tests/clients/gcs.py, since fake-gcs-server refuses plain
# uploads of the XML interface.
set -euo pipefail
cd "$(dirname "$0")/.."
tests/clients.sh >&2
clients=$(realpath "${CARGO_TARGET_DIR:-target}/clients")
mkdir -p "$clients/bin"
# Tests run at the same time.
exec 9>"$clients/lock-${1:-}"
flock 9
by_go() {
    server=$clients/bin/$(basename "${1%@*}")
    [ -x "$server" ] || GOBIN=$clients/bin go install "$1" >&2
}
case "${1:-}" in
versitygw) by_go github.com/versity/versitygw/cmd/versitygw@v1.8.0 ;;
azurite)
    server=$clients/azurite/node_modules/.bin/azurite-blob
    if [ ! -x "$server" ]; then
        rm -rf "$clients/azurite"
        npm install --prefix "$clients/azurite" --no-audit --no-fund --loglevel=error azurite@3.37.0 >&2
    fi
    ;;
*)
    echo "usage: tests/object-stores.sh versitygw|azurite" >&2
    exit 2
    ;;
esac
echo "$server"
