//! Verified-chain table: the frames that one thread has unwound, each with the words that were read from the stack, and
//! its caller.
//!
//! ```text
//! record      check, check, check, ──▶ record     this frame's read and those of the two frames outside
//!             node, flags, number of checks       the answer, if all checks up to the root hold
//! origin      pc, sp, rbp, rule, ──▶ outer record the state that the record was made for (cold)
//! children    (outer record, pc, sp) ──▶ record   finds the record of a frame again (cold)
//! ```
//!
//! A backtrace is a function of the state at its top and of the words that unwinding reads from the stack. A record's
//! chain lists those words, address and value, in the order of reading. If the top state is the same and each word
//! still has its value, the backtrace is the same: nothing is unwound, the node is the answer. Each word is loaded only
//! after all words before it were equal, so its frame is proved to exist and the load cannot fault. Records never
//! change once made; stacks that come and go need no bookkeeping at all.
//!
//! Frames that need more than one word (a saved rbp that matters, a realigned frame, a signal frame) have one
//! record for each, the outer ones marked as *parts* of the frame. An interpreted frame of Java has two more: its method and
//! its bytecode, by which it has a name (see `hotspot`).
//!
//! A walk stops at the first frame that this table already has; most events are answered by `stack_trie`.

mod chain_record;
mod insert;

use core::ops::Range;

use super::Captured;
use super::budget::Account;
use super::hotspot::InterpretedFrame;
use super::memory::{Array, MemoryBlock, bytes_in_block, bytes_of};
use super::rule::Rule;
pub use chain_record::{ChainRecord, StackCheck, first_failing, verify_chain};
use chain_record::{Marks, RecordOrigin, RecordSummary, ZERO};
use insert::{Child, INDEX_BITS, MAX_PARTS};
pub use insert::{WalkedFrame, is_insertable};
use tracehound_shared::call_tree::{CallTree, NodeId};
use tracehound_shared::code::Regions;
use tracehound_shared::hotspot::{MethodName, NamedBytecode};
use tracehound_shared::sys;

const MAX_RECORDS: usize = 1 << INDEX_BITS;
const FIRST_RECORDS: usize = 128;
const FIRST_CHILDREN: usize = 2 * FIRST_RECORDS;
#[cfg(target_arch = "aarch64")]
pub use crate::aarch64::ucontext;
/// Offsets in the ucontext that a signal frame's sp points to (`<sys/ucontext.h>`).
#[cfg(target_arch = "x86_64")]
pub mod ucontext {
    pub const REGISTERS: u64 = 40;
    pub const RBP: u64 = REGISTERS + 10 * 8;
    pub const RSP: u64 = REGISTERS + 15 * 8;
    pub const RIP: u64 = REGISTERS + 16 * 8;
    pub const BYTES: u64 = REGISTERS + 23 * 8;
}

/// Result of a request for room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// There is room; records may have moved.
    Made,
    /// There is room, because all records are gone.
    Cleared,
    /// There is none, and all records are gone.
    None,
}

/// The records of one thread. *A record of the table*, as functions here want it, is a pointer that the table itself has
/// given since its records were moved or forgotten last.
pub struct VerifiedChains {
    records: Array<ChainRecord>,
    /// The record of the last event, which the next walk tries to join first.
    previous: u32,
    origins: Array<RecordOrigin>,
    count: usize,
    children: Array<Child>,
    child_mask: usize,
    /// Regions of the code of all records since the table was emptied.
    regions: Regions,
    /// Some of those records were dropped.
    incomplete: bool,
    account: Account,
    /// Times that the table was full and was emptied.
    pub forgotten: u64,
}

impl VerifiedChains {
    /// Bytes of a block that a verified-chain table begins with.
    pub const FIRST_BYTES: usize = bytes_in_block::<ChainRecord>(FIRST_RECORDS)
        + bytes_in_block::<RecordOrigin>(FIRST_RECORDS)
        + bytes_in_block::<Child>(FIRST_CHILDREN);

    pub fn new(block: &mut MemoryBlock) -> Option<VerifiedChains> {
        let mut chains = VerifiedChains {
            records: Array::first(block, FIRST_RECORDS)?,
            previous: 0,
            origins: Array::first(block, FIRST_RECORDS)?,
            count: 0,
            children: Array::first(block, FIRST_CHILDREN)?,
            child_mask: FIRST_CHILDREN - 1,
            regions: Regions::new(),
            incomplete: false,
            account: Account::new(),
            forgotten: 0,
        };
        chains.insert_root();
        Some(chains)
    }

    /// Inserts record 0, the parent of outermost frames. Its checks always hold.
    fn insert_root(&mut self) {
        let root = self.records.as_ptr();
        let check = StackCheck { slot: &raw const ZERO as u64, value: 0 };
        // SAFETY: both arrays have room for a first element.
        unsafe {
            root.write(ChainRecord {
                checks: [check; 3],
                outer3: root,
                summary: RecordSummary::new(NodeId::ROOT, 0, 0),
            });
            let origin = RecordOrigin { pc: 0, sp: u64::MAX, rbp: 0, link: 0, rule: Rule::END };
            self.origins.as_ptr().write(origin);
        }
        self.count = 1;
        self.previous = 0;
    }

    /// Whether some record since the table was emptied is or was for code in `range`.
    pub fn knows(&self, range: &Range<u64>) -> bool {
        self.regions.may_hold(range)
            && (self.incomplete
                // SAFETY: origins below `count` are initialised.
                || (1..self.count).any(|index| unsafe {
                    range.contains(&(*self.origins.as_ptr().add(index)).pc.wrapping_sub(1))
                }))
    }

    /// Drops all records and the regions of their code. Node ids stay valid: they are the call tree's.
    pub fn forget(&mut self) {
        self.forget_records();
        self.regions.clear();
        self.incomplete = false;
    }

    /// Drops all records, to have room for others.
    fn forget_records(&mut self) {
        // SAFETY: the table is zeroed over its whole length; zero is an empty entry.
        unsafe { self.children.as_ptr().write_bytes(0, self.children.len()) };
        // A jump out of a signal handler may have left the table larger than the mask.
        self.child_mask = self.children.len() - 1;
        self.incomplete = true;
        self.insert_root();
    }

    #[inline(always)]
    pub fn root(&self) -> *mut ChainRecord {
        self.records.as_ptr()
    }

    /// The record that walks try to join first.
    #[inline(always)]
    pub fn previous(&self) -> *mut ChainRecord {
        // SAFETY: `set_previous` was given the index of a record that exists, and forgetting makes it the root's.
        unsafe { self.record(self.previous) }
    }

    /// Makes `record` the one that walks try to join first.
    ///
    /// # Safety
    /// As for [`record`](Self::record).
    #[inline(always)]
    pub unsafe fn set_previous(&mut self, record: u32) {
        self.previous = record;
    }

    /// The record with this index.
    ///
    /// # Safety
    /// The index must be the root's, 0, or one that [`index`](Self::index) gave since the records were forgotten last.
    #[inline(always)]
    pub unsafe fn record(&self, index: u32) -> *mut ChainRecord {
        // SAFETY: the index of a record that exists is below the length: the contract of `record`.
        unsafe { self.records.as_ptr().add(index as usize) }
    }

    /// The number of a record.
    ///
    /// # Safety
    /// It must be a record of the table.
    #[inline(always)]
    pub unsafe fn index(&self, record: *mut ChainRecord) -> u32 {
        // SAFETY: a record of the table points into the array: the contract of `index`.
        unsafe { record.offset_from(self.records.as_ptr()) as u32 }
    }

    /// What a record was made for.
    ///
    /// # Safety
    /// It must be a record of the table.
    #[inline(always)]
    pub unsafe fn origin(&self, record: *mut ChainRecord) -> &RecordOrigin {
        // SAFETY: a record of the table, by the contract of `origin`; each has its origin at the same index.
        unsafe { &*self.origins.as_ptr().add(self.index(record) as usize) }
    }

    /// The record outside of a record.
    ///
    /// # Safety
    /// It must be a record of the table.
    #[inline(always)]
    pub unsafe fn outer(&self, record: *mut ChainRecord) -> *mut ChainRecord {
        // SAFETY: a record of the table, by the contract of `outer`; its origin has the index of one that was made before it.
        unsafe { self.records.as_ptr().add(self.origin(record).outer()) }
    }

    /// Whether some frame outside computes its CFA from the rbp of a record's frame.
    ///
    /// # Safety
    /// It must be a record of the table.
    #[inline(always)]
    pub unsafe fn needs_rbp(&self, record: *mut ChainRecord) -> bool {
        // SAFETY: a record of the table: the contract of `needs_rbp`.
        unsafe { self.origin(record) }.has(Marks::NEEDS_RBP)
    }

    /// The first record of the frame outside of `record`'s frame; the records from `record` up to it are
    /// handed to `each`.
    ///
    /// # Safety
    /// It must be a record of the table.
    pub unsafe fn outer_frame(
        &self,
        record: *mut ChainRecord,
        mut each: impl FnMut(*mut ChainRecord),
    ) -> *mut ChainRecord {
        let mut at = record;
        loop {
            each(at);
            // SAFETY: `record` is one of the table, by the contract of `outer_frame`, and `outer` leads to others of it.
            unsafe {
                at = self.outer(at);
                if !self.origin(at).has(Marks::PART) {
                    return at;
                }
            }
        }
    }

    /// A record's own check.
    ///
    /// # Safety
    /// It must be a record of the table.
    pub unsafe fn check(&self, record: *mut ChainRecord) -> StackCheck {
        // SAFETY: a record of the table is initialised, and stays as it is: the contract of `check`.
        unsafe { (*record).checks[0] }
    }

    /// Whether a record checks which method its frame runs.
    ///
    /// # Safety
    /// It must be a record of the table.
    #[inline(always)]
    pub unsafe fn has_method(&self, record: *mut ChainRecord) -> bool {
        // SAFETY: a record of the table: the contract of `has_method`.
        unsafe { self.origin(record) }.has(Marks::METHOD)
    }

    /// What the interpreted frame of a record says of its method, if its checks are those of one.
    ///
    /// # Safety
    /// It must be a record of the table.
    #[inline]
    pub unsafe fn method_of(&self, record: *mut ChainRecord) -> Option<InterpretedFrame> {
        // SAFETY: a record of the table: the contract of `method_of`. One with this mark has another part, whose origin has a
        // name, or a zero.
        unsafe {
            let origin = self.origin(record);
            if !self.has_method(record) {
                return None;
            }
            let part = self.outer(record);
            let RecordOrigin { pc, rbp: name, .. } = *self.origin(part);
            Some(InterpretedFrame {
                method: self.check(record).value,
                bytecode: origin.has(Marks::BYTECODE).then(|| self.check(part).value),
                named: MethodName::from_word(name).map(|name| NamedBytecode { name, pc }),
            })
        }
    }

    /// The count of unloaded classes at which the method of a record was what its name says; 0: none.
    ///
    /// # Safety
    /// It must be a record of the table that [has a method](Self::has_method).
    #[inline(always)]
    pub unsafe fn checked_at(&self, record: *mut ChainRecord) -> u32 {
        // SAFETY: a record of the table with another part: the contract of `checked_at`.
        unsafe { self.origin(self.outer(record)) }.rule.0
    }

    /// Notes that count.
    ///
    /// # Safety
    /// As for [`checked_at`](Self::checked_at).
    pub unsafe fn set_checked_at(&self, record: *mut ChainRecord, count: u32) {
        // SAFETY: a record of the table with another part, whose origin has its index: the contract of `set_checked_at`. The
        // table is one thread's, and no reference to the origin is held.
        unsafe {
            let part = self.index(self.outer(record)) as usize;
            (*self.origins.as_ptr().add(part)).rule = Rule(count);
        }
    }

    /// The backtrace that ends in a record's frame.
    ///
    /// # Safety
    /// It must be a record of the table.
    pub unsafe fn captured(&self, record: *mut ChainRecord) -> Captured {
        // SAFETY: a record of the table is initialised, and stays as it is: the contract of `captured`.
        unsafe { (*record).summary.captured() }
    }

    /// Ensures that the next `frames` frames can be inserted without moving records. One that says which method it runs
    /// counts twice.
    #[cold]
    pub fn make_room(&mut self, frames: usize, tree: &CallTree) -> Room {
        if self.has_room_for(frames, tree) {
            return Room::Made;
        }
        self.forgotten += 1;
        self.forget_records();
        if self.has_room_for(frames, tree) { Room::Cleared } else { Room::None }
    }

    fn has_room_for(&mut self, frames: usize, tree: &CallTree) -> bool {
        let wanted = frames.saturating_mul(MAX_PARTS).saturating_add(self.count);
        wanted <= self.records.len()
            || wanted.checked_next_power_of_two().is_some_and(|size| self.enlarge(size, tree).is_some())
    }

    /// Number of frames for which there is room, counted as in [`make_room`](Self::make_room).
    pub fn room(&self) -> usize {
        (self.records.len() - self.count) / MAX_PARTS
    }

    /// Makes room for `records` records in all; `None`, with nothing changed, where the budget or the kernel refuses the
    /// memory.
    fn enlarge(&mut self, records: usize, tree: &CallTree) -> Option<()> {
        let _undisturbed = sys::SignalsBlocked::new();
        if records > MAX_RECORDS {
            return None;
        }
        let bytes =
            bytes_of::<ChainRecord>(records)? + bytes_of::<RecordOrigin>(records)? + bytes_of::<Child>(records * 2)?;
        self.account.resize(bytes, Account::chains(), tree)?;
        let grown = self.grow(records);
        self.account.settle(self.bytes());
        grown
    }

    /// When the kernel has no memory for the rest, arrays that have grown already stay larger than needed; room is the
    /// capacity of the records, which grow last.
    fn grow(&mut self, records: usize) -> Option<()> {
        // SAFETY: nothing points into the origins.
        unsafe { self.origins.grow(records)? };
        self.replace_children(Array::new(records * 2)?);
        let before = self.records.as_ptr();
        // SAFETY: the pointers into the records are rebased below.
        unsafe { self.records.grow(records)? };
        self.rebase(before);
        Some(())
    }

    /// Moves the children into `larger`, whose length is a power of two.
    fn replace_children(&mut self, larger: Array<Child>) {
        for index in 0..self.children.len() {
            // SAFETY: `index` is below the length.
            let child = unsafe { *self.children.as_ptr().add(index) };
            if child.record() != 0 {
                // SAFETY: the larger table is made for twice as many children as there will be, by `grow` alone, and its
                // length is a power of two. `free_place` answers with an index in it.
                unsafe { *larger.as_ptr().add(insert::free_place(&larger, child)) = child };
            }
        }
        let mut old = self.children.replace(larger);
        self.child_mask = self.children.len() - 1;
        // SAFETY: the old array, to which no pointer is left.
        unsafe { old.release() };
    }

    /// After the records moved from `before`: updates their pointers to the new addresses.
    fn rebase(&mut self, before: *mut ChainRecord) {
        let after = self.records.as_ptr();
        if before == after {
            return;
        }
        for index in 0..self.count {
            // SAFETY: records below `count` are initialised.
            let record = unsafe { &mut *after.add(index) };
            record.outer3 = after.wrapping_byte_add((record.outer3 as usize).wrapping_sub(before as usize));
        }
    }

    pub fn records(&self) -> usize {
        self.count
    }

    pub fn bytes(&self) -> usize {
        self.records.bytes() + self.origins.bytes() + self.children.bytes()
    }

    /// # Safety
    /// The verified-chain table must not be used afterwards.
    pub unsafe fn release(&mut self) {
        self.account.close();
        // SAFETY: nothing is used afterwards: the contract of `release`.
        unsafe {
            self.records.release();
            self.origins.release();
            self.children.release();
        }
    }
}
