//! Sums per key (site, thread, pair of threads) and bucket, in a hierarchy, so that any run of whole buckets is the
//! merge of a few lists.
//!
//! ```text
//! level 0   one list a bucket:                 0 1 2 3 4 5 6 7 | 8 9 …
//! level 1   one list for FANOUT buckets:       ───────0─────── | …
//! level 2   one list for FANOUT² buckets:      …
//! ```
//! A list holds for each field (allocated, freed …) the bytes of its section, a varint, then the sections: an answer is
//! about one field and reads no other. A section holds, by ascending key: varint 2 · key difference (first: key + 1), plus
//! 1 for one block; varint count, unless it is 1; varint bytes. Only keys with a count appear.

use serde::{Deserialize, Serialize};
use tracehound_format::varint::{Reader, put};

/// Lists merged into one of the next level.
pub const FANOUT: usize = 8;

/// A number of blocks and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockAmount {
    /// Number of blocks.
    pub count: u64,
    /// Requested bytes.
    pub bytes: u64,
}

impl BlockAmount {
    /// Adds blocks.
    #[inline]
    pub fn add(&mut self, other: Self) {
        self.count += other.count;
        self.bytes += other.bytes;
    }
}

/// Sums for dense keys, and which of them were touched.
#[derive(Debug, Clone)]
pub struct Dense<const N: usize> {
    rows: Vec<[BlockAmount; N]>,
    touched: Vec<u32>,
}

impl<const N: usize> Default for Dense<N> {
    fn default() -> Self {
        Self { rows: Vec::new(), touched: Vec::new() }
    }
}

impl<const N: usize> Dense<N> {
    /// Adds `amount` (at least one block) to a field of a key.
    #[inline]
    pub fn add(&mut self, key: u32, field: usize, amount: BlockAmount) {
        let index = key as usize;
        if index >= self.rows.len() {
            self.rows.resize((index + 1).next_power_of_two(), [BlockAmount::default(); N]);
        }
        let row = &mut self.rows[index];
        if row.iter().all(|f| f.count == 0) {
            self.touched.push(key);
        }
        row[field].add(amount);
    }

    /// Touched keys with their sums as a list; everything is zero again afterwards.
    pub fn drain_list(&mut self) -> Vec<u8> {
        self.touched.sort_unstable();
        let mut sections: [SumSection; N] = std::array::from_fn(|_| SumSection::default());
        for key in self.touched.drain(..) {
            let row = std::mem::replace(&mut self.rows[key as usize], [BlockAmount::default(); N]);
            for (section, amount) in sections.iter_mut().zip(row).filter(|(_, amount)| amount.count > 0) {
                section.push(key, amount);
            }
        }
        let mut list = Vec::with_capacity(sections.iter().map(|section| section.bytes.len() + 5).sum());
        sections.iter().for_each(|section| put(&mut list, section.bytes.len() as u64));
        sections.iter().for_each(|section| list.extend_from_slice(&section.bytes));
        list
    }

    /// The sums of a key.
    #[must_use]
    pub fn get(&self, key: u32) -> [BlockAmount; N] {
        self.rows.get(key as usize).copied().unwrap_or([BlockAmount::default(); N])
    }

    /// Touched keys, in no order.
    #[must_use]
    pub fn touched(&self) -> &[u32] {
        &self.touched
    }
}

/// What a list has of one field.
#[derive(Debug, Default)]
struct SumSection {
    bytes: Vec<u8>,
    /// The key before, plus one; 0 at the start.
    last: u64,
}

impl SumSection {
    fn push(&mut self, key: u32, amount: BlockAmount) {
        let next = u64::from(key) + 1;
        let step = next - std::mem::replace(&mut self.last, next);
        put(&mut self.bytes, step << 1 | u64::from(amount.count == 1));
        if amount.count != 1 {
            put(&mut self.bytes, amount.count);
        }
        put(&mut self.bytes, amount.bytes);
    }
}

/// The section of a field of a list with `N` of them.
fn section<const N: usize>(list: &[u8], field: usize) -> Option<&[u8]> {
    let mut reader = Reader::new(list);
    let mut lens = [0; N];
    for len in &mut lens {
        *len = usize::try_from(reader.next_u64()?).ok()?;
    }
    lens.iter().take(field).try_for_each(|&len| reader.take(len).map(|_| ()))?;
    reader.take(*lens.get(field)?)
}

/// Walks a field of a list; stops quietly where it is malformed (the index is ours, and its key vouches for it).
pub fn walk_field<const N: usize>(list: &[u8], field: usize, mut each: impl FnMut(u32, BlockAmount)) {
    let mut reader = Reader::new(section::<N>(list, field).unwrap_or_default());
    let mut key = 0_u64;
    while let Some(step) = reader.next_u64() {
        key = key.wrapping_add(step >> 1);
        let Ok(id) = u32::try_from(key.wrapping_sub(1)) else { return };
        let count = if step & 1 == 1 { Some(1) } else { reader.next_u64() };
        let (Some(count), Some(bytes)) = (count, reader.next_u64()) else { return };
        each(id, BlockAmount { count, bytes });
    }
}

/// Where a list lies in the tree's column of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// Where all lists of a tree lie: `levels[l][i]` covers buckets `i * FANOUT^l ..`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SumDirectory {
    /// Lists by level.
    pub levels: Vec<Vec<Extent>>,
}

impl SumDirectory {
    /// Number of buckets with a list.
    #[must_use]
    pub fn buckets(&self) -> usize {
        self.levels.first().map_or(0, Vec::len)
    }

    /// The fewest lists that cover buckets `from..to` exactly, largest spans taken where they fit.
    #[must_use]
    pub fn cover(&self, from: usize, to: usize) -> Vec<Extent> {
        let mut at = from;
        let to = to.min(self.buckets());
        let mut lists = Vec::new();
        while at < to {
            let mut level = 0;
            let mut span = 1;
            while level + 1 < self.levels.len()
                && at.is_multiple_of(span * FANOUT)
                && at + span * FANOUT <= to
                && at / (span * FANOUT) < self.levels[level + 1].len()
            {
                level += 1;
                span *= FANOUT;
            }
            lists.push(self.levels[level][at / span]);
            at += span;
        }
        lists
    }
}

/// Builds a tree: lists of buckets come in one by one, lists of higher levels follow by themselves.
#[derive(Debug, Default)]
pub struct Builder<const N: usize> {
    /// What has been built.
    pub directory: SumDirectory,
    scratch: Dense<N>,
}

impl<const N: usize> Builder<N> {
    /// Continues a tree.
    #[must_use]
    pub fn resume(directory: SumDirectory) -> Self {
        Self { directory, scratch: Dense::default() }
    }

    /// Takes the list of the next bucket. `append` stores bytes and returns their offset; `read` gives stored ones back.
    ///
    /// # Errors
    /// Those of `append` and `read`.
    pub fn push<E>(
        &mut self,
        list: &[u8],
        append: &mut impl FnMut(&[u8]) -> Result<u64, E>,
        read: &mut impl FnMut(Extent) -> Result<Vec<u8>, E>,
    ) -> Result<(), E> {
        let extent = Extent { offset: append(list)?, len: list.len() as u64 };
        self.add(0, extent);
        let mut level = 0;
        while self.directory.levels[level].len().is_multiple_of(FANOUT) {
            let lists = &self.directory.levels[level];
            let children = lists[lists.len() - FANOUT..].to_vec();
            for child in children {
                let list = read(child)?;
                for field in 0..N {
                    walk_field::<N>(&list, field, |key, amount| self.scratch.add(key, field, amount));
                }
            }
            let merged = self.scratch.drain_list();
            let extent = Extent { offset: append(&merged)?, len: merged.len() as u64 };
            level += 1;
            self.add(level, extent);
        }
        Ok(())
    }

    fn add(&mut self, level: usize, extent: Extent) {
        if self.directory.levels.len() <= level {
            self.directory.levels.resize(level + 1, Vec::new());
        }
        self.directory.levels[level].push(extent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn any_run_of_buckets_is_the_sum_of_its_lists(
            buckets in prop::collection::vec(prop::collection::btree_map(0_u32..40, (1_u64..9, 0_u64..1 << 40), 0..9), 1..90),
            a in 0_usize..90, b in 0_usize..90,
        ) {
            let store = RefCell::new(Vec::<u8>::new());
            let mut builder = Builder::<2>::default();
            let mut sums = Dense::<2>::default();
            for bucket in &buckets {
                for (&key, &(count, bytes)) in bucket {
                    sums.add(key, key as usize % 2, BlockAmount { count, bytes });
                }
                let list = sums.drain_list();
                builder.push::<()>(
                    &list,
                    &mut |bytes| { let at = store.borrow().len() as u64; store.borrow_mut().extend_from_slice(bytes); Ok(at) },
                    &mut |e| Ok(store.borrow()[e.offset as usize..(e.offset + e.len) as usize].to_vec()),
                ).unwrap();
            }
            let (from, to) = (a.min(b).min(buckets.len()), a.max(b).min(buckets.len()));
            let mut expected = BTreeMap::new();
            for (&key, &(count, bytes)) in buckets[from..to].iter().flatten() {
                let sum: &mut BlockAmount = expected.entry(key).or_default();
                sum.add(BlockAmount { count, bytes });
            }
            let cover = builder.directory.cover(from, to);
            let mut got = BTreeMap::new();
            for e in &cover {
                for field in 0..2 {
                    walk_field::<2>(&store.borrow()[e.offset as usize..(e.offset + e.len) as usize], field, |key, amount| {
                        assert_eq!(field, key as usize % 2);
                        got.entry(key).or_insert(BlockAmount::default()).add(amount);
                    });
                }
            }
            prop_assert_eq!(got, expected);
            prop_assert!(cover.len() <= 30);
        }
    }
}
