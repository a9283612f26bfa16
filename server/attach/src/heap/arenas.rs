//! Arenas: where they are, and in which regions their chunks lie.
//!
//! The main arena has no exported symbol. It is found by what no other data looks like: a table of 127 bins of which the
//! empty ones point to themselves, behind it a ring of arenas that leads back to it.

use super::HeapSurroundings;
use super::reader::WordReader;

/// Bins of an arena.
const BINS: u64 = 127;
/// Bins that must be empty, for the table to be one: the large ones hardly ever are in use, all at once never.
const EMPTY_BINS: u64 = 8;
/// Arenas, and heaps of one arena, that are followed.
const MOST: usize = 1 << 16;
/// Distance of the heaps of other arenas than the main one (`HEAP_MAX_SIZE`).
const HEAP_STEP: u64 = 64 << 20;

/// Places in `struct malloc_state`, by glibc's version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ArenaLayout {
    pub fast_bins: u64,
    top: u64,
    bins: u64,
    next: u64,
    len: u64,
}

const LAYOUTS: [ArenaLayout; 2] = [
    // 2.27 and later.
    ArenaLayout { fast_bins: 16, top: 96, bins: 112, next: 2160, len: 2200 },
    // Before.
    ArenaLayout { fast_bins: 8, top: 88, bins: 104, next: 2152, len: 2192 },
];

/// Consecutive chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkRegion {
    /// The first chunk.
    pub first: u64,
    /// No chunk reaches beyond.
    pub end: u64,
    /// Whether `first` is only where the search for the first chunk begins.
    pub is_uncertain: bool,
}

/// An arena.
#[derive(Debug, Clone)]
pub(super) struct Arena {
    pub at: u64,
    pub layout: ArenaLayout,
    /// The chunk at its end, which is free; 0: it has none.
    pub top: u64,
    pub regions: Vec<ChunkRegion>,
}

/// All arenas of a process.
#[derive(Debug)]
pub(super) struct Arenas {
    pub all: Vec<Arena>,
}

impl Arenas {
    pub fn find(reader: &mut WordReader<'_>, around: &HeapSurroundings, gaps: &mut Vec<String>) -> Option<Self> {
        let ranges = around.libc_data.iter();
        let places = ranges.flat_map(|range| (range.start.next_multiple_of(8)..range.end).step_by(8));
        let (main, layout) = places
            .flat_map(|at| LAYOUTS.map(|layout| (at, layout)))
            .find(|&(at, layout)| is_main_arena(reader, at, layout))?;
        let mut all = Vec::new();
        let mut at = main;
        for _ in 0..MOST {
            let Some(arena) = Arena::read(reader, around, at, layout, at == main) else {
                gaps.push("an arena cannot be read".into());
                break;
            };
            all.push(arena);
            at = reader.word(at + layout.next)?;
            if at == main {
                return Some(Self { all });
            }
        }
        gaps.push("the list of arenas does not end".into());
        Some(Self { all })
    }
}

/// Whether an arena's bins are at `at`, and a ring of arenas goes through it.
fn is_main_arena(reader: &mut WordReader<'_>, at: u64, layout: ArenaLayout) -> bool {
    let bin = |number: u64| at + layout.bins + number * 16;
    // The last bin holds the very largest chunks.
    let Some(next) = reader.word(at + layout.next).filter(|&next| next != 0 && next.is_multiple_of(8)) else {
        return false;
    };
    let mut empty = 0;
    for number in 0..BINS {
        let own = bin(number) - 16;
        let (Some(first), Some(last)) = (reader.word(bin(number)), reader.word(bin(number) + 8)) else { return false };
        match (first == own, last == own) {
            (true, true) => empty += 1,
            (false, false) if reader.may_be_chunk(first) && reader.may_be_chunk(last) => {}
            _ => return false,
        }
    }
    // A table that begins one bin later has the next arena elsewhere.
    empty >= EMPTY_BINS && (next == at || reader.writable(next).is_some())
}

impl Arena {
    fn read(
        reader: &mut WordReader<'_>,
        around: &HeapSurroundings,
        at: u64,
        layout: ArenaLayout,
        is_main: bool,
    ) -> Option<Self> {
        reader.writable(at)?;
        let top = reader.word(at + layout.top)?;
        // At first the top is the place of an empty bin.
        let top = if top == at + layout.bins - 16 { 0 } else { top };
        let mut arena = Self { at, layout, top, regions: Vec::new() };
        if top == 0 {
            return Some(arena);
        }
        if is_main {
            arena.regions = main_regions(reader, around, top);
        } else {
            arena.regions = arena.heaps(reader)?;
        }
        Some(arena)
    }

    /// `heap_info`: arena, heap before it, bytes.
    fn heaps(&self, reader: &mut WordReader<'_>) -> Option<Vec<ChunkRegion>> {
        let first_heap = self.at & !(HEAP_STEP - 1);
        let header = self.at - first_heap;
        let mut regions = Vec::new();
        let mut heap = self.top & !(HEAP_STEP - 1);
        for _ in 0..MOST {
            if reader.word(heap)? != self.at {
                return None;
            }
            let len = reader.word(heap + 16)?;
            if len > HEAP_STEP {
                return None;
            }
            let first = if heap == first_heap { self.at + self.layout.len } else { heap + header };
            regions.push(ChunkRegion { first: first.next_multiple_of(16), end: heap + len, is_uncertain: false });
            heap = reader.word(heap + 8)?;
            if heap == 0 {
                return Some(regions);
            }
        }
        None
    }
}

/// The main arena grows with the program break; where that cannot grow, in mappings.
fn main_regions(reader: &WordReader<'_>, around: &HeapSurroundings, top: u64) -> Vec<ChunkRegion> {
    let heap = around.mappings.iter().filter(|mapping| mapping.path == "[heap]");
    let bounds = heap.fold(None, |bounds: Option<(u64, u64)>, mapping| {
        let (start, end) = bounds.unwrap_or((mapping.range.start, 0));
        Some((start.min(mapping.range.start), end.max(mapping.range.end)))
    });
    let mut regions = Vec::new();
    if let Some((start, end)) = bounds {
        // The break may begin on the last page of the program's data.
        let near = around.break_start != 0 && start.abs_diff(around.break_start) <= 4096;
        let first = if near { around.break_start } else { start };
        regions.push(ChunkRegion { first: first.next_multiple_of(16), end, is_uncertain: true });
    }
    let is_inside = regions.iter().any(|region| (region.first..region.end).contains(&top));
    if let (false, Some(mapping)) = (is_inside, reader.writable(top)) {
        let end = reader.writable_end(top).unwrap_or(mapping.range.end);
        regions.push(ChunkRegion { first: mapping.range.start, end, is_uncertain: true });
    }
    regions
}
