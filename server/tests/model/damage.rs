//! Cut and damaged recordings: they open, and say what is missing.

use proptest::prelude::*;
use tracehound_format::header::FileHeader;
use tracehound_server::ingest::{OpenError, Recording};
use tracehound_server::query::{flamegraph, info};
use tracehound_server::trace::Cancel;

use crate::check::{fine, options};
use crate::script;
use crate::symbols::Names;

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_recording_cut_anywhere_opens(script in script::script(120), cut in 0.0..1.0, fine in fine()) {
        let folder = tempfile::tempdir().unwrap();
        let written = script::run(&script);
        let len = (written.bytes.len() as f64 * cut) as usize;
        let path = script::store(folder.path(), &written.bytes[..len]);
        match Recording::open(&path, options(fine)) {
            Ok(recording) => {
                prop_assert!(len >= FileHeader::LEN);
                let trace = recording.trace();
                let info = info::run(&trace);
                prop_assert!(!info.complete);
                prop_assert!(info.allocations.count <= written.truth.births.len() as u64);
                let graph = flamegraph::run(&trace, &Names, &flamegraph::Params::default(), &Cancel::new()).unwrap();
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
        let mut written = script::run(&script);
        let start = FileHeader::LEN + ((written.bytes.len() - FileHeader::LEN) as f64 * at) as usize;
        let end = (start + 200).min(written.bytes.len());
        let before = written.bytes[start..end].to_vec();
        written.bytes[start..end].fill(fill);
        prop_assume!(before != written.bytes[start..end]);
        let path = script::store(folder.path(), &written.bytes);
        let trace = Recording::open(&path, options(fine)).unwrap().trace();
        let info = info::run(&trace);
        prop_assert!(!info.complete);
        prop_assert!(info.exactness.damaged_blocks >= 1);
        let total: usize = trace.events(trace.everything()).count();
        prop_assert!(total <= written.truth.order.len() * 2 + 10);
    }

    #[test]
    fn hostile_bytes_never_panic(script in script::script(60), changes in prop::collection::vec((0.0..1.0, any::<u8>()), 0..40)) {
        let folder = tempfile::tempdir().unwrap();
        let mut written = script::run(&script);
        let len = written.bytes.len();
        for (at, value) in changes {
            let at = FileHeader::LEN + ((len - FileHeader::LEN - 1) as f64 * at) as usize;
            written.bytes[at] = value;
        }
        let path = script::store(folder.path(), &written.bytes);
        let trace = Recording::open(&path, options((4, 9, 12))).unwrap().trace();
        let _ = trace.events(trace.everything()).count();
    }
}
