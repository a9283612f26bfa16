//! Limits of the process and of the disk: the program never notices, the recording says what it lacks.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use tracehound_format::meta::{EndReason, Meta};

use crate::recording::Recording;
use crate::run::{compile, library};

/// Runs `churn` in a shell that sets a limit first.
fn limited(limit: &str, args: &str) -> (Output, Option<PathBuf>, tempfile::TempDir) {
    let program = compile("churn");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let script = format!("ulimit {limit} && LD_PRELOAD={} exec {} {args}", library().display(), program.display());
    let output =
        Command::new("/bin/sh").arg0("sh").args(["-c", &script]).current_dir(folder.path()).output().expect("it runs");
    let path = std::fs::read_dir(folder.path())
        .expect("readable")
        .map(|entry| entry.expect("an entry").path())
        .find(|path| path.extension().is_some_and(|extension| extension == "dat"));
    (output, path, folder)
}

#[test]
fn few_descriptors() {
    let (output, path, _folder) = limited("-n 16", "2 5000");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(Recording::read(&path.expect("a recording")).heap().unmatched, 0);
}

#[test]
fn little_address_space() {
    let (output, path, _folder) = limited("-v 400000", "4 5000");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(Recording::read(&path.expect("a recording")).heap().unmatched, 0);
}

#[test]
fn small_files() {
    // Blocks of 512 or 1024 bytes, as the shell has it: the recording does not fit, the side file even less.
    let (output, path, _folder) = limited("-f 100", "4 200000");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains("the program goes on"), "{text}");
    let recording = Recording::read(&path.expect("a recording"));
    let end = recording.end.as_ref().expect("the end block has found room");
    assert_eq!(end.reason, EndReason::DiskFull);
    assert!(end.error.is_some());
    let remarks: Vec<_> = recording
        .metas
        .iter()
        .filter_map(|meta| if let Meta::Remark(remark) = meta { Some(remark.topic.as_str()) } else { None })
        .collect();
    assert!(remarks.contains(&"no-side-file") && remarks.contains(&"write-error"), "{remarks:?}");
}
