//! Links between an allocation and its free: the distance of their numbers, in four bytes each, for any number of
//! events.
//!
//! ```text
//! code        0 none   1 far: the number is stored elsewhere   else the distance, as if signed, top bit flipped
//! far ones    of frees  two sorted columns, far_free and far_row
//!             of allocations  alloc_far, a column of 8 bytes each with room on the disk only where one is far
//! ```
//! Only a block that lived through 2^31 events or more is far: a recording that has fewer has none.

use super::Trace;

/// No link: the block lives.
pub const NONE: u32 = 0;
/// The other event is too far away for a code.
pub const FAR: u32 = 1;
/// Largest distance that has a code.
pub const REACH: u64 = (1 << 31) - 2;

const SIGN: u32 = 1 << 31;

/// Code of the link from number `from` to number `to`; [`FAR`] when they are more than `reach` apart.
#[inline]
#[must_use]
pub const fn code(from: u64, to: u64, reach: u64) -> u32 {
    let distance = to.wrapping_sub(from);
    let reach = if reach < REACH { reach } else { REACH };
    if (distance as i64).unsigned_abs() <= reach { distance as u32 ^ SIGN } else { FAR }
}

/// The number that a code other than [`NONE`] and [`FAR`] links `from` to.
#[inline]
#[must_use]
pub const fn near(from: u64, code: u32) -> u64 {
    from.wrapping_add((code ^ SIGN) as i32 as i64 as u64)
}

/// The largest number: no row, no free.
pub const NOTHING: u64 = u64::MAX;

impl Trace {
    /// Ordinal of the free that the code of allocation `row` links to; [`NOTHING`] when the block lives. Frees behind
    /// the snapshot may be in the ledger already.
    #[inline]
    #[must_use]
    pub fn free_behind(&self, row: u64, code: u32) -> u64 {
        match code {
            NONE => NOTHING,
            FAR => self.far_free(row),
            near_one => near(row, near_one),
        }
    }

    /// Ordinal of the free of an allocation that is far from it.
    #[cold]
    pub(crate) fn far_free(&self, row: u64) -> u64 {
        // Zero: the free was stored after the snapshot was made.
        self.ledgers().far.get(row as usize).wrapping_sub(1)
    }

    /// Row of the allocation that the code of free `ordinal` links to.
    #[inline]
    #[must_use]
    pub fn alloc_behind(&self, ordinal: u64, code: u32) -> u64 {
        match code {
            NONE => NOTHING,
            FAR => self.far_alloc(ordinal),
            near_one => near(ordinal, near_one),
        }
    }

    #[cold]
    fn far_alloc(&self, ordinal: u64) -> u64 {
        let c = self.columns();
        let at = c.far_free.binary_search(&ordinal).ok();
        at.and_then(|at| c.far_row.get(at).copied()).unwrap_or(NOTHING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn codes_lead_where_they_came_from(from in 0..1_u64 << 40, to in 0..1_u64 << 40, near_by in -REACH_I..=REACH_I) {
            for to in [to, from.saturating_add_signed(near_by)] {
                let code = code(from, to, REACH);
                prop_assert_ne!(code, NONE);
                prop_assert_eq!(code == FAR, from.abs_diff(to) > REACH);
                prop_assert!(code == FAR || near(from, code) == to);
            }
        }
    }

    const REACH_I: i64 = REACH as i64;

    #[test]
    fn the_ends_of_the_reach() {
        for (from, to) in [(0, REACH), (REACH, 0), (u64::MAX / 2, u64::MAX / 2), (1 << 32, (1 << 32) + REACH)] {
            assert_eq!(near(from, code(from, to, u64::MAX)), to);
        }
        assert_eq!((code(0, REACH + 1, u64::MAX), code(REACH + 1, 0, u64::MAX)), (FAR, FAR));
        assert_eq!((code(5, 8, 2), code(8, 5, 2), near(5, code(5, 7, 2))), (FAR, FAR, 7));
    }
}
