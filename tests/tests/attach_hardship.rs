//! Attach under hardship: many times, and into processes that do what it could disturb. In short here; `make attach-hardship`
//! makes it long (`ATTACH_CYCLES`, default 10,000).

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tracehound_tests::attached::{Attach, Program, attach_command, attach_cycle, is_detached, long_form, run};
use tracehound_tests::process::Running;
use tracehound_tests::{compile, json, number, wait_for};

/// Attaches and detaches; what the process has must be after all what it was after the tenth.
fn cycles(threads: u32, short: u32) {
    const SETTLED: u32 = 10;
    let program = Program::start(threads);
    let (pid, path) = (program.pid(), program.path("cycle.dat"));
    let before = program.belongings();
    let started = Instant::now();
    let count = long_form().unwrap_or(short).max(SETTLED + 1);
    let mut settled = (0, 0);
    for number in 1..=count {
        attach_cycle(&pid, &path, "1ms", &[]).unwrap_or_else(|why| panic!("cycle {number}: {why}"));
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
    // The recorder's heap keeps addresses for the next time, and took enough of them at the first.
    assert!(lines <= settled.0 + 2 && kib <= settled.1, "{settled:?}, then {lines} and {kib}");
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
    let count = long_form().map_or(4, |cycles| cycles / 10);
    // Each reason with the numbers of the attaches: those of a heaptrace that was built again meanwhile are the last ones.
    let mut reasons: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for number in 1..=count {
        if let Err(why) = attach_cycle(&pid, &path, "20ms", &[]) {
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
fn threads_that_take_turns_to_wait_for_their_vforked_children_are_waited_for() {
    hazard("slow vforks", None);
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
    for _ in 0..long_form().map_or(6, |cycles| cycles / 10) {
        // It may succeed, or the process has become another one meanwhile: either is said, and the process lives.
        let _ = attach_cycle(&pid, &path, "5ms", &[]);
    }
    std::fs::write(stop, "").unwrap();
    assert_eq!(program.rest(), "rounds 1 errors 0\n");
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
