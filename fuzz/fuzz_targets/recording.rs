//! A recording with its side file: opened, indexed, and opened again by its index.
//!
//! ```text
//! input = length of the recording: u32 | recording | side file
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use tracehound_fuzz::recordings;
use tracehound_ingest::{IndexPlace, OpenOptions, Recording};

fuzz_target!(|input: &[u8]| {
    let Some((len, rest)) = input.split_first_chunk::<4>() else { return };
    let (recording, side) = rest.split_at((u32::from_le_bytes(*len) as usize).min(rest.len()));
    let mut recording = recording.to_vec();
    recordings::repair(&mut recording);
    let folder = recordings::folder();
    let path = folder.path().join("memory-fuzz-1.dat");
    std::fs::write(&path, &recording).expect("the recording can be written");
    if !side.is_empty() {
        let mut name = path.clone().into_os_string();
        name.push(".live");
        std::fs::write(name, side).expect("the side file can be written");
    }
    let options = || OpenOptions {
        index: IndexPlace::In(folder.path().join("index")),
        live_bytes: 1 << 20,
        ..OpenOptions::default()
    };
    let Ok(first) = Recording::open(&path, options()) else { return };
    let first = first.trace();
    let again = Recording::open(&path, options()).expect("what was indexed opens").trace();
    assert_eq!(first.facts().lengths, again.facts().lengths, "the index holds what was read");
});
