//! Processes that fork, exec and end in every way.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tracehound_format::meta::{EndReason, Meta};
use tracehound_format::record::Kind;

use crate::recording::Recording;
use crate::run::{compile, library, traced, unharmed};

#[test]
fn forked_children_are_not_recorded() {
    let run = unharmed("forks", &[], &[]);
    let recording = run.recording();
    assert_eq!(recording.count(Kind::Fork), 40);
    assert_eq!(recording.heap().unmatched, 0);
    assert_eq!(run.printed("failed"), 0);
}

#[test]
fn followed_children_have_recordings_that_know_what_they_inherited() {
    let run = unharmed("forks", &[], &[("TRACEHOUND_CHILDREN", "1")]);
    let recordings: Vec<Recording> = run.paths().iter().map(|path| Recording::read(path)).collect();
    assert_eq!(recordings.len(), 41);
    let process = |recording: &Recording| match &recording.metas[0] {
        Meta::Process(process) => process.clone(),
        other => panic!("{other:?}"),
    };
    let parent = recordings.iter().find(|recording| process(recording).forked_from.is_none()).expect("a parent");
    let at = recordings.iter().position(|recording| recording.id == parent.id).expect("it is one of them");
    let parent_path = run.paths()[at].canonicalize().expect("it exists");
    let mut pids: Vec<u32> = Vec::new();
    for child in recordings.iter().filter(|recording| recording.id != parent.id) {
        assert_eq!(process(child).forked_from, Some(parent.id));
        assert_eq!(process(child).parent_pid, process(parent).pid);
        pids.push(process(child).pid);
        let forked = child.metas.iter().find_map(|meta| match meta {
            Meta::ForkedFrom(forked) => Some(forked.clone()),
            _ => None,
        });
        let forked = forked.expect("a child says where what it inherited is found");
        assert_eq!(forked.recording_id, parent.id);
        assert_eq!(Path::new(OsStr::from_bytes(&forked.path)).canonicalize().expect("it exists"), parent_path);
        assert!(forked.recording);
        assert_eq!(child.count(Kind::Inherited), 0, "the parent's recording has them");
        let inherited = parent.live_at(forked.tick);
        assert!(inherited.values().any(|&size| size == 4000));
        assert_eq!(child.heap_with(inherited).unmatched, 0, "what a child frees it had or inherited");
        assert!(child.events.iter().all(|(_, record)| record.node != 0));
        assert_eq!(child.count(Kind::Malloc), 101);
        assert_eq!(child.end.as_ref().map(|end| end.reason), Some(EndReason::Exit));
    }
    pids.sort_unstable();
    let mut forks: Vec<u32> =
        parent.events.iter().filter(|(_, r)| r.kind == Kind::Fork as u8).map(|(_, r)| r.size).collect();
    forks.sort_unstable();
    assert_eq!(forks, pids);
}

#[test]
fn every_exec_finishes_the_recording() {
    for how in ["execv", "execve", "execvp", "execvpe", "execl", "execlp", "execle"] {
        let run = unharmed("execs", &[how], &[]);
        let recording = run.recording();
        assert_eq!(recording.end.as_ref().map(|end| end.reason), Some(EndReason::Exec), "{how}");
        assert_eq!(recording.heap().allocs, (1, 500), "{how}");
        assert_eq!(std::fs::read_dir(run.folder.path()).expect("readable").count(), 1, "{how}: no side file stays");
    }
}

#[test]
fn a_failed_exec_changes_nothing() {
    let run = unharmed("execs", &["fails"], &[]);
    let recording = run.recording();
    assert_eq!(recording.end.as_ref().map(|end| end.reason), Some(EndReason::Exit));
    assert_eq!(recording.heap().allocs.0, 3, "two blocks and stdout's buffer");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let broken = folder.path().join("broken");
    std::fs::write(&broken, [0_u8; 100]).expect("writable");
    std::fs::set_permissions(&broken, PermissionsExt::from_mode(0o755)).expect("its mode can be set");
    let run = unharmed("execs", &["broken", broken.to_str().expect("a plain path")], &[]);
    let recording = run.recording();
    assert_eq!(recording.end.as_ref().map(|end| end.reason), Some(EndReason::Exit));
    assert_eq!(recording.heap().allocs, (2, 1100));
}

#[test]
fn followed_execs_have_recordings_of_their_own() {
    for how in ["execv", "execve", "execvpe", "execl"] {
        let run = unharmed("execs", &[how], &[("TRACEHOUND_CHILDREN", "1")]);
        let ends: Vec<_> =
            run.paths().iter().filter_map(|path| Recording::read(path).end).map(|end| end.reason).collect();
        assert_eq!(ends.len(), 2, "{how}");
        assert!(ends.contains(&EndReason::Exec) && ends.contains(&EndReason::Exit), "{how}: {ends:?}");
    }
}

#[test]
fn a_run_replaces_no_recording_of_its_own() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let record = || {
        // Each command ends before the next one begins.
        let script = "/bin/ls; /bin/ls; (/bin/ls; true); /bin/ls; true";
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", script]).current_dir("/").env("LD_PRELOAD", library()).env("TRACEHOUND_CHILDREN", "1");
        let output = shell.env("TRACEHOUND_OUTPUT", folder.path().join("app.dat")).output().expect("sh is there");
        assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
        let made = std::fs::read_dir(folder.path()).expect("readable").map(|entry| entry.expect("an entry").path());
        let mut made: Vec<_> = made.collect();
        made.sort();
        made
    };
    let first = record();
    assert_eq!(first.len(), 6, "of two shells and of four commands: {first:?}");
    // Those of a run before it are.
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!(record(), first);
}

#[test]
fn shells_with_subshells_and_pipes_are_unharmed() {
    let script = "for i in 1 2 3; do x=$(echo $i | sed s/1/one/); echo $x; done; (exit 3); echo $?; exec cat /dev/null";
    for children in ["0", "1"] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let output = Command::new("/bin/bash")
            .args(["-c", script])
            .current_dir(folder.path())
            .env("LD_PRELOAD", library())
            .env("TRACEHOUND_CHILDREN", children)
            .output()
            .expect("bash is there");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "one\n2\n3\n3\n");
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
    }
}

#[test]
fn what_is_allocated_before_us_and_after_us_is_recorded() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traced/programs/early.c");
    let cc = |args: &[&str]| {
        let status = Command::new("cc").arg("-g").args(args).arg(&source).current_dir(folder.path()).status();
        assert!(status.expect("cc can be started").success());
    };
    cc(&["-shared", "-fPIC", "-DLIBRARY", "-o", "libearly.so"]);
    cc(&["-o", "early", "-L.", "-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed", "-learly", "-Wl,-z,now"]);
    std::fs::rename(folder.path().join("early"), folder.path().join("program")).expect("renamable");
    let status = traced(&folder.path().join("program"), folder.path()).status().expect("it runs");
    assert_eq!(status.code(), Some(5));
    let path = std::fs::read_dir(folder.path())
        .expect("readable")
        .map(|entry| entry.expect("an entry").path())
        .find(|path| path.extension().is_some_and(|extension| extension == "dat"))
        .expect("a recording");
    let recording = Recording::read(&path);
    let sizes: Vec<u32> = recording
        .events
        .iter()
        .filter(|(_, r)| Kind::from_u8(r.kind).is_some_and(|kind| kind.is_alloc() || kind.is_realloc_to()))
        .map(|(_, r)| r.size)
        .collect();
    for size in [101, 102, 103, 104, 2345] {
        assert_eq!(sizes.iter().filter(|&&s| s == size).count(), 1, "{size} in {sizes:?}");
    }
    assert_eq!(recording.heap().unmatched, 0);
}

#[test]
fn a_program_is_recorded_from_its_start_only_on_request() {
    let program = compile("five");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let run = |start: &str| {
        let status = traced(&program, folder.path()).env("TRACEHOUND_START", start).status().expect("it runs");
        assert_eq!(status.code(), Some(7));
    };
    run("off");
    assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0, "asleep, it makes no file");
    run("paused");
    let path = std::fs::read_dir(folder.path()).expect("readable").next().expect("a recording").expect("an entry");
    assert_eq!(Recording::read(&path.path()).events.len(), 0);
}
