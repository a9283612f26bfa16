//! Free chunks that look as if they were in use: those in the arenas' fast bins, and those in the threads' caches.
//!
//! A list's links are mixed with the places where they stand (`PROTECT_PTR`, since 2.32): `stored = place >> 12 ^ next`.

use std::collections::{HashMap, HashSet};

use super::arenas::Arena;
use super::chunks::{HEADER, LEAST, SIZE};
use super::reader::WordReader;

const FAST_BINS: u64 = 10;
/// Longest list.
const LONGEST: usize = 1 << 20;
/// How far below its pointer a thread's storage is looked through.
const STORAGE: u64 = 64 << 10;

/// Adds the chunks of an arena's fast bins.
pub(super) fn fast_bins(reader: &mut WordReader<'_>, arena: &Arena, free: &mut HashSet<u64>, gaps: &mut Vec<String>) {
    for number in 0..FAST_BINS {
        let size = LEAST + number * 16;
        let Some(first) = reader.word(arena.at + arena.layout.fast_bins + number * 8) else { return };
        let list = [true, false].into_iter().find_map(|mixed| chain(reader, first, size, 0, mixed));
        match list {
            Some(chunks) => free.extend(chunks),
            None => gaps.push("a list of free blocks is damaged: some blocks of the list may be free".into()),
        }
    }
}

/// The chunks of a list, all of `size` bytes; `None` if it is none. Links stand at the blocks' beginnings and lead to
/// chunks, or to blocks, which are `to_block` bytes behind their chunk.
fn chain(reader: &mut WordReader<'_>, first: u64, size: u64, to_block: u64, mixed: bool) -> Option<Vec<u64>> {
    let mut chunks = Vec::new();
    let mut next = first;
    while next != 0 {
        let chunk = next.checked_sub(to_block)?;
        if chunks.len() == LONGEST || !reader.may_be_chunk(chunk) || reader.word(chunk + 8)? & SIZE != size {
            return None;
        }
        chunks.push(chunk);
        let link = reader.word(chunk + HEADER)?;
        next = if mixed { link ^ (chunk + HEADER) >> 12 } else { link };
    }
    Some(chunks)
}

/// `struct tcache_perthread_struct` of a version.
#[derive(Debug, Clone, Copy)]
struct CacheLayout {
    /// Bytes of its chunk.
    chunk: u64,
    bins: u64,
    /// Bytes of a count; 0: what is there counts something else.
    count_bytes: u64,
    entries: u64,
}

const LAYOUTS: [CacheLayout; 3] = [
    // 2.26 to 2.29.
    CacheLayout { chunk: 0x250, bins: 64, count_bytes: 1, entries: 64 },
    // 2.30 to 2.41.
    CacheLayout { chunk: 0x290, bins: 64, count_bytes: 2, entries: 128 },
    // 2.42: places that are left, and twelve bins of large blocks, whose chunks are of several sizes.
    CacheLayout { chunk: 0x300, bins: 76, count_bytes: 0, entries: 152 },
];

/// Adds the chunks of all threads' caches, and the caches' own. Each thread has a pointer to its cache at the same place
/// of its storage; it is found by what it points to.
pub(super) fn of_threads(
    reader: &mut WordReader<'_>,
    thread_pointers: &[u64],
    free: &mut HashSet<u64>,
    gaps: &mut Vec<String>,
) {
    // By distance from the pointer: how many chunks, and each cache with its own.
    type Caches = Vec<(u64, Vec<u64>)>;
    let mut by_place: HashMap<u64, (u64, Caches)> = HashMap::new();
    for &pointer in thread_pointers.iter().filter(|pointer| pointer.is_multiple_of(8)) {
        let Some(mapping) = reader.writable(pointer) else { continue };
        let lowest = mapping.range.start.max(pointer.saturating_sub(STORAGE));
        for place in (8..=pointer - lowest).step_by(8) {
            let Some(block) = reader_word(reader, pointer - place) else { continue };
            let Some(chunks) = cache(reader, block) else { continue };
            let entry = by_place.entry(place).or_default();
            entry.0 += chunks.len() as u64;
            entry.1.push((block - HEADER, chunks));
        }
    }
    // Empty ones are like any zeroed block of that size: only a place where some thread has chunks is the caches'.
    let place = by_place.into_iter().filter(|(_, (count, _))| *count > 0).max_by_key(|(_, (count, _))| *count);
    let Some((place, (_, caches))) = place else { return };
    let with_cache =
        thread_pointers.iter().filter_map(|pointer| reader.word(pointer.checked_sub(place)?)).filter(|&at| at != 0);
    let unread = with_cache.count().saturating_sub(caches.len());
    if unread > 0 {
        gaps.push(format!("the caches of {unread} threads are not known: free blocks in them are listed"));
    }
    for (own, chunks) in caches {
        free.insert(own);
        free.extend(chunks);
    }
}

/// The word at `at`, if it may be a block.
fn reader_word(reader: &mut WordReader<'_>, at: u64) -> Option<u64> {
    reader.word(at).filter(|&block| block >= HEADER && reader.may_be_chunk(block - HEADER))
}

/// The chunks of the cache at `block`; `None` if there is none.
fn cache(reader: &mut WordReader<'_>, block: u64) -> Option<Vec<u64>> {
    let chunk = reader.word(block - 8)? & SIZE;
    // What malloc gives may be larger by what is too small for a chunk of its own.
    let layout = LAYOUTS.into_iter().find(|layout| layout.chunk == chunk || layout.chunk + (LEAST - 16) == chunk)?;
    let mut all = Vec::new();
    for number in 0..layout.bins {
        let first = reader.word(block + layout.entries + number * 8)?;
        if number >= 64 {
            if first != 0 {
                all.extend(large(reader, first)?);
            }
            continue;
        }
        let size = LEAST + number * 16;
        let list = [true, false].into_iter().find_map(|mixed| chain(reader, first, size, HEADER, mixed))?;
        let count = match layout.count_bytes {
            0 => list.len() as u64,
            bytes => {
                let at = number * bytes;
                let word = reader.word(block + at - at % 8)?;
                word >> (at % 8 * 8) & ((1 << (bytes * 8)) - 1)
            }
        };
        if count != list.len() as u64 {
            return None;
        }
        all.extend(list);
    }
    Some(all)
}

/// A list of large blocks: of any size.
fn large(reader: &mut WordReader<'_>, first: u64) -> Option<Vec<u64>> {
    let mut chunks = Vec::new();
    let mut next = first;
    while next != 0 {
        let chunk = next.checked_sub(HEADER)?;
        if chunks.len() == LONGEST || !reader.may_be_chunk(chunk) {
            return None;
        }
        chunks.push(chunk);
        next = reader.word(next)? ^ next >> 12;
    }
    Some(chunks)
}
