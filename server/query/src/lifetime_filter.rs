//! Conditions on lifetimes: uses the stored lifetime class, and the exact times only in a class that a bound divides.

use std::ops::Range;

use super::filter::{LifetimeKind, Selection};
use tracehound_index::Trace;
use tracehound_index::layout::{CLASS_BITS, TEMPORARY_BIT, class_floor};

/// Lifetimes that pass.
#[derive(Debug)]
pub(super) struct LifetimeFilter {
    /// By class of a freed block: [`NO`], [`YES`], or [`ASK`] where the exact lifetime must be compared.
    by_class: [u8; 256],
    /// Rows that pass if they live.
    pub(super) live: Range<u64>,
    bounds: (u64, u64),
}

const NO: u8 = 0;
const YES: u8 = 1;
/// A bound cuts through the class.
const ASK: u8 = 2;

impl LifetimeFilter {
    pub(super) fn new(trace: &Trace, s: &Selection) -> Self {
        let mut by_class = [NO; 256];
        for (lifetime_class, verdict) in (0..=u8::MAX).zip(&mut by_class) {
            let kind_passes = match s.lifetime {
                None | Some(LifetimeKind::Freed) => true,
                Some(LifetimeKind::Temporary) => lifetime_class & TEMPORARY_BIT != 0,
                Some(LifetimeKind::Leaked) => false,
            };
            let class = (lifetime_class & CLASS_BITS).max(1) - 1;
            let (least, most) = (class_floor(class), class_floor(class + 1) - 1);
            *verdict = if !kind_passes {
                NO
            } else if s.min_lifetime == 0 && s.max_lifetime == u64::MAX {
                YES
            } else if class >= 126 {
                ASK
            } else if least >= s.min_lifetime && most <= s.max_lifetime {
                YES
            } else if most < s.min_lifetime || least > s.max_lifetime {
                NO
            } else {
                ASK
            };
        }
        // Blocks that live are the older the earlier their row.
        let live = if matches!(s.lifetime, Some(LifetimeKind::Freed | LifetimeKind::Temporary)) {
            0..0
        } else {
            let end = trace.duration_ns();
            let allocated_by =
                |age: u64| end.checked_sub(age).map_or(0, |t| trace.position_before(t.saturating_add(1)).allocs);
            let from = if s.max_lifetime < end { trace.position_before(end - s.max_lifetime).allocs } else { 0 };
            from..allocated_by(s.min_lifetime)
        };
        Self { by_class, live, bounds: (s.min_lifetime, s.max_lifetime) }
    }

    #[inline]
    pub(super) fn passes(&self, trace: &Trace, row: u64, link: u32, lifetime_class: u8) -> bool {
        // Frees behind the snapshot may be in the ledger already.
        let ordinal = trace.free_behind(row, link);
        if ordinal >= trace.free_count() {
            return self.live.contains(&row);
        }
        match self.by_class[lifetime_class as usize] {
            ASK => self.asks(trace, row, ordinal),
            verdict => verdict == YES,
        }
    }

    fn asks(&self, trace: &Trace, row: u64, ordinal: u64) -> bool {
        let lifetime = trace.died_ns(ordinal).saturating_sub(trace.born_ns(row));
        (self.bounds.0..=self.bounds.1).contains(&lifetime)
    }
}
