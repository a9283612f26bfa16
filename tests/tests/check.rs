//! `heaptrace check` in a sample project: it passes, it fails, and it tells why; its reports are what others expect.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tracehound_tests::{Traced, clients, compile, functions, heaptrace, number, root, trace};

fn server(args: &[&str]) -> Traced {
    let include = format!("-I{}", root().join("preload/include").display());
    trace(compile("checked.c", &["-O1", &include]), args, &[])
}

fn check(folder: &Path, args: &[&str]) -> Output {
    Command::new(heaptrace()).arg("check").args(args).current_dir(folder).output().expect("heaptrace can be started")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn file_of(traced: &Traced) -> String {
    traced.recording().display().to_string()
}

const BUDGET: &str = r#"
peak = "200k"
leaked = "1k"
temporary = "100%"
largest = "100k"
allocations = 1000

[[leaks]]
match = "^forget_session$"
max = 0

[[modules]]
module = "checked"
leaked = 0
peak = "150000"

[[marks]]
match = "^request"
allocations = 20
"#;

#[test]
fn a_good_run_passes_and_a_bad_one_says_why() {
    let (good, bad) = (server(&["3"]), server(&["3", "3000", "25"]));
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("it can be written");
    write("heap.toml", BUDGET);
    let passed = check(folder.path(), &["--budget", "heap.toml", &file_of(&good)]);
    assert_eq!(passed.status.code(), Some(0), "{}", text(&passed));
    assert!(text(&passed).contains("9 checks passed"), "{}", text(&passed));

    let reports = ["--junit", "heap.xml", "--markdown", "heap.md", "--evidence", "heap.json"];
    let failed = check(folder.path(), &[&["--budget", "heap.toml", &file_of(&bad)][..], &reports].concat());
    let said = text(&failed);
    assert_eq!(failed.status.code(), Some(1), "{said}");
    for words in [
        "FAIL leaked",
        "2.93 KiB were never freed, of 1.00 KiB allowed",
        "FAIL leaks:^forget_session$",
        "forget_session",
        "FAIL module-leaked:checked",
        "FAIL mark:^request",
        "25 blocks were allocated after the mark “request”",
        "the most of 3, of 20 allowed",
        "pass peak",
        "4 of 9 checks failed",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    let evidence: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("heap.json")).expect("evidence")).expect("JSON");
    assert_eq!((&evidence["schema"], &evidence["passed"]), (&"heaptrace.check/1".into(), &false.into()));
    let checks = evidence["checks"].as_array().expect("checks");
    let of_mark = checks.iter().find(|check| check["name"] == "mark:^request").expect("the mark");
    assert_eq!((number(of_mark, "/measured"), number(of_mark, "/limit")), (25, 20));
    assert_eq!(functions(&of_mark["evidence"][0]["stack"])[0], "parse_request");

    let schema = clients().join("junit-10.xsd");
    let valid = Command::new("xmllint")
        .args(["--noout", "--schema"])
        .arg(&schema)
        .arg(folder.path().join("heap.xml"))
        .output()
        .expect("xmllint is installed by tests/needs.sh");
    assert!(valid.status.success(), "{}", String::from_utf8_lossy(&valid.stderr));
    let junit = std::fs::read_to_string(folder.path().join("heap.xml")).expect("a report");
    assert!(junit.contains(r#"tests="9" failures="4""#) && junit.contains("forget_session"), "{junit}");
    let markdown = std::fs::read_to_string(folder.path().join("heap.md")).expect("a report");
    assert!(
        markdown.contains("4 of 9 limits exceeded") && markdown.contains("| ❌ | `mark:^request` | 25 | 20 |"),
        "{markdown}"
    );
}

#[test]
fn options_alone_are_limits() {
    let traced = server(&["3", "3000"]);
    let file = file_of(&traced);
    let code = |args: &[&str]| check(traced.folder.path(), &[args, &[file.as_str()]].concat()).status.code();
    assert_eq!(code(&["--max-leaked", "3000"]), Some(0));
    assert_eq!(code(&["--max-leaked", "2999"]), Some(1));
    let near = text(&check(traced.folder.path(), &["--max-leaked", "2999", &file]));
    assert!(near.contains("3000 B") && near.contains("2999 B"), "both would be 2.93 KiB: {near}");
    assert_eq!(code(&["--max-peak", "1MiB"]), Some(0));
    assert_eq!(code(&["--max-peak", "100000"]), Some(1), "the leak lives beside the buffer");
    assert_eq!(code(&["--max-temporary", "99%"]), Some(0));
    assert_eq!(code(&["--max-temporary", "10%"]), Some(1));
    assert_eq!(code(&["--max-block", "99999"]), Some(1));
    assert_eq!(code(&["--max-allocations", "32"]), Some(0));
    assert_eq!(code(&["--max-leaked", "0", "--suppressions", "/nonexistent"]), Some(2), "no limit is exceeded");
    assert_eq!(code(&[]), Some(2), "no limit");
    assert_eq!(code(&["--max-leaked", "much"]), Some(2));
    // Suppressed leaks do not count, and JSON says what was measured.
    let list = traced.folder.path().join("known.supp");
    std::fs::write(&list, "leak:forget_*\n").expect("it can be written");
    let list = list.display().to_string();
    let output = check(traced.folder.path(), &["--json", "--max-leaked", "0", "--suppressions", &list, &file]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((output.status.code(), number(&report, "/measured/suppressed_bytes")), (Some(0), 3000));
}

#[test]
fn a_baseline_is_a_recording_or_what_was_measured() {
    let (before, same, worse) = (server(&["5"]), server(&["5"]), server(&["5", "9000", "100"]));
    let folder = before.folder.path();
    let compare = |baseline: &str, traced: &Traced| check(folder, &["--baseline", baseline, &file_of(traced)]);
    let recording = file_of(&before);
    assert_eq!(compare(&recording, &same).status.code(), Some(0));
    let failed = compare(&recording, &worse);
    assert_eq!(failed.status.code(), Some(1));
    for words in ["FAIL leaked", "FAIL allocations", "FAIL peak", "baseline "] {
        assert!(text(&failed).contains(words), "{words:?} is not in {}", text(&failed));
    }
    let made = check(folder, &["--max-peak", "1g", "--evidence", "main.json", &recording]);
    assert!(made.status.success());
    assert_eq!(compare("main.json", &same).status.code(), Some(0));
    assert_eq!(compare("main.json", &worse).status.code(), Some(1));
    std::fs::write(folder.join("info.json"), before.info().to_string()).expect("it can be written");
    assert_eq!(compare("info.json", &same).status.code(), Some(0));
}

/// Exit code 1 is for limits that are exceeded.
#[test]
fn what_is_no_baseline_is_wrong_usage() {
    let traced = server(&["3"]);
    let folder = traced.folder.path();
    let file = file_of(&traced);
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("it can be written");
    write("other.json", "{\"schema\":\"heaptrace.top/1\"}");
    write("bare.json", "{}");
    write("cut.json", "{\"schema\":");
    write("letter", "Dear reader");
    let made = check(folder, &["--max-peak", "1g", "--evidence", "two.json", &file, &file]);
    assert!(made.status.success(), "{made:?}");
    for (baseline, words) in [
        ("other.json", "other.json is no baseline: its schema is heaptrace.top/1, not heaptrace.check/1"),
        ("bare.json", "bare.json is no baseline: it has no schema"),
        ("cut.json", "cut.json is no baseline: it is no JSON"),
        ("two.json", "two.json is no baseline: it is of several recordings"),
        ("letter", "letter"),
        ("nosuch", "cannot read nosuch: No such file"),
    ] {
        let refused = check(folder, &["--baseline", baseline, &file]);
        let said = errors(&refused);
        assert!(said.contains(words) && said.lines().count() == 1, "{said}");
        assert_eq!(refused.status.code(), Some(2), "{baseline}: {said}");
    }
    write("races.supp", "race:foo\n");
    let refused = check(folder, &["--max-peak", "1g", "--suppressions", "races.supp", &file]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

#[test]
fn what_is_suppressed_is_on_both_sides_of_a_comparison_or_on_none() {
    let (before, worse) = (server(&["5", "3000"]), server(&["5", "6000"]));
    let folder = before.folder.path();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("it can be written");
    write("known.supp", "leak:forget_*\n");
    write("info.json", &before.info().to_string());
    let compare = |args: &[&str], traced: &Traced| {
        check(folder, &[&["--suppressions", "known.supp", "--tolerance", "10%"], args, &[&file_of(traced)]].concat())
    };
    let same = compare(&["--baseline", "info.json"], &before);
    assert_eq!(same.status.code(), Some(0), "{same:?}");
    let failed = text(&compare(&["--baseline", "info.json"], &worse));
    assert!(
        failed.contains("FAIL leaked  5.86 KiB were never freed, suppressed ones included, of 3.22 KiB"),
        "{failed}"
    );
    assert!(failed.contains("forget_session"), "{failed}");

    // C++'s library keeps a block by design.
    let plain = trace(compile("exported.cpp", &["-O2"]), &[], &[]);
    let file = file_of(&plain);
    for (made, asked) in [(&[][..], &["--no-builtin-suppressions"][..]), (&["--no-builtin-suppressions"], &[])] {
        let evidence = check(folder, &[&["--max-peak", "1g", "--evidence", "own.json", &file], made].concat());
        assert!(evidence.status.success(), "{evidence:?}");
        let own: Value = serde_json::from_slice(&std::fs::read(folder.join("own.json")).unwrap()).expect("JSON");
        assert_eq!(number(&own, "/measured/suppressed_bytes") > 0, made.is_empty(), "{own}");
        let output = check(folder, &[&["--baseline", "own.json", "--tolerance", "0%", &file], asked].concat());
        assert_eq!(output.status.code(), Some(0), "{made:?} {asked:?}: {}", text(&output));
    }

    // Another program's figures are compared, but not in silence.
    let output = check(folder, &["--baseline", &file_of(&before), &file]);
    let said = errors(&output);
    assert!(said.contains(" is of checked-c") && said.contains(" is of exported-cpp"), "{said}");
    let output = check(folder, &["--baseline", "info.json", &file_of(&worse)]);
    assert_eq!(errors(&output), "", "the same program");
}

#[test]
fn damaged_and_empty_recordings_are_checked_and_mistakes_named() {
    let traced = server(&["3"]);
    let folder = traced.folder.path();
    let bytes = std::fs::read(traced.recording()).expect("the recording");
    std::fs::write(folder.join("cut.bin"), &bytes[..bytes.len() * 2 / 3]).expect("it can be written");
    let cut = check(folder, &["--max-leaked", "1g", "--json", "cut.bin"]);
    let report: Value = serde_json::from_slice(&cut.stdout).expect("JSON");
    assert_eq!((cut.status.code(), &report["complete"]), (Some(0), &false.into()));
    assert!(
        report["checks"][0]["why"].as_str().is_some_and(|why| why.contains("were live at its last event")),
        "{report:#}"
    );
    let empty = trace(compile("nothing.c", &["-O1"]), &[], &[]);
    let limits = ["--max-leaked", "0", "--max-peak", "0", "--max-temporary", "0", "--max-block", "0"];
    assert_eq!(check(folder, &[&limits[..], &[&file_of(&empty)]].concat()).status.code(), Some(0));

    let write = |text: &str| std::fs::write(folder.join("bad.toml"), text).expect("it can be written");
    for (budget, words) in
        [("peek = 1", "peek"), ("peak = \"big\"", "no size"), ("[[leaks]]\nmatch = \"(\"\nmax = 1", "regular")]
    {
        write(budget);
        let refused = check(folder, &["--budget", "bad.toml", &file_of(&traced)]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && said.contains("bad.toml") && said.contains(words), "{said}");
    }
    // A mark that is never set lets nothing pass.
    write("[[marks]]\nmatch = \"nosuch\"\nallocations = 1000");
    let refused = check(folder, &["--budget", "bad.toml", &file_of(&traced)]);
    assert!(refused.status.code() == Some(1) && text(&refused).contains("no mark matches"), "{}", text(&refused));
}

/// A limit that cannot be compared with anything is not kept.
#[test]
fn resident_memory_that_was_never_sampled_keeps_no_limit() {
    let off = [("TRACEHOUND_PAGES", "off"), ("TRACEHOUND_SAMPLE_MEMORY_MS", "0")];
    let unsampled = trace(compile("nothing.c", &["-O1"]), &[], &off);
    let folder = unsampled.folder.path();
    let failed = check(folder, &["--max-rss", "10g", "--junit", "heap.xml", &file_of(&unsampled)]);
    let said = text(&failed);
    assert_eq!(failed.status.code(), Some(1), "{said}");
    assert!(said.contains("FAIL rss  resident memory was never sampled, so there is nothing to compare"), "{said}");
    let junit = std::fs::read_to_string(folder.join("heap.xml")).expect("a report");
    assert!(junit.contains(r#"failures="1""#), "{junit}");
    let sampled = server(&["3"]);
    assert_eq!(check(folder, &["--max-rss", "10g", &file_of(&sampled)]).status.code(), Some(0));
}

/// What lives when a program is killed is no leak, and no room for leaks of a later run.
#[test]
fn a_baseline_that_is_not_complete_limits_no_leaks() {
    let traced = server(&["3", "3000"]);
    let folder = traced.folder.path();
    let bytes = std::fs::read(traced.recording()).expect("the recording");
    std::fs::write(folder.join("cut.bin"), &bytes[..bytes.len() - 10]).expect("it can be written");
    let made = check(folder, &["--max-leaked", "1g", "--evidence", "cut.json", "cut.bin"]);
    assert!(made.status.success(), "{made:?}");
    for baseline in ["cut.bin", "cut.json"] {
        let reports = ["--junit", "heap.xml", "--markdown", "heap.md", "--evidence", "heap.json"];
        let failed = check(folder, &[&["--baseline", baseline][..], &reports, &[&file_of(&traced)]].concat());
        let said = text(&failed);
        assert_eq!(failed.status.code(), Some(1), "{said}");
        assert!(said.contains("FAIL leaked  the baseline is not complete: what was live at its last event"), "{said}");
        assert!(said.contains("1 of 4 checks failed"), "{said}");
        for report in ["heap.xml", "heap.md", "heap.json"] {
            let report = std::fs::read_to_string(folder.join(report)).expect("a report");
            assert!(report.contains(&format!("baseline {baseline}, which is not complete")), "{report}");
        }
        // Both are what was live at the last event.
        let alike = check(folder, &["--baseline", baseline, "cut.bin"]);
        assert_eq!(alike.status.code(), Some(0), "{}", text(&alike));
    }
}

/// By its path and by the file name that reports have, as in filters.
#[test]
fn a_module_of_a_budget_is_meant_as_in_filters() {
    let traced = server(&["3", "3000"]);
    let folder = traced.folder.path();
    for (module, code) in [("^checked-c[^/]*$", 1), ("^/.*/checked-c[^/]*$", 1), ("libparser", 0)] {
        let budget = format!("[[modules]]\nmodule = \"{module}\"\nleaked = 0\npeak = 0\n");
        std::fs::write(folder.join("heap.toml"), budget).expect("it can be written");
        let output = check(folder, &["--budget", "heap.toml", &file_of(&traced)]);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output));
        let failed = text(&output).matches("FAIL module-").count();
        assert_eq!(failed, if code == 0 { 0 } else { 2 }, "{}", text(&output));
        let missing = errors(&output).contains("no module matches `libparser` (there are `checked-c");
        assert_eq!(missing, code == 0, "{}", errors(&output));
    }
}
