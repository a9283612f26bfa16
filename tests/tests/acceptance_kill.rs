//! Killed at any moment, a recording holds at least what the program had published as done, and no more than one event
//! a thread beyond that.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tracehound_tests::ground_truth::Case;
use tracehound_tests::ledger::Ledger;
use tracehound_tests::{compile, dump, heaptrace, json, number, random_seed, trace, wait_for};

/// Bytes of the counters of a thread of `published.c`.
const COUNTERS: usize = 128;

/// What `published.c` had completed: allocations and frees of all threads.
fn published(file: &File, threads: u64) -> (u64, u64) {
    let mut bytes = vec![0; threads as usize * COUNTERS];
    file.read_exact_at(&mut bytes, 0).expect("the counters can be read");
    let at = |offset: usize| u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"));
    (0..threads as usize)
        .map(|i| (at(i * COUNTERS), at(i * COUNTERS + 8)))
        .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

fn kill(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, signal).expect("the program runs");
}

/// Runs the program with so many threads, kills it at a moment after it has published something, and compares what was
/// published in the end with the recording's figures.
fn killed_after(threads: u64, pause_us: u64, delay: Duration, signal: Signal) {
    killed_when(1, threads, pause_us, delay, signal);
}

/// The same at a moment after so many allocations were published.
fn killed_when(wanted: u64, threads: u64, pause_us: u64, delay: Duration, signal: Signal) {
    let mut counters = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    counters.write_all(&vec![0; threads as usize * COUNTERS]).expect("a temporary file can be written");
    let path = counters.path().to_str().expect("a plain path").to_owned();
    let file = counters.reopen().expect("a temporary file can be opened");
    let case = Case::new("published.c").args(&[path, threads.to_string(), pause_us.to_string()]).ends("killed");
    let run = case.run_and(true, |pid, _| {
        wait_for("the allocations", Duration::from_secs(60), || published(&file, threads).0 >= wanted);
        std::thread::sleep(delay);
        kill(pid, signal);
    });
    assert_eq!(run.status.signal(), Some(signal.as_raw()), "{}", run.stderr);
    let (allocs, frees) = published(&file, threads);
    let recordings = run.recordings_of(run.pid);
    assert_eq!(recordings.len(), 1, "{recordings:?}");
    let info = case.sound(&recordings[0], "killed");
    let about = format!("{threads} threads, after {delay:?}, {allocs} allocations and {frees} frees were published");
    let found = if pause_us > 0 {
        let ledger = Ledger::of(&recordings[0]);
        ledger.assert_agrees(&info, &json(&["leaks"], &recordings[0]), &about);
        (ledger.through("published_block").0, ledger.frees.len() as u64)
    } else {
        // Too many for a dump; the loader's one calloc for each further thread is no block of the program.
        (number(&info, "/events/alloc") - (threads - 1), number(&info, "/events/free"))
    };
    assert!((allocs..=allocs + threads).contains(&found.0), "{about}, recorded are {found:?}");
    assert!((frees..=frees + threads).contains(&found.1), "{about}, recorded are {found:?}");
}

#[test]
fn killed_at_once() {
    killed_after(1, 500, Duration::ZERO, Signal::KILL);
}

#[test]
fn killed_at_random_moments() {
    let seed = random_seed();
    for round in 0..12u32 {
        let ms = u64::from(seed.wrapping_mul(2_654_435_761).rotate_left(round * 5) % 300);
        killed_after(1 + u64::from(round % 3) * 2, 2000, Duration::from_millis(ms), Signal::KILL);
    }
}

#[test]
fn killed_at_full_speed() {
    killed_after(1, 0, Duration::from_millis(300), Signal::KILL);
    killed_after(8, 0, Duration::from_millis(300), Signal::KILL);
}

/// Each thread makes a hundred events, which its small first chunk holds, and then sleeps.
#[test]
fn killed_with_many_threads_in_their_first_chunks() {
    const THREADS: u64 = 600;
    for of_each in [1, 20, 40] {
        killed_when(of_each * THREADS, THREADS, 1_000_000, Duration::ZERO, Signal::KILL);
    }
}

#[test]
fn terminated_and_interrupted() {
    killed_after(3, 1000, Duration::from_millis(150), Signal::TERM);
    killed_after(3, 1000, Duration::from_millis(150), Signal::INT);
    killed_after(3, 1000, Duration::from_millis(150), Signal::QUIT);
}

#[test]
fn a_running_program_can_be_read() {
    let mut counters = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    counters.write_all(&[0; 2 * COUNTERS]).expect("a temporary file can be written");
    let path = counters.path().to_str().expect("a plain path").to_owned();
    let file = counters.reopen().expect("a temporary file can be opened");
    let case = Case::new("published.c").args(&[path.as_str(), "2", "2000"]);
    let recording_in = |folder: &Path| {
        let mut found = std::fs::read_dir(folder).expect("the folder is there").map(|entry| entry.unwrap().path());
        found.find(|path| path.extension().is_some_and(|e| e == "dat")).expect("the recording is there")
    };
    let _ = case.run_and(true, |pid, folder| {
        wait_for("the first allocation", Duration::from_secs(20), || published(&file, 2).0 > 0);
        let mut last = 0;
        for _ in 0..4 {
            // What is read may be half a second old, no older.
            let before = published(&file, 2).0;
            std::thread::sleep(Duration::from_millis(500));
            let info = json(&["info"], &recording_in(folder));
            assert_eq!(info["end"], "running", "{info:#}");
            let seen = number(&info, "/events/alloc");
            assert!(seen >= before, "{before} allocations were published, {seen} can be read");
            assert!(seen >= last, "{last} allocations had been read, now {seen}");
            last = seen;
        }
        kill(pid, Signal::KILL);
    });
}

#[test]
fn what_a_process_does_last_before_it_is_killed_has_names() {
    let plugin = compile("plugin.c", &["-shared", "-fPIC", "-DNAME=late", "-DSIZE=7777"]);
    let program = compile("last_words.c", &["-O1", "-ldl"]);
    let run = trace(&program, &[plugin.to_str().unwrap()], &[]);
    assert_eq!(run.output.status.signal(), Some(libc::SIGKILL), "{}", run.stderr());
    let info = json(&["info"], &run.recording());
    let labels: Vec<&Value> = info["marks"].as_array().unwrap().iter().map(|mark| &mark["label"]).collect();
    assert_eq!(labels, ["just before"], "{info:#}");
    let plugin_name = plugin.file_name().and_then(OsStr::to_str).unwrap();
    let of_size = |size: u64| {
        let events = dump(&run.recording());
        events.into_iter().find(|event| event["size"] == size && event["kind"] == "alloc").unwrap()
    };
    let innermost = &of_size(7777)["stack"][0];
    assert_eq!((&innermost["function"], &innermost["module"]), (&"plugin_block_late".into(), &plugin_name.into()));
    let threads = json(&["threads"], &run.recording());
    let has_name = |thread: &Value| thread["name"] == "latecomer";
    assert!(threads["threads"].as_array().unwrap().iter().any(has_name), "{threads:#}");
    let contexts = json(&["contexts"], &run.recording());
    let is_named = |context: &Value| context["id"] == 7 && context["name"] == "GET /items";
    assert!(contexts["contexts"].as_array().unwrap().iter().any(is_named), "{contexts:#}");
}

#[test]
fn heaptrace_run_names_the_file_beside_the_recording_of_a_killed_program() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Command::new(heaptrace());
    let output = run.args(["run", "-o", "k.dat", "--", "sh", "-c", "kill -9 $$"]).current_dir(folder.path()).output();
    let said = String::from_utf8_lossy(&output.unwrap().stderr).into_owned();
    assert!(said.contains("which needs k.dat.live; next: heaptrace server k.dat"), "{said}");
    assert!(folder.path().join("k.dat.live").exists());
}
