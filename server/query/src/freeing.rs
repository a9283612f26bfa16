//! Blocks that were freed in a window, by the backtrace of the free.

use rayon::prelude::*;
use rustc_hash::FxHashMap;
use tracehound_api::{Amount, Metric};
use tracehound_index::symbols::RecordingSymbols;
use tracehound_index::{Cancel, Trace};

use super::amounts::{Signed, ranges};
use super::filter::{Filter, Selection};
use super::node_sums::{NodeSum, NodeSums};
use super::scan::{Also, BLOCK, Picker};
use super::window::{Resolved, Window};
use super::{QueryError, Result};

/// What one backtrace freed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FreedSum {
    /// Blocks and bytes.
    pub amount: Amount,
    /// Of these, what the thread freed that had allocated it.
    pub same_thread: Amount,
}

impl FreedSum {
    /// Adds what others freed.
    pub fn add(&mut self, more: Self) {
        for (to, more) in [(&mut self.amount, more.amount), (&mut self.same_thread, more.same_thread)] {
            to.bytes += more.bytes;
            to.count += more.count;
        }
    }
}

/// By call-tree node of the free, 0 where it was not recorded.
type ByNode = FxHashMap<u32, FreedSum>;

/// Adds up the frees in the window of the blocks that pass.
///
/// # Errors
/// When cancelled.
pub fn by_node(trace: &Trace, selection: &Selection, window: &Resolved, cancel: &Cancel) -> Result<ByNode> {
    let test = selection.rows(trace);
    let c = trace.columns();
    ranges(window.span.from.frees, window.span.to.frees)
        .into_par_iter()
        .map(|range| {
            let mut freed = ByNode::default();
            let mut picker = Picker::new(&test, Also::Nothing);
            for (at, start) in range.clone().step_by(BLOCK).enumerate() {
                if at.is_multiple_of(256) {
                    cancel.check()?;
                }
                for &offset in picker.pick_frees(start, (start + BLOCK as u64).min(range.end)) {
                    let ordinal = start + u64::from(offset);
                    let row = trace.row_of_free(ordinal);
                    let origin =
                        |origins: &[u32], at: u64| trace.origin(origins.get(at as usize).copied().unwrap_or(u32::MAX));
                    let (alloc, free) = (origin(&c.alloc_origin, row), origin(&c.free_origin, ordinal));
                    let amount = Amount { count: 1, bytes: trace.size_of_free(ordinal) };
                    let same_thread = if alloc.thread == free.thread { amount } else { Amount::default() };
                    freed.entry(free.node).or_default().add(FreedSum { amount, same_thread });
                }
            }
            Ok(freed)
        })
        .try_reduce(ByNode::default, |mut a, b| {
            for (node, freed) in b {
                a.entry(node).or_default().add(freed);
            }
            Ok::<_, QueryError>(a)
        })
}

/// Sums per freeing backtrace, for [`Metric::Freed`]. The filter's patterns and bounds are about the blocks, as
/// everywhere; what it does to backtraces is done to those of the frees.
///
/// # Errors
/// When the metric is another, the window or the filter does not fit the recording, or cancelled.
pub fn sums(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    metric: Metric,
    window: &Window,
    filter: &Filter,
    cancel: &Cancel,
) -> Result<NodeSums> {
    if metric != Metric::Freed {
        return Err(QueryError::bad("freeing", "only the metric `freed` has backtraces of frees"));
    }
    let blocks = Filter { transforms: Vec::new(), show_from: None, ..filter.clone() };
    let selection = blocks.select(trace, symbols, cancel)?;
    let window = window.resolve(trace, &selection, cancel)?;
    let mut total = Signed::default();
    let mut nodes: Vec<NodeSum> = by_node(trace, &selection, &window, cancel)?
        .into_iter()
        .map(|(node, FreedSum { amount, .. })| {
            let sum = Signed { count: amount.count as i64, bytes: amount.bytes as i64 };
            // A free is of no site.
            NodeSum { site: u32::MAX, node, sum }
        })
        .collect();
    nodes.sort_unstable_by_key(|sum| sum.node);
    for NodeSum { sum, .. } in &nodes {
        total.count += sum.count;
        total.bytes += sum.bytes;
    }
    Ok(NodeSums { window, moment: None, nodes, total })
}
