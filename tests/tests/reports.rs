//! The reports of the command line: for people and for programs, compared, with defaults from a file, of damaged files.

use std::path::Path;

use serde_json::Value;
use tracehound_tests::http_client::{ask, json};
use tracehound_tests::{compile, functions, number, root, trace};

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

/// Whether a function was inlined is the compiler's choice: it makes no difference between two builds.
#[test]
fn inlining_is_no_difference() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let folder = folder.path();
    for (build, flags) in [("plain", ["-O0", "-g"]), ("fast", ["-O2", "-fno-optimize-sibling-calls"])] {
        let program = folder.join(build).join("app");
        std::fs::create_dir(folder.join(build)).expect("it can be made");
        std::fs::copy(compile("inlines.c", &flags), &program).expect("it can be copied");
        std::fs::copy(trace(&program, &[], &[]).recording(), folder.join(format!("{build}.dat"))).expect("a recording");
    }
    let diff = json(folder, &["diff", "--json", "--metric", "allocated", "plain.dat", "fast.dat"]);
    let rows = diff["rows"].as_array().expect("rows");
    let of_parse: Vec<_> = rows.iter().filter(|row| functions(&row["stack"])[0] == "parse_line").collect();
    assert!(matches!(of_parse.as_slice(), [row] if row["before"] == row["after"]), "{diff:#}");
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
fn a_time_behind_the_end_is_reported() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let folder = folder.path();
    request_server(&["10", "5000", "10"], folder, "r.dat");
    for args in [
        &["top", "--at", "1h", "r.dat"][..],
        &["top", "--from", "1h", "--to", "2h", "r.dat"],
        &["memory", "--at", "1h", "r.dat"],
        &["leaks", "--from", "1h", "r.dat"],
        &["sites", "--to", "1h", "r.dat"],
        &["threads", "--to", "1h", "r.dat"],
        &["lifetimes", "--to", "1h", "r.dat"],
        &["diff", "--from", "start", "--to", "1h", "r.dat"],
        &["diff", "--before", "..50%", "--after", "50%..1h", "--metric", "allocated", "r.dat"],
        &["flamegraph", "--at", "1h", "r.dat", "-o", "-"],
        &["export", "--format", "folded", "--at", "1h", "r.dat", "-o", "-"],
        &["report", "--to", "1h", "r.dat", "-o", "-"],
    ] {
        let output = ask(folder, args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {said}");
        assert!(said.contains("r.dat: 1 h 00 min is after the end of the recording"), "{args:?}: {said}");
        let end: Vec<&str> =
            args.iter().map(|arg| if arg.contains('h') && arg.ends_with("1h") { "end" } else { *arg }).collect();
        if args[0] == "top" && args.contains(&"--at") {
            assert_eq!(output.stdout, ask(folder, &end).stdout, "the end stands for it");
        }
    }
    // JSON stays JSON, and says which moment it is about.
    let late = ask(folder, &["top", "--at", "1h", "--json", "r.dat"]);
    let late: Value = serde_json::from_slice(&late.stdout).expect("JSON");
    assert_eq!(late, json(folder, &["top", "--at", "end", "--json", "r.dat"]));
    for args in [&["top", "--at", "end", "r.dat"][..], &["top", "--at", "100%", "r.dat"], &["top", "r.dat"]] {
        assert!(ask(folder, args).stderr.is_empty(), "{args:?}");
    }
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
        ("lifetimes", "heaptrace.lifetimes/1", &["blocks allocated", "still live"]),
        ("memory", "heaptrace.memory/2", &["resident ", "live blocks", "fragmentation", "the recorder", "full;"]),
        ("pins", "heaptrace.pins/1", &["given back", "own bytes", "forget_session"]),
        ("map", "heaptrace.map/1", &["ranges of", "cells", "forget_session"]),
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
            // Every answer says that it is based on less than everything.
            let answer = String::from_utf8_lossy(&output.stdout) + &*said;
            let tells = answer.contains("the recording is not complete");
            assert!(tells == (file != "empty.bin") || args[0] == "bundle", "{args:?}: {answer}");
        }
    }
}
