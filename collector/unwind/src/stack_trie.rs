//! Trie of seen stacks, from a caller's frame outwards: keys are the words by which stacks differ.
//!
//! ```text
//! slot     (pc, sp) ──▶ path            a caller's state
//!          (value, fork) ──▶ path       what follows a word that had this value at that fork
//! path     word, word, word …           words that must be equal, one after the other; then
//!            answer: node, flags        … the stack is this one
//!            fork: number, slot         … the word in this stack slot, or rbp, decides which path follows
//!            chain: record              … the chain of this record must hold; it cannot be written as words
//! word     value << 16 | (slot - sp) / 8          sp: the caller's
//! ```
//!
//! The words of a stack are in the order in which unwinding reads them, and each is listed at its first use: the words
//! before it determine where it lies, and stacks with the same beginning differ first in a word that both have. On the
//! way to an answer all reads of its stack are compared, in order, and each is loaded only after those before it were
//! equal: so an answer proves that the stack is unchanged, and no load can fault.
//!
//! A state that has many stacks is looked up by the hash of all their words first, see [`signatures`].
//!
//! A path has no links inside, so the processor executes many of its loads at the same time. Paths outlive the records of
//! the verified-chain table; all of them are dropped together when the code epoch changes or their memory is used up.

mod insert;
mod signatures;

use super::Captured;
use super::address::{is_same, strip};
use super::budget::Account;
use super::memory::{Array, MemoryBlock, bytes_in_block};
use super::stack::OwnStack;
use super::step::FrameState;
use super::verified_chains::{self, VerifiedChains};
use insert::{Read, Used};
use signatures::{LayoutNumber, SignatureTable};
use tracehound_shared::call_tree::{CallTree, NodeId};
use tracehound_shared::prefetch;
use tracehound_shared::stack_counters::{StackCounters, count};

/// An entry of the table: a key and its path.
#[repr(C, align(32))]
#[derive(Clone, Copy)]
struct PathSlot {
    key: PathKey,
    path: StackPath,
}

/// Key of a state: pc, sp. Key behind a fork: the value, and the fork's number with [`BEHIND`]. Both zero: empty.
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
    /// Index of its first word.
    run: u32,
    /// Number of its words.
    len: u16,
    end: PathEnd,
    /// Flags of the answer.
    flags: u8,
    /// Of an answer the node, of a fork its number, of a chain the index of the record.
    what: u32,
    /// Of an answer the record, 0 if it was dropped; of a fork the stack slot, and above it, of the first one behind a
    /// state, the number of the layout that the state's stacks have.
    next: u32,
}

const _: () = assert!(size_of::<PathSlot>() == 32);

/// How a path ends. Slots are zeroed memory at first.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum PathEnd {
    /// The record of the chain was dropped: the path has no answer.
    Lost = 0,
    Answer = 1,
    Fork = 2,
    Chain = 3,
}

/// The stack slot of a fork that rbp decides.
const RBP: u32 = 1 << OFFSET_BITS;
/// Bits of a fork's stack slot.
const SLOT_BITS: u32 = OFFSET_BITS + 1;
const _: () = assert!(SLOT_BITS + LayoutNumber::BITS <= u32::BITS);
/// A stack behind so many forks is looked up by its signature.
const MANY_FORKS: u32 = 3;
/// Bits of a word's offset: 16, so that a word is unpacked by two instructions and compared by one.
const OFFSET_BITS: u32 = u16::BITS;
/// Number of words compared in one step; runs are padded with their last word.
const STEP: usize = 4;
const VALUE_BITS: u32 = 64 - OFFSET_BITS;
const FIRST_PLACES: usize = 128;
const FIRST_WORDS: usize = 1024;

/// The trie of one thread.
pub struct StackTrie {
    table: Array<PathSlot>,
    /// Mask of a slot's byte offset.
    mask: usize,
    words: Array<u64>,
    used: Used,
    /// Number of reads of the longest stack so far.
    longest: usize,
    /// Recent runs, by their hash: many paths end in the same words.
    shelf: Array<u32>,
    reads: Array<Read>,
    signatures: SignatureTable,
    account: Account,
    counters: &'static StackCounters,
    /// Times that all paths were dropped because their memory was used up.
    pub forgotten: u64,
}

/// Answer for a caller's state: the backtrace, and its record or 0.
pub struct Answer {
    /// The backtrace.
    pub captured: Captured,
    /// Index of its record, 0 if the verified-chain table has dropped it.
    pub record: u32,
}

/// What the first slot of a state's hash says.
pub enum FirstSlot {
    /// The stack is the only one of the state, and unchanged.
    Answer(Answer),
    /// It is another stack than the only one of the state so far.
    Changed,
    /// Ask [`StackTrie::recall_any`].
    Other,
}

#[inline(always)]
unsafe fn load(sp: u64, offset: u64) -> u64 {
    // SAFETY: the slot is readable: the contract of this function. Not volatile, so that load and comparison can be one
    // instruction. The compiler cannot move the load before the comparisons that it depends on: it does not know that the
    // slot is readable.
    unsafe { (sp.wrapping_add(offset << 3) as *const u64).read() }
}

impl StackTrie {
    /// Bytes of a block that a trie takes at first.
    pub const FIRST_BYTES: usize = Self::TABLE_BYTES + bytes_in_block::<u64>(FIRST_WORDS);
    /// Bytes of its first part: the table, which is read before anything is written there.
    pub const TABLE_BYTES: usize = bytes_in_block::<PathSlot>(FIRST_PLACES)
        + bytes_in_block::<u32>(insert::SHELF)
        + bytes_in_block::<Read>(insert::FIRST_READS);

    /// An empty trie; `None` when the kernel has no memory.
    pub fn new(counters: &'static StackCounters, block: &mut MemoryBlock) -> Option<StackTrie> {
        let (table, shelf) = (Array::first(block, FIRST_PLACES)?, Array::first(block, insert::SHELF)?);
        let reads = Array::first(block, insert::FIRST_READS)?;
        Some(StackTrie {
            mask: mask_of(&table),
            table,
            words: Array::first(block, FIRST_WORDS)?,
            used: Used::NOTHING,
            longest: 0,
            shelf,
            reads,
            signatures: SignatureTable::new(),
            account: Account::new(),
            counters,
            forgotten: 0,
        })
    }

    /// Prefetches the first slot of a caller's state.
    #[inline(always)]
    pub fn prefetch_stack(&self, pc: u64, sp: u64) {
        prefetch::fetch(self.table.as_ptr().wrapping_byte_add(hash(PathKey::of(pc, sp)) & self.mask));
    }

    /// The answer for a caller's state, if it is in the first slot of its hash and has a single stack.
    ///
    /// # Safety
    /// The state must be that of the running thread, in a function that has not returned.
    #[inline(always)]
    pub unsafe fn recall(&self, state: FrameState) -> FirstSlot {
        let key = PathKey::of(state.pc, state.sp);
        // SAFETY: the mask keeps the offset inside the table; a slot's path was inserted for its key.
        unsafe {
            let place = self.table.as_ptr().byte_add(hash(key) & self.mask);
            let path = &(*place).path;
            if !(*place).key.is(key) || path.end != PathEnd::Answer {
                return FirstSlot::Other;
            }
            if self.holds(path, state.sp) { FirstSlot::Answer(path.answer()) } else { FirstSlot::Changed }
        }
    }

    /// The answer for a caller's state, if its stack has been seen in that state before. `own` is the thread's stack.
    ///
    /// # Safety
    /// As for [`recall`](Self::recall).
    #[inline(never)]
    pub unsafe fn recall_any(
        &mut self,
        state: FrameState,
        own: &mut OwnStack,
        tree: &CallTree,
        chains: &VerifiedChains,
    ) -> Option<Answer> {
        let mut key = PathKey::of(state.pc, state.sp);
        let mut forks = 0;
        // SAFETY: `find` returns a slot of the table. The words on the way to a path, and the stack slot of a
        // fork, are those of stacks that begin with the words compared so far: so this stack has frames there.
        unsafe {
            let mut path = &(*self.find(key)).path;
            if let Some(layout) = path.layout()
                && let Some(answer) = self.signatures.recall(layout, state, own)
            {
                return Some(answer);
            }
            loop {
                match path.end {
                    PathEnd::Answer => {
                        let answer = self.holds(path, state.sp).then(|| path.answer())?;
                        if forks >= MANY_FORKS {
                            self.remember(state, own, tree, &answer);
                        }
                        return Some(answer);
                    }
                    PathEnd::Fork => {
                        if !self.holds(path, state.sp) {
                            return None;
                        }
                        forks += 1;
                        key = PathKey::behind(path.what, path.value(state));
                        path = &(*self.find(key)).path;
                    }
                    PathEnd::Chain => {
                        // Its record exists: `forget_records` makes such paths `Lost`.
                        let answer = recall_chain(chains, path.what, state)?;
                        count(&self.counters.chains);
                        return Some(answer);
                    }
                    PathEnd::Lost => return None,
                }
            }
        }
    }

    /// Compares the words of a path, innermost first.
    ///
    /// # Safety
    /// The running thread must be in a state that leads to this path.
    #[inline(always)]
    unsafe fn holds(&self, path: &StackPath, sp: u64) -> bool {
        // SAFETY: runs lie in the array, padded to whole steps; a stack slot is readable, because all words before it were
        // equal, so this stack has the frame that holds it (see the module's description).
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

    /// The slot of a key, or the empty one where it would be inserted.
    #[inline(always)]
    fn find(&self, key: PathKey) -> *mut PathSlot {
        // SAFETY: the mask is that of the table, or of a smaller one, and the table is never full.
        unsafe { find(self.table.as_ptr(), self.mask, key) }
    }

    /// Drops all paths.
    pub fn forget(&mut self) {
        self.signatures.forget();
        // SAFETY: the whole table is written; a zeroed slot is an empty one.
        unsafe { self.table.as_ptr().write_bytes(0, self.table.len()) };
        // A jump out of a signal handler may have left the table larger than the mask.
        self.mask = mask_of(&self.table);
        self.used = Used::NOTHING;
    }

    /// Removes all references to records: the verified-chain table has dropped them.
    pub fn forget_records(&mut self) {
        self.signatures.forget_records();
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

    /// How many answers the signature table has given.
    pub fn by_signature(&self) -> u64 {
        self.signatures.answers
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        let signatures = self.signatures.bytes_with(self.signatures.lines());
        self.table.bytes() + self.words.bytes() + self.shelf.bytes() + self.reads.bytes() + signatures
    }

    /// # Safety
    /// The paths must not be used afterwards.
    pub unsafe fn release(&mut self) {
        self.account.close();
        // SAFETY: nothing is used afterwards: the contract of `release`.
        unsafe {
            self.table.release();
            self.words.release();
            self.shelf.release();
            self.reads.release();
            self.signatures.release();
        }
    }
}

/// The slot of a key in a table, or the empty one where it would be inserted.
///
/// # Safety
/// `mask` must be at most [`mask_of`] the table, and one of the slots within it must be empty.
#[inline(always)]
unsafe fn find(table: *mut PathSlot, mask: usize, key: PathKey) -> *mut PathSlot {
    let mut offset = hash(key) & mask;
    loop {
        // SAFETY: the mask keeps the offset inside the table: the contract of `find`.
        unsafe {
            let place = table.byte_add(offset);
            if (*place).key.is(key) || (*place).is_empty() {
                return place;
            }
        }
        offset = (offset + size_of::<PathSlot>()) & mask;
    }
}

/// Mask of a slot's byte offset in a table, whose length is a power of two.
fn mask_of(table: &Array<PathSlot>) -> usize {
    (table.len() - 1) * size_of::<PathSlot>()
}

/// The answer by a chain that cannot be written as words.
///
/// # Safety
/// `record` must be the index of a record of the verified-chain table, made for a state with this pc and sp, and the state
/// as for [`StackTrie::recall`].
#[cold]
unsafe fn recall_chain(chains: &VerifiedChains, record: u32, state: FrameState) -> Option<Answer> {
    // SAFETY: the index is that of a record, by the contract of `recall_chain`. The chain is compared after rbp was: the
    // running thread is then in the state that the chain begins with.
    unsafe {
        let first = chains.record(record);
        if chains.needs_rbp(first) && chains.origin(first).rbp != state.rbp {
            return None;
        }
        verified_chains::verify_chain(first).then(|| Answer { captured: chains.captured(first), record })
    }
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

    /// Key of the path that follows `value` at a fork.
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

    /// The stack slot of a fork, or [`RBP`].
    #[inline(always)]
    fn slot(&self) -> u32 {
        self.next & ((1 << SLOT_BITS) - 1)
    }

    /// The layout of a state's stacks, where its path ends in a fork and they have one.
    #[inline(always)]
    fn layout(&self) -> Option<LayoutNumber> {
        let number = LayoutNumber(self.next >> SLOT_BITS);
        (self.end == PathEnd::Fork && number != LayoutNumber::NONE).then_some(number)
    }

    /// The word that decides a fork.
    ///
    /// # Safety
    /// The path must end in a fork, and the running thread must be in a state that leads to it, the path's words compared.
    #[inline(always)]
    unsafe fn value(&self, state: FrameState) -> u64 {
        let slot = self.slot();
        // SAFETY: stacks with the words compared so far have a frame there: the contract of `value`.
        if slot == RBP { state.rbp } else { strip(unsafe { load(state.sp, u64::from(slot)) }) }
    }
}

#[inline(always)]
fn hash(key: PathKey) -> usize {
    ((key.first ^ key.second.rotate_left(20)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 35) as usize
}
