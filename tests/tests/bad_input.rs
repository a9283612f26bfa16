//! Bad input gets one clear sentence and exit code 1; an application whose output cannot be written runs on.

use std::path::Path;
use std::process::Output;

use tracehound_tests::{ask, compile, json, library, number, plain, trace};

const COMMANDS: [&[&str]; 4] = [&["info"], &["leaks"], &["top"], &["dump"]];

fn assert_one_sentence(output: &Output, about: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{about}: {stderr}");
    assert_eq!(stderr.trim_end().lines().count(), 1, "{about}: {stderr}");
    assert!(stderr.contains(about), "the file is not named: {stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
}

fn refused(file: &Path) {
    for command in COMMANDS {
        assert_one_sentence(&ask(command, file), &file.file_name().expect("a file").to_string_lossy());
    }
}

#[test]
fn missing_empty_foreign_and_corrupted_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    refused(&folder.path().join("missing.dat"));
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    refused(&write("empty.dat", b""));
    refused(&write("foreign.dat", &b"This is a letter, not a recording. ".repeat(50)));
    refused(&write("elf.dat", &std::fs::read(library()).unwrap()[..4096]));
    let run = trace(compile("five.c", &["-O1"]), &[], &[]);
    let mut bytes = std::fs::read(run.recording()).unwrap();
    bytes[20] ^= 0xff; // inside the file header
    refused(&write("corrupted.dat", &bytes));
    refused(folder.path());
}

#[test]
fn a_recording_cut_anywhere_opens_and_says_what_is_missing() {
    let run = trace(compile("churn.c", &["-O1"]), &["10"], &[]);
    assert!(run.output.status.success(), "{}", run.stderr());
    let whole = std::fs::read(run.recording()).unwrap();
    let all = number(&run.info(), "/allocations/count");
    let mut last = 0;
    let mut checked = 0;
    for len in (997..whole.len()).step_by(997) {
        // A folder each: together with their indexes the cut files would fill gigabytes.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("cut-{len}.dat"));
        std::fs::write(&path, &whole[..len]).unwrap();
        let info = json(&["info"], &path);
        assert_eq!(info["complete"], false, "at {len}: {info}");
        assert_eq!(info["end"], "unknown", "at {len}");
        let count = number(&info, "/allocations/count");
        assert!(count >= last && count <= all, "at {len}: {count} after {last}, {all} in all");
        last = count;
        checked += 1;
    }
    assert!(checked >= 3, "the recording is too small to be cut: {} bytes", whole.len());
}

#[test]
fn an_unwritable_output_leaves_the_application_running() {
    let program = compile("churn.c", &["-O1"]);
    let expected = plain(&program, &["50"], &[]);
    for output in ["/nonexistent/folder/x.dat", "/proc/x.dat"] {
        let run = trace(&program, &["50"], &[("TRACEHOUND_OUTPUT", output)]);
        assert_eq!(run.output.status, expected.status);
        assert_eq!(run.output.stdout, expected.stdout);
        assert_eq!(run.stderr().lines().count(), 1, "{}", run.stderr());
        assert!(run.stderr().contains(output), "{}", run.stderr());
    }
}

#[test]
fn an_option_that_is_not_understood_is_named() {
    let program = compile("five.c", &["-O1"]);
    let run = trace(&program, &[], &[("TRACEHOUND_BUFFER", "plenty")]);
    assert!(run.output.status.success());
    assert!(run.recordings().is_empty());
    let stderr = run.stderr();
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains("TRACEHOUND_BUFFER") && stderr.contains("plenty") && stderr.contains("64M"), "{stderr}");
}
