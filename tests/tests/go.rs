//! Stacks of C code that Go calls: all functions that Go itself names.

use std::collections::HashMap;
use std::process::Command;

use serde_json::Value;
use tracehound_tests::{dump_with, heaptrace, json as ask, root};

/// Go's names of the functions, without those that Go does not show: what the compiler makes to pass arguments on, and
/// what calls C. The linker marks functions of assembler by `.abi0`.
fn functions_of_go(event: &Value) -> Vec<String> {
    let frames = event["stack"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names = frames.iter().map(|frame| frame["function"].as_str().unwrap_or("?"));
    let outer = names.skip_while(|name| !name.starts_with("main._Cfunc_")).skip(1);
    outer
        .filter(|name| !name.split('.').any(|part| part.starts_with("gowrap")))
        .map(|name| name.trim_end_matches(".abi0").to_owned())
        .collect()
}

#[test]
fn stacks_are_those_that_go_itself_prints() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(root().join("tests/programs/stacks.go"), folder.path().join("main.go")).unwrap();
    // Also as a program that is loaded anywhere, where threads' variables are found in another way.
    // With unwind information that can be read, which says nothing of the switch.
    let builds = [
        ("whole", ["-ldflags=", "-buildmode=exe"]),
        ("bare", ["-ldflags=-w", "-buildmode=pie"]),
        ("uncompressed", ["-ldflags=-compressdwarf=false", "-buildmode=exe"]),
    ];
    for (name, options) in builds {
        let mut build = Command::new("go");
        build.arg("build").args(options).args(["-o", name, "main.go"]).current_dir(folder.path());
        let built = build.env("CGO_ENABLED", "1").output().expect("go is installed by tests/needs.sh");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let path = folder.path().join(format!("{name}.dat"));
        let mut run = Command::new(heaptrace());
        run.args(["run", "-o"]).arg(&path).arg("--").arg(folder.path().join(name));
        let output = run.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let expected: HashMap<u64, Vec<&str>> = text
            .lines()
            .filter_map(|line| {
                let (size, names) = line.split_once(' ')?;
                Some((size.parse().ok()?, names.split(' ').collect()))
            })
            .collect();
        assert!(expected.len() > 1000, "{}", expected.len());
        let longest = expected.values().map(Vec::len).max();
        assert!(longest > Some(100), "{longest:?}");

        let mut seen = 0;
        for event in dump_with(&["--frames", "all"], &path) {
            let size = event["size"].as_u64().unwrap_or(0);
            if let Some(names) = expected.get(&size).filter(|_| event["kind"] == "alloc") {
                let found = functions_of_go(&event);
                if names.contains(&"main.allocate_in_go") {
                    // Through C and back: Go does not name what is between.
                    let of_program = |name: &&str| name.starts_with("main.");
                    let found = found.iter().map(String::as_str).filter(of_program);
                    assert_eq!(found.collect::<Vec<_>>(), names.iter().copied().filter(of_program).collect::<Vec<_>>());
                } else {
                    assert_eq!(found, *names, "{name}, {size} bytes");
                }
                seen += 1;
            }
        }
        assert_eq!(seen, expected.len(), "{name}");
        let info = ask(&["info"], &path);
        let remarks = info["remarks"].as_array().unwrap();
        assert!(!remarks.iter().any(|remark| remark["topic"] == "missing-frames"), "{name}: {remarks:?}");
    }
}
