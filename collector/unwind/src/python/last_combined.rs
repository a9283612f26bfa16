//! The calls of the evaluation loop in the backtrace that was combined last.
//!
//! Backtraces that are combined one after the other mostly differ in their innermost frames only. If the next one goes
//! through the same call of the evaluation loop, which is one node of the native tree, and the Python frames from there
//! on are the same, then so is the combined node of that call.

use super::frames::FrameWord;
use super::pair::PartCounts;
use crate::Array;
use tracehound_shared::call_tree::NodeId;

/// Calls that there is room for at first.
const FIRST_CALLS: usize = 256;

/// A call of the evaluation loop in a combined backtrace.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EvaluationCall {
    /// Native node.
    native: u32,
    /// Python frames from here to the outermost one.
    left: u32,
    /// While it is combined: index in the list of addresses of the innermost one of the call.
    index: u32,
    /// Combined node, of the call's innermost Python frame.
    node: u32,
    /// Calls and parts of the chain from here on outwards; while it is combined: those within.
    calls: u32,
    parts: u32,
}

impl EvaluationCall {
    /// A call that is met with `left` Python frames left, `index` addresses and these counts within.
    pub fn at(native: u32, left: usize, index: usize, within: PartCounts) -> EvaluationCall {
        let (left, index) = (left as u32, index as u32);
        EvaluationCall { native, left, index, node: 0, calls: within.calls, parts: within.parts }
    }
}

/// What is known of a call, and of all that is outside of it.
pub struct KnownCall {
    pub node: NodeId,
    pub calls: u32,
    pub parts: u32,
    pub is_open: bool,
}

/// See the module's text.
pub struct LastCombined {
    /// Words of the Python stack, innermost first, and their number.
    words: Array<FrameWord>,
    count: usize,
    /// Calls of the last backtrace, outermost first.
    known: Array<EvaluationCall>,
    /// Those of the next one that are not among them, innermost first.
    next: Array<EvaluationCall>,
    known_len: usize,
    next_len: usize,
    /// Python frames, counted from the outermost one, that both have.
    common: usize,
    /// The chain of the last backtrace ends in the middle of a part.
    is_open: bool,
}

impl LastCombined {
    pub const fn new() -> LastCombined {
        LastCombined {
            words: Array::EMPTY,
            count: 0,
            known: Array::EMPTY,
            next: Array::EMPTY,
            known_len: 0,
            next_len: 0,
            common: 0,
            is_open: false,
        }
    }

    /// Begins the next backtrace, with these Python frames.
    pub fn begin(&mut self, frames: &[FrameWord]) {
        self.next_len = 0;
        // SAFETY: so many words were written.
        let last = unsafe { self.words.elements(self.count) };
        let pairs = frames.iter().rev().zip(last.iter().rev());
        self.common = pairs.take_while(|(one, other)| one == other).count();
        self.cut_to(self.common);
    }

    /// Forgets the calls with more than so many Python frames left.
    fn cut_to(&mut self, left: usize) {
        while self.known_len > 0 && self.call(self.known_len - 1).left as usize > left {
            self.known_len -= 1;
        }
    }

    /// A call of the last backtrace; the index must be below their number.
    fn call(&self, index: usize) -> EvaluationCall {
        if index >= self.known_len {
            return EvaluationCall { native: 0, left: 0, index: 0, node: 0, calls: 0, parts: 0 };
        }
        // SAFETY: below the number of calls, hence in bounds.
        unsafe { *self.known.as_ptr().add(index) }
    }

    /// The call `native` with so many Python frames left, if the last backtrace had it. To be asked for calls from the
    /// innermost one outwards: those within are forgotten.
    pub fn find(&mut self, native: u32, left: usize) -> Option<KnownCall> {
        // Calls without frames are another greenlet's, and several may be alike.
        if left == 0 || left > self.common {
            return None;
        }
        self.cut_to(left);
        let call = self.call(self.known_len.checked_sub(1)?);
        // Where no part has ended outside, whether one is open depends on what is within.
        (call.native == native && call.left as usize == left && call.parts > 0).then_some(KnownCall {
            node: NodeId(call.node),
            calls: call.calls,
            parts: call.parts,
            is_open: self.is_open,
        })
    }

    /// Notes a call of the next backtrace, which [`find`](Self::find) did not know.
    pub fn push(&mut self, call: EvaluationCall) -> Option<()> {
        push_to(&mut self.next, self.next_len, call)?;
        self.next_len += 1;
        Some(())
    }

    /// How many calls and parts the whole backtrace has: what was within a call becomes what is outside.
    pub fn counted(&mut self, all: PartCounts) {
        self.is_open = all.is_open;
        for index in 0..self.next_len {
            // SAFETY: below the number of calls.
            let call = unsafe { &mut *self.next.as_ptr().add(index) };
            (call.calls, call.parts) = (all.calls - call.calls, all.parts - call.parts);
        }
    }

    /// Says which node the address with this index has got. They come from the outermost one inwards, and calls are
    /// kept in this order.
    pub fn has_node(&mut self, index: u32, node: NodeId) {
        while self.next_len > 0 {
            // SAFETY: below the number of calls.
            let call = unsafe { *self.next.as_ptr().add(self.next_len - 1) };
            if call.index != index {
                return;
            }
            self.next_len -= 1;
            if push_to(&mut self.known, self.known_len, EvaluationCall { node: node.0, ..call }).is_none() {
                // Without memory only the outer ones are known.
                self.next_len = 0;
                return;
            }
            self.known_len += 1;
        }
    }

    /// The backtrace is complete, and is of these Python frames.
    pub fn commit(&mut self, frames: &[FrameWord]) {
        self.count = 0;
        // SAFETY: no pointer into the array is held.
        if self.words.len() < frames.len() && unsafe { self.words.grow(FIRST_CALLS.max(frames.len() * 2)) }.is_none() {
            self.forget();
            return;
        }
        // SAFETY: there is room for them, and they are in another array.
        unsafe { self.words.as_ptr().copy_from_nonoverlapping(frames.as_ptr(), frames.len()) };
        self.count = frames.len();
    }

    /// Forgets the backtrace.
    pub fn forget(&mut self) {
        (self.count, self.known_len, self.next_len, self.common) = (0, 0, 0, 0);
    }

    /// # Safety
    /// Nothing may be used afterwards.
    pub unsafe fn release(&mut self) {
        self.forget();
        // SAFETY: the caller uses nothing afterwards: the contract of `release`.
        unsafe {
            self.known.release();
            self.next.release();
            self.words.release();
        }
    }

    pub fn bytes(&self) -> usize {
        self.known.bytes() + self.next.bytes() + self.words.bytes()
    }
}

fn push_to(array: &mut Array<EvaluationCall>, len: usize, call: EvaluationCall) -> Option<()> {
    if len == array.len() {
        // SAFETY: no pointer into the array is held.
        unsafe { array.grow(FIRST_CALLS.max(len * 2)) }?;
    }
    // SAFETY: below the length.
    unsafe { array.as_ptr().add(len).write(call) };
    Some(())
}
