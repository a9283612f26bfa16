//! A native backtrace and a Python stack, put together.

use super::frames::FrameRole;
use super::is_evaluation;
use super::known::KnownStacks;
use super::last_combined::{EvaluationCall, LastCombined};
use crate::{Array, Captured, TRUNCATED};
use tracehound_shared::call_tree::{CallTree, NodeId};
use tracehound_shared::python::{INTERPRETERS_OWN, ObjectMemory, PythonInterpreter};

/// Places for pairs at first and at most. There are more of them when many pairs have taken the place of others.
const FIRST_PAIRS: usize = 8 << 10;
const MOST_PAIRS: usize = 128 << 10;
/// Places where a pair may be, one behind the other.
const PLACES_OF_PAIR: usize = 2;

/// A combined backtrace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Combined {
    pub node: NodeId,
    pub flags: u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct PairSlot {
    native: u32,
    stack: u32,
    node: u32,
    /// [`Pairs::generation`]; another one: nothing.
    generation: u16,
    flags: u8,
    is_certain: bool,
}

/// See the module's text.
pub struct Pairs {
    slots: Array<PairSlot>,
    /// How many there are: a power of two.
    places: usize,
    /// Pairs that were replaced since there are so many places.
    replaced: usize,
    /// Of what is not forgotten; never 0, which fresh memory has.
    generation: u16,
    /// Addresses of the combined backtrace, innermost first, and the generations of their code.
    scratch: Array<(u64, u32)>,
    last: LastCombined,
}

/// The first place where a pair may be.
fn place(native: u32, stack: u32, places: usize) -> usize {
    let mixed = (u64::from(native) << 32 | u64::from(stack)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 40) as usize & (places - PLACES_OF_PAIR)
}

impl Pairs {
    pub const fn new() -> Pairs {
        Pairs {
            slots: Array::EMPTY,
            places: FIRST_PAIRS,
            replaced: 0,
            generation: 1,
            scratch: Array::EMPTY,
            last: LastCombined::new(),
        }
    }

    /// The backtrace of a pair that was combined before.
    #[inline]
    pub fn find(&self, native: NodeId, stack: u32, is_certain: bool) -> Option<Combined> {
        if self.slots.is_empty() {
            return None;
        }
        let first = place(native.0, stack, self.places);
        (first..first + PLACES_OF_PAIR).find_map(|index| {
            // SAFETY: in bounds.
            let slot = unsafe { &*self.slots.as_ptr().add(index) };
            let is_same = slot.native == native.0 && slot.stack == stack && slot.is_certain == is_certain;
            let is_known = is_same && slot.generation == self.generation;
            is_known.then_some(Combined { node: NodeId(slot.node), flags: slot.flags })
        })
    }

    pub fn keep(&mut self, native: NodeId, stack: u32, is_certain: bool, combined: Combined) {
        if self.slots.is_empty() {
            // SAFETY: nothing points into an empty array.
            if unsafe { self.slots.grow(self.places) }.is_none() {
                return;
            }
        } else if self.replaced > self.places / 2 && self.places < MOST_PAIRS {
            self.grow();
        }
        let slots = self.slots.as_ptr();
        let generation = self.generation;
        let Combined { node, flags } = combined;
        let slot = PairSlot { native: native.0, stack, node: node.0, generation, flags, is_certain };
        let first = place(native.0, stack, self.places);
        // SAFETY: in bounds.
        let is_free = |index: usize| unsafe { (*slots.add(index)).generation != generation };
        let index = (first..first + PLACES_OF_PAIR).find(|&index| is_free(index)).unwrap_or_else(|| {
            self.replaced += 1;
            first + self.replaced % PLACES_OF_PAIR
        });
        // SAFETY: in bounds.
        unsafe { slots.add(index).write(slot) };
    }

    /// Moves the pairs to four times as many places; where there is no memory for them, the places stay.
    #[cold]
    fn grow(&mut self) {
        self.replaced = 0;
        let places = self.places * 4;
        let Some(new) = Array::<PairSlot>::new(places) else { return };
        for index in 0..self.places {
            // SAFETY: both are in bounds.
            unsafe {
                let slot = *self.slots.as_ptr().add(index);
                if slot.generation == self.generation {
                    let first = new.as_ptr().add(place(slot.native, slot.stack, places));
                    let is_first_free = (*first).generation != self.generation;
                    first.add(usize::from(!is_first_free)).write(slot);
                }
            }
        }
        let mut old = self.slots.replace(new);
        // After the slots, of which there are never fewer.
        self.places = places;
        // SAFETY: replaced above; nothing of it is used any more.
        unsafe { old.release() };
    }

    /// Forgets all pairs, keeps the memory.
    pub fn forget(&mut self) {
        self.last.forget();
        self.replaced = 0;
        self.generation = self.generation.wrapping_add(1);
        if self.generation != 0 {
            return;
        }
        self.generation = 1;
        // SAFETY: the whole array, whose elements may be zero.
        unsafe { core::ptr::write_bytes(self.slots.as_ptr(), 0, self.slots.len()) };
    }

    /// Puts the frames of the Python stack that `known` has learnt last into a native backtrace: each part of the chain
    /// before the call of the evaluation loop that runs it. `None` when they do not belong together. What is outside of
    /// a call that the last backtrace had too, with the same Python frames outside, is not done again.
    ///
    /// # Safety
    /// The frames must exist.
    #[cold]
    pub unsafe fn combine(
        &mut self,
        interpreter: &PythonInterpreter,
        native: Captured,
        known: &mut KnownStacks,
        is_certain: bool,
        tree: &CallTree,
    ) -> Option<Combined> {
        let Pairs { scratch, last, .. } = self;
        if scratch.is_empty() {
            // SAFETY: nothing points into an empty array.
            unsafe { scratch.grow(4096) }?;
        }
        let mut list = AddressList { array: scratch, count: 0 };
        last.begin(known.last_frames());
        // SAFETY: the frames exist: the contract of `combine`, which is that of `list_frames` too.
        let outside = unsafe { list_frames(last, interpreter, native, known, is_certain, tree, &mut list) }?;
        let mut node = outside;
        for index in (0..list.count).rev() {
            // SAFETY: below the count.
            let (pc, generation) = unsafe { *list.array.as_ptr().add(index) };
            node = tree.intern(node, pc, generation);
            last.has_node(index as u32, node);
        }
        last.commit(known.last_frames());
        Some(Combined { node, flags: 0 })
    }

    /// # Safety
    /// Nothing may be used afterwards.
    pub unsafe fn release(&mut self) {
        // SAFETY: the caller uses nothing afterwards: the contract of `release`.
        unsafe {
            self.slots.release();
            self.scratch.release();
            self.last.release();
        }
    }

    pub fn bytes(&self) -> usize {
        self.slots.bytes() + self.scratch.bytes() + self.last.bytes()
    }
}

/// Lists the frames of both, from the innermost one outwards, up to a call that the last backtrace had too, or to
/// the outermost frame. Gives the combined node of what is outside of that.
///
/// # Safety
/// As for [`Pairs::combine`].
unsafe fn list_frames(
    last: &mut LastCombined,
    interpreter: &PythonInterpreter,
    native: Captured,
    known: &mut KnownStacks,
    is_certain: bool,
    tree: &CallTree,
    list: &mut AddressList<'_>,
) -> Option<NodeId> {
    let layout = interpreter.layout;
    let mut memory = ObjectMemory::for_backtrace();
    let mut counts = PartCounts::default();
    let mut outside = NodeId::ROOT;
    // Python frames that are left.
    let mut left = known.last_frames().len();
    let mut id = native.node.0;
    while let Some(frame) = tree.get(id) {
        if is_evaluation(frame.pc) {
            if let Some(known) = last.find(id, left) {
                (outside, left) = (known.node, 0);
                counts.calls += known.calls;
                counts.parts += known.parts;
                counts.is_open = known.is_open;
                break;
            }
            last.push(EvaluationCall::at(id, left, list.count, counts))?;
            counts.calls += 1;
            while let Some(word) = known.last_word(left) {
                let role = word.role(layout);
                counts.add(role);
                if role != FrameRole::Call && role != FrameRole::Base {
                    // SAFETY: the frame is one of the last stack, which exist: the contract of `list_frames`.
                    let address = unsafe { known.address(interpreter, &mut memory, left) }?;
                    if address != INTERPRETERS_OWN {
                        list.push((address, 0))?;
                    }
                }
                left -= 1;
                if role != FrameRole::Inner {
                    break;
                }
            }
        }
        list.push((frame.pc, frame.generation))?;
        id = frame.parent;
    }
    // Parts of the chain without a call.
    while let Some(word) = known.last_word(left) {
        counts.add(word.role(layout));
        left -= 1;
    }
    let (calls, parts) = (counts.calls, counts.all_parts());
    let is_cut = native.flags & TRUNCATED != 0;
    // Calls that are left over are another greenlet's. Where the thread's state is not certain, there must be none.
    if !is_cut && (parts > calls || !is_certain && parts != calls) {
        return None;
    }
    last.counted(counts);
    memory.proved();
    Some(outside)
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

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::stepping::after_each_instruction;

    #[test]
    fn there_are_never_more_places_than_memory() {
        let mut pairs = Pairs::new();
        let combined = Combined { node: NodeId(1), flags: 0 };
        pairs.keep(NodeId(1), 1, true, combined);
        pairs.replaced = FIRST_PAIRS;
        let kept = &raw mut pairs;
        // SAFETY: reads what the interrupted code has stored, as the next event does after a jump.
        let is_whole = || unsafe { (*kept).slots.is_there() && (*kept).places <= (*kept).slots.len() };
        // SAFETY: the only use of the pairs, beside `is_whole`.
        let found = after_each_instruction(is_whole, || unsafe { (*kept).keep(NodeId(2), 2, true, combined) });
        assert_eq!(found.failing, None, "of {} instructions", found.instructions);
        assert_eq!(pairs.places, 4 * FIRST_PAIRS);
        assert_eq!(pairs.find(NodeId(1), 1, true), Some(combined));
        // SAFETY: not used afterwards.
        unsafe { pairs.release() };
    }
}
