//! A forest of verified chains: what one thread remembers of the stacks it has seen.
//!
//! ```text
//! top table   (pc, sp, rbp) ──▶ record            the state of a caller seen before
//! record      check, check, check, ──▶ record     this frame's read and those of the two frames outside
//!             node, flags, number of checks       the answer, if all checks up to the root hold
//! origin      pc, sp, rbp, rule, ──▶ outer record the state the record stands for (cold)
//! children    (outer record, pc, sp) ──▶ record   finds the record of a frame again (cold)
//! path        all checks of a chain in one piece  for states that keep coming back, see [`super::paths`]
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

use core::ops::Range;

use super::memory::{Array, SignalsBlocked, bytes_of};
use super::paths::{self, Paths, Refusal};
use super::rule::{Kind, Rule};
use super::walk::State;
use super::{Captured, budget};
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
const _: () = assert!(size_of::<Top>() == 32);
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

/// A caller's state and the record that begins with it.
#[repr(C, align(32))]
#[derive(Clone, Copy)]
struct Top {
    pc: u64,
    sp: u64,
    rbp: u64,
    link: Link,
    /// Number of the state's path; 0: none.
    path: u32,
}

/// `rbp matters: 1 | times seen, while there is no path: 13 | record: 18`
#[derive(Clone, Copy)]
struct Link(i32);

impl Link {
    const SEEN: i32 = 1 << INDEX_BITS;
    const MAX_SEEN: u32 = (1 << (31 - INDEX_BITS)) - 1;

    fn new(record: usize, rbp_matters: bool) -> Link {
        Link((record as u32 & INDEX_MASK as u32 | u32::from(rbp_matters) << 31) as i32)
    }

    #[inline(always)]
    fn record(self) -> usize {
        (self.0 as u64 & INDEX_MASK) as usize
    }

    /// All ones where rbp must be equal, zero where it does not matter.
    #[inline(always)]
    fn rbp_mask(self) -> u64 {
        i64::from(self.0 >> 31) as u64
    }

    fn seen(self) -> u32 {
        (self.0 as u32 & i32::MAX as u32) >> INDEX_BITS
    }

    fn see(&mut self) {
        if self.seen() < Self::MAX_SEEN {
            self.0 += Self::SEEN;
        }
    }

    fn forget_seen(&mut self) {
        self.0 &= i32::MIN | INDEX_MASK as i32;
    }
}

impl Top {
    const EMPTY: Top = Top { pc: 0, sp: 0, rbp: 0, link: Link(0), path: 0 };

    #[inline(always)]
    fn is_for(&self, pc: u64, sp: u64, rbp: u64) -> bool {
        (self.pc ^ pc) | (self.sp ^ sp) | ((self.rbp ^ rbp) & self.link.rbp_mask()) == 0
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
const FIRST_SETS: usize = 256;
const FIRST_CHILDREN: usize = 1024;
const MAX_SETS: usize = 1 << 14;
const WAYS: usize = 2;
const FIRST_PATH_BYTES: usize = 64 << 10;
const MAX_PATH_BYTES: usize = 1 << 20;
const PATH_BYTES_A_RECORD: usize = 32;
const SET_BYTES: usize = WAYS * size_of::<Top>();
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

/// The records of one thread.
pub struct Forest {
    /// The epoch the records were made in; zero: none are of use.
    epoch: u32,
    top_mask: usize,
    top: Array<[Top; WAYS]>,
    records: Array<Record>,
    /// The record of the last event, where the next one most likely joins.
    previous: *mut Record,
    origins: Array<Origin>,
    count: usize,
    children: Array<Child>,
    child_mask: usize,
    paths: Paths,
    /// Where the code lies that the records are about.
    regions: Regions,
    /// Bytes taken from the process-wide budget.
    budgeted: usize,
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
            epoch: 0,
            top_mask: (FIRST_SETS - 1) * SET_BYTES,
            top: Array::new(FIRST_SETS)?,
            records: Array::new(FIRST_RECORDS)?,
            previous: core::ptr::null_mut(),
            origins: Array::new(FIRST_RECORDS)?,
            count: 0,
            children: Array::new(FIRST_CHILDREN)?,
            child_mask: FIRST_CHILDREN - 1,
            paths: Paths::new(FIRST_PATH_BYTES)?,
            regions: Regions::new(),
            budgeted: 0,
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
        self.previous = root;
    }

    /// The answer for a caller's state, if its stack was the last one seen in that state and still stands.
    ///
    /// # Safety
    /// The state must be that of the running thread, in a function that has not returned.
    #[inline(always)]
    pub unsafe fn recall(&mut self, pc: u64, sp: u64, rbp: u64) -> Option<Captured> {
        if self.epoch != code::epoch() {
            return None;
        }
        let entry = self.set_of(pc, sp);
        // SAFETY: the entry lies in the table; its path was laid for its state, which is the caller's.
        unsafe {
            if !(*entry).is_for(pc, sp, rbp) || (*entry).path == 0 {
                return self.recall_uncommon(entry, pc, sp, rbp);
            }
            self.recall_path((*entry).path, sp)
        }
    }

    /// As [`recall`](Self::recall), for states without a path and for those in the second place of their set.
    #[inline(never)]
    unsafe fn recall_uncommon(&mut self, set: *mut Top, pc: u64, sp: u64, rbp: u64) -> Option<Captured> {
        // SAFETY: as the caller promises; a set has two entries.
        unsafe {
            let entry = if (*set).is_for(pc, sp, rbp) { set } else { set.add(1) };
            self.recall_entry(entry, pc, sp, rbp)
        }
    }

    /// The answer for a caller's state that [`recall`](Self::recall) did not have, if its stack was the one before
    /// the last and still stands.
    ///
    /// # Safety
    /// As for [`recall`](Self::recall).
    pub unsafe fn recall_older(&mut self, pc: u64, sp: u64, rbp: u64) -> Option<Captured> {
        if self.epoch != code::epoch() {
            return None;
        }
        let set = self.set_of(pc, sp);
        // SAFETY: a set has two entries; the state is as the caller promises.
        unsafe {
            let captured = self.recall_entry(set.add(1), pc, sp, rbp)?;
            core::ptr::swap(set, set.add(1));
            Some(captured)
        }
    }

    #[inline(always)]
    unsafe fn recall_entry(&mut self, entry: *mut Top, pc: u64, sp: u64, rbp: u64) -> Option<Captured> {
        // SAFETY: as the caller promises.
        unsafe {
            if !(*entry).is_for(pc, sp, rbp) {
                return None;
            }
            if (*entry).path != 0 {
                return self.recall_path((*entry).path, sp);
            }
            // Entries name records that exist; an empty one has pc 0, which no caller has.
            let record = self.records.as_ptr().add((*entry).link.record());
            let summary = verify(record)?;
            self.previous = record;
            (*entry).link.see();
            if (*entry).link.seen() == self.paths.patience {
                self.lay_path(entry, record, summary);
            }
            Some(summary.captured())
        }
    }

    #[inline(always)]
    unsafe fn recall_path(&mut self, path: u32, sp: u64) -> Option<Captured> {
        // SAFETY: as the caller promises.
        let (summary, record) = unsafe { paths::verify(self.paths.at(path), sp) }?;
        self.previous = record;
        Some(summary.captured())
    }

    /// Gives the state of `entry` a path.
    #[cold]
    #[inline(never)]
    unsafe fn lay_path(&mut self, entry: *mut Top, record: *mut Record, summary: Summary) {
        let (records, origins) = (self.records.as_ptr(), self.origins.as_ptr());
        let mut at = record;
        let outwards = || {
            // SAFETY: links name records that exist, and origins run in step with records.
            unsafe {
                let check = (*at).checks[0];
                at = records.add((*origins.offset(at.offset_from(records))).outer());
                check
            }
        };
        // SAFETY: the entry lies in the table.
        match self.paths.lay(record, summary, unsafe { (*entry).sp }, outwards) {
            // SAFETY: as above.
            Ok(number) => unsafe { (*entry).path = number },
            Err(Refusal::Full) => {
                self.drop_paths();
                self.paths.start_again();
            }
            Err(Refusal::Unfit) => {}
        }
    }

    /// Takes the paths of all states away.
    fn drop_paths(&mut self) {
        for index in 0..self.top.len() * WAYS {
            // SAFETY: the index is below the number of entries.
            let entry = unsafe { &mut *self.top.as_ptr().cast::<Top>().add(index) };
            entry.path = 0;
            entry.link.forget_seen();
        }
        self.paths.clear();
    }

    #[inline(always)]
    fn set_of(&self, pc: u64, sp: u64) -> *mut Top {
        // SAFETY: the mask keeps the offset inside the table, a multiple of a set's size.
        unsafe { self.top.as_ptr().cast::<Top>().byte_add(top_hash(pc, sp) & self.top_mask) }
    }

    /// Drops all records if code changed that some of them are about.
    #[cold]
    pub fn catch_up(&mut self) {
        if self.epoch == code::epoch() {
            return;
        }
        let mut stale = self.epoch == 0;
        let heard = code::changes_after(self.epoch, |range| stale |= self.knows(&range));
        if stale || heard.is_none() {
            self.forget();
        }
        self.epoch = heard.unwrap_or_else(code::epoch);
    }

    /// Whether some record is about code in `range`.
    fn knows(&self, range: &Range<u64>) -> bool {
        self.regions.may_hold(range)
            // SAFETY: origins below `count` are initialised.
            && (1..self.count).any(|index| unsafe {
                range.contains(&(*self.origins.as_ptr().add(index)).pc.wrapping_sub(1))
            })
    }

    /// Drops all records. Node ids stay what they are: they live in the call tree.
    pub fn forget(&mut self) {
        // SAFETY: the tables are zeroed over their whole length; zero is an empty entry in both.
        unsafe {
            self.top.as_ptr().write_bytes(0, self.top.len());
            self.children.as_ptr().write_bytes(0, self.children.len());
        }
        self.paths.clear();
        self.regions.clear();
        self.plant_root();
    }

    #[inline(always)]
    pub fn root(&self) -> *mut Record {
        self.records.as_ptr()
    }

    #[inline(always)]
    pub fn previous(&self) -> *mut Record {
        self.previous
    }

    #[inline(always)]
    fn index(&self, record: *mut Record) -> usize {
        // SAFETY: `record` points into the array, as all record pointers do.
        unsafe { record.offset_from(self.records.as_ptr()) as usize }
    }

    #[inline(always)]
    pub fn origin(&self, record: *mut Record) -> &Origin {
        // SAFETY: origins run in step with records.
        unsafe { &*self.origins.as_ptr().add(self.index(record)) }
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

    pub fn captured(&self, record: *mut Record) -> Captured {
        // SAFETY: record pointers are valid while the forest lives and is not forgotten.
        unsafe { (*record).summary.captured() }
    }

    /// Makes sure that the next `frames` frames can be planted without moving anything. False: it is full,
    /// and has been forgotten if that can help.
    #[cold]
    pub fn make_room(&mut self, frames: usize, tree: &CallTree) -> bool {
        let wanted = frames.saturating_mul(MAX_PARTS).saturating_add(self.count);
        if wanted <= self.records.len() {
            return true;
        }
        if wanted.checked_next_power_of_two().is_some_and(|size| self.enlarge(size, tree).is_some()) {
            return true;
        }
        self.forgotten += 1;
        self.forget();
        let wanted = frames.saturating_mul(MAX_PARTS).saturating_add(1);
        wanted <= self.records.len()
            || wanted.checked_next_power_of_two().is_some_and(|size| self.enlarge(size, tree).is_some())
    }

    pub fn room(&self) -> usize {
        (self.records.len() - self.count) / MAX_PARTS
    }

    fn enlarge(&mut self, records: usize, tree: &CallTree) -> Option<()> {
        let _undisturbed = SignalsBlocked::new();
        if records > MAX_RECORDS {
            return None;
        }
        let sets = (records / 4).clamp(FIRST_SETS, MAX_SETS);
        let children = records * 2;
        let path_bytes = (records * PATH_BYTES_A_RECORD).clamp(FIRST_PATH_BYTES, MAX_PATH_BYTES);
        let bytes = bytes_of::<Record>(records)?
            + bytes_of::<Origin>(records)?
            + bytes_of::<[Top; WAYS]>(sets)?
            + bytes_of::<Child>(children)?
            + path_bytes;
        self.budgeted = budget::resize(self.budgeted, bytes, tree)?;
        // Paths point to records, which move.
        self.drop_paths();
        let mut old_paths = core::mem::replace(&mut self.paths, Paths::new(path_bytes)?);
        // SAFETY: the pointers into the records are rebased below; nothing points into the origins.
        unsafe {
            old_paths.release();
            let before = self.records.as_ptr();
            self.records.grow(records)?;
            self.rebase(before);
            self.origins.grow(records)?;
        }
        let old_children = core::mem::replace(&mut self.children, Array::new(children)?);
        self.child_mask = children - 1;
        for index in 0..old_children.len() {
            // SAFETY: `index` is below the length.
            let child = unsafe { *old_children.as_ptr().add(index) };
            if child.high & INDEX_MASK != 0 {
                let place = self.free_place(child);
                // SAFETY: `free_place` answers with an index in the table.
                unsafe { *self.children.as_ptr().add(place) = child };
            }
        }
        let old_top = core::mem::replace(&mut self.top, Array::new(sets)?);
        self.top_mask = (sets - 1) * SET_BYTES;
        for index in 0..old_top.len() {
            // SAFETY: `index` is below the length.
            for entry in unsafe { *old_top.as_ptr().add(index) }.iter().rev() {
                if entry.pc != 0 {
                    self.remember(*entry);
                }
            }
        }
        // SAFETY: the old tables were replaced above.
        unsafe {
            { old_children }.release();
            { old_top }.release();
        }
        Some(())
    }

    /// After the records moved from `before`: makes their pointers point to the new place.
    fn rebase(&mut self, before: *mut Record) {
        let after = self.records.as_ptr();
        if before == after {
            return;
        }
        let moved = |record: *mut Record| after.wrapping_byte_add((record as usize).wrapping_sub(before as usize));
        for index in 0..self.count {
            // SAFETY: records below `count` are initialised.
            let record = unsafe { &mut *after.add(index) };
            record.outer3 = moved(record.outer3);
        }
        self.previous = moved(self.previous);
    }

    /// The record of frame `frame` called from the frame of record `outer`; made if it is new. There must be
    /// room for it.
    ///
    /// # Safety
    /// `outer` must be a record of this forest, first of its frame, and `frame` a frame that its state calls.
    pub unsafe fn plant(&mut self, outer: *mut Record, frame: &Frame, tree: &CallTree) -> *mut Record {
        let outer_index = self.index(outer);
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
                    link: self.index(one) as u32 | u32::from(marks) << 24,
                    rule: frame.rule,
                });
                inner = record;
            }
        }
        let child = Child { low: key.low, high: key.high | self.index(inner) as u64 };
        // SAFETY: `place` is a free place of the table.
        unsafe { *self.children.as_ptr().add(place) = child };
        inner
    }

    /// Makes `record` the answer for its frame's state, and the place where the next walk joins.
    pub fn crown(&mut self, record: *mut Record, state: State) {
        let link = Link::new(self.index(record), self.needs_rbp(record));
        let entry = Top { pc: state.pc, sp: state.sp, rbp: state.rbp, link, path: 0 };
        self.remember(entry);
        self.previous = record;
    }

    /// Forgets the answer for a state.
    pub fn disown(&mut self, pc: u64, sp: u64) {
        let set = self.set_of(pc, sp);
        // SAFETY: a set has WAYS entries.
        unsafe {
            for way in 0..WAYS {
                let entry = &mut *set.add(way);
                if entry.pc == pc && entry.sp == sp {
                    *entry = Top::EMPTY;
                }
            }
        }
    }

    fn remember(&mut self, entry: Top) {
        let set = self.set_of(entry.pc, entry.sp);
        // SAFETY: a set has WAYS entries.
        unsafe {
            let first = &mut *set;
            if first.link.record() == entry.link.record() && first.sp == entry.sp {
                first.rbp = entry.rbp;
                return;
            }
            *set.add(1) = *set;
            *set = entry;
        }
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
        self.top.bytes() + self.paths.bytes() + self.records.bytes() + self.origins.bytes() + self.children.bytes()
    }

    /// # Safety
    /// The forest must not be used afterwards.
    pub unsafe fn release(&mut self) {
        budget::give_back(self.budgeted);
        // SAFETY: by the contract above.
        unsafe {
            self.top.release();
            self.paths.release();
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
    // SAFETY: as the caller promises.
    unsafe { verify(record).is_some() }
}

#[inline(always)]
unsafe fn verify(record: *mut Record) -> Option<Summary> {
    // SAFETY: links lead to records; slots are readable by the induction described above. Past the root the
    // checks are dummies that always hold.
    unsafe {
        let summary = (*record).summary;
        let mut left = summary.checks();
        let mut at = record;
        while left > 0 {
            let checks = &(*at).checks;
            if load(checks[0].slot) != checks[0].value {
                return None;
            }
            if load(checks[1].slot) != checks[1].value {
                return None;
            }
            if load(checks[2].slot) != checks[2].value {
                return None;
            }
            at = (*at).outer3;
            left -= 3;
        }
        Some(summary)
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

#[inline(always)]
fn top_hash(pc: u64, sp: u64) -> usize {
    ((pc ^ sp.rotate_left(20)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 26) as usize
}
