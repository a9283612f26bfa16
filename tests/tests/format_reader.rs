//! docs/FORMAT.md is enough to read a recording: a reader written from it alone finds what `heaptrace dump` finds.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;
use tracehound_tests::{compile, heaptrace, root, trace};

fn lines(command: &mut Command) -> Vec<Value> {
    let output = command.output().expect("it can be started");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// How often each event was seen: thread, what happened, address, size, backtrace.
fn count(events: impl Iterator<Item = String>) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for event in events {
        *counts.entry(event).or_default() += 1;
    }
    counts
}

fn agree(program: &str, arguments: &[&str]) {
    let traced = trace(compile(program, &[]), arguments, &[("TRACEHOUND_COMPRESSION", "none")]);
    let recording = traced.recording();
    let theirs = lines(Command::new("python3").arg(root().join("tests/format_reader.py")).arg(&recording));
    let ours = lines(Command::new(heaptrace()).args(["dump", "--no-symbols"]).arg(&recording));

    let (summary, records) = theirs.split_last().expect("a summary");
    assert_eq!(summary["ended"], true);
    // The program's own modules were there before its events, by the clock of these.
    let ticks: Vec<u64> = records.iter().filter_map(|record| record["tick"].as_u64()).collect();
    let (first, last) = (ticks.iter().min().expect("an event"), ticks.iter().max().expect("an event"));
    let loads: Vec<u64> = summary["loads"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
    assert!(loads.len() > 2, "{summary}");
    let ten_seconds = summary["clock"]["millihertz"].as_u64().expect("a frequency") / 100;
    assert!(
        loads.iter().all(|load| (first.saturating_sub(ten_seconds)..=*last).contains(load)),
        "{loads:?}, events from {first}"
    );
    let word = |kind: u64| match kind {
        1..=12 => Some("alloc"),
        16..=19 | 21 | 22 => Some("free"),
        20 => Some("realloc to nothing"),
        25 | 27 => Some("realloc"),
        _ => None,
    };
    let theirs = count(records.iter().filter_map(|record| {
        let what = word(record["kind"].as_u64()?)?;
        let size = if matches!(what, "alloc" | "realloc") { record["size"].clone() } else { Value::Null };
        Some(format!("{} {what} {} {size} {}", record["thread"], record["address"], record["stack"]))
    }));
    let ours = count(ours.iter().filter_map(|event| {
        let what = event["kind"].as_str()?;
        let (what, size) = match what {
            "free" if event["function"] == "realloc" => ("realloc to nothing", Value::Null),
            "free" => (what, Value::Null),
            "alloc" | "realloc" => (what, event["size"].clone()),
            _ => return None,
        };
        Some(format!("{} {what} {} {size} {}", event["thread"], event["address"], event["stack"]))
    }));
    assert!(ours.values().sum::<u32>() > 10, "{program} makes too few events to compare");
    assert_eq!(theirs, ours);
}

#[test]
fn a_reader_written_from_the_specification_finds_the_same_events() {
    agree("family.c", &[]);
    agree("sizes.c", &[]);
    agree("realloc_chain.c", &[]);
    agree("cross_free.c", &[]);
}
