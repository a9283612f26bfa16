//! Blocks that were in the heap before recording began, by `heaptrace attach --existing`. They are kept with the events
//! that are neither allocations nor frees of recorded blocks.

use std::collections::HashMap;

use tracehound_format::record::Kind;

use super::Trace;
use super::places::Position;

impl Trace {
    /// Those that had not been freed at a place: address and bytes, by address.
    #[must_use]
    pub fn existing_blocks(&self, place: Position) -> Vec<(u64, u64)> {
        if self.facts().events.existing.count == 0 {
            return Vec::new();
        }
        let c = self.columns();
        let count = c.other_position.partition_point(|&position| position <= place.events());
        let mut live = HashMap::new();
        let events = c.other_kind.iter().zip(c.other_a.iter()).zip(c.other_b.iter()).take(count);
        for ((&kind, &address), &size) in events {
            match Kind::from_u8(kind) {
                Some(Kind::ExistingBlock) => {
                    live.insert(address, size);
                }
                // A free, the first half of a realloc, or an allocation at its address.
                Some(kind) if kind.is_free() || kind.is_realloc_from() || kind.is_alloc() => {
                    live.remove(&address);
                }
                _ => {}
            }
        }
        let mut blocks: Vec<(u64, u64)> = live.into_iter().collect();
        blocks.sort_unstable();
        blocks
    }
}
