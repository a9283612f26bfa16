//! A native backtrace and a Python stack, put together.

use super::frames::FrameRole;
use super::is_evaluation;
use super::known::KnownStacks;
use super::last_combined::{EvaluationCall, LastCombined};
use crate::{Array, Captured, TRUNCATED};
use tracehound_shared::call_tree::{CallTree, NodeId};
use tracehound_shared::python::{ObjectMemory, PythonInterpreter};

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
    slots: Option<Array<PairSlot>>,
    /// How many there are: a power of two.
    places: usize,
    /// Pairs that were replaced since there are so many places.
    replaced: usize,
    /// Of what is not forgotten; never 0, which fresh memory has.
    generation: u16,
    /// Addresses of the combined backtrace, innermost first, and the generations of their code.
    scratch: Option<Array<(u64, u32)>>,
    last: LastCombined,
}

/// The first place where a pair may be.
fn place(native: u32, stack: u32, places: usize) -> usize {
    let mixed = (u64::from(native) << 32 | u64::from(stack)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 40) as usize & (places - PLACES_OF_PAIR)
}

impl Pairs {
    pub const fn new() -> Pairs {
        Pairs { slots: None, places: FIRST_PAIRS, replaced: 0, generation: 1, scratch: None, last: LastCombined::new() }
    }

    /// The backtrace of a pair that was combined before.
    #[inline]
    pub fn find(&self, native: NodeId, stack: u32, is_certain: bool) -> Option<Combined> {
        let slots = self.slots.as_ref()?;
        let first = place(native.0, stack, self.places);
        (first..first + PLACES_OF_PAIR).find_map(|index| {
            // SAFETY: in bounds.
            let slot = unsafe { &*slots.as_ptr().add(index) };
            let is_same = slot.native == native.0 && slot.stack == stack && slot.is_certain == is_certain;
            let is_known = is_same && slot.generation == self.generation;
            is_known.then_some(Combined { node: NodeId(slot.node), flags: slot.flags })
        })
    }

    pub fn keep(&mut self, native: NodeId, stack: u32, is_certain: bool, combined: Combined) {
        if self.slots.is_none() {
            self.slots = Array::new(self.places);
        } else if self.replaced > self.places / 2 && self.places < MOST_PAIRS {
            self.grow();
        }
        let Some(slots) = &self.slots else { return };
        let generation = self.generation;
        let Combined { node, flags } = combined;
        let slot = PairSlot { native: native.0, stack, node: node.0, generation, flags, is_certain };
        let first = place(native.0, stack, self.places);
        // SAFETY: in bounds.
        let is_free = |index: usize| unsafe { (*slots.as_ptr().add(index)).generation != generation };
        let index = (first..first + PLACES_OF_PAIR).find(|&index| is_free(index)).unwrap_or_else(|| {
            self.replaced += 1;
            first + self.replaced % PLACES_OF_PAIR
        });
        // SAFETY: in bounds.
        unsafe { slots.as_ptr().add(index).write(slot) };
    }

    /// Moves the pairs to four times as many places; where there is no memory for them, the places stay.
    #[cold]
    fn grow(&mut self) {
        self.replaced = 0;
        let places = self.places * 4;
        let (Some(new), Some(old)) = (Array::<PairSlot>::new(places), &mut self.slots) else { return };
        for index in 0..self.places {
            // SAFETY: both are in bounds.
            unsafe {
                let slot = *old.as_ptr().add(index);
                if slot.generation == self.generation {
                    let first = new.as_ptr().add(place(slot.native, slot.stack, places));
                    let is_first_free = (*first).generation != self.generation;
                    first.add(usize::from(!is_first_free)).write(slot);
                }
            }
        }
        // SAFETY: nothing of it is used any more.
        unsafe { old.release() };
        *old = new;
        self.places = places;
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
        if let Some(slots) = &self.slots {
            // SAFETY: the whole array, whose elements may be zero.
            unsafe { core::ptr::write_bytes(slots.as_ptr(), 0, slots.len()) };
        }
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
        if self.scratch.is_none() {
            self.scratch = Array::new(4096);
        }
        let mut scratch = self.scratch.take()?;
        let mut list = AddressList { array: &mut scratch, count: 0 };
        self.last.begin(known.last_frames());
        // SAFETY: the frames exist: the contract of `combine`, which is that of `list` too.
        let whole = unsafe { self.list(interpreter, native, known, is_certain, tree, &mut list) };
        let count = list.count;
        let combined = whole.map(|outside| {
            let mut node = outside;
            for index in (0..count).rev() {
                // SAFETY: below the count.
                let (pc, generation) = unsafe { *scratch.as_ptr().add(index) };
                node = tree.intern(node, pc, generation);
                self.last.has_node(index as u32, node);
            }
            self.last.commit(known.last_frames());
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
                if let Some(known) = self.last.find(id, left) {
                    (outside, left) = (known.node, 0);
                    counts.calls += known.calls;
                    counts.parts += known.parts;
                    counts.is_open = known.is_open;
                    break;
                }
                self.last.push(EvaluationCall::at(id, left, list.count, counts))?;
                counts.calls += 1;
                while let Some(word) = known.last_word(left) {
                    let role = word.role(layout);
                    counts.add(role);
                    if role != FrameRole::Call && role != FrameRole::Base {
                        // SAFETY: the frame is one of the last stack, which exist: the contract of `list`.
                        let address = unsafe { known.address(interpreter, &mut memory, left) }?;
                        list.push((address, 0))?;
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
