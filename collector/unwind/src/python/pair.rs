//! A native backtrace and a Python stack, put together.

use super::frames::{FrameRole, FrameWord};
use super::is_evaluation;
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
}

fn place(native: NodeId, stack: u32) -> usize {
    let mixed = (native.0 ^ stack.rotate_left(15)).wrapping_mul(0x9E37_79B1);
    (mixed >> 16) as usize % PAIRS
}

impl Pairs {
    pub const fn new() -> Pairs {
        Pairs { slots: None, scratch: None }
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

    pub fn forget(&mut self) {
        if let Some(slots) = &self.slots {
            // SAFETY: the whole array, whose elements may be zero.
            unsafe { core::ptr::write_bytes(slots.as_ptr(), 0, slots.len()) };
        }
    }

    /// Puts the frames of a Python stack into a native backtrace: each part of the chain before the call of the evaluation
    /// loop that runs it. `None` when they do not belong together.
    ///
    /// # Safety
    /// The frames must stand.
    #[cold]
    pub unsafe fn combine(
        &mut self,
        interpreter: &PythonInterpreter,
        native: Captured,
        frames: &[FrameWord],
        is_certain: bool,
        tree: &CallTree,
    ) -> Option<Combined> {
        let layout = interpreter.layout;
        let calls = frames_of(tree, native.node).filter(|frame| is_evaluation(frame.pc)).count();
        let parts = parts_of(interpreter, frames);
        let is_cut = native.flags & TRUNCATED != 0;
        // Calls that are left over are another greenlet's. Where the thread's state is not certain, there must be none.
        if !is_cut && (parts > calls || !is_certain && parts != calls) {
            return None;
        }
        if self.scratch.is_none() {
            self.scratch = Array::new(4096);
        }
        let mut scratch = self.scratch.take()?;
        let mut list = AddressList { array: &mut scratch, count: 0 };
        let mut memory = ObjectMemory::for_backtrace();
        let mut rest = frames.iter();
        let mut put_all = || {
            for frame in frames_of(tree, native.node) {
                if is_evaluation(frame.pc) {
                    for word in rest.by_ref() {
                        let role = word.role(layout);
                        if role != FrameRole::Call && role != FrameRole::Base {
                            // SAFETY: passed on.
                            let address = unsafe { word.address(interpreter, &mut memory) }?;
                            list.push((address, 0))?;
                        }
                        if role != FrameRole::Inner {
                            break;
                        }
                    }
                }
                list.push((frame.pc, frame.generation))?;
            }
            Some(())
        };
        let whole = put_all();
        if whole.is_some() {
            memory.proved();
        }
        let count = list.count;
        let combined = whole.map(|()| {
            let mut node = NodeId::ROOT;
            for index in (0..count).rev() {
                // SAFETY: below the count.
                let (pc, generation) = unsafe { *scratch.as_ptr().add(index) };
                node = tree.intern(node, pc, generation);
            }
            Combined { node, flags: 0 }
        });
        self.scratch = Some(scratch);
        combined
    }

    /// # Safety
    /// Nothing may be used afterwards.
    pub unsafe fn release(&mut self) {
        // SAFETY: passed on.
        unsafe {
            self.slots.take().into_iter().for_each(|mut array| array.release());
            self.scratch.take().into_iter().for_each(|mut array| array.release());
        }
    }

    pub fn bytes(&self) -> usize {
        self.slots.as_ref().map_or(0, Array::bytes) + self.scratch.as_ref().map_or(0, Array::bytes)
    }
}

/// The frames of a backtrace, innermost first.
fn frames_of(tree: &CallTree, node: NodeId) -> impl Iterator<Item = tracehound_shared::call_tree::TreeNode> {
    core::iter::successors(tree.get(node.0), |frame| tree.get(frame.parent))
}

/// Calls of the evaluation loop that a chain says there are.
fn parts_of(interpreter: &PythonInterpreter, frames: &[FrameWord]) -> usize {
    let mut parts = 0;
    let mut is_open = false;
    for role in frames.iter().map(|word| word.role(interpreter.layout)).filter(|&role| role != FrameRole::Base) {
        let is_end = role != FrameRole::Inner;
        parts += usize::from(is_end);
        is_open = !is_end;
    }
    // A chain that ends in the middle of a part: the outermost frame of a coroutine that was never awaited, say.
    parts + usize::from(is_open)
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
