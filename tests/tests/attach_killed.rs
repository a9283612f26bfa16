//! heaptrace killed at each of its steps: in a first attach, in a later one, in one that lists the blocks from before, into a
//! dormant recorder, in the start of one, and in a detach. The process must live, find no error, and be attached to again.
//! In short here; `make attach-hardship` takes every step.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tracehound_tests::attached::{Attach, Program, attach_cycle, detach, is_detached, long_form, run};
use tracehound_tests::{heaptrace, json, number};

/// A system call by which heaptrace changes a process, and how many of them a command makes.
type Steps = Vec<(&'static str, u32)>;

/// The steps of a command that another process can notice, as strace counts them.
fn steps(log: &Path, calls: &[&'static str], arguments: &[&str]) -> Steps {
    let mut command = Command::new("strace");
    command.args(["-q", "-e", &format!("trace={}", calls.join(",")), "-o"]).arg(log);
    let output = command.arg(heaptrace()).args(arguments).output().expect("strace is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(log).unwrap();
    let count = |name: &str| text.lines().filter(|line| line.starts_with(&format!("{name}("))).count() as u32;
    calls.iter().map(|name| (*name, count(name))).collect()
}

/// What an attach does to a process.
const OF_AN_ATTACH: [&str; 3] = ["ptrace", "pwrite64", "sendmsg"];

/// Runs heaptrace until just before the system call `call` with that number, and kills it there; whether it came so far.
fn killed_at(call: &str, number: u32, arguments: &[&str]) -> bool {
    let mut command = Command::new("strace");
    command.args(["-q", "-o", "/dev/null", "-e", &format!("inject={call}:signal=KILL:when={number}")]);
    command.arg(heaptrace()).args(arguments);
    !command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
}

/// The steps at which heaptrace is killed: all of them, or about `short` of each system call.
fn chosen(steps: Steps, short: u32) -> Steps {
    println!("steps: {steps:?}");
    assert!(steps.iter().any(|(_, count)| *count > 0), "{steps:?}");
    let of_one = |(call, count): (&'static str, u32)| {
        let stride = if long_form().is_some() { 1 } else { count.div_ceil(short).max(1) };
        (1..=count).step_by(stride as usize).map(move |number| (call, number))
    };
    steps.into_iter().flat_map(of_one).collect()
}

/// Attaches and detaches as soon as it can be done: a thread that was borrowed when heaptrace was killed is on its way back.
fn attaches_soon(pid: &str, path: &Path) {
    let started = Instant::now();
    while let Err(why) = attach_cycle(pid, path, "1ms", &[]) {
        assert!(started.elapsed() < Duration::from_secs(20), "{why}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Kills attaches with these options into one process, whose recorder is there already, at their steps; then attaches once
/// more and gives what that recording says.
fn killed_attaches(mut program: Program, options: &[&str], short: u32) -> serde_json::Value {
    let (pid, path, log) = (program.pid(), program.path("killed.dat"), program.path("strace"));
    let changed = program.changed_code();
    attaches_soon(&pid, &path);
    let attach = [&["attach", pid.as_str(), "--for", "20ms", "-o", path.to_str().unwrap()], options].concat();
    let mut kills = 0;
    for (call, number) in chosen(steps(&log, &OF_AN_ATTACH, &attach), short) {
        let _ = std::fs::remove_file(&path);
        kills += u32::from(killed_at(call, number, &attach));
        // What it had begun is ended; where it had begun nothing, that is said.
        let _ = run(heaptrace(), &["detach", &pid]);
        for name in ["killed.dat", "killed.dat.live"] {
            let _ = std::fs::remove_file(program.path(name));
        }
        // It lives, and has found no error so far.
        program.count(|| ());
    }
    println!("heaptrace attach {options:?} was killed {kills} times");
    assert!(kills >= 8, "{kills}");
    let last = program.path("last.dat");
    let attach = Attach::start_with(&pid, &last, options);
    program.works();
    detach(&pid);
    attach.ends();
    let info = json(&["info"], &last);
    is_detached(&info);
    assert!(number(&info, "/allocations/count") > 1000, "{info}");
    assert_eq!(program.changed_code(), changed);
    program.quit();
    info
}

#[test]
fn heaptrace_may_be_killed_at_every_step() {
    let info = killed_attaches(Program::start(2), &[], 12);
    assert!(info["existing"].is_null(), "{info}");
}

/// The list of the blocks from before is made while all threads are stopped.
#[test]
fn heaptrace_may_be_killed_while_it_lists_the_blocks_from_before() {
    let info = killed_attaches(Program::start(2), &["--existing"], 8);
    assert!(number(&info, "/existing/count") > 100, "{info}");
    assert_eq!(number(&info, "/recorder/unmatched_frees"), 0, "{info}");
}

/// There is no library to bring in and no code to change.
#[test]
fn heaptrace_may_be_killed_at_every_step_into_a_dormant_recorder() {
    killed_attaches(Program::start_dormant(2), &[], 8);
    let info = killed_attaches(Program::start_dormant(2), &["--existing"], 5);
    assert_eq!(number(&info, "/recorder/unmatched_frees"), 0, "{info}");
}

/// In each step of a process's first attach, that brings the library in: a process of its own for each.
#[test]
fn heaptrace_may_be_killed_at_every_step_of_the_first_attach() {
    let program = Program::start(2);
    let (pid, path) = (program.pid(), program.path("steps.dat"));
    let attach = ["attach", &pid, "--for", "20ms", "-o", path.to_str().unwrap()];
    let steps = chosen(steps(&program.path("strace"), &OF_AN_ATTACH, &attach), 5);
    program.quit();
    let mut kills = 0;
    for (call, number) in steps {
        let mut program = Program::start(2);
        let (pid, path) = (program.pid(), program.path("killed.dat"));
        let arguments = ["attach", &pid, "--for", "1ms", "-o", path.to_str().unwrap()];
        kills += u32::from(killed_at(call, number, &arguments));
        program.count(|| ());
        let _ = run(heaptrace(), &["detach", &pid]);
        attaches_soon(&pid, &program.path("later.dat"));
        program.count(|| ());
        assert_eq!(program.changed_code(), 0, "{call} {number}");
        program.quit();
    }
    println!("heaptrace was killed {kills} times in a first attach");
    assert!(kills >= 5, "{kills}");
}

/// A dormant recorder begins to record on a thread that heaptrace borrows: a process of its own for each step.
#[test]
fn heaptrace_may_be_killed_at_every_step_of_the_start_of_a_dormant_recorder() {
    const STEPS: [&str; 2] = ["ptrace", "pwrite64"];
    let program = Program::start_dormant(2);
    let steps = chosen(steps(&program.path("strace"), &STEPS, &["ctl", &program.pid(), "start"]), 6);
    program.quit();
    let mut kills = 0;
    for (call, nth) in steps {
        let mut program = Program::start_dormant(2);
        let pid = program.pid();
        kills += u32::from(killed_at(call, nth, &["ctl", &pid, "start"]));
        program.count(|| ());
        // What was begun is gone on with.
        let started = Instant::now();
        loop {
            let output = run(heaptrace(), &["ctl", &pid, "start"]);
            if output.status.success() {
                break;
            }
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(started.elapsed() < Duration::from_secs(20), "{call} {nth}: {why}");
            std::thread::sleep(Duration::from_millis(100));
        }
        program.works();
        let folder = program.ended();
        let recordings: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.path()).collect();
        let recordings: Vec<_> =
            recordings.iter().filter(|path| path.extension().is_some_and(|end| end == "dat")).collect();
        assert_eq!(recordings.len(), 1, "{call} {nth}: {recordings:?}");
        let info = json(&["info"], recordings[0]);
        assert_eq!((&info["complete"], &info["end"]), (&true.into(), &"exit".into()), "{call} {nth}");
        assert!(number(&info, "/allocations/count") > 1000, "{call} {nth}: {info}");
    }
    println!("heaptrace ctl was killed {kills} times in the start of a dormant recorder");
    assert!(kills >= 5, "{kills}");
}

/// The other command that changes a process: what it leaves is what the next one ends.
#[test]
fn a_detach_may_be_killed_at_every_step() {
    let mut program = Program::start(2);
    let (pid, path) = (program.pid(), program.path("killed.dat"));
    let log = program.path("strace");
    let attach = Attach::start(&pid, &path);
    let steps = steps(&log, &["ptrace", "pwrite64"], &["detach", &pid]);
    attach.ends();
    let mut kills = 0;
    for (call, number) in chosen(steps, 5) {
        let _ = std::fs::remove_file(&path);
        let mut attach = Attach::start(&pid, &path);
        kills += u32::from(killed_at(call, number, &["detach", &pid]));
        program.count(|| ());
        let _ = run(heaptrace(), &["detach", &pid]);
        attach.ends_somehow();
        is_detached(&json(&["info"], &path));
        assert_eq!(program.changed_code(), 0, "{call} {number}");
        program.count(|| ());
    }
    println!("heaptrace detach was killed {kills} times");
    assert!(kills >= 5, "{kills}");
    attaches_soon(&pid, &program.path("later.dat"));
    program.quit();
}
