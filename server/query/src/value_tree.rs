//! The tree of functions with values, as a filter's view has it.

use std::sync::Arc;

use super::amounts::Signed;
use super::filter::Filter;
use super::node_sums::NodeSums;
pub use super::stack_view::RowId;
use super::stack_view::StackView;
use tracehound_index::Trace;
use tracehound_index::frame_tree::{FrameId, FrameTree, TreeShape};
use tracehound_index::symbols::RecordingSymbols;

/// The tree: parents stand before their children.
#[derive(Debug, Default)]
pub struct ValueTree {
    /// The rows; without a filter's view they are the frame tree's, which is not copied.
    pub shape: Arc<TreeShape>,
    /// What was allocated by the function itself.
    pub own: Vec<Signed>,
    /// How a filter shows the frame tree; `None`: as it is.
    view: Option<StackView>,
}

impl ValueTree {
    /// Puts sums on the tree. Blocks without a backtrace are the root's own.
    #[must_use]
    pub fn new(
        trace: &Trace,
        tree: &FrameTree,
        symbols: &dyn RecordingSymbols,
        filter: &Filter,
        sums: &NodeSums,
    ) -> Self {
        let rows = sums.nodes.iter().map(|node| (tree.of_node(node.node), node.sum));
        Self::of_rows(trace, tree, symbols, filter, rows)
    }

    /// Puts what rows of the frame tree have on the tree.
    #[must_use]
    pub fn of_rows(
        trace: &Trace,
        tree: &FrameTree,
        symbols: &dyn RecordingSymbols,
        filter: &Filter,
        rows: impl IntoIterator<Item = (FrameId, Signed)>,
    ) -> Self {
        let view = filter.view(trace, tree, symbols);
        let shape = Arc::clone(view.as_ref().map_or_else(|| tree.shape(), |view| &view.shape));
        let mut values = Self { own: vec![Signed::default(); shape.len()], shape, view };
        for (frame, sum) in rows {
            let row = match &values.view {
                None => Some(frame),
                Some(view) => view.ends_as.get(frame as usize).copied().flatten(),
            };
            if let Some(own) = row.and_then(|row| values.own.get_mut(row as usize)) {
                own.count += sum.count;
                own.bytes += sum.bytes;
            }
        }
        values
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.own.len()
    }

    /// Without any row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.own.is_empty()
    }

    /// Stable id of a row: the first row of the frame tree that is shown as it.
    #[must_use]
    pub fn id(&self, row: RowId) -> FrameId {
        self.view.as_ref().map_or(row, |view| view.first[row as usize])
    }

    /// The row that shows a row of the frame tree.
    #[must_use]
    pub fn row_of(&self, frame: FrameId) -> Option<RowId> {
        match &self.view {
            None => ((frame as usize) < self.len()).then_some(frame),
            Some(view) => view.shown_as.get(frame as usize).copied().flatten(),
        }
    }

    /// A row and its callers, without the root.
    pub fn path(&self, row: RowId) -> impl Iterator<Item = RowId> + '_ {
        self.shape.path(row)
    }

    /// Own and descendants' sums.
    #[must_use]
    pub fn totals(&self) -> Vec<Signed> {
        let mut totals = self.own.clone();
        for row in (1..totals.len()).rev() {
            let sum = totals[row];
            let above = &mut totals[self.shape.parent[row] as usize];
            above.count += sum.count;
            above.bytes += sum.bytes;
        }
        totals
    }
}
