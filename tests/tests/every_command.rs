//! Every command and every export on every kind of recording: whole, damaged, cut, of a killed and of a running program,
//! and one without events. None fails, JSON is JSON, and what is missing is said.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tracehound_tests::exporting::EXPORT_FORMATS;
use tracehound_tests::{compile, copy_program, heaptrace, json, number, trace, traced_command, wait_for};

/// A program that waits, and is killed when this is dropped.
struct Waiting(Child);

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts `nothing.c`, which allocates 100 bytes and waits; its recording.
fn waiting() -> (Waiting, tempfile::TempDir, PathBuf) {
    let (mut command, folder) = traced_command(compile("nothing.c", &["-O1"]), &["wait"]);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program can be started");
    let mut program = Waiting(child);
    let mut said = BufReader::new(program.0.stdout.take().expect("it is a pipe"));
    said.read_line(&mut String::new()).expect("the program says something");
    let files = std::fs::read_dir(folder.path()).expect("the folder can be read");
    let recording = files
        .map(|entry| entry.expect("the folder can be read").path())
        .find(|path| path.extension().is_some_and(|end| end == "dat"))
        .expect("a recording");
    wait_for("the first event", Duration::from_secs(20), || {
        number(&json(&["info"], &recording), "/leaked/bytes") == 100
    });
    (program, folder, recording)
}

/// Commands that answer a question about one recording, without the file; all of them know `--json`.
const QUESTIONS: [&[&str]; 15] = [
    &["info"],
    &["summary"],
    &["leaks"],
    &["leaks", "--builtin-suppressions", "--show-suppressed"],
    &["top"],
    &["top", "--metric", "peak", "--by", "site"],
    &["sites"],
    &["threads"],
    &["lifetimes"],
    &["memory"],
    &["memory", "--at", "peak"],
    &["memory", "--at", "start"],
    &["diff", "--from", "start", "--to", "end"],
    &["diff", "--before", "..50%", "--after", "50%..", "--metric", "allocated"],
    &["check", "--max-leaked", "1g", "--max-peak", "1g", "--max-temporary", "100%"],
];

fn run(folder: &Path, args: &[&str]) -> Output {
    Command::new(heaptrace()).args(args).current_dir(folder).output().expect("heaptrace can be started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn fine(args: &[&str], output: &Output) {
    let said = text(&output.stderr);
    assert!(output.status.success() && !said.contains("panicked"), "{args:?}: {:?} {said}", output.status);
}

/// Whether a document says how far it can be trusted, at its top or in a part of it.
fn has_exactness(document: &Value) -> bool {
    let complete = |part: &Value| part["exactness"]["complete"].is_boolean() || part["complete"].is_boolean();
    complete(document)
        || document.as_object().is_some_and(|fields| {
            fields.values().any(|part| complete(part) || part.as_array().is_some_and(|list| list.iter().any(complete)))
        })
}

fn ask_everything(file: &Path, incomplete: Option<&str>) {
    let folder = file.parent().expect("a file lies in a folder");
    let name = file.file_name().expect("a file has a name").to_str().expect("a plain name");
    for question in QUESTIONS {
        let args = [question, &[name]].concat();
        let output = run(folder, &args);
        fine(&args, &output);
        assert!(!output.stdout.is_empty(), "{args:?} says nothing");
        // Of two recordings it is said on standard error.
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        match incomplete {
            None => assert!(!said.contains("not complete"), "{args:?}: {said}"),
            Some(_) if question[0] == "info" => assert!(!said.contains("complete: the program ended"), "{said}"),
            Some(words) => assert!(said.contains("not complete") && said.contains(words), "{args:?}: {said}"),
        }
        let args = [question, &["--json", name]].concat();
        let output = run(folder, &args);
        fine(&args, &output);
        assert!(output.stderr.is_empty() || question[0] == "diff", "{args:?}: {}", text(&output.stderr));
        let document: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{args:?}: no JSON ({error})"));
        assert!(document["schema"].as_str().is_some_and(|schema| schema.starts_with("heaptrace.")), "{args:?}");
        assert!(has_exactness(&document), "{args:?} does not say whether it is complete: {document}");
    }
    let mut makers: Vec<Vec<&str>> =
        EXPORT_FORMATS.iter().map(|format| vec!["export", "--format", format, name, "-o", "-"]).collect();
    makers.push(vec!["flamegraph", name, "-o", "-"]);
    makers.push(vec!["report", name, "-o", "-"]);
    makers.push(vec!["dump", name]);
    makers.push(vec!["bundle", name]);
    for args in makers {
        let output = run(folder, &args);
        fine(&args, &output);
        let may_be_empty = matches!(args[0], "dump" | "bundle") || args.contains(&"folded");
        assert!(may_be_empty || !output.stdout.is_empty(), "{args:?} writes nothing");
        let said = text(&output.stderr);
        match incomplete {
            None => assert!(!said.contains("not complete"), "{args:?}: {said}"),
            Some(words) => assert!(said.contains("not complete") && said.contains(words), "{args:?}: {said}"),
        }
        if args.iter().any(|arg| matches!(*arg, "json" | "speedscope" | "dhat" | "firefox")) {
            let document: Result<Value, _> = serde_json::from_slice(&output.stdout);
            assert!(document.is_ok_and(|document| document.is_object()), "{args:?}");
        }
        if args[0] == "dump" {
            let lines = text(&output.stdout);
            assert!(lines.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{args:?}");
        }
    }
    let _ = std::fs::remove_file(folder.join(format!("{name}.symbols")));
}

#[test]
fn a_whole_one_and_one_without_events() {
    let whole = trace(compile("exported.cpp", &["-O2"]), &[], &[]);
    ask_everything(&whole.recording(), None);
    let empty = trace(compile("nothing.c", &["-O1"]), &[], &[]);
    ask_everything(&empty.recording(), None);
}

#[test]
fn damaged_and_cut_ones() {
    let whole = trace(compile("exported.cpp", &["-O2"]), &[], &[]);
    let bytes = std::fs::read(whole.recording()).expect("the recording can be read");
    let mut damaged = bytes.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 16].fill(0x55);
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    for (name, bytes, words) in [
        ("damaged.dat", &damaged[..], "damaged blocks"),
        ("cut.dat", &bytes[..bytes.len() * 2 / 3], "the file has no end"),
        ("header.dat", &bytes[..64], "the file has no end"),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("the folder can be written");
        ask_everything(&path, Some(words));
    }
}

#[test]
fn those_of_running_and_of_killed_programs() {
    let (program, _folder, recording) = waiting();
    ask_everything(&recording, Some("the program still runs"));
    drop(program);
    assert_eq!(json(&["info"], &recording)["end"], "killed");
    ask_everything(&recording, Some("the program was killed"));
}

/// A recording cannot be made again: nothing else is written in its place.
#[test]
fn a_recording_is_never_overwritten() {
    let traced = trace(compile("five.c", &[]), &[], &[]);
    let (folder, file) = (traced.folder.path(), traced.recording());
    let name = file.file_name().unwrap().to_str().unwrap();
    let before = std::fs::read(&file).unwrap();
    let exports = EXPORT_FORMATS.iter().filter(|format| **format != "parquet");
    let mut commands: Vec<Vec<&str>> =
        exports.map(|format| vec!["export", "--format", format, name, "-o", name]).collect();
    commands.extend([vec!["report", name, "-o", name], vec!["flamegraph", name, "-o", name]]);
    commands.extend(["--junit", "--markdown"].map(|what| vec!["check", name, "--max-leaked", "1g", what, name]));
    commands.push(vec!["bundle", name, "-o", name]);
    for command in commands {
        let output = run(folder, &command);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains("name another file"), "{command:?}: {said}");
        assert!(std::fs::read(&file).unwrap() == before, "{command:?}");
    }
}

/// Programs that start others by exec look as if they had been recorded.
#[test]
fn a_program_that_becomes_another_one_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile("five.c", &[]);
    let said = |children: &[&str], launcher: &[&str]| {
        let arguments =
            [&["run", "-o", "e.dat"][..], children, &["--"], launcher, &[program.to_str().unwrap()]].concat();
        let output = run(folder.path(), &arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    for launcher in [&["env", "A=1"][..], &["nice"], &["nohup"]] {
        assert!(said(&[], launcher).contains("--children records that, too"), "{launcher:?}");
        assert!(!said(&["--children"], launcher).contains("--children"), "{launcher:?}");
    }
    assert!(!said(&[], &[]).contains("--children"));
}

/// A recording that has filled its disk is read where it lies: its index goes elsewhere.
#[test]
fn a_recording_on_a_full_disk_can_be_read() {
    let traced = trace(compile("five.c", &[]), &[], &[]);
    let folder = traced.folder.path();
    std::fs::copy(traced.recording(), folder.join("five.dat")).unwrap();
    let script = "mount -t tmpfs -o size=16k none full || exit 77; cp five.dat full/ || exit 77; cd full; \
                  head -c 100000 /dev/zero > rest 2>/dev/null; exec \"$0\" info --json five.dat";
    std::fs::create_dir(folder.join("full")).unwrap();
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script])
        .arg(tracehound_tests::heaptrace())
        .current_dir(folder)
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .output()
        .unwrap();
    let said = text(&output.stderr);
    if output.status.code() == Some(77) || said.starts_with("unshare") {
        println!("not tested: no file system can be mounted here");
        return;
    }
    assert!(output.status.success(), "{said}");
    let info: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(info["allocations"]["count"], 5, "{info:#}");
}

#[test]
fn a_closed_pipe_is_no_reason_to_complain() {
    let traced = trace(compile("exported.cpp", &["-O2"]), &[], &[]);
    let file = traced.recording();
    let folder = traced.folder.path();
    let name = file.file_name().expect("a name").to_str().expect("a plain name");
    let mut all: Vec<Vec<&str>> = QUESTIONS.iter().map(|question| [question, &[name][..]].concat()).collect();
    all.extend(QUESTIONS.iter().map(|question| [question, &["--json", name][..]].concat()));
    all.extend(EXPORT_FORMATS.iter().map(|format| vec!["export", "--format", format, name, "-o", "-"]));
    all.extend([
        vec!["dump", name],
        vec!["flamegraph", name, "-o", "-"],
        vec!["report", name, "-o", "-"],
        vec!["help"],
        vec!["help", "leaks"],
        vec!["openapi"],
        vec!["completions", "bash"],
    ]);
    for args in all {
        let started = Instant::now();
        let mut child = Command::new(heaptrace())
            .args(&args)
            .current_dir(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("heaptrace can be started");
        drop(child.stdout.take());
        let mut said = String::new();
        child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("it can be read");
        let status = child.wait().expect("it ends");
        let quiet = said.lines().all(|line| line.contains("the report contains"));
        assert!(status.success() && quiet, "{args:?}: {status} {said}");
        assert!(started.elapsed() < Duration::from_secs(30), "{args:?}");
    }
}

/// Of what asks a store, as of all else: a text for another program that ends early, and for a disk that is full.
#[test]
fn sql_for_a_store_survives_a_closed_pipe_and_a_full_disk() {
    let store = tempfile::tempdir().expect("a temporary folder can be made");
    let ask = |out: Stdio| {
        let mut command = Command::new(heaptrace());
        command.args(["fleet", "sql"]).arg(store.path()).args(["top", "--without-tables"]);
        command.stdout(out).stderr(Stdio::piped()).spawn().expect("heaptrace can be started")
    };
    let mut child = ask(Stdio::piped());
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");

    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("it can be opened");
    let output = ask(full.into()).wait_with_output().expect("it ends");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said, "heaptrace: cannot write standard output: No space left on device (os error 28)\n");
}

/// What `heaptrace-fleet` does is a part of the command line like any other.
#[test]
fn completions_and_manual_pages_know_what_the_program_beside_can() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let write = |binary: &Path, name: &str| {
        let output = Command::new(binary).args(["completions", "bash"]).output().expect("it runs");
        assert!(output.status.success(), "{output:?}");
        std::fs::write(folder.path().join(name), output.stdout).expect("it can be written");
    };
    let proposed = |script: &str, line: &[&str]| {
        let ask = "source \"$0\"; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _heaptrace heaptrace \"${@: -1}\" \"${@: -2:1}\"; echo \"${COMPREPLY[@]}\"";
        let mut command = Command::new("bash");
        command.args(["-c", ask, script]).args(line).current_dir(folder.path());
        String::from_utf8(command.output().expect("bash is there").stdout).expect("text")
    };
    write(&heaptrace(), "whole.bash");
    assert_eq!(proposed("whole.bash", &["heaptrace", "fleet", "outliers", "--by", ""]).trim(), "peak leaked rate rss");
    assert!(proposed("whole.bash", &["heaptrace", "collect", "--sp"]).contains("--spool"));
    assert!(proposed("whole.bash", &["heaptrace", "leaks", "--js"]).contains("--json"));
    let pages = folder.path().join("man");
    let output = Command::new(heaptrace()).arg("man").arg(&pages).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    let page = std::fs::read_to_string(pages.join("heaptrace-fleet-outliers.1")).expect("a page");
    assert!(page.contains("heaptrace fleet outliers") && page.contains("A host is unlike the others"), "{page}");

    // Alone it knows its own.
    let alone = folder.path().join("heaptrace");
    copy_program(&heaptrace(), &alone);
    write(&alone, "alone.bash");
    assert!(proposed("alone.bash", &["heaptrace", "leaks", "--js"]).contains("--json"));
}
