//! The blocks that glibc's heap holds, read from outside while all threads stand still and none is in the allocator.
//!
//! ```text
//! arenas   the main arena (in libc's data) and those linked to it, each with the regions that its chunks lie in
//! chunks   a region from its first chunk to its end: who is in use is said by the chunk behind
//! caches   free chunks that look as if they were in use: the arenas' fast bins, the threads' caches
//! mapped   chunks with a mapping of their own, of which no list tells
//! ```
//! All of it is untrusted: data that does not fit ends the walk of that region with a remark, and every loop has a
//! bound. glibc's malloc/malloc.c and arena.c, 2.17 to 2.42, are what the layouts are from.

mod arenas;
mod caches;
mod chunks;
mod mapped;
mod reader;

use std::collections::HashSet;
use std::ops::Range;
use std::time::{Duration, Instant};

use tracehound_format::attach::{BLOCK_LIST_MAGIC, BLOCK_LIST_TEXT};

pub use mapped::{PagesOfProcess, ProcessPages};
pub use reader::WordSource;

use crate::objects::ProcessMapping;
use arenas::Arenas;
use reader::WordReader;

/// Longest time for all of it: the process is stopped meanwhile.
const LONGEST: Duration = Duration::from_secs(5);

/// What is known of a process beside its memory.
#[derive(Debug, Clone)]
pub struct HeapSurroundings {
    /// Its mappings, by address.
    pub mappings: Vec<ProcessMapping>,
    /// Where the C library keeps its variables.
    pub libc_data: Vec<Range<u64>>,
    /// Where its threads keep what is theirs alone.
    pub thread_pointers: Vec<u64>,
    /// Where the program break began.
    pub break_start: u64,
}

/// The blocks that a heap holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HeapBlocks {
    /// Address and usable bytes of each, by address.
    pub blocks: Vec<(u64, u64)>,
    /// What could not be read, in words.
    pub gaps: Vec<String>,
}

/// Reads the heap of a process whose threads stand still.
#[must_use]
pub fn blocks(memory: &dyn WordSource, pages: &dyn ProcessPages, around: &HeapSurroundings) -> HeapBlocks {
    let mut reader = WordReader::new(memory, &around.mappings, Instant::now() + LONGEST);
    let mut found = HeapBlocks::default();
    let Some(arenas) = Arenas::find(&mut reader, around, &mut found.gaps) else {
        found.gaps.push("glibc's main arena was not found".into());
        return found;
    };
    let mut free = HashSet::new();
    for arena in &arenas.all {
        caches::fast_bins(&mut reader, arena, &mut free, &mut found.gaps);
    }
    caches::of_threads(&mut reader, &around.thread_pointers, &mut free, &mut found.gaps);
    for arena in &arenas.all {
        chunks::of_arena(&mut reader, arena, &free, &mut found);
    }
    mapped::blocks(&mut reader, pages, around, &arenas, &mut found);
    if reader.is_late() {
        found.gaps.push(format!("the heap is too large to be read in {} s", LONGEST.as_secs()));
    }
    found.blocks.sort_unstable();
    found.blocks.dedup();
    found
}

impl HeapBlocks {
    /// In words, for the recording.
    #[must_use]
    pub fn sentence(&self) -> String {
        let bytes: u64 = self.blocks.iter().map(|block| block.1).sum();
        let count = self.blocks.len();
        let mut text = format!("{count} blocks of {bytes} bytes were in glibc's heap when recording began.");
        if !self.gaps.is_empty() {
            text.push_str(&format!(" The list is not complete: {}.", self.gaps.join("; ")));
        }
        text
    }
}

/// The bytes of a list of blocks, as the recorder reads them; see [`BLOCK_LIST_MAGIC`].
#[must_use]
pub fn list(text: &str, blocks: &[(u64, u64)]) -> Vec<u8> {
    let mut text = text.as_bytes().to_vec();
    text.truncate(BLOCK_LIST_TEXT as usize);
    let mut bytes = Vec::with_capacity(16 + text.len() + 8 + blocks.len() * 16);
    bytes.extend(BLOCK_LIST_MAGIC.to_le_bytes());
    bytes.extend((text.len() as u64).to_le_bytes());
    text.resize(text.len().next_multiple_of(8), 0);
    bytes.extend(text);
    for (address, size) in blocks {
        bytes.extend(address.to_le_bytes());
        bytes.extend(size.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests;
