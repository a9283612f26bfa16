//! Heaps that are no heaps: whatever the memory says, the walk ends, and says so.

use std::ops::Range;

use proptest::prelude::*;

use super::*;

/// Some memory from [`BASE`] on.
struct Memory(Vec<u8>);

const BASE: u64 = 0x10_0000;

impl WordSource for Memory {
    fn read_up_to(&self, at: u64, len: usize) -> Vec<u8> {
        let Some(from) = at.checked_sub(BASE).and_then(|from| usize::try_from(from).ok()) else { return Vec::new() };
        let end = from.saturating_add(len).min(self.0.len());
        self.0.get(from..end).unwrap_or_default().to_vec()
    }
}

impl ProcessPages for Memory {
    fn present(&self, _: u64, count: u64) -> Vec<bool> {
        vec![true; count as usize]
    }

    fn heads(&self, pages: &[u64]) -> Vec<Option<[u64; 2]>> {
        let word = |at| self.read_up_to(at, 8).try_into().ok().map(u64::from_le_bytes);
        pages.iter().map(|&page| Some([word(page)?, word(page + 8)?])).collect()
    }
}

impl Memory {
    fn put(&mut self, at: u64, word: u64) {
        let from = (at - BASE) as usize;
        self.0[from..from + 8].copy_from_slice(&word.to_le_bytes());
    }
}

fn mapping(range: Range<u64>, path: &str) -> ProcessMapping {
    ProcessMapping { range, writable: true, executable: false, offset: 0, file: (String::new(), 0), path: path.into() }
}

const ARENA: u64 = BASE + 0x400;
const HEAP: u64 = BASE + 0x2000;
const END: u64 = BASE + 0x6000;
const THREAD: u64 = BASE + 0x7800;

/// A process with an arena of no blocks but what `fill` makes of it.
fn process(fill: impl FnOnce(&mut Memory)) -> (Memory, HeapSurroundings) {
    let mut memory = Memory(vec![0; 0x9000]);
    for number in 0..127 {
        let bin = ARENA + 112 + number * 16;
        memory.put(bin, bin - 16);
        memory.put(bin + 8, bin - 16);
    }
    memory.put(ARENA + 2160, ARENA);
    fill(&mut memory);
    let around = HeapSurroundings {
        mappings: vec![
            mapping(BASE..HEAP, "libc.so.6"),
            mapping(HEAP..END, "[heap]"),
            mapping(BASE + 0x7000..BASE + 0x8000, ""),
            mapping(BASE + 0x8000..BASE + 0x9000, ""),
        ],
        libc_data: std::iter::once(BASE..HEAP).collect(),
        thread_pointers: vec![THREAD],
        break_start: HEAP,
    };
    (memory, around)
}

/// Chunks from the heap's start, in use or free; returns where the last one, the top, begins.
fn chunks(memory: &mut Memory, sizes: &[(u64, bool)]) -> u64 {
    let (mut at, mut before) = (HEAP, true);
    for &(size, in_use) in sizes {
        memory.put(at + 8, size | u64::from(before));
        (at, before) = (at + size, in_use);
    }
    memory.put(at + 8, (END - at) | u64::from(before));
    memory.put(ARENA + 96, at);
    at
}

#[test]
fn chunks_in_use_are_blocks() {
    let (memory, around) = process(|memory| {
        chunks(memory, &[(0x20, true), (0x400, false), (0x290, true), (0x30, true), (0x40, true), (0x20, true)]);
        let cache = HEAP + 0x430;
        // A thread's cache with one block of 0x30 bytes, and a fast bin with the chunk of 0x40.
        memory.put(THREAD - 0x40, cache);
        memory.put(cache, 1 << 16);
        let cached = HEAP + 0x6b0 + 16;
        memory.put(cache + 128 + 8, cached);
        memory.put(cached, cached >> 12);
        let fast = HEAP + 0x6e0;
        memory.put(ARENA + 16 + 2 * 8, fast);
        memory.put(fast + 16, (fast + 16) >> 12);
        // A block with a mapping of its own, and one that is aligned.
        memory.put(BASE + 0x8008, 0x1002);
    });
    let found = blocks(&memory, &memory, &around);
    assert_eq!(found.gaps, Vec::<String>::new());
    assert_eq!(
        found.blocks,
        [(HEAP + 0x10, 0x18), (HEAP + 0x730, 0x18), (BASE + 0x8010, 0xff0)],
        "{:x?}",
        found.blocks
    );
    let list = list(&found.sentence(), &found.blocks);
    assert_eq!(list.len() % 8, 0);
    assert_eq!(list[list.len() - 16..][..8], (BASE + 0x8010).to_le_bytes());
}

#[test]
fn a_heap_that_others_have_moved_is_read_on() {
    let (memory, around) = process(|memory| {
        chunks(memory, &[(0x20, true), (0x40, true)]);
        // What ends the first part, others' bytes, and chunks again.
        memory.put(HEAP + 0x60 + 8, 0x11);
        memory.put(HEAP + 0x70 + 8, 0x11);
        let second = HEAP + 0x1230;
        memory.put(second + 8, 0x51);
        let top = second + 0x50;
        memory.put(top + 8, (END - top) | 1);
        memory.put(ARENA + 96, top);
    });
    let found = blocks(&memory, &memory, &around);
    assert_eq!(found.gaps, Vec::<String>::new());
    assert_eq!(found.blocks.iter().map(|block| block.1).collect::<Vec<_>>(), [0x18, 0x38, 0x48]);
}

#[test]
fn what_cannot_be_read_is_said() {
    let (memory, around) = process(|memory| {
        let top = chunks(memory, &[(0x20, true), (0x40, true), (0x50, true)]);
        memory.put(HEAP + 0x20 + 8, 0x7fff_ffff_fff1);
        memory.put(ARENA + 96, top);
        // A list that leads into itself.
        memory.put(ARENA + 16, HEAP);
        memory.put(HEAP + 16, HEAP ^ (HEAP + 16) >> 12);
    });
    let found = blocks(&memory, &memory, &around);
    assert_eq!(found.blocks, [(HEAP + 0x10, 0x18)]);
    assert_eq!(found.gaps.len(), 2, "{:?}", found.gaps);
    let (memory, around) = process(|memory| memory.put(ARENA + 112, 3));
    assert_eq!(blocks(&memory, &memory, &around).gaps, ["glibc's main arena was not found"]);
}

proptest! {
    /// Any words in the arena, the heap, the cache: an end, and no panic.
    #[test]
    fn hostile_heaps_end_the_walk(
        words in prop::collection::vec((0_u64..0x1200, any::<u64>(), 0_u8..4), 0..200),
        top in any::<u64>(),
    ) {
        let (memory, around) = process(|memory| {
            chunks(memory, &[(0x20, true), (0x400, false), (0x290, true), (0x30, true)]);
            memory.put(THREAD - 0x40, HEAP + 0x430);
            if top & 1 == 0 {
                memory.put(ARENA + 96, top);
            }
            for (place, word, kind) in words {
                let word = match kind {
                    0 => word,
                    1 => BASE + word % 0x9000,
                    2 => word % 0x1000,
                    _ => (word % 0x1000) & !15 | 1,
                };
                let at = BASE + place * 8;
                // The table by which the arena is found stays.
                if !(ARENA + 112..ARENA + 2168).contains(&at) {
                    memory.put(at, word);
                }
            }
        });
        let found = blocks(&memory, &memory, &around);
        prop_assert!(found.blocks.iter().all(|&(at, size)| at.checked_add(size).is_some()));
    }
}
