//! Files on the disk: names, modes, compression, bad options.

use std::os::unix::fs::PermissionsExt;

use tracehound_format::meta::{EndReason, Meta};
use tracehound_format::record::Kind;

use crate::recording::{Heap, Recording};
use crate::run::{compile, library, traced, unharmed};

#[test]
fn five_allocations_are_five() {
    let run = unharmed("five", &[], &[]);
    let recording = run.recording();
    assert_eq!(recording.events.len(), 8);
    assert_eq!(recording.heap(), Heap { allocs: (5, 510), frees: 3, live: (2, 207), unmatched: 0 });
    assert!(recording.events.iter().all(|(thread, _)| *thread == 1));
    let end = recording.end.expect("an end");
    assert_eq!((end.reason, end.error, end.statistics.lost), (EndReason::Exit, None, 0));
    let mode = run.paths()[0].metadata().expect("it is there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    assert_eq!(std::fs::read_dir(run.folder.path()).expect("readable").count(), 1, "no side file stays");
}

#[test]
fn stacks_begin_with_the_caller_and_end_at_the_start() {
    let run = unharmed("five", &[], &[]);
    let recording = run.recording();
    let stacks: Vec<_> = recording.events.iter().map(|(_, record)| recording.stack(record)).collect();
    assert!(stacks.iter().all(|stack| stack.len() >= 3 && stack[1..] == stacks[0][1..]), "{stacks:x?}");
    let executable = recording.metas.iter().find_map(|meta| match meta {
        Meta::ModuleLoad(load) if load.id == 0 => Some(load.clone()),
        _ => None,
    });
    let segments = executable.expect("the executable is the first module").segments;
    let inside = |pc: u64| segments.iter().any(|s| s.flags & 1 != 0 && pc > s.start && pc <= s.start + s.len);
    assert!(stacks.iter().all(|stack| inside(stack[0]) && inside(stack[stack.len() - 1])));
}

#[test]
fn all_codecs_hold_the_same() {
    for codec in ["lz4", "zstd", "none"] {
        let run = unharmed("churn", &["2", "20000"], &[("TRACEHOUND_COMPRESSION", codec)]);
        let recording = run.recording();
        let heap = recording.heap_without(Some(Kind::Calloc));
        assert_eq!(heap.allocs, (run.printed("allocs"), run.printed("bytes")), "{codec}");
        assert_eq!((heap.frees, heap.unmatched), (run.printed("frees"), 0), "{codec}");
    }
}

#[test]
fn nothing_is_overwritten() {
    let program = compile("five");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let fixed = folder.path().join("fixed.dat");
    std::fs::write(&fixed, "a letter").expect("writable");
    let run = || {
        let status = traced(&program, folder.path()).env("TRACEHOUND_OUTPUT", "fixed.dat").status();
        assert_eq!(status.expect("it runs").code(), Some(7));
    };
    run();
    assert_eq!(std::fs::read(&fixed).expect("still there"), b"a letter");
    assert_eq!(Recording::read(&folder.path().join("fixed.1.dat")).events.len(), 8);
    // An old recording makes room.
    std::fs::rename(folder.path().join("fixed.1.dat"), &fixed).expect("renamable");
    let before = Recording::read(&fixed).id;
    std::thread::sleep(std::time::Duration::from_millis(50));
    run();
    assert_ne!(Recording::read(&fixed).id, before);
    assert!(!folder.path().join("fixed.1.dat").exists());
}

#[test]
fn trouble_is_one_line_and_the_program_runs() {
    let program = compile("five");
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, value, word) in [
        ("TRACEHOUND_OUTPUT", "/no/such/directory/x.dat", "no such directory"),
        ("TRACEHOUND_OUTPUT", "/proc/x.dat", "/proc/x.dat"),
        ("TRACEHOUND_BUFFER", "lots", "TRACEHOUND_BUFFER"),
        ("TRACEHOUND_ON_FULL", "maybe", "wait, drop"),
    ] {
        let output = traced(&program, folder.path()).env(name, value).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(7), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.starts_with("tracehound: ") && text.contains(word), "{text}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0);
}

#[test]
fn our_library_leaves_the_environment_and_others_stay() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ours = library();
    let other = "/lib/x86_64-linux-gnu/libm.so.6";
    for (preload, left) in [
        (ours.display().to_string(), None),
        (format!("{}:{other}", ours.display()), Some(other)),
        (format!("{other} {}", ours.display()), Some(other)),
    ] {
        let output = std::process::Command::new("/usr/bin/env")
            .current_dir(folder.path())
            .env("LD_PRELOAD", &preload)
            .output()
            .expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let found = text.lines().find_map(|line| line.strip_prefix("LD_PRELOAD="));
        assert_eq!(found, left, "{preload}");
    }
}
