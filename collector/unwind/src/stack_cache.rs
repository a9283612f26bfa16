//! Per-thread stack cache: a trie of seen stacks (fast path), and the verified-chain table that new stacks
//! join. Both hold for the code epoch that they were made in.

use super::Captured;
use super::hotspot;
use super::memory::MemoryBlock;
use super::stack::OwnStack;
use super::stack_trie::{Answer, FirstSlot, StackTrie};
use super::step::FrameState;
use super::verified_chains::{ChainRecord, Room, VerifiedChains};
use tracehound_shared::call_tree::CallTree;
use tracehound_shared::code;
use tracehound_shared::stack_counters::StackCounters;

/// See the module's description.
pub struct StackCache {
    /// Epoch of the entries; 0: the cache is empty.
    epoch: u32,
    pub paths: StackTrie,
    pub chains: VerifiedChains,
}

impl StackCache {
    /// An empty cache; `None` when the kernel has no memory.
    pub fn new(counters: &'static StackCounters, block: &mut MemoryBlock) -> Option<StackCache> {
        Some(StackCache { epoch: 0, paths: StackTrie::new(counters, block)?, chains: VerifiedChains::new(block)? })
    }

    /// Bytes of a block that a cache takes.
    pub const FIRST_BYTES: usize = StackTrie::FIRST_BYTES + VerifiedChains::FIRST_BYTES;

    /// The backtrace of a caller, if its stack has been seen in this state before.
    ///
    /// # Safety
    /// The state must be that of the running thread, in a function that has not returned.
    #[inline(always)]
    pub unsafe fn recall(&mut self, state: FrameState, own: &mut OwnStack, tree: &CallTree) -> Option<Captured> {
        if self.epoch != code::epoch() {
            return None;
        }
        let StackCache { paths, chains, .. } = self;
        // SAFETY: the state is that of the running thread, in a function that has not returned: the contract of `recall`.
        let Answer { captured, record } = match unsafe { paths.recall(state) } {
            FirstSlot::Answer(answer) => answer,
            FirstSlot::Changed => return None,
            // SAFETY: as above.
            FirstSlot::Other => unsafe { paths.recall_any(state, own, tree, chains) }?,
        };
        // SAFETY: a path names a record that exists, or 0: `forget_records` is called whenever records are forgotten.
        unsafe { chains.set_previous(record) };
        Some(captured)
    }

    /// Whether the stack that [`recall`](Self::recall) has just returned is right by the code and the methods that are there
    /// now; false, too, if its records are gone.
    ///
    /// # Safety
    /// The running thread must be in the state that was recalled.
    pub unsafe fn still_holds(&self) -> bool {
        let record = self.chains.previous();
        // SAFETY: a record of this very table, in which nothing has been made since. `recall` has compared its words.
        record != self.chains.root() && unsafe { hotspot::chain_holds(&self.chains, record) }
    }

    /// Makes `record` the answer for `state`, and the record that the next walk tries to join first.
    ///
    /// # Safety
    /// It must be a record of `chains`, of the stack that the running thread has in this state; `own` that thread's stack.
    pub unsafe fn keep(&mut self, record: *mut ChainRecord, state: FrameState, own: &mut OwnStack, tree: &CallTree) {
        // SAFETY: a record of `chains`, by the contract of `keep`, which inserting a path does not change.
        unsafe {
            self.paths.insert(&self.chains, record, state, tree);
            let record = self.chains.index(record);
            self.chains.set_previous(record);
            let captured = self.chains.captured(self.chains.previous());
            self.paths.learned(state, own, tree, &Answer { captured, record });
        }
    }

    /// Ensures room for `frames` more frames. True: records may have moved or been dropped.
    #[cold]
    pub fn make_room(&mut self, frames: usize, tree: &CallTree) -> bool {
        let room = self.chains.make_room(frames, tree);
        if room != Room::Made {
            self.paths.forget_records();
        }
        room != Room::None
    }

    /// Drops everything if code has changed that some entry depends on.
    #[cold]
    pub fn catch_up(&mut self) {
        if self.epoch == code::epoch() {
            return;
        }
        let mut stale = self.epoch == 0;
        let heard = code::changes_after(self.epoch, |range| stale |= self.chains.knows(&range));
        if stale || heard.is_none() {
            self.forget();
        }
        self.epoch = heard.unwrap_or_else(code::epoch);
    }

    /// Drops everything.
    pub fn forget(&mut self) {
        self.paths.forget();
        self.chains.forget();
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.paths.bytes() + self.chains.bytes()
    }

    /// # Safety
    /// It must not be used afterwards.
    pub unsafe fn release(&mut self) {
        // SAFETY: it is not used afterwards: the contract of `release`.
        unsafe {
            self.paths.release();
            self.chains.release();
        }
    }
}
