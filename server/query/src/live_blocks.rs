//! The live blocks of one moment by address, and the pages under them.

mod by_address;

use std::ops::Range;

use rayon::prelude::*;
use rustc_hash::FxHashSet;
use tracehound_format::record::Kind;

use super::Result;
use super::amounts::ranges;
use super::filter::Selection;
use super::scan::{Also, BLOCK, Picker, RowTest};
use by_address::{AddressShares, FoundBlocks};
use tracehound_index::block_extents::AllocatorModel;
use tracehound_index::{Cancel, Position, Trace};

/// A live block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacedBlock {
    /// Address.
    pub start: u64,
    /// Requested bytes.
    pub size: u64,
    /// Its row; [`NO_ROW`]: it was there before recording began.
    pub row: u64,
    /// Its origin.
    pub origin: u32,
}

/// See [`PlacedBlock::row`].
pub const NO_ROW: u64 = u64::MAX;

/// All blocks that lie in memory at a place, by address: those of [`live_blocks`], and those from before the recording.
///
/// # Errors
/// When cancelled.
pub fn placed_blocks(trace: &Trace, place: Position, cancel: &Cancel) -> Result<Vec<PlacedBlock>> {
    let placed = |(start, size)| PlacedBlock { start, size, row: NO_ROW, origin: u32::MAX };
    let existing = trace.existing_blocks(place).into_iter().map(placed);
    let mut blocks = live_blocks(trace, place, cancel)?;
    by_address::add(&mut blocks, existing);
    Ok(blocks)
}

/// All blocks that are live at a place, by address. Those of pools lie in other blocks and are left out.
///
/// # Errors
/// When cancelled.
pub fn live_blocks(trace: &Trace, place: Position, cancel: &Cancel) -> Result<Vec<PlacedBlock>> {
    live_blocks_of(trace, &Selection::all(), place, cancel)
}

/// The same, of those that a selection keeps.
///
/// # Errors
/// When cancelled.
pub fn live_blocks_of(
    trace: &Trace,
    selection: &Selection,
    place: Position,
    cancel: &Cancel,
) -> Result<Vec<PlacedBlock>> {
    LiveScan::new(trace, selection, place, cancel).by_address()
}

/// Blocks of rows whose addresses say how all of them lie.
const SAMPLED: u64 = 256;

/// Finds the live blocks of rows.
struct LiveScan<'a> {
    trace: &'a Trace,
    test: RowTest<'a>,
    /// By origin.
    is_pool: Vec<bool>,
    place: Position,
    cancel: &'a Cancel,
}

impl<'a> LiveScan<'a> {
    fn new(trace: &'a Trace, selection: &Selection, place: Position, cancel: &'a Cancel) -> Self {
        Self { trace, test: selection.rows(trace), is_pool: pools(trace), place, cancel }
    }

    /// Calls `each` for the rows of live blocks, with their origins.
    fn each(&self, rows: Range<u64>, mut each: impl FnMut(u64, u32)) -> Result<()> {
        let origins = &self.trace.columns().alloc_origin;
        let mut picker = Picker::new(&self.test, Also::LiveAt(self.place.frees));
        for (at, start) in rows.clone().step_by(BLOCK).enumerate() {
            if at.is_multiple_of(256) {
                self.cancel.check()?;
            }
            for &offset in picker.pick(start, (start + BLOCK as u64).min(rows.end)) {
                let row = start + u64::from(offset);
                let origin = origins.get(row as usize).copied().unwrap_or(u32::MAX);
                if self.is_pool.get(origin as usize) == Some(&false) {
                    each(row, origin);
                }
            }
        }
        Ok(())
    }

    /// All of them.
    fn by_address(&self) -> Result<Vec<PlacedBlock>> {
        let shares = self.shares()?;
        let find = |rows: Range<u64>| {
            let mut found = FoundBlocks::new(&shares, rows.start);
            self.each(rows, |row, origin| {
                let code = self.trace.columns().alloc_size.get(row as usize).copied().unwrap_or(0);
                let (start, size) = (self.trace.address_of(row), self.trace.size_of_code(code, || row));
                found.push(PlacedBlock { start, size, row, origin }, code);
            })?;
            Ok(found)
        };
        let parts: Vec<FoundBlocks<'_>> =
            ranges(0, self.place.allocs).into_par_iter().map(find).collect::<Result<_>>()?;
        self.cancel.check()?;
        Ok(shares.sorted(&parts, |code, row| self.trace.size_of_code(code, || row)))
    }

    /// Shares of the address space for these blocks.
    fn shares(&self) -> Result<AddressShares> {
        let allocs = self.place.allocs;
        let sampled = allocs.div_ceil(BLOCK as u64).min(SAMPLED);
        let sample = |number: u64| {
            let (start, mut found) = (allocs * number / sampled, Vec::new());
            let rows = start..(start + BLOCK as u64).min(allocs);
            self.each(rows, |row, _| found.push(self.trace.address_of(row)))?;
            Ok(found)
        };
        let sample: Vec<Vec<u64>> = (0..sampled).into_par_iter().map(sample).collect::<Result<_>>()?;
        let sample = sample.concat();
        let rows = (sampled * BLOCK as u64).min(allocs).max(1);
        let count = u128::from(allocs) * sample.len() as u128 / u128::from(rows);
        Ok(AddressShares::new(sample, count as u64))
    }
}

fn pools(trace: &Trace) -> Vec<bool> {
    (0..trace.origin_count()).map(|id| trace.origin(id).kind == Kind::PoolAlloc as u8).collect()
}

/// Address space in which blocks have been, in steps of 64 KiB.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HeapRegions {
    steps: Vec<u64>,
}

const STEP_BITS: u32 = 16;

impl HeapRegions {
    /// Address space in which the blocks before a position were.
    ///
    /// # Errors
    /// When cancelled.
    pub fn of(trace: &Trace, place: Position, cancel: &Cancel) -> Result<Self> {
        let is_pool = pools(trace);
        let origins = &trace.columns().alloc_origin;
        let parts: Vec<FxHashSet<u64>> = ranges(0, place.allocs)
            .into_par_iter()
            .map(|range| {
                let (mut steps, mut last) = (FxHashSet::default(), u64::MAX);
                for row in range {
                    if row % 65536 == 0 {
                        cancel.check()?;
                    }
                    let step = trace.address_of(row) >> STEP_BITS;
                    let origin = origins.get(row as usize).copied().unwrap_or(u32::MAX);
                    if step != last && is_pool.get(origin as usize) == Some(&false) {
                        steps.insert(step);
                        last = step;
                    }
                }
                Ok(steps)
            })
            .collect::<Result<_>>()?;
        let existing = trace.existing_blocks(Position::default());
        let mut steps: Vec<u64> = parts.into_iter().flatten().collect();
        steps.extend(existing.into_iter().map(|(start, _)| start >> STEP_BITS));
        steps.par_sort_unstable();
        steps.dedup();
        Ok(Self { steps })
    }

    /// Whether a block has been in a range, as far as 64 KiB tell.
    #[must_use]
    pub fn touch(&self, range: Range<u64>) -> bool {
        let first = self.steps.partition_point(|&step| step < range.start >> STEP_BITS);
        self.steps.get(first).is_some_and(|&step| step <= (range.end - 1) >> STEP_BITS)
    }
}

/// The part of a block in a run of resident pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockPages {
    /// Position of the block.
    pub block: usize,
    /// First page.
    pub first: u64,
    /// How many pages it reaches into.
    pub pages: u64,
    /// Pages that each of these counts as: more than one where a unit of several pages is given back as a whole.
    pub weight: u64,
    /// Of these, the ones that no block before it reaches into.
    pub fresh: u64,
    /// Requested bytes in the run, those of blocks before it left out.
    pub live: u64,
    /// Bytes of the block's extent in the run, as above.
    pub extent: u64,
}

/// Walks over the blocks in one run of pages after the other; the runs must come by address.
#[derive(Debug, Clone, Copy)]
pub struct PageWalk<'a> {
    blocks: &'a [PlacedBlock],
    model: AllocatorModel,
    pages: PageSize,
    at: usize,
}

impl<'a> PageWalk<'a> {
    /// At the start. A page has a power of two of bytes.
    #[must_use]
    pub const fn new(blocks: &'a [PlacedBlock], model: AllocatorModel, page_bytes: u64) -> Self {
        Self { blocks, model, pages: PageSize::new(page_bytes), at: 0 }
    }

    /// A walk over the runs from this block on.
    #[must_use]
    pub const fn from(self, block: usize) -> Self {
        Self { at: block, ..self }
    }

    /// The first of these blocks, the very first left out, with whose page something new begins: no block before it reaches
    /// into the page; and where the page begins.
    #[must_use]
    pub fn page_begin(&self, blocks: Range<usize>) -> Option<(usize, u64)> {
        blocks.skip_while(|&at| at == 0).find_map(|at| {
            let (before, block) = (self.blocks.get(at - 1)?, self.blocks.get(at)?);
            let start = self.extent(at, block).start;
            let page = self.pages.start(start);
            (self.extent(at - 1, before).end <= page).then_some((at, page))
        })
    }

    /// Calls `each` for every block in a run of whole pages.
    #[inline]
    pub fn run(&mut self, run: Range<u64>, mut each: impl FnMut(BlockPages)) {
        // No block but the one before can reach into the run: the sizes of those before it are counted from its start.
        while self.blocks.get(self.at).is_some_and(|block| self.extent(self.at, block).end <= run.start) {
            self.at += 1;
        }
        let (mut covered, mut next_page, mut at) = (run.start, run.start, self.at);
        let Some(mut block) = self.blocks.get(at) else { return };
        let mut extent = self.model.extent(block.start, block.size);
        while extent.start < run.end {
            let next = self.blocks.get(at + 1);
            let behind = next.map(|next| self.model.extent(next.start, next.size));
            let limit = behind.as_ref().map_or(u64::MAX, |behind| behind.start.max(least_end(block)));
            let (from, to) = (extent.start.max(covered), extent.end.min(limit).min(run.end));
            if from < to {
                let live_from = block.start.max(from);
                let live_to = block.start.saturating_add(block.size).min(to);
                let (first, end) = (self.pages.start(from), self.pages.end(to));
                each(BlockPages {
                    block: at,
                    first,
                    pages: self.pages.count(end - first),
                    weight: 1,
                    fresh: self.pages.count(end.saturating_sub(first.max(next_page))),
                    live: live_to.saturating_sub(live_from),
                    extent: to - from,
                });
                covered = to;
                next_page = next_page.max(end);
            }
            let (Some(next), Some(behind)) = (next, behind) else { break };
            (block, extent, at) = (next, behind, at + 1);
        }
    }

    /// The extent of the block at a position, up to the next block at most.
    #[must_use]
    pub fn extent(&self, at: usize, block: &PlacedBlock) -> Range<u64> {
        let extent = self.model.extent(block.start, block.size);
        match self.blocks.get(at + 1) {
            Some(next) => {
                let limit = self.model.extent(next.start, next.size).start.max(least_end(block));
                extent.start..extent.end.min(limit)
            }
            None => extent,
        }
    }
}

/// Where a block's extent ends at the earliest.
fn least_end(block: &PlacedBlock) -> u64 {
    block.start.saturating_add(block.size.max(1))
}

/// Size of a page, a power of two.
#[derive(Debug, Clone, Copy)]
struct PageSize {
    bits: u32,
}

impl PageSize {
    const fn new(bytes: u64) -> Self {
        Self { bits: bytes.trailing_zeros() }
    }

    /// Where the page of an address begins.
    const fn start(self, address: u64) -> u64 {
        address >> self.bits << self.bits
    }

    /// Where a range that ends at an address ends, in whole pages.
    const fn end(self, address: u64) -> u64 {
        self.start(address.saturating_add((1 << self.bits) - 1))
    }

    const fn count(self, bytes: u64) -> u64 {
        bytes >> self.bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Against every byte by itself.
        #[test]
        fn walks_as_bytes_do(
            mut blocks in prop::collection::vec((0_u64..400, 0_u64..90), 0..30),
            present in prop::collection::vec(any::<bool>(), 32),
        ) {
            blocks.sort_unstable();
            blocks.dedup_by_key(|block| block.0);
            // Blocks do not overlap in one address space.
            let mut placed: Vec<PlacedBlock> = Vec::new();
            for (row, &(start, size)) in blocks.iter().enumerate() {
                let limit = blocks.get(row + 1).map_or(u64::MAX, |next| next.0 - start);
                placed.push(PlacedBlock { start, size: size.min(limit), row: row as u64, origin: 0 });
            }
            let mut expected_live = 0;
            let mut expected_pages: BTreeMap<u64, bool> = BTreeMap::new();
            for block in &placed {
                for byte in block.start..block.start + block.size.max(1) {
                    let page = byte / 16;
                    if present.get(page as usize) == Some(&true) {
                        expected_pages.insert(page, true);
                        expected_live += u64::from(byte < block.start + block.size);
                    }
                }
            }
            let mut walk = PageWalk::new(&placed, AllocatorModel::Other, 16);
            let (mut live, mut pages) = (0, 0);
            for (page, _) in present.iter().enumerate().filter(|(_, present)| **present) {
                let start = page as u64 * 16;
                walk.run(start..start + 16, |found| {
                    live += found.live;
                    pages += found.fresh;
                });
            }
            prop_assert_eq!((live, pages), (expected_live, expected_pages.len() as u64));
        }
    }

    #[test]
    fn regions_are_found_by_their_ends() {
        let regions = HeapRegions { steps: vec![1, 5] };
        assert!(regions.touch(0x1_0000..0x1_1000) && regions.touch(0x0..0x1_0001) && regions.touch(0x2_0000..0x9_0000));
        assert!(!regions.touch(0x2_0000..0x5_0000) && !regions.touch(0x6_0000..0x7_0000));
    }
}
