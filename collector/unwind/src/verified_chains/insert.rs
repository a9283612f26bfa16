//! Insertion into the verified-chain table: a frame that a walk has found becomes one record for each of its reads,
//! linked to the records of its caller.

use super::chain_record::{ChainRecord, Marks, RecordOrigin, RecordSummary, StackCheck, ZERO};
use super::{VerifiedChains, ucontext};
use crate::address::{self, BITS, STACK_SHIFT};
use crate::hotspot::{self, InterpretedFrame};
use crate::memory::Array;
use crate::rule::{Rule, RuleKind};
use crate::{JAVA, flags_inside};
use tracehound_shared::call_tree::CallTree;
use tracehound_shared::code;
use tracehound_shared::hotspot::{BYTECODE_SLOT, METHOD_SLOT};

/// `key` is exact: pc in 47 bits, sp / 8 (or 16) in 44, the outer record in 18; the record fills the other 18.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Child {
    low: u64,
    high: u64,
}

impl Child {
    /// Index of the record, 0 for an empty place.
    pub(super) fn record(self) -> usize {
        (self.high & INDEX_MASK) as usize
    }
}

/// A frame to be inserted into the verified-chain table.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WalkedFrame {
    pub pc: u64,
    pub sp: u64,
    pub rbp: u64,
    pub rule: Rule,
    /// Flags of [`Captured`] that this frame adds.
    pub flags: u8,
    /// It is an interpreted frame of Java that says which method it runs.
    pub has_method: bool,
}

impl WalkedFrame {
    /// The canonical frame address of a frame that is called from one with this stack pointer.
    pub fn cfa(&self, outer_sp: u64) -> u64 {
        self.rule.cfa(self.rbp, outer_sp)
    }
}

pub(super) const INDEX_BITS: u32 = 18;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;
/// Records one frame may need. One that says which method it runs may need twice as many.
pub(super) const MAX_PARTS: usize = 3;
const MAX_CHECKS: usize = 2 + MAX_PARTS;
const _: () = assert!(MAX_CHECKS <= 2 * MAX_PARTS);

const _: () = assert!(size_of::<Child>() == 16);

impl VerifiedChains {
    /// The record of frame `frame` called from the frame of record `outer`; made if it is new. There must be
    /// room for it. `method` is what the frame says of its method, if it does.
    ///
    /// # Safety
    /// `outer` must be a record of this verified-chain table, first of its frame, and `frame` a frame that its state
    /// calls.
    pub unsafe fn insert(
        &mut self,
        outer: *mut ChainRecord,
        frame: &WalkedFrame,
        method: Option<InterpretedFrame>,
        tree: &CallTree,
    ) -> *mut ChainRecord {
        // SAFETY: `outer` is a record of this table: the contract of `insert`.
        let outer_index = unsafe { self.index(outer) } as usize;
        let key = key(frame.pc, frame.sp, outer_index);
        // Of the outermost frame no word is compared.
        let method = method.filter(|_| outer_index != 0);
        // Where rbp does not follow from (outer, pc, sp), it must be compared as well.
        let picky = outer_index == 0
            || frame.rule.kind() == RuleKind::Drap
            || cfg!(target_arch = "aarch64") && frame.rule == Rule::FRAME_POINTER;
        let mut place = child_hash(key) & self.child_mask;
        loop {
            // SAFETY: the mask keeps `place` inside the table.
            let child = unsafe { *self.children.as_ptr().add(place) };
            let index = child.record();
            if index == 0 {
                break;
            }
            if child.low == key.low && child.high & !INDEX_MASK == key.high {
                // SAFETY: children name records that exist.
                let (record, origin) = unsafe {
                    let record = self.records.as_ptr().add(index);
                    (record, self.origin(record))
                };
                // In a JIT compiler's cache, other code than before may be at this PC.
                let is_same_rule = frame.flags & JAVA == 0 || origin.rule == frame.rule;
                // Frames that a walk takes over need not have the flag.
                // SAFETY: the same record.
                let is_same_code = is_same_rule
                    && unsafe { !frame.has_method && !self.has_method(record) || self.method_of(record) == method };
                if is_same_code && (!picky || !origin.has(Marks::NEEDS_RBP) || origin.rbp == frame.rbp) {
                    return record;
                }
            }
            place = (place + 1) & self.child_mask;
        }
        // SAFETY: the loop has ended at a free place; the rest is the contract of `insert`.
        unsafe { self.create(outer, frame, method, ChildPlace { key, place }, tree) }
    }

    /// Makes the record of a frame, which belongs at `place` of the children.
    ///
    /// # Safety
    /// As for [`insert`](Self::insert); the place must be a free one of the table of children.
    #[cold]
    unsafe fn create(
        &mut self,
        outer: *mut ChainRecord,
        frame: &WalkedFrame,
        method: Option<InterpretedFrame>,
        ChildPlace { key, place }: ChildPlace,
        tree: &CallTree,
    ) -> *mut ChainRecord {
        self.regions.add(frame.pc.wrapping_sub(1));
        let terminal = outer == self.root();
        // SAFETY: `outer` is a record of this table: the contract of `create`.
        let (outer_origin, outer_captured) = unsafe { (*self.origin(outer), self.captured(outer)) };
        let named = method.and_then(|method| method.named);
        let node = match named.map(|named| named.pc).or_else(|| hotspot::frames_in_heap(frame)) {
            Some(pc) => tree.intern(outer_captured.node, pc, 0),
            None => tree.intern(outer_captured.node, frame.pc, code::generation_of(frame.pc)),
        };
        let flags = flags_inside(outer_captured.flags, frame.flags);
        let kind = frame.rule.kind();
        let outer_needs = outer_origin.has(Marks::NEEDS_RBP);
        let mut needs = match kind {
            RuleKind::Frame | RuleKind::Drap => true,
            RuleKind::Signal => false,
            _ => frame.rule.m() == 0 && outer_needs,
        };
        let mut checks = [StackCheck { slot: &raw const ZERO as u64, value: 0 }; MAX_CHECKS];
        let mut count = 0;
        let mut check = |slot: u64, value: u64| {
            if let Some(check) = checks.get_mut(count) {
                *check = StackCheck { slot, value };
                count += 1;
            }
        };
        if terminal {
            // The chain ends here because of the PC alone, or because rbp led to no frame.
            needs = kind != RuleKind::End && kind != RuleKind::Sp;
            check(&raw const ZERO as u64, 0);
        } else {
            if let Some(method) = method {
                check(frame.rbp.wrapping_sub(METHOD_SLOT), method.method);
                if let Some(bytecode) = method.bytecode {
                    check(frame.rbp.wrapping_sub(BYTECODE_SLOT), bytecode);
                }
            }
            match kind {
                RuleKind::Drap => {
                    check(frame.rbp.wrapping_sub(frame.rule.n()), outer_origin.sp);
                    check(frame.rule.drap_return_slot(frame.rbp, outer_origin.sp), outer_origin.pc);
                    if outer_needs {
                        check(frame.rbp, outer_origin.rbp);
                    }
                }
                RuleKind::Signal => {
                    check(frame.sp + ucontext::RSP, outer_origin.sp);
                    check(frame.sp + ucontext::RIP, outer_origin.pc.wrapping_sub(1));
                    if outer_needs {
                        check(frame.sp + ucontext::RBP, outer_origin.rbp);
                    }
                }
                _ => {
                    let cfa = frame.cfa(outer_origin.sp);
                    check(frame.rule.return_slot(cfa), outer_origin.pc);
                    if outer_needs && frame.rule.m() != 0 {
                        check(cfa - frame.rule.m(), outer_origin.rbp);
                    }
                }
            }
        }
        let mut inner = outer;
        for (part, check) in checks.iter().enumerate().take(count).rev() {
            let one = inner;
            // SAFETY: `inner` is `outer`, a record of this table, or the one that was made last; links lead to others of it.
            let (two, outer3) = unsafe {
                let two = self.outer(one);
                (two, self.outer(two))
            };
            let index = self.count;
            self.count += 1;
            let mut marks = if needs { Marks::NEEDS_RBP } else { 0 };
            if part > 0 {
                marks |= Marks::PART;
            }
            let (mut pc, mut rbp, mut rule) = (frame.pc, frame.rbp, frame.rule);
            if let Some(method) = method {
                match part {
                    0 if method.bytecode.is_some() => marks |= Marks::METHOD | Marks::BYTECODE,
                    0 => marks |= Marks::METHOD,
                    1 => {
                        rule = Rule(0);
                        (pc, rbp) = named.map_or((0, 0), |named| (named.pc, named.name.to_word()));
                    }
                    _ => {}
                }
            }
            // SAFETY: the caller made room for MAX_PARTS records and origins, and `one`, `two` are records.
            unsafe {
                let steps = if terminal { 0 } else { (*one).summary.checks() as usize + 1 };
                let record = self.records.as_ptr().add(index);
                record.write(ChainRecord {
                    checks: [*check, (*one).checks[0], (*two).checks[0]],
                    outer3,
                    summary: RecordSummary::new(node, flags, steps),
                });
                self.origins.as_ptr().add(index).write(RecordOrigin {
                    pc,
                    sp: frame.sp,
                    rbp,
                    link: self.index(one) | u32::from(marks) << 24,
                    rule,
                });
                inner = record;
            }
        }
        // SAFETY: `inner` is the record that was made last; `place` is a free place of the children: the contract of
        // `create`.
        unsafe {
            let child = Child { low: key.low, high: key.high | u64::from(self.index(inner)) };
            *self.children.as_ptr().add(place) = child;
        }
        inner
    }
}

/// A key, and the free place where it belongs.
struct ChildPlace {
    key: Child,
    place: usize,
}

/// The empty place of the table where `child` belongs.
///
/// # Safety
/// The table's length must be a power of two, and half of its places or more must be empty.
pub(super) unsafe fn free_place(table: &Array<Child>, child: Child) -> usize {
    let mask = table.len() - 1;
    let mut place = child_hash(Child { low: child.low, high: child.high & !INDEX_MASK }) & mask;
    loop {
        // SAFETY: the mask keeps `place` inside the table: the contract of `free_place`.
        if unsafe { *table.as_ptr().add(place) }.record() == 0 {
            return place;
        }
        place = (place + 1) & mask;
    }
}

/// Whether a state can be a key: its numbers fit, and its sp is aligned.
pub fn is_insertable(pc: u64, sp: u64) -> bool {
    address::pack(pc) < 1 << 47 && sp < 1 << BITS && sp & ((1 << STACK_SHIFT) - 1) == 0
}

fn key(pc: u64, sp: u64, outer: usize) -> Child {
    let words = sp >> STACK_SHIFT;
    Child {
        low: address::pack(pc) | words << 47,
        high: (words >> 17) << (2 * INDEX_BITS) | (outer as u64) << INDEX_BITS,
    }
}

#[inline(always)]
fn child_hash(key: Child) -> usize {
    let outer = key.high >> INDEX_BITS;
    ((key.low.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize).wrapping_add((outer as usize).wrapping_mul(5))
}
