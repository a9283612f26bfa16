//! heaptrack's recordings, imported; and what comes out, opened.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tracehound_fuzz::recordings;
use tracehound_imports::heaptrack::import;
use tracehound_ingest::{IndexPlace, OpenOptions, Recording};

fuzz_target!(|input: &[u8]| {
    // Bombs: the importer reads streams of any length, as it must.
    if input.starts_with(&[0x1f, 0x8b]) || input.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return;
    }
    let mut out = Vec::new();
    let Ok((imported, _names)) = import(input, &mut out) else { return };
    assert_eq!(imported.bytes, out.len() as u64);
    // To index is slow: only what is small and has changed blocks.
    if imported.allocs == 0 || input.len() > 4096 {
        return;
    }
    let folder = recordings::folder();
    let path = folder.path().join("imported.dat");
    std::fs::write(&path, &out).expect("the recording can be written");
    let options = OpenOptions {
        index: IndexPlace::In(folder.path().join("index")),
        live_bytes: 1 << 20,
        ..OpenOptions::default()
    };
    let trace = Recording::open(&path, options).expect("what was imported opens").trace();
    let lengths = &trace.facts().lengths;
    assert_eq!(lengths.allocs, imported.allocs, "every allocation is in the index");
});
