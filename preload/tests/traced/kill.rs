//! A killed program's recording holds everything that it had completed.

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::recording::Recording;
use crate::run::{compile, traced};

#[test]
fn nothing_completed_is_missing_after_a_kill() {
    let program = compile("until_killed");
    for delay_ms in [1, 7, 40, 150, 333] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut shared = tempfile::NamedTempFile::new().expect("a temporary file");
        shared.write_all(&[0; 4096]).expect("writable");
        let counter = |at| {
            let mut bytes = [0; 8];
            shared.as_file().read_exact_at(&mut bytes, at).expect("readable");
            u64::from_le_bytes(bytes)
        };
        let mut child = traced(&program, folder.path()).arg(shared.path()).spawn().expect("it starts");
        while counter(0) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(delay_ms));
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        let path = std::fs::read_dir(folder.path())
            .expect("readable")
            .map(|entry| entry.expect("an entry").path())
            .find(|path| path.extension().is_some_and(|extension| extension == "dat"))
            .expect("a recording");
        let recording = Recording::read(&path);
        assert!(recording.end.is_none());
        let heap = recording.heap();
        let (allocs, frees) = (counter(0), counter(8));
        assert!((allocs..=allocs + 1).contains(&heap.allocs.0), "{allocs} {heap:?}");
        assert!((frees..=frees + 1).contains(&heap.frees), "{frees} {heap:?}");
        assert_eq!(heap.unmatched, 0);
    }
}
