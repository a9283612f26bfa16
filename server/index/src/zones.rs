//! Zone maps: what occurs in each run of allocations, and in each run of frees, so that a scan skips runs of which
//! nothing passes, and takes runs of which everything does without testing their rows.
//!
//! Both kinds of rows are in the order of time: when a run was allocated, or freed, its first and last row say. When
//! the allocations of a run were freed is stored as ordinals of frees, which are finer than times.

use std::io;
use std::ops::Range;
use std::path::Path;

use super::column::Column;
use super::layout::{CLASS_BITS, TEMPORARY_BIT};
use super::ledger::Ledger;

/// What occurs in a run of allocations, or in a run of frees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zone {
    /// Smallest size; the largest number in an empty run.
    pub min_size: u64,
    /// Largest size.
    pub max_size: u64,
    /// Allocating threads: bit [`thread_bit`] of each.
    pub threads: u64,
    /// Sites: bit [`site_bit`] of each.
    pub sites: u64,
    /// Classes of the lifetimes of those that were freed, one bit each.
    pub classes: u128,
    /// Allocations: earliest of their frees. Frees: earliest of their allocations. The largest number = none.
    pub first: u64,
    /// Allocations: one more than the latest of their frees. Frees: one more than the latest of their allocations.
    pub end: u64,
    /// How many were freed.
    pub freed: u32,
    /// How many of them were temporary.
    pub temporary: u32,
}

/// Bit of a thread, given its position.
#[inline]
#[must_use]
pub const fn thread_bit(position: u32) -> u64 {
    1 << (position % 64)
}

/// Bit of a site.
#[inline]
#[must_use]
pub const fn site_bit(site: u32) -> u64 {
    1 << (site.wrapping_mul(0x9E37_79B1) >> 26)
}

/// Index of the word with the counts of freed rows.
const COUNTS: u64 = 8;

/// Numbers in the column for each zone.
pub const WORDS: usize = 9;

impl Default for Zone {
    fn default() -> Self {
        Self::from_words(&[0; WORDS])
    }
}

impl Zone {
    /// Takes in a block that was allocated.
    #[inline]
    pub fn allocated(&mut self, site: u32, thread: u32, size: u64) {
        self.min_size = self.min_size.min(size);
        self.max_size = self.max_size.max(size);
        self.threads |= thread_bit(thread);
        self.sites |= site_bit(site);
    }

    /// Takes in a block that was freed; `other` is the ordinal of the free of an allocation, or the row of the
    /// allocation of a free.
    #[inline]
    pub fn freed(&mut self, other: u64, lifetime_class: u8) {
        self.classes |= 1 << ((lifetime_class & CLASS_BITS).max(1) - 1);
        self.first = self.first.min(other);
        self.end = self.end.max(other + 1);
        self.freed += 1;
        self.temporary += u32::from(lifetime_class & TEMPORARY_BIT != 0);
    }

    /// Takes in all that another zone of the same run has.
    fn merge(&mut self, other: &Self) {
        self.min_size = self.min_size.min(other.min_size);
        self.max_size = self.max_size.max(other.max_size);
        self.threads |= other.threads;
        self.sites |= other.sites;
        self.classes |= other.classes;
        self.first = self.first.min(other.first);
        self.end = self.end.max(other.end);
        self.freed += other.freed;
        self.temporary += other.temporary;
    }

    /// As it is stored in the column: all zero when the run is empty.
    #[inline]
    #[must_use]
    pub const fn words(&self) -> [u64; WORDS] {
        [
            !self.min_size,
            self.max_size,
            self.threads,
            self.sites,
            self.classes as u64,
            (self.classes >> 64) as u64,
            !self.first,
            self.end,
            self.freed as u64 | (self.temporary as u64) << 32,
        ]
    }

    /// Reads a zone from the column.
    #[inline]
    #[must_use]
    pub const fn from_words(words: &[u64; WORDS]) -> Self {
        let [min_size, max_size, threads, sites, low, high, first, end, counts] = *words;
        Self {
            min_size: !min_size,
            max_size,
            threads,
            sites,
            classes: low as u128 | (high as u128) << 64,
            first: !first,
            end,
            freed: counts as u32,
            temporary: (counts >> 32) as u32,
        }
    }
}

/// Zones that are being filled.
#[derive(Debug)]
pub struct ZoneWriter {
    ledger: Ledger<u64>,
    rows: u64,
}

/// One zone of a [`ZoneWriter`] at a time, written back when another is needed.
#[derive(Debug)]
struct OpenZone {
    index: u64,
    zone: Zone,
}

impl ZoneWriter {
    /// Creates the file; a run has `rows` rows.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create(path: &Path, rows: u64) -> io::Result<Self> {
        Ok(Self { ledger: Ledger::create(path)?, rows: rows.max(1) })
    }

    /// Opens what an earlier run left, where `len` rows are kept. Bounds may be those of rows that are cut off: they
    /// stay true, and become exact when these rows come again. Numbers of the dead do not: they are to be counted
    /// again, with [`Self::forget_counts`] and [`Self::count`].
    ///
    /// # Errors
    /// When it cannot be opened or is too short.
    pub fn reopen(path: &Path, rows: u64, len: u64) -> io::Result<Self> {
        let words = zone_count(len, rows) * WORDS as u64;
        let mut ledger = Ledger::reopen(path, words)?;
        ledger.reserve(words)?;
        Ok(Self { ledger, rows: rows.max(1) })
    }

    /// Rows of a run.
    #[must_use]
    pub const fn run_rows(&self) -> u64 {
        self.rows
    }

    /// Sets the counts of freed rows to zero in the zones of rows `from..to`.
    pub fn forget_counts(&mut self, from: u64, to: u64) {
        for index in from / self.rows..zone_count(to, self.rows) {
            self.ledger.store(index * WORDS as u64 + COUNTS, 0);
        }
    }

    /// Counts one freed row again.
    pub fn count(&mut self, row: u64, lifetime_class: u8) {
        let mut zone = self.get(row / self.rows);
        zone.freed += 1;
        zone.temporary += u32::from(lifetime_class & TEMPORARY_BIT != 0);
        self.put(row / self.rows, &zone);
    }

    /// Takes in blocks that were allocated, in the order of their rows from `first` on, each with site, thread and
    /// size.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn allocs(&mut self, first: u64, allocated: impl ExactSizeIterator<Item = (u32, u32, u64)>) -> io::Result<()> {
        if allocated.len() == 0 {
            return Ok(());
        }
        self.reserve(first + allocated.len() as u64)?;
        let mut open = OpenZone { index: first / self.rows, zone: Zone::default() };
        let mut left = self.rows - first % self.rows;
        for (site, thread, size) in allocated {
            if left == 0 {
                self.add(&open);
                open = OpenZone { index: open.index + 1, zone: Zone::default() };
                left = self.rows;
            }
            open.zone.allocated(site, thread, size);
            left -= 1;
        }
        self.add(&open);
        Ok(())
    }

    /// Takes in the free of allocation `row`.
    #[inline]
    pub fn free_of(&mut self, row: u64, ordinal: u64, lifetime_class: u8) {
        let mut zone = self.get(row / self.rows);
        zone.freed(ordinal, lifetime_class);
        self.put(row / self.rows, &zone);
    }

    /// Takes in frees, in their order from `first` on, each with the row of its allocation, its outcome, and the site,
    /// thread and size of the block.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn frees(
        &mut self,
        first: u64,
        freed: impl ExactSizeIterator<Item = (u64, u8, u32, u32, u64)>,
    ) -> io::Result<()> {
        if freed.len() == 0 {
            return Ok(());
        }
        self.reserve(first + freed.len() as u64)?;
        let mut open = OpenZone { index: first / self.rows, zone: Zone::default() };
        let mut left = self.rows - first % self.rows;
        for (row, lifetime_class, site, thread, size) in freed {
            if left == 0 {
                self.add(&open);
                open = OpenZone { index: open.index + 1, zone: Zone::default() };
                left = self.rows;
            }
            open.zone.allocated(site, thread, size);
            open.zone.freed(row, lifetime_class);
            left -= 1;
        }
        self.add(&open);
        Ok(())
    }

    fn reserve(&mut self, rows: u64) -> io::Result<()> {
        self.ledger.reserve(zone_count(rows, self.rows) * WORDS as u64)
    }

    fn add(&mut self, open: &OpenZone) {
        let mut zone = self.get(open.index);
        zone.merge(&open.zone);
        self.put(open.index, &zone);
    }

    #[inline]
    fn get(&self, index: u64) -> Zone {
        let at = index * WORDS as u64;
        Zone::from_words(&std::array::from_fn(|word| self.ledger.load(at + word as u64)))
    }

    #[inline]
    fn put(&self, index: u64, zone: &Zone) {
        let at = index * WORDS as u64;
        for (word, at) in zone.words().into_iter().zip(at..) {
            self.ledger.store(at, word);
        }
    }

    /// The zones of the first `len` rows as they are now.
    #[must_use]
    pub fn snapshot(&self, len: u64) -> Zones {
        let words = (0..zone_count(len, self.rows) * WORDS as u64).map(|at| self.ledger.load(at)).collect();
        Zones { rows: self.rows, len, words: Words::Copied(words) }
    }

    /// Frames the file for Arrow tools and gives the surplus back.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn finish(self, len: u64) -> io::Result<()> {
        self.ledger.finish(zone_count(len, self.rows) * WORDS as u64)
    }
}

fn zone_count(rows: u64, run: u64) -> u64 {
    rows.div_ceil(run.max(1))
}

#[derive(Debug)]
enum Words {
    /// Of a growing index: zones go on changing in the file.
    Copied(Vec<u64>),
    Mapped(Column<u64>),
}

/// Zones of a snapshot.
#[derive(Debug)]
pub struct Zones {
    rows: u64,
    len: u64,
    words: Words,
}

impl Default for Zones {
    fn default() -> Self {
        Self { rows: 1, len: 0, words: Words::Copied(Vec::new()) }
    }
}

impl Zones {
    /// Opens the finished zones of `len` rows.
    ///
    /// # Errors
    /// When the file is missing or too short.
    pub fn open(path: &Path, rows: u64, len: u64) -> io::Result<Self> {
        let words = Column::open(path, zone_count(len, rows) * WORDS as u64)?;
        Ok(Self { rows: rows.max(1), len, words: Words::Mapped(words) })
    }

    /// Rows of a run.
    #[must_use]
    pub const fn run_rows(&self) -> u64 {
        self.rows
    }

    /// The runs that the rows `from..to` touch: which rows of the snapshot each has, and what occurs in it.
    pub fn touching(&self, from: u64, to: u64) -> impl Iterator<Item = (Range<u64>, Zone)> + '_ {
        let words: &[u64] = match &self.words {
            Words::Copied(words) => words,
            Words::Mapped(words) => words,
        };
        let zones = words.as_chunks::<WORDS>().0;
        let (first, last) = (from / self.rows, zone_count(to.min(self.len), self.rows));
        let zones = zones.get(first as usize..last as usize).unwrap_or_default();
        zones.iter().zip(first..).map(|(words, index)| {
            let rows = index * self.rows..((index + 1) * self.rows).min(self.len);
            (rows, Zone::from_words(words))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_row_was_put_into_is_zero() {
        let empty = Zone::default();
        assert_eq!(empty.words(), [0; WORDS]);
        assert_eq!((empty.min_size, empty.max_size, empty.first, empty.end), (u64::MAX, 0, u64::MAX, 0));
        let mut zone = empty;
        zone.allocated(7, 65, 40);
        zone.freed(3, TEMPORARY_BIT | 127);
        assert_eq!(Zone::from_words(&zone.words()), zone);
        assert_eq!((zone.threads, zone.classes, zone.first, zone.end), (2, 1 << 126, 3, 4));
        assert_eq!((zone.freed, zone.temporary), (1, 1));
    }
}
