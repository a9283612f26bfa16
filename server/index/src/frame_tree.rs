//! The call tree by function instead of by address: inlined functions are levels of their own, two calls from the same
//! function of the same caller are one. Recursion is kept.
//!
//! Ids are given out in the order of node ids, parents first, so that the same recording with the same symbols always
//! has the same ids, and a grown recording keeps those that it had.

use std::any::Any;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustc_hash::FxHashMap;

use super::cancel::{Cancel, Cancelled};
use super::folded::RuntimeRole;
use super::pre_order::PreOrder;
use super::symbols::{FunctionId, RecordingSymbols, SymbolFrame};
use super::{LocationId, Trace};

/// One node of the tree; 0 is the root.
pub type FrameId = u32;

/// A row of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeRow {
    /// Caller; the root's is the root. Smaller than the row's own id otherwise.
    pub parent: FrameId,
    /// The first frame that made the row: its function is the row's; file and line are an example.
    pub frame: SymbolFrame,
    /// A caller further up is the same function.
    pub recursive: bool,
}

/// Rows of a tree as columns; parents come before their children.
#[derive(Debug, Default)]
pub struct TreeShape {
    /// Caller; the root's is the root.
    pub parent: Vec<FrameId>,
    /// Its function, with file and line of some call.
    pub frame: Vec<SymbolFrame>,
    /// A caller further up is the same function.
    pub recursive: Vec<bool>,
    pre_order: OnceLock<PreOrder>,
}

impl TreeShape {
    /// Appends a row. The pre-order is for finished trees.
    pub fn push(&mut self, row: TreeRow) -> FrameId {
        self.parent.push(row.parent);
        self.frame.push(row.frame);
        self.recursive.push(row.recursive);
        self.parent.len() as FrameId - 1
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parent.len()
    }

    /// Without any row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parent.is_empty()
    }

    /// A row and its callers, without the root.
    pub fn path(&self, row: FrameId) -> impl Iterator<Item = FrameId> + '_ {
        std::iter::successors(Some(row), |&r| self.parent.get(r as usize).copied()).take_while(|&r| r != 0)
    }

    /// The rows in pre-order; the first call makes it.
    #[must_use]
    pub fn pre_order(&self) -> &PreOrder {
        self.pre_order.get_or_init(|| PreOrder::new(&self.parent))
    }
}

/// See the module's description.
#[derive(Debug, Default)]
pub struct FrameTree {
    /// Shared with the trees of values that show it as it is.
    shape: Arc<TreeShape>,
    /// For each call-tree node: the row of its innermost function, in stacks that end there.
    of_node: Vec<FrameId>,
    /// What queries made of the tree and may need again, by key; the last one used is the last.
    kept: Mutex<Vec<(String, Arc<dyn Any + Send + Sync>)>>,
}

/// Stands for the function of the root.
pub const NO_FUNCTION: FunctionId = FunctionId::MAX;

impl FrameTree {
    /// Builds the tree over all nodes of `trace`.
    ///
    /// # Errors
    /// When cancelled.
    pub fn build(trace: &Trace, symbols: &dyn RecordingSymbols, cancel: &Cancel) -> Result<Self, Cancelled> {
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
        let mut shape = TreeShape::default();
        shape.push(TreeRow { parent: 0, frame: nobody, recursive: false });
        let mut of_node = vec![FrameId::MAX; trace.node_count().max(1) as usize];
        of_node[0] = 0;
        let mut growing = GrowingTree { shape, children: FxHashMap::default(), above: vec![0] };
        let folded = trace.folded_frames(symbols);
        // The row of a node for what functions in the program's language are called below of; the same without any.
        let mut around = if folded.is_some() { of_node.clone() } else { Vec::new() };
        let mut path = Vec::new();
        for node in 1..trace.node_count() {
            if node % 65536 == 0 {
                cancel.check()?;
            }
            let mut at = node;
            while of_node[at as usize] == FrameId::MAX {
                path.push(at);
                at = trace.nodes().parent(at);
            }
            while let Some(node) = path.pop() {
                let caller = trace.nodes().parent(node) as usize;
                let frames = trace.node_location(node).map_or(&[][..], |location| {
                    let at = location as usize;
                    &frames[starts[at]..starts[at + 1]]
                });
                let mut below = |row| frames.iter().rev().fold(row, |row, frame| growing.child(row, *frame));
                let Some(folded) = folded else {
                    of_node[node as usize] = below(of_node[caller]);
                    continue;
                };
                let role = folded.role(node);
                let inner = match role {
                    RuntimeRole::Own => around[caller],
                    RuntimeRole::Function | RuntimeRole::Other => below(around[caller]),
                };
                around[node as usize] = inner;
                of_node[node as usize] = match role {
                    RuntimeRole::Function => inner,
                    RuntimeRole::Own | RuntimeRole::Other => below(of_node[caller]),
                };
            }
        }
        Ok(Self { shape: Arc::new(growing.shape), of_node, kept: Mutex::default() })
    }

    /// The rows, as columns.
    #[must_use]
    pub fn shape(&self) -> &Arc<TreeShape> {
        &self.shape
    }

    /// All rows by id.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = TreeRow> + '_ {
        (0..self.shape.len()).map(|row| TreeRow {
            parent: self.shape.parent[row],
            frame: self.shape.frame[row],
            recursive: self.shape.recursive[row],
        })
    }

    /// The row of a node's innermost function, of a stack that ends there; the root's for unknown nodes.
    #[inline]
    #[must_use]
    pub fn of_node(&self, node: u32) -> FrameId {
        self.of_node.get(node as usize).copied().unwrap_or(0)
    }

    /// Something that is made of the tree alone, under a key that says what; made where it is not kept. Of one type at
    /// most `most` are kept, those that were used last.
    pub fn kept<T: Any + Send + Sync>(&self, key: &str, most: usize, make: impl FnOnce() -> T) -> Arc<T> {
        let lock = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kept = lock();
        let found = kept.iter().position(|(known, value)| known == key && value.is::<T>());
        if let Some(entry) = found.map(|at| kept.remove(at)) {
            let value = Arc::clone(&entry.1).downcast();
            kept.push(entry);
            drop(kept);
            if let Ok(value) = value {
                return value;
            }
        } else {
            drop(kept);
        }
        // Nobody waits for a long one: two who need it at once both make it.
        let made = Arc::new(make());
        let mut kept = lock();
        kept.retain(|(known, value)| known != key || !value.is::<T>());
        let count = kept.iter().filter(|(_, value)| value.is::<T>()).count();
        if count >= most
            && let Some(oldest) = kept.iter().position(|(_, value)| value.is::<T>())
        {
            kept.remove(oldest);
        }
        kept.push((key.to_owned(), Arc::clone(&made) as _));
        made
    }
}

/// A tree in the making.
struct GrowingTree {
    shape: TreeShape,
    children: FxHashMap<(FrameId, FunctionId), FrameId>,
    /// By row: a bit for each function on its path. A function whose bit is not there is not on the path, which spares
    /// most rows the way up.
    above: Vec<u64>,
}

impl GrowingTree {
    /// The row below `parent` for a function.
    fn child(&mut self, parent: FrameId, frame: SymbolFrame) -> FrameId {
        let next = self.shape.len() as FrameId;
        let id = *self.children.entry((parent, frame.function)).or_insert(next);
        if id == next {
            let bit = 1 << (frame.function.wrapping_mul(0x9e37_79b9) >> 26);
            let above = self.above[parent as usize];
            let is_same = |row: FrameId| self.shape.frame[row as usize].function == frame.function;
            let recursive = above & bit != 0 && self.shape.path(parent).any(is_same);
            self.shape.push(TreeRow { parent, frame, recursive });
            self.above.push(above | bit);
        }
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_last_is_kept() {
        let tree = FrameTree::default();
        let kept = |key: &str, value: u32| *tree.kept(key, 2, || value);
        assert_eq!((kept("a", 1), kept("b", 2), kept("a", 3)), (1, 2, 1));
        // `b` is the oldest now; other types are counted on their own.
        assert_eq!(*tree.kept("a", 1, || "text"), "text");
        assert_eq!((kept("c", 4), kept("a", 5), kept("b", 6)), (4, 1, 6));
    }
}
