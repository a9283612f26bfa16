//! Recordings of earlier versions, kept in `tests/recordings`: they open as they did.
//!
//! `format-1-first-edition.dat`: a program that keeps 50 blocks of 64 bytes, whose second thread allocates, reallocates
//! and frees 500 blocks, and that then makes and frees 200 of 1,000 bytes; by the recorder before statistics of stacks,
//! ordered clock reads and chunks of several sizes.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use tracehound_tests::{heaptrace, json, number, root};

/// A copy, so that its index does not lie beside the original.
fn copy(name: &str) -> (PathBuf, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let to = folder.path().join(name);
    std::fs::copy(root().join("tests/recordings").join(name), &to).expect("the recording is kept");
    (to, folder)
}

#[test]
fn one_of_the_first_edition_opens() {
    let (recording, _folder) = copy("format-1-first-edition.dat");
    let info = json(&["info"], &recording);
    assert_eq!(info["complete"], true, "{info:#}");
    assert_eq!(info["end"], "exit", "{info:#}");
    assert_eq!(number(&info, "/allocations/count"), 1_251, "{info:#}");
    assert_eq!(number(&info, "/events/alloc"), 751, "{info:#}");
    assert_eq!(number(&info, "/events/free"), 700, "{info:#}");
    assert_eq!(number(&info, "/events/realloc"), 500, "{info:#}");
    assert_eq!(number(&info, "/recorder/unmatched_frees"), 0, "{info:#}");
    assert_eq!(number(&info, "/leaked/count"), 51, "{info:#}");
}

#[test]
fn every_event_of_it_is_dumped() {
    let (recording, _folder) = copy("format-1-first-edition.dat");
    let output = Command::new(heaptrace()).arg("dump").arg(&recording).output().expect("heaptrace can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<Value> = String::from_utf8(output.stdout)
        .expect("UTF-8")
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect();
    let of = |size: u64| lines.iter().filter(|line| line["size"] == size && line["kind"] == "alloc").count();
    assert_eq!((of(64), of(100), of(1_000)), (50, 500, 200));
}
