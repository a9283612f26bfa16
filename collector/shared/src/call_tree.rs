//! The call tree: one dense id for each (parent, return address, generation) of the whole process.
//!
//! Ids are handed out in order and never taken back, so that a writer can store the nodes by walking
//! ids upwards. Look-ups and insertions are lock-free and safe in signal handlers; memory comes from one
//! reservation of address space, committed by the kernel page by page as ids are used.
//!
//! ```text
//! reservation   | header, 4 KiB | roots: 65,536 × u32 | nodes: capacity × 32 bytes |
//! node          | pc: u64 | parent: u32, generation: u32 | children: 4 × u32 |
//! ```
//!
//! Nodes hang in 65,536 four-way tries: 16 bits of a key's hash choose the root, two bits a level choose
//! the child. A node is claimed by one 16-byte compare-and-swap of its whole identity, so an id below
//! [`CallTree::len`] is always complete, even if the thread that claimed it was stopped right after.

mod slot;

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::order;
use core::ptr::NonNull;

use slot::{NodeSlot, claim_identity};

/// A backtrace: the id of its innermost node. 0 is the empty backtrace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[repr(transparent)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The empty backtrace, parent of all outermost frames.
    pub const ROOT: NodeId = NodeId(0);
    /// A backtrace that was not inserted because the tree was full. All its descendants are lost too.
    pub const LOST: NodeId = NodeId(u32::MAX);
}

/// One frame of the call tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeNode {
    /// Id of the caller's node; 0 is the root. Always smaller than the node's own id.
    pub parent: u32,
    /// Return address, or the interrupted address **plus one**, so that `pc - 1` always lies in the calling
    /// instruction or in the interrupted one.
    pub pc: u64,
    /// Generation of the code at `pc`: 0 for code that was never unloaded, see
    /// [`generation_of`](super::code::generation_of).
    pub generation: u32,
}

/// The process-wide call tree.
pub struct CallTree {
    base: NonNull<u8>,
    capacity: u32,
    reserved_bytes: usize,
    owned: bool,
    mirror: Option<fn(u32, TreeNode)>,
}

// SAFETY: all shared state behind `base` is atomic; the mapping lives as long as the value.
unsafe impl Send for CallTree {}
// SAFETY: all shared state behind `base` is atomic, so threads may share references.
unsafe impl Sync for CallTree {}

#[repr(C)]
struct Header {
    len: AtomicU32,
    lost: AtomicU64,
}

const _: () = assert!(size_of::<NodeSlot>() == CallTree::NODE_BYTES);
const _: () = assert!(size_of::<Header>() <= ROOTS_OFFSET);

/// Few roots in a model, which copies the tree.
const ROOT_BITS: u32 = if cfg!(loom) { 4 } else { 16 };
const ROOTS_OFFSET: usize = 4096;
const MIN_NODES: u32 = 1 << 16;

impl CallTree {
    /// Where the nodes begin, in bytes from the start of the reservation; node 0 is the root and stays zero.
    pub const NODES_OFFSET: usize = ROOTS_OFFSET + (4 << ROOT_BITS);
    /// Bytes of memory for each node, hash links included.
    pub const NODE_BYTES: usize = 32;

    /// Reserves address space for `max_nodes` nodes, or for fewer where the process's limits forbid that.
    /// `None` when not even 65,536 nodes can be had. Memory is committed as nodes are made.
    pub fn create(max_nodes: u32) -> Option<CallTree> {
        let mut capacity = max_nodes.clamp(MIN_NODES, u32::MAX - 1);
        loop {
            let bytes = Self::bytes_for(capacity);
            if let Some(base) = super::sys::map_memory(bytes).ok().and_then(NonNull::new) {
                return Some(Self::over(base, capacity, bytes, true));
            }
            if capacity == MIN_NODES {
                return None;
            }
            capacity = (capacity / 2).max(MIN_NODES);
        }
    }

    /// A tree in memory of the caller's, for example a shared mapping of a file.
    ///
    /// `None` when `bytes` has no room for the header and one node.
    ///
    /// # Safety
    /// `memory` must be zeroed, page-aligned, valid for reads and writes of `bytes` bytes for as long as the
    /// tree lives, and used by nothing else but readers.
    pub unsafe fn create_in(memory: NonNull<u8>, bytes: usize) -> Option<CallTree> {
        let nodes = bytes.checked_sub(Self::NODES_OFFSET)? / Self::NODE_BYTES;
        let capacity = u32::try_from(nodes).unwrap_or(u32::MAX - 1).min(u32::MAX - 1);
        (capacity > 1).then(|| Self::over(memory, capacity, bytes, false))
    }

    /// The tree in a forked child of the model: a copy of the memory as it is now, unfinished insertions included.
    #[cfg(loom)]
    pub fn forked(&self) -> CallTree {
        let copy = crate::sync::model::snapshot(self.base.as_ptr(), self.reserved_bytes);
        CallTree { base: NonNull::new(copy).unwrap_or(self.base), owned: false, mirror: None, ..*self }
    }

    /// Sets the function that gets every new node: the inserting thread calls it before another thread can see the id.
    pub fn set_mirror(&mut self, mirror: fn(u32, TreeNode)) {
        self.mirror = Some(mirror);
    }

    fn bytes_for(capacity: u32) -> usize {
        Self::NODES_OFFSET + capacity as usize * Self::NODE_BYTES
    }

    fn over(base: NonNull<u8>, capacity: u32, reserved_bytes: usize, owned: bool) -> CallTree {
        let tree = CallTree { base, capacity, reserved_bytes, owned, mirror: None };
        tree.header().len.store(1, Ordering::Release);
        tree
    }

    /// Ids handed out so far: 1 for the root plus the number of nodes. Every id below it can be read.
    pub fn len(&self) -> u32 {
        self.header().len.load(Ordering::Acquire)
    }

    /// Whether the tree has no node but the root.
    pub fn is_empty(&self) -> bool {
        self.len() <= 1
    }

    /// Nodes that fit, the root included.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Frames that were not inserted because the tree was full.
    pub fn lost(&self) -> u64 {
        self.header().lost.load(Ordering::Relaxed)
    }

    /// Bytes of memory the nodes made so far occupy, hash links included. The 256 KiB of roots are committed
    /// as they are used and not counted here.
    pub fn used_bytes(&self) -> usize {
        self.len() as usize * Self::NODE_BYTES
    }

    /// The node with this id; `None` for the root, for [`NodeId::LOST`] and for ids not handed out.
    pub fn get(&self, id: u32) -> Option<TreeNode> {
        if id == 0 || id >= self.capacity {
            return None;
        }
        let slot = self.slot(id);
        // `pc` is never zero in a node and is stored together with `place`.
        let pc = slot.pc.load(Ordering::Acquire);
        if pc == 0 {
            return None;
        }
        let place = slot.place.load(Ordering::Relaxed);
        Some(TreeNode { parent: place as u32, pc, generation: (place >> 32) as u32 })
    }

    /// The id of the frame `pc` called from `parent`, made if it is new.
    ///
    /// Two threads that meet the same new frame at the same moment agree on its id; the loser's copy stays
    /// in the tree as a node that no event names. A `pc` of zero is no frame: the answer is `parent`.
    /// In a full tree the answer is [`NodeId::LOST`], counted by [`lost`](Self::lost).
    pub fn intern(&self, parent: NodeId, pc: u64, generation: u32) -> NodeId {
        if pc == 0 || parent == NodeId::LOST {
            return parent;
        }
        let place = u64::from(generation) << 32 | u64::from(parent.0);
        let hash = hash(pc, place);
        let mut link = self.root(hash);
        let mut path = hash << ROOT_BITS;
        let mut own = 0;
        loop {
            let mut id = link.load(Ordering::Acquire);
            if id == 0 {
                if own == 0 {
                    own = match self.claim(pc, place) {
                        Some(id) => id,
                        None => return NodeId::LOST,
                    };
                    if let Some(mirror) = self.mirror {
                        mirror(own, TreeNode { parent: parent.0, pc, generation });
                    }
                }
                let linked = order!("tree-link": AcqRel, not Relaxed);
                match link.compare_exchange(0, own, linked, Ordering::Acquire) {
                    Ok(_) => return NodeId(own),
                    Err(other) => id = other,
                }
            }
            let slot = self.slot(id);
            if slot.pc.load(Ordering::Relaxed) == pc && slot.place.load(Ordering::Relaxed) == place {
                return NodeId(id);
            }
            link = &slot.children[(path >> 62) as usize];
            path <<= 2;
        }
    }

    /// Takes the next free id for this identity.
    #[cold]
    fn claim(&self, pc: u64, place: u64) -> Option<u32> {
        let len = &self.header().len;
        let mut id = len.load(Ordering::Acquire);
        loop {
            if id >= self.capacity {
                self.header().lost.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            let taken = claim_identity(self.slot(id), pc, place);
            // Every thread that finds the slot claimed advances `len` past it, so that none waits for the claimer.
            len.fetch_max(id + 1, order!("tree-length": AcqRel, not Relaxed));
            if taken {
                return Some(id);
            }
            id += 1;
        }
    }

    fn header(&self) -> &Header {
        // SAFETY: the reservation begins with a zeroed `Header`, valid while `self` lives.
        unsafe { self.base.cast::<Header>().as_ref() }
    }

    fn root(&self, hash: u64) -> &AtomicU32 {
        let index = (hash >> (64 - ROOT_BITS)) as usize;
        // SAFETY: `index` < 2^16, the number of roots between header and nodes.
        unsafe { self.base.add(ROOTS_OFFSET).cast::<AtomicU32>().add(index).as_ref() }
    }

    /// `id` must be below `capacity`: true of every id read from a link and checked at the other callers.
    fn slot(&self, id: u32) -> &NodeSlot {
        debug_assert!(id < self.capacity);
        // SAFETY: the reservation holds `capacity` zeroed or initialised slots after `NODES_OFFSET`.
        unsafe { self.base.add(Self::NODES_OFFSET).cast::<NodeSlot>().add(id as usize).as_ref() }
    }
}

impl Drop for CallTree {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: `create` mapped exactly this range, and no reference into it outlives `self`.
            unsafe { super::sys::unmap(self.base.as_ptr(), self.reserved_bytes) };
        }
    }
}

fn hash(pc: u64, place: u64) -> u64 {
    let mixed = (pc ^ place.rotate_left(23)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_frame_same_id() {
        let tree = CallTree::create(1 << 16).unwrap();
        let main = tree.intern(NodeId::ROOT, 0x1000, 0);
        let leaf = tree.intern(main, 0x2000, 0);
        assert_eq!((main, leaf), (NodeId(1), NodeId(2)));
        assert_eq!(tree.intern(main, 0x2000, 0), leaf);
        assert_ne!(tree.intern(main, 0x2000, 1), leaf, "another generation is another frame");
        assert_ne!(tree.intern(leaf, 0x2000, 0), leaf, "another parent is another frame");
        assert_eq!(tree.get(2), Some(TreeNode { parent: 1, pc: 0x2000, generation: 0 }));
        assert_eq!(tree.get(0), None);
        assert_eq!(tree.get(tree.len()), None);
        assert_eq!(tree.get(u32::MAX), None);
    }

    #[test]
    fn full_tree_answers_lost_and_counts() {
        let tree = CallTree::create(1).unwrap();
        let capacity = u64::from(tree.capacity());
        for pc in 1..capacity + 10 {
            let id = tree.intern(NodeId::ROOT, pc, 0);
            assert_eq!(id == NodeId::LOST, pc >= capacity);
        }
        assert_eq!(tree.lost(), 10);
        assert_eq!(u64::from(tree.len()), capacity);
        assert_eq!(tree.intern(NodeId::LOST, 5, 0), NodeId::LOST);
        assert_eq!(tree.intern(NodeId::ROOT, 7, 0), NodeId(7), "what is in the tree is still found");
    }

    #[test]
    fn no_two_threads_get_the_same_node() {
        const THREADS: u64 = 4;
        const NODES: u64 = 50_000;
        let tree = CallTree::create(1 << 20).unwrap();
        let start = std::sync::Barrier::new(THREADS as usize);
        std::thread::scope(|scope| {
            for thread in 1..=THREADS {
                let (tree, start) = (&tree, &start);
                scope.spawn(move || {
                    start.wait();
                    let pcs = (1..NODES).map(|n| n * 16 + thread);
                    let ids: Vec<_> = pcs.clone().map(|pc| tree.intern(NodeId::ROOT, pc, 7)).collect();
                    start.wait();
                    for (id, pc) in ids.into_iter().zip(pcs) {
                        assert_eq!(tree.get(id.0), Some(TreeNode { parent: 0, pc, generation: 7 }));
                    }
                });
            }
        });
        assert_eq!(u64::from(tree.len()), 1 + THREADS * (NODES - 1));
    }

    #[test]
    fn threads_agree_on_ids() {
        let tree = CallTree::create(1 << 20).unwrap();
        let ids: Vec<Vec<NodeId>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let mut parent = NodeId::ROOT;
                        (1..50_000u64)
                            .map(|n| {
                                parent = if n % 37 == 0 { NodeId::ROOT } else { parent };
                                parent = tree.intern(parent, n.wrapping_mul(0x1357) | 1, 0);
                                parent
                            })
                            .collect()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(ids.windows(2).all(|pair| pair[0] == pair[1]));
        for id in 1..tree.len() {
            let node = tree.get(id).expect("an id below len is complete");
            assert!(node.parent < id);
        }
    }

    #[test]
    fn tree_over_borrowed_memory() {
        const BYTES: usize = CallTree::NODES_OFFSET + 3 * CallTree::NODE_BYTES;
        #[repr(align(4096))]
        struct Memory([u8; BYTES]);
        let mut memory = Box::new(Memory([0; BYTES]));
        let base = NonNull::from(&mut memory.0).cast::<u8>();
        // SAFETY: zeroed, aligned, and outlives the tree.
        let tree = unsafe { CallTree::create_in(base, BYTES) }.unwrap();
        assert_eq!(tree.intern(NodeId::ROOT, 1, 0), NodeId(1));
        assert_eq!(tree.intern(NodeId(1), 1, 0), NodeId(2));
        assert_eq!(tree.intern(NodeId(2), 1, 0), NodeId::LOST);
    }
}
