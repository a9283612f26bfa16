#!/bin/sh
# Mutation test of the unwinder: every check taken away (mutants.txt) must make some test fail. Takes minutes.
# With an argument: only the mutants whose name holds it, or one of several words separated by commas.
# MUTANTS_AT_ONCE: how many are tried side by side, each in a copy of its own (default: one for each processor, up to 4).
cd "$(dirname "$0")" || exit 1
MUTANTS="$1" exec cargo test --quiet -p tracehound-unwind-tests --test mutants -- --ignored --nocapture
