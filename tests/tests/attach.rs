//! `heaptrace attach` and `heaptrace detach` on processes that run already: what is recorded, and what is left behind.

use std::collections::BTreeSet;
use std::io::{BufRead, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tracehound_tests::attached::{Attach, Books, Program, attach_command, attach_cycle, detach, is_detached, run};
use tracehound_tests::process::Running;
use tracehound_tests::{
    compile, dump_of_each_stack, dump_with, functions, heaptrace, json, library, number, traced_command, wait_for,
};

fn mark(pid: &str, label: &str) {
    let output = run(heaptrace(), &["ctl", pid, "mark", label]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_books_of_eight_threads_are_the_recordings() {
    let mut program = Program::start(8);
    let path = program.path("books.dat");
    let attach = Attach::start(&program.pid(), &path);
    let pid = program.pid();
    let first = program.count(|| mark(&pid, "first"));
    std::thread::sleep(Duration::from_millis(50));
    let last = program.count(|| mark(&pid, "last"));
    attach.interrupt();
    let _folder = program.ended();

    let info = json(&["info"], &path);
    is_detached(&info);
    assert_eq!(number(&info, "/threads"), 8);
    assert!(number(&info, "/recorder/unmatched_frees") > 0, "blocks from before were freed");
    let mut found: Books = [0; 4];
    let events = dump_with(&["--no-symbols"], &path);
    let between =
        events.iter().skip_while(|event| event["label"] != "first").take_while(|event| event["label"] != "last");
    for event in between {
        match event["kind"].as_str().unwrap() {
            "alloc" => found[0] += 1,
            "free" => found[1] += 1,
            "realloc" => found[2] += 1,
            _ => continue,
        }
        found[3] += event["size"].as_u64().filter(|_| event["kind"] != "free").unwrap_or(0);
    }
    let counted: Vec<u64> = last.iter().zip(first).map(|(last, first)| last - first).collect();
    assert!(counted.iter().all(|&count| count > 0));
    assert_eq!(found.to_vec(), counted);
}

/// The different stacks of the threads' events, with what they are of.
fn stacks(path: &Path) -> BTreeSet<(String, Vec<String>)> {
    let named = |event: &Value| (event["function"].as_str().unwrap_or("").to_owned(), functions(&event["stack"]));
    let of_threads = |(_, stack): &(String, Vec<String>)| stack.iter().any(|function| function == "work");
    let heap = |event: &&Value| ["alloc", "free", "realloc"].iter().any(|kind| event["kind"] == *kind);
    dump_of_each_stack(path).iter().map(|(event, _)| event).filter(heap).map(named).filter(of_threads).collect()
}

#[test]
fn stacks_are_those_that_preloading_records() {
    let mut program = Program::start(2);
    let path = program.path("attached.dat");
    let attach = Attach::start(&program.pid(), &path);
    program.works();
    attach.interrupt();
    let attached = program.ended();

    let (mut command, folder) = traced_command(compile("attached.c", &["-O1"]), &["2"]);
    command.env("TRACEHOUND_OUTPUT", "preloaded.dat");
    let mut preloaded = Program::from(command, folder);
    let other = preloaded.path("preloaded.dat");
    preloaded.works();
    let preloaded = preloaded.ended();

    let (found, expected) = (stacks(&path), stacks(&other));
    drop((attached, preloaded));
    assert!(expected.len() >= 4, "{expected:?}");
    // What a thread does when it ends is in no attached recording.
    let while_running = |set: BTreeSet<(String, Vec<String>)>| -> BTreeSet<_> {
        set.into_iter().filter(|(_, stack)| stack.len() > 2).collect()
    };
    assert_eq!(while_running(found), while_running(expected));
}

#[test]
fn detached_twice_the_process_is_as_it_was() {
    let program = Program::start(8);
    let before = program.belongings();
    let cycle = |name: &str| {
        let path = program.path(name);
        let attach = Attach::start(&program.pid(), &path);
        assert!(program.changed_code() > 0, "functions lead to the recorder");
        std::thread::sleep(Duration::from_millis(20));
        detach(&program.pid());
        attach.ends();
        let info = json(&["info"], &path);
        is_detached(&info);
        // No alarm for what is in order: the detach is the end, and the recorder is no program to be searched.
        assert_eq!(info["remarks"], serde_json::json!([]));
        assert!(!path.with_extension("dat.live").exists());
        program.belongings()
    };
    // The library stays mapped, and what its heap keeps.
    assert_eq!(before, cycle("first.dat"));
    assert_eq!(program.changed_code(), 0, "libc's code is its file's again");
    assert_eq!(before, cycle("second.dat"));
    let (lines, kib) = program.mapped();
    assert_eq!(before, cycle("third.dat"));
    let (lines_later, kib_later) = program.mapped();
    assert!(lines_later <= lines + 2, "{lines} and {lines_later} mappings");
    assert!(kib_later <= kib + (16 << 10), "{kib} and {kib_later} KiB");
    assert_eq!(program.changed_code(), 0);
    program.quit();
}

/// It opens the files of all objects that the loader has, by their names.
#[test]
fn a_debugger_can_look_at_the_process_afterwards() {
    let program = Program::start(1);
    let path = program.path("debugged.dat");
    let debugged = |when: &str| {
        let output = run("timeout", &["-s", "KILL", "60", "gdb", "-q", "-batch", "-p", &program.pid(), "-ex", "bt 1"]);
        assert!(output.status.success(), "{when}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    };
    let attach = Attach::start(&program.pid(), &path);
    debugged("recording");
    attach.interrupt();
    debugged("detached");
    let info = json(&["info"], &path);
    assert!(info["attached"] == true && info["complete"] == true, "{info:#}");
    program.quit();
}

#[test]
fn a_plan_says_what_an_attach_would_do() {
    const FAMILY: &str =
        "malloc, calloc, realloc, reallocarray, free, posix_memalign, aligned_alloc, memalign, valloc, pvalloc";
    let plan = |preload: &str| {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(compile("attached.c", &["-O1"]));
        command.arg("1").env("LD_PRELOAD", preload);
        let program = Program::from(command, folder);
        let output = run(heaptrace(), &["attach", "--dry-run", &program.pid()]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(program.changed_code(), 0);
        program.quit();
        String::from_utf8(output.stdout).unwrap()
    };
    let plain = plan("");
    assert!(plain.contains("\n31 functions would be redirected"), "{plain}");
    assert!(plain.contains(&format!("\n  {FAMILY}, mmap, munmap, mremap, brk, sbrk, _exit, setuid, ")), "{plain}");
    // What comes before the C library is what the program calls.
    let other = plan("libjemalloc.so.2");
    let lines: Vec<&str> = other.lines().filter(|line| line.starts_with("  ")).collect();
    assert_eq!(lines.len(), 2, "{other}");
    assert!(lines[0].starts_with("  malloc, calloc, realloc, ") && lines[0].contains("/libjemalloc.so.2"), "{other}");
    assert!(lines[1].contains("mmap, munmap") && lines[1].contains("/libc.so.6"), "{other}");
}

#[test]
fn with_the_proc_of_another_namespace_an_attach_is_refused() {
    let fork = ["unshare", "--pid", "--fork"];
    if !run(fork[0], &["--pid", "--fork", "true"]).status.success() {
        println!("not tested: only root makes process namespaces");
        return;
    }
    let program = Program::start(1);
    let output =
        Command::new(fork[0]).args(&fork[1..]).arg(heaptrace()).args(["attach", &program.pid()]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("another process namespace"), "{said}");
    program.quit();
}

#[test]
fn a_process_that_cannot_be_attached_to_is_left_alone() {
    let refused = |pid: &str, why: &str| {
        let folder = tempfile::tempdir().unwrap();
        let output = attach_command(pid, &folder.path().join("no.dat")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(why) && said.lines().count() == 1, "{said}");
        assert!(output.stdout.is_empty() && std::fs::read_dir(folder.path()).unwrap().next().is_none());
    };
    refused("999999999", "there is no process");
    refused(
        "2",
        if std::fs::read_to_string("/proc/2/comm").is_ok_and(|comm| comm == "kthreadd\n") { "kernel" } else { "2" },
    );

    let program = Program::start(1);
    let pid = program.pid();
    assert!(run("kill", &["-STOP", &pid]).status.success());
    wait_for("the stop", Duration::from_secs(5), || {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") T ")
    });
    refused(&pid, "is stopped");
    assert!(run("kill", &["-CONT", &pid]).status.success());
    let attach = Attach::start(&pid, &program.path("one.dat"));
    refused(&pid, "is recorded by an earlier attach");
    attach.interrupt();
    let output = run(heaptrace(), &["detach", &pid]);
    assert_eq!(output.status.code(), Some(1));
    program.quit();

    let (mut command, folder) = traced_command(compile("attached.c", &["-O1"]), &["1"]);
    command.env("TRACEHOUND_SAMPLE_MEMORY_MS", "0");
    let preloaded = Program::from(command, folder);
    refused(&preloaded.pid(), "heaptrace ctl");
    preloaded.quit();

    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(compile("attached.c", &["-O1", "-static"]));
    command.arg("1");
    let fixed = Program::from(command, folder);
    refused(&fixed.pid(), "statically linked");
    fixed.quit();
}

/// A thread's first event calls functions of the C library; the recording's memory must be there when they return.
#[test]
fn a_thread_in_its_first_event_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["-O1", "-pthread", "-rdynamic"];
    let program = Program::from(Command::new(compile("slow_memset.c", &flags)), folder);
    let (pid, path) = (program.pid(), program.path("first.dat"));
    for round in 0..3 {
        attach_cycle(&pid, &path, "1ms", &[]).unwrap_or_else(|why| panic!("round {round}: {why}"));
    }
    program.quit();
}

/// The recorder's allocator has handlers of forks, and locks, before it is ready.
#[test]
fn forks_while_the_recorder_begins_do_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["-O1", "-pthread", "-rdynamic", "-ldl"];
    let mut program = Program::from(Command::new(compile("slow_mutexes.c", &flags)), folder);
    let (pid, path) = (program.pid(), program.path("forks.dat"));
    for round in 0..3 {
        attach_cycle(&pid, &path, "10ms", &[]).unwrap_or_else(|why| panic!("round {round}: {why}"));
    }
    // What a child of that time has of the recorder was never finished, or may be locked.
    for made in ["child\n", "past\n"] {
        let mut child = String::new();
        program.input.write_all(made.as_bytes()).unwrap();
        program.output.read_line(&mut child).unwrap();
        assert_ne!(child.trim(), "0", "no fork fell into the recorder's first steps");
        let files = || std::fs::read_dir(format!("/proc/{}/fd", child.trim())).unwrap().count();
        let before = files();
        let why = attach_cycle(child.trim(), &program.path("child.dat"), "10ms", &[]).unwrap_err();
        assert!(why.contains("what it has of the recorder cannot be used"), "{why}");
        assert_eq!(files(), before);
    }
    program.quit();
}

#[test]
fn a_process_outlives_heaptrace_wherever_that_is_killed() {
    let program = Program::start(4);
    let pid = program.pid();
    for round in 0..24_u64 {
        let path = program.path(&format!("{round}.dat"));
        let mut attach = attach_command(&pid, &path);
        let mut attach = Running(attach.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        std::thread::sleep(Duration::from_micros(round * round * 1_500));
        let _ = attach.kill();
        attach.wait().unwrap();
        // What it had begun is ended; where it had begun nothing, that is said.
        let _ = run(heaptrace(), &["detach", &pid]);
    }
    let path = program.path("last.dat");
    let attach = Attach::start(&pid, &path);
    std::thread::sleep(Duration::from_millis(20));
    attach.interrupt();
    is_detached(&json(&["info"], &path));
    assert_eq!(program.changed_code(), 0);
    program.quit();
}

#[test]
fn the_end_of_the_process_ends_the_attach() {
    let program = Program::start(2);
    let path = program.path("ended.dat");
    let attach = Attach::start(&program.pid(), &path);
    let folder = program.ended();
    attach.ends();
    let info = json(&["info"], &path);
    assert_eq!((&info["end"], &info["attached"], &info["complete"]), (&"exit".into(), &true.into(), &true.into()));
    drop(folder);
}

#[test]
fn the_library_takes_little_of_every_threads_storage() {
    const THREAD_STORAGE: u32 = 7;
    let file = std::fs::read(library()).unwrap();
    let word = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
    let count = usize::from(u16::from_le_bytes(file[56..58].try_into().unwrap()));
    let headers = (0..count).map(|number| word(32) as usize + number * 56);
    let storage: Vec<u64> = headers
        .filter(|&at| u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) == THREAD_STORAGE)
        .map(|at| word(at + 40))
        .collect();
    // The loader has so much to spare for libraries that come late, and not much more.
    assert!(matches!(storage.as_slice(), [bytes] if *bytes <= 256), "{storage:?}");
}
