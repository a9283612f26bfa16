//! `heaptrace run --names`: generated code that takes the place of other generated code has a name of its own, by the time
//! of the event.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use tracehound_tests::{heaptrace, json as ask, number};

/// Functions that are made, called once, and dropped.
const FUNCTIONS: u64 = 1500;

/// Each allocates a size of its own. The collector removes them now and then, and other code is put at their addresses;
/// without `--no-compilation-cache` node keeps them.
const NODE: &str = "
const vm = require('vm');
let sum = 0;
for (let number = 0; number < FUNCTIONS; number++) {
  const source = `(function made${number}() { return Buffer.allocUnsafeSlow(${700000 + number}).length; })`;
  sum += vm.runInThisContext(source, { filename: `made${number}.js` })();
  if (number % 20 === 19) gc();
}
console.log(sum);
";

fn record(folder: &TempDir, command: &[&str]) -> PathBuf {
    let path = folder.path().join("replaced.dat");
    let mut run = Command::new(heaptrace());
    run.args(["run", "--names", "-o"]).arg(&path).arg("--").args(command).current_dir(folder.path());
    run.env_remove("NODE_EXTRA_CA_CERTS");
    let output = run.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let pid = number(&ask(&["info"], &path), "/process/pid");
    let _ = std::fs::remove_file(format!("/tmp/perf-{pid}.map"));
    path
}

/// By size, the names of the frames whose functions contain "made", of allocations of at least 700,000 bytes.
fn names(path: &Path) -> BTreeMap<u64, Vec<String>> {
    let query = "SELECT a.size, s.function FROM allocations a LEFT JOIN stacks s ON s.stack = a.stack AND s.function LIKE \
                 '%made%' WHERE a.size >= 700000 ORDER BY a.row, s.depth";
    let output = Command::new(heaptrace()).args(["sql", "--json"]).arg(path).arg(query).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut found: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for row in answer["rows"].as_array().expect("rows") {
        let names = found.entry(row["size"].as_u64().expect("a size")).or_default();
        names.extend(row["function"].as_str().map(str::to_owned));
    }
    found
}

#[test]
fn functions_where_others_were_are_not_taken_for_them() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("made.js"), NODE.replace("FUNCTIONS", &FUNCTIONS.to_string())).unwrap();
    let path = record(&folder, &["node", "--expose-gc", "--no-compilation-cache", "made.js"]);
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    let is_log = |name: &OsString| [".dump", ".log"].iter().any(|end| name.to_string_lossy().ends_with(end));
    assert!(!left.iter().any(is_log), "{left:?}");
    // As on another machine, and beside an index that knows no names.
    let copy = folder.path().join("elsewhere.dat");
    std::fs::copy(&path, &copy).unwrap();
    let found = names(&copy);
    assert_eq!(found, names(&path));
    let (mut certain, mut uncertain) = (0, 0);
    for number in 0..FUNCTIONS {
        let names = found.get(&(700_000 + number)).unwrap_or_else(|| panic!("nothing has {number}'s size"));
        // The function, and nothing else that was made: the script around it has returned.
        let [name] = &**names else { panic!("{number}: {names:?}") };
        if name.contains("not certain") {
            uncertain += 1;
        } else {
            assert_eq!(*name, format!("made{number}"));
            certain += 1;
        }
    }
    println!("{certain} functions have their name, {uncertain} are not certain");
    assert!(certain * 100 >= FUNCTIONS * 95, "{certain} of {FUNCTIONS}");
    // There were fewer places than functions: without times, names would be wrong or many.
    let locations = pieces(&path);
    println!("{locations} records of replaced code");
    assert!(locations > FUNCTIONS as usize / 4, "{locations}");
}

#[test]
fn what_the_user_has_asked_node_for_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("made.js"), NODE.replace("FUNCTIONS", "40")).unwrap();
    record(&folder, &["node", "--expose-gc", "--prof", "--perf-prof", "made.js"]);
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    for end in ["-v8.log", ".dump"] {
        assert!(names.iter().any(|name| name.to_string_lossy().ends_with(end)), "{end} of {names:?}");
    }
}

/// V8 prints its log where it cannot write it.
#[test]
fn a_folder_that_cannot_be_written_adds_nothing_to_the_output() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Command::new(heaptrace());
    run.args(["run", "--names", "-o"]).arg(folder.path().join("a.dat"));
    run.args(["--", "node", "-e", "console.log('done')"]).current_dir("/proc").env_remove("NODE_EXTRA_CA_CERTS");
    let output = run.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n");
    assert!(said.contains("node gets no names"), "{said}");
}

/// The records of replaced code in a recording.
fn pieces(path: &Path) -> usize {
    use tracehound_format::block::{BlockHeader, BlockKind};
    let bytes = std::fs::read(path).unwrap();
    let mut at = tracehound_format::header::FileHeader::LEN;
    let (mut count, mut raw) = (0, Vec::new());
    while at + BlockHeader::LEN <= bytes.len() {
        let header = BlockHeader::decode(&bytes[at..at + BlockHeader::LEN]).unwrap();
        let payload = &bytes[at + BlockHeader::LEN..][..header.stored_len as usize];
        if header.kind == BlockKind::Meta {
            header.open_payload(payload, &mut raw, tracehound_index::payload::unzstd).unwrap();
            count += tracehound_format::meta::Frames::new(&raw).flatten().filter(|&(tag, _)| tag == 33).count();
        }
        at += BlockHeader::LEN + payload.len();
    }
    count
}
