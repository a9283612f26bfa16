//! A native backtrace and a Python stack, put together.

use super::frames::{FrameRole, FrameWord};
use super::is_evaluation;
use super::last_combined::{EvaluationCall, LastCombined};
use crate::{Array, Captured, TRUNCATED};
use tracehound_shared::call_tree::{CallTree, NodeId};
use tracehound_shared::python::{ObjectMemory, PythonInterpreter};

/// Pairs that are remembered: each has one place.
const PAIRS: usize = 8192;

/// A combined backtrace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Combined {
    pub node: NodeId,
    pub flags: u8,
}

/// Zero: nothing. The stack's number is kept plus one.
#[repr(C)]
#[derive(Clone, Copy)]
struct PairSlot {
    native: u32,
    stack: u32,
    node: u32,
    flags: u8,
    is_certain: bool,
}

/// See the module's text.
pub struct Pairs {
    slots: Option<Array<PairSlot>>,
    /// Addresses of the combined backtrace, innermost first, and the generations of their code.
    scratch: Option<Array<(u64, u32)>>,
    last: LastCombined,
}

fn place(native: NodeId, stack: u32) -> usize {
    let mixed = (native.0 ^ stack.rotate_left(15)).wrapping_mul(0x9E37_79B1);
    (mixed >> 16) as usize % PAIRS
}

impl Pairs {
    pub const fn new() -> Pairs {
        Pairs { slots: None, scratch: None, last: LastCombined::new() }
    }

    /// The backtrace of a pair that was combined before.
    #[inline]
    pub fn find(&self, native: NodeId, stack: u32, is_certain: bool) -> Option<Combined> {
        let slots = self.slots.as_ref()?;
        // SAFETY: in bounds.
        let slot = unsafe { *slots.as_ptr().add(place(native, stack)) };
        (slot.native == native.0 && slot.stack == stack + 1 && slot.is_certain == is_certain)
            .then_some(Combined { node: NodeId(slot.node), flags: slot.flags })
    }

    pub fn keep(&mut self, native: NodeId, stack: u32, is_certain: bool, combined: Combined) {
        if self.slots.is_none() {
            self.slots = Array::new(PAIRS);
        }
        let Some(slots) = &self.slots else { return };
        let Combined { node, flags } = combined;
        // SAFETY: in bounds.
        unsafe {
            let slot = slots.as_ptr().add(place(native, stack));
            slot.write(PairSlot { native: native.0, stack: stack + 1, node: node.0, flags, is_certain });
        }
    }

    /// The Python stack that was combined last.
    pub fn last_stack(&self) -> Option<u32> {
        self.last.stack
    }

    pub fn forget(&mut self) {
        self.last.forget();
        if let Some(slots) = &self.slots {
            // SAFETY: the whole array, whose elements may be zero.
            unsafe { core::ptr::write_bytes(slots.as_ptr(), 0, slots.len()) };
        }
    }

    /// Puts the frames of a Python stack into a native backtrace: each part of the chain before the call of the evaluation
    /// loop that runs it. `None` when they do not belong together. What lies outside of a call that the last backtrace
    /// had too, with the same Python frames outside, is not done again: `last` are the frames of
    /// [`last_stack`](Self::last_stack).
    ///
    /// # Safety
    /// The frames must exist.
    #[cold]
    pub unsafe fn combine(
        &mut self,
        interpreter: &PythonInterpreter,
        native: Captured,
        (stack, frames): (u32, &[FrameWord]),
        last: &[FrameWord],
        is_certain: bool,
        tree: &CallTree,
    ) -> Option<Combined> {
        if self.scratch.is_none() {
            self.scratch = Array::new(4096);
        }
        let mut scratch = self.scratch.take()?;
        let mut list = AddressList { array: &mut scratch, count: 0 };
        self.last.begin(frames, last);
        // SAFETY: the frames exist: the contract of `combine`, which is that of `list` too.
        let whole = unsafe { self.list(interpreter, native, frames, is_certain, tree, &mut list) };
        let count = list.count;
        let combined = whole.map(|outside| {
            let mut node = outside;
            for index in (0..count).rev() {
                // SAFETY: below the count.
                let (pc, generation) = unsafe { *scratch.as_ptr().add(index) };
                node = tree.intern(node, pc, generation);
                self.last.has_node(index as u32, node);
            }
            self.last.commit(stack);
            Combined { node, flags: 0 }
        });
        self.scratch = Some(scratch);
        combined
    }

    /// Lists the frames of both, from the innermost one outwards, up to a call that the last backtrace had too, or to
    /// the outermost frame. Gives the combined node of what is outside of that.
    ///
    /// # Safety
    /// As for [`combine`](Self::combine).
    unsafe fn list(
        &mut self,
        interpreter: &PythonInterpreter,
        native: Captured,
        frames: &[FrameWord],
        is_certain: bool,
        tree: &CallTree,
        list: &mut AddressList<'_>,
    ) -> Option<NodeId> {
        let layout = interpreter.layout;
        let mut memory = ObjectMemory::for_backtrace();
        let mut counts = PartCounts::default();
        let mut outside = NodeId::ROOT;
        let mut rest = frames;
        let mut id = native.node.0;
        while let Some(frame) = tree.get(id) {
            if is_evaluation(frame.pc) {
                if let Some(known) = self.last.find(id, rest.len()) {
                    (outside, rest) = (known.node, &[]);
                    counts.calls += known.calls;
                    counts.parts += known.parts;
                    counts.is_open = known.is_open;
                    break;
                }
                self.last.push(EvaluationCall::at(id, rest.len(), list.count, counts))?;
                counts.calls += 1;
                while let [word, further @ ..] = rest {
                    rest = further;
                    let role = word.role(layout);
                    counts.add(role);
                    if role != FrameRole::Call && role != FrameRole::Base {
                        // SAFETY: the frame is one of `frames`, which exist: the contract of `list`.
                        let address = unsafe { word.address(interpreter, &mut memory) }?;
                        list.push((address, 0))?;
                    }
                    if role != FrameRole::Inner {
                        break;
                    }
                }
            }
            list.push((frame.pc, frame.generation))?;
            id = frame.parent;
        }
        // Parts of the chain without a call.
        rest.iter().for_each(|word| counts.add(word.role(layout)));
        let (calls, parts) = (counts.calls, counts.all_parts());
        let is_cut = native.flags & TRUNCATED != 0;
        // Calls that are left over are another greenlet's. Where the thread's state is not certain, there must be none.
        if !is_cut && (parts > calls || !is_certain && parts != calls) {
            return None;
        }
        self.last.counted(counts);
        memory.proved();
        Some(outside)
    }

    /// # Safety
    /// Nothing may be used afterwards.
    pub unsafe fn release(&mut self) {
        // SAFETY: the caller uses nothing afterwards: the contract of `release`. Each array is taken out before it is
        // released.
        unsafe {
            self.slots.take().into_iter().for_each(|mut array| array.release());
            self.scratch.take().into_iter().for_each(|mut array| array.release());
            self.last.release();
        }
    }

    pub fn bytes(&self) -> usize {
        self.slots.as_ref().map_or(0, Array::bytes) + self.scratch.as_ref().map_or(0, Array::bytes) + self.last.bytes()
    }
}

/// Calls of the evaluation loop that a backtrace has, and that a chain says there are.
#[derive(Clone, Copy, Default)]
pub struct PartCounts {
    pub calls: u32,
    /// Parts of the chain that have ended.
    pub parts: u32,
    /// The chain ends in the middle of a part: the outermost frame of a coroutine that was never awaited, say.
    pub is_open: bool,
}

impl PartCounts {
    fn add(&mut self, role: FrameRole) {
        if role != FrameRole::Base {
            let is_end = role != FrameRole::Inner;
            self.parts += u32::from(is_end);
            self.is_open = !is_end;
        }
    }

    fn all_parts(&self) -> u32 {
        self.parts + u32::from(self.is_open)
    }
}

struct AddressList<'a> {
    array: &'a mut Array<(u64, u32)>,
    count: usize,
}

impl AddressList<'_> {
    fn push(&mut self, frame: (u64, u32)) -> Option<()> {
        if self.count == self.array.len() {
            // SAFETY: no pointer into the array is held.
            unsafe { self.array.grow(self.array.len() * 2) }?;
        }
        // SAFETY: below the length.
        unsafe { self.array.as_ptr().add(self.count).write(frame) };
        self.count += 1;
        Some(())
    }
}
