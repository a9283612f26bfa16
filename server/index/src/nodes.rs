//! The call tree: parents made safe to walk, and locations.

use super::column::Column;

/// A node whose location is not known.
pub const NO_LOCATION: u32 = u32::MAX;

/// Parents and depths of all nodes; walking up from any node ends at the root, 0.
#[derive(Debug, Clone, Default)]
pub struct NodeTable {
    parents: Vec<u32>,
    depths: Vec<u32>,
}

const UNSEEN: u32 = u32::MAX;
const WALKED: u32 = u32::MAX - 1;

impl NodeTable {
    /// Takes the parents as they were recorded: ones that are no node, and ones that would close a circle, become the
    /// root.
    #[must_use]
    pub fn new(recorded: &Column<u32>) -> Self {
        let mut parents = recorded.to_vec();
        let mut depths = vec![UNSEEN; parents.len()];
        if let Some(root) = depths.first_mut() {
            *root = 0;
        }
        let mut path = Vec::new();
        for start in 0..parents.len() {
            let mut at = start;
            while depths.get(at).is_some_and(|&d| d == UNSEEN) {
                depths[at] = WALKED;
                path.push(at);
                at = parents[at] as usize;
            }
            if let Some(&last) = path.last()
                && depths.get(at).is_none_or(|&d| d == WALKED)
            {
                parents[last] = 0;
                at = 0;
            }
            let mut depth = depths.get(at).copied().unwrap_or(0);
            while let Some(node) = path.pop() {
                depth = depth.saturating_add(1);
                depths[node] = depth;
            }
        }
        Self { parents, depths }
    }

    /// Number of nodes, the root included.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.parents.len() as u32
    }

    /// Whether there is not even a root.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parents.is_empty()
    }

    /// The caller's node; 0 for nodes that hang from the root, for the root and for unknown ones.
    #[inline]
    #[must_use]
    pub fn parent(&self, node: u32) -> u32 {
        self.parents.get(node as usize).copied().unwrap_or(0)
    }

    /// Frames from a node to the root; 0 for the root and for unknown nodes.
    #[inline]
    #[must_use]
    pub fn depth(&self, node: u32) -> u32 {
        self.depths.get(node as usize).copied().unwrap_or(0)
    }
}
