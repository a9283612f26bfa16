//! The call tree by function instead of by address: inlined functions are levels of their own, two calls from the same
//! function of the same caller are one. Recursion is kept.
//!
//! Ids are given out in the order of node ids, parents first, so that the same recording with the same symbols always
//! has the same ids, and a grown recording keeps those that it had.

use std::collections::HashMap;

use super::cancel::{Cancel, Cancelled};
use super::symbols::{FunctionId, SymbolFrame, Symbols};
use super::{LocationId, Trace};

/// One node of the tree; 0 is the root.
pub type FrameId = u32;

/// A row of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Caller; the root's is the root. Smaller than the row's own id otherwise.
    pub parent: FrameId,
    /// The first frame that made the row: its function is the row's; file and line are an example.
    pub frame: SymbolFrame,
    /// A caller further up is the same function.
    pub recursive: bool,
}

/// See the module's text.
#[derive(Debug, Default)]
pub struct FrameTree {
    rows: Vec<Row>,
    /// For each call-tree node: the row of its innermost function.
    of_node: Vec<FrameId>,
}

/// Stands for the function of the root.
pub const NO_FUNCTION: FunctionId = FunctionId::MAX;

impl FrameTree {
    /// Builds the tree over all nodes of `trace`.
    ///
    /// # Errors
    /// When cancelled.
    pub fn build(trace: &Trace, symbols: &dyn Symbols, cancel: &Cancel) -> Result<Self, Cancelled> {
        let locations: Vec<LocationId> = (0..trace.location_count()).collect();
        symbols.resolve(trace, &locations, cancel)?;
        let mut frames: Vec<SymbolFrame> = Vec::new();
        let mut starts = Vec::with_capacity(locations.len() + 1);
        for location in locations {
            starts.push(frames.len());
            symbols.frames(trace, location, &mut frames);
        }
        starts.push(frames.len());
        let nobody = SymbolFrame { function: NO_FUNCTION, file: None, line: None, inlined: false };
        let mut tree = Self {
            rows: vec![Row { parent: 0, frame: nobody, recursive: false }],
            of_node: vec![FrameId::MAX; trace.node_count().max(1) as usize],
        };
        tree.of_node[0] = 0;
        let mut children: HashMap<(FrameId, FunctionId), FrameId> = HashMap::new();
        let mut path = Vec::new();
        for node in 1..trace.node_count() {
            if node % 65536 == 0 {
                cancel.check()?;
            }
            let mut at = node;
            while tree.of_node[at as usize] == FrameId::MAX {
                path.push(at);
                at = trace.nodes().parent(at);
            }
            while let Some(node) = path.pop() {
                let mut row = tree.of_node[trace.nodes().parent(node) as usize];
                if let Some(location) = trace.node_location(node) {
                    let at = location as usize;
                    for frame in frames[starts[at]..starts[at + 1]].iter().rev() {
                        row = tree.child(&mut children, row, *frame);
                    }
                }
                tree.of_node[node as usize] = row;
            }
        }
        Ok(tree)
    }

    fn child(
        &mut self,
        children: &mut HashMap<(FrameId, FunctionId), FrameId>,
        parent: FrameId,
        frame: SymbolFrame,
    ) -> FrameId {
        let next = self.rows.len() as FrameId;
        let id = *children.entry((parent, frame.function)).or_insert(next);
        if id == next {
            let recursive = self.path(parent).any(|above| self.rows[above as usize].frame.function == frame.function);
            self.rows.push(Row { parent, frame, recursive });
        }
        id
    }

    /// All rows by id.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The row of a node's innermost function; the root's for unknown nodes.
    #[inline]
    #[must_use]
    pub fn of_node(&self, node: u32) -> FrameId {
        self.of_node.get(node as usize).copied().unwrap_or(0)
    }

    /// A row and its callers, without the root.
    pub fn path(&self, row: FrameId) -> impl Iterator<Item = FrameId> + '_ {
        std::iter::successors(Some(row), |&r| self.rows.get(r as usize).map(|row| row.parent)).take_while(|&r| r != 0)
    }
}
