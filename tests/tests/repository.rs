//! The repository keeps its own rules: arrows between crates and modules, no panics in the traced process, true paths
//! in the docs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tracehound_tests::root;

fn files_below(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() {
                if !["target", "node_modules", "dist", ".git"].iter().any(|skip| name == *skip) {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|e| e == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// What of a Rust file is no unit test.
fn without_tests(path: &Path) -> String {
    let mut text = read(path);
    let at = ["#[cfg(test)]", "#[cfg(all(test,"].iter().filter_map(|mark| text.find(mark)).min();
    text.truncate(if is_test_module(path) { 0 } else { at.unwrap_or(text.len()) });
    text
}

/// Whether the file is a module of unit tests: the one around it says so.
fn is_test_module(path: &Path) -> bool {
    let folder = path.parent().unwrap_or(path);
    let around = [folder.join("mod.rs"), folder.join("lib.rs"), folder.with_extension("rs")];
    let declares = |file: &PathBuf| std::fs::read_to_string(file).is_ok_and(|t| t.contains("#[cfg(test)]\nmod tests;"));
    path.ends_with("tests.rs") && around.iter().any(declares)
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

#[test]
fn crates_depend_only_downwards() {
    // preload → the collector's crates → format ← server; nobody depends on preload or heaptrace. What may stand in a manifest is said
    // here, so that an arrow more is a decision.
    let allowed: [(&str, &[&str]); 23] = [
        ("format", &[]),
        ("collector/shared", &["format"]),
        ("collector/unwind", &["format", "shared"]),
        ("collector/record", &["format", "shared", "unwind"]),
        ("collector/background", &["format", "shared"]),
        ("collector/lifecycle", &["background", "format", "record", "shared", "unwind"]),
        ("preload", &["background", "format", "lifecycle", "record", "shared", "unwind"]),
        ("preload/linked", &["background", "format", "lifecycle", "record", "shared", "unwind"]),
        ("bindings/rust", &[]),
        ("bindings/tracing", &[]),
        ("server/api", &[]),
        ("server/attach", &["format"]),
        ("server/index", &["api", "format"]),
        ("server/ingest", &["api", "format", "index"]),
        ("server/query", &["api", "format", "index"]),
        ("server/symbols", &["api", "format", "index"]),
        ("server/sql", &["api", "format", "index", "query"]),
        ("server/audit", &["api", "format", "index", "query", "symbols"]),
        ("server/page", &[]),
        ("server/exports", &["api", "audit", "format", "index", "page", "query", "symbols"]),
        ("server/imports", &["format", "symbols"]),
        (
            "server/heaptrace",
            &[
                "api", "attach", "audit", "exports", "format", "imports", "index", "ingest", "page", "query", "sql",
                "symbols",
            ],
        ),
        ("fleet", &["api", "audit", "exports", "format", "index", "ingest", "query", "symbols"]),
    ];
    let manifests = ["bindings", "collector", "fleet", "preload", "server"]
        .map(|folder| files_below(&root().join(folder), "toml"))
        .concat();
    for path in manifests.iter().filter(|path| path.ends_with("Cargo.toml")) {
        let folder = relative(path.parent().unwrap_or(path));
        assert!(allowed.iter().any(|(name, _)| *name == folder), "what may {folder} depend on?");
    }
    for (name, may_use) in allowed {
        let manifest = read(&root().join(name).join("Cargo.toml"));
        let dependencies = manifest.split("[dependencies]").nth(1).unwrap_or("");
        let dependencies = dependencies.split("\n[").next().unwrap_or("");
        let uses: Vec<&str> = dependencies
            .lines()
            .filter_map(|line| line.split(['.', ' ', '=']).next())
            .filter_map(|dependency| dependency.strip_prefix("tracehound-"))
            .collect();
        for dependency in uses {
            assert!(may_use.contains(&dependency), "{name} must not depend on {dependency}");
        }
    }
}

/// What is linked into the traced process.
const RECORDER: [&str; 6] = [
    "collector/background/src",
    "collector/lifecycle/src",
    "collector/record/src",
    "collector/shared/src",
    "collector/unwind/src",
    "preload/src",
];

/// No file below `folder` mentions any of `forbidden`, unit tests aside.
fn never_mentions(folder: &str, forbidden: &[&str]) {
    for path in files_below(&root().join(folder), "rs") {
        for (number, line) in without_tests(&path).lines().enumerate() {
            let code = line.split("//").next().unwrap_or("");
            for word in forbidden {
                assert!(!code.contains(word), "{}:{}: must not use {word}", relative(&path), number + 1);
            }
        }
    }
}

#[test]
fn modules_point_one_way() {
    never_mentions("server/heaptrace/src/http", &["crate::cli"]);
}

#[test]
fn the_traced_process_has_one_door_to_the_kernel() {
    let door = root().join("collector/shared/src/sys");
    for folder in RECORDER {
        for path in files_below(&root().join(folder), "rs").into_iter().filter(|path| !path.starts_with(&door)) {
            for (number, line) in without_tests(&path).lines().enumerate() {
                let code = line.split("//").next().unwrap_or("");
                assert!(!["\"syscall\",", "\"svc 0\","].contains(&code.trim()), "{}:{}", relative(&path), number + 1);
                for word in ["rustix", "libc::prctl(", "libc::mprotect(", "libc::syscall("] {
                    assert!(!code.contains(word), "{}:{}: {word}", relative(&path), number + 1);
                }
            }
        }
    }
}

#[test]
fn nothing_in_the_traced_process_can_panic_by_word() {
    let words = [".unwrap()", ".expect(", "panic!(", "todo!(", "unimplemented!(", "unreachable!(", "assert!("];
    for folder in RECORDER {
        for path in files_below(&root().join(folder), "rs") {
            for (number, line) in without_tests(&path).lines().enumerate() {
                let code = line.split("//").next().unwrap_or("");
                // An assertion in a constant is checked by the compiler.
                if code.contains("const _: () = assert!(") || code.contains("debug_assert!(") {
                    continue;
                }
                for word in words {
                    assert!(!code.contains(word), "{}:{}: {word}", relative(&path), number + 1);
                }
            }
        }
    }
}

#[test]
fn paths_named_in_the_docs_exist() {
    let mut documents = files_below(&root().join("docs"), "md");
    documents.extend(["README.md", "CHANGELOG.md", "CONTRIBUTING.md"].map(|name| root().join(name)));
    let folders: BTreeSet<&str> =
        ["collector", "docs", "fleet", "format", "preload", "server", "tests", "web"].into_iter().collect();
    let mut checked = 0;
    for document in documents {
        let text = read(&document);
        for span in text.split('`').skip(1).step_by(2) {
            let path = span.split(['#', ':', ' ']).next().unwrap_or("");
            let first = path.split('/').next().unwrap_or("");
            // Build results and patterns are not in the tree.
            if !folders.contains(first) || !path.contains('/') || path.contains(['*', '{', '<', '…', '%']) {
                continue;
            }
            if path.starts_with("web/dist") || path.starts_with("web/node_modules") {
                continue;
            }
            assert!(root().join(path).exists(), "{}: `{path}` does not exist", relative(&document));
            checked += 1;
        }
    }
    assert!(checked > 10, "only {checked} paths were checked: the pattern no longer fits the docs");
}

#[test]
fn every_direct_dependency_has_its_reason() {
    let list = read(&root().join("docs/dependencies.md"));
    let named: BTreeSet<&str> = list
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next())
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect();
    let manifest = read(&root().join("Cargo.toml"));
    let section = manifest.split("[workspace.dependencies]").nth(1).and_then(|rest| rest.split("\n[").next());
    let mut used: BTreeSet<String> = section
        .unwrap_or("")
        .lines()
        .filter_map(|line| Some(line.split_once(" = ")?.0.to_owned()))
        .filter(|name| !name.starts_with("tracehound-") && !name.starts_with('#'))
        .collect();
    let page: serde_json::Value = serde_json::from_str(&read(&root().join("web/package.json"))).expect("JSON");
    for kind in ["dependencies", "devDependencies"] {
        used.extend(page[kind].as_object().expect("an object").keys().cloned());
    }
    assert!(used.len() > 50, "only {} dependencies were found", used.len());
    for name in &used {
        assert!(named.contains(name.as_str()), "docs/dependencies.md does not say why {name} is there");
    }
    for name in named {
        assert!(used.contains(name), "docs/dependencies.md names {name}, which nothing depends on");
    }
}

#[test]
fn every_decision_is_in_the_index() {
    let index = read(&root().join("docs/decisions/README.md"));
    for path in files_below(&root().join("docs/decisions"), "md") {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        assert!(name == "README.md" || index.contains(&format!("({name})")), "docs/decisions/README.md lacks {name}");
    }
}
