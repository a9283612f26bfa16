//! The example under the recorder: what each request context has is what the program itself has counted, wherever its
//! tasks ran.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

/// Where cargo has put what it built: this test is in `deps` of it.
fn built(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let path = own.parent().and_then(|deps| deps.parent()).unwrap().join(name);
    assert!(path.exists(), "{} is missing: make build", path.display());
    path
}

fn lines(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// By context: blocks and bytes allocated, blocks and bytes kept.
type Sums = BTreeMap<String, [u64; 4]>;

fn sums(stdout: &str) -> Sums {
    let line = |line: &str| {
        let mut words = line.splitn(5, ' ');
        let mut number = || words.next().unwrap().parse().unwrap();
        let sums = [number(), number(), number(), number()];
        (words.next().unwrap().to_owned(), sums)
    };
    stdout.lines().map(line).collect()
}

#[test]
fn sums_by_request_are_those_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("m.dat");
    let mut program = Command::new(built("examples/tasks"));
    let plain = sums(&lines(&mut program));
    let traced =
        sums(&lines(program.env("LD_PRELOAD", built("libtracehound.so")).env("TRACEHOUND_OUTPUT", &recording)));
    assert_eq!(traced, plain);
    assert_eq!(traced.len(), 10);
    let heaptrace = |arguments: &[&str]| lines(Command::new(built("heaptrace")).args(arguments).arg(&recording));
    let contexts: Value = serde_json::from_str(&heaptrace(&["contexts", "--json"])).unwrap();
    let names: BTreeMap<u64, String> = contexts["contexts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["id"].as_u64().unwrap(), row["name"].as_str().unwrap().to_owned()))
        .collect();
    let mut seen = Sums::new();
    let mut workers: BTreeMap<String, std::collections::BTreeSet<u64>> = BTreeMap::new();
    for line in heaptrace(&["dump", "--no-symbols"]).lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let size = event["size"].as_u64().unwrap_or(0);
        if !(1 << 20..(1 << 20) + 10).contains(&size) {
            continue;
        }
        let context = names[&event["context"].as_u64().unwrap_or_else(|| panic!("{event}"))].clone();
        let sum = seen.entry(context.clone()).or_default();
        match event["kind"].as_str() {
            Some("alloc") => {
                *sum = [sum[0] + 1, sum[1] + size, sum[2] + 1, sum[3] + size];
                workers.entry(context).or_default().insert(event["thread"].as_u64().unwrap());
            }
            Some("free") => *sum = [sum[0], sum[1], sum[2] - 1, sum[3] - size],
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen, traced);
    assert!(workers.values().any(|threads| threads.len() > 1), "tasks stay on one worker: {workers:?}");
}
