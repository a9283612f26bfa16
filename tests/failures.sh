#!/usr/bin/env bash
# What failed, out of a log of cargo, of libtest or of Vitest; the log's end where none of them says it:
#   tests/failures.sh LOG
set -euo pipefail
found=$(awk '
    { plain = $0; gsub(/\033\[[0-9;]*m/, "", plain) }
    # libtest: from "failures:" to the closing line; cargo: an error and its context.
    plain == "failures:" { inside = 1 }
    plain ~ /^test result: / { if (inside) print plain; inside = 0 }
    plain ~ /^error(\[E[0-9]+\])?: / { error = 25 }
    # Vitest: from the list of failed tests or errors to the end.
    plain ~ /Failed (Tests|Suites) [0-9]+|Unhandled Errors?|Serialized Error/ { inside = 1 }
    plain ~ /^== .*FAILED/ { print plain }
    inside || error > 0 { print plain; error-- }
' "$1" | tail -400)
if [ -n "$found" ]; then printf '%s\n' "$found"; else tail -60 "$1"; fi
