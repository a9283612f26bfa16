//! Insertion into the trie of seen stacks: the chain of a record in the verified-chain table becomes a path that
//! is found by its caller's state.

use super::{
    Answer, LayoutNumber, OFFSET_BITS, PathEnd, PathKey, PathSlot, RBP, SLOT_BITS, STEP, StackPath, StackTrie,
    VALUE_BITS, find, mask_of,
};
use crate::budget::Account;
use crate::memory::{Array, bytes_of};
use crate::rule::RuleKind;
use crate::stack::OwnStack;
use crate::step::FrameState;
use crate::verified_chains::{ChainRecord, StackCheck, VerifiedChains};
use tracehound_shared::call_tree::CallTree;
use tracehound_shared::sys;

/// One read of unwinding: a stack slot, or the caller's rbp, and its value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Read {
    value: u64,
    /// `(slot - sp) / 8`, or [`RBP`].
    offset: u32,
}

/// Used elements of the arrays.
pub struct Used {
    places: usize,
    forks: u32,
    words: usize,
}

impl Used {
    /// Nothing is used. Word 0 is no beginning of a run.
    pub const NOTHING: Used = Used { places: 0, forks: 0, words: STEP };
}

pub const FIRST_READS: usize = 64;
/// Number of recent runs that a new run is compared with, to share their words.
pub const SHELF: usize = 1024;
/// A path's number of words has 16 bits.
const MAX_READS: usize = 1 << 15;
const MAX_WORDS: usize = 1 << 19;
const MAX_PLACES: usize = 1 << 19;
/// Slots that one stack may need: one for its state, or two behind a fork; and one behind rbp.
const NEW_PLACES: usize = 3;
/// Slots of the second table, at least.
const SECOND_PLACES: usize = 1024;

/// No memory for more, or the budget refuses more.
struct Full;

impl StackTrie {
    /// Makes the stack of `record` the answer for `state`, its innermost state.
    ///
    /// # Safety
    /// It must be a record of `chains`.
    pub unsafe fn insert(
        &mut self,
        chains: &VerifiedChains,
        record: *mut ChainRecord,
        state: FrameState,
        tree: &CallTree,
    ) {
        // SAFETY: a record of `chains`: the contract of `insert`.
        let count = unsafe { self.list_reads(chains, record, state) };
        for _ in 0..2 {
            // SAFETY: a record of `chains`, which is not changed here: the contract of `insert`.
            let end = unsafe { self.end_of(chains, record, count.is_some()) };
            match self.insert_reads(state, count.unwrap_or(0), end, tree) {
                Ok(()) => return,
                Err(Full) => {
                    self.forgotten += 1;
                    self.forget();
                }
            }
        }
    }

    /// The path without words to the answer of `record`.
    ///
    /// # Safety
    /// It must be a record of `chains`.
    unsafe fn end_of(&self, chains: &VerifiedChains, record: *mut ChainRecord, listed: bool) -> StackPath {
        // SAFETY: a record of `chains`: the contract of `end_of`.
        let (captured, index) = unsafe { (chains.captured(record), chains.index(record)) };
        if listed {
            let (what, flags) = (captured.node.0, captured.flags);
            StackPath { run: 0, len: 0, end: PathEnd::Answer, flags, what, next: index }
        } else {
            StackPath { run: 0, len: 0, end: PathEnd::Chain, flags: 0, what: index, next: 0 }
        }
    }

    /// Lists the reads of unwinding from `state` along the chain of `record`, in order. rbp is read only when a frame
    /// outside computes its CFA from it: otherwise stacks would differ by a word that they do not depend on.
    /// `None`: too many reads, or a slot too far away, or a value of more than 48 bits.
    ///
    /// # Safety
    /// It must be a record of `chains`.
    unsafe fn list_reads(
        &mut self,
        chains: &VerifiedChains,
        record: *mut ChainRecord,
        state: FrameState,
    ) -> Option<usize> {
        let mut count = 0;
        let mut saved_rbp = Some(Read { value: state.rbp, offset: RBP });
        let mut at = record;
        while at != chains.root() {
            // SAFETY: `record` is one of `chains`, by the contract of `list_reads`, and `outer` leads to others.
            let (origin, needs_rbp) = unsafe { (*chains.origin(at), chains.needs_rbp(at)) };
            let kind = origin.rule.kind();
            if needs_rbp
                && kind != RuleKind::Sp
                && let Some(read) = saved_rbp.take()
            {
                self.push(&mut count, read)?;
            }
            let inner = at;
            let mut parts = 0;
            // SAFETY: `at` is a record of `chains`: its origin was read above.
            let outer = unsafe { chains.outer_frame(at, |_| parts += 1) };
            if outer == chains.root() {
                break;
            }
            let saves_rbp = match kind {
                RuleKind::Drap | RuleKind::Signal => true,
                _ => origin.rule.m() != 0,
            };
            at = inner;
            for part in 0..parts {
                // SAFETY: `outer_frame` has passed through these very records, and has ended at `outer`.
                let (check, outer_needs) = unsafe { (chains.check(at), chains.needs_rbp(outer)) };
                let read = read_of(check, state.sp)?;
                // The last of several parts, where rbp matters outside, is the slot in which rbp was saved.
                if part + 1 == parts && saves_rbp && outer_needs {
                    saved_rbp = Some(read);
                } else {
                    self.push(&mut count, read)?;
                }
                // SAFETY: its check was read above.
                at = unsafe { chains.outer(at) };
            }
        }
        Some(count)
    }

    fn push(&mut self, count: &mut usize, read: Read) -> Option<()> {
        if *count == MAX_READS {
            return None;
        }
        if *count == self.reads.len() {
            let _undisturbed = sys::SignalsBlocked::new();
            // SAFETY: no pointer into the array is held across a push.
            unsafe { self.reads.grow(self.reads.len() * 2)? };
        }
        // SAFETY: the index is below the length.
        unsafe { self.reads.as_ptr().add(*count).write(read) };
        *count += 1;
        Some(())
    }

    fn read(&self, index: usize) -> Read {
        // SAFETY: only indices below the number of reads listed are asked for.
        unsafe { *self.reads.as_ptr().add(index) }
    }

    /// Inserts a path of the first `count` reads, which ends in `end`.
    fn insert_reads(&mut self, state: FrameState, count: usize, end: StackPath, tree: &CallTree) -> Result<(), Full> {
        self.make_room(count, tree)?;
        let top = PathKey::of(state.pc, state.sp);
        if end.end == PathEnd::Chain {
            self.put(top, end);
        } else if !self.graft(top, count, end) {
            // Stacks with the same beginning read the same word next, by all rules. If one does not, it replaces the
            // other.
            let fresh = self.path_from(0, count, end);
            self.put(top, fresh);
        }
        Ok(())
    }

    /// Enters an answer that was found behind many forks into the signature table.
    ///
    /// # Safety
    /// The running thread must be in this state, and the answer the one that the paths lead to.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn remember(&mut self, state: FrameState, own: &mut OwnStack, tree: &CallTree, answer: &Answer) {
        if !self.signatures.is_interested() {
            return;
        }
        // Before any state has a layout: whoever has one looks into the lines.
        self.make_lines(tree);
        if self.signatures.lines() == 0 || !self.signatures.begin(self.longest) {
            return;
        }
        let top = PathKey::of(state.pc, state.sp);
        // SAFETY: the paths lead to the answer: the contract of `remember`.
        let Some(layout) = (unsafe { self.list_layout(top, state) }) else { return };
        // SAFETY: `find` returns a slot of the table.
        let first = unsafe { &mut (*self.find(top)).path };
        match first.layout() {
            Some(other) if other != layout => {
                if self.signatures.misfit() {
                    first.set_layout(layout);
                }
                return;
            }
            Some(_) => {}
            None => first.set_layout(layout),
        }
        // SAFETY: the layout is one of the table's, and the thread is in this state: the contract of `remember`.
        unsafe { self.signatures.remember(layout, state, own, answer) };
    }

    /// Enters a new answer into the signature table, if that has others of its state.
    ///
    /// # Safety
    /// As for [`remember`](Self::remember).
    pub unsafe fn learned(&mut self, state: FrameState, own: &mut OwnStack, tree: &CallTree, answer: &Answer) {
        let is_wanted = self.get(PathKey::of(state.pc, state.sp)).is_some_and(|path| path.layout().is_some());
        if is_wanted {
            // SAFETY: the contract of `learned`.
            unsafe { self.remember(state, own, tree, answer) };
        }
    }

    /// The offsets of all words on the way from `top` to the answer.
    ///
    /// # Safety
    /// As for [`remember`](Self::remember).
    unsafe fn list_layout(&mut self, top: PathKey, state: FrameState) -> Option<LayoutNumber> {
        let mut path = self.get(top)?;
        loop {
            for index in 0..usize::from(path.len) {
                let word = self.word(path.run as usize + index);
                self.signatures.list(word as u16);
            }
            match path.end {
                PathEnd::Fork if path.slot() == RBP => self.signatures.list_rbp(),
                PathEnd::Fork => self.signatures.list(path.slot() as u16),
                PathEnd::Answer => return self.signatures.listed_layout(),
                PathEnd::Chain | PathEnd::Lost => return None,
            }
            // SAFETY: the paths lead to the answer for this state: the contract of `remember`.
            path = self.get(PathKey::behind(path.what, unsafe { path.value(state) }))?;
        }
    }

    /// Enlarges the signature table, if it should be larger and the budget allows it.
    fn make_lines(&mut self, tree: &CallTree) {
        let (lines, wanted) = (self.signatures.lines(), self.signatures.wanted_lines());
        if lines == wanted {
            return;
        }
        let _undisturbed = sys::SignalsBlocked::new();
        let more = self.signatures.bytes_with(wanted) - self.signatures.bytes_with(lines);
        let is_granted = self.account.resize(self.bytes() + more, Account::PATHS, tree).is_some();
        if !is_granted || self.signatures.enlarge(wanted).is_none() {
            // Not asked for again at every event.
            self.signatures.rest();
        }
        self.account.settle(self.bytes());
    }

    /// Follows the reads from `key` to the first difference from the known paths, and inserts the rest. False, with
    /// nothing changed, if they differ at a position where two stacks cannot differ.
    fn graft(&mut self, mut key: PathKey, count: usize, end: StackPath) -> bool {
        let mut next = 0;
        loop {
            let known = self.get(key).filter(|path| !matches!(path.end, PathEnd::Lost | PathEnd::Chain));
            let Some(path) = known else {
                let fresh = self.path_from(next, count, end);
                self.put(key, fresh);
                return true;
            };
            for index in 0..usize::from(path.len) {
                let word = self.word(path.run as usize + index);
                if next == count {
                    return false;
                }
                let read = self.read(next);
                if read.offset != u32::from(word as u16) {
                    return false;
                }
                next += 1;
                if read.value != word >> OFFSET_BITS {
                    let fork = self.split(key, path, index, word);
                    let fresh = self.path_from(next, count, end);
                    self.put(PathKey::behind(fork, read.value), fresh);
                    return true;
                }
            }
            if path.end == PathEnd::Answer {
                if next == count {
                    // The path is known, but its record may have been dropped.
                    self.put(key, StackPath { run: path.run, len: path.len, ..end });
                }
                return next == count;
            }
            if next == count || self.read(next).offset != path.slot() {
                return false;
            }
            key = PathKey::behind(path.what, self.read(next).value);
            next += 1;
        }
    }

    /// Splits the path of `key` at the word with this index, makes a fork of that word, and returns the fork's number.
    fn split(&mut self, key: PathKey, path: StackPath, index: usize, word: u64) -> u32 {
        let run = path.run as usize;
        let inner = self.run_of_words(run, index);
        let outer = self.run_of_words(run + index + 1, usize::from(path.len) - index - 1);
        let rest = StackPath { run: outer, len: path.len - index as u16 - 1, ..path };
        let mut fork = self.new_fork(inner, index, u32::from(word as u16));
        // The layout is that of the state, whose first fork this one may be now.
        fork.set_layout(path.layout().unwrap_or(LayoutNumber::NONE));
        self.put(PathKey::behind(fork.what, word >> OFFSET_BITS), rest);
        self.put(key, fork);
        fork.what
    }

    fn new_fork(&mut self, run: u32, len: usize, slot: u32) -> StackPath {
        self.used.forks += 1;
        StackPath { run, len: len as u16, end: PathEnd::Fork, flags: 0, what: self.used.forks, next: slot }
    }

    /// A path of the reads `from..to`; a read of rbp among them becomes a fork.
    fn path_from(&mut self, from: usize, to: usize, end: StackPath) -> StackPath {
        let rbp = (from..to).find(|&index| self.read(index).offset == RBP);
        let rest = rbp.map_or(from, |rbp| rbp + 1);
        let path = StackPath { run: self.run_of_reads(rest, to), len: (to - rest) as u16, ..end };
        let Some(rbp) = rbp else { return path };
        let run = self.run_of_reads(from, rbp);
        let fork = self.new_fork(run, rbp - from, RBP);
        self.put(PathKey::behind(fork.what, self.read(rbp).value), path);
        fork
    }

    fn get(&self, key: PathKey) -> Option<StackPath> {
        // SAFETY: `find` returns a slot of the table.
        let place = unsafe { *self.find(key) };
        (!place.is_empty()).then_some(place.path)
    }

    fn put(&mut self, key: PathKey, path: StackPath) {
        // SAFETY: `find` returns a slot of the table.
        let place = unsafe { &mut *self.find(key) };
        self.used.places += usize::from(place.is_empty());
        *place = PathSlot { key, path };
    }

    fn word(&self, index: usize) -> u64 {
        // SAFETY: callers pass indices of words in runs only.
        unsafe { *self.words.as_ptr().add(index) }
    }

    /// The run of the reads `from..to`, none of which is rbp.
    fn run_of_reads(&mut self, from: usize, to: usize) -> u32 {
        for index in from..to {
            let read = self.read(index);
            // SAFETY: room for the run was made.
            unsafe {
                let word = self.words.as_ptr().add(self.used.words + index - from);
                *word = read.value << OFFSET_BITS | u64::from(read.offset);
            }
        }
        self.keep_run(to - from)
    }

    /// A run that copies `len` words from index `from` on.
    fn run_of_words(&mut self, from: usize, len: usize) -> u32 {
        // SAFETY: room for the run was made, behind all that is used.
        unsafe {
            let words = self.words.as_ptr();
            words.add(self.used.words).copy_from_nonoverlapping(words.add(from), len);
        }
        self.keep_run(len)
    }

    /// Pads the run that was written last, and keeps it unless an equal one is there.
    fn keep_run(&mut self, len: usize) -> u32 {
        if len == 0 {
            return 0;
        }
        let padded = len.next_multiple_of(STEP);
        // SAFETY: room for the run was made. A recent run may have been dropped: its index is used only if it lies
        // below the words in use, and its words are compared.
        unsafe {
            let words = self.words.as_ptr();
            let new = words.add(self.used.words);
            let mut hash = padded as u64;
            for index in 0..padded {
                if index >= len {
                    *new.add(index) = *new.add(len - 1);
                }
                hash = (hash.rotate_left(23) ^ *new.add(index)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            }
            let shelf = self.shelf.as_ptr().add((hash >> 32) as usize % SHELF);
            let old = *shelf as usize;
            if old != 0 && old + padded <= self.used.words {
                let same = (0..padded).all(|index| *words.add(old + index) == *new.add(index));
                if same {
                    return old as u32;
                }
            }
            *shelf = self.used.words as u32;
        }
        let run = self.used.words as u32;
        self.used.words += padded;
        run
    }

    /// Ensures room for one more stack of `reads`.
    fn make_room(&mut self, reads: usize, tree: &CallTree) -> Result<(), Full> {
        // At most one run is split, and one or two are new.
        self.longest = self.longest.max(reads);
        let words = doubled_until(self.words.len(), self.used.words + self.longest + reads + 4 * STEP);
        let places = self.places_for(self.used.places + NEW_PLACES);
        if words == self.words.len() && places == self.table.len() {
            return Ok(());
        }
        if words > MAX_WORDS || places > MAX_PLACES {
            return Err(Full);
        }
        let _undisturbed = sys::SignalsBlocked::new();
        let grown = self.grow(words, places, tree);
        self.account.settle(self.bytes());
        grown.ok_or(Full)
    }

    /// Slots of a table for so many paths. The first table is small, for threads that do little, and is replaced
    /// while it is
    /// still mostly empty: a state that is not in its first slot costs an event some thirty instructions more.
    fn places_for(&self, paths: usize) -> usize {
        let len = self.table.len();
        if len < SECOND_PLACES && paths * 4 <= len {
            return len;
        }
        doubled_until(len, (paths * 8 / 5).max(SECOND_PLACES))
    }

    /// Grows words and table. The words stay larger than needed when the kernel has no memory for the table.
    fn grow(&mut self, words: usize, places: usize, tree: &CallTree) -> Option<()> {
        let signatures = self.signatures.bytes_with(self.signatures.lines());
        let tables = bytes_of::<u64>(words)? + bytes_of::<PathSlot>(places)? + self.shelf.bytes() + self.reads.bytes();
        let bytes = tables + signatures;
        self.account.resize(bytes, Account::PATHS, tree)?;
        if words > self.words.len() {
            // SAFETY: paths name words by their index.
            unsafe { self.words.grow(words)? };
        }
        if places > self.table.len() {
            self.replace_table(Array::new(places)?);
        }
        Some(())
    }

    /// Moves the paths into `larger`, whose length is a power of two.
    fn replace_table(&mut self, larger: Array<PathSlot>) {
        for index in 0..self.table.len() {
            // SAFETY: `index` is below the length; the new table has room for all of them.
            unsafe {
                let place = *self.table.as_ptr().add(index);
                if !place.is_empty() {
                    *find(larger.as_ptr(), mask_of(&larger), place.key) = place;
                }
            }
        }
        let mut old = self.table.replace(larger);
        self.mask = mask_of(&self.table);
        // SAFETY: the old table, to which no pointer is left.
        unsafe { old.release() };
    }
}

impl StackPath {
    /// Of a fork: sets the layout of the state's stacks.
    fn set_layout(&mut self, layout: LayoutNumber) {
        self.next = self.slot() | layout.0 << SLOT_BITS;
    }
}

fn doubled_until(len: usize, wanted: usize) -> usize {
    let mut len = len;
    while len < wanted {
        len *= 2;
    }
    len
}

/// The read of one check of a chain that begins at `sp`; `None` if it cannot be written as a word.
fn read_of(check: StackCheck, sp: u64) -> Option<Read> {
    let offset = check.slot.wrapping_sub(sp);
    let fits = offset & 7 == 0 && offset >> (3 + OFFSET_BITS) == 0 && check.value >> VALUE_BITS == 0;
    fits.then_some(Read { value: check.value, offset: (offset >> 3) as u32 })
}

const _: () = assert!(MAX_READS <= u16::MAX as usize && RBP > u16::MAX as u32);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryBlock;

    const PC: u64 = 0x5555_0000_1000;
    const SP: u64 = 0x7fff_0000_1000;

    /// Paths in which the caller at `PC`, `SP` has this path, which has no words.
    fn with(end: PathEnd, next: u32) -> (StackTrie, VerifiedChains) {
        let mut paths = StackTrie::new(Box::leak(Box::default()), &mut MemoryBlock::none()).unwrap();
        paths.put(PathKey::of(PC, SP), StackPath { run: 0, len: 0, end, flags: 0, what: 0, next });
        (paths, VerifiedChains::new(&mut MemoryBlock::none()).unwrap())
    }

    fn record_of_answer(paths: &mut StackTrie, chains: &VerifiedChains) -> Option<u32> {
        let tree = CallTree::create(1 << 16).unwrap();
        let state = FrameState { pc: PC, sp: SP, rbp: 0 };
        // SAFETY: the path has no words, and the chain of the root has no checks: nothing is read from the stack.
        unsafe { paths.recall_any(state, &mut OwnStack::none(), &tree, chains) }.map(|answer| answer.record)
    }

    #[test]
    fn paths_do_not_lead_to_records_that_are_gone() {
        let (mut paths, chains) = with(PathEnd::Chain, 0);
        assert_eq!(record_of_answer(&mut paths, &chains), Some(0));
        paths.forget_records();
        assert_eq!(record_of_answer(&mut paths, &chains), None);
        let (mut paths, chains) = with(PathEnd::Answer, 7);
        assert_eq!(record_of_answer(&mut paths, &chains), Some(7));
        paths.forget_records();
        assert_eq!(record_of_answer(&mut paths, &chains), Some(0), "the answer stays");
    }

    #[test]
    fn a_stack_behind_many_forks_is_answered_where_there_is_no_memory_for_its_signature() {
        let words = [0_u64; 4];
        let sp = words.as_ptr() as u64;
        let state = FrameState { pc: PC, sp, rbp: 0 };
        let (mut paths, chains) = with(PathEnd::Lost, 0);
        let fork = |number, slot| StackPath { run: 0, len: 0, end: PathEnd::Fork, flags: 0, what: number, next: slot };
        paths.put(PathKey::of(PC, sp), fork(1, 0));
        paths.put(PathKey::behind(1, 0), fork(2, 1));
        paths.put(PathKey::behind(2, 0), fork(3, 2));
        let answer = StackPath { run: 0, len: 0, end: PathEnd::Answer, flags: 0, what: 5, next: 7 };
        paths.put(PathKey::behind(3, 0), answer);
        // More than the budget gives to a process with so small a call tree.
        let _ = paths.words.replace(Array::new((32 << 20) / size_of::<u64>()).unwrap());
        let tree = CallTree::create(1 << 16).unwrap();
        let mut own = OwnStack::of_this_thread(sp);
        for _ in 0..3 {
            // SAFETY: the forks are decided by words on this thread's stack.
            let found = unsafe { paths.recall_any(state, &mut own, &tree, &chains) };
            assert_eq!(found.map(|found| (found.captured.node.0, found.record)), Some((5, 7)));
        }
        assert_eq!(paths.signatures.lines(), 0);
    }
}
