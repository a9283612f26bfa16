//! Cache of the last result for each innermost frame and native backtrace, with the words to compare.
//!
//! One cache line is read before the words and the frames themselves.

use super::frames::instruction_of;
use super::known::KnownStacks;
use super::pair::Combined;
use crate::{Array, Captured};
use tracehound_shared::call_tree::NodeId;
use tracehound_shared::python::{PythonLayout, TopFrameFound};

const SLOTS: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 11;

/// Zero: nothing, since a Python stack has a frame.
#[repr(C, align(32))]
#[derive(Clone, Copy)]
struct RecentSlot {
    native: u32,
    /// Words of the Python stack.
    first: u32,
    count: u32,
    node: u32,
    flags: u8,
    is_certain: bool,
}

/// See the module's text.
pub struct RecentStacks {
    slots: Option<Array<RecentSlot>>,
}

#[inline(always)]
unsafe fn place(layout: &PythonLayout, native: NodeId, top: u64) -> usize {
    // SAFETY: by the caller.
    let instruction = unsafe { instruction_of(layout, top) };
    let mixed = top ^ instruction.rotate_left(23) ^ u64::from(native.0).rotate_left(40);
    (mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - SLOT_BITS)) as usize
}

impl RecentStacks {
    pub const fn new() -> RecentStacks {
        RecentStacks { slots: None }
    }

    /// The backtrace of `native` with the Python stack at `top`, if it was met here last and stands word for word.
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
        let slots = self.slots.as_ref()?;
        // SAFETY: in bounds; the rest is passed on.
        unsafe {
            let slot = &*slots.as_ptr().add(place(layout, native, top.frame));
            let is_same = slot.count != 0 && slot.native == native.0 && slot.is_certain == top.is_certain;
            (is_same && known.stands(slot.first, slot.count, layout, top.frame))
                .then_some(Combined { node: NodeId(slot.node), flags: slot.flags })
        }
    }

    /// Notes the words of the stack at `top` and what was made of it.
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
        if self.slots.is_none() {
            self.slots = Array::new(SLOTS);
        }
        let Some(slots) = &self.slots else { return };
        let slot = RecentSlot { native: native.node.0, first, count, node: node.0, flags, is_certain: top.is_certain };
        // SAFETY: in bounds; the rest is passed on.
        unsafe { slots.as_ptr().add(place(layout, native.node, top.frame)).write(slot) };
    }

    pub fn forget(&mut self) {
        if let Some(slots) = &self.slots {
            // SAFETY: the whole array, whose elements may be zero.
            unsafe { core::ptr::write_bytes(slots.as_ptr(), 0, slots.len()) };
        }
    }

    /// # Safety
    /// Nothing may be used afterwards.
    pub unsafe fn release(&mut self) {
        // SAFETY: passed on.
        unsafe { self.slots.take().into_iter().for_each(|mut array| array.release()) };
    }

    pub fn bytes(&self) -> usize {
        self.slots.as_ref().map_or(0, Array::bytes)
    }
}
