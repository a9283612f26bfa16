//! The recorder on aarch64, under qemu-user: recordings against the programs' own books, backtraces against libgcc's.
//!
//! `make test` runs these beside the rest, by `make test-aarch64`.
//!
//! What an emulator cannot show: missing barriers, because the host's memory order is strong; fork, because it passes
//! MADV_WIPEONFORK over; attaching, because it has no ptrace; mappings that must fail, because it ignores
//! MAP_FIXED_NOREPLACE.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;

use tracehound_tests::aarch64::{EMULATOR, compile, libraries};
use tracehound_tests::ground_truth::{Agreement, Case};
use tracehound_tests::number;

/// How compilers lay out functions there: with and without frame pointers, with signed return addresses by both keys,
/// in leaf functions, too.
const FLAGS: [&str; 5] = [
    "-O1",
    "-O0 -mbranch-protection=standard",
    "-O2 -fomit-frame-pointer",
    "-O2 -mbranch-protection=standard -fomit-frame-pointer",
    "-O2 -mbranch-protection=pac-ret+leaf+b-key",
];

/// Every stack was followed by unwind information, to its end.
fn agrees(source: &str, flags: &str) -> Agreement {
    let agreement = Case::emulated(source, flags).agrees();
    let stacks = &agreement.info["recorder"]["stacks"];
    for kind in ["heuristic", "frame_pointers", "truncated"] {
        assert_eq!(stacks[kind], 0, "{source} {flags}: {stacks}");
    }
    assert_eq!(agreement.info["recorder"]["clock"], "cntvct");
    agreement
}

#[test]
#[ignore = "builds for another processor, minutes: `make test-aarch64`"]
fn books_of_threads_that_free_each_others_blocks() {
    for flags in FLAGS {
        let agreement = agrees("cross_free.c", flags);
        assert_eq!(number(&agreement.info, "/recorder/order_repairs"), 0, "{flags}");
    }
}

#[test]
#[ignore = "builds for another processor, minutes: `make test-aarch64`"]
fn books_of_thousands_of_short_threads() {
    agrees("threads_short.c", FLAGS[0]);
}

#[test]
#[ignore = "builds for another processor, minutes: `make test-aarch64`"]
fn books_of_sizes_and_of_reallocations() {
    agrees("sizes.c", FLAGS[0]);
    agrees("realloc_chain.c", FLAGS[3]);
}

#[test]
#[ignore = "builds for another processor, minutes: `make test-aarch64`"]
fn books_of_signal_handlers_on_both_stacks() {
    agrees("signals.c", FLAGS[3]);
    agrees("altstack.c", FLAGS[3]);
}

#[test]
#[ignore = "builds for another processor, minutes: `make test-aarch64`"]
fn books_of_small_and_deep_stacks_and_of_jumps() {
    agrees("small_stacks.c", FLAGS[0]);
    agrees("depth.c", FLAGS[4]);
    agrees("longjmp.c", FLAGS[3]);
}

#[test]
#[ignore = "builds for another processor, minutes: `make test-aarch64`"]
fn books_before_main_and_after_it() {
    agrees("edges.c", FLAGS[0]);
    agrees("first_leaves.c", FLAGS[0]);
}

/// Layouts of the functions of `tree.c`.
const TREE_FLAGS: [&str; 18] = [
    "-O0",
    "-O1",
    "-O2",
    "-O3",
    "-Os",
    "-O2 -fomit-frame-pointer",
    "-O0 -fomit-frame-pointer",
    "-Os -fomit-frame-pointer",
    "-O2 -mbranch-protection=standard",
    "-O2 -mbranch-protection=standard -fomit-frame-pointer",
    "-O2 -mbranch-protection=pac-ret+leaf+b-key",
    "-O0 -mbranch-protection=standard",
    "-O2 -momit-leaf-frame-pointer -fno-shrink-wrap",
    "-O2 -fno-shrink-wrap -fno-optimize-sibling-calls",
    "-O2 -fstack-protector-all",
    "-O2 -fstack-clash-protection",
    "-O3 -march=armv8.3-a -mbranch-protection=standard",
    "-O3 -march=armv8.2-a+sve",
];

/// The random walks of `tests/unwind`, with libgcc as the oracle.
fn walks() -> &'static PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let programs = "unwind/programs";
        let own = "-std=c++17 -O2 -fomit-frame-pointer -mbranch-protection=standard".to_owned();
        let mut sources =
            vec![(format!("{programs}/differential.cpp"), own), (format!("{programs}/odd_aarch64.S"), String::new())];
        let layouts = TREE_FLAGS.iter().enumerate();
        sources.extend(layouts.map(|(tag, flags)| (format!("{programs}/tree.c"), format!("{flags} -DTAG=v{tag}"))));
        compile("differential", &sources, &["-ltracehound_unwind_probe", "-lgcc_s"])
    })
}

/// The counters of a walk, whose every backtrace is the one that libgcc finds.
fn walk(arguments: &[&str], checks: i64) -> HashMap<String, i64> {
    let mut command = Command::new(EMULATOR[0]);
    let path = format!("LD_LIBRARY_PATH={}", libraries().display());
    command.args(&EMULATOR[1..]).args(["-E", &path]).arg(walks()).args(arguments);
    let Output { status, stdout, stderr } = command.output().expect("the emulator can be started");
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{arguments:?}: {status}\n{stdout}{stderr}");
    let words: Vec<&str> = stdout.split_whitespace().skip(1).collect();
    let pairs = words.chunks(2).map(|pair| (pair[0].to_owned(), pair[1].parse().expect("a number")));
    let counters: HashMap<String, i64> = pairs.collect();
    assert_eq!(counters["mismatches"], 0, "{arguments:?}: {stdout}{stderr}");
    assert!(counters["checks"] >= checks, "{stdout}");
    counters
}

#[test]
#[ignore = "builds for another processor, minutes: `make test-aarch64`"]
fn backtraces_of_all_layouts() {
    let counters = walk(&["trees"], 30_000);
    assert!(counters["frames"] > 1_000_000 && counters["functions"] == 14 * TREE_FLAGS.len() as i64);
}

#[test]
#[ignore = "builds for another processor, minutes: `make test-aarch64`"]
fn backtraces_of_the_same_states_again_and_again() {
    let counters = walk(&["repeating"], 40_000);
    assert!(counters["learned"] < counters["checks"] * 4 / 5, "{counters:?}");
}

#[test]
#[ignore = "builds for another processor, minutes: `make test-aarch64`"]
fn backtraces_of_exceptions_and_of_jumps() {
    walk(&["exceptions"], 20_000);
    walk(&["longjmp"], 20_000);
}

#[test]
#[ignore = "builds for another processor, minutes: `make test-aarch64`"]
fn backtraces_of_coroutines() {
    walk(&["coroutines"], 80_000);
}

#[test]
#[ignore = "builds for another processor, minutes: `make test-aarch64`"]
fn backtraces_of_signal_handlers() {
    assert!(walk(&["signals"], 10_000)["signal_frames"] > 1_000);
}

/// Also where the return address is still in x30. An emulated processor is slow: fewer alarms than elsewhere, so that the
/// walk is repeated until there were enough.
#[test]
#[ignore = "builds for another processor, minutes: `make test-aarch64`"]
fn backtraces_at_any_instruction() {
    const RUNS: usize = 8;
    for stack in ["interrupts", "interrupts-alternate"] {
        let mut seen = 0;
        for _ in 0..RUNS {
            seen += walk(&[stack, "1", "50000"], 10_000)["signal_frames"];
            if seen > 20 {
                break;
            }
        }
        assert!(seen > 20, "{seen} alarms in {RUNS} runs");
    }
}

#[test]
#[ignore = "builds for another processor, minutes: `make test-aarch64`"]
fn backtraces_by_information_that_compilers_do_not_write() {
    assert!(walk(&["odd"], 4_000)["slow"] > 100);
    assert_eq!(walk(&["odd-fast"], 5_000)["slow"], 0);
}

#[test]
#[ignore = "builds for another processor, minutes: `make test-aarch64`"]
fn frames_without_information_are_heuristic_and_marked() {
    let counters = walk(&["without-information"], 10_000);
    assert!(counters["heuristic"] > 1_000 && counters["truncated"] == 0, "{counters:?}");
}
