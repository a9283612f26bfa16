//! Zone-map pruning: none of a zone's rows pass, all of them do, or they must be tested one by one.

use std::ops::Range;

use super::filter::{LifetimeKind, Selection};
use super::scan::Also;
use tracehound_index::Trace;
use tracehound_index::layout::class_floor;
use tracehound_index::zones::{Zone, site_bit, thread_bit};

/// See the module's description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZoneMatch {
    /// No row passes.
    None,
    /// Every row passes.
    All,
    /// Some may.
    Ask,
}

impl ZoneMatch {
    const fn of(none: bool, all: bool) -> Self {
        if none {
            Self::None
        } else if all {
            Self::All
        } else {
            Self::Ask
        }
    }

    /// Both conditions must hold.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, _) | (_, Self::None) => Self::None,
            (Self::All, Self::All) => Self::All,
            _ => Self::Ask,
        }
    }
}

/// Combined result for rows that lie in several runs.
fn together(verdicts: impl Iterator<Item = ZoneMatch>) -> ZoneMatch {
    verdicts.reduce(|a, b| if a == b { a } else { ZoneMatch::Ask }).unwrap_or(ZoneMatch::Ask)
}

/// Bits of threads or sites: of some that pass, and of those that all pass.
#[derive(Debug, Clone, Copy)]
struct Bits {
    some: u64,
    all: u64,
}

impl Bits {
    fn new(passes: &[bool], bit: impl Fn(u32) -> u64) -> Self {
        let bits = |wanted: bool| {
            (0..).zip(passes).filter(|(_, passes)| **passes == wanted).fold(0, |bits, (at, _)| bits | bit(at))
        };
        Self { some: bits(true), all: !bits(false) }
    }

    const fn verdict(self, present: u64) -> ZoneMatch {
        ZoneMatch::of(present & self.some == 0, present & !self.all == 0)
    }
}

/// Classes of lifetimes: those of which some lives pass, and those of which all do.
#[derive(Debug)]
struct Lives {
    some: u128,
    all: u128,
    kind: Option<LifetimeKind>,
    /// Rows of allocations that pass if they live.
    live: Range<u64>,
}

impl Lives {
    fn new(s: &Selection, live: Range<u64>) -> Self {
        let (mut some, mut all) = (0, 0);
        for class in 0..127_u8 {
            let (least, most) = (class_floor(class), if class < 126 { class_floor(class + 1) - 1 } else { u64::MAX });
            some |= u128::from(least <= s.max_lifetime && most >= s.min_lifetime) << class;
            all |= u128::from(least >= s.min_lifetime && most <= s.max_lifetime) << class;
        }
        Self { some, all, kind: s.lifetime, live }
    }

    /// Of the rows that were freed.
    fn dead(&self, zone: &Zone) -> ZoneMatch {
        let kind = match self.kind {
            None | Some(LifetimeKind::Freed) => ZoneMatch::All,
            Some(LifetimeKind::Leaked) => ZoneMatch::None,
            Some(LifetimeKind::Temporary) => ZoneMatch::of(zone.temporary == 0, zone.temporary == zone.freed),
        };
        kind.and(ZoneMatch::of(zone.classes & self.some == 0, zone.classes & !self.all == 0))
    }

    /// Of allocations.
    fn allocs(&self, rows: &Range<u64>, zone: &Zone) -> ZoneMatch {
        let living = ZoneMatch::of(
            rows.end <= self.live.start || rows.start >= self.live.end,
            self.live.start <= rows.start && rows.end <= self.live.end,
        );
        let dead = self.dead(zone);
        match u64::from(zone.freed) {
            0 => living,
            freed if freed == rows.end - rows.start => dead,
            _ if living == dead => dead,
            _ => ZoneMatch::Ask,
        }
    }
}

/// A selection, as far as zone maps cover it.
#[derive(Debug)]
pub struct ZonePruning {
    sizes: (u64, u64),
    threads: Option<Bits>,
    sites: Option<Bits>,
    lives: Option<Lives>,
}

impl ZonePruning {
    /// `live`: rows of allocations that pass the condition on lifetimes if they live; `None` without one.
    #[must_use]
    pub fn new(s: &Selection, live: Option<Range<u64>>) -> Self {
        Self {
            sizes: (s.min_size, s.max_size),
            threads: s.threads.as_ref().map(|passes| Bits::new(passes, thread_bit)),
            sites: s.sites.as_ref().map(|passes| Bits::new(passes, site_bit)),
            lives: live.map(|live| Lives::new(s, live)),
        }
    }

    fn block(&self, zone: &Zone) -> ZoneMatch {
        let (min, max) = self.sizes;
        let sizes =
            ZoneMatch::of(zone.max_size < min || zone.min_size > max, zone.min_size >= min && zone.max_size <= max);
        let threads = self.threads.map_or(ZoneMatch::All, |bits| bits.verdict(zone.threads));
        let sites = self.sites.map_or(ZoneMatch::All, |bits| bits.verdict(zone.sites));
        sizes.and(threads).and(sites)
    }

    /// Of allocations `from..to`.
    #[must_use]
    pub fn allocs(&self, trace: &Trace, from: u64, to: u64) -> ZoneMatch {
        together(trace.ledgers().alloc_zones.touching(from, to).map(|(rows, zone)| {
            let lives = self.lives.as_ref().map_or(ZoneMatch::All, |lives| lives.allocs(&rows, &zone));
            self.block(&zone).and(lives)
        }))
    }

    /// Of the allocations of frees `from..to`.
    #[must_use]
    pub fn frees(&self, trace: &Trace, from: u64, to: u64) -> ZoneMatch {
        together(trace.ledgers().free_zones.touching(from, to).map(|(_, zone)| {
            let lives = self.lives.as_ref().map_or(ZoneMatch::All, |lives| lives.dead(&zone));
            self.block(&zone).and(lives)
        }))
    }
}

impl Also {
    /// Of allocations `from..to`.
    #[must_use]
    pub fn verdict(&self, trace: &Trace, from: u64, to: u64) -> ZoneMatch {
        if matches!(self, Self::Nothing) {
            return ZoneMatch::All;
        }
        together(trace.ledgers().alloc_zones.touching(from, to).map(|(rows, zone)| {
            let all_freed = u64::from(zone.freed) == rows.end - rows.start;
            let (first, end) = (zone.first, zone.end);
            match self {
                Self::Nothing => ZoneMatch::All,
                Self::LiveAt(place) => ZoneMatch::of(all_freed && end <= *place, zone.freed == 0 || first >= *place),
                Self::Temporary => {
                    ZoneMatch::of(zone.temporary == 0, u64::from(zone.temporary) == rows.end - rows.start)
                }
                Self::Freed(ordinals) => ZoneMatch::of(
                    zone.freed == 0 || end <= ordinals.start || first >= ordinals.end,
                    all_freed && ordinals.start <= first && end <= ordinals.end,
                ),
            }
        }))
    }
}
