//! What is mapped before recording begins.

use std::path::PathBuf;
use std::process::Command;

use tracehound_format::record::Kind;

use crate::recording::Recording;
use crate::run::{compile, library};

const MAPPED: u64 = 100 << 20;

#[test]
fn what_a_program_maps_first_was_not_there_before() {
    let program = compile("maps_at_once");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = folder.path().join("maps.dat");
    // Whoever reads the list of mappings takes long about it.
    let mut traced = Command::new("strace");
    traced.args(["-f", "-o", "/dev/null", "-e", "trace=openat", "-P", "/proc/thread-self/maps"]);
    traced.args(["-e", "inject=openat:delay_enter=30000"]);
    for (name, path) in [("LD_PRELOAD", library()), ("TRACEHOUND_OUTPUT", PathBuf::from(&output))] {
        traced.arg("-E").arg(format!("{name}={}", path.display()));
    }
    let run = traced.arg(&program).output().expect("strace is there");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let recording = Recording::read(&output);
    let is_map = |kind: Kind| recording.events.iter().filter(move |(_, record)| record.kind == kind as u8);
    let (_, mapped) = is_map(Kind::Mmap).find(|(_, r)| u64::from(r.size) == MAPPED).expect("the program's mapping");
    assert!(!recording.existing.is_empty());
    for record in recording.existing.iter().filter(|record| record.kind == Kind::MapExisting as u8) {
        let range = record.address..record.address + u64::from(record.size);
        assert!(!range.contains(&mapped.address), "{record:?} has {mapped:?}");
    }
}
