//! Mappings that the program made again and again and never gave back: a leak that no count of blocks has.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;

use crate::amounts::ranges;
use crate::ledger::is_runtime;
use crate::suppress::{Suppression, most_by_design};
use crate::{QueryError, Result, stacks};
use tracehound_api::leaks::MappedSite;
use tracehound_index::mappings::{Mapping, MappingUse};
use tracehound_index::symbols::RecordingSymbols;
use tracehound_index::{Cancel, Trace};

/// One that is made once is for the whole run of a program.
const FEWEST: usize = 3;

/// Backtraces with at least [`FEWEST`] mappings that are there at the end of the recording, most bytes first. Left out are
/// those that hold recorded blocks, stacks, files, and what the runtime of a language maps for its heap.
///
/// # Errors
/// When cancelled.
pub fn find(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    suppress: &[Suppression],
    cancel: &Cancel,
) -> Result<Vec<MappedSite>> {
    let space = trace.mapped_at(u64::MAX);
    let mut by_node: BTreeMap<u32, Vec<&Mapping>> = BTreeMap::new();
    for mapping in space.mappings().filter(|mapping| mapping.kind == MappingUse::Anonymous && mapping.node != 0) {
        by_node.entry(mapping.node).or_default().push(mapping);
    }
    by_node.retain(|_, mappings| mappings.len() >= FEWEST);
    if by_node.is_empty() {
        return Ok(Vec::new());
    }
    let most = most_by_design(trace);
    let all: Vec<&Mapping> = by_node.values().flatten().copied().collect();
    let of_allocators = with_blocks(trace, all, cancel)?;
    let mut found = Vec::new();
    for (node, mut mappings) in by_node {
        mappings.retain(|mapping| of_allocators.binary_search(&mapping.start).is_err());
        let allocated_by = stacks::allocated_by(trace, symbols, node);
        let module = allocated_by.and_then(|frame| frame.module).unwrap_or_default();
        if mappings.len() < FEWEST || is_runtime(&module) {
            continue;
        }
        let stack = stacks::frames(trace, symbols, node);
        let count = mappings.len() as u64;
        if suppress.iter().any(|by| by.is_about(count, most) && by.matches(&stack)) {
            continue;
        }
        let times = || mappings.iter().map(|mapping| mapping.mapped_ns);
        found.push(MappedSite {
            bytes: mappings.iter().map(|mapping| mapping.len).sum(),
            count,
            first_ns: times().min().unwrap_or(0),
            last_ns: times().max().unwrap_or(0),
            stack,
        });
    }
    found.sort_by_key(|site| std::cmp::Reverse((site.bytes, site.count)));
    Ok(found)
}

/// First addresses of those of `mappings` in which a block has been since they were made, sorted.
fn with_blocks(trace: &Trace, mut mappings: Vec<&Mapping>, cancel: &Cancel) -> Result<Vec<u64>> {
    mappings.sort_unstable_by_key(|mapping| mapping.start);
    let made: Vec<u64> = mappings.iter().map(|mapping| trace.position_before(mapping.mapped_ns).allocs).collect();
    let used: Vec<AtomicBool> = mappings.iter().map(|_| AtomicBool::new(false)).collect();
    let mark = |address: u64, row: u64| {
        let Some(at) = mappings.partition_point(|mapping| mapping.start <= address).checked_sub(1) else { return };
        if let (Some(mapping), Some(made), Some(used)) = (mappings.get(at), made.get(at), used.get(at))
            && address - mapping.start < mapping.len
            && row >= *made
        {
            used.store(true, Ordering::Relaxed);
        }
    };
    ranges(0, trace.end_position().allocs).into_par_iter().try_for_each(|range| {
        for row in range {
            if row % 65536 == 0 {
                cancel.check()?;
            }
            mark(trace.address_of(row), row);
        }
        Ok::<_, QueryError>(())
    })?;
    let used = mappings.iter().zip(&used).filter(|(_, used)| used.load(Ordering::Relaxed));
    Ok(used.map(|(mapping, _)| mapping.start).collect())
}
