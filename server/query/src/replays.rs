//! Results of `heaptrace replay`, kept beside the index for later queries.

use tracehound_api::replay::{Replay, ReplayRow};
use tracehound_index::Trace;
use tracehound_index::kept::KeptKind;

/// As JSON, since documents leave out what they have not.
const KEPT: KeptKind = KeptKind { name: "replay", version: 1 };

/// All that was replayed, an allocator with its settings once.
#[must_use]
pub fn find(trace: &Trace) -> Option<Replay> {
    trace.find_kept::<String>(KEPT).and_then(|text| serde_json::from_str(&text).ok())
}

/// Adds what was replayed to what is there; of the same allocator and settings the new row counts.
pub fn keep(trace: &Trace, replay: &Replay) {
    let mut all = replay.clone();
    let is_new = |old: &ReplayRow| !replay.rows.iter().any(|row| is_same(row, old));
    all.rows.extend(find(trace).into_iter().flat_map(|before| before.rows).filter(is_new));
    if let Ok(text) = serde_json::to_string(&all) {
        trace.keep(KEPT, text);
    }
}

fn is_same(a: &ReplayRow, b: &ReplayRow) -> bool {
    (&a.allocator, &a.settings) == (&b.allocator, &b.settings)
}

/// The row that would hold least at its peak, if that is a tenth less than was recorded.
#[must_use]
pub fn smaller(replay: &Replay) -> Option<&ReplayRow> {
    let rows = replay.rows.iter().filter(|row| row.failed.is_none());
    let best = rows.min_by_key(|row| row.peak_bytes[1])?;
    (u128::from(best.peak_bytes[1]) * 10 < u128::from(replay.recorded.peak_bytes) * 9).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tracehound_api::replay::RecordedMemory;

    #[test]
    fn the_smaller_row_is_a_tenth_smaller_at_least() {
        let row = |allocator: &str, most: u64, failed: Option<&str>| ReplayRow {
            allocator: allocator.into(),
            settings: BTreeMap::new(),
            peak_bytes: [most / 2, most],
            end_bytes: [0, 0],
            cpu_ns: 1,
            command: String::new(),
            failed: failed.map(str::to_owned),
        };
        let replay = |rows| Replay {
            schema: "heaptrace.replay/1".into(),
            recorded: RecordedMemory { allocator: "glibc 2.36".into(), peak_bytes: 1000, other_bytes: 10 },
            self_check: None,
            rows,
        };
        assert_eq!(smaller(&replay(vec![row("a", 900, None)])), None);
        let many = replay(vec![row("a", 899, None), row("b", 700, None), row("c", 0, Some("it ended"))]);
        assert_eq!(smaller(&many).map(|row| row.allocator.as_str()), Some("b"));
    }
}
