//! Lossy set of touched address regions: an answer is "certainly not" or "maybe".

use crate::sync::atomic::{AtomicU64, Ordering};
use core::ops::Range;

const WORDS: usize = 64;
const BITS: u64 = WORDS as u64 * 64;
/// 2 MiB to a bit.
const SHIFT: u32 = 21;

/// One bit for each 2 MiB of address space, modulo 8 GiB.
pub struct Regions([AtomicU64; WORDS]);

impl Regions {
    /// Nothing touched.
    pub const fn new() -> Regions {
        Regions([const { AtomicU64::new(0) }; WORDS])
    }

    /// Touches the region of `pc`.
    #[inline(always)]
    pub fn add(&self, pc: u64) {
        let (word, mask) = place(pc >> SHIFT);
        if let Some(word) = self.0.get(word)
            && word.load(Ordering::Relaxed) & mask == 0
        {
            word.fetch_or(mask, Ordering::Relaxed);
        }
    }

    /// Touches the regions of `range`.
    pub fn add_range(&self, range: &Range<u64>) {
        let (first, last) = (range.start >> SHIFT, range.end.saturating_sub(1) >> SHIFT);
        // After so many all bits are set.
        for region in (first..=last).take(BITS as usize) {
            self.add(region << SHIFT);
        }
    }

    /// Whether some address in `range` may have been touched.
    pub fn may_hold(&self, range: &Range<u64>) -> bool {
        let (first, last) = (range.start >> SHIFT, range.end.saturating_sub(1) >> SHIFT);
        if last.saturating_sub(first) >= BITS {
            return true;
        }
        (first..=last).any(|region| {
            let (word, mask) = place(region);
            self.0.get(word).is_some_and(|word| word.load(Ordering::Relaxed) & mask != 0)
        })
    }

    /// Forgets everything.
    pub fn clear(&self) {
        for word in &self.0 {
            word.store(0, Ordering::Relaxed);
        }
    }
}

impl Default for Regions {
    fn default() -> Self {
        Self::new()
    }
}

#[inline(always)]
fn place(region: u64) -> (usize, u64) {
    let bit = region % BITS;
    ((bit / 64) as usize, 1 << (bit % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_denies_what_was_touched() {
        let regions = Regions::new();
        assert!(!regions.may_hold(&(0..(BITS - 1) << SHIFT)));
        regions.add(0x7f12_3456_7890);
        assert!(regions.may_hold(&(0x7f12_3456_7000..0x7f12_3456_8000)));
        assert!(regions.may_hold(&(0..u64::MAX)));
        assert!(!regions.may_hold(&(0x5555_5555_0000..0x5555_5556_0000)));
        regions.clear();
        assert!(!regions.may_hold(&(0..(BITS - 1) << SHIFT)));
    }
}
