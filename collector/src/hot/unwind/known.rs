//! What one thread knows of the stacks it has seen: paths that answer, and the forest that new stacks join. Both hold
//! for the code epoch that they were made in.

use super::Captured;
use super::forest::{Forest, Record, Room};
use super::memory::Block;
use super::paths::{Answer, Paths};
use super::step::State;
use crate::shared::call_tree::CallTree;
use crate::shared::code;
use crate::shared::stack_counters::StackCounters;

/// See the module's description.
pub struct Known {
    /// Zero: nothing is known.
    epoch: u32,
    pub paths: Paths,
    pub forest: Forest,
}

impl Known {
    /// Nothing; `None` when the kernel has no memory.
    pub fn new(counters: &'static StackCounters, block: &mut Block) -> Option<Known> {
        Some(Known { epoch: 0, paths: Paths::new(counters, block)?, forest: Forest::new(block)? })
    }

    /// Bytes of a block that this takes.
    pub const FIRST_BYTES: usize = Paths::FIRST_BYTES + Forest::FIRST_BYTES;

    /// The backtrace of a caller, if its stack has been seen in this state before.
    ///
    /// # Safety
    /// The state must be that of the running thread, in a function that has not returned.
    #[inline(always)]
    pub unsafe fn recall(&mut self, state: State) -> Option<Captured> {
        if self.epoch != code::epoch() {
            return None;
        }
        let Known { paths, forest, .. } = self;
        // SAFETY: as the caller promises.
        let further = || unsafe { paths.recall_any(state.pc, state.sp, state.rbp, forest) };
        // SAFETY: as above.
        let Answer { captured, record } = unsafe { paths.recall(state, further) }?;
        forest.set_previous(record);
        Some(captured)
    }

    /// Makes `record` the answer for `state`, and the place where the next walk joins.
    pub fn keep(&mut self, record: *mut Record, state: State, tree: &CallTree) {
        self.paths.lay(&self.forest, record, state, tree);
        self.forest.set_previous(self.forest.index(record));
    }

    /// Makes sure that `frames` more frames can be planted. True: records may have moved or may be gone.
    #[cold]
    pub fn make_room(&mut self, frames: usize, tree: &CallTree) -> bool {
        let room = self.forest.make_room(frames, tree);
        if room != Room::Made {
            self.paths.forget_records();
        }
        room != Room::None
    }

    /// Drops everything if code changed that some of it is about.
    #[cold]
    pub fn catch_up(&mut self) {
        if self.epoch == code::epoch() {
            return;
        }
        let mut stale = self.epoch == 0;
        let heard = code::changes_after(self.epoch, |range| stale |= self.forest.knows(&range));
        if stale || heard.is_none() {
            self.forget();
        }
        self.epoch = heard.unwrap_or_else(code::epoch);
    }

    /// Drops everything.
    pub fn forget(&mut self) {
        self.paths.forget();
        self.forest.forget();
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.paths.bytes() + self.forest.bytes()
    }

    /// # Safety
    /// It must not be used afterwards.
    pub unsafe fn release(&mut self) {
        // SAFETY: by the contract above.
        unsafe {
            self.paths.release();
            self.forest.release();
        }
    }
}
