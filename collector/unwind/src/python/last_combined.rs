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
    words: Option<Array<FrameWord>>,
    count: usize,
    /// Calls of the last backtrace, outermost first.
    known: Option<Array<EvaluationCall>>,
    /// Those of the next one that are not among them, innermost first.
    next: Option<Array<EvaluationCall>>,
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
            words: None,
            count: 0,
            known: None,
            next: None,
            known_len: 0,
            next_len: 0,
            common: 0,
            is_open: false,
        }
    }

    /// Begins the next backtrace, with these Python frames.
    pub fn begin(&mut self, frames: &[FrameWord]) {
        self.next_len = 0;
        let last = match &self.words {
            // SAFETY: so many words were written.
            Some(words) => unsafe { core::slice::from_raw_parts(words.as_ptr(), self.count) },
            None => &[],
        };
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
        match &self.known {
            // SAFETY: below the number of calls, hence in bounds.
            Some(known) if index < self.known_len => unsafe { *known.as_ptr().add(index) },
            _ => EvaluationCall { native: 0, left: 0, index: 0, node: 0, calls: 0, parts: 0 },
        }
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
        let Some(next) = &self.next else { return };
        for index in 0..self.next_len {
            // SAFETY: below the number of calls.
            let call = unsafe { &mut *next.as_ptr().add(index) };
            (call.calls, call.parts) = (all.calls - call.calls, all.parts - call.parts);
        }
    }

    /// Says which node the address with this index has got. They come from the outermost one inwards, and calls are
    /// kept in this order.
    pub fn has_node(&mut self, index: u32, node: NodeId) {
        let Some(next) = &self.next else { return };
        while self.next_len > 0 {
            // SAFETY: below the number of calls.
            let call = unsafe { *next.as_ptr().add(self.next_len - 1) };
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
        if self.words.as_ref().is_none_or(|words| words.len() < frames.len()) && self.grow(frames.len()).is_none() {
            self.forget();
            return;
        }
        let Some(words) = &self.words else { return };
        // SAFETY: there is room for them, and they are in another array.
        unsafe { words.as_ptr().copy_from_nonoverlapping(frames.as_ptr(), frames.len()) };
        self.count = frames.len();
    }

    fn grow(&mut self, count: usize) -> Option<()> {
        match &mut self.words {
            // SAFETY: no pointer into the array is held.
            Some(words) => unsafe { words.grow(count * 2) },
            None => {
                self.words = Some(Array::new(FIRST_CALLS.max(count * 2))?);
                Some(())
            }
        }
    }

    /// Forgets the backtrace.
    pub fn forget(&mut self) {
        (self.count, self.known_len, self.next_len, self.common) = (0, 0, 0, 0);
    }

    /// # Safety
    /// Nothing may be used afterwards.
    pub unsafe fn release(&mut self) {
        self.forget();
        // SAFETY: the caller uses nothing afterwards: the contract of `release`. Each array is taken out before it is
        // released.
        unsafe {
            self.known.take().into_iter().for_each(|mut array| array.release());
            self.next.take().into_iter().for_each(|mut array| array.release());
            self.words.take().into_iter().for_each(|mut array| array.release());
        }
    }

    pub fn bytes(&self) -> usize {
        self.known.as_ref().map_or(0, Array::bytes)
            + self.next.as_ref().map_or(0, Array::bytes)
            + self.words.as_ref().map_or(0, Array::bytes)
    }
}

fn push_to(array: &mut Option<Array<EvaluationCall>>, len: usize, call: EvaluationCall) -> Option<()> {
    if array.is_none() {
        *array = Array::new(FIRST_CALLS);
    }
    let array = array.as_mut()?;
    if len == array.len() {
        // SAFETY: no pointer into the array is held.
        unsafe { array.grow(array.len() * 2) }?;
    }
    // SAFETY: below the length.
    unsafe { array.as_ptr().add(len).write(call) };
    Some(())
}
