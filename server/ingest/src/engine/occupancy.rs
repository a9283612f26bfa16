//! Number of pages that hold a live block: the least memory that the heap can take at that instant.
//!
//! A block shares its first and its last page with others, so the blocks in such pages are counted. All pages between
//! are its own. Blocks that overlap, as in a recording with lost frees, count twice there.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// log2 of the bytes of a page.
const PAGE_SHIFT: u32 = 12;
/// Pages without a block that the table keeps at least.
const SPARE: usize = 1 << 16;

/// Extremes of the pages with live blocks among 64 events, and their number behind the last of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OccupiedRun {
    /// The fewest.
    pub min: u32,
    /// The most.
    pub max: u32,
    /// Behind the last event.
    pub last: u32,
}

impl Default for OccupiedRun {
    fn default() -> Self {
        Self { min: u32::MAX, max: 0, last: 0 }
    }
}

impl OccupiedRun {
    /// The fewest, the most, behind the last event.
    #[must_use]
    pub const fn parts(self) -> [u32; 3] {
        [self.min, self.max, self.last]
    }

    /// Notes the pages behind an event; `settled` = they count for the extremes.
    #[inline]
    pub(super) fn note(&mut self, pages: u64, settled: bool) {
        let pages = u32::try_from(pages).unwrap_or(u32::MAX);
        self.last = pages;
        if settled {
            self.min = self.min.min(pages);
            self.max = self.max.max(pages);
        }
    }
}

/// Pages that hold a live block.
#[derive(Debug, Default)]
pub struct PageOccupancy {
    /// Blocks that begin or end in a page.
    shared: FxHashMap<u64, u32>,
    /// Of these pages those that have a block.
    shared_pages: u64,
    /// Pages that one block has for itself.
    own_pages: u64,
}

impl PageOccupancy {
    /// Takes in a block, of one byte at least.
    #[inline]
    pub fn add(&mut self, address: u64, size: u64) {
        let (first, last) = pages_of(address, size);
        self.enter(first);
        if last != first {
            self.enter(last);
            self.own_pages += last - first - 1;
        }
    }

    /// Takes a block out that was taken in.
    #[inline]
    pub fn remove(&mut self, address: u64, size: u64) {
        let (first, last) = pages_of(address, size);
        self.leave(first);
        if last != first {
            self.leave(last);
            self.own_pages -= last - first - 1;
        }
    }

    /// How many they are.
    #[inline]
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.shared_pages + self.own_pages
    }

    #[inline]
    fn enter(&mut self, page: u64) {
        let blocks = self.shared.entry(page).or_insert(0);
        self.shared_pages += u64::from(*blocks == 0);
        *blocks += 1;
    }

    #[inline]
    fn leave(&mut self, page: u64) {
        let Some(blocks) = self.shared.get_mut(&page).filter(|blocks| **blocks > 0) else { return };
        *blocks -= 1;
        if *blocks == 0 {
            self.shared_pages -= 1;
            self.forget_empty();
        }
    }

    /// An empty page stays in the table, since the next block often comes there; not without end.
    #[inline]
    fn forget_empty(&mut self) {
        if self.shared.len() > SPARE + 2 * self.shared_pages as usize {
            self.shared.retain(|_, blocks| *blocks > 0);
        }
    }
}

/// The first and the last page of a block.
#[inline]
const fn pages_of(address: u64, size: u64) -> (u64, u64) {
    let more = if size == 0 { 0 } else { size - 1 };
    (address >> PAGE_SHIFT, address.saturating_add(more) >> PAGE_SHIFT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn pages_are_those_of_a_recount(
            sizes in prop::collection::vec((0_u64..20_000, 0_u64..6000, any::<bool>()), 1..200),
        ) {
            let mut occupancy = PageOccupancy::default();
            let (mut live, mut at) = (Vec::<(u64, u64)>::new(), 0x7000);
            for (gap, size, frees) in sizes {
                if frees && !live.is_empty() {
                    let (address, size) = live.swap_remove(gap as usize % live.len());
                    occupancy.remove(address, size);
                } else {
                    at += gap;
                    occupancy.add(at, size);
                    live.push((at, size));
                    at += size.max(1);
                }
                let last = |address: u64, size: u64| (address + size.max(1) - 1) / 4096;
                let pages: BTreeSet<u64> = live.iter().flat_map(|&(a, s)| a / 4096..=last(a, s)).collect();
                prop_assert_eq!(occupancy.pages(), pages.len() as u64);
            }
        }
    }

    #[test]
    fn empty_pages_are_forgotten() {
        let mut occupancy = PageOccupancy::default();
        for page in 0..4 * SPARE as u64 {
            occupancy.add(page << PAGE_SHIFT, 16);
            occupancy.remove(page << PAGE_SHIFT, 16);
        }
        assert!(occupancy.shared.len() <= SPARE + 1, "{} pages are kept", occupancy.shared.len());
        assert_eq!(occupancy.pages(), 0);
    }

    #[test]
    fn extremes_leave_out_what_is_half_done() {
        let mut run = OccupiedRun::default();
        run.note(3, true);
        run.note(0, false);
        run.note(5, true);
        assert_eq!(run, OccupiedRun { min: 3, max: 5, last: 5 });
    }
}
