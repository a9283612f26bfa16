//! `heaptrace collect` and `heaptrace fleet`: what arrives in a store is what was recorded, whoever is killed when.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tracehound_tests::exporting::{export_of, run};
use tracehound_tests::fleet::{Fleet, free_address, kill, running};
use tracehound_tests::{ask, clients, compile, heaptrace, json, number, root, wait_for};

#[test]
fn what_is_collected_is_what_was_recorded() {
    let fleet = Fleet::default();
    let program = compile("planted.c", &["-O1", "-g"]);
    for fault in ["leak", "none"] {
        let status = fleet.traced(&program, "service=shop,version=1.2").arg(fault).status().expect("it starts");
        assert!(status.success());
    }
    fleet.collect_all(&["--keep", "--allocations"]);
    let stored = fleet.recordings();
    assert_eq!(stored.len(), 2);
    let mut local: Vec<_> = std::fs::read_dir(fleet.spool()).unwrap().map(|e| e.unwrap().path()).collect();
    local.retain(|path| path.extension().is_some_and(|end| end == "dat"));
    let id = |path: &Path| {
        let bytes = std::fs::read(path).expect("a recording");
        bytes[16..32].iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    for path in &local {
        let copy = fleet.stored().join("raw").join(format!("{}.dat", id(path)));
        assert_eq!(std::fs::read(path).unwrap(), std::fs::read(&copy).unwrap(), "byte for byte");
        let mode = std::fs::metadata(&copy).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{mode:o}: for its owner alone, as a recorded one");
        let about: Value = serde_json::from_slice(&std::fs::read(copy.with_extension("json")).unwrap()).unwrap();
        assert_eq!((&about["service"], &about["version"]), (&"shop".into(), &"1.2".into()));
        assert!(about["host"].as_str().is_some_and(|host| !host.is_empty()), "{about}");
    }
    // The tables are those of an export.
    let tables = export_of(&local[0], "parquet", "tables");
    let python = clients().join("python/bin/python");
    let script = root().join("tests/clients/same_tables.py");
    let same = run(python, &[&script, &tables, &fleet.stored(), &id(&local[0])]);
    assert_eq!(same.trim(), "allocations frames marks modules site_minutes sites stacks threads timeline");

    // Collected again it is the same, and then the spool is empty.
    fleet.collect_all(&[]);
    assert_eq!(std::fs::read_dir(fleet.spool()).unwrap().filter(|e| e.as_ref().unwrap().path().is_file()).count(), 0);
    let url = format!("{}/raw/{}.dat", fleet.store, id(&stored[0]));
    assert_eq!(json(&["info"], Path::new(&url)), json(&["info"], &stored[0]));

    // An answer from a part of them says so, unless the question leaves the others out.
    let mut folders = Command::new("find");
    folders.arg(fleet.stored()).args(["-name", &format!("recording={}", id(&stored[0]))]);
    let asked = |more: &[&str]| {
        let output = Command::new(heaptrace()).args(["fleet", "top", &fleet.store]).args(more).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert_eq!(asked(&[]), "");
    assert!(folders.args(["-prune", "-exec", "rm", "-r", "{}", "+"]).status().unwrap().success());
    assert!(asked(&[]).contains("1 whole recordings have no tables yet"), "{}", asked(&[]));
}

#[test]
fn a_recording_with_holes_says_where_it_is() {
    let fleet = Fleet::default();
    let program = compile("counted_blocks.c", &["-O1"]);
    let mut command = fleet.traced(&program, "service=long");
    let _program = running({
        command.arg(fleet.spool().join("done")).arg("0");
        command
    });
    let mut collector = fleet.collect(&["--quota", "1M", "--interval", "20"]);
    collector.stdout(Stdio::null());
    let _collector = running(collector);
    let noted = || {
        std::fs::read_dir(fleet.spool())
            .unwrap()
            .map(|e| e.unwrap().path())
            .find(|p| p.extension().is_some_and(|e| e == "shipped"))
    };
    wait_for("a hole", Duration::from_secs(60), || noted().is_some());
    let recording = noted().unwrap().with_extension("");
    use std::os::unix::fs::MetadataExt;
    wait_for("a smaller file", Duration::from_secs(60), || {
        recording.metadata().is_ok_and(|meta| meta.blocks() * 512 < meta.len() / 2 + (5 << 20))
    });
    let output = ask(&["info"], &recording);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("its front was collected") && said.contains(&fleet.store),
        "{said}"
    );
}

fn http(address: &str, path: &str) -> Option<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer a secret of sixteen\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.starts_with("HTTP/1.1 200").then_some(answer)
}

#[test]
fn collectors_and_programs_send_to_a_collector() {
    let fleet = Fleet::default();
    let address = free_address();
    let mut command = Command::new(heaptrace());
    command
        .args(["collect", "--listen", &address, "--store", &fleet.store])
        .env("HEAPTRACE_TOKEN", "a secret of sixteen");
    let _collector = running(command);
    wait_for("the collector", Duration::from_secs(30), || http(&address, "/metrics").is_some());

    let program = compile("planted.c", &["-O1", "-g"]);
    // A program by itself.
    let traced = |token: &str| {
        let mut command = Command::new(heaptrace());
        command.args(["run", "-o"]).arg(fleet.spool().join("alone-%p")).arg("--").arg(&program).arg("leak");
        command.env("TRACEHOUND_COLLECTOR", &address).env("HEAPTRACE_TOKEN", token);
        command.env("TRACEHOUND_LABELS", "service=alone,version=7").output().expect("heaptrace can be started")
    };
    let output = traced("a secret of sixteen");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains(&format!("sent to {address}")), "{said}");
    // A spool of another host, which has to give it up once it is here.
    assert!(fleet.traced(&program, "service=other").arg("none").status().expect("it starts").success());
    let mut other = Command::new(heaptrace());
    other.args(["collect", "--once", "--spool"]).arg(fleet.spool()).args(["--store", &format!("http://{address}")]);
    let output = other.env("HEAPTRACE_TOKEN", "a secret of sixteen").output().expect("heaptrace can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    wait_for("the tables", Duration::from_secs(60), || {
        http(&address, "/metrics").is_some_and(|text| text.contains("tracehound_collect_packed_recordings_total 2"))
    });
    assert_eq!(fleet.recordings().len(), 2);
    for stored in fleet.recordings() {
        assert_eq!(json(&["info"], &stored)["complete"], true);
    }
    assert!(http(&address, "/").is_some_and(|page| page.contains("<pre>store      file://")));
    let output = Command::new(heaptrace())
        .args(["collect", "status", "--json", &address])
        .env("HEAPTRACE_TOKEN", "a secret of sixteen")
        .output()
        .expect("heaptrace can be started");
    let status: Value = serde_json::from_slice(&output.stdout).expect("a document");
    assert_eq!((&status["schema"], &status["packed"]), (&"heaptrace.collect-status/1".into(), &2.into()));

    // Whoever has not the secret stays outside.
    let output = Command::new(heaptrace())
        .args(["collect", "status", &address])
        .env("HEAPTRACE_TOKEN", "another of sixteen")
        .output()
        .expect("heaptrace can be started");
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("token"));
    let output = Command::new(heaptrace())
        .args(["collect", "--listen", "0.0.0.0:0", "--store", &fleet.store])
        .env_remove("HEAPTRACE_TOKEN")
        .output()
        .expect("heaptrace can be started");
    assert!(String::from_utf8_lossy(&output.stderr).contains("needs --token"));
}

/// A number of JSON that may have a point.
fn whole(value: &Value) -> u64 {
    value.as_f64().expect("a number") as u64
}

#[test]
fn a_version_that_leaks_is_found() {
    let fleet = Fleet::default();
    let program = compile("planted.c", &["-O1", "-g"]);
    let mut all = Vec::new();
    for (version, fault) in [("1.0", "none"), ("1.1", "none"), ("1.2", "leak")] {
        for _ in 0..4 {
            let labels = format!("service=shop,version={version}");
            all.push(fleet.traced(&program, &labels).arg(fault).spawn().expect("it starts"));
        }
        all.drain(..).for_each(|mut child| assert!(child.wait().expect("it ends").success()));
    }
    fleet.collect_all(&[]);
    let check = |when: &str| {
        let top = fleet.json("top", &["--service", "shop"]);
        assert_eq!(number(&top, "/recordings"), 12, "{when}: {top}");
        let python = clients().join("python/bin/python");
        let sums = run(&python, &[&root().join("tests/clients/fleet_sums.py"), &fleet.stored()]);
        let sums: Value = serde_json::from_str(&sums).expect("JSON");
        if when == "fresh" {
            assert_eq!(sums["leaked"], top["total_bytes"], "{when}: DuckDB and we add up the same");
        }
        // What is asked in SQL has the same rows; a version is text there, too.
        let script = root().join("tests/clients/fleet_engines.py");
        let in_sql = run(&python, &[&script, &heaptrace(), &fleet.store]);
        let in_sql: Value = serde_json::from_str(&in_sql).expect("JSON");
        let all = fleet.json("top", &["-n", "100000"]);
        let rows = all["rows"].as_array().expect("rows").iter();
        let mut rows: Vec<(u64, u64)> = rows.map(|row| (number(row, "/bytes"), number(row, "/recordings"))).collect();
        rows.sort_unstable();
        let theirs = in_sql["top_rows"].as_array().expect("rows").iter();
        let theirs: Vec<(u64, u64)> = theirs.map(|row| (whole(&row[0]), whole(&row[1]))).collect();
        assert_eq!(rows, theirs, "{when}");
        assert_eq!(number(&in_sql, "/budget"), 3, "{when}: {in_sql}");
        // All processes have ended: what they allocated and did not free in all minutes is what leaked.
        let grown = fleet.json("top", &["--metric", "grown"]);
        assert_eq!(grown["total_bytes"], top["total_bytes"], "{when}: {grown}");
        assert_eq!(whole(&in_sql["grown_bytes"]), number(&top, "/total_bytes"), "{when}: {in_sql}");
        let leaks = fleet.json("leaks", &[]);
        let first = &leaks["rows"][0];
        assert_eq!((&first["function"], &first["version"]), (&"session_open".into(), &"1.2".into()), "{when}: {leaks}");
        // On a machine that is busy elsewhere the end of some looks like rest: nothing was allocated for a twentieth of it.
        assert!(number(first, "/growing") >= 1 && number(first, "/recordings") == 4, "{when}: {first}");
        let regress = fleet.json("regress", &["--before", "1.0", "--after", "1.2"]);
        let rows = regress["rows"].as_array().expect("rows");
        assert_eq!(rows[0]["function"], "session_open", "{when}: {regress}");
        assert_eq!(rows[0]["since"], "1.2");
        assert_eq!(rows.len(), 1, "{when}: {regress}");
        assert!(rows[0]["p"].as_f64().is_some_and(|p| p < 0.01));
        let same = fleet.json("regress", &["--before", "1.0", "--after", "1.1"]);
        assert_eq!(same["rows"], serde_json::json!([]), "{when}: {same}");
        (top, leaks, regress)
    };
    let fresh = check("fresh");
    let output = fleet.ask("compact", &["--before", "9999-01-01"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let files =
        Command::new("find").arg(fleet.stored().join("data/v1/sites")).args(["-name", "*.parquet"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&files.stdout).lines().count(), 3, "a file for each version");
    assert_eq!(check("compacted"), fresh);

    let today = fleet.json("top", &["--from", "2020-01-01T00:00"]);
    assert_eq!((&today["metric"], &today["total_bytes"]), (&"grown".into(), &fresh.0["total_bytes"]));
    let before = fleet.json("top", &["--to", "2020-01-01T00:00", "--metric", "allocated"]);
    assert_eq!((&before["to"], &before["total_bytes"]), (&"2020-01-01T00:00".into(), &0.into()), "{before}");
    let refused = fleet.ask("top", &["--to", "2020-01-01T00:00", "--metric", "peak"]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("allocated or grown"));

    let budget = fleet.ask("budget", &["--max-leaked", "650k", "--share", "90"]);
    let said = String::from_utf8_lossy(&budget.stdout);
    assert!(budget.status.code() == Some(1) && said.starts_with("NOT KEPT: 8 of 12"), "{said}");
    assert!(fleet.ask("budget", &["--max-leaked", "650k", "--share", "60"]).status.success());
    let outliers = fleet.json("outliers", &[]);
    assert_eq!(outliers["rows"], serde_json::json!([]));
    assert_eq!((&outliers["hosts"], &outliers["compared"]), (&1.into(), &0.into()), "all of it ran here");
    let said = fleet.ask("outliers", &[]);
    assert!(String::from_utf8_lossy(&said.stdout).contains("nothing to compare"), "{said:?}");
    let none = fleet.ask("top", &["--service", "nothing"]);
    assert!(!none.status.success() && String::from_utf8_lossy(&none.stderr).contains("; its services are "));
    let nowhere = Command::new(heaptrace()).args(["fleet", "top"]).arg(fleet.stored().join("typo")).output().unwrap();
    let said = String::from_utf8_lossy(&nowhere.stderr);
    assert!(nowhere.status.code() == Some(1) && said.contains("there is no folder"), "{said}");
    assert!(!fleet.stored().join("typo").exists());
}

#[test]
fn a_store_that_is_away_loses_nothing() {
    let fleet = Fleet::default();
    let program = compile("planted.c", &["-O1", "-g"]);
    assert!(fleet.traced(&program, "service=shop").arg("none").status().expect("it starts").success());
    let nowhere = format!("http://{}", free_address());
    let mut command = Command::new(heaptrace());
    command
        .args(["collect", "--interval", "20", "--spool"])
        .arg(fleet.spool())
        .args(["--store", &nowhere, "--quota", "1M"]);
    let collector = command.stderr(Stdio::null()).spawn().expect("heaptrace can be started");
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(100));
    }
    kill(collector);
    fleet.collect_all(&[]);
    let [stored] = &fleet.recordings()[..] else { panic!("one recording") };
    assert_eq!(json(&["info"], stored)["complete"], true);
}

#[test]
fn every_command_opens_a_recording_of_a_store() {
    let fleet = Fleet::default();
    let program = compile("planted.c", &["-O1", "-g"]);
    assert!(fleet.traced(&program, "service=shop").arg("leak").status().expect("it starts").success());
    fleet.collect_all(&[]);
    let name = fleet.recordings()[0].file_name().expect("a name").to_string_lossy().into_owned();
    let (url, folder) = (format!("{}/raw/{name}", fleet.store), tempfile::tempdir().expect("a folder"));
    let out = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (svg, html, bundle, pprof) = (out("a.svg"), out("a.html"), out("bundle.dat"), out("a.pb.gz"));
    let said = |arguments: &[&str]| {
        let mut command = Command::new(heaptrace());
        command.args(arguments).env("XDG_CACHE_HOME", folder.path());
        let output = command.output().expect("heaptrace can be started");
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.success(), text)
    };
    for command in [
        "info",
        "leaks",
        "top",
        "summary",
        "sites",
        "threads",
        "churn",
        "contexts",
        "lifetimes",
        "memory",
        "pins",
        "map",
        "dump",
        "replay",
    ] {
        let (is_done, text) = said(&[command, &url]);
        assert!(is_done && text.len() > 50, "{command}: {text}");
    }
    for arguments in [
        &["diff", &url, &url][..],
        &["check", "--max-peak", "10G", &url],
        &["sql", &url, "SELECT count(*) FROM allocations"],
        &["flamegraph", "-o", &svg, &url],
        &["report", "-o", &html, &url],
        &["bundle", "-o", &bundle, &url],
        &["export", "--format", "pprof", "-o", &pprof, &url],
    ] {
        let (is_done, text) = said(arguments);
        assert!(is_done, "{arguments:?}: {text}");
    }
    assert_eq!(json(&["leaks"], Path::new(&bundle))["rows"], json(&["leaks"], Path::new(&url))["rows"]);
    let (is_done, text) = said(&["bundle", &url]);
    assert!(!is_done && text.contains("-o"), "{text}");
    // The profile is made; nobody takes it.
    let nowhere = format!("http://{}", free_address());
    let (is_done, text) = said(&["push", "parca", &nowhere, &url, "--attempts", "1"]);
    assert!(!is_done && text.contains(&name) && text.contains("was not sent"), "{text}");
}
