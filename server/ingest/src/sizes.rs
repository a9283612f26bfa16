//! Codes for sizes: two bytes each for allocations and frees, on their way into columns.

use std::io;

use rustc_hash::FxHashMap;

use tracehound_index::layout::{LARGE_SIZE, TABLE_SIZE};
use tracehound_index::schema::{LargeBlock, TableRow, Writers};

/// Sizes of the allocations and frees of a chunk, as codes.
#[derive(Debug, Default)]
pub struct SizeCodes {
    /// Most entries of the table.
    room: u16,
    /// Codes of sizes that are not their own.
    known: FxHashMap<u64, u16>,
    /// Those that appeared in the chunk.
    new: Vec<u64>,
    allocs: Vec<u16>,
    frees: Vec<u16>,
    /// Allocations without a code of their own: place in the chunk, and size.
    large: Vec<(u64, u64)>,
}

impl SizeCodes {
    /// Goes on with the table that an earlier run left, if any.
    #[must_use]
    pub fn new(room: u16, table: &[u64]) -> Self {
        let known = table.iter().zip(TABLE_SIZE..LARGE_SIZE).map(|(&size, code)| (size, code)).collect();
        Self { room: room.min(LARGE_SIZE - TABLE_SIZE), known, ..Self::default() }
    }

    /// Takes the next allocation.
    #[inline]
    pub fn alloc(&mut self, size: u64) {
        let code = self.code(size);
        if code == LARGE_SIZE {
            self.large.push((self.allocs.len() as u64, size));
        }
        self.allocs.push(code);
    }

    /// Takes the next free.
    #[inline]
    pub fn free(&mut self, size: u64) {
        let code = self.code(size);
        self.frees.push(code);
    }

    #[inline]
    fn code(&mut self, size: u64) -> u16 {
        if size < u64::from(TABLE_SIZE) { size as u16 } else { self.table_code(size) }
    }

    #[inline(never)]
    fn table_code(&mut self, size: u64) -> u16 {
        if let Some(&code) = self.known.get(&size) {
            return code;
        }
        let len = self.known.len();
        if len >= usize::from(self.room) {
            return LARGE_SIZE;
        }
        let code = TABLE_SIZE + len as u16;
        self.known.insert(size, code);
        self.new.push(size);
        code
    }

    /// Appends what came in since the last time to the columns; `first_alloc` is the row of its first allocation.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn store(&mut self, first_alloc: u64, writers: &mut Writers) -> io::Result<()> {
        writers.size_table.append(&self.new)?;
        writers.alloc_size.append(&self.allocs)?;
        writers.free_size.append(&self.frees)?;
        let large = self.large.iter().map(|&(at, size)| LargeBlock { row: first_alloc + at, size });
        LargeBlock::append(&large.collect::<Vec<_>>(), writers)?;
        self.new.clear();
        self.allocs.clear();
        self.frees.clear();
        self.large.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_beyond_the_table_stand_apart() {
        let mut codes = SizeCodes::new(u16::MAX, &[]);
        let first = u64::from(TABLE_SIZE);
        let room = u64::from(LARGE_SIZE - TABLE_SIZE);
        for size in 0..first + room + 3 {
            codes.alloc(size);
            codes.free(size);
        }
        assert_eq!(codes.allocs, codes.frees);
        assert!((0..LARGE_SIZE).eq(codes.allocs.iter().copied().take(usize::from(LARGE_SIZE))));
        assert_eq!(codes.allocs[usize::from(LARGE_SIZE)..], [LARGE_SIZE; 3]);
        let apart: Vec<_> = (first + room..first + room + 3).map(|size| (size, size)).collect();
        assert_eq!(codes.large, apart);
        let mut resumed = SizeCodes::new(u16::MAX, &codes.new);
        resumed.alloc(first + 5);
        resumed.alloc(first + room);
        assert_eq!(resumed.allocs, [TABLE_SIZE + 5, LARGE_SIZE]);
    }
}
