//! Records of a verified-chain table: what unwinding of one frame reads, and the state that it begins with.

use super::VerifiedChains;
use crate::Captured;
use crate::address::is_same;
use crate::rule::Rule;
use tracehound_shared::call_tree::NodeId;

/// A slot of the stack and its expected word.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct StackCheck {
    pub slot: u64,
    pub value: u64,
}

/// One cache line: three steps of a chain.
#[repr(C, align(64))]
pub struct ChainRecord {
    pub(super) checks: [StackCheck; 3],
    /// The record three links out.
    pub(super) outer3: *mut ChainRecord,
    pub(super) summary: RecordSummary,
}

const _: () = assert!(size_of::<ChainRecord>() == 64);
const _: () = assert!(size_of::<RecordOrigin>() == 32);

/// `node: 32 | flags: 8 | checks up to the root: 24`
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct RecordSummary(pub u64);

impl RecordSummary {
    pub(super) fn new(node: NodeId, flags: u8, checks: usize) -> RecordSummary {
        RecordSummary(u64::from(node.0) | u64::from(flags) << 32 | (checks as u64) << 40)
    }

    /// Checks up to the root.
    #[inline(always)]
    pub fn checks(self) -> i32 {
        (self.0 >> 40) as i32
    }

    #[inline(always)]
    pub(super) fn captured(self) -> Captured {
        Captured { node: NodeId(self.0 as u32), flags: (self.0 >> 32) as u8 }
    }
}

/// The state that a record was made for.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RecordOrigin {
    pub pc: u64,
    pub sp: u64,
    pub rbp: u64,
    /// Index of the outer record, and [`Marks`] in the upper eight bits.
    pub(super) link: u32,
    pub rule: Rule,
}

/// Marks in a record's origin, beside its state.
pub struct Marks;

impl Marks {
    /// Some frame outside computes its CFA from this frame's rbp.
    pub const NEEDS_RBP: u8 = 1;
    /// Not the first record of its frame.
    pub const PART: u8 = 2;
    /// It checks which method an interpreted frame of Java runs. The next record, a part of the same frame, has the method's
    /// name as its origin's rbp and the address that stands for its bytecode as its pc; zeros: it has no name. Its rule is the
    /// count of unloaded classes at which the name was found to be right; 0: none.
    pub const METHOD: u8 = 4;
    /// With [`METHOD`](Self::METHOD): the next record checks the address of the bytecode.
    pub const BYTECODE: u8 = 8;
}

impl RecordOrigin {
    #[inline(always)]
    pub(super) fn outer(&self) -> usize {
        (self.link & 0x00ff_ffff) as usize
    }

    #[inline(always)]
    pub(super) fn has(&self, mark: u8) -> bool {
        (self.link >> 24) as u8 & mark != 0
    }
}

/// What the dummies of the root check.
pub(super) static ZERO: u64 = 0;

#[inline(always)]
unsafe fn load(address: u64) -> u64 {
    // SAFETY: the word is readable: the contract of this function. Volatile: the program's other frames may write here at
    // any time between two events, and the order of loads and comparisons must stay as written.
    unsafe { (address as *const u64).read_volatile() }
}

/// Compares the chain of `record`, innermost check first.
///
/// # Safety
/// `record` must be one of a table. The running thread must be in the state that the chain begins with: then the first word is part of a live
/// frame, and each following one is too, because the comparisons before it held.
#[inline(always)]
pub unsafe fn verify_chain(record: *mut ChainRecord) -> bool {
    // SAFETY: links lead to records; a slot is readable, because all checks before it held, so its frame exists. Past the
    // root the checks are dummies that always hold.
    unsafe {
        let mut left = (*record).summary.checks();
        let mut at = record;
        while left > 0 {
            let checks = &(*at).checks;
            if !is_same(load(checks[0].slot), checks[0].value) {
                return false;
            }
            if !is_same(load(checks[1].slot), checks[1].value) {
                return false;
            }
            if !is_same(load(checks[2].slot), checks[2].value) {
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
/// As for [`verify_chain`]; `record` must be one of the table `chains`.
pub unsafe fn first_failing(chains: &VerifiedChains, record: *mut ChainRecord) -> *mut ChainRecord {
    let mut at = record;
    // SAFETY: `record` is one of the table, and `outer` leads to others of it; a slot is loaded after all checks before it held, so its frame exists.
    unsafe {
        while (*at).summary.checks() > 0 && is_same(load((*at).checks[0].slot), (*at).checks[0].value) {
            at = chains.outer(at);
        }
    }
    at
}
