//! Cache of the last result for each innermost frame and native backtrace, with the stack to compare.
//!
//! One cache line is read before the stack's nodes and the frames themselves.

use super::frames::instruction_of;
use super::known::KnownStacks;
use super::pair::Combined;
use crate::{Array, Captured};
use tracehound_shared::call_tree::NodeId;
use tracehound_shared::python::{PythonLayout, TopFrameFound};

const SLOTS: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 11;

#[repr(C, align(32))]
#[derive(Clone, Copy)]
struct RecentSlot {
    /// [`RecentStacks::generation`]; another one: nothing.
    generation: u32,
    native: u32,
    /// Number of the Python stack.
    stack: u32,
    node: u32,
    flags: u8,
    is_certain: bool,
}

/// See the module's text.
pub struct RecentStacks {
    slots: Array<RecentSlot>,
    /// Of what is not forgotten; never 0, which fresh memory has.
    generation: u32,
}

#[inline(always)]
unsafe fn place(layout: &PythonLayout, native: NodeId, top: u64) -> usize {
    // SAFETY: `find` and `keep` alone call this, with the innermost frame of the calling thread.
    let instruction = unsafe { instruction_of(layout, top) };
    let mixed = top ^ instruction.rotate_left(23) ^ u64::from(native.0).rotate_left(40);
    (mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - SLOT_BITS)) as usize
}

impl RecentStacks {
    pub const fn new() -> RecentStacks {
        RecentStacks { slots: Array::EMPTY, generation: 1 }
    }

    /// The backtrace of `native` with the Python stack at `top`, if it was met here and is the same word for word.
    ///
    /// # Safety
    /// `top` must be the innermost frame of the calling thread; slots must be of stacks that `known` has not forgotten.
    #[inline(always)]
    pub unsafe fn find(
        &self,
        known: &KnownStacks,
        layout: &PythonLayout,
        native: NodeId,
        top: TopFrameFound,
    ) -> Option<Combined> {
        if self.slots.is_empty() {
            return None;
        }
        // SAFETY: the place is below the number of slots. `top` is the innermost frame of the calling thread: the
        // contract of `find`.
        let slot = unsafe { &*self.slots.as_ptr().add(place(layout, native, top.frame)) };
        if slot.generation != self.generation || slot.native != native.0 || slot.is_certain != top.is_certain {
            return None;
        }
        // SAFETY: the slot is of this generation, so `known` has not forgotten its stack.
        let is_unchanged = unsafe { known.is_unchanged(slot.stack, layout, top.frame) };
        is_unchanged.then_some(Combined { node: NodeId(slot.node), flags: slot.flags })
    }

    /// Notes the number of the stack at `top` and what was made of it.
    ///
    /// # Safety
    /// As for [`find`](Self::find).
    pub unsafe fn keep(
        &mut self,
        layout: &PythonLayout,
        native: Captured,
        top: TopFrameFound,
        stack: u32,
        Combined { node, flags }: Combined,
    ) {
        // SAFETY: nothing points into an empty array.
        if self.slots.is_empty() && unsafe { self.slots.grow(SLOTS) }.is_none() {
            return;
        }
        let native = native.node;
        let slot = RecentSlot {
            generation: self.generation,
            native: native.0,
            stack,
            node: node.0,
            flags,
            is_certain: top.is_certain,
        };
        // SAFETY: the place is below the number of slots. `top` is the innermost frame of the calling thread: the
        // contract of `keep`.
        unsafe { self.slots.as_ptr().add(place(layout, native, top.frame)).write(slot) };
    }

    pub fn forget(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        if self.generation != 0 {
            return;
        }
        self.generation = 1;
        // SAFETY: the whole array, whose elements may be zero.
        unsafe { core::ptr::write_bytes(self.slots.as_ptr(), 0, self.slots.len()) };
    }

    /// # Safety
    /// Nothing may be used afterwards.
    pub unsafe fn release(&mut self) {
        // SAFETY: the caller uses nothing afterwards: the contract of `release`.
        unsafe { self.slots.release() };
    }

    pub fn bytes(&self) -> usize {
        self.slots.bytes()
    }
}
