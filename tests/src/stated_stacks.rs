//! Stacks that a program states itself, as libgcc gives them (`tests/programs/stacks.h`), beside those of its recording.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::{Traced, heaptrace};

/// Stacks of the recorded allocations as lists of addresses, by size.
#[must_use]
pub fn recorded(recording: &Path) -> HashMap<u64, Vec<String>> {
    let output = Command::new(heaptrace()).args(["dump", "--no-symbols"]).arg(recording).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut found = HashMap::new();
    for event in text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        if event["function"] == "malloc" {
            let pcs = event["stack"].as_array().unwrap().iter().map(|pc| pc.as_str().unwrap().to_owned());
            found.insert(event["size"].as_u64().unwrap(), pcs.collect());
        }
    }
    found
}

/// Compares every stack that the program has stated with the recorded one; answers how many there were.
#[must_use]
pub fn agrees(traced: &Traced) -> usize {
    let recorded = recorded(&traced.recording());
    let mut count = 0;
    for line in traced.stdout().lines().filter_map(|line| line.strip_prefix("stack ")) {
        let mut words = line.split(' ');
        let size: u64 = words.next().unwrap().parse().unwrap();
        let stated: Vec<String> = words.map(|pc| format!("0x{pc}")).collect();
        let found = recorded.get(&size).unwrap_or_else(|| panic!("no block of {size} bytes was recorded"));
        assert_eq!(found.get(1..), Some(&stated[..]), "the stack of the block of {size} bytes");
        count += 1;
    }
    count
}
