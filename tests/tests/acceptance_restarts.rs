//! A process that starts again where one was killed: what the killed one left stays and can be read, whatever the two
//! have in common, as in a container, where the pid is the same every time.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tracehound_tests::process::Running;
use tracehound_tests::{compile, heaptrace, json, library, number};

/// `stays.c`, to be recorded into `folder` under the name `template`.
fn stays(folder: &Path, template: &str, count: u64, how: &str, in_container: bool) -> Command {
    let program = compile("stays.c", &["-O1"]);
    let mut command = Command::new(if in_container { "unshare" } else { "env" });
    if in_container {
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "env"]);
    }
    command.arg(format!("LD_PRELOAD={}", library().display())).arg(format!("TRACEHOUND_OUTPUT={template}"));
    command.arg(program).args([count.to_string().as_str(), "1000", how]);
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    command
}

/// Starts it and waits until it has all its blocks.
fn ready(mut command: Command) -> Running {
    let mut child = Running(command.spawn().expect("it can be started"));
    let mut line = [0; 6];
    child.stdout.as_mut().expect("a pipe").read_exact(&mut line).expect("it gets ready");
    assert_eq!(&line, b"ready\n");
    child
}

fn run(mut command: Command) {
    let status = command.status().expect("it can be started");
    assert!(status.success(), "{status}");
}

fn kill(mut child: Running) {
    let pid = Pid::from_raw(child.id().cast_signed()).expect("a process id");
    kill_process(pid, Signal::KILL).expect("it runs");
    child.wait().expect("it can be waited for");
    // Its child, if it is one of `unshare`, dies with it, a moment later.
    std::thread::sleep(std::time::Duration::from_millis(300));
}

fn recordings(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("readable").map(|entry| entry.expect("readable").path());
    let mut found: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == "dat")).collect();
    found.sort();
    found
}

fn names(folder: &Path) -> Vec<String> {
    let name = |path: PathBuf| path.file_name().expect("a name").to_string_lossy().into_owned();
    recordings(folder).into_iter().map(name).collect()
}

fn assert_ends(recording: &Path, end: &str, allocations: u64) -> Value {
    let info = json(&["info"], recording);
    assert_eq!(info["end"], end, "{info:#}");
    assert_eq!(number(&info, "/events/alloc"), allocations, "{info:#}");
    assert_eq!(number(&info, "/events/lost"), 0, "{info:#}");
    info
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("only root may make pid namespaces");
    }
    root
}

#[test]
fn a_restarted_container_keeps_what_the_killed_one_left() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    for template in ["m-%e-%p.dat", "plain.dat", "./inner/../other-%p"] {
        std::fs::create_dir_all(folder.path().join("inner")).expect("writable");
        let before: Vec<_> = recordings(folder.path());
        let first = ready(stays(folder.path(), template, 50_000, "stay", true));
        let path = std::fs::read_dir(folder.path())
            .expect("readable")
            .map(|entry| entry.expect("readable").path())
            .find(|path| path.extension().is_some_and(|e| e == "live") && !before.contains(&path.with_extension("")))
            .map(|live| live.with_extension(""))
            .expect("a recording that is being written");
        // The newest of all: earlier templates' killed ones have a side file, too.
        let path = if template.starts_with("./") { folder.path().join("other-1") } else { path };
        assert_eq!(json(&["info"], &path)["end"], "running", "seen from outside");
        kill(first);
        let killed = std::fs::read(&path).expect("the first recording");
        for _ in 0..2 {
            // The kernel states when a process began in hundredths of a second: one that began in the hundredth in
            // which the last recording ended takes it for one of its own, and keeps it.
            std::thread::sleep(std::time::Duration::from_millis(50));
            run(stays(folder.path(), template, 1_000, "exit", true));
        }
        assert!(std::fs::read(&path).expect("it is still there").starts_with(&killed));
        assert_ends(&path, "killed", 50_000);
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let next = name.strip_suffix(".dat").map_or(format!("{name}.1"), |stem| format!("{stem}.1.dat"));
        assert_ends(&folder.path().join(&next), "exit", 1_000);
        let third = next.replace(".1", ".2");
        assert!(!folder.path().join(&third).exists(), "a whole recording makes room: {third}");
    }
}

#[test]
fn a_process_of_another_pid_namespace_is_seen_to_run() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let child = ready(stays(folder.path(), "m.dat", 100, "stay", true));
    let path = folder.path().join("m.dat");
    let from = |namespace: &[&str]| {
        let mut command = match namespace {
            [] => Command::new(heaptrace()),
            [program, args @ ..] => {
                let mut command = Command::new(program);
                command.args(args).arg(heaptrace());
                command
            }
        };
        let output = command.args(["info", "--json"]).arg(&path).output().expect("it can be started");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON")["end"].clone()
    };
    let inner = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).expect("its child");
    let ways: [&[&str]; 3] = [
        &[],
        &["nsenter", "--target", inner.trim(), "--pid", "--mount"],
        &["unshare", "--pid", "--fork", "--mount-proc"],
    ];
    for way in ways {
        assert_eq!(from(way), "running", "{way:?}");
    }
    kill(child);
    // A process with the same pid in its namespace runs while the first one's recording is read.
    let other = ready(stays(folder.path(), "m.dat", 7, "stay", true));
    for way in [ways[0], ways[2]] {
        assert_eq!(from(way), "killed", "{way:?}");
    }
    assert_eq!(json(&["info"], &folder.path().join("m.1.dat"))["end"], "running");
    kill(other);
}

#[test]
fn a_killed_recording_stays_outside_of_containers_too() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (round, allocations) in [300, 400, 500].into_iter().enumerate() {
        let child = ready(stays(folder.path(), "m.dat", allocations, "stay", false));
        kill(child);
        let name = if round == 0 { "m.dat".to_owned() } else { format!("m.{round}.dat") };
        assert_ends(&folder.path().join(name), "killed", allocations);
    }
    for (name, allocations) in [("m.dat", 300), ("m.1.dat", 400), ("m.2.dat", 500)] {
        assert_ends(&folder.path().join(name), "killed", allocations);
    }
    // A side file that somebody has removed: without an end the recording stays all the same.
    std::fs::remove_file(folder.path().join("m.2.dat.live")).expect("it is there");
    run(stays(folder.path(), "m.dat", 5, "exit", false));
    assert_eq!(names(folder.path()), ["m.1.dat", "m.2.dat", "m.3.dat", "m.dat"]);
    assert_ends(&folder.path().join("m.3.dat"), "exit", 5);
}

#[test]
fn processes_that_want_the_same_name_at_once_get_one_each() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // A whole old recording whose name all of them could take.
    run(stays(folder.path(), "same.dat", 3, "exit", false));
    std::thread::sleep(std::time::Duration::from_millis(50));
    let start = |count| Running(stays(folder.path(), "same.dat", count, "stay", false).spawn().expect("it starts"));
    let mut children: Vec<_> = (100..112).map(start).collect();
    for child in &mut children {
        let mut line = [0; 6];
        child.stdout.as_mut().expect("a pipe").read_exact(&mut line).expect("it gets ready");
    }
    drop(children);
    let mut counts: Vec<u64> = recordings(folder.path())
        .iter()
        .map(|path| number(&json(&["info"], path), "/events/alloc"))
        .filter(|&count| count != 3)
        .collect();
    counts.sort_unstable();
    assert_eq!(counts, (100..112).collect::<Vec<_>>());
}

#[test]
fn a_child_that_outlives_its_killed_parent_does_not_keep_it_alive() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let child = ready(stays(folder.path(), "m.dat", 30, "fork", false));
    let group = Pid::from_raw(child.id().cast_signed()).expect("a process id");
    assert_eq!(json(&["info"], &folder.path().join("m.dat"))["end"], "running");
    kill(child);
    assert_ends(&folder.path().join("m.dat"), "killed", 30);
    let _ = rustix::process::kill_process_group(group, Signal::KILL);
}

#[test]
fn host_and_recording_are_in_the_name_where_asked_for() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("the host's name").trim().to_owned();
    for _ in 0..3 {
        run(stays(folder.path(), "%h/../%h-%i-%%.dat", 9, "exit", false));
        std::fs::create_dir_all(folder.path().join(&host)).expect("writable");
    }
    let found = recordings(folder.path());
    assert_eq!(found.len(), 2, "the first run had no folder: {found:?}");
    for path in found {
        let header = std::fs::read(&path).expect("readable");
        let id: String = header[16..20].iter().map(|byte| format!("{byte:02x}")).collect();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        assert_eq!(name, format!("{host}-{id}-%.dat"));
    }
}
