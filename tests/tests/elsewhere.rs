//! Names from other places than the machine that a program ran on, defaults from a file, and comparisons.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tracehound_tests::{Traced, compile, functions, heaptrace, number, root, trace};

fn ask(folder: &Path, args: &[&str]) -> Output {
    Command::new(heaptrace())
        .args(args)
        .current_dir(folder)
        .env("XDG_CONFIG_HOME", folder.join("none"))
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .output()
        .expect("heaptrace can be started")
}

fn json(folder: &Path, args: &[&str]) -> Value {
    let output = ask(folder, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{args:?}: {error}"))
}

fn names_of(folder: &Path, args: &[&str]) -> Vec<String> {
    let leaks = json(folder, &[&["leaks", "--json", "r.dat"], args].concat());
    leaks["sites"].as_array().expect("sites").iter().flat_map(|site| functions(&site["stack"])).collect()
}

/// A run of a copy of a program, which is then taken away; the recording is `r.dat`.
fn gone(flags: &[&str]) -> (Traced, PathBuf) {
    let built = compile("suppressed.c", flags);
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let program = folder.path().join("prog");
    std::fs::copy(&built, &program).expect("it can be copied");
    let traced = trace(&program, &[], &[("TRACEHOUND_OUTPUT", "r.dat")]);
    assert!(traced.output.status.success(), "{}", traced.stderr());
    // With its folder it goes away when this function ends.
    (traced, program)
}

#[test]
fn a_sysroot_and_debug_folders_bring_names_back() {
    let (traced, program) = gone(&["-O0"]);
    let folder = traced.folder.path();
    assert!(!names_of(folder, &[]).contains(&"real_leak".to_owned()), "the program is gone");
    let built = compile("suppressed.c", &["-O0"]);

    let sysroot = folder.join("sysroot");
    let inside = sysroot.join(program.strip_prefix("/").expect("an absolute path"));
    std::fs::create_dir_all(inside.parent().expect("a folder")).expect("it can be made");
    std::fs::copy(&built, &inside).expect("it can be copied");
    let found = names_of(folder, &["--sysroot", sysroot.to_str().expect("a plain path")]);
    assert!(found.contains(&"real_leak".to_owned()), "{found:?}");

    // By name, then by build id; a file of another build is refused.
    let debug = folder.join("debug");
    std::fs::create_dir_all(&debug).expect("it can be made");
    std::fs::copy(&built, debug.join("prog.debug")).expect("it can be copied");
    let by_name = ["--debug-dir", debug.to_str().expect("a plain path")];
    assert!(names_of(folder, &by_name).contains(&"real_leak".to_owned()));
    std::fs::copy(compile("suppressed.c", &["-O2"]), debug.join("prog.debug")).expect("it can be copied");
    assert!(!names_of(folder, &by_name).contains(&"real_leak".to_owned()));
    let modules = json(folder, &["export", "--format", "json", "r.dat", "-o", "-"])["modules"].clone();
    let of_program = |module: &&Value| module["path"].as_str().is_some_and(|path| path.ends_with("/prog"));
    let module = modules.as_array().expect("modules").iter().find(of_program).expect("the program");
    let id = module["build_id"].as_str().expect("a build id");
    let place = debug.join(".build-id").join(&id[..2]);
    std::fs::create_dir_all(&place).expect("it can be made");
    std::fs::copy(&built, place.join(format!("{}.debug", &id[2..]))).expect("it can be copied");
    assert!(names_of(folder, &by_name).contains(&"real_leak".to_owned()));
}

#[test]
fn a_bundle_takes_the_names_along() {
    let built = compile("suppressed.c", &["-O0"]);
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let program = folder.path().join("prog");
    std::fs::copy(&built, &program).expect("it can be copied");
    let traced = trace(&program, &[], &[("TRACEHOUND_OUTPUT", "r.dat")]);
    let away = tempfile::tempdir().expect("a temporary folder can be made");
    let out = away.path().join("r.dat");
    let bundled = ask(traced.folder.path(), &["bundle", "r.dat", "-o", out.to_str().expect("a plain path")]);
    assert!(bundled.status.success(), "{bundled:?}");
    std::fs::remove_file(&program).expect("it is there");
    let found = names_of(away.path(), &[]);
    assert!(found.contains(&"real_leak".to_owned()) && found.contains(&"main".to_owned()), "{found:?}");
    let leaks = json(away.path(), &["leaks", "--json", "r.dat"]);
    assert!(leaks.to_string().contains("suppressed.c"), "lines come along: {leaks}");
    // Damaged names are no names.
    std::fs::write(away.path().join("r.dat.symbols"), b"THSYMB\n\x01rubbish").expect("it can be written");
    let _ = std::fs::remove_dir_all(away.path().join("r.dat.idx"));
    assert!(!names_of(away.path(), &[]).contains(&"real_leak".to_owned()));
}

#[test]
fn code_made_by_a_compiler_in_the_process_has_the_names_of_its_perf_map() {
    // A function without a module: the recording has its address alone.
    let include = format!("-I{}", root().join("tests/programs").display());
    let traced = trace(compile("jit.c", &["-O1", &include]), &[], &[("TRACEHOUND_OUTPUT", "r.dat")]);
    assert!(traced.output.status.success(), "{}", traced.stderr());
    let folder = traced.folder.path();
    let line = traced.stdout();
    let map = line.lines().find_map(|line| line.strip_prefix("map ")).expect("the program says where its code is");
    assert!(!names_of(folder, &[]).iter().any(|name| name.contains("made at run time")));
    std::fs::write(folder.join("jit.map"), format!("{map} LazyCompile:*made at run time a.js:3\n"))
        .expect("it can be written");
    let found = names_of(folder, &["--perf-map", "jit.map"]);
    assert!(found.iter().any(|name| name == "LazyCompile:*made at run time a.js:3"), "{found:?}");
}

#[test]
fn a_file_sets_defaults_and_the_command_line_wins() {
    let traced = trace(compile("suppressed.c", &["-O0"]), &[], &[("TRACEHOUND_OUTPUT", "r.dat")]);
    let folder = traced.folder.path();
    let write = |text: &str| std::fs::write(folder.join("heaptrace.toml"), text).expect("it can be written");
    let leaked =
        |args: &[&str]| number(&json(folder, &[&["leaks", "--json"], args, &["r.dat"]].concat()), "/leaked/bytes");
    assert_eq!(leaked(&[]), 30);
    write("[leaks]\nno-program-suppressions = true\nsuppress = ['real_leak']\n");
    assert_eq!(leaked(&[]), 1000);
    assert_eq!(leaked(&["--suppress", "nothing"]), 1030);
    write("[leaks]\nsights = 3\n");
    let refused = ask(folder, &["leaks", "r.dat"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && said.contains("heaptrace.toml") && said.contains("--sights"), "{said}");
    write("[leaks\n");
    assert_eq!(ask(folder, &["info", "r.dat"]).status.code(), Some(2));
}

fn request_server(args: &[&str], folder: &Path, name: &str) {
    let include = format!("-I{}", root().join("preload/include").display());
    let traced = trace(compile("checked.c", &["-O1", &include]), args, &[]);
    std::fs::copy(traced.recording(), folder.join(name)).expect("it can be copied");
}

#[test]
fn windows_normalised_shares_and_many_recordings_are_compared() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let folder = folder.path();
    for (name, args) in [
        ("a1", ["10", "0", "10"]),
        ("a2", ["10", "0", "11"]),
        ("a3", ["10", "0", "9"]),
        ("b1", ["10", "5000", "10"]),
        ("b2", ["10", "5000", "9"]),
        ("b3", ["10", "5000", "11"]),
        ("big", ["40", "0", "10"]),
    ] {
        request_server(&args, folder, name);
    }
    let many = |metric: &str| {
        json(folder, &["diff", "a1", "a2", "a3", "--metric", metric, "--json", "--vs", "b1", "b2", "b3"])
    };
    // The leak is a change, whatever the runs differ by otherwise: parse_request's blocks are noise.
    let compared = many("allocated");
    let rows = compared["rows"].as_array().expect("rows");
    assert_eq!((&compared["schema"], rows.len()), (&"heaptrace.compare/1".into(), 1), "{compared}");
    assert_eq!(functions(&rows[0]["stack"])[0], "forget_session");
    assert_eq!((&rows[0]["before_mean"], &rows[0]["after_mean"]), (&0.0.into(), &5000.0.into()));
    assert!(number(&compared, "/noise/rows") >= 1, "{compared}");
    let text = ask(folder, &["diff", "a1", "a2", "a3", "--metric", "allocated", "--vs", "b1", "b2", "b3"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("forget_session") && text.contains("no more than chance"), "{text}");
    assert_eq!(ask(folder, &["diff", "a1", "--vs", "b1", "b2"]).status.code(), Some(2), "one recording has no spread");
    assert_eq!(ask(folder, &["diff", "a1", "a2", "a3"]).status.code(), Some(2));

    // Four times the requests: the same shares but for the buffer's.
    let plain = json(folder, &["diff", "a1", "big", "--metric", "allocated", "--unit", "count", "--json"]);
    let scaled =
        json(folder, &["diff", "a1", "big", "--metric", "allocated", "--unit", "count", "--normalize", "--json"]);
    assert_eq!(plain["scaled_by"], Value::Null);
    assert!(scaled["scaled_by"].as_f64().expect("a factor") > 3.0, "{scaled}");
    let (before, after) = (number(&scaled, "/total_before/count"), number(&scaled, "/total_after/count"));
    assert!(before.abs_diff(after) <= 2, "{scaled}");

    // Two windows of one recording: a request and the end.
    let windows = ["--before", "request..shutdown", "--after", "shutdown..end", "--metric", "allocated", "--json"];
    let windows = json(folder, &[&["diff", "b1"], &windows[..]].concat());
    assert_eq!(number(&windows, "/total_after/bytes"), 5000, "{windows}");
    assert_eq!(number(&windows, "/total_before/bytes"), 100 * 64, "{windows}");
}

#[test]
fn reports_are_for_people_and_for_programs() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let folder = folder.path();
    request_server(&["10", "5000", "10"], folder, "r.dat");
    for (command, schema, words) in [
        ("summary", "heaptrace.summary/1", &["peak ", "leaked ", "forget_session", "temporary "][..]),
        ("sites", "heaptrace.sites/1", &["allocated", "parse_request", "forget_session"]),
        ("threads", "heaptrace.threads/1", &["allocated", "thread"]),
        ("lifetimes", "heaptrace.lifetimes/1", &["blocks born", "still live"]),
        ("memory", "heaptrace.memory/1", &["resident ", "live blocks", "fragmentation", "the recorder", "full;"]),
    ] {
        assert_eq!(json(folder, &[command, "--json", "r.dat"])["schema"], schema);
        let plain = ask(folder, &[command, "r.dat"]);
        let text = String::from_utf8(plain.stdout).expect("UTF-8");
        assert!(plain.status.success() && !text.contains('\u{1b}'), "no colours in a pipe: {text}");
        for word in words {
            assert!(text.contains(word), "{word:?} is not in {text}");
        }
        let coloured = ask(folder, &["--color", "always", command, "r.dat"]);
        assert!(String::from_utf8_lossy(&coloured.stdout).contains("\u{1b}["), "{command}");
    }
}

#[test]
fn damaged_cut_and_empty_recordings_are_answered_by_every_report() {
    let traced = trace(compile("exported.cpp", &["-O2"]), &[], &[]);
    let folder = traced.folder.path();
    let bytes = std::fs::read(traced.recording()).expect("the recording");
    let mut damaged = bytes.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 16].fill(0x55);
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.join(name), bytes).expect("it can be written");
    write("whole.bin", &bytes);
    write("damaged.bin", &damaged);
    write("cut.bin", &bytes[..bytes.len() * 2 / 3]);
    write("start.bin", &bytes[..bytes.len() / 4]);
    let nothing = trace(compile("nothing.c", &["-O1"]), &[], &[]);
    std::fs::copy(nothing.recording(), folder.join("empty.bin")).expect("it can be copied");
    for file in ["damaged.bin", "cut.bin", "start.bin", "empty.bin"] {
        for args in [
            &["summary", file][..],
            &["sites", file],
            &["threads", file],
            &["lifetimes", file],
            &["memory", file],
            &["memory", "--at", "peak", file],
            &["leaks", file],
            &["top", file],
            &["dump", "--no-symbols", file],
            &["export", "--format", "folded", file, "-o", "-"],
            &["flamegraph", file, "-o", "-"],
            &["check", "--max-leaked", "1g", file],
            &["diff", "--from", "start", "--to", "end", file],
            &["diff", "--before", "..50%", "--after", "50%..", "--metric", "allocated", file],
            &["diff", "--normalize", "whole.bin", file],
            &["diff", "whole.bin", file, "--vs", "whole.bin", file],
            &["bundle", file],
        ] {
            let output = ask(folder, args);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success() && !said.contains("panicked"), "{args:?}: {said}");
            // Every answer says that it stands on less than everything.
            let answer = String::from_utf8_lossy(&output.stdout) + &*said;
            let tells = answer.contains("the recording is not complete");
            assert!(tells == (file != "empty.bin") || args[0] == "bundle", "{args:?}: {answer}");
        }
    }
}

#[test]
fn nodes_own_perf_map_names_javascript_functions() {
    let which =
        Command::new("node").args(["-p", "process.execPath"]).output().expect("node is installed by tests/needs.sh");
    let node = PathBuf::from(String::from_utf8_lossy(&which.stdout).trim());
    let script = "function keepsBuffers(n) { const all = []; for (let i = 0; i < n; i++) \
                  all.push(Buffer.allocUnsafeSlow(5000 + i)); return all; } \
                  const kept = []; for (let k = 0; k < 100; k++) kept.push(keepsBuffers(20));";
    let traced = trace(&node, &["--perf-basic-prof", "-e", script], &[("TRACEHOUND_OUTPUT", "r.dat")]);
    assert!(traced.output.status.success(), "{}", traced.stderr());
    let folder = traced.folder.path();
    let map = format!("/tmp/perf-{}.map", number(&json(folder, &["info", "--json", "r.dat"]), "/process/pid"));
    let folded = ask(folder, &["export", "--format", "folded", "--metric", "allocated", "r.dat", "-o", "-"]);
    let map_was_there = std::fs::remove_file(map).is_ok();
    assert!(map_was_there && folded.status.success(), "{}", String::from_utf8_lossy(&folded.stderr));
    let text = String::from_utf8_lossy(&folded.stdout).into_owned();
    let named = text.lines().filter(|line| line.contains("keepsBuffers")).count();
    assert!(named > 0, "none of {} stacks names the function", text.lines().count());
}
