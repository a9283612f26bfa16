//! Number of pages that hold a live block: the least memory that the heap can take at that instant.
//!
//! A block shares its first and its last page with others, so the blocks in such pages are counted. All pages between
//! are its own. Blocks that overlap, as in a recording with lost frees, count twice there.
//!
//! ```text
//! address ─ 2 MiB region ─▶ place ─▶ 512 counts of blocks, one for each page: a kilobyte, so those of a heap of a gigabyte
//!                           stay in the processor's second cache
//! ```

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// log2 of the bytes of a page.
const PAGE_SHIFT: u32 = 12;
/// log2 of the pages of a region.
const REGION_SHIFT: u32 = 9;
/// log2 of the regions whose places are found without the hash table: those of a heap of a gigabyte.
const NEAR_SHIFT: u32 = 9;
/// Regions without a block that the table keeps at least.
const SPARE: usize = 128;

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

/// Blocks that begin or end in each page of a region. A page with the largest number has lost count, and stays occupied: that
/// many blocks cannot lie in one.
type Region = [u16; 1 << REGION_SHIFT];

/// Pages that hold a live block.
#[derive(Debug)]
pub struct PageOccupancy {
    /// Number of a region → its place among the counts.
    places: FxHashMap<u64, u32>,
    /// By [`near_of`]: a number and its place, those used last.
    near: Box<[(u64, u32)]>,
    regions: Vec<Region>,
    /// Places that are not in use.
    unused: Vec<u32>,
    /// So many regions may be there before those without a block are forgotten.
    most: usize,
    /// Pages in which a block begins or ends.
    shared_pages: u64,
    /// Pages that one block has for itself.
    own_pages: u64,
}

impl Default for PageOccupancy {
    fn default() -> Self {
        Self {
            places: FxHashMap::default(),
            near: none_near(),
            regions: Vec::new(),
            unused: Vec::new(),
            most: SPARE,
            shared_pages: 0,
            own_pages: 0,
        }
    }
}

/// No region has this number.
fn none_near() -> Box<[(u64, u32)]> {
    vec![(u64::MAX, 0); 1 << NEAR_SHIFT].into_boxed_slice()
}

impl PageOccupancy {
    /// Takes in a block, of one byte at least. Nothing here depends on how a block lies in its region but numbers: a branch
    /// would be predicted wrong at every second page.
    #[inline]
    pub fn add(&mut self, address: u64, size: u64) {
        let (first, last) = pages_of(address, size);
        let ((number, from), (end, to)) = (place_of(first), place_of(last));
        self.own_pages += (last - first).saturating_sub(1);
        if number == end {
            let Some(region) = self.region_or_new(number) else { return };
            let more = enter(region, from, 1) + enter(region, to, u16::from(to != from));
            self.shared_pages += more;
        } else {
            let more = self.region_or_new(number).map_or(0, |region| enter(region, from, 1));
            self.shared_pages += more + self.region_or_new(end).map_or(0, |region| enter(region, to, 1));
        }
    }

    /// Takes a block out that was taken in.
    #[inline]
    pub fn remove(&mut self, address: u64, size: u64) {
        let (first, last) = pages_of(address, size);
        let ((number, from), (end, to)) = (place_of(first), place_of(last));
        self.own_pages -= (last - first).saturating_sub(1);
        if number == end {
            let Some(region) = self.region(number) else { return };
            let less = leave(region, from, 1) + leave(region, to, u16::from(to != from));
            self.shared_pages -= less;
        } else {
            let less = self.region(number).map_or(0, |region| leave(region, from, 1));
            self.shared_pages -= less + self.region(end).map_or(0, |region| leave(region, to, 1));
        }
    }

    /// How many they are.
    #[inline]
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.shared_pages + self.own_pages
    }

    #[inline]
    fn region(&mut self, number: u64) -> Option<&mut Region> {
        let place = self.find(number)?;
        self.regions.get_mut(place as usize)
    }

    #[inline]
    fn region_or_new(&mut self, number: u64) -> Option<&mut Region> {
        let place = match self.find(number) {
            Some(place) => place,
            None => self.begin(number),
        };
        self.regions.get_mut(place as usize)
    }

    /// The place of a region that is there.
    #[inline]
    fn find(&mut self, number: u64) -> Option<u32> {
        match self.near.get(near_of(number)) {
            Some(&(near, place)) if near == number => Some(place),
            _ => self.find_far(number),
        }
    }

    fn find_far(&mut self, number: u64) -> Option<u32> {
        let place = *self.places.get(&number)?;
        if let Some(near) = self.near.get_mut(near_of(number)) {
            *near = (number, place);
        }
        Some(place)
    }

    /// A region without a block.
    #[cold]
    fn begin(&mut self, number: u64) -> u32 {
        if self.places.len() >= self.most {
            self.forget_empty();
        }
        let place = self.unused.pop().unwrap_or_else(|| {
            self.regions.push([0; 1 << REGION_SHIFT]);
            self.regions.len() as u32 - 1
        });
        self.places.insert(number, place);
        place
    }

    /// Empty regions are kept, since the next block often comes there, but not without end.
    fn forget_empty(&mut self) {
        let (regions, unused) = (&self.regions, &mut self.unused);
        self.places.retain(|_, place| {
            let is_empty = regions.get(*place as usize).is_some_and(|region| region.iter().all(|&count| count == 0));
            if is_empty {
                unused.push(*place);
            }
            !is_empty
        });
        self.near = none_near();
        self.most = SPARE + 2 * self.places.len();
    }
}

/// Counts `blocks` more, one or none, in a page of a region; gives the pages that have a block now and had none.
#[inline]
fn enter(region: &mut Region, at: usize, blocks: u16) -> u64 {
    let Some(count) = region.get_mut(at) else { return 0 };
    let fresh = u64::from(*count == 0) & u64::from(blocks);
    *count = count.saturating_add(blocks);
    fresh
}

/// Counts `blocks` less, one or none, in a page of a region; gives the pages that had a block and have none now.
#[inline]
fn leave(region: &mut Region, at: usize, blocks: u16) -> u64 {
    let Some(count) = region.get_mut(at) else { return 0 };
    let blocks = blocks & u16::from(*count != 0) & u16::from(*count != u16::MAX);
    *count -= blocks;
    u64::from(*count == 0) & u64::from(blocks)
}

/// Where the place of a region is noted. Arenas begin at multiples of many regions, so all bits count.
#[inline]
const fn near_of(number: u64) -> usize {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - NEAR_SHIFT)) as usize
}

/// Number of the region of a page, and the page's place in it.
#[inline]
const fn place_of(page: u64) -> (u64, usize) {
    (page >> REGION_SHIFT, (page & ((1 << REGION_SHIFT) - 1)) as usize)
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
    fn empty_regions_are_forgotten() {
        let mut occupancy = PageOccupancy::default();
        for region in 0..8 * SPARE as u64 {
            occupancy.add(region << (PAGE_SHIFT + REGION_SHIFT), 16);
            occupancy.remove(region << (PAGE_SHIFT + REGION_SHIFT), 16);
        }
        assert!(occupancy.regions.len() <= SPARE, "{} regions are kept", occupancy.regions.len());
        assert_eq!(occupancy.pages(), 0);
    }

    /// A damaged recording can have any number of blocks at one address.
    #[test]
    fn a_page_that_has_lost_count_stays_occupied() {
        let mut occupancy = PageOccupancy::default();
        for _ in 0..70_000 {
            occupancy.add(5 << PAGE_SHIFT, 16);
        }
        for _ in 0..70_000 {
            occupancy.remove(5 << PAGE_SHIFT, 16);
        }
        occupancy.remove(u64::MAX, 16);
        assert_eq!(occupancy.pages(), 1);
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
