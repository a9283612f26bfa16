//! Peaks of parts: under a filter every command means the filter's own peak, and says so.

use serde_json::Value;
use tracehound_tests::http_client::{ask, json};
use tracehound_tests::{compile, number, trace};

const PARSE: u64 = 16 * (64 << 10);
const BUILD: u64 = 8 << 20;
const KEPT: u64 = 64 << 10;

#[test]
fn a_part_has_a_peak_of_its_own() {
    let traced = trace(compile("peaks.c", &["-O1"]), &[], &[]);
    let (folder, file) = (traced.folder.path(), traced.recording());
    let file = file.to_str().expect("a plain name");
    let ask_json = |args: &[&str]| json(folder, &[args, &["--json", file]].concat());
    let total = |document: &Value| document["total"].as_i64().expect("a total") as u64;

    let whole = ask_json(&["top", "--metric", "peak"]);
    let heap_ns = number(&whole, "/at_ns");
    assert_eq!(whole["peak_of"], "heap");
    let of_build = ask_json(&["top", "--metric", "peak", "--focus", "^build$"]);
    assert_eq!((total(&of_build), &of_build["peak_of"]), (BUILD, &Value::from("filter")));

    let parse = ["--focus", "^parse$"];
    let with = |args: &[&'static str]| ask_json(&[args, &parse[..]].concat());
    let own = with(&["top", "--metric", "peak"]);
    let own_ns = number(&own, "/at_ns");
    assert_eq!(total(&own), PARSE);
    assert_eq!(own["peak_of"], "filter");
    assert!(own_ns + 15_000_000 < heap_ns, "{own_ns} lies before the heap's peak at {heap_ns}");
    for by in ["function", "site", "module", "thread"] {
        let table = ask_json(&["top", "--metric", "peak", "--by", by, "--focus", "^parse$"]);
        assert_eq!((total(&table), number(&table, "/at_ns")), (PARSE, own_ns), "by {by}");
        assert_eq!(table["rows"][0]["flat"].as_i64(), Some(PARSE as i64), "by {by}");
    }
    // The same moment by its name, and what is measured does not matter.
    let at = with(&["top", "--at", "peak"]);
    assert_eq!((total(&at), number(&at, "/at_ns"), &at["peak_of"]), (PARSE, own_ns, &own["peak_of"]));
    let blocks = with(&["top", "--at", "peak", "--count"]);
    assert_eq!(total(&blocks), 16);
    let graph = with(&["flamegraph", "--metric", "peak", "-o", "-"]);
    assert_eq!((total(&graph), number(&graph, "/at_ns"), &graph["peak_of"]), (PARSE, own_ns, &own["peak_of"]));
    let sites = with(&["sites"]);
    let at_peak: u64 =
        sites["sites"].as_array().expect("sites").iter().map(|site| number(site, "/at_peak/bytes")).sum();
    assert_eq!(at_peak, PARSE);
    // A window that begins behind the first peak has another one.
    let later = format!("{}ns", own_ns + 10_000_000);
    let late = ask_json(&["top", "--metric", "peak", "--from", &later, "--focus", "^parse$"]);
    assert_eq!(total(&late), KEPT + (448 << 10));
    // What passes no filter has the heap's.
    let all = ask_json(&["top", "--metric", "peak", "--min-size", "0"]);
    assert_eq!((number(&all, "/at_ns"), &all["peak_of"]), (heap_ns, &Value::from("heap")));

    // Exports and pictures.
    let text = |args: &[&str]| String::from_utf8(ask(folder, args).stdout).expect("text");
    let folded = text(&["export", "-f", "folded", "--metric", "peak", "--focus", "^parse$", file, "-o", "-"]);
    let sum: u64 = folded.lines().filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum();
    assert_eq!(sum, PARSE);
    let shown = text(&["top", "--metric", "peak", "--focus", "^parse$", file]);
    assert!(shown.contains("the peak of what passes the filter"), "{shown}");
    let shown = text(&["top", "--metric", "peak", file]);
    assert!(shown.contains("the heap's peak"), "{shown}");
    let picture = text(&["flamegraph", "--metric", "peak", "--focus", "^parse$", file, "-o", "-"]);
    assert!(picture.contains("the peak of what passes the filter"), "the picture says so");
}
