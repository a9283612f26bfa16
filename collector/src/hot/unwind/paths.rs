//! Chains that come again and again, each laid out in one piece.
//!
//! A chain of records shares its outer part with others, so it is followed link by link, and each link is a load that
//! waits for the one before. A path is a copy of one chain for one state, without links: the processor has all its
//! loads under way at once. Only states that keep coming back get one.
//!
//! ```text
//! path   summary, record, word, word, word …   a word for each check; the last is repeated up to a multiple of four
//! word   value << 17 | (slot - sp) / 8         sp: that of the state that the chain begins with
//! ```

use super::forest::{Check, Record, Summary};
use super::memory::Array;

const HEADER: usize = 2;
const STEP: usize = 4;
const OFFSET_BITS: u32 = 17;
const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;
const FIRST_PATIENCE: u32 = 2;
const MAX_PATIENCE: u32 = 32;

/// The paths of one thread.
pub struct Paths {
    words: Array<u64>,
    used: usize,
    /// How often a state must have come before it gets a path.
    pub patience: u32,
}

/// Why there is no path.
pub enum Refusal {
    /// The memory for paths is used up: all of them must be dropped first.
    Full,
    /// The chain cannot be written as a path: it is too long, or a slot or a value is out of range.
    Unfit,
}

impl Paths {
    /// Room for paths of `bytes` together; `None` when the kernel has no memory.
    pub fn new(bytes: usize) -> Option<Paths> {
        Some(Paths { words: Array::new(bytes / size_of::<u64>())?, used: STEP, patience: FIRST_PATIENCE })
    }

    /// The path with a number that [`lay`](Self::lay) gave since the last [`clear`](Self::clear).
    #[inline(always)]
    pub fn at(&self, number: u32) -> *const u64 {
        self.words.as_ptr().wrapping_add(number as usize)
    }

    /// Drops all paths.
    pub fn clear(&mut self) {
        self.used = STEP;
    }

    /// Drops all paths because they do not fit, and asks more of those that come.
    pub fn start_again(&mut self) {
        self.clear();
        self.patience = (self.patience * 2).min(MAX_PATIENCE);
    }

    /// Lays out the chain of `record`, whose checks `next` gives from the inside out, for a state with this sp.
    /// Gives the path's number, never zero.
    pub fn lay(
        &mut self,
        record: *mut Record,
        summary: Summary,
        sp: u64,
        mut next: impl FnMut() -> Check,
    ) -> Result<u32, Refusal> {
        let checks = summary.checks() as usize;
        let len = HEADER + checks.next_multiple_of(STEP);
        if len > self.words.len() / 8 {
            return Err(Refusal::Unfit);
        }
        // All paths begin at a multiple of four words, half a cache line.
        let end = (self.used + len).next_multiple_of(STEP);
        if end > self.words.len() {
            return Err(Refusal::Full);
        }
        let path = self.words.as_ptr().wrapping_add(self.used);
        let mut word = 0;
        for index in 0..len - HEADER {
            if index < checks {
                let check = next();
                let offset = check.slot.wrapping_sub(sp);
                if offset & 7 != 0 || offset >> 3 > OFFSET_MASK || check.value >> (64 - OFFSET_BITS) != 0 {
                    return Err(Refusal::Unfit);
                }
                word = check.value << OFFSET_BITS | offset >> 3;
            }
            // SAFETY: the path ends before `end`, which lies in the array.
            unsafe { path.add(HEADER + index).write(word) };
        }
        // SAFETY: as above.
        unsafe {
            path.write(summary.0);
            path.add(1).write(record as u64);
        }
        let number = self.used as u32;
        self.used = end;
        Ok(number)
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.words.bytes()
    }

    /// # Safety
    /// The paths must not be used afterwards.
    pub unsafe fn release(&mut self) {
        // SAFETY: by the contract above.
        unsafe { self.words.release() };
    }
}

/// Compares the path's words, inside out; gives the summary and the record of its chain if all are right.
///
/// # Safety
/// The running thread must be in the state that the path was laid for, with this sp. Each word is then loaded only
/// after all before it were right, as in a chain.
#[inline(always)]
pub unsafe fn verify(path: *const u64, sp: u64) -> Option<(Summary, *mut Record)> {
    // SAFETY: paths are as `lay` wrote them; slots are readable by the induction that chains stand on.
    unsafe {
        let holds = |word: u64| {
            let slot = sp.wrapping_add((word & OFFSET_MASK) << 3) as *const u64;
            slot.read_volatile() == word >> OFFSET_BITS
        };
        let summary = Summary(path.read());
        let mut at = path.add(HEADER);
        let mut left = summary.checks();
        while left > 0 {
            if !(holds(at.read()) && holds(at.add(1).read()) && holds(at.add(2).read()) && holds(at.add(3).read())) {
                return None;
            }
            at = at.add(STEP);
            left -= STEP as i32;
        }
        Some((summary, path.add(1).read() as *mut Record))
    }
}
