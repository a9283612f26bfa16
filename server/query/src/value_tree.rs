//! The tree of functions with values, as a filter's view has it.

use std::collections::HashMap;
use std::sync::Arc;

use super::amounts::Signed;
use super::filter::Filter;
use super::node_sums::NodeSums;
use tracehound_index::Trace;
use tracehound_index::frame_tree::{FrameId, FrameTree, NO_FUNCTION, TreeRow, TreeShape};
use tracehound_index::symbols::{FunctionId, RecordingSymbols, SymbolFrame};

/// Index of a row of a [`ValueTree`]; 0 is the root.
pub type RowId = u32;

/// The tree: parents stand before their children.
#[derive(Debug, Default)]
pub struct ValueTree {
    /// The rows; without a filter's view they are the frame tree's, which is not copied.
    pub shape: Arc<TreeShape>,
    /// Of a filter's view, for each row: the first row of the frame tree that is shown as it.
    first: Option<Vec<FrameId>>,
    /// What was allocated by the function itself.
    pub own: Vec<Signed>,
    /// By row of the frame tree: the row that shows it; `None` = dropped.
    shown_as: Option<Vec<Option<RowId>>>,
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
        let mut values = match filter.view(trace, tree, symbols) {
            None => Self::plain(tree),
            Some(rules) => Self::viewed(tree, &rules.taken_out, rules.starts.as_deref()),
        };
        for node in &sums.nodes {
            if let Some(own) = values.row_of(tree.of_node(node.node)).and_then(|row| values.own.get_mut(row as usize)) {
                own.count += node.sum.count;
                own.bytes += node.sum.bytes;
            }
        }
        values
    }

    fn plain(tree: &FrameTree) -> Self {
        let shape = Arc::clone(tree.shape());
        Self { own: vec![Signed::default(); shape.len()], shape, first: None, shown_as: None }
    }

    fn viewed(tree: &FrameTree, taken_out: &[bool], starts: Option<&[bool]>) -> Self {
        let mut shape = TreeShape::default();
        let mut first = vec![0];
        let nobody = SymbolFrame { function: NO_FUNCTION, file: None, line: None, inlined: false };
        shape.push(TreeRow { parent: 0, frame: nobody, recursive: false });
        let mut shown_as: Vec<Option<RowId>> = vec![starts.is_none().then_some(0)];
        let mut children: HashMap<(RowId, FunctionId), RowId> = HashMap::new();
        for (id, row) in (0..).zip(tree.rows()).skip(1) {
            let above = shown_as[row.parent as usize];
            let starts_here = starts.is_some_and(|s| s[id as usize]);
            let shown = match above {
                None if !starts_here => None,
                above if taken_out[id as usize] => Some(above.unwrap_or(0)),
                above => {
                    let parent = above.unwrap_or(0);
                    let next = shape.len() as RowId;
                    let shown = *children.entry((parent, row.frame.function)).or_insert(next);
                    if shown == next {
                        let recursive =
                            shape.path(parent).any(|r| shape.frame[r as usize].function == row.frame.function);
                        shape.push(TreeRow { parent, frame: row.frame, recursive });
                        first.push(id);
                    }
                    Some(shown)
                }
            };
            shown_as.push(shown);
        }
        let own = vec![Signed::default(); shape.len()];
        Self { shape: Arc::new(shape), first: Some(first), own, shown_as: Some(shown_as) }
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
        self.first.as_ref().map_or(row, |first| first[row as usize])
    }

    /// The row that shows a row of the frame tree.
    #[must_use]
    pub fn row_of(&self, frame: FrameId) -> Option<RowId> {
        match &self.shown_as {
            None => ((frame as usize) < self.len()).then_some(frame),
            Some(shown) => shown.get(frame as usize).copied().flatten(),
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
