//! Signature table: answers for states that have many stacks, found by one hash of all words of a stack.
//!
//! ```text
//! layout      offset, offset, …      where stacks of a state have the words that unwinding reads
//! signature   hash of these words  ──▶ line of four entries, or the one beside it: tag ──▶ node, flags, record
//! ```
//!
//! Where stacks differ in many words, the trie looks up one fork after another, and each look-up waits for the one before:
//! with tens of thousands of stacks, for memory that is in no cache. Here an event waits once, and the call of `malloc` and
//! the call of `free` in one function, which have the same words, find their entries in one line.
//!
//! The words of a stack say where the next one lies. So if the words at the offsets of a layout are those of a stack that
//! was unwound with this layout, unwinding would read the same ones again. That they are the same is judged by 64 bits of a
//! hash with keys that are other ones in every process: two different stacks have the same bits with a probability of about
//! 2⁻⁶⁴ (`docs/decisions/0016-signatures.md`). The words are loaded before anything is known about them, hence only on the
//! thread's own stack, all of which is readable.
//!
//! The table is a cache of the trie: what is not found here is looked up there, and remembered.

use crate::address::strip;
use crate::memory::{Array, bytes_of};
use crate::stack::OwnStack;
use crate::step::FrameState;
use crate::{Captured, JAVA};
use tracehound_shared::call_tree::NodeId;
use tracehound_shared::sys::is_readable;

use super::{Answer, load};

/// Number of a layout; 0: none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LayoutNumber(pub u32);

impl LayoutNumber {
    /// No layout.
    pub const NONE: LayoutNumber = LayoutNumber(0);
    /// Bits of a number.
    pub const BITS: u32 = 12;
}

const MAX_LAYOUTS: usize = (1 << LayoutNumber::BITS) - 1;
/// Offsets of all layouts together.
const MAX_OFFSETS: usize = 1 << 16;
const FIRST_LAYOUTS: usize = 256;
const FIRST_OFFSETS: usize = 2048;
/// Offsets are padded to whole steps with the last one.
const STEP: usize = 4;
const FIRST_LINES: usize = 64;
const MAX_LINES: usize = 1 << 16;
const IN_LINE: usize = 4;
/// Of the stacks that do not fit a layout, or find no room, one of so many is looked at.
const SELDOM: u32 = 16;
const FLAG_BITS: u32 = u8::BITS;

/// Entries of stacks with equal words and different callers. The size of a cache line.
#[repr(C, align(64))]
struct SignatureLine([Signature; IN_LINE]);

/// Zeroed: none.
#[repr(C)]
#[derive(Clone, Copy)]
struct Signature {
    tag: u64,
    node: u32,
    /// The record, above the flags.
    rest: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct StackLayout {
    /// Index of its first offset.
    first: u32,
    /// Offsets, in whole steps.
    len: u32,
    /// Bytes from sp to behind the outermost word.
    reach: u64,
    /// Whether unwinding reads the caller's rbp.
    reads_rbp: bool,
}

/// See the module's description.
pub struct SignatureTable {
    lines: Array<SignatureLine>,
    mask: usize,
    /// Entries in use.
    entries: usize,
    layouts: Array<StackLayout>,
    layout_count: usize,
    offsets: Array<u16>,
    offset_count: usize,
    /// Offsets of the layout that is being listed, behind those in use.
    listed: usize,
    lists_rbp: bool,
    keys: [u64; 4],
    /// Stacks that did not fit.
    misfits: u32,
    /// So many stacks are not looked at.
    pause: u32,
    /// Answers given.
    pub answers: u64,
}

impl SignatureTable {
    /// An empty table, which takes memory when it is used first.
    pub fn new() -> SignatureTable {
        SignatureTable {
            lines: Array::EMPTY,
            mask: 0,
            entries: 0,
            layouts: Array::EMPTY,
            layout_count: 0,
            offsets: Array::EMPTY,
            offset_count: 0,
            listed: 0,
            lists_rbp: false,
            keys: keys(),
            misfits: 0,
            pause: 0,
            answers: 0,
        }
    }

    /// The answer for a caller's state by the words at a layout's offsets, if it is here.
    ///
    /// # Safety
    /// The state must be that of the running thread, in a function that has not returned, and `own` that thread's stack;
    /// the layout one of this table.
    #[inline(always)]
    pub unsafe fn recall(&mut self, layout: LayoutNumber, state: FrameState, own: &mut OwnStack) -> Option<Answer> {
        // SAFETY: a layout of this table, by the contract of `recall`; the mask keeps the index inside the lines, which are
        // there before a state gets a layout, and are never taken away.
        unsafe {
            let layout = &*self.layouts.as_ptr().add(layout.0 as usize - 1);
            if !own.holds(state.sp, layout.reach) {
                return None;
            }
            let hash = self.hash(layout, state);
            let tag = self.tag(hash, state);
            let index = hash as usize & self.mask;
            let answer = (*self.line(index)).find(tag).or_else(|| (*self.line(index ^ 1)).find(tag))?;
            self.answers += 1;
            Some(answer)
        }
    }

    /// # Safety
    /// The index must be at most the mask, and there must be lines.
    #[inline(always)]
    unsafe fn line(&self, index: usize) -> *mut SignatureLine {
        // SAFETY: the mask is less than the number of lines, which is even: the contract of `line`.
        unsafe { self.lines.as_ptr().add(index) }
    }

    /// # Safety
    /// All words of the layout must be readable from the state's sp on.
    #[inline(always)]
    unsafe fn hash(&self, layout: &StackLayout, state: FrameState) -> u64 {
        let [first, second, third, fourth] = self.keys;
        let (mut one, mut other) = (first, second);
        if layout.reads_rbp {
            one ^= state.rbp.wrapping_mul(MIX);
        }
        // SAFETY: the offsets of a layout lie in the array, in whole steps; their words are readable: the contract of `hash`.
        unsafe {
            let mut at = self.offsets.as_ptr().add(layout.first as usize).cast_const();
            let end = at.add(layout.len as usize);
            while at != end {
                let word = |index: usize| strip(load(state.sp, u64::from(at.add(index).read())));
                one = fold(word(0) ^ third, word(1) ^ one);
                other = fold(word(2) ^ fourth, word(3) ^ other);
                at = at.add(STEP);
            }
        }
        fold(one ^ u64::from(layout.len), other ^ u64::from(layout.first) ^ third)
    }

    #[inline(always)]
    fn tag(&self, hash: u64, state: FrameState) -> u64 {
        // Not zero, which is no entry.
        fold(hash ^ state.pc ^ self.keys[2], state.sp ^ hash.rotate_left(32) ^ self.keys[3]) | 1
    }

    /// Whether a stack that was not found is to be looked at.
    pub fn is_interested(&mut self) -> bool {
        let paused = self.pause > 0;
        self.pause = self.pause.saturating_sub(1);
        !paused
    }

    /// There was no room: the next stacks are not looked at.
    pub fn rest(&mut self) {
        self.pause = SELDOM - 1;
    }

    /// Begins to list the offsets of a stack, of at most so many words. False: there is no room.
    #[must_use]
    pub fn begin(&mut self, words: usize) -> bool {
        self.listed = 0;
        self.lists_rbp = false;
        let wanted = self.offset_count + words.next_multiple_of(STEP) + STEP;
        if wanted > MAX_OFFSETS {
            return false;
        }
        let doubled = wanted.next_power_of_two().max(FIRST_OFFSETS);
        // SAFETY: no pointer into the array is held.
        self.offsets.len() >= wanted || unsafe { self.offsets.grow(doubled) }.is_some()
    }

    /// Adds a stack slot that unwinding reads next.
    pub fn list(&mut self, offset: u16) {
        if self.offset_count + self.listed < self.offsets.len() {
            // SAFETY: below the length.
            unsafe { self.offsets.as_ptr().add(self.offset_count + self.listed).write(offset) };
            self.listed += 1;
        }
    }

    /// Unwinding reads the caller's rbp.
    pub fn list_rbp(&mut self) {
        self.lists_rbp = true;
    }

    /// The layout of what was listed; `None` where there is no room for more.
    pub fn listed_layout(&mut self) -> Option<LayoutNumber> {
        let last = self.listed.checked_sub(1)?;
        // SAFETY: so many offsets were listed.
        let last = unsafe { *self.offsets.as_ptr().add(self.offset_count + last) };
        while !self.listed.is_multiple_of(STEP) {
            self.list(last);
        }
        // SAFETY: offsets below the count were written, and those listed behind them.
        let offsets = unsafe { self.offsets.elements(self.offset_count + self.listed) };
        let (known, listed) = offsets.split_at_checked(self.offset_count)?;
        // SAFETY: layouts below the count were written.
        let layouts = unsafe { self.layouts.elements(self.layout_count) };
        let is_same = |layout: &StackLayout| {
            layout.reads_rbp == self.lists_rbp && known.get(layout.range()).is_some_and(|offsets| offsets == listed)
        };
        if let Some(index) = layouts.iter().position(is_same) {
            return Some(LayoutNumber(index as u32 + 1));
        }
        let furthest = listed.iter().copied().max().unwrap_or_default();
        let layout = StackLayout {
            first: self.offset_count as u32,
            len: listed.len() as u32,
            reach: (u64::from(furthest) + 1) * size_of::<u64>() as u64,
            reads_rbp: self.lists_rbp,
        };
        self.add_layout(layout)
    }

    fn add_layout(&mut self, layout: StackLayout) -> Option<LayoutNumber> {
        if self.layout_count == MAX_LAYOUTS {
            return None;
        }
        if self.layout_count == self.layouts.len() {
            // SAFETY: no pointer into the array is held.
            unsafe { self.layouts.grow((self.layouts.len() * 2).max(FIRST_LAYOUTS))? };
        }
        // SAFETY: below the length.
        unsafe { self.layouts.as_ptr().add(self.layout_count).write(layout) };
        self.offset_count += layout.len as usize;
        self.layout_count += 1;
        Some(LayoutNumber(self.layout_count as u32))
    }

    /// A stack has another layout than its state's. Whether the state is to have this one from now on.
    pub fn misfit(&mut self) -> bool {
        self.misfits = self.misfits.wrapping_add(1);
        self.rest();
        self.misfits.is_multiple_of(SELDOM)
    }

    /// Lines that the table wants for one more entry.
    pub fn wanted_lines(&self) -> usize {
        let lines = self.lines.len();
        if lines == 0 {
            FIRST_LINES
        } else if self.entries * 8 < lines * IN_LINE * 3 {
            // Fuller, some lines overflow.
            lines
        } else {
            (lines * 4).min(MAX_LINES)
        }
    }

    /// Lines that there are.
    pub fn lines(&self) -> usize {
        self.lines.len()
    }

    /// Replaces the lines by so many empty ones, a power of two; `None`, with nothing changed, where the kernel refuses
    /// the memory.
    pub fn enlarge(&mut self, lines: usize) -> Option<()> {
        let larger = Array::new(lines)?;
        self.entries = 0;
        // The mask stays that of the smaller table for a moment: a jump out of a signal handler may end this after any store.
        let mut old = self.lines.replace(larger);
        self.mask = self.lines.len() - 1;
        // SAFETY: the old lines, to which no pointer is left.
        unsafe { old.release() };
        Some(())
    }

    /// Enters an answer for a state whose stack has this layout. There must be lines.
    ///
    /// # Safety
    /// As for [`recall`](Self::recall).
    pub unsafe fn remember(&mut self, layout: LayoutNumber, state: FrameState, own: &mut OwnStack, answer: &Answer) {
        // What the code of Java's frames says may change: such answers are asked for with their record.
        if answer.captured.flags & JAVA != 0 || self.lines.is_empty() {
            return;
        }
        // SAFETY: as in `recall`.
        unsafe {
            let layout = &*self.layouts.as_ptr().add(layout.0 as usize - 1);
            if !own.holds(state.sp, layout.reach) {
                self.rest();
                return;
            }
            let hash = self.hash(layout, state);
            let entry = Signature::of(self.tag(hash, state), answer);
            let index = hash as usize & self.mask;
            let free = (*self.line(index)).free().or_else(|| (*self.line(index ^ 1)).free());
            if let Some(free) = free {
                self.entries += 1;
                *free = entry;
            } else {
                // Stacks that come in turn and find no room together are not worth a store for each.
                self.rest();
                (*self.line(index)).0[(entry.tag >> 62) as usize] = entry;
            }
        }
    }

    /// Drops all entries and layouts.
    pub fn forget(&mut self) {
        if self.layout_count != 0 {
            // SAFETY: the whole array is written; zeroed entries are none.
            unsafe { self.lines.as_ptr().write_bytes(0, self.lines.len()) };
        }
        // A jump out of a signal handler may have left the table larger than the mask.
        self.mask = self.lines.len().saturating_sub(1);
        (self.entries, self.layout_count, self.offset_count, self.pause) = (0, 0, 0, 0);
    }

    /// Removes all references to records.
    pub fn forget_records(&mut self) {
        for index in 0..self.lines.len() {
            // SAFETY: `index` is below the length.
            for entry in unsafe { &mut (*self.lines.as_ptr().add(index)).0 } {
                entry.rest &= (1 << FLAG_BITS) - 1;
            }
        }
    }

    /// Bytes held, with so many lines.
    pub fn bytes_with(&self, lines: usize) -> usize {
        let lines = if lines == 0 { 0 } else { bytes_of::<SignatureLine>(lines).unwrap_or(usize::MAX) };
        lines + self.layouts.bytes() + self.offsets.bytes()
    }

    /// # Safety
    /// The table must not be used afterwards.
    pub unsafe fn release(&mut self) {
        // SAFETY: nothing is used afterwards: the contract of `release`.
        unsafe {
            self.lines.release();
            self.layouts.release();
            self.offsets.release();
        }
    }
}

impl SignatureLine {
    #[inline(always)]
    fn find(&self, tag: u64) -> Option<Answer> {
        self.0.iter().find(|entry| entry.tag == tag).map(Signature::answer)
    }

    fn free(&mut self) -> Option<&mut Signature> {
        self.0.iter_mut().find(|entry| entry.tag == 0)
    }
}

impl Signature {
    fn of(tag: u64, answer: &Answer) -> Signature {
        let Answer { captured, record } = answer;
        Signature { tag, node: captured.node.0, rest: record << FLAG_BITS | u32::from(captured.flags) }
    }

    #[inline(always)]
    fn answer(&self) -> Answer {
        let captured = Captured { node: NodeId(self.node), flags: self.rest as u8 };
        Answer { captured, record: self.rest >> FLAG_BITS }
    }
}

impl StackLayout {
    fn range(&self) -> core::ops::Range<usize> {
        self.first as usize..(self.first + self.len) as usize
    }
}

const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

/// Both halves of the product.
#[inline(always)]
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

/// Keys of this process, from the kernel's random bytes for it.
fn keys() -> [u64; 4] {
    // SAFETY: getauxval reads the process's own auxiliary vector.
    let random = unsafe { libc::getauxval(libc::AT_RANDOM) } as *const [u64; 2];
    // A program may have given its first stack, where they lie, back.
    let is_there = [0, size_of::<[u64; 2]>() as u64 - 1].iter().all(|at| is_readable(random as u64 + at));
    // SAFETY: the kernel has put 16 bytes there, which can be read.
    let [mut one, other] = if is_there { unsafe { random.read_unaligned() } } else { [MIX; 2] };
    [(); 4].map(|()| {
        one = fold(one ^ MIX, other.wrapping_add(one)).wrapping_add(MIX);
        one
    })
}
