//! Cache of the last result for each innermost frame and native backtrace, with the words to compare; and of other stacks
//! with the same innermost frames, by the first frame that is another one.
//!
//! ```text
//! slot[native backtrace, innermost frame]   words of a stack, result
//!    │ its frames up to the k-th are the same, that is another one
//! fork[those words, k, the frame]           words of another stack with the same frames within, result  ─▶ compared from k on
//! ```
//! Without forks, programs that come to the same function by many ways would read the whole stack at every event.
//! One cache line is read before the words and the frames themselves.

use super::frames::instruction_of;
use super::known::{Compared, KnownStacks};
use super::pair::Combined;
use crate::{Array, Captured};
use tracehound_shared::call_tree::NodeId;
use tracehound_shared::python::{PythonLayout, TopFrameFound};

const SLOTS: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 11;
/// Pages of it that hold no fork are not in memory.
const FORKS: usize = 1 << FORK_BITS;
const FORK_BITS: u32 = 13;

#[repr(C, align(32))]
#[derive(Clone, Copy)]
struct RecentSlot {
    /// [`RecentStacks::generation`]; another one: nothing.
    generation: u32,
    native: u32,
    /// Words of the Python stack.
    first: u32,
    count: u32,
    node: u32,
    /// Of a fork: the first word of the stack that it leaves, and where.
    from: u32,
    at: u32,
    flags: u8,
    is_certain: bool,
}

/// Where the stack that [`RecentStacks::find`] looked at leaves the one that it knows.
#[derive(Clone, Copy)]
struct ForkPlace {
    from: u32,
    at: u32,
    index: usize,
}

/// See the module's text.
pub struct RecentStacks {
    slots: Option<Array<RecentSlot>>,
    forks: Option<Array<RecentSlot>>,
    /// Of what is not forgotten; never 0, which fresh memory has.
    generation: u32,
    missed: Option<ForkPlace>,
}

#[inline(always)]
unsafe fn place(layout: &PythonLayout, native: NodeId, top: u64) -> usize {
    // SAFETY: `find` and `keep` alone call this, with the innermost frame of the calling thread.
    let instruction = unsafe { instruction_of(layout, top) };
    let mixed = top ^ instruction.rotate_left(23) ^ u64::from(native.0).rotate_left(40);
    (mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - SLOT_BITS)) as usize
}

#[inline(always)]
fn fork_index(native: u32, from: u32, at: u32, frame: u64) -> usize {
    let mixed =
        frame ^ u64::from(from).rotate_left(29) ^ u64::from(at).rotate_left(51) ^ u64::from(native).rotate_left(40);
    (mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - FORK_BITS)) as usize
}

impl RecentStacks {
    pub const fn new() -> RecentStacks {
        RecentStacks { slots: None, forks: None, generation: 1, missed: None }
    }

    /// The backtrace of `native` with the Python stack at `top`, if it was met here and is the same word for word.
    ///
    /// # Safety
    /// `top` must be the innermost frame of the calling thread; slots must be of stacks that `known` has not forgotten.
    #[inline(always)]
    pub unsafe fn find(
        &mut self,
        known: &KnownStacks,
        layout: &PythonLayout,
        native: NodeId,
        top: TopFrameFound,
    ) -> Option<Combined> {
        self.missed = None;
        let slots = self.slots.as_ref()?;
        // SAFETY: the place is below the number of slots. `top` is the innermost frame of the calling thread: the
        // contract of `find`.
        let mut slot = unsafe { &*slots.as_ptr().add(place(layout, native, top.frame)) };
        if slot.generation != self.generation || slot.native != native.0 || slot.is_certain != top.is_certain {
            return None;
        }
        let (mut at, mut frame) = (0, top.frame);
        loop {
            // SAFETY: the slot is of this generation, so `known` has not forgotten its stack. `frame` is `top`, or the
            // frame at which the last comparison has ended, at the place `at`.
            match unsafe { known.compare(slot.first, at, slot.count, layout, frame) } {
                Compared::Unchanged => return Some(Combined { node: NodeId(slot.node), flags: slot.flags }),
                Compared::Leaves { place, frame: other, word } => {
                    // A fork for another frame there; what is kept instead takes its place. So no place is left twice.
                    if place == at && self.missed.is_some() {
                        return None;
                    }
                    let index = fork_index(native.0, slot.first, place, word);
                    self.missed = Some(ForkPlace { from: slot.first, at: place, index });
                    // SAFETY: in bounds.
                    let fork = unsafe { &*self.forks.as_ref()?.as_ptr().add(index) };
                    let leads_on = fork.generation == self.generation
                        && fork.native == native.0
                        && fork.from == slot.first
                        && fork.at == place
                        && fork.is_certain == top.is_certain;
                    if !leads_on {
                        return None;
                    }
                    (slot, at, frame) = (fork, place, other);
                }
            }
        }
    }

    /// Notes the words of the stack at `top` and what was made of it: where [`find`](Self::find), which was asked before, has
    /// not found it.
    ///
    /// # Safety
    /// As for [`find`](Self::find).
    pub unsafe fn keep(
        &mut self,
        layout: &PythonLayout,
        native: Captured,
        top: TopFrameFound,
        (first, count): (u32, u32),
        Combined { node, flags }: Combined,
    ) {
        let fork = self.missed.take();
        let (array, len) = match fork {
            Some(_) => (&mut self.forks, FORKS),
            None => (&mut self.slots, SLOTS),
        };
        if array.is_none() {
            *array = Array::new(len);
        }
        let Some(array) = array else { return };
        let (from, at) = fork.map_or((0, 0), |fork| (fork.from, fork.at));
        let native = native.node;
        let slot = RecentSlot {
            generation: self.generation,
            native: native.0,
            first,
            count,
            node: node.0,
            from,
            at,
            flags,
            is_certain: top.is_certain,
        };
        // SAFETY: the index is below the array's length. `top` is the innermost frame of the calling thread: the
        // contract of `keep`.
        unsafe {
            let index = fork.map_or_else(|| place(layout, native, top.frame), |fork| fork.index);
            array.as_ptr().add(index).write(slot);
        }
    }

    pub fn forget(&mut self) {
        self.missed = None;
        self.generation = self.generation.wrapping_add(1);
        if self.generation != 0 {
            return;
        }
        self.generation = 1;
        for array in [&self.slots, &self.forks].into_iter().flatten() {
            // SAFETY: the whole array, whose elements may be zero.
            unsafe { core::ptr::write_bytes(array.as_ptr(), 0, array.len()) };
        }
    }

    /// # Safety
    /// Nothing may be used afterwards.
    pub unsafe fn release(&mut self) {
        // SAFETY: the caller uses nothing afterwards: the contract of `release`. Each array is taken out before it is
        // released.
        unsafe {
            self.slots.take().into_iter().for_each(|mut array| array.release());
            self.forks.take().into_iter().for_each(|mut array| array.release());
        }
    }

    pub fn bytes(&self) -> usize {
        self.slots.as_ref().map_or(0, Array::bytes) + self.forks.as_ref().map_or(0, Array::bytes)
    }
}
