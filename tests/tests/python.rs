//! Python's frames: the dump of a script's blocks must have the stack that Python itself says there is, function by
//! function, line by line, with every version of the interpreter that this machine has.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use serde_json::Value;
use tracehound_tests::{
    Traced, dump, dump_by_head, dump_where, dump_with, functions, json, number, pythons, random_seed, root, trace,
};

/// File, line, qualified name.
type PythonFrame = (String, u64, String);

fn run(interpreter: &Path, script: &str, variables: &[(&str, &str)]) -> Traced {
    run_with(interpreter, script, &[], variables)
}

fn run_with(interpreter: &Path, script: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Traced {
    let script = root().join("tests/python").join(script);
    let words: Vec<&str> = std::iter::once(script.to_str().unwrap()).chain(arguments.iter().copied()).collect();
    let run = trace(interpreter, &words, variables);
    assert!(run.output.status.success(), "{}: {}", interpreter.display(), run.stderr());
    assert_eq!(run.stderr(), "", "{}", interpreter.display());
    run
}

/// Python's frames of an event, innermost first.
fn python_frames(event: &Value) -> Vec<PythonFrame> {
    let frames = event["stack"].as_array().into_iter().flatten();
    let text = |frame: &Value, field: &str| frame[field].as_str().unwrap_or_default().to_owned();
    frames
        .filter(|frame| frame["language"] == "python")
        .map(|frame| {
            assert_eq!(frame["module"], "python", "{frame}");
            (text(frame, "file"), frame["line"].as_u64().unwrap_or(0), text(frame, "function"))
        })
        .collect()
}

fn stated_frames(stated: &Value) -> Vec<PythonFrame> {
    let frame = |frame: &Value| {
        (frame[0].as_str().unwrap().to_owned(), frame[1].as_u64().unwrap(), frame[2].as_str().unwrap().to_owned())
    };
    stated["stack"].as_array().into_iter().flatten().map(frame).collect()
}

/// The events of a dump by kind and size.
fn by_size(events: Vec<Value>) -> BTreeMap<(String, u64), Value> {
    let key = |event: &Value| Some((event["kind"].as_str()?.to_owned(), event["size"].as_u64()?));
    events.into_iter().filter_map(|event| Some((key(&event)?, event))).collect()
}

/// Everything that the script has stated, with the events that it belongs to.
fn compared(run: &Traced, innermost_only: bool) -> usize {
    let stated = run.stdout();
    let size = |line: &str| serde_json::from_str::<Value>(line).ok()?["size"].as_u64();
    let sizes: BTreeSet<u64> = stated.lines().filter_map(size).collect();
    // All events at once would take gigabytes.
    let is_stated = |event: &Value| event["size"].as_u64().is_some_and(|size| sizes.contains(&size));
    compared_with(run, dump_by_head(&[], &run.recording(), is_stated), innermost_only)
}

fn compared_with(run: &Traced, events: Vec<Value>, innermost_only: bool) -> usize {
    let events = by_size(events);
    let mut count = 0;
    for line in run.stdout().lines() {
        let stated: Value = serde_json::from_str(line).unwrap();
        let key = (stated["kind"].as_str().unwrap().to_owned(), stated["size"].as_u64().unwrap());
        let event = events.get(&key).unwrap_or_else(|| panic!("{key:?} is missing"));
        let (mut seen, expected) = (python_frames(event), stated_frames(&stated));
        if innermost_only {
            seen.truncate(expected.len());
        }
        assert_eq!(seen, expected, "{key:?}: {:?}", functions(&event["stack"]));
        count += 1;
    }
    count
}

#[test]
fn functions_that_are_met_a_moment_before_a_kill_have_names() {
    for interpreter in pythons() {
        let script = root().join("tests/python/last_words.py");
        let run = trace(&interpreter, &[script.to_str().unwrap()], &[]);
        assert_eq!(run.output.status.signal(), Some(9), "{}: {}", interpreter.display(), run.stderr());
        let is_late = |event: &Value| {
            event["kind"] == "alloc" && event["size"].as_u64().is_some_and(|size| (70_000..70_100).contains(&size))
        };
        let events = dump_where(&run.recording(), is_late);
        assert_eq!(events.len(), 12, "{}", interpreter.display());
        for (number, event) in events.iter().enumerate() {
            let name = format!("first_call_{number}");
            let frames = python_frames(event);
            assert!(frames.first().is_some_and(|frame| frame.2 == name), "{}: {event}", interpreter.display());
        }
    }
}

#[test]
fn stacks_are_those_that_python_tells() {
    for interpreter in pythons() {
        let run = run(&interpreter, "scenarios.py", &[]);
        let count = compared(&run, false);
        assert!(count > 600, "{}: {count}", interpreter.display());
        let info = run.info();
        let recorder = &info["recorder"];
        assert_eq!(number(recorder, "/truncated_stacks"), 0, "{}: {recorder:#}", interpreter.display());
        // CPython contains mimalloc from 3.13 on and does not use it, and malloc has a PLT entry in a position-dependent
        // executable.
        let remarks = info["remarks"].to_string();
        for wrong in ["seems to be inside the program", "malloc is ", "frames are missing"] {
            assert!(!remarks.contains(wrong), "{}: {remarks}", interpreter.display());
        }
    }
}

/// `PYTHONPERFSUPPORT` is for 3.12 and later; the code that they make for perf runs around each function.
#[test]
fn code_for_perf_is_no_function() {
    for interpreter in pythons() {
        let run = run(&interpreter, "native.py", &[("PYTHONPERFSUPPORT", "1")]);
        assert!(compared(&run, false) >= 80, "{}", interpreter.display());
        let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", number(&run.info(), "/process/pid")));
    }
}

#[test]
fn a_function_where_another_one_was_is_not_taken_for_it() {
    for interpreter in pythons() {
        assert_eq!(compared(&run(&interpreter, "same_place.py", &[]), true), 2000, "{}", interpreter.display());
    }
}

/// Each of the stacks is met by two ways through C, twice: some when others with their number have been forgotten.
/// `STACKS=25000` asks 100,000 times for each version, and again where every object is an allocation.
#[test]
fn more_stacks_than_are_remembered_are_not_taken_for_each_other() {
    let asked: Option<usize> = std::env::var("STACKS").ok().map(|text| text.parse().expect("STACKS is a number"));
    let stacks = asked.unwrap_or(1500);
    let arguments = [stacks.to_string(), random_seed().to_string()];
    let arguments = arguments.each_ref().map(String::as_str);
    let allocators: &[&str] = if asked.is_some() { &["default", "malloc"] } else { &["default"] };
    for (interpreter, allocator) in pythons().iter().flat_map(|one| allocators.iter().map(move |two| (one, two))) {
        let run = run_with(interpreter, "many_stacks.py", &arguments, &[("PYTHONMALLOC", allocator)]);
        let events =
            dump_by_head(&[], &run.recording(), |event| event["size"].as_u64().is_some_and(|size| size > 100_000));
        assert_eq!(compared_with(&run, events, false), 4 * stacks, "{}", interpreter.display());
    }
}

#[test]
fn callbacks_from_c_beside_threads_without_the_lock() {
    for interpreter in pythons() {
        let run = run(&interpreter, "native.py", &[]);
        assert!(compared(&run, false) >= 80, "{}", interpreter.display());
        // What zlib asks for, without the lock.
        let compressing = dump_where(&run.recording(), |event| {
            event["kind"] == "alloc"
                && functions(&event["stack"]).iter().any(|name| name == "deflateInit2_" || name == "inflateInit2_")
        });
        let mut count = 0;
        for event in compressing {
            let innermost = python_frames(&event).first().map(|(_, _, name)| name.clone());
            assert_eq!(innermost.as_deref(), Some("busy"), "{event}");
            count += 1;
        }
        assert!(count > 10, "{}: {count}", interpreter.display());
    }
}

/// From 3.11 on frames are in pieces of memory that are unmapped when their last frame ends; 3.11 still names that frame
/// as the thread's then.
#[test]
fn frames_whose_memory_is_unmapped_are_not_read() {
    for interpreter in pythons() {
        let run = run(&interpreter, "deep.py", &[]);
        assert_eq!(run.stdout(), "done\n", "{}", interpreter.display());
        let is_in_script = |event: &Value| python_frames(event).iter().any(|(file, ..)| file.ends_with("deep.py"));
        let unmapped = |event: &Value| event["kind"] == "unmap" && is_in_script(event);
        let count = dump_where(&run.recording(), unmapped).len();
        let name = interpreter.display().to_string();
        let has_pieces = !["3.9", "3.10"].iter().any(|version| name.contains(version));
        assert!(count > 0 || !has_pieces, "{name}: {count}");
    }
}

#[test]
fn requests_of_an_asyncio_service_are_told_apart() {
    for interpreter in pythons() {
        let run = run(&interpreter, "service.py", &[]);
        let printed: BTreeMap<String, (u64, u64)> = serde_json::from_str(&run.stdout()).unwrap();
        let mut seen: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        // The script's own blocks are larger than any that Python asks for.
        let is_own = |event: &Value| {
            event["kind"] == "alloc" && event["function"] == "malloc" && event["size"].as_u64() >= Some(1_000_000)
        };
        for event in &dump_by_head(&[], &run.recording(), is_own) {
            let (size, context) = (number(event, "/size"), event["context"].as_u64());
            if python_frames(event).first().is_some_and(|(_, _, name)| name == "keep") {
                let sum = seen.entry(context.unwrap_or(0).to_string()).or_default();
                *sum = (sum.0 + 1, sum.1 + size);
            }
        }
        assert_eq!(seen, printed, "{}", interpreter.display());
        let contexts = json(&["contexts"], &run.recording());
        let rows = contexts["contexts"].as_array().unwrap();
        let row = rows.iter().find(|row| row["id"] == 7).unwrap();
        assert_eq!(row["name"], "GET /items/7");
        assert_eq!(number(row, "/live/bytes").min(printed["7"].1), printed["7"].1);
    }
}

/// The frames of the interpreter that runs; those of the one that has called it are native.
#[test]
fn another_interpreter_of_the_process_has_its_frames() {
    for interpreter in pythons() {
        let recorded = run(&interpreter, "subinterpreters.py", &[]);
        let is_block = |event: &Value| {
            let size = event["size"].as_u64().unwrap_or(0);
            event["kind"] == "alloc" && [3_000_000, 4_000_000].iter().any(|first| (*first..first + 100).contains(&size))
        };
        let events = dump_by_head(&[], &recorded.recording(), is_block);
        assert_eq!(events.len(), 10, "{}", interpreter.display());
        for event in events {
            let names: Vec<String> = python_frames(&event).into_iter().map(|(_, _, name)| name).collect();
            assert_eq!(names, ["inner_leaf", "inner_middle", "<module>"], "{}: {event}", interpreter.display());
        }
    }
}

#[test]
fn the_interpreters_own_frames_are_shown_on_request() {
    let interpreters = pythons();
    // The oldest and the newest: the newest may be stripped, and its loop has no name then.
    for interpreter in [interpreters.first(), interpreters.last()].into_iter().flatten() {
        let recorded = run(interpreter, "same_place.py", &[]);
        let recording = recorded.recording();
        let of = |options: &[&str]| {
            let events = by_size(dump_with(options, &recording));
            functions(&events[&("alloc".to_owned(), 3_000_007)]["stack"])
        };
        let (user, all) = (of(&[]), of(&["--frames", "all"]));
        let name = interpreter.display();
        assert!(all.len() > user.len(), "{name}: {user:?} {all:?}");
        assert!(!user.iter().any(|name| name.starts_with("_PyEval_EvalFrameDefault")), "{name}: {user:?} {all:?}");
        assert!(all.contains(&"PyEval_EvalCode".to_owned()), "{name}: {all:?}");
        assert!(!user.contains(&"PyEval_EvalCode".to_owned()), "{name}: {user:?}");
        let mut rest = all.iter();
        assert!(user.iter().all(|name| rest.any(|other| other == name)), "{name}: {user:?} is in {all:?}");
        assert!(user.contains(&"function_7".to_owned()) && user.contains(&"<module>".to_owned()), "{name}: {user:?}");
        let leaks = json(&["leaks", "--focus", "^function_7$"], &recording);
        assert_eq!(number(&leaks, "/leaked/bytes"), 3_000_007, "{name}");
        let off = run(interpreter, "same_place.py", &[("TRACEHOUND_INTERPRETER", "off")]);
        assert!(dump(&off.recording()).iter().all(|event| python_frames(event).is_empty()), "{name}");
    }
}
