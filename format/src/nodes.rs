//! Call-tree nodes: (parent, return address, generation), ids dense, in blocks of consecutive ids.
//!
//! Payload: for each node, in id order from the block's `first_record`, three varints:
//! `id - parent` (parents are not always older than their children's block neighbours, so this is zig-zagged),
//! zig-zag of `pc` minus the previous node's pc, `generation`.
//!
//! `pc` is a return address (or an interrupted address plus one), so that looking up `pc - 1` finds the call.
//! `generation` counts how often the code range around `pc` had been unloaded before; it selects the module.

use crate::varint::{Reader, put, unzigzag, zigzag};
use crate::{FormatError, Result};

/// One node of the call tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// Id of the caller's node; 0 is the root.
    pub parent: u32,
    /// Return address.
    pub pc: u64,
    /// How often the code at `pc` had been replaced when the node was made.
    pub generation: u32,
}

/// Appends the payload for nodes with ids from `first_id` on.
pub fn encode(first_id: u32, nodes: &[Node], out: &mut Vec<u8>) {
    let mut last_pc = 0_u64;
    for (i, node) in nodes.iter().enumerate() {
        let id = i64::from(first_id) + i as i64;
        put(out, zigzag(id - i64::from(node.parent)));
        put(out, zigzag(node.pc.wrapping_sub(last_pc) as i64));
        put(out, u64::from(node.generation));
        last_pc = node.pc;
    }
}

/// Reads the payload of a nodes block that promises `count` nodes from `first_id` on.
///
/// # Errors
/// When the payload is cut off, has bytes left over, or holds a parent that is no id.
pub fn decode(first_id: u32, count: u32, payload: &[u8]) -> Result<Vec<Node>> {
    const WHAT: &str = "a block of call-tree nodes";
    // A node takes three bytes or more: a lying count cannot make us reserve more than the payload's size.
    if count as usize > payload.len() / 3 || u64::from(first_id) + u64::from(count) > 1 << 32 {
        return Err(FormatError::malformed(WHAT, format!("{count} nodes cannot fit in {} bytes", payload.len())));
    }
    let mut reader = Reader::new(payload);
    let mut nodes = Vec::with_capacity(count as usize);
    let mut last_pc = 0_u64;
    for i in 0..count {
        let mut next = || reader.next_u64().ok_or_else(|| FormatError::malformed(WHAT, "it ends early"));
        let parent = (i64::from(first_id) + i64::from(i)).wrapping_sub(unzigzag(next()?));
        let pc = last_pc.wrapping_add(unzigzag(next()?) as u64);
        let generation =
            u32::try_from(next()?).map_err(|_| FormatError::malformed(WHAT, "a generation is too large"))?;
        let parent = u32::try_from(parent).map_err(|_| FormatError::malformed(WHAT, "a parent is no node id"))?;
        nodes.push(Node { parent, pc, generation });
        last_pc = pc;
    }
    if reader.is_empty() { Ok(nodes) } else { Err(FormatError::malformed(WHAT, "bytes are left over")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn node() -> impl Strategy<Value = Node> {
        (any::<u32>(), any::<u64>(), any::<u32>()).prop_map(|(parent, pc, generation)| Node { parent, pc, generation })
    }

    proptest! {
        #[test]
        fn nodes_come_back(first in 1..1_u32 << 30, nodes in prop::collection::vec(node(), 0..50)) {
            let mut bytes = Vec::new();
            encode(first, &nodes, &mut bytes);
            prop_assert_eq!(decode(first, nodes.len() as u32, &bytes).unwrap(), nodes);
        }

        #[test]
        fn hostile_bytes_never_panic(first: u32, count in 0_u32..1000, bytes: Vec<u8>) {
            let _ = decode(first, count, &bytes);
        }
    }
}
