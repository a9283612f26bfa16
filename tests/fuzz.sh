#!/usr/bin/env bash
# Every decoder against hostile input: the property tests with many more cases than usual, for FUZZ_CASES cases each.
set -euo pipefail
cd "$(dirname "$0")/.."
export PROPTEST_CASES=${FUZZ_CASES:-200000}
export PROPTEST_MAX_SHRINK_ITERS=10000
cargo test --release -p tracehound-format --lib -- hostile comes_back come_back
cargo test --release -p tracehound-server --lib -- hostile damage
