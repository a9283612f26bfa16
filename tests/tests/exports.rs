//! Every export, opened by the program that it is made for: it must be accepted, and its totals be those of `info`.
//!
//! `tests/needs.sh` and `tests/clients.sh` install the programs.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tracehound_tests::exporting::{export, export_of, read_json, run, said, sample, sum};
use tracehound_tests::pprof_rules;
use tracehound_tests::process::Running;
use tracehound_tests::{clients, compile, heaptrace, json, number, root, trace, valgrind};

#[test]
fn pprof_reads_all_sample_types_labels_and_inlined_frames() {
    let file = export("pprof", "app.pb.gz");
    let info = sample().info();
    let go = |args: &[&str]| {
        let mut command = Command::new("go");
        command.args(["tool", "pprof"]).args(args).arg(&file);
        let output = command.output().expect("go is installed by tests/needs.sh");
        said(&command, &output)
    };
    let raw = go(&["-raw"]);
    // `alloc_objects/count alloc_space/bytes … inuse_space/bytes[dflt] …`, then `1 2 3 …: 4 5 6` a sample.
    let types: Vec<&str> = raw
        .lines()
        .find(|line| line.starts_with("alloc_objects/count"))
        .expect("sample types")
        .split_whitespace()
        .map(|word| word.split('/').next().expect("a word"))
        .collect();
    let samples = raw.split("Samples:\n").nth(1).expect("samples").split("Locations").next().expect("samples");
    let mut totals = vec![0_u64; types.len()];
    for line in samples.lines() {
        let Some((values, stack)) = line.split_once(": ") else { continue };
        let values: Option<Vec<u64>> = values.split_whitespace().map(|value| value.parse().ok()).collect();
        let (Some(values), true) = (values, stack.split_whitespace().all(|id| id.parse::<u64>().is_ok())) else {
            continue;
        };
        assert_eq!(values.len(), types.len(), "{line}");
        totals.iter_mut().zip(values).for_each(|(total, value)| *total += value);
    }
    let total = |name: &str| totals[types.iter().position(|known| *known == name).expect(name)];
    assert_eq!(total("alloc_objects"), number(&info, "/allocations/count"));
    assert_eq!(total("alloc_space"), number(&info, "/allocations/bytes"));
    assert_eq!(total("inuse_objects"), number(&info, "/leaked/count"));
    assert_eq!(total("inuse_space"), number(&info, "/leaked/bytes"));
    assert_eq!(total("peak_space"), number(&info, "/peak/bytes"));
    assert_eq!(total("temporary_objects"), number(&info, "/temporary/count"));

    let top = go(&["-top", "-sample_index=alloc_space", "-nodefraction=0"]);
    assert!(top.contains("Build ID: "), "{top}");
    assert!(top.lines().any(|line| line.contains("128000B") || line.ends_with("grows()")), "{top}");
    let traces = go(&["-traces", "-sample_index=inuse_space"]);
    let leak = traces.split("-----------+").find(|part| part.contains("leaks(int)")).expect("the leak");
    assert!(
        leak.contains("thread:") && leak.contains("bytes:") && leak.contains("inlined_alloc(unsigned long) (inline)"),
        "{leak}"
    );
    // Only what is live, by label: of three sizes the smallest and the largest.
    let tags = go(&["-tags", "-sample_index=inuse_objects"]);
    assert!(tags.contains("thread_id: Total") && tags.contains("bytes: Total"), "{tags}");
    let same = go(&["-top", "-sample_index=alloc_space", &format!("-diff_base={}", file.display())]);
    assert!(same.contains("Showing nodes accounting for 0, 0%"), "{same}");
    let focused = go(&["-top", "-sample_index=alloc_objects", "-tagfocus=thread_id=2", "-nodefraction=0"]);
    assert!(focused.contains("grows()") && !focused.contains("leaks(int)"), "{focused}");
}

/// The sums of a profile's sample types are those of `info`.
fn assert_totals(of: impl Fn(&str) -> u64) {
    let info = sample().info();
    for (name, path) in [
        ("alloc_objects", "/allocations/count"),
        ("alloc_space", "/allocations/bytes"),
        ("inuse_objects", "/leaked/count"),
        ("inuse_space", "/leaked/bytes"),
        ("peak_space", "/peak/bytes"),
        ("temporary_objects", "/temporary/count"),
    ] {
        assert_eq!(of(name), number(&info, path), "{name}");
    }
}

#[test]
fn pprof_keeps_the_rules_of_parca() {
    let file = export("pprof", "rules.pb.gz");
    let unpacked = Command::new("gzip").arg("-dc").arg(&file).output().expect("gzip is there");
    assert!(unpacked.status.success(), "{}", String::from_utf8_lossy(&unpacked.stderr));
    let totals = pprof_rules::totals(&unpacked.stdout);
    assert_totals(|name| totals[name]);
}

#[test]
fn opentelemetry_reads_profiles_by_its_own_messages() {
    let file = export("otlp", "app.otlp.pb");
    let script = root().join("tests/clients/otlp_totals.py");
    let printed = run(clients().join("python/bin/python"), &[&script, &file]);
    let found: Value = serde_json::from_str(&printed).expect("a document");
    assert_totals(|name| number(&found, &format!("/totals/{name}")));
    assert_eq!(found["first"], "inuse_space", "{found:#}");
    let leaks = found["live"].as_array().into_iter().flatten().find(|stack| {
        let functions: Vec<&str> =
            stack["functions"].as_array().into_iter().flatten().flat_map(Value::as_str).collect();
        functions.contains(&"leaks(int)") && functions.contains(&"main")
    });
    assert!(leaks.is_some(), "{found:#}");
}

#[test]
fn heaptrack_prints_the_same_totals() {
    let file = export("heaptrack", "app.heaptrack");
    let info = sample().info();
    let report = run("heaptrack_print", &[&"-l", &"1", &file]);
    let calls = format!("calls to allocation functions: {} ", number(&info, "/allocations/count"));
    assert!(report.contains(&calls), "{report}");
    // Rounded to two digits, decimal units.
    let figure = |label: &str| {
        let line =
            report.lines().find_map(|line| line.strip_prefix(label)).unwrap_or_else(|| panic!("{label}: {report}"));
        let text = line.trim();
        let (number, unit) = text.split_at(text.len() - 1);
        number.parse::<f64>().expect("a figure") * if unit == "K" { 1e3 } else { 1e6 }
    };
    for (label, path) in [("peak heap memory consumption:", "/peak/bytes"), ("total memory leaked:", "/leaked/bytes")] {
        let (theirs, ours) = (figure(label), number(&info, path) as f64);
        assert!((theirs - ours).abs() <= 10.0, "{label} {theirs} {ours}");
    }
    assert!(report.contains("leaks(int)") && report.contains("inlined_alloc"), "{report}");
}

#[test]
fn folded_stacks_add_up() {
    let info = sample().info();
    for (args, path) in [
        (&["--metric", "allocated"][..], "/allocations/bytes"),
        (&["--metric", "allocated", "--count"], "/allocations/count"),
        (&["--metric", "leaked"], "/leaked/bytes"),
        (&["--metric", "peak"], "/peak/bytes"),
    ] {
        let output = Command::new(heaptrace())
            .args(["export", "--format", "folded", "-o", "-"])
            .args(args)
            .arg(sample().recording())
            .output()
            .expect("heaptrace can be started");
        let lines = String::from_utf8(output.stdout).expect("folded stacks are UTF-8");
        let value = |line: &str| line.rsplit(' ').next().and_then(|value| value.parse::<u64>().ok()).expect("a value");
        assert_eq!(lines.lines().map(value).sum::<u64>(), number(&info, path), "{args:?}");
    }
}

#[test]
fn json_has_every_block() {
    let document = read_json(&export("json", "app.json"));
    let info = sample().info();
    let blocks = document["allocations"].as_array().expect("blocks");
    let sum = |keep: fn(&Value) -> bool| -> u64 {
        blocks.iter().filter(|block| keep(block)).map(|block| block[1].as_u64().expect("a size")).sum()
    };
    assert_eq!(blocks.len() as u64, number(&info, "/allocations/count"));
    assert_eq!(sum(|_| true), number(&info, "/allocations/bytes"));
    assert_eq!(sum(|block| block[3].is_null()), number(&info, "/leaked/bytes"));
}

#[test]
fn speedscope_accepts_its_file() {
    let file = export("speedscope", "app.speedscope.json");
    let info = sample().info();
    // Its schema is of draft 4 in name, and says nothing that later drafts would read otherwise.
    let check = "const [clients, file] = process.argv.slice(1);
        const require = (await import('node:module')).createRequire(clients + '/package.json');
        const Ajv = require('ajv').default, { readFileSync } = await import('node:fs');
        const read = (path) => JSON.parse(readFileSync(path, 'utf8'));
        const schema = read(clients + '/node_modules/speedscope/dist/release/file-format-schema.json');
        delete schema.$schema;
        const ajv = new Ajv({ strict: false });
        if (!ajv.validate(schema, read(file))) { console.error(ajv.errorsText()); process.exit(1); }";
    run("node", &[&"--input-type=module", &"-e", &check, &clients(), &file]);
    let document = read_json(&file);
    let total = |name: &str| {
        let profiles = document["profiles"].as_array().expect("profiles");
        let profile = profiles.iter().find(|profile| profile["name"] == name).unwrap_or_else(|| panic!("{name}"));
        profile["weights"].as_array().expect("weights").iter().filter_map(Value::as_u64).sum::<u64>()
    };
    assert_eq!(total("allocated"), number(&info, "/allocations/bytes"));
    assert_eq!(total("allocations"), number(&info, "/allocations/count"));
    assert_eq!(total("leaked"), number(&info, "/leaked/bytes"));
    assert_eq!(total("live at the peak"), number(&info, "/peak/bytes"));
    assert_eq!(total("temporary allocations"), number(&info, "/temporary/count"));
    let script = root().join("tests/clients/open.mjs");
    let shown = run("node", &[&script, &clients(), &"speedscope", &file]);
    assert!(shown.contains("live at the peak") && shown.contains("(1/5)"), "{shown}");
}

#[test]
fn dhat_is_opened_by_its_viewer_and_agrees_with_valgrind() {
    let file = export("dhat", "app.dhat.json");
    let info = sample().info();
    let document = read_json(&file);
    let points = &document["pps"];
    for (field, path) in [
        ("/tb", "/allocations/bytes"),
        ("/tbk", "/allocations/count"),
        ("/gb", "/peak/bytes"),
        ("/gbk", "/peak/count"),
        ("/eb", "/leaked/bytes"),
        ("/ebk", "/leaked/count"),
    ] {
        assert_eq!(sum(points, field), number(&info, path), "{field}");
    }
    let script = root().join("tests/clients/open.mjs");
    let shown = run("node", &[&script, &clients(), &"dh_view", &file]);
    let grouped = |number: u64| {
        let digits = number.to_string();
        let mut out = String::new();
        for (i, digit) in digits.chars().enumerate() {
            if i > 0 && (digits.len() - i).is_multiple_of(3) {
                out.push(',');
            }
            out.push(digit);
        }
        out
    };
    let total = format!("Total:     {} bytes (100%, ", grouped(number(&info, "/allocations/bytes")));
    assert!(shown.contains(&total), "{total} is not in {shown}");
    assert!(shown.contains("leaks(int)") && shown.contains("inlined_alloc"), "{shown}");

    // A C program, whose allocations are all its own.
    let program = compile("five.c", &["-O1"]);
    let traced = trace(&program, &[], &[]);
    let ours = read_json(&export_of(&traced.recording(), "dhat", "five.json"));
    let theirs = traced.folder.path().join("valgrind.json");
    valgrind::dhat(&program, &theirs);
    let theirs = read_json(&theirs);
    for field in ["/tb", "/tbk", "/gb", "/gbk", "/eb", "/ebk"] {
        assert_eq!(sum(&ours["pps"], field), sum(&theirs["pps"], field), "{field}");
    }
}

#[test]
fn ms_print_draws_the_massif_export() {
    let file = export("massif", "app.massif");
    let info = sample().info();
    let shown = run("ms_print", &[&file]);
    let grouped = shown.replace(',', "");
    let mut trees = grouped.lines().filter(|line| line.contains("(heap allocation functions)"));
    assert!(trees.any(|tree| tree.starts_with("100.00%")), "{shown}");
    assert!(shown.contains("(peak)"), "{shown}");
    assert!(shown.contains("leaks(int) (") && shown.contains("exported.cpp:"), "{shown}");
    // Snapshot number, time, total, useful, extra, stacks: the largest is the peak, the last what leaked.
    let totals: Vec<u64> = grouped
        .lines()
        .filter_map(|line| {
            let columns: Option<Vec<u64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
            columns.filter(|columns| columns.len() == 6).map(|columns| columns[2])
        })
        .collect();
    assert_eq!(totals.iter().max(), Some(&number(&info, "/peak/bytes")));
    assert_eq!(totals.last(), Some(&number(&info, "/leaked/bytes")));
}

#[test]
fn the_firefox_profiler_opens_its_file() {
    let file = export("firefox", "app.firefox.json");
    let info = sample().info();
    let client = clients().join("node_modules/@firefox-devtools/profiler-cli/dist/profiler-cli.js");
    let sessions = tempfile::tempdir().expect("a temporary folder can be made");
    let ask = |args: &[&str]| {
        let mut command = Command::new("node");
        command.arg(&client).args(args).env("PROFILER_CLI_SESSION_DIR", sessions.path());
        let output = command.output().expect("node is installed");
        (output.status.success(), said_or_not(&output))
    };
    // On a busy machine its daemon takes longer than it waits; it says itself that trying again helps.
    let path = file.to_str().expect("a plain path");
    let mut loaded = (false, String::new());
    for attempt in 0..5 {
        loaded = ask(&["load", path, "--session", &format!("s{attempt}")]);
        if loaded.0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_secs(2));
    }
    let trees = ["t-0", "t-1", "t-2"].map(|thread| ask(&["thread", "samples-top-down", "--thread", thread, "--json"]));
    let summary = ask(&["profile", "info"]);
    let stopped = ask(&["stop", "--all"]);
    assert!(loaded.0 && summary.0 && stopped.0, "{loaded:?} {summary:?} {stopped:?}");
    assert!(summary.1.contains("3 threads across 1 process"), "{}", summary.1);
    for ((_, text), path) in trees.iter().zip(["/allocations/bytes", "/peak/bytes", "/leaked/bytes"]) {
        let tree: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(tree["weightType"], "bytes");
        assert_eq!(number(&tree, "/regularCallTree/totalSamples"), number(&info, path), "{path}");
    }
    assert!(trees[2].1.contains("leaks(int)") && trees[2].1.contains("inlined_alloc"), "{}", trees[2].1);
}

fn said_or_not(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn parquet_tables_join_in_duckdb_and_pyarrow() {
    let folder = export("parquet", "tables");
    let single = export("parquet", "app.parquet");
    let info = sample().info();
    let python = clients().join("python/bin/python");
    let answer = run(python, &[&root().join("tests/clients/tables.py"), &folder, &single]);
    let answer: Value = serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"));
    for (name, path) in [
        ("count", "/allocations/count"),
        ("bytes", "/allocations/bytes"),
        ("leaked_bytes", "/leaked/bytes"),
        ("leaked_count", "/leaked/count"),
        ("temporary", "/temporary/count"),
        ("site_bytes", "/allocations/bytes"),
        ("site_leaked", "/leaked/bytes"),
        ("site_peak", "/peak/bytes"),
        ("curve_peak", "/peak/bytes"),
        ("single_bytes", "/allocations/bytes"),
        ("threads", "/threads"),
        ("info_peak", "/peak/bytes"),
    ] {
        assert_eq!(answer[name].as_u64(), Some(number(&info, path)), "{name}: {answer}");
    }
    assert_eq!(answer["unnamed_stacks"], 0, "every stack of a block has its frames");
    assert_eq!(answer["leaf"], "inlined_alloc(unsigned long)");
    assert_eq!(answer["tables"], 9);
    assert_eq!(answer["unsigned"], serde_json::json!([]), "Spark and Trino know signed integers alone");

    // The same program again, elsewhere in memory: the same stacks by name.
    let again = trace(compile("exported.cpp", &["-O2"]), &[], &[]);
    let other = export_of(&again.recording(), "parquet", "tables");
    let python = clients().join("python/bin/python");
    let joined = run(python, &[&root().join("tests/clients/join.py"), &folder, &other]);
    let sites = number(&json(&["info"], &again.recording()), "/sites");
    assert_eq!(joined.trim(), format!("{sites} {sites}"), "stacks in both, stacks in all");
}

#[test]
fn a_block_is_seven_bytes_of_parquet() {
    let program = root().join("tests/python/documents.py");
    let program = program.to_str().expect("a path in UTF-8");
    let traced = trace("/usr/bin/python3", &[program, "8000"], &[("PYTHONMALLOC", "malloc")]);
    assert!(traced.output.status.success(), "{}", traced.stderr());
    let folder = export_of(&traced.recording(), "parquet", "blocks");
    let blocks = number(&json(&["info"], &traced.recording()), "/allocations/count");
    assert!(blocks >= 500_000, "{blocks}");
    let bytes = std::fs::metadata(folder.join("allocations.parquet")).expect("the table").len();
    let a_block = bytes as f64 / blocks as f64;
    println!("{a_block:.2} bytes a block");
    assert!(a_block <= 7.0, "{a_block:.2} bytes a block");
}

#[test]
fn scrapers_find_profiles_where_go_has_them() {
    let mut server = Command::new(heaptrace());
    server.args(["server", "--port", "0"]).arg(sample().recording()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = Running(server.spawn().expect("heaptrace can be started"));
    let mut line = String::new();
    let out = server.stdout.take().expect("standard output");
    BufReader::new(out).read_line(&mut line).expect("the server says where it is");
    let url = line.split_whitespace().find(|word| word.starts_with("http://")).expect("a URL").trim_end_matches('/');
    let info = sample().info();
    for (profile, shown, path) in
        [("heap", "inuse_space", "/leaked/bytes"), ("allocs", "alloc_space", "/allocations/bytes")]
    {
        let raw = run("go", &[&"tool", &"pprof", &"-raw", &format!("{url}/debug/pprof/{profile}")]);
        assert!(raw.contains(&format!("{shown}/bytes[dflt]")), "{raw}");
        assert!(raw.contains("\nPeriodType: space bytes\nPeriod: 1\n"), "{raw}");
        let top = run("go", &[&"tool", &"pprof", &"-top", &"-unit=B", &format!("{url}/debug/pprof/{profile}")]);
        let total = format!("{}B total", number(&info, path));
        assert!(top.contains(&total), "{total}: {top}");
    }
    let refused = Command::new("go").args(["tool", "pprof", "-raw", &format!("{url}/debug/pprof/goroutine")]).output();
    assert!(!refused.expect("go is there").status.success());
}
