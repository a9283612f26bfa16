//! Which allocations pass a selection: one by one, or many at a time, column after column without branches.
//!
//! ```text
//! sizes     codes compared with the bounds; those above 48 KiB looked up
//! origins   looked up in a table: site and thread
//! lifetimes looked up in a table by class of lifetime; exact times only where a bound cuts through a class
//! ```
//! Zone maps decide first which runs of rows need a look: see `zone_pruning`.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use super::filter::{AddressRange, Selection};
use super::lifetime_filter::LifetimeFilter;
use super::sparse_selection::SparseSelection;
use super::zone_pruning::{ZoneMatch, ZonePruning};
use tracehound_index::layout::{TABLE_SIZE, TEMPORARY_BIT};
use tracehound_index::ledger::LedgerCell;
use tracehound_index::{Trace, links};

/// Most rows that are looked at in one go.
pub const BLOCK: usize = 1024;

/// A condition on allocations beside a selection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Also {
    /// None.
    Nothing,
    /// Not dead when this many frees have happened.
    LiveAt(u64),
    /// Temporary.
    Temporary,
    /// Its free is one of these.
    Freed(Range<u64>),
}

/// Test of allocations against a selection.
#[derive(Debug)]
pub struct RowTest<'a> {
    trace: &'a Trace,
    /// By origin: 1 = passes.
    origins: Option<Vec<u8>>,
    sizes: Option<SizeBounds>,
    life: Option<LifetimeFilter>,
    /// By number of the request context: passes.
    contexts: Option<Arc<[bool]>>,
    /// By origin of the free: passes; what lives does not.
    free_origins: Option<Arc<[bool]>>,
    address: Option<AddressRange>,
    /// Pruning by zone maps.
    skip: ZonePruning,
    /// The rows that pass, if they were found ahead.
    few: Option<Arc<SparseSelection>>,
}

/// Sizes that pass.
#[derive(Debug)]
struct SizeBounds {
    bounds: (u64, u64),
    /// Bounds of codes that are sizes.
    codes: (u16, u16),
}

impl SizeBounds {
    fn new(min: u64, max: u64) -> Self {
        let code = |size: u64| u16::try_from(size).unwrap_or(u16::MAX);
        Self { bounds: (min, max), codes: (code(min).min(TABLE_SIZE), code(max).min(TABLE_SIZE - 1)) }
    }

    /// Clears `keep` where the size does not pass; `row` gives the row of the size at a position.
    #[inline]
    fn test(&self, trace: &Trace, codes: &[u16], keep: &mut [u8], row: impl Fn(usize) -> u64) {
        let (low, high) = self.codes;
        let mut largest = 0;
        for (keep, &code) in keep.iter_mut().zip(codes) {
            *keep &= u8::from(code >= low) & u8::from(code <= high) | u8::from(code >= TABLE_SIZE);
            largest = largest.max(code);
        }
        if largest < TABLE_SIZE {
            return;
        }
        for (at, (keep, &code)) in keep.iter_mut().zip(codes).enumerate() {
            if code >= TABLE_SIZE {
                let size = trace.size_of_code(code, || row(at));
                *keep &= u8::from((self.bounds.0..=self.bounds.1).contains(&size));
            }
        }
    }
}

impl Selection {
    /// A test for rows of `trace`.
    #[must_use]
    pub fn rows<'a>(&self, trace: &'a Trace) -> RowTest<'a> {
        let origins = (self.sites.is_some() || self.threads.is_some()).then(|| {
            let passes = |id: u32| {
                let origin = trace.origin(id);
                u8::from(self.has_site(origin.site) && self.has_thread(origin.thread))
            };
            (0..trace.origin_count()).map(passes).collect()
        });
        let has_sizes = self.min_size > 0 || self.max_size < u64::MAX;
        let has_life = self.min_lifetime > 0 || self.max_lifetime < u64::MAX || self.lifetime.is_some();
        let life = has_life.then(|| LifetimeFilter::new(trace, self));
        RowTest {
            trace,
            origins,
            sizes: has_sizes.then(|| SizeBounds::new(self.min_size, self.max_size)),
            skip: ZonePruning::new(self, life.as_ref().map(|life| life.live.clone())),
            life,
            contexts: self.contexts.clone(),
            free_origins: self.free_origins.clone(),
            address: self.address,
            few: self.few.clone(),
        }
    }
}

impl RowTest<'_> {
    /// Whether every allocation passes.
    #[must_use]
    pub const fn passes_all(&self) -> bool {
        self.origins.is_none() && self.sizes.is_none() && self.life.is_none() && !self.is_beside_zones()
    }

    /// Whether a free can be tested only by looking its allocation up.
    #[must_use]
    pub const fn looks_allocs_up(&self) -> bool {
        self.few.is_none() && (self.origins.is_some() || self.life.is_some() || self.is_beside_zones())
    }

    /// Whether allocation `row` passes.
    #[inline]
    #[must_use]
    pub fn passes(&self, row: u64) -> bool {
        if let Some(few) = &self.few {
            return few.has(row);
        }
        let c = self.trace.columns();
        let at = row as usize;
        if let Some(origins) = &self.origins {
            let origin = c.alloc_origin.get(at).copied().unwrap_or(u32::MAX);
            if origins.get(origin as usize) != Some(&1) {
                return false;
            }
        }
        if let Some(SizeBounds { bounds: (min, max), .. }) = self.sizes
            && !(min..=max).contains(&self.trace.size_of(row))
        {
            return false;
        }
        if !self.has_context_of(row) || !self.has_address_of(row) || !self.has_free_of(row) {
            return false;
        }
        let ledgers = self.trace.ledgers();
        self.life
            .as_ref()
            .is_none_or(|l| l.passes(self.trace, row, ledgers.free.get(at), ledgers.lifetime_class.get(at)))
    }

    /// Whether the request context of an allocation passes.
    #[inline]
    fn has_context_of(&self, row: u64) -> bool {
        let number = || self.trace.context_of_alloc(row) as usize;
        self.contexts.as_ref().is_none_or(|contexts| contexts.get(number()) == Some(&true))
    }

    /// Whether an allocation reaches into the addresses that pass.
    #[inline]
    fn has_address_of(&self, row: u64) -> bool {
        self.address.is_none_or(|range| range.meets(self.trace.address_of(row), self.trace.size_of(row)))
    }

    /// Whether the backtrace of a block's free passes.
    #[inline]
    fn has_free_of(&self, row: u64) -> bool {
        let Some(passing) = &self.free_origins else { return true };
        let origins = &self.trace.columns().free_origin;
        let origin = self.trace.free_of(row).and_then(|ordinal| origins.get(ordinal as usize).copied());
        origin.is_some_and(|origin| passing.get(origin as usize) == Some(&true))
    }

    /// Whether there is a condition that zone maps do not cover: request contexts, addresses, backtraces of frees.
    const fn is_beside_zones(&self) -> bool {
        self.contexts.is_some() || self.address.is_some() || self.free_origins.is_some()
    }

    /// Clears `keep` where such a condition excludes a row of `rows`.
    fn test_beside_zones(&self, rows: impl Iterator<Item = u64>, keep: &mut [u8]) {
        for (keep, row) in keep.iter_mut().zip(rows) {
            *keep &=
                u8::from(*keep != 0 && self.has_context_of(row) && self.has_address_of(row) && self.has_free_of(row));
        }
    }

    /// Result of the zone maps for allocations `from..to`.
    #[must_use]
    pub fn verdict(&self, from: u64, to: u64) -> ZoneMatch {
        if self.passes_all() { ZoneMatch::All } else { self.but_asked(self.skip.allocs(self.trace, from, to)) }
    }

    fn but_asked(&self, verdict: ZoneMatch) -> ZoneMatch {
        if verdict == ZoneMatch::All && self.is_beside_zones() { ZoneMatch::Ask } else { verdict }
    }

    /// Result of the zone maps for the allocations of frees `from..to`.
    #[must_use]
    pub fn free_verdict(&self, from: u64, to: u64) -> ZoneMatch {
        if self.passes_all() { ZoneMatch::All } else { self.but_asked(self.skip.frees(self.trace, from, to)) }
    }

    /// Clears `keep`, which is for allocations from row `from` on, where a row does not pass.
    pub fn range(&self, from: u64, keep: &mut [u8]) {
        if let Some(few) = &self.few {
            return few.allocs_among(from, keep);
        }
        match self.verdict(from, from + keep.len() as u64) {
            ZoneMatch::All => {}
            ZoneMatch::None => keep.fill(0),
            ZoneMatch::Ask => self.test(from, keep),
        }
    }

    fn test(&self, from: u64, keep: &mut [u8]) {
        let c = self.trace.columns();
        let rows = from as usize..from as usize + keep.len();
        if let Some(sizes) = &self.sizes {
            let codes = c.alloc_size.get(rows.clone()).unwrap_or_default();
            sizes.test(self.trace, codes, keep, |at| from + at as u64);
        }
        if let Some(table) = &self.origins {
            let origins = c.alloc_origin.get(rows.clone()).unwrap_or_default();
            for (keep, &origin) in keep.iter_mut().zip(origins) {
                *keep &= table.get(origin as usize).copied().unwrap_or(0);
            }
        }
        if self.is_beside_zones() {
            self.test_beside_zones(from.., keep);
        }
        if let Some(life) = &self.life {
            let ledgers = self.trace.ledgers();
            let frees = ledgers.free.cells().get(rows.clone()).unwrap_or_default();
            let lifetime_classes = ledgers.lifetime_class.cells().get(rows).unwrap_or_default();
            for (((keep, free), lifetime_class), row) in keep.iter_mut().zip(frees).zip(lifetime_classes).zip(from..) {
                if *keep != 0 {
                    *keep = u8::from(life.passes(self.trace, row, u32::load(free), u8::load(lifetime_class)));
                }
            }
        }
    }

    /// Clears `keep`, which is for frees from `from` on, where the allocation does not pass.
    pub fn frees(&self, from: u64, keep: &mut [u8]) {
        if let Some(few) = &self.few {
            return few.frees_among(from, keep);
        }
        match self.free_verdict(from, from + keep.len() as u64) {
            ZoneMatch::All => {}
            ZoneMatch::None => keep.fill(0),
            ZoneMatch::Ask => self.test_frees(from, keep),
        }
    }

    fn test_frees(&self, from: u64, keep: &mut [u8]) {
        let c = self.trace.columns();
        let ordinals = from as usize..from as usize + keep.len();
        let links = c.free_row.get(ordinals.clone()).unwrap_or_default();
        let row_of = |(&link, ordinal): (&u32, u64)| self.trace.alloc_behind(ordinal, link);
        if let Some(sizes) = &self.sizes {
            let codes = c.free_size.get(ordinals).unwrap_or_default();
            sizes.test(self.trace, codes, keep, |at| self.trace.row_of_free(from + at as u64));
        }
        if let Some(table) = &self.origins {
            for (keep, row) in keep.iter_mut().zip(links.iter().zip(from..).map(row_of)) {
                let origin = c.alloc_origin.get(row as usize).copied().unwrap_or(u32::MAX);
                *keep &= table.get(origin as usize).copied().unwrap_or(0);
            }
        }
        if self.is_beside_zones() {
            self.test_beside_zones(links.iter().zip(from..).map(row_of), keep);
        }
        if let Some(life) = &self.life {
            let ledgers = self.trace.ledgers();
            for (keep, row) in keep.iter_mut().zip(links.iter().zip(from..).map(row_of)) {
                let at = row as usize;
                if *keep != 0 {
                    let (link, lifetime_class) = (ledgers.free.get(at), ledgers.lifetime_class.get(at));
                    *keep = u8::from(life.passes(self.trace, row, link, lifetime_class));
                }
            }
        }
    }
}

impl Also {
    /// Clears `keep`, which is for allocations from row `from` on, where the condition does not hold.
    pub fn range(&self, trace: &Trace, from: u64, keep: &mut [u8]) {
        let rows = from as usize..from as usize + keep.len();
        let cells = trace.ledgers().free.cells().get(rows.clone()).unwrap_or_default();
        let seen = trace.free_count();
        match self {
            Self::Nothing => {}
            Self::LiveAt(place) => {
                let place = (*place).min(seen);
                // Rows and places are mostly so near that the codes of the links say which comes first.
                let distance = place.wrapping_sub(from).cast_signed();
                match i32::try_from(distance).ok().filter(|distance| distance.unsigned_abs() < NEAR) {
                    Some(distance) => live_behind(trace, (from, distance), place, cells, keep),
                    None => by_free(trace, from, cells, keep, |free| free >= place),
                }
            }
            Self::Temporary => {
                let lifetime_classes = trace.ledgers().lifetime_class.cells().get(rows).unwrap_or_default();
                by_free(trace, from, cells, keep, |free| free < seen);
                for (keep, lifetime_class) in keep.iter_mut().zip(lifetime_classes) {
                    *keep &= u8::from(u8::load(lifetime_class) & TEMPORARY_BIT != 0);
                }
            }
            Self::Freed(ordinals) => {
                let first = ordinals.start.min(seen);
                let len = ordinals.end.min(seen) - first;
                by_free(trace, from, cells, keep, |free| free.wrapping_sub(first) < len);
            }
        }
    }
}

/// Distances below have room for a position in a block beside them.
const NEAR: u32 = (1 << 31) - 2 * BLOCK as u32;

/// Takes out of `keep`, which is about allocations from row `from` on, those whose free comes before `place`, which is
/// `distance` behind `from`. As [`by_free`], but in numbers of four bytes, of which a processor compares several at once.
fn live_behind(trace: &Trace, (from, distance): (u64, i32), place: u64, cells: &[AtomicU32], keep: &mut [u8]) {
    let mut codes = [links::NONE; BLOCK];
    for (code, cell) in codes.iter_mut().zip(cells) {
        *code = u32::load(cell);
    }
    let mut any_far = 0;
    for (at, (keep, &code)) in keep.iter_mut().zip(&codes).enumerate() {
        let link = links::near(0, code) as i32;
        any_far |= u8::from(code == links::FAR);
        *keep &= u8::from(link >= distance - at as i32) | u8::from(code == links::NONE) | u8::from(code == links::FAR);
    }
    if any_far > 0 {
        for ((keep, &code), row) in keep.iter_mut().zip(&codes).zip(from..) {
            if *keep != 0 && code == links::FAR {
                *keep = u8::from(trace.free_behind(row, code) >= place);
            }
        }
    }
}

/// Takes out of `keep`, which is about allocations from row `from` on, those whose free does not pass: an ordinal, the
/// largest number for what lives.
#[inline]
fn by_free(trace: &Trace, from: u64, cells: &[AtomicU32], keep: &mut [u8], passes: impl Fn(u64) -> bool) {
    let lives = passes(links::NOTHING);
    let mut any_far = false;
    for ((keep, cell), row) in keep.iter_mut().zip(cells).zip(from..) {
        let link = u32::load(cell);
        let is_far = link == links::FAR;
        any_far |= is_far;
        let near = if link == links::NONE { lives } else { passes(links::near(row, link)) };
        *keep &= u8::from(near) | u8::from(is_far);
    }
    if any_far {
        for ((keep, cell), row) in keep.iter_mut().zip(cells).zip(from..) {
            if *keep != 0 {
                *keep = u8::from(passes(trace.free_behind(row, u32::load(cell))));
            }
        }
    }
}

/// Allocations that pass, block by block.
#[derive(Debug)]
pub struct Picker<'a> {
    test: &'a RowTest<'a>,
    also: Also,
    keep: [u8; BLOCK],
    picked: [u16; BLOCK],
}

impl<'a> Picker<'a> {
    /// A picker of allocations that pass `test` and fulfil `also`.
    #[must_use]
    pub const fn new(test: &'a RowTest<'a>, also: Also) -> Self {
        Self { test, also, keep: [0; BLOCK], picked: [0; BLOCK] }
    }

    /// Offsets of those of the allocations `from..to` (at most [`BLOCK`]) that pass, ascending.
    pub fn pick(&mut self, from: u64, to: u64) -> &[u16] {
        let keep = &mut self.keep[..(to - from) as usize];
        let also = self.also.verdict(self.test.trace, from, to);
        if also == ZoneMatch::None {
            return &[];
        }
        keep.fill(1);
        if let Some(few) = &self.test.few {
            few.allocs_among(from, keep);
            if also == ZoneMatch::Ask && keep.iter().fold(0, |any, &keep| any | keep) != 0 {
                self.also.range(self.test.trace, from, keep);
            }
            return compact(keep, &mut self.picked);
        }
        let verdict = self.test.verdict(from, to);
        match (also, verdict) {
            (_, ZoneMatch::None) => return &[],
            (ZoneMatch::All, ZoneMatch::All) => return all(keep.len(), &mut self.picked),
            _ => {}
        }
        if also == ZoneMatch::Ask {
            self.also.range(self.test.trace, from, keep);
            // Of old allocations few are left: most blocks end here.
            if keep.iter().fold(0, |any, &keep| any | keep) == 0 {
                return &[];
            }
        }
        if verdict == ZoneMatch::Ask {
            self.test.test(from, keep);
        }
        compact(keep, &mut self.picked)
    }

    /// Offsets of those of the frees `from..to` (at most [`BLOCK`]) whose allocations pass the test alone, ascending.
    pub fn pick_frees(&mut self, from: u64, to: u64) -> &[u16] {
        let keep = &mut self.keep[..(to - from) as usize];
        if self.test.few.is_none() {
            match self.test.free_verdict(from, to) {
                ZoneMatch::None => return &[],
                ZoneMatch::All => return all(keep.len(), &mut self.picked),
                ZoneMatch::Ask => {}
            }
        }
        keep.fill(1);
        self.test.frees(from, keep);
        compact(keep, &mut self.picked)
    }
}

/// All positions of a block.
fn all(len: usize, picked: &mut [u16; BLOCK]) -> &[u16] {
    picked.iter_mut().zip(0..).take(len).for_each(|(picked, at)| *picked = at);
    &picked[..len]
}

/// Positions of the ones.
pub fn compact<'p>(keep: &[u8], picked: &'p mut [u16; BLOCK]) -> &'p [u16] {
    let mut len = 0;
    for (at, &keep) in (0_u16..).zip(keep) {
        picked[len % BLOCK] = at;
        len += usize::from(keep);
    }
    &picked[..len]
}
