//! The table of sites by the minute says what the blocks themselves come to.

use std::fmt::Write as _;
use std::process::Command;

use serde_json::Value;
use tracehound_tests::exporting::{export_of, run};
use tracehound_tests::{clients, heaptrace, root};

/// A recording in heaptrack's format, over minutes: its times are what the file says, not what a test waits for. No two
/// events have the same time.
fn over_minutes() -> String {
    let mut text = String::from("v 10500 2\nX ./program\nI 1000 10000\n");
    for name in ["program", "first", "second", "third", "main", "a.c"] {
        writeln!(text, "s {name}").unwrap();
    }
    for (place, function) in (1..).zip([2, 3, 4]) {
        writeln!(text, "i {place:x} 1 {function:x} 6 a").unwrap();
        writeln!(text, "t {place:x} 0").unwrap();
    }
    // A size each for every site.
    let kinds = 9_u64;
    for kind in 0..kinds {
        writeln!(text, "a {:x} {:x}", 24 << kind, kind % 3 + 1).unwrap();
    }
    let (mut state, mut live, mut t_ms) = (7_u64, vec![0_u64; kinds as usize], 0_u64);
    for number in 0..4000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let kind = (state >> 33) % kinds;
        // A minute in which nothing happens, in between.
        t_ms += if number == 2000 { 130_000 } else { 1 + (state >> 45) % 150 };
        writeln!(text, "c {t_ms:x}").unwrap();
        // For a while more is freed than allocated.
        let frees = if (1000..2500).contains(&number) { 6 } else { 4 };
        if live[kind as usize] > 0 && (state >> 50) % 10 < frees {
            live[kind as usize] -= 1;
            writeln!(text, "- {kind:x}").unwrap();
        } else {
            live[kind as usize] += 1;
            writeln!(text, "+ {kind:x}").unwrap();
        }
    }
    text
}

#[test]
fn minutes_are_what_their_blocks_come_to() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let (theirs, ours) = (folder.path().join("theirs"), folder.path().join("ours.dat"));
    std::fs::write(&theirs, over_minutes()).expect("it can be written");
    let output = Command::new(heaptrace()).arg("import").arg(&theirs).arg("-o").arg(&ours).output();
    let output = output.expect("heaptrace can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tables = export_of(&ours, "parquet", "tables");
    let python = clients().join("python/bin/python");
    let said = run(python, &[&root().join("tests/clients/minutes.py"), &tables]);
    let said: Value = serde_json::from_str(&said).expect("JSON");
    let minutes = said["minutes"].as_u64().expect("minutes");
    assert!((5..=8).contains(&minutes), "{said}");
    assert_eq!(said["rows"].as_u64(), Some(minutes * 3), "every site in each of them: {said}");
}
