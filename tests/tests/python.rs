//! Python's frames: the dump of a script's blocks must have the stack that Python itself says there is, function by
//! function, line by line, with every version of the interpreter that this machine has.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tracehound_tests::{Traced, dump, dump_where, dump_with, functions, json, number, random_seed, root, trace};

/// File, line, qualified name.
type PythonFrame = (String, u64, String);

/// Interpreters from 3.9 to 3.13: the system's, and those of pyenv.
fn interpreters() -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("/usr/bin/python3")];
    let versions = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".pyenv/versions"));
    let folders = versions.and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    found.extend(folders.map(|folder| folder.path().join("bin/python3")));
    found.retain(|path| (9..=13).contains(&minor(path)));
    found.sort();
    assert!(!found.is_empty(), "no Python 3.9 to 3.13 here: install python3");
    found
}

fn minor(interpreter: &Path) -> u32 {
    let code = "import sys; print(sys.version_info[1] if sys.version_info[0] == 3 else 0)";
    let output = Command::new(interpreter).args(["-c", code]).output();
    output.ok().and_then(|output| String::from_utf8_lossy(&output.stdout).trim().parse().ok()).unwrap_or(0)
}

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

fn told_frames(told: &Value) -> Vec<PythonFrame> {
    let frame = |frame: &Value| {
        (frame[0].as_str().unwrap().to_owned(), frame[1].as_u64().unwrap(), frame[2].as_str().unwrap().to_owned())
    };
    told["stack"].as_array().into_iter().flatten().map(frame).collect()
}

/// The events of a dump by kind and size.
fn by_size(events: Vec<Value>) -> BTreeMap<(String, u64), Value> {
    let key = |event: &Value| Some((event["kind"].as_str()?.to_owned(), event["size"].as_u64()?));
    events.into_iter().filter_map(|event| Some((key(&event)?, event))).collect()
}

/// Everything that the script has told, with the events that it belongs to.
fn compared(run: &Traced, innermost_only: bool) -> usize {
    compared_with(run, run.dump(), innermost_only)
}

fn compared_with(run: &Traced, events: Vec<Value>, innermost_only: bool) -> usize {
    let events = by_size(events);
    let mut count = 0;
    for line in run.stdout().lines() {
        let told: Value = serde_json::from_str(line).unwrap();
        let key = (told["kind"].as_str().unwrap().to_owned(), told["size"].as_u64().unwrap());
        let event = events.get(&key).unwrap_or_else(|| panic!("{key:?} is missing"));
        let (mut seen, expected) = (python_frames(event), told_frames(&told));
        if innermost_only {
            seen.truncate(expected.len());
        }
        assert_eq!(seen, expected, "{key:?}: {:?}", functions(&event["stack"]));
        count += 1;
    }
    count
}

#[test]
fn stacks_are_those_that_python_tells() {
    for interpreter in interpreters() {
        let run = run(&interpreter, "scenarios.py", &[]);
        let count = compared(&run, false);
        assert!(count > 600, "{}: {count}", interpreter.display());
        let recorder = &run.info()["recorder"];
        assert_eq!(number(recorder, "/truncated_stacks"), 0, "{}: {recorder:#}", interpreter.display());
    }
}

#[test]
fn a_function_where_another_one_was_is_not_taken_for_it() {
    for interpreter in interpreters() {
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
    for (interpreter, allocator) in interpreters().iter().flat_map(|one| allocators.iter().map(move |two| (one, two))) {
        let run = run_with(interpreter, "many_stacks.py", &arguments, &[("PYTHONMALLOC", allocator)]);
        let events = dump_where(&run.recording(), |event| event["size"].as_u64().is_some_and(|size| size > 100_000));
        assert_eq!(compared_with(&run, events, false), 4 * stacks, "{}", interpreter.display());
    }
}

#[test]
fn callbacks_from_c_beside_threads_without_the_lock() {
    for interpreter in interpreters() {
        let run = run(&interpreter, "native.py", &[]);
        assert!(compared(&run, false) >= 80, "{}", interpreter.display());
        // What zlib asks for, without the lock.
        let compressing = run.dump().into_iter().filter(|event| {
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

#[test]
fn requests_of_an_asyncio_service_are_told_apart() {
    for interpreter in interpreters() {
        let run = run(&interpreter, "service.py", &[]);
        let printed: BTreeMap<String, (u64, u64)> = serde_json::from_str(&run.stdout()).unwrap();
        let mut seen: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for event in run.dump().iter().filter(|event| event["kind"] == "alloc" && event["function"] == "malloc") {
            let (size, context) = (number(event, "/size"), event["context"].as_u64());
            // The script's own blocks are larger than any that Python asks for.
            if size >= 1_000_000 && python_frames(event).first().is_some_and(|(_, _, name)| name == "keep") {
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

#[test]
fn the_interpreters_own_frames_are_shown_on_request() {
    let interpreter = interpreters().remove(0);
    let recorded = run(&interpreter, "same_place.py", &[]);
    let recording = recorded.recording();
    let of = |options: &[&str]| {
        let events = by_size(dump_with(options, &recording));
        functions(&events[&("alloc".to_owned(), 3_000_007)]["stack"])
    };
    let (user, all) = (of(&[]), of(&["--frames", "all"]));
    let is_loop = |name: &String| name.starts_with("_PyEval_EvalFrameDefault");
    assert!(all.iter().any(is_loop) && !user.iter().any(is_loop), "{user:?} {all:?}");
    let mut rest = all.iter();
    assert!(user.iter().all(|name| rest.any(|other| other == name)), "{user:?} is in {all:?}");
    assert!(user.contains(&"function_7".to_owned()) && user.contains(&"<module>".to_owned()));
    let leaks = json(&["leaks", "--focus", "^function_7$"], &recording);
    assert_eq!(number(&leaks, "/leaked/bytes"), 3_000_007);
    let off = run(&interpreter, "same_place.py", &[("TRACEHOUND_INTERPRETER", "off")]);
    assert!(dump(&off.recording()).iter().all(|event| python_frames(event).is_empty()));
}
