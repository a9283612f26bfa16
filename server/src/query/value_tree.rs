//! The tree of functions with values, as a filter's view has it.

use std::collections::HashMap;

use super::amounts::Signed;
use super::filter::Filter;
use super::node_sums::NodeSums;
use crate::trace::frame_tree::{FrameId, FrameTree, NO_FUNCTION};
use crate::trace::symbols::{FunctionId, SymbolFrame, Symbols};

/// Index of a row of a [`ValueTree`]; 0 is the root.
pub type RowId = u32;

/// The tree: parents stand before their children.
#[derive(Debug, Default)]
pub struct ValueTree {
    /// Caller; the root's is the root.
    pub parent: Vec<RowId>,
    /// Its function, with file and line of some call.
    pub frame: Vec<SymbolFrame>,
    /// A caller further up is the same function.
    pub recursive: Vec<bool>,
    /// Stable id: the first row of the frame tree that is shown as this one.
    pub id: Vec<FrameId>,
    /// What was allocated by the function itself.
    pub own: Vec<Signed>,
    /// By row of the frame tree: the row that shows it; `None` = dropped.
    shown_as: Option<Vec<Option<RowId>>>,
}

impl ValueTree {
    /// Puts sums on the tree. Blocks without a backtrace are the root's own.
    #[must_use]
    pub fn new(tree: &FrameTree, symbols: &dyn Symbols, filter: &Filter, sums: &NodeSums) -> Self {
        let mut values = match filter.view(tree, symbols) {
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
        let rows = tree.rows();
        Self {
            parent: rows.iter().map(|r| r.parent).collect(),
            frame: rows.iter().map(|r| r.frame).collect(),
            recursive: rows.iter().map(|r| r.recursive).collect(),
            id: (0..rows.len() as FrameId).collect(),
            own: vec![Signed::default(); rows.len()],
            shown_as: None,
        }
    }

    fn viewed(tree: &FrameTree, taken_out: &[bool], starts: Option<&[bool]>) -> Self {
        let rows = tree.rows();
        let mut values = Self::default();
        let nobody = rows
            .first()
            .map_or(SymbolFrame { function: NO_FUNCTION, file: None, line: None, inlined: false }, |root| root.frame);
        values.push(0, nobody, false, 0);
        let mut shown_as: Vec<Option<RowId>> = vec![starts.is_none().then_some(0)];
        let mut children: HashMap<(RowId, FunctionId), RowId> = HashMap::new();
        for (id, row) in (0..).zip(rows).skip(1) {
            let above = shown_as[row.parent as usize];
            let starts_here = starts.is_some_and(|s| s[id as usize]);
            let shown = match above {
                None if !starts_here => None,
                above if taken_out[id as usize] => Some(above.unwrap_or(0)),
                above => {
                    let parent = above.unwrap_or(0);
                    let next = values.parent.len() as RowId;
                    let shown = *children.entry((parent, row.frame.function)).or_insert(next);
                    if shown == next {
                        let recursive =
                            values.path(parent).any(|r| values.frame[r as usize].function == row.frame.function);
                        values.push(parent, row.frame, recursive, id);
                    }
                    Some(shown)
                }
            };
            shown_as.push(shown);
        }
        values.shown_as = Some(shown_as);
        values
    }

    fn push(&mut self, parent: RowId, frame: SymbolFrame, recursive: bool, id: FrameId) {
        self.parent.push(parent);
        self.frame.push(frame);
        self.recursive.push(recursive);
        self.id.push(id);
        self.own.push(Signed::default());
    }

    /// The row that shows a row of the frame tree.
    #[must_use]
    pub fn row_of(&self, frame: FrameId) -> Option<RowId> {
        match &self.shown_as {
            None => ((frame as usize) < self.parent.len()).then_some(frame),
            Some(shown) => shown.get(frame as usize).copied().flatten(),
        }
    }

    /// A row and its callers, without the root.
    pub fn path(&self, row: RowId) -> impl Iterator<Item = RowId> + '_ {
        std::iter::successors(Some(row), |&r| self.parent.get(r as usize).copied()).take_while(|&r| r != 0)
    }

    /// Own and descendants' sums.
    #[must_use]
    pub fn totals(&self) -> Vec<Signed> {
        let mut totals = self.own.clone();
        for row in (1..totals.len()).rev() {
            let sum = totals[row];
            let above = &mut totals[self.parent[row] as usize];
            above.count += sum.count;
            above.bytes += sum.bytes;
        }
        totals
    }
}
