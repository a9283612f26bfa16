//! Resident pages with live blocks at a moment: what every answer about pins walks over.

use std::ops::Range;

use rayon::prelude::*;
use tracehound_api::ledger::Basis;
use tracehound_api::pins::{PinUnit, PinnedPages};
use tracehound_api::units::{bytes, duration};
use tracehound_format::look::{MappingClass, PageRun, PageState};
use tracehound_index::block_extents::AllocatorModel;
use tracehound_index::looks::PageMap;
use tracehound_index::{Cancel, Position, Trace};

use super::slabs::{SlabRules, Slabs};
use crate::amounts::ranges;
use crate::ledger::{look_for, nearest_kinds};
use crate::live_blocks::{BlockPages, PageWalk, PlacedBlock, placed_blocks};
use crate::window::TimeExpr;
use crate::{QueryError, Result};

/// See the module's description.
#[derive(Debug)]
pub struct HeldPages {
    /// The look at the pages that the moment stands for; `None`: the recording has none, and every page with a live block
    /// counts as resident.
    pub look: Option<PageMap>,
    /// When: the look's time, where there is one.
    pub at_ns: u64,
    /// Where among the events.
    pub place: Position,
    /// Size of a page, or of a huge page.
    pub page_bytes: u64,
    /// Whether the bounds of what is given back as a whole are known.
    pub basis: Basis,
    /// What that is, in sentences.
    pub words: String,
    /// Resident pages with live blocks outside of what can be given back as a whole.
    pub outside: PinnedPages,
    blocks: Vec<PlacedBlock>,
    /// By address.
    resident: Vec<Range<u64>>,
    model: AllocatorModel,
    slabs: Option<Slabs>,
}

/// Huge pages of x86-64, and of aarch64 with pages of 4 KiB.
const HUGE: u64 = 2 << 20;
const PAGE: u64 = 4096;

impl HeldPages {
    /// Those of the moment `at_ns`, at `place` among the events; `at` is how it was written, and
    /// `before` whether the look must not be a later one.
    ///
    /// # Errors
    /// When the recording has no addresses, when its pages or allocator do not have the unit, or cancelled.
    pub fn new(
        trace: &Trace,
        unit: PinUnit,
        (at, before): (Option<&TimeExpr>, bool),
        at_ns: u64,
        place: Position,
        cancel: &Cancel,
    ) -> Result<Self> {
        crate::need_addresses(trace)?;
        let look = look_for(trace, at, at_ns, before).and_then(|look| trace.page_map(look).ok());
        let place = look.as_ref().map_or(place, |look| trace.position_before(look.t_ns + 1));
        let at_ns = look.as_ref().map_or(at_ns, |look| look.t_ns);
        let page_bytes = look.as_ref().map_or(PAGE, |look| look.page_bytes);
        if unit != PinUnit::Page && page_bytes != PAGE {
            let why = format!(
                "the pages of this recording are of {}, and only those of 4 KiB have units of `2M` and `slab`; use `4k`",
                bytes(page_bytes)
            );
            return Err(QueryError::bad("unit", why));
        }
        let rules = if unit == PinUnit::Slab { Some(SlabRules::of(trace)?) } else { None };
        let everything = vec![Range { start: 0, end: u64::MAX - u64::MAX % page_bytes.max(HUGE) }];
        let resident = look.as_ref().map_or(everything, resident_heap);
        let model = AllocatorModel::of(trace);
        let blocks = placed_blocks(trace, place, cancel)?;
        let mut held = Self {
            look,
            at_ns,
            place,
            page_bytes,
            basis: Basis::Exact,
            words: String::new(),
            outside: PinnedPages::default(),
            blocks,
            resident,
            model,
            slabs: None,
        };
        if unit == PinUnit::Huge {
            let kernel = nearest_kinds(trace, at_ns).map(|near| (near.kinds.anonymous_huge, near.t_ns));
            held.only_huge(kernel, cancel)?;
        }
        if let Some(rules) = rules {
            let alignments: Vec<u8> = (0..trace.origin_count()).map(|id| trace.origin(id).alignment).collect();
            held.put_into_slabs(&rules, |origin| {
                let power = alignments.get(origin as usize).copied().unwrap_or(0);
                1_u64.checked_shl(u32::from(power)).unwrap_or(1)
            })?;
        }
        Ok(held)
    }

    /// Keeps the ranges that can be huge pages; the rest is outside. `kernel` is how many bytes the kernel counted in huge pages,
    /// and when.
    fn only_huge(&mut self, kernel: Option<(u64, u64)>, cancel: &Cancel) -> Result<()> {
        let huge = self.look.as_ref().map_or_else(|| self.resident.clone(), huge_ranges);
        let small = without(&self.resident, &huge);
        self.resident = small;
        let sums = self.parts(cancel, PinnedPages::default, |sums, _, pages| {
            sums.count += pages.fresh;
            sums.live_bytes += pages.live;
        })?;
        for part in sums {
            self.outside.count += part.count;
            self.outside.live_bytes += part.live_bytes;
        }
        self.outside.bytes = self.outside.count * PAGE;
        (self.resident, self.page_bytes, self.basis) = (huge, HUGE, Basis::Modelled);
        self.words = if self.look.is_none() {
            "every range of 2 MiB with a live block counts as a huge page.".into()
        } else {
            let kernel = kernel.map_or_else(String::new, |(huge, when)| {
                format!("; at {} the kernel counted {} in huge pages", duration(when), bytes(huge))
            });
            format!("ranges of 2 MiB that are wholly resident count, as these can be huge pages{kernel}.")
        };
        Ok(())
    }

    fn put_into_slabs(&mut self, rules: &SlabRules, alignment: impl Fn(u32) -> u64) -> Result<()> {
        if *rules != SlabRules::Glibc {
            let slabs = Slabs::new(rules, &self.blocks, alignment, &self.resident);
            slabs.check()?;
            self.basis = Basis::Modelled;
            self.slabs = Some(slabs);
        }
        self.words = rules.words(self.slabs.as_ref());
        Ok(())
    }

    /// Calls `each` for every block and the resident pages that it reaches into, by address; in slabs each block takes its whole
    /// slab. The address space is walked in parts at once, each with what `nothing` makes; no page lies in two parts.
    ///
    /// # Errors
    /// When cancelled.
    pub fn parts<T: Send>(
        &self,
        cancel: &Cancel,
        nothing: impl Fn() -> T + Sync,
        each: impl Fn(&mut T, &PlacedBlock, BlockPages) + Sync,
    ) -> Result<Vec<T>> {
        let cuts = ranges(0, self.blocks.len() as u64).into_iter().map(|part| part.start as usize..part.end as usize);
        if let Some(slabs) = &self.slabs {
            let cuts: Vec<Range<usize>> = cuts.map(|part| slabs.whole(part)).collect();
            let walk = |blocks| {
                let mut sums = nothing();
                self.walk_slabs(slabs, blocks, cancel, |block, found| each(&mut sums, block, found))?;
                Ok(sums)
            };
            return cuts.into_par_iter().map(walk).collect();
        }
        let whole = PageWalk::new(&self.blocks, self.model, self.page_bytes);
        let mut begins = vec![(0, 0)];
        begins.extend(cuts.skip(1).filter_map(|part| whole.page_begin(part)));
        let ends = begins.iter().skip(1).map(|&(_, start)| start).chain([u64::MAX]);
        let parts: Vec<(usize, Range<u64>)> =
            begins.iter().zip(ends).map(|(&(block, start), end)| (block, start..end)).collect();
        let walk = |(block, part): (usize, Range<u64>)| {
            let mut sums = nothing();
            let mut walk = whole.from(block);
            let first = self.resident.partition_point(|run| run.end <= part.start);
            for (number, run) in self.resident.iter().skip(first).take_while(|run| run.start < part.end).enumerate() {
                if number.is_multiple_of(4096) {
                    cancel.check()?;
                }
                walk.run(run.start.max(part.start)..run.end.min(part.end), |found| {
                    if let Some(block) = self.blocks.get(found.block) {
                        each(&mut sums, block, found);
                    }
                });
            }
            Ok(sums)
        };
        parts.into_par_iter().map(walk).collect()
    }

    /// A block that was never touched holds its slab as well: all blocks come, whatever of them is resident.
    fn walk_slabs(
        &self,
        slabs: &Slabs,
        blocks: Range<usize>,
        cancel: &Cancel,
        mut each: impl FnMut(&PlacedBlock, BlockPages),
    ) -> Result<()> {
        let walk = PageWalk::new(&self.blocks, self.model, self.page_bytes);
        let (mut covered, mut last) = (0, None);
        let begin = slabs.of(blocks.start).map_or(0, |(_, slab)| slab.start);
        let mut run = self.resident.partition_point(|run| run.end <= begin);
        for at in blocks {
            if at.is_multiple_of(65_536) {
                cancel.check()?;
            }
            let (Some(block), Some((number, slab))) = (self.blocks.get(at), slabs.of(at)) else { continue };
            let extent = walk.extent(at, block);
            let from = extent.start.max(covered);
            covered = extent.end.max(from);
            if slab.pages == 0 {
                continue;
            }
            while self.resident.get(run).is_some_and(|run| run.end <= from) {
                run += 1;
            }
            let within = |range: Range<u64>| -> u64 {
                let runs = self.resident.iter().skip(run).take_while(|run| run.start < range.end);
                runs.map(|run| run.end.min(range.end).saturating_sub(run.start.max(range.start))).sum()
            };
            let live = block.start.max(from)..block.start.saturating_add(block.size).min(covered);
            let fresh = if last.replace(number) == Some(number) { 0 } else { slab.pages };
            let found = BlockPages {
                block: at,
                first: slab.start,
                pages: 1,
                weight: slab.pages,
                fresh,
                live: within(live),
                extent: within(from..covered),
            };
            each(block, found);
        }
        Ok(())
    }
}

/// Memory without a file that blocks can be in: its runs of resident pages, by address.
fn heap_runs(map: &PageMap) -> impl Iterator<Item = &PageRun> {
    map.runs.iter().filter(|run| {
        let class = map.mappings.get(run.mapping).map(|mapping| mapping.class);
        run.state == PageState::Anonymous && matches!(class, Some(MappingClass::Anonymous | MappingClass::Break))
    })
}

/// Resident memory that blocks can be in, by address.
fn resident_heap(map: &PageMap) -> Vec<Range<u64>> {
    let mut found: Vec<Range<u64>> = Vec::new();
    for run in heap_runs(map) {
        match found.last_mut() {
            Some(last) if last.end == run.start => last.end += run.len,
            _ => found.push(run.start..run.start + run.len),
        }
    }
    found
}

/// The part of it that can be huge pages: aligned ranges that are wholly resident and in one mapping.
fn huge_ranges(map: &PageMap) -> Vec<Range<u64>> {
    let mut found: Vec<(usize, Range<u64>)> = Vec::new();
    for run in heap_runs(map) {
        match found.last_mut() {
            Some((mapping, last)) if *mapping == run.mapping && last.end == run.start => last.end += run.len,
            _ => found.push((run.mapping, run.start..run.start + run.len)),
        }
    }
    let aligned = |(_, run): (usize, Range<u64>)| {
        let start = run.start.checked_next_multiple_of(HUGE)?;
        let end = run.end - run.end % HUGE;
        (start < end).then_some(start..end)
    };
    found.into_iter().filter_map(aligned).collect()
}

/// Ranges without those parts, all by address; each part is in one range.
fn without(ranges: &[Range<u64>], parts: &[Range<u64>]) -> Vec<Range<u64>> {
    let (mut found, mut parts) = (Vec::new(), parts.iter().peekable());
    for range in ranges {
        let mut at = range.start;
        while let Some(part) = parts.next_if(|part| part.start < range.end) {
            found.push(at..part.start);
            at = part.end;
        }
        found.push(at..range.end);
    }
    found.retain(|range| range.start < range.end);
    found
}

#[cfg(test)]
mod tests;
