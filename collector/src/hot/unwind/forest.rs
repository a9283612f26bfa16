//! A forest of verified chains: the frames that one thread has seen, and who called whom.
//!
//! ```text
//! record      check, check, check, ──▶ record     this frame's read and those of the two frames outside
//!             node, flags, number of checks       the answer, if all checks up to the root hold
//! origin      pc, sp, rbp, rule, ──▶ outer record the state the record stands for (cold)
//! children    (outer record, pc, sp) ──▶ record   finds the record of a frame again (cold)
//! ```
//!
//! A backtrace is a function of the state at its top and of the words that unwinding reads from the stack. A
//! record's chain lists those words, address and value, in the order of reading. If the top state is the same
//! and each word still has its value, the backtrace is the same: nothing is unwound, the node is the answer.
//! Each word is loaded only after all before it were right, so its frame is proved to stand and the load cannot
//! fault. Records never change once made; stacks that come and go need no bookkeeping at all.
//!
//! Frames that need more than one word (a saved rbp that matters, a realigned frame, a signal frame) have one
//! record for each, the outer ones marked as *parts* of the frame.
//!
//! The forest is where walks join what is known; common events are answered by [`super::paths`].

use core::ops::Range;

use super::Captured;
use super::budget::Account;
use super::memory::{Array, SignalsBlocked, bytes_of};
use super::rule::{Kind, Rule};
use crate::shared::call_tree::{CallTree, NodeId};
use crate::shared::code::{self, Regions};

/// One word of the stack and what it must be.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Check {
    pub slot: u64,
    pub value: u64,
}

/// One cache line: three steps of a chain.
#[repr(C, align(64))]
pub struct Record {
    checks: [Check; 3],
    /// The record three links out.
    outer3: *mut Record,
    summary: Summary,
}

const _: () = assert!(size_of::<Record>() == 64);
const _: () = assert!(size_of::<Origin>() == 32);
const _: () = assert!(size_of::<Child>() == 16);

/// `node: 32 | flags: 8 | checks up to the root: 24`
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Summary(pub u64);

impl Summary {
    fn new(node: NodeId, flags: u8, checks: usize) -> Summary {
        Summary(u64::from(node.0) | u64::from(flags) << 32 | (checks as u64) << 40)
    }

    /// Checks up to the root.
    #[inline(always)]
    pub fn checks(self) -> i32 {
        (self.0 >> 40) as i32
    }

    #[inline(always)]
    fn captured(self) -> Captured {
        Captured { node: NodeId(self.0 as u32), flags: (self.0 >> 32) as u8 }
    }
}

/// The state a record stands for.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Origin {
    pub pc: u64,
    pub sp: u64,
    pub rbp: u64,
    /// Index of the outer record, and [`Marks`] in the upper eight bits.
    link: u32,
    pub rule: Rule,
}

/// What a record's origin says beside its state.
pub struct Marks;

impl Marks {
    /// Some frame outside computes its CFA from this frame's rbp.
    pub const NEEDS_RBP: u8 = 1;
    /// Not the first record of its frame.
    pub const PART: u8 = 2;
}

impl Origin {
    #[inline(always)]
    fn outer(&self) -> usize {
        (self.link & 0x00ff_ffff) as usize
    }

    #[inline(always)]
    fn has(&self, mark: u8) -> bool {
        (self.link >> 24) as u8 & mark != 0
    }
}

/// `key` is exact: pc in 47 bits, sp / 8 in 44, the outer record in 18; the record fills the other 18.
#[repr(C)]
#[derive(Clone, Copy)]
struct Child {
    low: u64,
    high: u64,
}

/// A frame on its way into the forest.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Frame {
    pub pc: u64,
    pub sp: u64,
    pub rbp: u64,
    pub rule: Rule,
    /// Flags of [`Captured`] that this frame brings.
    pub flags: u8,
}

const INDEX_BITS: u32 = 18;
const MAX_RECORDS: usize = 1 << INDEX_BITS;
const FIRST_RECORDS: usize = 512;
const FIRST_CHILDREN: usize = 1024;
/// Records one frame may need.
const MAX_PARTS: usize = 3;

/// Offsets in the ucontext that a signal frame's sp points to (`<sys/ucontext.h>`).
pub mod ucontext {
    pub const REGISTERS: u64 = 40;
    pub const RBP: u64 = REGISTERS + 10 * 8;
    pub const RSP: u64 = REGISTERS + 15 * 8;
    pub const RIP: u64 = REGISTERS + 16 * 8;
    pub const BYTES: u64 = REGISTERS + 23 * 8;
}

static ZERO: u64 = 0;

/// What became of the wish for room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// There is room; records may have moved.
    Made,
    /// There is room, because all records are gone.
    Cleared,
    /// There is none, and all records are gone.
    None,
}

/// The records of one thread.
pub struct Forest {
    records: Array<Record>,
    /// The record of the last event, where the next one most likely joins.
    previous: u32,
    origins: Array<Origin>,
    count: usize,
    children: Array<Child>,
    child_mask: usize,
    /// Where the code lies that records have been about since all was forgotten.
    regions: Regions,
    /// Some of those records are gone.
    incomplete: bool,
    account: Account,
    /// Times the forest was full and forgotten.
    pub forgotten: u64,
}

#[inline(always)]
unsafe fn load(address: u64) -> u64 {
    // SAFETY: by the caller. Volatile: the program's other frames may write here at any time between two
    // events, and the order of loads and comparisons must stay as written.
    unsafe { (address as *const u64).read_volatile() }
}

impl Forest {
    pub fn new() -> Option<Forest> {
        let mut forest = Forest {
            records: Array::new(FIRST_RECORDS)?,
            previous: 0,
            origins: Array::new(FIRST_RECORDS)?,
            count: 0,
            children: Array::new(FIRST_CHILDREN)?,
            child_mask: FIRST_CHILDREN - 1,
            regions: Regions::new(),
            incomplete: false,
            account: Account::new(),
            forgotten: 0,
        };
        forest.plant_root();
        Some(forest)
    }

    /// Record 0 is the place outside of the outermost frame. Its checks always hold.
    fn plant_root(&mut self) {
        let root = self.records.as_ptr();
        let check = Check { slot: &raw const ZERO as u64, value: 0 };
        // SAFETY: both arrays have room for a first element.
        unsafe {
            root.write(Record { checks: [check; 3], outer3: root, summary: Summary::new(NodeId::ROOT, 0, 0) });
            let origin = Origin { pc: 0, sp: u64::MAX, rbp: 0, link: 0, rule: Rule::END };
            self.origins.as_ptr().write(origin);
        }
        self.count = 1;
        self.previous = 0;
    }

    /// Whether some record is or was about code in `range`, since everything was forgotten last.
    pub fn knows(&self, range: &Range<u64>) -> bool {
        self.regions.may_hold(range)
            && (self.incomplete
                // SAFETY: origins below `count` are initialised.
                || (1..self.count).any(|index| unsafe {
                    range.contains(&(*self.origins.as_ptr().add(index)).pc.wrapping_sub(1))
                }))
    }

    /// Drops all records, and what code they were about. Node ids stay what they are: they live in the call tree.
    pub fn forget(&mut self) {
        self.forget_records();
        self.regions.clear();
        self.incomplete = false;
    }

    /// Drops all records, to have room for others.
    fn forget_records(&mut self) {
        // SAFETY: the table is zeroed over its whole length; zero is an empty entry.
        unsafe { self.children.as_ptr().write_bytes(0, self.children.len()) };
        self.incomplete = true;
        self.plant_root();
    }

    #[inline(always)]
    pub fn root(&self) -> *mut Record {
        self.records.as_ptr()
    }

    /// Where walks try to join first.
    #[inline(always)]
    pub fn previous(&self) -> *mut Record {
        self.record(self.previous)
    }

    /// Makes `record` the place where walks try to join first.
    #[inline(always)]
    pub fn set_previous(&mut self, record: u32) {
        self.previous = record;
    }

    /// The record with an index that [`index`](Self::index) gave since the records were forgotten last.
    #[inline(always)]
    pub fn record(&self, index: u32) -> *mut Record {
        // SAFETY: indices are those of records that exist.
        unsafe { self.records.as_ptr().add(index as usize) }
    }

    /// The number of a record.
    #[inline(always)]
    pub fn index(&self, record: *mut Record) -> u32 {
        // SAFETY: `record` points into the array, as all record pointers do.
        unsafe { record.offset_from(self.records.as_ptr()) as u32 }
    }

    #[inline(always)]
    pub fn origin(&self, record: *mut Record) -> &Origin {
        // SAFETY: origins run in step with records.
        unsafe { &*self.origins.as_ptr().add(self.index(record) as usize) }
    }

    #[inline(always)]
    pub fn outer(&self, record: *mut Record) -> *mut Record {
        // SAFETY: links name records that exist.
        unsafe { self.records.as_ptr().add(self.origin(record).outer()) }
    }

    #[inline(always)]
    pub fn needs_rbp(&self, record: *mut Record) -> bool {
        self.origin(record).has(Marks::NEEDS_RBP)
    }

    #[inline(always)]
    pub fn is_part(&self, record: *mut Record) -> bool {
        self.origin(record).has(Marks::PART)
    }

    /// The first record of the frame outside of `record`'s frame; the records from `record` up to it are
    /// handed to `each`.
    pub fn outer_frame(&self, record: *mut Record, mut each: impl FnMut(*mut Record)) -> *mut Record {
        let mut at = record;
        loop {
            each(at);
            at = self.outer(at);
            if !self.is_part(at) {
                return at;
            }
        }
    }

    /// A record's own check.
    pub fn check(&self, record: *mut Record) -> Check {
        // SAFETY: as for `captured`.
        unsafe { (*record).checks[0] }
    }

    pub fn captured(&self, record: *mut Record) -> Captured {
        // SAFETY: record pointers are valid while the forest lives and is not forgotten.
        unsafe { (*record).summary.captured() }
    }

    /// Makes sure that the next `frames` frames can be planted without moving anything.
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

    /// Frames that can be planted for certain.
    pub fn room(&self) -> usize {
        (self.records.len() - self.count) / MAX_PARTS
    }

    /// Makes room for `records` records in all; `None` where that much may not or cannot be had, and then nothing has
    /// changed.
    fn enlarge(&mut self, records: usize, tree: &CallTree) -> Option<()> {
        let _undisturbed = SignalsBlocked::new();
        if records > MAX_RECORDS {
            return None;
        }
        let bytes = bytes_of::<Record>(records)? + bytes_of::<Origin>(records)? + bytes_of::<Child>(records * 2)?;
        self.account.resize(bytes, Account::FOREST, tree)?;
        let grown = self.grow(records);
        self.account.settle(self.bytes());
        grown
    }

    /// What has grown when the kernel has no memory for the rest stays larger than it need be; room is what the records,
    /// which grow last, have.
    fn grow(&mut self, records: usize) -> Option<()> {
        // SAFETY: nothing points into the origins.
        unsafe { self.origins.grow(records)? };
        let mut other_children = Array::<Child>::new(records * 2)?;
        let before = self.records.as_ptr();
        // SAFETY: the pointers into the records are rebased below; nobody has seen the new children yet.
        unsafe {
            if self.records.grow(records).is_none() {
                other_children.release();
                return None;
            }
        }
        self.rebase(before);
        core::mem::swap(&mut self.children, &mut other_children);
        self.child_mask = records * 2 - 1;
        for index in 0..other_children.len() {
            // SAFETY: `index` is below the length.
            let child = unsafe { *other_children.as_ptr().add(index) };
            if child.high & INDEX_MASK != 0 {
                let place = self.free_place(child);
                // SAFETY: `free_place` answers with an index in the table.
                unsafe { *self.children.as_ptr().add(place) = child };
            }
        }
        // SAFETY: these are the old ones, of which nobody knows any more.
        unsafe { other_children.release() };
        Some(())
    }

    /// After the records moved from `before`: makes their pointers point to the new place.
    fn rebase(&mut self, before: *mut Record) {
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

    /// The record of frame `frame` called from the frame of record `outer`; made if it is new. There must be
    /// room for it.
    ///
    /// # Safety
    /// `outer` must be a record of this forest, first of its frame, and `frame` a frame that its state calls.
    pub unsafe fn plant(&mut self, outer: *mut Record, frame: &Frame, tree: &CallTree) -> *mut Record {
        let outer_index = self.index(outer) as usize;
        let key = key(frame.pc, frame.sp, outer_index);
        // Where rbp is not given by (outer, pc, sp) it must be compared as well.
        let picky = outer_index == 0 || frame.rule.kind() == Kind::Drap;
        let mut place = child_hash(key) & self.child_mask;
        loop {
            // SAFETY: the mask keeps `place` inside the table.
            let child = unsafe { *self.children.as_ptr().add(place) };
            let index = (child.high & INDEX_MASK) as usize;
            if index == 0 {
                break;
            }
            if child.low == key.low && child.high & !INDEX_MASK == key.high {
                // SAFETY: children name records that exist.
                let record = unsafe { self.records.as_ptr().add(index) };
                let origin = self.origin(record);
                if !picky || !origin.has(Marks::NEEDS_RBP) || origin.rbp == frame.rbp {
                    return record;
                }
            }
            place = (place + 1) & self.child_mask;
        }
        // SAFETY: as the caller promises.
        unsafe { self.create(outer, frame, key, place, tree) }
    }

    #[cold]
    unsafe fn create(
        &mut self,
        outer: *mut Record,
        frame: &Frame,
        key: Child,
        place: usize,
        tree: &CallTree,
    ) -> *mut Record {
        self.regions.add(frame.pc.wrapping_sub(1));
        let outer_origin = *self.origin(outer);
        let terminal = outer == self.root();
        let outer_captured = self.captured(outer);
        let node = tree.intern(outer_captured.node, frame.pc, code::generation_of(frame.pc));
        let flags = outer_captured.flags | frame.flags;
        let kind = frame.rule.kind();
        let outer_needs = outer_origin.has(Marks::NEEDS_RBP);
        let mut needs = match kind {
            Kind::Frame | Kind::Drap => true,
            Kind::Signal => false,
            _ => frame.rule.m() == 0 && outer_needs,
        };
        let mut checks = [Check { slot: &raw const ZERO as u64, value: 0 }; MAX_PARTS];
        let mut count = 0;
        let mut check = |slot: u64, value: u64| {
            if let Some(check) = checks.get_mut(count) {
                *check = Check { slot, value };
                count += 1;
            }
        };
        if terminal {
            // A chain ends here for the PC's sake, or because rbp led nowhere.
            needs = kind != Kind::End && kind != Kind::Sp;
            check(&raw const ZERO as u64, 0);
        } else {
            match kind {
                Kind::Drap => {
                    check(frame.rbp.wrapping_sub(frame.rule.n()), outer_origin.sp);
                    check(outer_origin.sp - 8, outer_origin.pc);
                    if outer_needs {
                        check(frame.rbp, outer_origin.rbp);
                    }
                }
                Kind::Signal => {
                    check(frame.sp + ucontext::RSP, outer_origin.sp);
                    check(frame.sp + ucontext::RIP, outer_origin.pc.wrapping_sub(1));
                    if outer_needs {
                        check(frame.sp + ucontext::RBP, outer_origin.rbp);
                    }
                }
                _ => {
                    check(outer_origin.sp - 8, outer_origin.pc);
                    if outer_needs && frame.rule.m() != 0 {
                        check(outer_origin.sp - frame.rule.m(), outer_origin.rbp);
                    }
                }
            }
        }
        let mut inner = outer;
        for (part, check) in checks.iter().enumerate().take(count).rev() {
            let (one, two) = (inner, self.outer(inner));
            let outer3 = self.outer(two);
            let index = self.count;
            self.count += 1;
            let mut marks = if needs { Marks::NEEDS_RBP } else { 0 };
            if part > 0 {
                marks |= Marks::PART;
            }
            // SAFETY: the caller made room for MAX_PARTS records and origins, and `one`, `two` are records.
            unsafe {
                let steps = if terminal { 0 } else { (*one).summary.checks() as usize + 1 };
                let record = self.records.as_ptr().add(index);
                record.write(Record {
                    checks: [*check, (*one).checks[0], (*two).checks[0]],
                    outer3,
                    summary: Summary::new(node, flags, steps),
                });
                self.origins.as_ptr().add(index).write(Origin {
                    pc: frame.pc,
                    sp: frame.sp,
                    rbp: frame.rbp,
                    link: self.index(one) | u32::from(marks) << 24,
                    rule: frame.rule,
                });
                inner = record;
            }
        }
        let child = Child { low: key.low, high: key.high | u64::from(self.index(inner)) };
        // SAFETY: `place` is a free place of the table.
        unsafe { *self.children.as_ptr().add(place) = child };
        inner
    }

    fn free_place(&self, child: Child) -> usize {
        let mut place = child_hash(Child { low: child.low, high: child.high & !INDEX_MASK }) & self.child_mask;
        loop {
            // SAFETY: the mask keeps `place` inside the table, which is never more than half full.
            if unsafe { (*self.children.as_ptr().add(place)).high } & INDEX_MASK == 0 {
                return place;
            }
            place = (place + 1) & self.child_mask;
        }
    }

    pub fn records(&self) -> usize {
        self.count
    }

    pub fn bytes(&self) -> usize {
        self.records.bytes() + self.origins.bytes() + self.children.bytes()
    }

    /// # Safety
    /// The forest must not be used afterwards.
    pub unsafe fn release(&mut self) {
        self.account.close();
        // SAFETY: by the contract above.
        unsafe {
            self.records.release();
            self.origins.release();
            self.children.release();
        }
    }
}

/// Compares the chain of `record`, inside out.
///
/// # Safety
/// The running thread must be in the state that the chain begins with: then the first word is part of a live
/// frame, and each following one is too, because the comparisons before it held.
#[inline(always)]
pub unsafe fn verify_chain(record: *mut Record) -> bool {
    // SAFETY: links lead to records; slots are readable by the induction described above. Past the root the
    // checks are dummies that always hold.
    unsafe {
        let mut left = (*record).summary.checks();
        let mut at = record;
        while left > 0 {
            let checks = &(*at).checks;
            if load(checks[0].slot) != checks[0].value {
                return false;
            }
            if load(checks[1].slot) != checks[1].value {
                return false;
            }
            if load(checks[2].slot) != checks[2].value {
                return false;
            }
            at = (*at).outer3;
            left -= 3;
        }
        true
    }
}

/// The first record of a chain whose own check fails, or the last one.
///
/// # Safety
/// As for [`verify_chain`].
pub unsafe fn first_failing(forest: &Forest, record: *mut Record) -> *mut Record {
    let mut at = record;
    // SAFETY: as for `verify_chain`: each slot is loaded after the ones before it were right.
    unsafe {
        while (*at).summary.checks() > 0 && load((*at).checks[0].slot) == (*at).checks[0].value {
            at = forest.outer(at);
        }
    }
    at
}

const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;

/// Whether a state can be a key: its numbers fit, and its sp is aligned.
pub fn is_plantable(pc: u64, sp: u64) -> bool {
    pc < 1 << 47 && sp < 1 << 47 && sp & 7 == 0
}

fn key(pc: u64, sp: u64, outer: usize) -> Child {
    let words = sp >> 3;
    Child { low: pc | words << 47, high: (words >> 17) << (2 * INDEX_BITS) | (outer as u64) << INDEX_BITS }
}

#[inline(always)]
fn child_hash(key: Child) -> usize {
    let outer = key.high >> INDEX_BITS;
    ((key.low.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize).wrapping_add((outer as usize).wrapping_mul(5))
}
