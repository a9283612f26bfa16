//! `heaptrace attach --existing`: the blocks that glibc's heap holds at the start, against what the program says of them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use tracehound_tests::process::Running;
use tracehound_tests::{compile, dump_with, heaptrace, json, number};

/// A program that waits for lines.
struct Program {
    child: Running,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(mut command: Command) -> Self {
        let mut child = Running(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the program has ended");
        line.trim_end().to_owned()
    }

    /// Lines up to `word`.
    fn until(&mut self, word: &str) -> Vec<String> {
        std::iter::repeat_with(|| self.line()).take_while(|line| line != word).collect()
    }

    fn say(&mut self, word: &str) {
        self.input.write_all(format!("{word}\n").as_bytes()).unwrap();
    }
}

/// Attaches, with what `heaptrace attach` prints while it is at it.
fn attach(program: &Program, path: &Path) -> (Running, BufReader<ChildStdout>) {
    let mut command = Command::new(heaptrace());
    command.args(["attach", "--existing", "-o"]).arg(path).arg(program.child.id().to_string());
    let mut child: Child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    for expected in [path.to_str().unwrap(), "recording"] {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), expected);
    }
    (Running(child), output)
}

fn detach(mut attached: (Running, BufReader<ChildStdout>)) -> String {
    assert!(Command::new("kill").args(["-INT", &attached.0.id().to_string()]).status().unwrap().success());
    let mut said = String::new();
    attached.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let status = attached.0.wait().unwrap();
    assert!(status.success(), "{status}: {said}");
    said
}

fn address(event: &Value) -> u64 {
    u64::from_str_radix(&event["address"].as_str().unwrap()[2..], 16).unwrap()
}

/// A program with known blocks, and the recording of what it does with them.
fn held(threads: u32, how: &[&str]) -> (TempDir, BTreeMap<u64, u64>, Vec<Value>, Value) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("held.dat");
    let mut command = Command::new(compile("held.c", &["-O1"]));
    command.arg(threads.to_string()).args(how);
    let mut program = Program::start(command);
    let lines = program.until("ready");
    let known: BTreeMap<u64, u64> = lines
        .iter()
        .map(|line| {
            let (address, size) = line.split_once(' ').unwrap();
            (u64::from_str_radix(&address[2..], 16).unwrap(), size.parse().unwrap())
        })
        .collect();
    assert_eq!(known.len(), 2000 * threads as usize);
    let attached = attach(&program, &path);
    program.say("free");
    assert_eq!(program.line(), "done");
    let said = detach(attached);
    assert!(said.contains("were allocated before"), "{said}");
    program.say("quit");
    assert!(program.child.wait().unwrap().success());
    let events = dump_with(&["--no-symbols"], &path);
    let info = json(&["info"], &path);
    (folder, known, events, info)
}

fn the_list_is_what_the_program_holds(threads: u32, how: &[&str]) {
    let (_folder, known, events, info) = held(threads, how);
    let listed: Vec<&Value> = events.iter().filter(|event| event["kind"] == "existing").collect();
    let by_address: BTreeMap<u64, u64> =
        listed.iter().map(|event| (address(event), event["size"].as_u64().unwrap())).collect();
    assert_eq!(by_address.len(), listed.len(), "each once");
    for (at, size) in &known {
        assert_eq!(by_address.get(at), Some(size), "{at:#x}");
    }
    // What else there is belongs to libc: its files, its threads. It lies beside the program's blocks.
    let others: Vec<_> = by_address.iter().filter(|(at, _)| !known.contains_key(at)).collect();
    assert!(others.len() < 60 + 4 * threads as usize, "{} blocks that nobody has: {others:x?}", others.len());
    let mut end = 0;
    for (&at, &size) in &by_address {
        assert!(at >= end, "blocks overlap at {at:#x}");
        end = at + size;
    }

    let remark = info["remarks"].as_array().unwrap().iter().find(|remark| remark["topic"] == "existing").unwrap();
    let text = remark["text"].as_str().unwrap();
    assert!(text.starts_with(&format!("{} blocks of", listed.len())) && !text.contains("not complete"), "{text}");
    assert_eq!(number(&info, "/existing/count"), listed.len() as u64);
    assert_eq!(number(&info, "/existing/bytes"), by_address.values().sum::<u64>());

    // Half of them freed, an eighth resized: all are known.
    let threads = u64::from(threads);
    assert_eq!(number(&info, "/recorder/unmatched_frees"), 0);
    let freed: Vec<&Value> =
        events.iter().filter(|event| event["kind"] == "free" && event["existing"] == true).collect();
    assert!(freed.len() as u64 >= 1000 * threads);
    for event in &freed {
        assert_eq!(event["size"].as_u64(), by_address.get(&address(event)).copied());
    }
    assert_eq!(number(&info, "/events/realloc"), 250 * threads);
    assert!(number(&info, "/existing/freed/count") >= 1250 * threads);
    // They are nobody's leaks: what the session allocated is counted alone.
    let allocated = events.iter().filter(|event| event["kind"] == "alloc" || event["kind"] == "realloc").count() as u64;
    assert_eq!(number(&info, "/allocations/count"), allocated);
    assert!(number(&info, "/leaked/count") <= allocated);
}

#[test]
fn one_thread_holds_what_is_listed() {
    the_list_is_what_the_program_holds(1, &[]);
}

#[test]
fn eight_threads_hold_what_is_listed() {
    the_list_is_what_the_program_holds(8, &[]);
}

#[test]
fn threads_of_one_arena_hold_what_is_listed() {
    the_list_is_what_the_program_holds(8, &["shared"]);
}

#[test]
fn memory_and_pins_know_blocks_from_before() {
    let (folder, known, _, info) = held(1, &[]);
    let path = folder.path().join("held.dat");
    let memory = json(&["memory"], &path);
    let live = memory["rows"].as_array().unwrap().iter().find(|row| row["key"] == "live").unwrap();
    let left = number(&info, "/existing/bytes") - number(&info, "/existing/freed/bytes");
    assert!(left > known.values().sum::<u64>() / 4);
    assert!(number(live, "/bytes") > left / 2, "{live} of {left}");
    let pins = json(&["pins"], &path);
    let rows = pins["rows"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["function"] == "(blocks from before the recording)"), "{pins}");
}

/// What was allocated before is not known without a list: nothing is said to be free.
#[test]
fn memory_without_a_list_promises_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(compile("held.c", &["-O1"]));
    command.arg("2");
    let mut program = Program::start(command);
    program.until("ready");
    let memory = |name: &str, how: &[&str]| {
        let path = folder.path().join(name);
        let pid = program.child.id().to_string();
        let mut attach = Command::new(heaptrace());
        attach.args(["attach", &pid, "--for", "300ms", "-o"]).arg(&path).args(how);
        let output = attach.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        json(&["memory"], &path)
    };
    let basis = |memory: &Value, key: &str| {
        let row = memory["rows"].as_array().unwrap().iter().find(|row| row["key"] == key);
        row.unwrap()["basis"].clone()
    };
    let (without, with) = (memory("without.dat", &[]), memory("with.dat", &["--existing"]));
    assert!(without["returnable_by_trim_bytes"].is_null(), "{without:#}");
    assert_eq!((basis(&without, "free_pages"), basis(&without, "free_top")), ("modelled".into(), "modelled".into()));
    assert!(without["why"].as_str().unwrap().contains("before recording began"), "{}", without["why"]);
    assert!(with["returnable_by_trim_bytes"].is_u64(), "{with:#}");
    assert_eq!(basis(&with, "free_pages"), "exact");
}

#[test]
fn a_busy_program_is_listed_at_one_instant() {
    // Eight threads allocate and free without a pause: every later free is of a block that is listed or recorded.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("busy.dat");
    let mut command = Command::new(compile("attached.c", &["-O1"]));
    command.arg("8");
    let mut program = Program::start(command);
    std::thread::sleep(std::time::Duration::from_millis(100));
    let attached = attach(&program, &path);
    std::thread::sleep(std::time::Duration::from_millis(50));
    detach(attached);
    program.say("quit");
    assert_eq!(program.line(), "errors 0");
    let info = json(&["info"], &path);
    assert_eq!(number(&info, "/recorder/unmatched_frees"), 0, "{info}");
    assert!(number(&info, "/existing/freed/count") > 500, "{info}");
    let remarks = info["remarks"].to_string();
    assert!(!remarks.contains("overwritten"), "{remarks}");
}

/// An executable with fixed addresses that takes malloc's address has a malloc of its own, as the loader sees it; it is libc's.
#[test]
fn a_pointer_to_malloc_is_no_other_allocator() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pointer.dat");
    let flags = ["-O1", "-no-pie", "-fno-pie", "-fno-builtin", "-Wl,-z,lazy"];
    let mut program = Program::start(Command::new(compile("malloc_pointer.c", &flags)));
    let kept = program.until("ready");
    let attached = attach(&program, &path);
    program.say("");
    assert_eq!(program.line(), "done");
    detach(attached);
    let Program { mut child, input, .. } = program;
    drop(input);
    assert!(child.wait().unwrap().success());
    let events = dump_with(&["--no-symbols"], &path);
    let listed: BTreeMap<u64, &Value> =
        events.iter().filter(|event| event["kind"] == "existing").map(|event| (address(event), event)).collect();
    for line in &kept {
        let (at, size) = line.split_once(' ').unwrap();
        let found = listed.get(&u64::from_str_radix(at, 16).unwrap()).unwrap_or_else(|| panic!("{at} is not listed"));
        assert!((0..24).contains(&(number(found, "/size") - size.parse::<u64>().unwrap())), "{found}");
    }
    // By the pointer, by a call, and in the C library, which calls its own malloc.
    for (size, count) in [(77, 50), (78, 50), (19, 50)] {
        let found = events.iter().filter(|event| event["kind"] == "alloc" && event["size"] == size).count();
        assert_eq!(found, count, "of {size} bytes");
    }
    assert_eq!(number(&json(&["info"], &path), "/recorder/unmatched_frees"), 0);
}

#[test]
fn another_allocators_heap_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.dat");
    let mut command = Command::new(compile("held.c", &["-O1"]));
    command.arg("1").env("LD_PRELOAD", "libjemalloc.so.2");
    let mut program = Program::start(command);
    program.until("ready");
    let attached = attach(&program, &path);
    program.say("free");
    assert_eq!(program.line(), "done");
    detach(attached);
    program.say("quit");
    let info = json(&["info"], &path);
    assert!(info["existing"].is_null());
    let remarks = info["remarks"].to_string();
    assert!(remarks.contains("Blocks from before are not listed: malloc is that of"), "{remarks}");
    // What may be full of such blocks is called neither free nor the allocator's own, and no advice is given that was followed.
    let ledger = json(&["memory"], &path);
    assert_eq!(ledger["knows_all_blocks"], false, "{ledger:#}");
    let bytes = |key: &str| {
        let row = ledger["rows"].as_array().unwrap().iter().find(|row| row["key"] == key).unwrap();
        number(row, "/bytes")
    };
    assert!(bytes("allocator_metadata") == 0 && bytes("free_pages") > 0, "{ledger:#}");
    let said = |command: &str| {
        let output = Command::new(heaptrace()).arg(command).arg(&path).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let memory = said("memory");
    assert!(memory.contains("pages without a recorded block") && !memory.contains("--existing"), "{memory}");
    let pins = said("pins");
    assert!(!ledger["look_ns"].is_null() && !pins.contains("no looks at pages"), "{pins}");
    assert!(pins.contains("blocks from before the recording"), "{pins}");
}
