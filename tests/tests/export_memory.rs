//! What exports need is bounded by the program's code and threads, not by the length of the recording: `heaptrace export`
//! runs under the recorder, on a recording and on one that is four times as long, and its own peak hardly rises.

use std::path::Path;

use tracehound_tests::exporting::EXPORT_FORMATS;
use tracehound_tests::{Traced, compile, heaptrace, json, number, trace};

/// Blocks in thousands: already the first has more kinds of blocks than any table of an exporter holds.
const LENGTHS: [&str; 2] = ["1000", "4000"];

/// The most bytes that were live while a recording was exported.
fn peak_of_export(recording: &Path, format: &str) -> u64 {
    let path = recording.to_str().expect("a plain path");
    // Neither backtraces nor mappings are asked about.
    let quick = [("TRACEHOUND_FREE_STACKS", "0"), ("TRACEHOUND_MAPPINGS", "0"), ("TRACEHOUND_SAMPLE_MEMORY_MS", "0")];
    // Parquet is a folder.
    let out = if format == "parquet" { "tables" } else { "/dev/null" };
    let traced = trace(heaptrace(), &["export", "--format", format, path, "-o", out], &quick);
    assert!(traced.output.status.success(), "{format}: {}", traced.stderr());
    number(&traced.info(), "/peak/bytes")
}

#[test]
fn the_length_of_a_recording_does_not_matter() {
    let program = compile("many_kinds.c", &["-O1", "-fno-optimize-sibling-calls"]);
    let recordings: Vec<Traced> = LENGTHS.iter().map(|length| trace(&program, &[length], &[])).collect();
    let mut grown = Vec::new();
    // The first question builds the index.
    let sites = recordings.iter().map(|traced| number(&json(&["info"], &traced.recording()), "/sites"));
    assert!(sites.clone().all(|sites| sites > 60_000), "{:?}", sites.collect::<Vec<_>>());
    for format in EXPORT_FORMATS {
        let peaks: Vec<u64> = recordings.iter().map(|traced| peak_of_export(&traced.recording(), format)).collect();
        println!("{format:10} {:6} KiB, four times as long: {:6} KiB", peaks[0] >> 10, peaks[1] >> 10);
        if peaks[1] > peaks[0] + peaks[0] / 4 + (4 << 20) {
            grown.push(format);
        }
    }
    assert!(grown.is_empty(), "memory grows with the recording: {grown:?}");
}
