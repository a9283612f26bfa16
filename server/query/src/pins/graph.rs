//! Pinned pages on the tree of functions: each page is at the innermost row below which all its blocks were allocated.
//!
//! So the value of a row is the pages that can be given back when its function's blocks are freed, and that no function
//! further in holds alone: rows add up, and a page is counted once. Pages whose blocks share no function are the root's.
//!
//! ```text
//! row(page)  = lowest common ancestor of the rows of its blocks
//! value(row) = pages at the row and below it
//! ```

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use tracehound_api::Metric;
use tracehound_api::pins::PinUnit;
use tracehound_index::frame_tree::{FrameId, FrameTree};
use tracehound_index::symbols::RecordingSymbols;
use tracehound_index::{Cancel, Trace};

use super::held_pages::HeldPages;
use crate::amounts::{MetricMoment, Signed, SumKey, SumQuery};
use crate::filter::Filter;
use crate::live_blocks::{BlockPages, NO_ROW, live_blocks_of};
use crate::value_tree::ValueTree;
use crate::window::{Resolved, Window};
use crate::{QueryError, Result};

/// Pages on the tree: the count is pages, the bytes are theirs.
#[derive(Debug)]
pub struct PinnedTree {
    /// Rows with the pages that stand at them.
    pub values: ValueTree,
    /// The window that was asked for.
    pub window: Resolved,
    /// The moment; that of the look at the pages, where the recording has one.
    pub moment: MetricMoment,
}

/// Puts the pages of a moment on the tree, in units that are given back as a whole. Pages that a block outside the filter
/// holds, too, do not count.
///
/// # Errors
/// When the metric is about no moment, the window or the filter does not fit the recording, or cancelled.
pub fn values(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    unit: PinUnit,
    metric: Metric,
    window: &Window,
    filter: &Filter,
    cancel: &Cancel,
) -> Result<PinnedTree> {
    let selection = filter.select(trace, symbols, cancel)?;
    let resolved = window.resolve(trace, &selection, cancel)?;
    let question = SumQuery { trace, selection: &selection, key: SumKey::Site, cancel };
    let Some(moment) = question.moment(metric, &resolved)? else {
        return Err(QueryError::bad("pinned", "pages are held at a moment: the metric is `live` or `peak`"));
    };
    let at = window.at.as_ref().filter(|_| metric == Metric::Live);
    let held =
        HeldPages::new(trace, unit, (at, false), moment.ns, moment.place, cancel).map_err(|error| match error {
            // As it is called here, where `unit` is another parameter.
            QueryError::BadParameter { parameter, why } if parameter == "unit" => QueryError::bad("pin_unit", why),
            error => error,
        })?;
    let passing: Option<FxHashSet<u64>> = if selection.is_everything() {
        None
    } else {
        Some(live_blocks_of(trace, &selection, held.place, cancel)?.into_iter().map(|block| block.row).collect())
    };
    let tree = trace.frame_tree(symbols, cancel)?;
    let row_of_origin = rows_of_origins(trace, &tree);
    let parts = held.parts(
        cancel,
        || PageRows::new(&tree.shape().parent),
        |pages, block, found| {
            // Blocks from before the recording have no backtrace.
            let passes = passing.as_ref().is_none_or(|rows| block.row != NO_ROW && rows.contains(&block.row));
            let row = if passes { row_of_origin.get(block.origin as usize).copied().unwrap_or(0) } else { OUTSIDE };
            pages.add(row, found, held.page_bytes);
        },
    )?;
    let mut pages: BTreeMap<FrameId, u64> = BTreeMap::new();
    for (row, count) in parts.into_iter().flat_map(PageRows::finish) {
        *pages.entry(row).or_default() += count;
    }
    let sums = pages.into_iter().map(|(row, count)| {
        let bytes = count.saturating_mul(held.page_bytes);
        (row, Signed { count: count.cast_signed(), bytes: bytes.cast_signed() })
    });
    let values = ValueTree::of_rows(trace, &tree, symbols, filter, sums);
    let moment = MetricMoment { ns: held.at_ns, place: held.place, ..moment };
    Ok(PinnedTree { values, window: resolved, moment })
}

fn rows_of_origins(trace: &Trace, tree: &FrameTree) -> Vec<FrameId> {
    let row = |site| trace.site_node(site).map_or(0, |node| tree.of_node(node));
    let of_site: Vec<FrameId> = (0..trace.site_count()).map(row).collect();
    (0..trace.origin_count()).map(|id| of_site.get(trace.origin(id).site as usize).copied().unwrap_or(0)).collect()
}

/// The row of a block that does not pass the filter.
const OUTSIDE: FrameId = FrameId::MAX;

/// Pages by the row that holds them.
#[derive(Debug)]
struct PageRows<'a> {
    /// Caller of each row, which has the smaller number; the root's is the root.
    parent: &'a [FrameId],
    pages: FxHashMap<FrameId, u64>,
    /// Cache of common ancestors of two rows, the smaller one first.
    common: FxHashMap<(FrameId, FrameId), FrameId>,
    /// The page at hand, the pages that it counts as, and the row that holds all of it that was seen.
    open: Option<(u64, u64, FrameId)>,
}

impl<'a> PageRows<'a> {
    fn new(parent: &'a [FrameId]) -> Self {
        Self { parent, pages: FxHashMap::default(), common: FxHashMap::default(), open: None }
    }

    /// Adds a block of a row; pages must come by address.
    fn add(&mut self, row: FrameId, found: BlockPages, page_bytes: u64) {
        let (mut first, mut left) = (found.first, found.pages);
        if let Some((page, weight, before)) = self.open.filter(|(page, ..)| *page == first) {
            self.open = Some((page, weight, self.common_row(before, row)));
            first += page_bytes;
            left -= 1;
        }
        if left > 0 {
            self.close();
            // All but the last one are this block's alone.
            *self.pages.entry(row).or_default() += (left - 1) * found.weight;
            self.open = Some((first + (left - 1) * page_bytes, found.weight, row));
        }
    }

    fn close(&mut self) {
        if let Some((_, weight, row)) = self.open.take() {
            *self.pages.entry(row).or_default() += weight;
        }
    }

    fn common_row(&mut self, one: FrameId, two: FrameId) -> FrameId {
        if one == two || one == OUTSIDE {
            return one;
        }
        if two == OUTSIDE {
            return two;
        }
        let parent = self.parent;
        *self.common.entry((one.min(two), one.max(two))).or_insert_with(|| {
            let (mut one, mut two) = (one, two);
            while one != two {
                // A caller has the smaller number: the larger one cannot be above the other.
                let climbs = if one > two { &mut one } else { &mut two };
                *climbs = parent.get(*climbs as usize).copied().unwrap_or(0);
            }
            one
        })
    }

    /// Pages of each row that has some, by row.
    fn finish(mut self) -> Vec<(FrameId, u64)> {
        self.close();
        let mut rows: Vec<(FrameId, u64)> =
            self.pages.into_iter().filter(|&(row, pages)| row != OUTSIDE && pages > 0).collect();
        rows.sort_unstable();
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Below a row lie the pages of which nothing is left when all blocks allocated below it are taken away.
        #[test]
        fn taking_blocks_away_frees_as_many_pages(
            parents in prop::collection::vec(any::<u16>(), 1..12),
            // Pages from the one before on, by which many share a page; a row, or none for one outside.
            blocks in prop::collection::vec((0_u64..3, 1_u64..4, prop::option::weighted(0.9, any::<u16>())), 0..40),
        ) {
            let parent: Vec<FrameId> = std::iter::once(0)
                .chain(parents.iter().zip(1_u32..).map(|(choice, row)| u32::from(*choice) % row))
                .collect();
            let rows = parent.len() as u32;
            let (mut pages, mut by_page) = (PageRows::new(&parent), BTreeMap::<u64, Vec<FrameId>>::new());
            let mut at = 0;
            for &(step, count, row) in &blocks {
                let row = row.map_or(OUTSIDE, |choice| u32::from(choice) % rows);
                at += step;
                let found = BlockPages { block: 0, first: at * 16, pages: count, weight: 1, fresh: 0, live: 0, extent: 0 };
                pages.add(row, found, 16);
                for page in at..at + count {
                    by_page.entry(page).or_default().push(row);
                }
                at += count - 1;
            }
            let below = |row: FrameId, top: FrameId| {
                row != OUTSIDE && (row == top || std::iter::successors(Some(row), |&r| (r != 0).then(|| parent[r as usize]))
                    .any(|above| above == top))
            };
            let mut values = vec![0; parent.len()];
            for (row, count) in pages.finish() {
                values[row as usize] += count;
            }
            for row in (1..values.len()).rev() {
                values[parent[row] as usize] += values[row];
            }
            for top in 0..rows {
                let freed = by_page.values().filter(|blocks| blocks.iter().all(|&row| below(row, top))).count() as u64;
                prop_assert_eq!(values[top as usize], freed, "row {}", top);
            }
        }
    }
}
