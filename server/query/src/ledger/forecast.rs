//! Forecast of what `malloc_trim(0)` would give back: glibc frees every whole page inside a free chunk of every arena,
//! and the end of the main heap.

use std::ops::Range;

use super::regions::{Region, RegionKind};
use crate::live_blocks::PlacedBlock;
use tracehound_index::block_extents::{AllocatorModel, is_glibc_mapping};
use tracehound_index::looks::PageMap;

/// Bytes of a free chunk that glibc keeps: its header and links (`struct malloc_chunk`).
const CHUNK_HEADER: u64 = 48;
/// Smallest chunk, which stays as the top.
const LEAST_TOP: u64 = 32;
/// What a heap of an arena begins with (`struct heap_info` and, in its first one, `struct malloc_state`), about.
const ARENA_HEADER: u64 = 0x8d0;

/// Resident bytes that would be given back.
pub fn trim(map: &PageMap, regions: &[Region], blocks: &[PlacedBlock]) -> u64 {
    let resident = ResidentBytes::new(map);
    let page = map.page_bytes;
    let up = |address: u64| address.checked_next_multiple_of(page).unwrap_or(u64::MAX);
    let down = |address: u64| address - address % page;
    let mut given_back = 0;
    for region in regions.iter().filter(|region| region.kind == RegionKind::Heap) {
        let is_main = region.name == "main heap";
        let first = blocks.partition_point(|block| block.start < region.start);
        let inside = blocks.get(first..).unwrap_or_default();
        let inside = &inside[..inside.partition_point(|block| block.start < region.end)];
        // Blocks with mappings of their own are in no arena.
        let mut chunks = inside.iter().filter(|block| !is_glibc_mapping(block.start, block.size)).peekable();
        if chunks.peek().is_none() && !is_main {
            continue;
        }
        let mut free_from = region.start + if is_main { 0 } else { ARENA_HEADER };
        for block in chunks {
            let extent = AllocatorModel::Glibc.extent(block.start, block.size);
            // The free chunk begins a word before its size field, and ends where the next one begins.
            let (from, to) = (up(free_from.saturating_add(CHUNK_HEADER - 8)), down(block.start.saturating_sub(16)));
            if from < to {
                given_back += resident.within(from..to);
            }
            free_from = free_from.max(extent.end);
        }
        if is_main {
            let from = up(free_from.saturating_add(LEAST_TOP));
            if from < region.end {
                given_back += resident.within(from..region.end);
            }
        }
    }
    given_back
}

/// Index of resident bytes by address.
struct ResidentBytes {
    /// Start, end, and resident bytes before, of each run of resident pages.
    runs: Vec<(u64, u64, u64)>,
}

impl ResidentBytes {
    fn new(map: &PageMap) -> Self {
        let mut before = 0;
        let mut runs = Vec::new();
        for run in map.runs.iter().filter(|run| run.state.is_resident()) {
            runs.push((run.start, run.start + run.len, before));
            before += run.len;
        }
        Self { runs }
    }

    /// Resident bytes below an address.
    fn below(&self, address: u64) -> u64 {
        let at = self.runs.partition_point(|run| run.0 < address);
        let last = at.checked_sub(1).and_then(|at| self.runs.get(at));
        last.map_or(0, |&(start, end, before)| before + address.min(end) - start)
    }

    fn within(&self, range: Range<u64>) -> u64 {
        self.below(range.end).saturating_sub(self.below(range.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracehound_format::look::{PageRun, PageState};

    #[test]
    fn resident_bytes_are_added_up() {
        let run = |start, len, state| PageRun { mapping: 0, start, len, state };
        let runs = vec![
            run(10, 10, PageState::Anonymous),
            run(20, 10, PageState::Absent),
            run(30, 10, PageState::File),
            run(40, 5, PageState::Zero),
        ];
        let resident = ResidentBytes::new(&PageMap { runs, ..PageMap::default() });
        for (range, bytes) in [(0..100, 20), (15..35, 10), (20..30, 0), (12..14, 2), (0..10, 0), (41..50, 0)] {
            assert_eq!(resident.within(range.clone()), bytes, "{range:?}");
        }
    }
}
