//! A recording agrees with what the program really did: counts, bytes, stacks, peak and leaks, to the byte.

use std::process::Command;

use serde_json::Value;
use tracehound_tests::{compile, functions, number, trace, valgrind};

/// The part of a stack that the program's author wrote: down to `main`.
fn own(stack: &Value) -> Vec<String> {
    let mut names = functions(stack);
    if let Some(main) = names.iter().position(|name| name == "main") {
        names.truncate(main + 1);
    }
    names
}

#[test]
fn five_allocations_are_exactly_five() {
    let run = trace(compile("five.c", &["-O1"]), &[], &[]);
    assert!(run.output.status.success(), "{}", run.stderr());
    assert_eq!(run.stderr(), "");

    let info = run.info();
    assert_eq!(info["schema"], "heaptrace.info/1");
    assert_eq!(info["complete"], true);
    assert_eq!(info["end"], "exit");
    assert_eq!(number(&info, "/events/alloc"), 5);
    assert_eq!(number(&info, "/events/free"), 2);
    assert_eq!(number(&info, "/events/realloc"), 0);
    assert_eq!(number(&info, "/events/lost"), 0);
    assert_eq!(number(&info, "/allocations/count"), 5);
    assert_eq!(number(&info, "/allocations/bytes"), 1000 + 5000 + 300 + 64 + 16);
    assert_eq!(number(&info, "/peak/bytes"), 1000 + 5000 + 300);
    assert_eq!(number(&info, "/peak/count"), 3);
    assert_eq!(number(&info, "/leaked/bytes"), 1000 + 300 + 64);
    assert_eq!(number(&info, "/leaked/count"), 3);
    assert_eq!(number(&info, "/threads"), 1);
    assert_eq!(number(&info, "/sites"), 5);
    assert_eq!(number(&info, "/recorder/truncated_stacks"), 0);
    assert_eq!(number(&info, "/recorder/unmatched_frees"), 0);

    let leaks = run.leaks();
    let sites = leaks["sites"].as_array().expect("sites are a list");
    let summary: Vec<(u64, Vec<String>)> =
        sites.iter().map(|site| (number(site, "/bytes"), own(&site["stack"]))).collect();
    let names = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    assert_eq!(
        summary,
        [(1000, names(&["leaf", "middle", "main"])), (300, names(&["leaf", "main"])), (64, names(&["other", "main"])),]
    );
    assert!(sites[0]["stack"][0]["file"].as_str().is_some_and(|file| file.ends_with("five.c")));
    assert_eq!(sites[0]["stack"][0]["line"], 8);
}

#[test]
fn dump_rebuilds_info_and_leaks() {
    let run = trace(compile("five.c", &["-O1"]), &[], &[]);
    let events = run.dump();
    let heap: Vec<&Value> =
        events.iter().filter(|e| matches!(e["kind"].as_str(), Some("alloc" | "free" | "realloc"))).collect();
    let kinds: Vec<&str> = heap.iter().map(|e| e["kind"].as_str().unwrap_or("")).collect();
    assert_eq!(kinds, ["alloc", "alloc", "alloc", "free", "alloc", "alloc", "free"]);
    let sizes: Vec<u64> = heap.iter().filter(|e| e["kind"] == "alloc").map(|e| number(e, "/size")).collect();
    assert_eq!(sizes, [1000, 5000, 300, 64, 16]);
    assert_eq!(heap[4]["function"], "calloc");
    assert_eq!(heap[3]["address"], heap[1]["address"]);
    assert_eq!(own(&heap[3]["stack"]), ["main"]);
    let times: Vec<u64> = heap.iter().map(|e| number(e, "/t_ns")).collect();
    assert!(times.is_sorted(), "{times:?}");
}

#[test]
fn the_leaking_program_leaks_equal_bytes_in_both_functions() {
    let run = trace(compile("leak.rs", &["-O"]), &["600"], &[]);
    assert!(run.output.status.success(), "{}", run.stderr());
    let leaks = run.leaks();
    let leaked_by = |name: &str| -> u64 {
        let sites = leaks["sites"].as_array().expect("sites are a list").iter();
        let innermost_own =
            |site: &&Value| functions(&site["stack"]).into_iter().find(|f| f.contains("func1") || f.contains("func2"));
        sites
            .filter(|site| innermost_own(site).is_some_and(|f| f.contains(name)))
            .map(|site| number(site, "/bytes"))
            .sum()
    };
    let (one, two) = (leaked_by("func1"), leaked_by("func2"));
    assert_eq!(one, two);
    let boxes: u64 = run.stdout().split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("the program counts");
    assert_eq!(one + two, boxes << 20);
}

fn real_python() -> String {
    let ask = "import sys, os; print(os.path.realpath(sys.executable))";
    let output = Command::new("python3").args(["-c", ask]).output().expect("python3 is installed");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn python_agrees_with_valgrind() {
    let python = real_python();
    let script = "import json; json.dumps(list(range(200000)))";
    // Hash seeds change how dictionaries collide; with a fixed one both runs do the same work.
    let variables = [("PYTHONMALLOC", "malloc"), ("PYTHONHASHSEED", "0"), ("PYTHONDONTWRITEBYTECODE", "1")];
    let theirs = valgrind::usage(&python, &["-c", script], &variables);
    let run = trace(&python, &["-c", script], &variables);
    assert!(run.output.status.success(), "{}", run.stderr());
    let info = run.info();
    // Valgrind counts a realloc as one allocation and one free.
    let reallocs = number(&info, "/events/realloc");
    let ours = (
        number(&info, "/allocations/count"),
        number(&info, "/events/free") + reallocs,
        number(&info, "/allocations/bytes"),
    );
    let near = |ours: u64, theirs: u64| ours.abs_diff(theirs) as f64 <= theirs as f64 * 0.001;
    assert!(
        near(ours.0, theirs.allocs) && near(ours.1, theirs.frees) && near(ours.2, theirs.bytes),
        "ours {ours:?}, valgrind's {theirs:?}"
    );
}
