//! The curve of pages with live blocks has the number of each instant, however few events there are around it.

use std::collections::BTreeMap;

use serde_json::Value;
use tracehound_tests::{compile, dump, heaptrace, number, trace};

const PAGE: u64 = 4096;
/// The index knows the number behind every 64 events; between these it may miss the two pages at the ends of each block.
const MISSED: u64 = 64 * 2 * PAGE;

/// Bytes of pages with live blocks behind each event, in order of time.
fn truth(events: &[Value]) -> Vec<(u64, u64)> {
    let mut blocks_in: BTreeMap<u64, i64> = BTreeMap::new();
    let mut live: BTreeMap<u64, u64> = BTreeMap::new();
    let mut found = Vec::new();
    for event in events {
        let kind = event["kind"].as_str().unwrap_or_default();
        let address = || {
            let text = event["address"].as_str().expect("an address");
            u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("hexadecimal")
        };
        let (at, size, by) = match kind {
            "alloc" => (address(), number(event, "/size"), 1),
            "free" => (address(), live[&address()], -1),
            _ => continue,
        };
        live.insert(at, size);
        for page in at / PAGE..=(at + size.max(1) - 1) / PAGE {
            *blocks_in.entry(page).or_default() += by;
        }
        blocks_in.retain(|_, blocks| *blocks > 0);
        found.push((number(event, "/t_ns"), blocks_in.len() as u64 * PAGE));
    }
    found
}

#[test]
fn large_blocks_are_in_the_curve_from_their_first_instant_to_their_last() {
    let run = trace(compile("large_blocks.c", &["-O1"]), &[], &[]);
    assert!(run.output.status.success(), "{}", run.stderr());
    let truth = truth(&dump(&run.recording()));
    let query = "SELECT t_ns, occupied_bytes FROM timeline(400) ORDER BY t_ns";
    let asked =
        std::process::Command::new(heaptrace()).arg("sql").arg(run.recording()).args([query, "--json"]).output();
    let answer: Value = serde_json::from_slice(&asked.expect("heaptrace starts").stdout).expect("JSON");
    let rows = answer["rows"].as_array().expect("rows");
    assert!(rows.len() > 300, "{} rows", rows.len());
    let mut most = 0;
    for columns in rows.windows(2) {
        let end = number(&columns[1], "/t_ns");
        let expected = truth.iter().take_while(|event| event.0 < end).last().map_or(0, |event| event.1);
        let drawn = number(&columns[0], "/occupied_bytes");
        assert!(drawn.abs_diff(expected) <= MISSED, "{drawn} bytes in place of {expected} before {end} ns");
        most = most.max(drawn);
    }
    assert!(most > 16 * (8 << 20), "{most}");
}
