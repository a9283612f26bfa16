#!/bin/sh
# Mutation test of the unwinder: every check taken away (mutants.txt) must make some test fail. Takes minutes.
# With an argument: only the mutants whose name holds it, or one of several words separated by commas.
cd "$(dirname "$0")" || exit 1
MUTANTS="$1" exec cargo test --quiet -p tracehound-unwind-tests --test mutants -- --ignored --nocapture
