//! Random call trees: every backtrace must be the one that libgcc finds, frame by frame; libunwind and framehop are
//! asked now and then.

mod support;

use std::collections::HashMap;

/// The counters of a scenario.
struct Outcome(HashMap<String, i64>);

impl Outcome {
    fn get(&self, name: &str) -> i64 {
        self.0[name]
    }
}

fn outcome(program: &str, scenario: &str, environment: &[(&str, &str)]) -> Outcome {
    let output = support::run(program, &[scenario], environment);
    assert!(output.status.success(), "{}", support::said(&output));
    let line = String::from_utf8_lossy(&output.stdout).into_owned();
    let words: Vec<&str> = line.split_whitespace().skip(1).collect();
    let outcome =
        Outcome(words.chunks(2).map(|pair| (pair[0].to_string(), pair[1].parse().expect("a number"))).collect());
    assert_eq!(outcome.get("mismatches"), 0, "{}", support::said(&output));
    outcome
}

/// Runs a scenario with libunwind as second opinion, and expects at least this many checks.
fn agrees(scenario: &str, checks: i64) -> Outcome {
    let outcome = outcome("differential", scenario, &[("ASK_LIBUNWIND", "1")]);
    assert!(outcome.get("checks") >= checks, "{} checks", outcome.get("checks"));
    outcome
}

#[test]
fn trees_of_all_compilations() {
    let outcome = agrees("trees", 30_000);
    assert!(outcome.get("frames") > 1_000_000);
    assert!(outcome.get("second_opinions") > 400);
    assert!(outcome.get("functions") >= 14 * 19);
}

#[test]
fn the_same_states_again_and_again() {
    let outcome = agrees("repeating", 40_000);
    assert!(outcome.get("learned") * 5 < outcome.get("checks") * 3, "many answers come from verified chains");
}

#[test]
fn states_that_have_many_stacks() {
    let outcome = agrees("bushes", 50_000);
    assert!(outcome.get("signatures") > 10_000, "{} by signatures", outcome.get("signatures"));
}

#[test]
fn exceptions_and_callbacks() {
    agrees("exceptions", 20_000);
}

#[test]
fn longjmp() {
    agrees("longjmp", 20_000);
}

#[test]
fn coroutines_on_stacks_that_come_and_go() {
    agrees("coroutines", 80_000);
}

#[test]
fn signals_on_both_stacks() {
    assert!(agrees("signals", 10_000).get("signal_frames") > 1_000);
}

/// Runs until fifty alarms have been seen: how many come in one run depends on the machine.
fn interrupted(walk: &str) {
    let mut seen = 0;
    for _ in 0..8 {
        seen += agrees(walk, 20_000).get("signal_frames");
        if seen > 50 {
            return;
        }
    }
    panic!("{seen} alarms in eight runs");
}

#[test]
fn interrupts_at_any_instruction() {
    interrupted("interrupts");
}

#[test]
fn interrupts_on_the_alternate_stack() {
    interrupted("interrupts-alternate");
}

#[test]
fn eight_threads() {
    agrees("threads", 100_000);
}

#[test]
fn odd_unwind_information() {
    assert!(agrees("odd", 4_000).get("slow") > 100);
}

#[test]
fn odd_unwind_information_that_fits_the_rules() {
    assert_eq!(agrees("odd-fast", 5_000).get("slow"), 0);
}

#[test]
fn frames_without_information_are_heuristic_and_marked() {
    let outcome = agrees("without-information", 10_000);
    assert!(outcome.get("heuristic") > 1_000);
    assert_eq!(outcome.get("truncated"), 0);
}

/// framehop reads realigned frames wrongly, so it is asked about all others.
#[test]
fn framehop_agrees() {
    for scenario in ["trees", "exceptions", "odd-fast"] {
        let outcome = outcome("differential_plain", scenario, &[("ASK_FRAMEHOP", "1")]);
        assert!(outcome.get("second_opinions") > 500);
    }
}

#[test]
fn engine_libunwind_finds_the_same() {
    for scenario in ["trees", "exceptions", "coroutines", "signals"] {
        outcome("differential", scenario, &[("PROBE_ENGINE", "libunwind")]);
    }
}

#[test]
fn engine_frame_pointer_finds_the_same_where_there_are_frame_pointers() {
    let environment = [("PROBE_ENGINE", "frame-pointer"), ("OURS_MAY_STOP", "1")];
    let outcome = outcome("differential_framed", "trees", &environment);
    assert!(outcome.get("checks") > 10_000);
}
