//! Memory budget of all unwinders of the process.
//!
//! The verified-chain table and the stack trie of every thread may have [`FREE`] bytes each without a request. More is
//! taken from one account: [`SHARED`] bytes plus [`PER_NODE`] bytes for each node of the call tree. A thread whose
//! request is refused empties its table and begins again; stacks stay exact. The trie answers events, and verified
//! chains only serve to fill it: where they have been emptied, one stack is walked whole, and the next ones join it. So they
//! may use a small part of the account; a larger one below HotSpot, whose known stacks are compared by them, too.

use tracehound_shared::sync::atomic::{AtomicUsize, Ordering};

use tracehound_shared::call_tree::CallTree;
use tracehound_shared::hotspot;

const FREE: usize = 384 << 10;
const SHARED: usize = 12 << 20;
const PER_NODE: usize = 24;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Upper bound of the memory of all unwinders for so many threads and so many nodes of the tree, including buffers for
/// walks of a few thousand frames.
pub fn limit(threads: u64, nodes: u64) -> u64 {
    const WALK: u64 = 512 << 10;
    threads * (2 * FREE as u64 + WALK) + SHARED as u64 + PER_NODE as u64 * nodes
}

/// Bytes that one verified-chain table, or the paths of one thread, have taken from the account.
pub struct Account {
    held: usize,
}

impl Account {
    /// Which part of the account paths may fill, in percent.
    pub const PATHS: usize = 100;

    /// Which part verified chains may fill.
    pub fn chains() -> usize {
        if hotspot::is_known() { 60 } else { 20 }
    }

    /// Nothing taken.
    pub const fn new() -> Account {
        Account { held: 0 }
    }

    /// Takes as much from the account as is needed to occupy `bytes`, while less than `percent` of it is used; `None`
    /// if that is refused.
    pub fn resize(&mut self, bytes: usize, percent: usize, tree: &CallTree) -> Option<()> {
        let more = bytes.saturating_sub(FREE).saturating_sub(self.held);
        let limit = (SHARED + PER_NODE * tree.len() as usize) / 100 * percent;
        let enough = |taken: usize| taken.checked_add(more).filter(|taken| more == 0 || *taken <= limit);
        TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enough).ok()?;
        self.held += more;
        Some(())
    }

    /// Gives back what is not needed to occupy `bytes`.
    pub fn settle(&mut self, bytes: usize) {
        let spare = self.held.saturating_sub(bytes.saturating_sub(FREE));
        TAKEN.fetch_sub(spare, Ordering::Relaxed);
        self.held -= spare;
    }

    /// Gives everything back.
    pub fn close(&mut self) {
        self.settle(0);
    }
}
