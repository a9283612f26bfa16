//! Attach under hardship: many times, into processes that do what it could disturb, and with heaptrace killed at each of its
//! steps. In short here; `make attach-hardship` makes it long (`ATTACH_CYCLES`, default 10,000, and every step).

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tracehound_tests::attached::{Attach, Program, attach_command, detach, is_detached, run};
use tracehound_tests::process::Running;
use tracehound_tests::{compile, heaptrace, json, wait_for};

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
    let (mut refused, mut last) = (0, String::new());
    for _ in 0..count {
        if let Err(why) = cycle(&pid, &path, "20ms") {
            refused += 1;
            last = why;
        }
    }
    // A thread that may be borrowed is not always there, and then nothing is touched; most of the time it is.
    println!("{mode}: {count} attaches, {refused} refused: {last}");
    assert!(refused * 4 <= count, "{mode}: {refused} of {count} refused: {last}");
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
fn a_program_of_short_lived_threads_goes_on() {
    hazard("threads", None);
}

#[test]
fn a_program_without_its_first_thread_goes_on() {
    hazard("leader", None);
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
    let text = std::fs::read_to_string(log).unwrap();
    let count = |name: &str| text.lines().filter(|line| line.starts_with(&format!("{name}("))).count() as u32;
    ["ptrace", "pwrite64", "sendmsg"].map(|name| (name, count(name))).to_vec()
}

#[test]
fn heaptrace_may_be_killed_at_every_step() {
    let mut program = Program::start(2);
    let (pid, path) = (program.pid(), program.path("killed.dat"));
    let steps = steps(&pid, &path);
    println!("steps: {steps:?}");
    assert!(steps.iter().all(|(_, count)| *count > 0), "{steps:?}");
    let mut kills = 0;
    for (call, count) in steps {
        // All of them, or about a dozen.
        let stride = if long().is_some() { 1 } else { count.div_ceil(12).max(1) };
        for number in (1..=count).step_by(stride as usize) {
            let mut command = Command::new("strace");
            command.args(["-q", "-o", "/dev/null", "-e", &format!("inject={call}:signal=KILL:when={number}")]);
            command.arg(heaptrace()).args(["attach", &pid, "--for", "1ms", "-o"]).arg(&path);
            let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
            // What it had begun is ended; where it had begun nothing, that is said.
            let _ = run(heaptrace(), &["detach", &pid]);
            kills += u32::from(!status.success());
            for name in ["killed.dat", "killed.dat.live"] {
                let _ = std::fs::remove_file(program.path(name));
            }
            // It lives, and has found no error so far.
            program.count(|| ());
        }
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
