//! Trie of seen stacks, from a caller's frame outwards: keys are the words by which they differ.
//!
//! ```text
//! place    (pc, sp) ──▶ path            a caller's state
//!          (value, fork) ──▶ path       what follows a word that had this value there
//! path     word, word, word …           words that must be right, one after the other; then
//!            answer: node, flags        … the stack is this one
//!            fork: number, slot         … the word in this slot tells which path follows; or rbp does
//!            chain: record              … the chain of this record must hold, which cannot be written as words
//! word     value << 16 | (slot - sp) / 8          sp: the caller's
//! ```
//!
//! The words of a stack come in the order in which unwinding reads them, and each is read where it is needed first: so
//! those before decide where the next one lies, and stacks with the same beginning differ first in a word that both
//! have. On the way to an answer all reads of its stack are compared, in order, each loaded only after those before it
//! were right: that proves the stack, and that no load can fault.
//!
//! A path has no links inside, so the processor has many of its loads under way at once. Paths outlive the records of
//! the verified-chain table; they end with the code epoch, or when their memory is used up, all together.

mod insert;

use super::Captured;
use super::address::{is_same, strip};
use super::budget::Account;
use super::memory::{Array, MemoryBlock, bytes_in_block};
use super::step::FrameState;
use super::verified_chains::{self, VerifiedChains};
use insert::{Read, Used};
use tracehound_shared::call_tree::NodeId;
use tracehound_shared::prefetch;
use tracehound_shared::stack_counters::{StackCounters, count};

/// What a key stands for.
#[repr(C, align(32))]
#[derive(Clone, Copy)]
struct PathSlot {
    key: PathKey,
    path: StackPath,
}

/// Of a state: pc, sp. Behind a fork: the value, and the fork's number with [`BEHIND`]. Both zero: nothing.
#[repr(C)]
#[derive(Clone, Copy)]
struct PathKey {
    first: u64,
    second: u64,
}

/// Marks keys behind forks; no sp has this bit.
const BEHIND: u64 = 1 << 63;

#[repr(C)]
#[derive(Clone, Copy)]
struct StackPath {
    /// Where its words begin.
    run: u32,
    /// How many there are.
    len: u16,
    end: PathEnd,
    /// Of an answer.
    flags: u8,
    /// Of an answer the node, of a fork its number, of a chain the record's.
    what: u32,
    /// Of an answer the record, 0 if it is forgotten; of a fork the slot.
    next: u32,
}

const _: () = assert!(size_of::<PathSlot>() == 32);

/// How a path ends. Places are zeroed memory at first.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum PathEnd {
    /// It leads nowhere any more.
    Lost = 0,
    Answer = 1,
    Fork = 2,
    Chain = 3,
}

/// The slot of a fork that rbp decides.
const RBP: u32 = u32::MAX;
/// A word is taken apart by two instructions, and compared by one.
const OFFSET_BITS: u32 = u16::BITS;
/// Words are compared so many at a time; runs are padded with their last word.
const STEP: usize = 4;
const VALUE_BITS: u32 = 64 - OFFSET_BITS;
const FIRST_PLACES: usize = 128;
const FIRST_WORDS: usize = 1024;

/// The paths of one thread.
pub struct StackTrie {
    table: Array<PathSlot>,
    /// Of the byte offset of a place.
    mask: usize,
    words: Array<u64>,
    used: Used,
    /// Reads of the longest stack so far.
    longest: usize,
    /// Runs met lately, by their hash: many paths end in the same words.
    shelf: Array<u32>,
    reads: Array<Read>,
    account: Account,
    counters: &'static StackCounters,
    /// Times that all were dropped because memory for them was used up.
    pub forgotten: u64,
}

/// A caller's answer: the backtrace, and its record or 0.
pub struct Answer {
    /// The backtrace.
    pub captured: Captured,
    /// Index of its record, 0 if the verified-chain table has forgotten it.
    pub record: u32,
}

#[inline(always)]
unsafe fn load(sp: u64, offset: u64) -> u64 {
    // SAFETY: by the caller. Not volatile, so that load and comparison can be one instruction. The compiler does not
    // know that the slot is readable, and cannot load it before the comparisons that this load depends on.
    unsafe { (sp.wrapping_add(offset << 3) as *const u64).read() }
}

impl StackTrie {
    /// Bytes of a block that paths begin with.
    pub const FIRST_BYTES: usize = Self::TABLE_BYTES + bytes_in_block::<u64>(FIRST_WORDS);
    /// The first part of them: what is read before anything is written there.
    pub const TABLE_BYTES: usize = bytes_in_block::<PathSlot>(FIRST_PLACES)
        + bytes_in_block::<u32>(insert::SHELF)
        + bytes_in_block::<Read>(insert::FIRST_READS);

    /// No paths; `None` when the kernel has no memory.
    pub fn new(counters: &'static StackCounters, block: &mut MemoryBlock) -> Option<StackTrie> {
        let (table, shelf) = (Array::first(block, FIRST_PLACES)?, Array::first(block, insert::SHELF)?);
        let reads = Array::first(block, insert::FIRST_READS)?;
        Some(StackTrie {
            table,
            mask: (FIRST_PLACES - 1) * size_of::<PathSlot>(),
            words: Array::first(block, FIRST_WORDS)?,
            used: Used::NOTHING,
            longest: 0,
            shelf,
            reads,
            account: Account::new(),
            counters,
            forgotten: 0,
        })
    }

    /// Fetches the first place of a caller's state.
    #[inline(always)]
    pub fn prefetch_stack(&self, pc: u64, sp: u64) {
        prefetch::fetch(self.table.as_ptr().wrapping_byte_add(hash(PathKey::of(pc, sp)) & self.mask));
    }

    /// The answer for a caller's state, if that is the one in its first place and has a single stack, which still
    /// stands. Otherwise `further` has it, if it is known.
    ///
    /// # Safety
    /// The state must be that of the running thread, in a function that has not returned.
    #[inline(always)]
    pub unsafe fn recall(&self, state: FrameState, further: impl FnOnce() -> Option<Answer>) -> Option<Answer> {
        let key = PathKey::of(state.pc, state.sp);
        // SAFETY: the mask keeps the offset inside the table; a place's path was laid for its key.
        unsafe {
            let place = self.table.as_ptr().byte_add(hash(key) & self.mask);
            let path = &(*place).path;
            if !(*place).key.is(key) || path.end != PathEnd::Answer {
                return further();
            }
            self.holds(path, state.sp).then(|| path.answer())
        }
    }

    /// The answer for a caller's state, if its stack has been seen in that state before.
    ///
    /// # Safety
    /// As for [`recall`](Self::recall).
    #[inline(never)]
    pub unsafe fn recall_any(&self, pc: u64, sp: u64, rbp: u64, chains: &VerifiedChains) -> Option<Answer> {
        let state = FrameState { pc, sp, rbp };
        let mut key = PathKey::of(state.pc, state.sp);
        loop {
            // SAFETY: `find` gives a place of the table. The words on the way to a path, and where the fork's slot
            // lies, are those of stacks that begin with what has been compared so far: so this stack has frames there.
            unsafe {
                let path = &(*self.find(key)).path;
                match path.end {
                    PathEnd::Answer => return self.holds(path, state.sp).then(|| path.answer()),
                    PathEnd::Fork => {
                        if !self.holds(path, state.sp) {
                            return None;
                        }
                        let value =
                            if path.next == RBP { state.rbp } else { strip(load(state.sp, u64::from(path.next))) };
                        key = PathKey::behind(path.what, value);
                    }
                    PathEnd::Chain => {
                        let answer = recall_chain(chains, path.what, state)?;
                        count(&self.counters.chains);
                        return Some(answer);
                    }
                    PathEnd::Lost => return None,
                }
            }
        }
    }

    /// Compares the words of a path, inside out.
    ///
    /// # Safety
    /// The running thread must be in a state that leads to this path.
    #[inline(always)]
    unsafe fn holds(&self, path: &StackPath, sp: u64) -> bool {
        // SAFETY: runs lie in the array, padded to whole steps; slots are readable by the induction that the module's
        // description tells.
        unsafe {
            let holds = |word: u64| is_same(load(sp, u64::from(word as u16)), word >> OFFSET_BITS);
            let mut at = self.words.as_ptr().add(path.run as usize).cast_const();
            let mut left = i32::from(path.len);
            while left > 0 {
                if !(holds(at.read()) && holds(at.add(1).read()) && holds(at.add(2).read()) && holds(at.add(3).read()))
                {
                    return false;
                }
                at = at.add(STEP);
                left -= STEP as i32;
            }
            true
        }
    }

    /// The place of a key, or the empty one where it belongs.
    #[inline(always)]
    fn find(&self, key: PathKey) -> *mut PathSlot {
        let mut offset = hash(key) & self.mask;
        loop {
            // SAFETY: the mask keeps the offset inside the table, which is never full.
            unsafe {
                let place = self.table.as_ptr().byte_add(offset);
                if (*place).key.is(key) || (*place).is_empty() {
                    return place;
                }
            }
            offset = (offset + size_of::<PathSlot>()) & self.mask;
        }
    }

    /// Drops all paths.
    pub fn forget(&mut self) {
        // SAFETY: zeroed over its whole length; zero means that there is nothing.
        unsafe { self.table.as_ptr().write_bytes(0, self.table.len()) };
        self.used = Used::NOTHING;
    }

    /// The verified-chain table's records are gone: no path may name one any more.
    pub fn forget_records(&mut self) {
        for index in 0..self.table.len() {
            // SAFETY: `index` is below the length.
            let path = unsafe { &mut (*self.table.as_ptr().add(index)).path };
            match path.end {
                PathEnd::Answer => path.next = 0,
                PathEnd::Chain => path.end = PathEnd::Lost,
                PathEnd::Fork | PathEnd::Lost => {}
            }
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.table.bytes() + self.words.bytes() + self.shelf.bytes() + self.reads.bytes()
    }

    /// # Safety
    /// The paths must not be used afterwards.
    pub unsafe fn release(&mut self) {
        self.account.close();
        // SAFETY: by the contract above.
        unsafe {
            self.table.release();
            self.words.release();
            self.shelf.release();
            self.reads.release();
        }
    }
}

/// The answer of a chain that is not written as words.
///
/// # Safety
/// `record` must be one of the verified-chain table, made for a state with this pc and sp, and the state as for
/// [`StackTrie::recall`].
#[cold]
unsafe fn recall_chain(chains: &VerifiedChains, record: u32, state: FrameState) -> Option<Answer> {
    let first = chains.record(record);
    if chains.needs_rbp(first) && chains.origin(first).rbp != state.rbp {
        return None;
    }
    // SAFETY: the running thread is in the state that the chain begins with.
    unsafe { verified_chains::verify_chain(first) }.then(|| Answer { captured: chains.captured(first), record })
}

impl PathSlot {
    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.key.second == 0
    }
}

impl PathKey {
    #[inline(always)]
    fn of(pc: u64, sp: u64) -> PathKey {
        PathKey { first: pc, second: sp }
    }

    /// Of what follows `value` at a fork.
    #[inline(always)]
    fn behind(fork: u32, value: u64) -> PathKey {
        PathKey { first: value, second: u64::from(fork) | BEHIND }
    }

    #[inline(always)]
    fn is(self, other: PathKey) -> bool {
        (self.first ^ other.first) | (self.second ^ other.second) == 0
    }
}

impl StackPath {
    #[inline(always)]
    fn answer(&self) -> Answer {
        Answer { captured: Captured { node: NodeId(self.what), flags: self.flags }, record: self.next }
    }
}

#[inline(always)]
fn hash(key: PathKey) -> usize {
    ((key.first ^ key.second.rotate_left(20)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 35) as usize
}
