//! Side files: the header, the rest of every chunk, and the nodes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tracehound_format::live::{HEADER_BYTES, MAGIC, offset};
use tracehound_fuzz::recordings;
use tracehound_ingest::side_file::{SideFile, path_of};

fuzz_target!(|input: &[u8]| {
    let mut bytes = input.to_vec();
    if bytes.len() >= HEADER_BYTES {
        bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
        bytes[offset::RECORDING_ID..offset::RECORDING_ID + 16].fill(7);
    }
    let folder = recordings::folder();
    let path = folder.path().join("a.dat");
    std::fs::write(path_of(&path), &bytes).expect("the side file can be written");
    let Some(side) = SideFile::open(&path, [7; 16]) else { return };
    if let Ok(rests) = side.rest() {
        let room = bytes.len() / 24;
        assert!(rests.iter().all(|rest| rest.columns.len() <= room), "no more records than bytes");
    }
    let mut nodes = 0_usize;
    let _ = side.nodes(1, |_, _| nodes += 1);
    assert!(nodes <= bytes.len() / 16, "no more nodes than bytes");
    let file = std::fs::File::open(path_of(&path)).expect("the side file is there");
    let _ = side.is_process_alive(&file);
});
