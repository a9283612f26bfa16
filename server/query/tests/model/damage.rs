//! Cut and damaged recordings: they open, and say what is missing.

use std::ops::Range;

use proptest::prelude::*;
use tracehound_format::block::{BlockHeader, BlockKind};
use tracehound_format::header::FileHeader;
use tracehound_index::{Cancel, What};
use tracehound_ingest::{OpenError, Recording};
use tracehound_query::{flamegraph, info, timeline};

use crate::ask::{fine, options};
use crate::program;
use crate::script;
use crate::symbols::Names;

/// Where the blocks of an undamaged recording lie.
fn blocks(bytes: &[u8]) -> Vec<(Range<usize>, BlockHeader)> {
    let mut at = FileHeader::LEN;
    std::iter::from_fn(|| {
        let header = BlockHeader::decode(bytes.get(at..at + BlockHeader::LEN)?).unwrap();
        let start = at;
        at += BlockHeader::LEN + header.stored_len as usize;
        Some((start..at, header))
    })
    .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_recording_cut_anywhere_opens(script in script::script(120), cut in 0.0..1.0, fine in fine()) {
        let folder = tempfile::tempdir().unwrap();
        let written = program::run(&script);
        let len = (written.bytes.len() as f64 * cut) as usize;
        let path = program::store(folder.path(), &written.bytes[..len]);
        match Recording::open(&path, options(fine)) {
            Ok(recording) => {
                prop_assert!(len >= FileHeader::LEN);
                let trace = recording.trace();
                let info = info::run(&trace);
                prop_assert!(!info.complete);
                prop_assert!(info.allocations.count <= written.truth.allocs.len() as u64);
                let graph = flamegraph::run(&trace, &Names, &flamegraph::FlamegraphParams::default(), &Cancel::new()).unwrap();
                prop_assert_eq!(graph.total as u64, info.leaked.bytes);
            }
            Err(OpenError::Format { .. }) => prop_assert!(len < FileHeader::LEN),
            Err(e) => panic!("{e}"),
        }
    }

    /// 200 bytes destroyed cost at most the blocks that they hit, and every record that is gone is counted.
    #[test]
    fn destroyed_bytes_cost_their_blocks(script in script::script(200), at in 0.0..1.0, fill: u8, fine in fine()) {
        let folder = tempfile::tempdir().unwrap();
        let mut written = program::run(&script);
        let whole = written.bytes.clone();
        let start = FileHeader::LEN + ((whole.len() - FileHeader::LEN) as f64 * at) as usize;
        let end = (start + 200).min(whole.len());
        written.bytes[start..end].fill(fill);
        prop_assume!(whole != written.bytes);
        let path = program::store(folder.path(), &written.bytes);
        let trace = Recording::open(&path, options(fine)).unwrap().trace();
        let info = info::run(&trace);
        prop_assert!(!info.complete);
        let blocks = blocks(&whole);
        let hit: Vec<_> = blocks.iter().filter(|b| whole[b.0.clone()] != written.bytes[b.0.clone()]).collect();
        prop_assert!(info.exactness.damaged_blocks >= 1);
        prop_assert!(info.exactness.damaged_blocks <= hit.len() as u64, "{} of {}", info.exactness.damaged_blocks, hit.len());
        let records = |kind| hit.iter().filter(|b| b.1.kind == kind).map(|b| u64::from(b.1.count)).sum::<u64>();
        let gone = records(BlockKind::Events);
        if records(BlockKind::End) == 0 {
            prop_assert_eq!(info.exactness.lost_events, gone);
        } else {
            // The totals are gone, too: what was lost behind the last block of a thread cannot be known.
            prop_assert!(info.exactness.lost_events <= gone);
        }
        // What was not hit is there.
        let all: u64 = blocks.iter().filter(|b| b.1.kind == BlockKind::Events).map(|b| u64::from(b.1.count)).sum();
        let gaps = trace.events(trace.everything()).filter(|e| matches!(e.what, What::Lost { .. })).count() as u64;
        prop_assert_eq!(trace.facts().events.total, all - gone + gaps);
        // Every answer says so.
        let graph = flamegraph::run(&trace, &Names, &flamegraph::FlamegraphParams::default(), &Cancel::new()).unwrap();
        prop_assert_eq!(&graph.exactness, &info.exactness);
        let series = timeline::run(&trace, &Names, &timeline::TimelineParams::default(), &Cancel::new()).unwrap();
        prop_assert_eq!(&series.exactness, &info.exactness);
    }

    #[test]
    fn hostile_bytes_never_panic(script in script::script(60), changes in prop::collection::vec((0.0..1.0, any::<u8>()), 0..40)) {
        let folder = tempfile::tempdir().unwrap();
        let mut written = program::run(&script);
        let len = written.bytes.len();
        for (at, value) in changes {
            let at = FileHeader::LEN + ((len - FileHeader::LEN - 1) as f64 * at) as usize;
            written.bytes[at] = value;
        }
        let path = program::store(folder.path(), &written.bytes);
        let trace = Recording::open(&path, options((4, 9, 12))).unwrap().trace();
        let _ = trace.events(trace.everything()).count();
    }
}
