//! `heaptrace run --python-objects`: each object of Python's own allocator is an allocation, once, and the program keeps
//! its allocator.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tracehound_tests::{dump, dump_by_head, heaptrace, json, number, pythons, root};

fn run(interpreter: &Path, options: &[&str], variables: &[(&str, &str)], folder: &Path) -> (Output, PathBuf) {
    let recording = folder.join("objects.dat");
    let _ = std::fs::remove_file(&recording);
    let mut command = Command::new(heaptrace());
    command.args(["run", "-o"]).arg(&recording).args(options).arg("--").arg(interpreter);
    command.arg(root().join("tests/python/objects.py")).envs(variables.iter().copied()).current_dir(folder);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (output, recording)
}

/// Whether Python says that the script's function made it.
fn is_made(event: &Value) -> bool {
    let frames = event["stack"].as_array().into_iter().flatten();
    frames.filter(|frame| frame["language"] == "python").any(|frame| {
        frame["function"] == "make" || frame["function"].as_str().is_some_and(|name| name.starts_with("make.<locals>"))
    })
}

fn remark<'a>(info: &'a Value, topic: &str) -> Option<&'a str> {
    let remarks = info["remarks"].as_array().unwrap();
    remarks.iter().find(|remark| remark["topic"] == topic).map(|remark| remark["text"].as_str().unwrap())
}

#[test]
fn each_object_is_recorded_once_with_its_stack() {
    for interpreter in pythons() {
        let name = interpreter.display();
        let folder = tempfile::tempdir().unwrap();
        let (output, recording) = run(&interpreter, &["--python-objects"], &[], folder.path());
        let stated: Vec<Value> =
            String::from_utf8_lossy(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let sizes: Vec<u64> = stated.iter().map(|one| number(one, "/size")).collect();
        // All events of all versions do not fit into memory.
        let has_realloc = Cell::new(false);
        let events = dump_by_head(&[], &recording, |event| {
            has_realloc.set(has_realloc.get() || event["kind"] == "realloc");
            event["size"].as_u64().is_some_and(|size| sizes.contains(&size))
        });
        let count = |kind: &str, size: u64| {
            events.iter().filter(|event| event["kind"] == kind && event["size"] == size && is_made(event)).count()
                as u64
        };
        let mut dropped = 0;
        for line in &stated {
            let size = number(line, "/size");
            assert_eq!(count("alloc", size), number(line, "/count"), "{name}: {line}");
            if line["name"] == "dropped" {
                dropped = size;
            }
        }
        let freed = events.iter().filter(|event| event["kind"] == "free" && event["size"] == dropped).count();
        assert!(freed >= 500, "{name}: {freed}");
        assert!(has_realloc.get(), "{name}");
        let info = json(&["info"], &recording);
        assert_eq!((number(&info, "/recorder/unmatched_frees"), &info["complete"]), (0, &true.into()), "{name}");
        assert_eq!(remark(&info, "python-objects"), None, "{name}");
        assert!(remark(&info, "own-heap").is_none_or(|text| !text.contains("--python-objects")), "{name}");
    }
}

/// It frees what it knows of a large block inside the call that frees the block.
#[test]
fn what_tracemalloc_knows_of_a_block_is_freed_with_it() {
    for interpreter in pythons() {
        let folder = tempfile::tempdir().unwrap();
        let (_, recording) = run(&interpreter, &["--python-objects"], &[("PYTHONTRACEMALLOC", "5")], folder.path());
        let info = json(&["info"], &recording);
        let replaced = number(&info, "/recorder/clock_quality/order_violations");
        let figures = (number(&info, "/recorder/unmatched_frees"), replaced, &info["complete"]);
        assert_eq!(figures, (0, 0, &true.into()), "{}", interpreter.display());
    }
}

#[test]
fn as_many_as_with_malloc_in_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let python = Path::new("/usr/bin/python3");
    let seed = ("PYTHONHASHSEED", "0");
    let total = |recording: &Path| {
        let info = json(&["info"], recording);
        (number(&info, "/allocations/count"), info)
    };
    let (objects, _) = total(&run(python, &["--python-objects"], &[seed], folder.path()).1);
    let (mallocs, info) = total(&run(python, &[], &[seed, ("PYTHONMALLOC", "malloc")], folder.path()).1);
    let (plain, plain_info) = total(&run(python, &[], &[seed], folder.path()).1);
    assert!(objects.abs_diff(mallocs) * 100 < mallocs, "{objects} and {mallocs}");
    assert!(plain * 4 < objects, "{plain} and {objects}");
    // What is recommended where objects are missing, and only there.
    let recommended = |info: &Value| remark(info, "own-heap").is_some_and(|text| text.contains("--python-objects"));
    assert!(recommended(&plain_info) && !recommended(&info), "{}", info["remarks"]);
    // Python's own wish is followed, and that is said.
    let both = run(python, &["--python-objects"], &[seed, ("PYTHONMALLOC", "malloc")], folder.path()).1;
    let (count, info) = total(&both);
    assert!(count.abs_diff(mallocs) * 100 < mallocs, "{count} and {mallocs}");
    assert!(remark(&info, "python-objects").unwrap().contains("PYTHONMALLOC"));
}

#[test]
fn objects_without_frames_and_children_with_objects() {
    let folder = tempfile::tempdir().unwrap();
    let python = Path::new("/usr/bin/python3");
    let (_, recording) = run(python, &["--python-objects"], &[("TRACEHOUND_INTERPRETER", "off")], folder.path());
    let small = dump(&recording).iter().filter(|event| event["kind"] == "alloc" && event["size"] == 391).count();
    assert!(small >= 700, "{small}");

    let template = folder.path().join("followed-%p.dat");
    let mut command = Command::new(heaptrace());
    command.args(["run", "--children", "--python-objects", "-o"]).arg(&template).arg("--").arg(python);
    let output = command.arg(root().join("tests/python/objects.py")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let files = std::fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.path());
    let followed: Vec<PathBuf> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "dat"))
        .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("followed-"))
        .collect();
    assert_eq!(followed.len(), 2);
    let of_child = |path: &PathBuf| {
        dump(path).iter().filter(|event| event["kind"] == "alloc" && event["size"] == 400 && is_made(event)).count()
    };
    let mut counts: Vec<usize> = followed.iter().map(of_child).collect();
    counts.sort_unstable();
    assert_eq!(counts, [0, 50]);
}

#[test]
fn a_program_without_python_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("c.dat");
    let mut command = Command::new(heaptrace());
    command.args(["run", "--python-objects", "-o"]).arg(&recording).args(["--", "/bin/true"]);
    assert!(command.output().unwrap().status.success());
    let info = json(&["info"], &recording);
    assert!(remark(&info, "python-objects").unwrap().contains("no Python"), "{}", info["remarks"]);
}
