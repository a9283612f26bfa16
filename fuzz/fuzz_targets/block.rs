//! The blocks of a recording, each with its checksums put right: headers, payloads, nodes, events, metadata.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tracehound_format::block::{BlockHeader, BlockKind, find_sync};
use tracehound_format::columns::{Decoder, RecordColumns};
use tracehound_format::header::FileHeader;
use tracehound_format::meta::{Frames, decode_body};
use tracehound_format::nodes;
use tracehound_fuzz::recordings;
use tracehound_index::payload::unzstd;

fuzz_target!(|input: &[u8]| {
    let mut bytes = input.to_vec();
    recordings::repair(&mut bytes);
    let _ = FileHeader::decode(&bytes);
    let (mut raw, mut columns, mut decoder) = (Vec::new(), RecordColumns::default(), Decoder::new());
    let mut rest = bytes.get(FileHeader::LEN..).unwrap_or_default();
    while let Some(at) = find_sync(rest) {
        rest = &rest[at..];
        let Ok(header) = BlockHeader::decode(rest) else {
            rest = &rest[1..];
            continue;
        };
        assert_eq!(BlockHeader::decode(&header.encode()), Ok(header), "a header comes back");
        rest = &rest[BlockHeader::LEN..];
        let stored = &rest[..(header.stored_len as usize).min(rest.len())];
        rest = &rest[stored.len()..];
        // A fuzzer would have us fill 64 MiB again and again.
        if header.raw_len > 1 << 20 || header.open_payload(stored, &mut raw, unzstd).is_err() {
            continue;
        }
        match header.kind {
            BlockKind::Events => {
                let _ = decoder.decode(&raw, header.count, header.first_tick, &mut columns);
            }
            BlockKind::Nodes => {
                let _ = nodes::decode(header.first_record as u32, header.count, &raw);
            }
            BlockKind::Meta | BlockKind::End => {
                for (tag, body) in Frames::new(&raw).flatten() {
                    let _ = decode_body(tag, body);
                }
            }
            _ => {}
        }
    }
});
