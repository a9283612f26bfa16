#!/usr/bin/env bash
# Runs the tests of stores on a real S3 server, versitygw, which it builds into target/clients (some minutes, once).
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(pwd)/target/clients/bin
[ -x "$bin/versitygw" ] || GOBIN=$bin go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
VERSITYGW=$bin/versitygw cargo test --release -p tracehound-tests --test fleet -- --ignored
