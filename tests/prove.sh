#!/usr/bin/env bash
# The proofs by machine (docs/proving.md): coverage-guided fuzzing, models of the lock-free core, Miri, sanitizers.
#
#   prove.sh short    all models and their mutants: what `make test` runs
#   prove.sh full     all of it
#   prove.sh fuzz|models|miri|memcheck|race    one part; SECONDS_EACH for each fuzz target, default 60
#
# The compiler's nightly flags are switched on by RUSTC_BOOTSTRAP: the stable toolchain is enough. Only Miri is a part of
# nightly toolchains; where rustup brings none, that is said.
set -euo pipefail
cd "$(dirname "$0")/.."
HOST=$(rustc -vV | sed -n 's/^host: //p')
TOOLS=$(tests/kept-folder.sh tools tests/dependencies.sh)
JOBS=$(nproc)
failed=()

# The recorder's own allocator is C code, and compiled already where the recorder is.
for library in target/{release,quick}/build/tikv-jemalloc-sys-*/out/lib/libjemalloc_pic.a; do
    if [ -e "$library" ]; then export JEMALLOC_OVERRIDE=$PWD/$library; fi
done

part() { # NAME COMMAND...: runs a part and says how long it took; goes on when it fails
    local name=$1 from=$SECONDS
    shift
    echo "== $name"
    if "$@"; then echo "== $name: done in $((SECONDS - from)) s"; else
        echo "== $name: FAILED after $((SECONDS - from)) s"
        failed+=("$name")
    fi
}

fuzz_build() {
    if ! [ -x "$TOOLS/bin/cargo-fuzz" ]; then
        cargo install --quiet --locked --root "$TOOLS" --version 0.13.2 cargo-fuzz
    fi
    # -a: with checks of overflow and debug assertions, in what is also optimised.
    PATH="$TOOLS/bin:$PATH" RUSTC_BOOTSTRAP=1 cargo fuzz build -a "$@"
}

fuzz_one() { # TARGET SECONDS
    local target=$1 seconds=$2 log status=0
    log=target/fuzz/$target.log
    mkdir -p "fuzz/corpus/$target" "fuzz/artifacts/$target" "fuzz/seeds/$target" target/fuzz
    "fuzz/target/$HOST/release/$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=3000 -max_len=65536 \
        -artifact_prefix="fuzz/artifacts/$target/" -print_final_stats=1 "fuzz/corpus/$target" "fuzz/seeds/$target" \
        >"$log" 2>&1 || status=$?
    local runs cover
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    cover=$(grep -oE 'cov: [0-9]+ ft: [0-9]+ corp: [0-9]+' "$log" | tail -1)
    if [ "$status" = 0 ]; then
        printf '%-12s %9s executions, %s\n' "$target" "$runs" "$cover"
    else
        printf '%-12s FAILED, see %s; the input is in fuzz/artifacts/%s\n' "$target" "$log" "$target"
        tail -40 "$log"
        return 1
    fi
}

fuzz_run() { # SECONDS for each target
    local targets status=0
    targets=$(sed -n 's/^name = "\(.*\)"$/\1/p' fuzz/Cargo.toml | tail -n +2)
    export -f fuzz_one
    export HOST
    # shellcheck disable=SC2086
    printf '%s\n' $targets | xargs -P "$JOBS" -I{} bash -c "fuzz_one {} $1" || status=1
    return "$status"
}

fuzz() {
    fuzz_build && fuzz_run "$1"
}

models() { # Every model, and every mutant.
    RUSTFLAGS="--cfg loom" cargo test --release -p tracehound-lifecycle --target-dir target/loom --test models -- \
        --nocapture --test-threads=1
}

miri() { # The format's unit tests, and those of the recorder's core that need no kernel, no C and no assembly.
    if ! cargo +nightly miri --version >/dev/null 2>&1; then
        # A part of nightly toolchains.
        if ! rustup toolchain install nightly --profile minimal --component miri --component rust-src >/dev/null 2>&1; then
            echo "Miri: NOT RUN: no nightly toolchain here has it, and rustup brings none"
            return 0
        fi
    fi
    export MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-ignore-leaks" PROPTEST_CASES=2
    local beyond=(
        # Files, ELF objects and libraries of this process.
        --skip elf_file --skip libc_version --skip loader --skip symbols:: --skip dynamic_symbols --skip hotspot::tables
        # C and assembly: jemalloc, getauxval, the gate's slot, stacks that change, system calls of our own, signal handlers.
        --skip stack_trie --skip heap:: --skip python:: --skip room:: --skip stack::tests --skip after_each --skip between_any_two_instructions
        # Memory with other protections or advice; a futex, whose word rustix passes as another type of pointer.
        --skip step:: --skip threads::tests --skip waited_for_asleep --skip threads_take_and_send
        # Minutes each when interpreted: many threads, or tens of thousands of rounds. The models have the threads.
        --skip full_tree_answers_lost_and_counts --skip no_two_threads_get_the_same_node --skip threads_agree_on_ids
        --skip hidden_ranges_give_their_place_back --skip readers_never_see_parts_of_two_objects
        --skip threads_note_and_forget_at_once --skip there_is_room_for_tens_of_thousands
    )
    cargo +nightly miri test --target-dir target/miri -p tracehound-format -p tracehound-shared -p tracehound-unwind --lib \
        -- "${beyond[@]}"
}

memcheck() {
    # The unit tests of what runs in the traced process, and of the format, under valgrind: no invalid memory is touched.
    local binary
    local skipped=(
        # A table of forty thousand ranges is walked as often, by code that other tests run: minutes under valgrind.
        --skip there_is_room_for_tens_of_thousands
        # They change stacks, which valgrind takes for one that has grown over what lies between.
        --skip room::tests
        # They map a terabyte, and 60,000 ranges, which valgrind refuses, and measure how long a look takes.
        --skip page_looks::tests
        # The processor's trap after each instruction, which valgrind does not have.
        --skip between_any_two_instructions
        # /proc/self/exe names valgrind.
        --skip this_process_has_modules_with_build_ids --skip the_program_and_its_loader_are_those_of_this_process
    )
    cargo test --release --no-run --lib -p tracehound-format -p tracehound-shared -p tracehound-unwind \
        -p tracehound-record -p tracehound-background -p tracehound-lifecycle 2>&1 |
        sed -n 's/.*Executable.*(\(.*\))$/\1/p' >target/memcheck.list
    [ "$(wc -l <target/memcheck.list)" = 6 ] || { echo "six binaries were expected"; return 1; }
    while read -r binary; do
        PROPTEST_CASES=8 valgrind --quiet --error-exitcode=9 --leak-check=no --undef-value-errors=no --fair-sched=yes \
            --suppressions=tests/memcheck.supp "$binary" --test-threads=1 "${skipped[@]}" \
            >target/memcheck.log 2>&1 </dev/null || { tail -60 target/memcheck.log; return 1; }
        grep "^test result" target/memcheck.log
    done <target/memcheck.list
}

race() { # SECONDS: the collector under many threads, with ThreadSanitizer
    local binary=target/tsan/$HOST/release/examples/stress folder
    # The standard library is not compiled for the sanitizer: it has no source here. What our crates share between
    # threads they share by their own atomics, which are.
    RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" \
        cargo build --release -p tracehound-lifecycle --example stress --target "$HOST" --target-dir target/tsan
    folder=$(mktemp -d)
    # Nothing is suppressed: a pattern that fits the frame in which a thread begins would hide every race of that thread.
    export TSAN_OPTIONS="halt_on_error=0 exitcode=66 report_signal_unsafe=0"
    if TRACEHOUND_OUTPUT=$folder/inserted.dat "$binary" 1 --insert-race >target/race.log 2>&1; then
        echo "the planted race was not found"
        return 1
    fi
    if ! grep -q "data race .*/stress.rs" target/race.log || [ "$(grep -c "^SUMMARY" target/race.log)" != 1 ]; then
        tail -40 target/race.log
        return 1
    fi
    echo "the planted race was found, and nothing else"
    if ! TRACEHOUND_OUTPUT=$folder/stress.dat "$binary" "$1" >target/race.log 2>&1; then
        grep -c "WARNING: ThreadSanitizer" target/race.log || true
        head -80 target/race.log
        return 1
    fi
    cat target/race.log
    rm -r "$folder"
}

case ${1:-full} in
short)
    part "models" models
    ;;
full)
    part "fuzzing" fuzz "${SECONDS_EACH:-45}"
    part "models" models
    part "Miri" miri
    part "memcheck" memcheck
    part "data races" race "${SECONDS_EACH:-45}"
    ;;
fuzz) part "fuzzing" fuzz "${SECONDS_EACH:-60}" ;;
models) part "models" models ;;
miri) part "Miri" miri ;;
memcheck) part "memcheck" memcheck ;;
race) part "data races" race "${SECONDS_EACH:-60}" ;;
*)
    echo "usage: $0 short|full|fuzz|models|miri|memcheck|race" >&2
    exit 2
    ;;
esac
if [ "${#failed[@]}" -gt 0 ]; then
    echo "failed: ${failed[*]}"
    exit 1
fi
