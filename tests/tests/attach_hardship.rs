//! Attach under hardship: many times, into processes that do what it could disturb, and with heaptrace killed at each of its
//! steps. In short here; `make attach-hardship` makes it long (`ATTACH_CYCLES`, default 10,000, and every step).

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tracehound_tests::attached::{Attach, Program, attach_command, detach, is_detached, run};
use tracehound_tests::process::Running;
use tracehound_tests::{compile, heaptrace, json, number, wait_for};

/// How often, in the long form.
fn long() -> Option<u32> {
    let text = std::env::var("ATTACH_CYCLES").ok()?;
    Some(text.parse().expect("ATTACH_CYCLES is a number"))
}

/// One attach that records for so long and detaches; what it said if it did not.
fn cycle(pid: &str, path: &Path, duration: &str) -> Result<(), String> {
    let output = attach_command(pid, path).args(["--for", duration]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let _ = std::fs::remove_file(path);
    if output.status.success() { Ok(()) } else { Err(said) }
}

/// Attaches and detaches; what the process has must be after all what it was after the tenth.
fn cycles(threads: u32, short: u32) {
    const SETTLED: u32 = 10;
    let program = Program::start(threads);
    let (pid, path) = (program.pid(), program.path("cycle.dat"));
    let before = program.belongings();
    let started = Instant::now();
    let count = long().unwrap_or(short).max(SETTLED + 1);
    let mut settled = (0, 0);
    for number in 1..=count {
        cycle(&pid, &path, "1ms").unwrap_or_else(|why| panic!("cycle {number}: {why}"));
        if number == SETTLED {
            settled = program.mapped();
            assert_eq!(program.belongings(), before);
        }
        if number % 500 == 0 {
            println!("{threads} threads: {number} cycles, {:?}, {:?}", started.elapsed(), program.mapped());
        }
    }
    let (lines, kib) = program.mapped();
    println!(
        "{threads} threads: {count} cycles in {:?}; mappings and KiB {settled:?} → {:?}",
        started.elapsed(),
        (lines, kib)
    );
    assert_eq!(program.belongings(), before);
    assert_eq!(program.changed_code(), 0);
    // The program's arenas grow, and so does what the recorder's heap keeps for the next time; what each cycle left behind
    // would be more.
    assert!(lines <= settled.0 + 8 && kib <= settled.1 + (32 << 10), "{settled:?}, then {lines} and {kib}");
    program.quit();
}

#[test]
fn many_cycles_leave_nothing_in_one_thread() {
    cycles(1, 14);
}

#[test]
fn many_cycles_leave_nothing_in_eight_threads() {
    cycles(8, 12);
}

/// A program of `attach_hazards.c` in one mode, attached to again and again while it works.
fn hazard(mode: &str, argument: Option<&Path>) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(compile("attach_hazards.c", &["-O1", "-ldl"]));
    command.arg(mode).args(argument);
    let program = Program::from(command, folder);
    let (pid, path) = (program.pid(), program.path("hazard.dat"));
    let count = long().map_or(4, |cycles| cycles / 10);
    // Each reason with the numbers of the attaches: those of a heaptrace that was built again meanwhile are the last ones.
    let mut reasons: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for number in 1..=count {
        if let Err(why) = cycle(&pid, &path, "20ms") {
            reasons.entry(why.replace(&pid, "PID")).or_default().push(number);
        }
    }
    let refused = reasons.values().map(|numbers| numbers.len() as u32).sum::<u32>();
    println!("{mode}: {count} attaches, {refused} refused: {reasons:?}");
    // A thread that may be borrowed, or a stop, does not always come in time, and then nothing is touched; nearly always it
    // does. There is no other reason.
    let is_known = |why: &String| why.contains("came to a point") || why.contains("does not come to a stop");
    assert!(reasons.keys().all(is_known), "{mode}: {reasons:?}");
    assert!(refused * 50 <= count, "{mode}: {refused} of {count} refused: {reasons:?}");
    let rest = program.rest();
    assert!(rest.contains("rounds") && rest.contains("errors 0"), "{mode}: {rest}");
}

#[test]
fn a_program_that_loads_libraries_goes_on() {
    let plugin = compile("plugin.c", &["-shared", "-fPIC", "-DNAME=attached", "-DSIZE=100"]);
    hazard("dlopen", Some(&plugin));
}

#[test]
fn a_program_that_forks_goes_on() {
    hazard("fork", None);
}

#[test]
fn a_program_that_vforks_goes_on() {
    hazard("vfork", None);
}

#[test]
fn a_thread_that_waits_long_for_its_vforked_child_is_waited_for() {
    hazard("slow vfork", None);
}

#[test]
fn a_program_of_short_lived_threads_goes_on() {
    hazard("threads", None);
}

#[test]
fn a_program_without_its_first_thread_goes_on() {
    hazard("leader", None);
}

#[test]
fn errno_stays_what_it_was() {
    hazard("errno", None);
}

#[test]
fn a_program_that_a_timer_interrupts_goes_on() {
    hazard("sigprof", None);
}

#[test]
fn restartable_sequences_count_right() {
    hazard("rseq", None);
}

#[test]
fn system_calls_that_wait_return_what_they_should() {
    hazard("parked", None);
}

#[test]
fn a_program_that_becomes_another_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let stop = folder.path().join("stop");
    let mut command = Command::new(compile("attach_hazards.c", &["-O1", "-ldl"]));
    command.arg("exec").arg(&stop);
    let program = Program::from(command, folder);
    let (pid, path) = (program.pid(), program.path("exec.dat"));
    for _ in 0..long().map_or(6, |cycles| cycles / 10) {
        // It may succeed, or the process has become another one meanwhile: either is said, and the process lives.
        let _ = cycle(&pid, &path, "5ms");
    }
    std::fs::write(stop, "").unwrap();
    assert_eq!(program.rest(), "rounds 1 errors 0\n");
}

/// The steps of an attach with detach that another process can notice: system calls by which heaptrace changes the target,
/// as strace counts them.
fn steps(pid: &str, path: &Path) -> Vec<(&'static str, u32)> {
    let log = path.with_extension("strace");
    let mut command = Command::new("strace");
    command.args(["-q", "-e", "trace=ptrace,pwrite64,sendmsg", "-o"]).arg(&log).arg(heaptrace());
    command.args(["attach", pid, "--for", "20ms", "-o"]).arg(path);
    let output = command.output().expect("strace is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    counted(&log, &["ptrace", "pwrite64", "sendmsg"])
}

/// How many of each system call strace has logged.
fn counted(log: &Path, calls: &[&'static str]) -> Vec<(&'static str, u32)> {
    let text = std::fs::read_to_string(log).unwrap();
    let count = |name: &str| text.lines().filter(|line| line.starts_with(&format!("{name}("))).count() as u32;
    calls.iter().map(|name| (*name, count(name))).collect()
}

/// Runs heaptrace until just before the system call `call` with that number, and kills it there; whether it came so far.
fn killed_at(call: &str, number: u32, arguments: &[&str]) -> bool {
    let mut command = Command::new("strace");
    command.args(["-q", "-o", "/dev/null", "-e", &format!("inject={call}:signal=KILL:when={number}")]);
    command.arg(heaptrace()).args(arguments);
    !command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
}

/// The steps at which heaptrace is killed: all of them, or about `short` of each system call.
fn chosen(steps: Vec<(&'static str, u32)>, short: u32) -> Vec<(&'static str, u32)> {
    println!("steps: {steps:?}");
    assert!(steps.iter().all(|(_, count)| *count > 0), "{steps:?}");
    let of_one = |(call, count): (&'static str, u32)| {
        let stride = if long().is_some() { 1 } else { count.div_ceil(short).max(1) };
        (1..=count).step_by(stride as usize).map(move |number| (call, number))
    };
    steps.into_iter().flat_map(of_one).collect()
}

/// Attaches and detaches as soon as it can be done: a thread that was borrowed when heaptrace was killed is on its way back.
fn attaches_soon(pid: &str, path: &Path) {
    let started = Instant::now();
    while let Err(why) = cycle(pid, path, "1ms") {
        assert!(started.elapsed() < Duration::from_secs(20), "{why}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn heaptrace_may_be_killed_at_every_step() {
    let mut program = Program::start(2);
    let (pid, path) = (program.pid(), program.path("killed.dat"));
    // The library is in the process from here on.
    attaches_soon(&pid, &path);
    let text = path.to_str().unwrap();
    let mut kills = 0;
    for (call, number) in chosen(steps(&pid, &path), 12) {
        kills += u32::from(killed_at(call, number, &["attach", &pid, "--for", "1ms", "-o", text]));
        // What it had begun is ended; where it had begun nothing, that is said.
        let _ = run(heaptrace(), &["detach", &pid]);
        for name in ["killed.dat", "killed.dat.live"] {
            let _ = std::fs::remove_file(program.path(name));
        }
        // It lives, and has found no error so far.
        program.count(|| ());
    }
    println!("heaptrace was killed {kills} times");
    assert!(kills >= 10, "{kills}");
    let last = program.path("last.dat");
    let attach = Attach::start(&pid, &last);
    std::thread::sleep(Duration::from_millis(20));
    detach(&pid);
    attach.ends();
    is_detached(&json(&["info"], &last));
    assert_eq!(program.changed_code(), 0);
    program.quit();
}

/// In each step of a process's first attach, that brings the library in: a process of its own for each.
#[test]
fn heaptrace_may_be_killed_at_every_step_of_the_first_attach() {
    let program = Program::start(2);
    let steps = chosen(steps(&program.pid(), &program.path("steps.dat")), 5);
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

/// The recorder in the process refuses what its options ask for, when the library is there and its hooks are prepared.
#[test]
fn an_attach_behind_one_that_the_recorder_refused_records() {
    let mut program = Program::start(2);
    let (pid, path) = (program.pid(), program.path("second.dat"));
    let mut first = attach_command(&pid, &program.path("first.dat"));
    let output = first.env("TRACEHOUND_ALLOCATOR", "jemalloc").output().unwrap();
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("another allocator"));
    let attach = Attach::start(&pid, &path);
    std::thread::sleep(Duration::from_secs(1));
    attach.interrupt();
    program.count(|| ());
    let info = json(&["info"], &path);
    is_detached(&info);
    assert!(number(&info, "/allocations/count") > 1000, "{info}");
    program.quit();
}

/// The other command that changes a process: what it leaves is what the next one ends.
#[test]
fn a_detach_may_be_killed_at_every_step() {
    let mut program = Program::start(2);
    let (pid, path) = (program.pid(), program.path("killed.dat"));
    let log = program.path("strace");
    let attach = Attach::start(&pid, &path);
    let mut command = Command::new("strace");
    command.args(["-q", "-e", "trace=ptrace,pwrite64", "-o"]).arg(&log).arg(heaptrace()).args(["detach", &pid]);
    assert!(command.status().unwrap().success());
    attach.ends();
    let mut kills = 0;
    for (call, number) in chosen(counted(&log, &["ptrace", "pwrite64"]), 5) {
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

#[test]
fn the_end_of_the_process_in_the_middle_is_said() {
    for wait in [0, 2, 5, 10, 20, 40] {
        let program = Program::start(2);
        let (pid, path) = (program.pid(), program.path("gone.dat"));
        let mut attach = attach_command(&pid, &path);
        let mut attach = Running(attach.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        std::thread::sleep(Duration::from_millis(wait));
        assert!(run("kill", &["-KILL", &pid]).status.success());
        wait_for("heaptrace's end", Duration::from_secs(30), || attach.try_wait().unwrap().is_some());
    }
}
