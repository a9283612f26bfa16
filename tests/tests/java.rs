//! Stacks of Java without options of the JVM: all frames that the JVM itself names, of interpreted and of compiled code.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use tracehound_tests::{compile, dump_by_head, heaptrace, json as ask, number, root};

/// Allocations whose stacks are compared, by run.
const ROUNDS: usize = 6000;

/// The JVMs of this machine and what `tests/newer-javas.sh` has fetched, each once.
fn jvms() -> Vec<PathBuf> {
    let roots = [PathBuf::from("/usr/lib/jvm"), root().join("target/javas/root")];
    let folders = roots.iter().flat_map(std::fs::read_dir).flatten().flatten();
    let mut found: Vec<PathBuf> =
        folders.filter_map(|folder| folder.path().join("bin/java").canonicalize().ok()).collect();
    found.sort();
    found.dedup();
    assert!(!found.is_empty(), "a JVM is installed by tests/needs.sh");
    found
}

fn record(path: &Path, folder: &TempDir, command: &[&str]) -> String {
    let _ = std::fs::remove_file(path);
    let _ = std::fs::remove_dir_all(path.with_extension("dat.idx"));
    let mut run = Command::new(heaptrace());
    run.args(["run", "-o"]).arg(path).arg("--").args(command).current_dir(folder.path());
    let output = run.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What the program prints: by the size of an allocation the methods that it was made by, innermost first.
fn printed(text: &str) -> HashMap<u64, Vec<&str>> {
    text.lines()
        .filter_map(|line| {
            let (size, methods) = line.split_once(' ')?;
            Some((size.parse().ok()?, methods.split(' ').collect()))
        })
        .collect()
}

/// The functions of a stack that are in no module, innermost first; what has no name is empty.
fn generated(event: &Value) -> Vec<&str> {
    let frames = event["stack"].as_array().map(Vec::as_slice).unwrap_or_default();
    let generated = frames.iter().filter(|frame| frame["module"].is_null());
    generated.map(|frame| frame["function"].as_str().unwrap_or_default()).collect()
}

/// Whether the frames are those of the methods: each a method's own, or the interpreter's, with up to three of
/// `allocateMemory` inside and the stub by which Java is called outside. Names of code that was dropped before the JVM
/// ended are not known.
fn agrees(frames: &[&str], methods: &[&str]) -> bool {
    let Some((stub, frames)) = frames.split_last() else { return false };
    let Some(inner) = frames.len().checked_sub(methods.len()) else { return false };
    let is_interpreter = |frame: &str| frame.is_empty() || frame == "Interpreter";
    (1..=3).contains(&inner)
        && !frames.iter().any(|frame| frame == stub)
        && frames[..inner].iter().all(|frame| is_interpreter(frame) || frame.contains("Unsafe"))
        && frames[inner..].iter().zip(methods).all(|(frame, method)| {
            is_interpreter(frame) || frame.split_once('(').is_some_and(|(name, _)| name == *method)
        })
}

#[test]
fn stacks_are_those_that_the_jvm_itself_prints() {
    let rounds = ROUNDS.to_string();
    for jvm in jvms() {
        let folder = tempfile::tempdir().unwrap();
        let source = root().join("tests/programs/Stacks.java");
        // A runtime alone has no compiler; classes of an older one run on it.
        let javac = Some(jvm.with_file_name("javac")).filter(|javac| javac.exists()).unwrap_or("/usr/bin/javac".into());
        let compiled = Command::new(javac).args(["-nowarn", "-d"]).arg(folder.path()).arg(source).output().unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        let java = jvm.to_str().unwrap();
        // As it comes, with OSR, C1 and C2; and each alone.
        for mode in ["-XX:+TieredCompilation", "-Xint", "-XX:TieredStopAtLevel=1", "-XX:-TieredCompilation", "-Xcomp"] {
            let path = folder.path().join("stacks.dat");
            // Names, and one frame for each method: nothing that changes frames.
            let options =
                ["-XX:+UnlockDiagnosticVMOptions", "-XX:+DumpPerfMapAtExit", "-XX:CompileCommand=quiet", mode];
            let inlining = "-XX:CompileCommand=dontinline,Stacks*::*";
            let program = [inlining, "-cp", ".", "Stacks", &rounds];
            let text = record(&path, &folder, &[&[java], &options[..], &program].concat());
            let expected = printed(&text);
            assert_eq!(expected.len(), ROUNDS, "{java} {mode}");
            let is_expected = |event: &Value| {
                event["kind"] == "alloc" && event["size"].as_u64().is_some_and(|size| expected.contains_key(&size))
            };
            let events = dump_by_head(&["--frames", "all"], &path, is_expected);
            let info = ask(&["info"], &path);
            let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", number(&info, "/process/pid")));
            let mut right: HashMap<u64, bool> = HashMap::new();
            let mut wrong = String::new();
            for event in &events {
                let size = number(event, "/size");
                let (frames, methods) = (generated(event), &expected[&size]);
                let is_right = agrees(&frames, methods);
                // The JVM's own may have the same size.
                *right.entry(size).or_default() |= is_right;
                if !is_right && wrong.is_empty() {
                    wrong = format!("{frames:?} is not {methods:?}");
                }
            }
            let count = right.values().filter(|right| **right).count();
            println!("{java} {mode}: {count} of {ROUNDS} stacks are right");
            assert_eq!(count, ROUNDS, "{java} {mode}: {wrong}");
            assert_eq!(number(&info, "/recorder/stacks/truncated"), 0, "{java} {mode}");
            assert_eq!(number(&info, "/recorder/stacks/heuristic"), 0, "{java} {mode}");
        }
    }
}

/// The stacks of the allocations of a size.
fn stacks_of(path: &Path, size: u64) -> Vec<Vec<String>> {
    let function = |frame: &Value| frame["function"].as_str().unwrap_or("generated").to_owned();
    let stack = |event: &Value| event["stack"].as_array().unwrap().iter().map(function).collect();
    let events = dump_by_head(&[], path, |event| event["size"] == size && event["kind"] == "alloc");
    events.iter().map(stack).collect()
}

#[test]
fn a_known_stack_ends_when_other_code_takes_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile("code_blobs.c", &["-O1", "-rdynamic"]);
    let path = folder.path().join("blobs.dat");
    record(&path, &folder, &[program.to_str().unwrap()]);
    let outer = ["call_all", "main"];
    let before = stacks_of(&path, 70001);
    assert_eq!(before.len(), 3);
    assert!(before.iter().all(|stack| stack.starts_with(&["generated".into(), "between".into(), outer[0].into()])));
    let after = stacks_of(&path, 70002);
    assert_eq!(after.len(), 3);
    for stack in after {
        assert_eq!(stack[..3], ["generated", outer[0], outer[1]], "its words below are those of the stack before");
    }
    let info = ask(&["info"], &path);
    for figure in ["truncated", "heuristic", "frame_pointers"] {
        assert_eq!(number(&info, &format!("/recorder/stacks/{figure}")), 0, "{figure}");
    }
}

#[test]
fn a_version_that_is_not_known_is_left_alone_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile("code_blobs.c", &["-O1", "-rdynamic"]);
    let path = folder.path().join("blobs.dat");
    for (version, is_known) in [("16", false), ("21", true), ("26", false)] {
        record(&path, &folder, &[program.to_str().unwrap(), version]);
        let info = ask(&["info"], &path);
        let remarks = info["remarks"].as_array().unwrap();
        let said = remarks.iter().find(|remark| remark["topic"] == "hotspot");
        assert_eq!(said.is_none(), is_known, "{version}: {said:?}");
        assert!(said.is_none_or(|said| said["text"].as_str().unwrap().contains(&format!("HotSpot {version} "))));
        assert_eq!(number(&info, "/recorder/stacks/heuristic") == 0, is_known, "{version}");
    }
}
