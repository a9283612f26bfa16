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

/// What the program prints: by the size of an allocation the methods that it was made by, with their lines, innermost first.
fn printed(text: &str) -> HashMap<u64, Vec<(&str, u64)>> {
    text.lines()
        .filter_map(|line| {
            let (size, methods) = line.split_once(' ')?;
            let methods = methods.split(' ').map(|method| {
                let (name, line) = method.split_once(':').unwrap();
                (name, line.parse().unwrap())
            });
            Some((size.parse().ok()?, methods.collect()))
        })
        .collect()
}

/// A frame in no module; what has no name is empty.
#[derive(Debug)]
struct GeneratedFrame<'a> {
    name: &'a str,
    file: Option<&'a str>,
    line: Option<u64>,
    language: Option<&'a str>,
    is_interpreted: bool,
}

/// The frames of a stack that are in no module, innermost first.
fn generated(event: &Value) -> Vec<GeneratedFrame<'_>> {
    let frames = event["stack"].as_array().map(Vec::as_slice).unwrap_or_default();
    let generated = frames.iter().filter(|frame| frame["module"].is_null());
    let of = |frame: &'_ Value| u64::from_str_radix(frame["address"].as_str().unwrap().trim_start_matches("0x"), 16);
    generated
        .map(|frame| GeneratedFrame {
            name: frame["function"].as_str().unwrap_or_default(),
            file: frame["file"].as_str(),
            line: frame["line"].as_u64(),
            language: frame["language"].as_str(),
            // Of code in memory no address is that high.
            is_interpreted: of(frame).unwrap() >= 1 << 61,
        })
        .collect()
}

impl GeneratedFrame<'_> {
    /// Whether the frame may be this method's: an interpreted one has its name and line, a compiled one its name, if its code
    /// was not dropped before the JVM ended. The interpreter itself is none.
    fn agrees(&self, (method, line): (&str, u64)) -> bool {
        let is_named = || self.name.split_once('(').is_some_and(|(name, _)| name == method);
        if self.is_interpreted {
            let class = method.split(['.', '$']).next().unwrap();
            let is_place = self.file == Some(&format!("{class}.java")) && self.line == Some(line);
            is_named() && self.language == Some("java") && is_place
        } else {
            self.name.is_empty() || is_named()
        }
    }
}

/// Whether the frames are those of the methods, with up to three of `allocateMemory` inside and the stub by which Java is
/// called outside. In the mode that compiles nothing all are interpreted.
fn agrees(frames: &[GeneratedFrame], methods: &[(&str, u64)], all_interpreted: bool) -> bool {
    let Some((stub, frames)) = frames.split_last() else { return false };
    let Some(inner) = frames.len().checked_sub(methods.len()) else { return false };
    (1..=3).contains(&inner)
        && !stub.is_interpreted
        && !frames.iter().any(|frame| frame.name == stub.name && !frame.name.is_empty())
        && frames.iter().all(|frame| frame.is_interpreted || !all_interpreted)
        && frames[..inner]
            .iter()
            .all(|frame| frame.name.contains("Unsafe") || frame.name.is_empty() && !frame.is_interpreted)
        && frames[inner..].iter().zip(methods).all(|(frame, method)| frame.agrees(*method))
}

/// Compiles a program for a JVM, in `folder`. A runtime alone has no compiler; classes of an older one run on it.
fn compile_for(jvm: &Path, source: &str, folder: &TempDir) {
    let source = root().join("tests/programs").join(source);
    let javac = Some(jvm.with_file_name("javac")).filter(|javac| javac.exists()).unwrap_or("/usr/bin/javac".into());
    let mut command = Command::new(javac);
    command.args(["-nowarn", "-sourcepath"]).arg(source.parent().unwrap()).arg("-d").arg(folder.path());
    let compiled = command.arg(source).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}

#[test]
fn stacks_are_those_that_the_jvm_itself_prints() {
    for jvm in jvms() {
        let folder = tempfile::tempdir().unwrap();
        compile_for(&jvm, "Stacks.java", &folder);
        let java = jvm.to_str().unwrap();
        // As it comes, with OSR, C1 and C2; and each alone. Fewer with other collectors, whose barriers are in all code.
        let modes: [(&[&str], usize); 8] = [
            (&["-XX:+TieredCompilation"], ROUNDS),
            (&["-Xint"], ROUNDS),
            (&["-XX:TieredStopAtLevel=1"], ROUNDS),
            (&["-XX:-TieredCompilation"], ROUNDS),
            (&["-Xcomp"], ROUNDS),
            (&["-XX:+UseZGC"], ROUNDS / 4),
            (&["-XX:+UseShenandoahGC"], ROUNDS / 4),
            (&["-XX:+UseParallelGC", "-XX:-UseCompressedOops", "-XX:-SegmentedCodeCache", "-Xshare:off"], ROUNDS / 4),
        ];
        for (mode, rounds) in modes {
            let path = folder.path().join("stacks.dat");
            // Names, and one frame for each method: nothing that changes frames.
            let options = ["-XX:CompileCommand=quiet", "-XX:CompileCommand=dontinline,Stacks*::*"];
            // ZGC discards code while the program runs: such a map then has the names of other code at the same place.
            let names = ["-XX:+UnlockDiagnosticVMOptions", "-XX:+DumpPerfMapAtExit"];
            let names = if mode == ["-XX:+UseZGC"] { &[][..] } else { &names[..] };
            let count = rounds.to_string();
            let program = ["-cp", ".", "Stacks", &count];
            let text = record(&path, &folder, &[&[java], mode, names, &options[..], &program].concat());
            let mode = mode.join(" ");
            let expected = printed(&text);
            assert_eq!(expected.len(), rounds, "{java} {mode}");
            let is_expected = |event: &Value| {
                event["kind"] == "alloc" && event["size"].as_u64().is_some_and(|size| expected.contains_key(&size))
            };
            let events = dump_by_head(&["--frames", "all"], &path, is_expected);
            let info = ask(&["info"], &path);
            let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", number(&info, "/process/pid")));
            let mut right: HashMap<u64, bool> = HashMap::new();
            let (mut wrong, mut interpreted) = (String::new(), 0);
            for event in &events {
                let size = number(event, "/size");
                let (frames, methods) = (generated(event), &expected[&size]);
                let is_right = agrees(&frames, methods, mode == "-Xint");
                interpreted += frames.iter().filter(|frame| frame.is_interpreted).count();
                // The JVM's own may have the same size.
                *right.entry(size).or_default() |= is_right;
                if !is_right && wrong.is_empty() && frames.iter().any(|frame| frame.name.starts_with("Stacks")) {
                    wrong = format!("{frames:?} is not {methods:?}");
                }
            }
            let count = right.values().filter(|right| **right).count();
            println!("{java} {mode}: {count} of {rounds} stacks are right, {interpreted} frames interpreted");
            assert_eq!(count, rounds, "{java} {mode}: {wrong}");
            assert_eq!(number(&info, "/recorder/stacks/truncated"), 0, "{java} {mode}");
            assert_eq!(number(&info, "/recorder/stacks/heuristic"), 0, "{java} {mode}");
        }
    }
}

/// Classes that `Reloads.java` loads and drops.
const CLASSES: u64 = 2000;

#[test]
fn a_method_is_not_taken_for_one_that_was_unloaded_before() {
    for jvm in jvms() {
        let folder = tempfile::tempdir().unwrap();
        compile_for(&jvm, "Reloads.java", &folder);
        let path = folder.path().join("reloads.dat");
        let java = jvm.to_str().unwrap();
        // Each collection ends what was dropped, and is short.
        let options = ["-Xint", "-XX:+UseSerialGC", "-Xmx16m", "-cp", "."];
        let text = record(&path, &folder, &[&[java], &options[..], &["Reloads", &CLASSES.to_string()]].concat());
        let unloaded: u64 = text.trim().parse().unwrap();
        assert!(unloaded > CLASSES / 2, "{java}: only {unloaded} classes were unloaded");
        let sizes = 1_000_000..1_000_000 + 16 * CLASSES;
        let is_made = |event: &Value| {
            event["kind"] == "alloc"
                && event["size"].as_u64().is_some_and(|size| size % 8 == 0 && sizes.contains(&size))
        };
        let mut right: HashMap<u64, bool> = HashMap::new();
        let mut wrong = String::new();
        for event in dump_by_head(&["--frames", "all"], &path, is_made) {
            let size = number(&event, "/size");
            let class = (size - 1_000_000) / 16;
            let frames = generated(&event);
            let interpreted: Vec<_> = frames.iter().filter(|frame| frame.is_interpreted).collect();
            let made: Vec<_> = interpreted.iter().map(|frame| (frame.name, frame.line)).collect();
            let expected = [
                (format!("made{}(long)", 10000 + class), Some(30000 + class)),
                ("accept(long)".to_owned(), Some(10000 + class)),
            ]
            .map(|(method, line)| (format!("Made{}.{method}", 10000 + class), line));
            let expected = expected.iter().map(|(name, line)| (&**name, *line));
            let is_right = made.iter().copied().filter(|(name, _)| name.starts_with("Made")).eq(expected)
                && frames.len() == interpreted.len() + 1;
            *right.entry(size).or_default() |= is_right;
            if !is_right && made.iter().any(|(name, _)| name.starts_with("Made")) {
                wrong = format!("{size}: {made:?}");
            }
        }
        let count = right.values().filter(|right| **right).count() as u64;
        println!("{java}: {unloaded} classes unloaded, {count} of {} stacks are right", 2 * CLASSES);
        assert_eq!((count, &*wrong), (2 * CLASSES, ""), "{java}");
    }
}

/// How often `Redefines.java` replaces a class.
const VERSIONS: u64 = 400;

#[test]
fn a_method_that_is_replaced_while_it_runs_keeps_its_name_and_lines() {
    for jvm in jvms() {
        let folder = tempfile::tempdir().unwrap();
        compile_for(&jvm, "Redefines.java", &folder);
        let path = folder.path().join("redefines.dat");
        let java = jvm.to_str().unwrap();
        let manifest = "Premain-Class: Redefines\nCan-Redefine-Classes: true\n";
        std::fs::write(folder.path().join("manifest"), manifest).unwrap();
        let mut jar = Command::new("/usr/bin/jar");
        let made = jar.args(["cfm", "agent.jar", "manifest", "Redefines.class"]).current_dir(folder.path()).output();
        assert!(made.unwrap().status.success());
        let options = ["-Xint", "-XX:+UseSerialGC", "-Xmx64m", "-javaagent:agent.jar", "-cp", "."];
        record(&path, &folder, &[&[java], &options[..], &["Redefines", &VERSIONS.to_string()]].concat());
        let sizes = 1_000_000..1_000_000 + 32 * VERSIONS;
        let is_made = |event: &Value| {
            event["kind"] == "alloc"
                && event["size"].as_u64().is_some_and(|size| size % 8 == 0 && size % 32 < 24 && sizes.contains(&size))
        };
        let mut right: HashMap<u64, bool> = HashMap::new();
        let mut wrong = String::new();
        for event in dump_by_head(&["--frames", "all"], &path, is_made) {
            let size = number(&event, "/size");
            let version = (size - 1_000_000) / 32;
            let frames = generated(&event);
            let made: Vec<_> = frames.iter().filter(|frame| frame.name.starts_with("Made")).collect();
            let made: Vec<_> = made.iter().map(|frame| (frame.name, frame.line)).collect();
            let of =
                |version| [("Made.made(long)", Some(30000 + version)), ("Made.accept(long)", Some(10000 + version))];
            let expected =
                [if size % 32 == 8 { of(version + 1).to_vec() } else { Vec::new() }, of(version).to_vec()].concat();
            let is_right = made == expected && frames.iter().filter(|frame| !frame.is_interpreted).count() == 1;
            *right.entry(size).or_default() |= is_right;
            if !is_right && frames.iter().any(|frame| frame.name.starts_with("Redefines.allocate")) {
                wrong = format!("{size}: {made:?} is not {expected:?}");
            }
        }
        let count = right.values().filter(|right| **right).count() as u64;
        // New methods are called in every other version: those of the others allocate for the first time when they are old.
        let all = 2 * VERSIONS + VERSIONS / 2;
        println!("{java}: {count} of {all} stacks are right");
        assert_eq!((count, &*wrong), (all, ""), "{java}");
    }
}

/// What stands for frames that a virtual thread has left in the heap.
const IN_HEAP: &str = "[frames of a virtual thread in the heap]";

/// Whether the frames of a virtual thread are those of the methods, with up to three of `allocateMemory` inside. If some are
/// in the heap, the frames within are those of the innermost methods, and what follows is the carrier's, or not found.
fn agrees_up_to_heap(frames: &[GeneratedFrame], methods: &[(&str, u64)]) -> bool {
    let in_heap = frames.iter().position(|frame| frame.name == IN_HEAP);
    (1..=3).any(|inner| {
        let end = in_heap.unwrap_or(inner + methods.len());
        let (Some(inside), Some(own)) = (frames.get(..inner), frames.get(inner..end)) else { return false };
        let is_carriers = |frame: &GeneratedFrame| frame.name.is_empty() || frame.name.contains("Continuation.run(");
        inside.iter().all(|frame| frame.name.contains("Unsafe") || frame.name.is_empty() && !frame.is_interpreted)
            && own.len() <= methods.len()
            && own.iter().zip(methods).all(|(frame, method)| frame.agrees(*method))
            && in_heap.and_then(|at| frames.get(at + 1)).is_none_or(is_carriers)
    })
}

#[test]
fn a_virtual_thread_has_the_frames_that_are_on_the_stack_and_says_where_others_are() {
    let mut with_threads = 0;
    for jvm in jvms() {
        let folder = tempfile::tempdir().unwrap();
        compile_for(&jvm, "Virtual.java", &folder);
        let path = folder.path().join("virtual.dat");
        let java = jvm.to_str().unwrap();
        for mode in ["-Xint", "-XX:+TieredCompilation"] {
            let options = ["-XX:CompileCommand=quiet", "-XX:CompileCommand=dontinline,Virtual*::*", mode, "-cp", "."];
            let text = record(&path, &folder, &[&[java], &options[..], &["Virtual", "30"]].concat());
            let expected = printed(&text);
            if expected.is_empty() {
                continue;
            }
            with_threads += 1;
            let is_expected = |event: &Value| {
                event["kind"] == "alloc" && event["size"].as_u64().is_some_and(|size| expected.contains_key(&size))
            };
            let (mut right, mut in_heap, mut wrong) = (HashMap::new(), 0, String::new());
            for event in dump_by_head(&["--frames", "all"], &path, is_expected) {
                let size = number(&event, "/size");
                let (frames, methods) = (generated(&event), &expected[&size]);
                let is_right = agrees_up_to_heap(&frames, methods);
                in_heap += usize::from(frames.iter().any(|frame| frame.name == IN_HEAP));
                *right.entry(size).or_insert(false) |= is_right;
                if !is_right {
                    wrong = format!("{size}: {frames:?} is not {methods:?}");
                }
            }
            let count = right.values().filter(|right| **right).count();
            println!(
                "{java} {mode}: {count} of {} stacks are right, of {in_heap} some frames are in the heap",
                expected.len()
            );
            assert_eq!((count, &*wrong), (expected.len(), ""), "{java} {mode}");
            assert!(in_heap > expected.len() / 4 && in_heap < expected.len(), "{java} {mode}: {in_heap}");
            let info = ask(&["info"], &path);
            let unproved: u64 = ["truncated", "heuristic"]
                .iter()
                .map(|figure| number(&info, &format!("/recorder/stacks/{figure}")))
                .sum();
            assert!(unproved >= in_heap as u64, "{java} {mode}: {unproved} of {in_heap} are counted");
        }
    }
    assert!(with_threads > 0, "no JVM has virtual threads");
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
    // JDK 11 has only the older table of its symbols.
    let [program, older] = ["-Wl,--hash-style=gnu", "-Wl,--hash-style=sysv"]
        .map(|style| compile("code_blobs.c", &["-O1", "-rdynamic", style]));
    let path = folder.path().join("blobs.dat");
    let runs = [
        (&older, "11", false),
        (&program, "16", false),
        (&program, "21", true),
        (&older, "21", true),
        (&program, "26", false),
    ];
    for (program, version, is_known) in runs {
        record(&path, &folder, &[program.to_str().unwrap(), version]);
        let info = ask(&["info"], &path);
        let remarks = info["remarks"].as_array().unwrap();
        let said = remarks.iter().find(|remark| remark["topic"] == "hotspot");
        assert_eq!(said.is_none(), is_known, "{version}: {said:?}");
        assert!(said.is_none_or(|said| said["text"].as_str().unwrap().contains(&format!("HotSpot {version} "))));
        assert_eq!(number(&info, "/recorder/stacks/heuristic") == 0, is_known, "{version}");
    }
}
