//! The chunks of a region, one behind the other.
//!
//! ```text
//! chunk      bytes of the chunk before, if that is free | own bytes, 3 bits | the block …
//! bits       1 the chunk before is in use   2 it has a mapping of its own   4 of another arena than the main one
//! ```

use std::collections::HashSet;

use super::HeapBlocks;
use super::arenas::{Arena, ChunkRegion};
use super::reader::WordReader;

/// The chunk's size word, without the bits.
pub(super) const SIZE: u64 = !7;
/// The chunk before is in use.
const BEFORE_IN_USE: u64 = 1;
/// The chunk has a mapping of its own.
pub(super) const MAPPED: u64 = 2;
/// Smallest chunk.
pub(super) const LEAST: u64 = 32;
/// From the chunk to its block.
pub(super) const HEADER: u64 = 16;
/// A chunk's size word, the last of the chunk before.
const SIZE_WORD: u64 = 8;
/// How far behind a place where the break was moved by others a first chunk is searched.
const FOREIGN: u64 = 16 << 20;

/// How a walk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeapWalkEnd {
    /// At the arena's last chunk.
    Top,
    /// At a chunk that only marks an end.
    Fence(u64),
    /// At something that is no chunk.
    Broken(u64),
}

/// Adds the blocks of an arena that are in use. `free` chunks look so and are not.
pub(super) fn of_arena(reader: &mut WordReader<'_>, arena: &Arena, free: &HashSet<u64>, found: &mut HeapBlocks) {
    for &region in &arena.regions {
        let known = found.blocks.len();
        let end = walk(reader, arena, region, free, &mut found.blocks);
        match end {
            HeapWalkEnd::Top => {}
            HeapWalkEnd::Fence(_) if !region.is_uncertain => {}
            HeapWalkEnd::Fence(at) => {
                // Other code has moved the break: the arena continues behind.
                if !search(reader, arena, ChunkRegion { first: at + LEAST, ..region }, free, found) {
                    found.gaps.push(format!("the heap cannot be read from {at:#x} on"));
                }
            }
            HeapWalkEnd::Broken(at) => {
                if region.is_uncertain && at == region.first {
                    found.blocks.truncate(known);
                    if search(reader, arena, region, free, found) {
                        continue;
                    }
                }
                if !reader.is_late() {
                    found.gaps.push(format!("the heap cannot be read from {at:#x} on"));
                }
            }
        }
    }
}

/// Searches the first chunk of a region: one from which chunks lead to the arena's last.
fn search(
    reader: &mut WordReader<'_>,
    arena: &Arena,
    region: ChunkRegion,
    free: &HashSet<u64>,
    found: &mut HeapBlocks,
) -> bool {
    let known = found.blocks.len();
    let until = region.end.min(region.first.saturating_add(FOREIGN));
    for first in (region.first..until).step_by(16) {
        if walk(reader, arena, ChunkRegion { first, ..region }, free, &mut found.blocks) == HeapWalkEnd::Top {
            return true;
        }
        found.blocks.truncate(known);
        if reader.is_late() {
            break;
        }
    }
    false
}

fn walk(
    reader: &mut WordReader<'_>,
    arena: &Arena,
    region: ChunkRegion,
    free: &HashSet<u64>,
    blocks: &mut Vec<(u64, u64)>,
) -> HeapWalkEnd {
    let mut at = region.first;
    let Some(mut size_word) = reader.word(at + SIZE_WORD) else { return HeapWalkEnd::Broken(at) };
    loop {
        if at == arena.top {
            return HeapWalkEnd::Top;
        }
        let size = size_word & SIZE;
        if size == 0 || size == HEADER {
            return if at == region.first { HeapWalkEnd::Broken(at) } else { HeapWalkEnd::Fence(at) };
        }
        let next = at.saturating_add(size);
        let fits = size >= LEAST && size.is_multiple_of(16) && size_word & MAPPED == 0 && next < region.end;
        let next_word = if fits { reader.word(next + SIZE_WORD) } else { None };
        let Some(next_word) = next_word else { return HeapWalkEnd::Broken(at) };
        if next_word & BEFORE_IN_USE != 0 && !free.contains(&at) {
            blocks.push((at + HEADER, size - SIZE_WORD));
        }
        (at, size_word) = (next, next_word);
    }
}
