//! Resident pages with live blocks at a moment: what every answer about pins walks over.

use std::ops::Range;

use rayon::prelude::*;
use tracehound_format::look::{MappingClass, PageState};
use tracehound_index::block_extents::AllocatorModel;
use tracehound_index::looks::PageMap;
use tracehound_index::{Cancel, Position, Trace};

use crate::Result;
use crate::amounts::ranges;
use crate::ledger::look_for;
use crate::live_blocks::{BlockPages, PageWalk, PlacedBlock, placed_blocks};
use crate::window::TimeExpr;

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
    /// Size of a page.
    pub page_bytes: u64,
    blocks: Vec<PlacedBlock>,
    /// By address.
    resident: Vec<Range<u64>>,
    model: AllocatorModel,
}

impl HeldPages {
    /// Those of the moment `at_ns`, at `place` among the events; `at` is how it was written, and
    /// `before` whether the look must not be a later one.
    ///
    /// # Errors
    /// When cancelled.
    pub fn new(
        trace: &Trace,
        (at, before): (Option<&TimeExpr>, bool),
        at_ns: u64,
        place: Position,
        cancel: &Cancel,
    ) -> Result<Self> {
        let look = look_for(trace, at, at_ns, before).and_then(|look| trace.page_map(look).ok());
        let place = look.as_ref().map_or(place, |look| trace.position_before(look.t_ns + 1));
        let at_ns = look.as_ref().map_or(at_ns, |look| look.t_ns);
        let blocks = placed_blocks(trace, place, cancel)?;
        let page_bytes = look.as_ref().map_or(4096, |look| look.page_bytes);
        let everything = Range { start: 0, end: u64::MAX - u64::MAX % page_bytes };
        let resident = look.as_ref().map_or_else(|| vec![everything], resident_heap);
        let model = AllocatorModel::of(trace);
        Ok(Self { look, at_ns, place, page_bytes, blocks, resident, model })
    }

    /// Calls `each` for every block and what it takes of a run of resident pages, by address. The address space is walked in
    /// parts at once, each with what `nothing` makes; no page lies in two parts.
    ///
    /// # Errors
    /// When cancelled.
    pub fn parts<T: Send>(
        &self,
        cancel: &Cancel,
        nothing: impl Fn() -> T + Sync,
        each: impl Fn(&mut T, &PlacedBlock, BlockPages) + Sync,
    ) -> Result<Vec<T>> {
        let whole = PageWalk::new(&self.blocks, self.model, self.page_bytes);
        let cuts = ranges(0, self.blocks.len() as u64).into_iter().skip(1);
        let mut begins = vec![(0, 0)];
        begins.extend(cuts.filter_map(|part| whole.page_begin(part.start as usize..part.end as usize)));
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
}

/// Resident memory that blocks can be in, by address.
fn resident_heap(map: &PageMap) -> Vec<Range<u64>> {
    let mut found: Vec<Range<u64>> = Vec::new();
    for run in map.runs.iter().filter(|run| run.state == PageState::Anonymous) {
        let class = map.mappings.get(run.mapping).map(|mapping| mapping.class);
        if matches!(class, Some(MappingClass::Anonymous | MappingClass::Break)) {
            match found.last_mut() {
                Some(last) if last.end == run.start => last.end += run.len,
                _ => found.push(run.start..run.start + run.len),
            }
        }
    }
    found
}
