//! `heaptrace attach` to programs that are not as most: with a malloc of their own, with filters of system calls, and those that
//! become other programs.

use std::collections::BTreeSet;
use std::process::{Command, Output};
use std::time::Duration;

use tracehound_shared::sys::calls::{CallingThreads, calls_by};
use tracehound_tests::attached::{Attach, Program, attach_command, is_detached, run};
use tracehound_tests::{compile, dump, heaptrace, json, number};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn started(mut command: Command, arguments: &[&str]) -> Program {
    command.args(arguments);
    Program::from(command, tempfile::tempdir().unwrap())
}

#[test]
fn an_executable_with_its_own_malloc_is_recorded() {
    let mut program = started(Command::new(compile("own_malloc.c", &["-O2", "-fno-builtin", "-rdynamic"])), &[]);
    let path = program.path("own.dat");
    let output = attach_command(&program.pid(), &path).args(["--for", "500ms"]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(program.child.wait().unwrap().code(), Some(5));
    let info = json(&["info"], &path);
    is_detached(&info);
    let events = dump(&path);
    let allocations: Vec<_> = events.iter().filter(|event| event["kind"] == "alloc").collect();
    assert!(allocations.len() > 20, "{} allocations in half a second", allocations.len());
    for event in allocations {
        let stack: Vec<&str> =
            event["stack"].as_array().unwrap().iter().map(|frame| frame["function"].as_str().unwrap_or("?")).collect();
        assert_eq!(stack[..2], ["work", "main"], "{event}");
        assert!((100..107).contains(&number(event, "/size")), "{event}");
    }
}

#[test]
fn a_program_that_becomes_another_ends_its_recording_with_exec() {
    let mut program = started(Command::new(compile("execs.c", &["-O1"])), &[]);
    let path = program.path("exec.dat");
    let attach = Attach::start(&program.pid(), &path);
    attach.ends();
    assert_eq!(program.child.wait().unwrap().code(), Some(9));
    let info = json(&["info"], &path);
    assert_eq!((&info["end"], &info["complete"]), (&"exec".into(), &true.into()), "{info}");
}

#[test]
fn an_exec_that_fails_goes_on_being_recorded() {
    let mut program = started(Command::new(compile("execs.c", &["-O1"])), &["fails"]);
    let path = program.path("fails.dat");
    let attach = Attach::start(&program.pid(), &path);
    attach.ends();
    assert_eq!(program.child.wait().unwrap().code(), Some(7));
    let info = json(&["info"], &path);
    assert_eq!((&info["end"], &info["complete"]), (&"exit".into(), &true.into()), "{info}");
    let behind = dump(&path).iter().filter(|event| event["kind"] == "alloc" && event["size"] == 2002).count();
    assert_eq!(behind, 100, "allocations behind the exec that failed");
}

/// What the check of a filter looks at is what an attached process does: every system call that one makes, seen by a filter that
/// asks another process, is judged.
#[test]
fn all_system_calls_of_an_attach_are_judged_before_it() {
    let mut program = started(Command::new(compile("seen_calls.c", &["-O1"])), &[]);
    let mut pid = String::new();
    std::io::BufRead::read_line(&mut program.output, &mut pid).unwrap();
    // Its own filter cannot be judged: it asks.
    let output =
        attach_command(pid.trim(), &program.path("seen.dat")).args(["--force", "--for", "1s"]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let seen: BTreeSet<i64> = program.rest().lines().map(|line| line.parse().unwrap()).collect();
    assert!(seen.len() > 40, "{seen:?}");
    // What the program itself does, to sleep.
    let own = BTreeSet::from([libc::SYS_clock_nanosleep]);
    let judged: BTreeSet<i64> = tracehound_attach::calls().map(|(number, _)| number).collect();
    let unjudged: Vec<_> = seen.difference(&judged).filter(|number| !own.contains(*number)).collect();
    assert!(unjudged.is_empty(), "{unjudged:?}");
    let writers = calls_by(CallingThreads::Writer).chain(calls_by(CallingThreads::Program));
    assert!(writers.map(|call| call.number).all(|number| judged.contains(&number)));
}

/// A program whose filter kills for one system call, attached to: what heaptrace says, and how the program ends.
fn attached_behind_filter(number: i64) -> (Output, Option<i32>) {
    let mut program = started(Command::new(compile("kills_for_call.c", &["-O1"])), &[&number.to_string()]);
    let output =
        attach_command(&program.pid(), &program.path("filtered.dat")).args(["--for", "300ms"]).output().unwrap();
    (output, program.child.wait().unwrap().code())
}

#[test]
fn a_filter_that_kills_is_never_provoked() {
    // A socket is not needed, nor are credentials: it is recorded without.
    let dispensable = [libc::SYS_socket, libc::SYS_geteuid, libc::SYS_getdents64, libc::SYS_capget, libc::SYS_mincore];
    let needed = [libc::SYS_open, libc::SYS_exit, libc::SYS_newfstatat, libc::SYS_readlink, libc::SYS_set_robust_list];
    let of = |number| std::thread::spawn(move || (number, attached_behind_filter(number)));
    for (number, run) in dispensable.map(|number| (number, of(number))) {
        let (_, (output, code)) = run.join().unwrap();
        assert_eq!((output.status.code(), code), (Some(0), Some(5)), "{number}: {}", said(&output));
    }
    for (number, run) in needed.map(|number| (number, of(number))) {
        let (_, (output, code)) = run.join().unwrap();
        assert_eq!((output.status.code(), code), (Some(1), Some(5)), "{number}: {}", said(&output));
        assert!(said(&output).contains("a seccomp filter of process"), "{}", said(&output));
    }
}

/// The program puts the filter on itself when it is recorded: the recording ends, and not the program.
#[test]
fn a_filter_that_comes_later_ends_the_recording() {
    // A thread of the program may have to make it for the recorder.
    let number = libc::SYS_tgkill.to_string();
    for how in ["prctl", "syscall"] {
        let program = started(Command::new(compile("kills_for_call.c", &["-O1"])), &[&number, how]);
        let path = program.path("later.dat");
        let mut attach = Attach::start(&program.pid(), &path);
        let Program { mut child, input, folder, .. } = program;
        drop(input);
        assert_eq!(child.wait().unwrap().code(), Some(5), "{how}");
        attach.ends_somehow();
        let info = json(&["info"], &path);
        assert_eq!(info["end"], "stopped", "{how}: {info:#}");
        assert!(info["remarks"].to_string().contains("seccomp"), "{how}: {info:#}");
        drop(folder);
    }
}

#[test]
fn a_filter_of_any_thread_counts() {
    let program = started(Command::new(compile("thread_filter.c", &["-O1", "-pthread"])), &[]);
    let output = attach_command(&program.pid(), &program.path("thread.dat")).args(["--for", "300ms"]).output().unwrap();
    assert!(output.status.code() == Some(1) && said(&output).contains("seccomp filter of thread"), "{}", said(&output));
    program.quit_code(5);
}

/// Where every thread waits there is one to borrow, however it waits.
#[test]
fn programs_that_wait_can_be_attached_to() {
    let program = compile("idle.c", &["-O1", "-pthread"]);
    for way in ["semaphore", "timed", "condition", "futex", "stream", "scanf", "system"] {
        let idle = started(Command::new(&program), &[way]);
        let output = attach_command(&idle.pid(), &idle.path("idle.dat")).args(["--for", "100ms"]).output().unwrap();
        assert!(output.status.success(), "{way}: {}", said(&output));
        is_detached(&json(&["info"], &idle.path("idle.dat")));
    }
}

#[test]
fn options_that_an_attach_cannot_keep_are_refused() {
    let program = Program::start(1);
    for (variable, value) in
        [("TRACEHOUND_TOGGLE_SIGNAL", "USR1"), ("TRACEHOUND_PYTHON_OBJECTS", "1"), ("TRACEHOUND_CHILDREN", "1")]
    {
        let output = attach_command(&program.pid(), &program.path("no.dat")).env(variable, value).output().unwrap();
        assert!(output.status.code() == Some(2) && said(&output).contains(variable), "{}", said(&output));
    }
    let output = attach_command(&program.pid(), program.folder.path()).output().unwrap();
    assert!(output.status.code() == Some(2) && said(&output).contains("is a folder"), "{}", said(&output));
    program.quit();
}

#[test]
fn a_plan_refuses_what_an_attach_would() {
    let program = Program::start(1);
    let attach = Attach::start(&program.pid(), &program.path("plan.dat"));
    let output = run(heaptrace(), &["attach", "--dry-run", &program.pid()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("is recorded by an earlier attach"), "{}", said(&output));
    attach.interrupt();
    std::thread::sleep(Duration::from_millis(50));
    let output = run(heaptrace(), &["attach", "--dry-run", &program.pid()]);
    assert!(output.status.success(), "{}", said(&output));
    program.quit();
}

/// The kernel takes the loader for the program then.
#[test]
fn a_program_that_the_user_starts_by_the_loader() {
    let program = compile("attached.c", &["-O1"]);
    let mut command = Command::new("/lib64/ld-linux-x86-64.so.2");
    command.arg(&program).arg("2");
    let mut running = Program::from(command, tempfile::tempdir().unwrap());
    let (pid, path) = (running.pid(), running.path("loader.dat"));
    let plan = run(heaptrace(), &["attach", "--dry-run", &pid]);
    let plan = String::from_utf8_lossy(&plan.stdout).into_owned();
    assert!(plan.contains(&*program.to_string_lossy()), "{plan}");
    let attach = Attach::start(&pid, &path);
    running.works();
    attach.interrupt();
    let info = json(&["info"], &path);
    is_detached(&info);
    assert_eq!(info["process"]["executable"].as_str(), program.to_str());
    let named = json(&["sites"], &path).to_string();
    assert!(named.contains("attached.c"), "{named}");
    running.quit();
}
