//! The steps that events which pass a filter make, a block of events at a time: first what each allocation and each
//! free adds or takes, column by column, then one walk from step to step in their true order.

use rayon::prelude::*;
use tracehound_format::record::Kind;

use crate::Result;
use crate::filter::Selection;
use crate::scan::{BLOCK, RowTest};
use tracehound_index::{Cancel, Position, Span, Trace};

/// What passes, of a trace.
pub(super) struct Filtered<'a> {
    trace: &'a Trace,
    test: RowTest<'a>,
    /// One bit an allocation, where many allocations are asked for more than once.
    passing: Option<Vec<u64>>,
    /// By origin: it is the first half of a realloc.
    halves: Vec<bool>,
    cancel: &'a Cancel,
}

impl<'a> Filtered<'a> {
    pub(super) fn new(trace: &'a Trace, selection: &Selection, span: Span, cancel: &'a Cancel) -> Self {
        // Its column alone: there are as many origins as there are nodes.
        let is_half = |&kind: &u8| Kind::from_u8(kind).is_some_and(Kind::is_realloc_from);
        let halves = trace.columns().origin_kind.iter().map(is_half).collect();
        let test = selection.rows(trace);
        // Testing all allocations in order is worth it when many frees would look theirs up one by one.
        let is_long = (span.to.frees - span.from.frees).saturating_mul(8) > span.to.allocs;
        let passing = (is_long && test.looks_allocs_up()).then(|| passing(&test, span.to.allocs, cancel));
        Self { trace, test, passing, halves, cancel }
    }

    /// For allocations from row `from` on: 1 where one passes.
    fn range(&self, from: u64, keep: &mut [u8]) {
        match &self.passing {
            Some(bits) => keep.iter_mut().zip(from..).for_each(|(keep, row)| *keep = bit(bits, row)),
            None => {
                keep.fill(1);
                self.test.range(from, keep);
            }
        }
    }

    /// For frees from `from` on: 1 where the allocation passes.
    fn frees(&self, from: u64, keep: &mut [u8]) {
        match &self.passing {
            Some(bits) => {
                let links = self.trace.columns().free_row.get(from as usize..).unwrap_or_default();
                for ((keep, &link), ordinal) in keep.iter_mut().zip(links).zip(from..) {
                    *keep = bit(bits, self.trace.alloc_behind(ordinal, link));
                }
            }
            None => {
                keep.fill(1);
                self.test.frees(from, keep);
            }
        }
    }

    /// The place behind the next block of events, at most `end`.
    fn block_end(&self, at: Position, end: Position) -> Position {
        let events = (at.events() + BLOCK as u64).min(end.events());
        let frees = at.frees + self.trace.frees_among(at.events(), events);
        Position { allocs: events - frees, frees }
    }
}

#[inline]
fn bit(bits: &[u64], row: u64) -> u8 {
    bits.get((row / 64) as usize).map_or(0, |word| (word >> (row % 64) & 1) as u8)
}

/// One bit for each of the allocations `0..to`: it passes.
fn passing(test: &RowTest<'_>, to: u64, cancel: &Cancel) -> Vec<u64> {
    const WORDS: usize = BLOCK / 64;
    let mut bits = vec![0_u64; to.div_ceil(64) as usize];
    bits.par_chunks_mut(WORDS).enumerate().for_each(|(at, words)| {
        if cancel.is_cancelled() {
            return;
        }
        let from = (at * BLOCK) as u64;
        let mut keep = [1_u8; BLOCK];
        let len = (to - from).min(BLOCK as u64) as usize;
        test.range(from, &mut keep[..len]);
        keep[len..].fill(0);
        for (word, keep) in words.iter_mut().zip(keep.chunks_exact(64)) {
            *word = packed(keep);
        }
    });
    bits
}

/// Receiver of the steps.
pub(super) trait Watch {
    /// Live bytes and blocks so far.
    fn live(&self) -> (i64, i64);
    /// Sets live bytes and blocks.
    fn set_live(&mut self, bytes: i64, count: i64);
    /// Live bytes and blocks behind so many allocations and frees of the trace, where no realloc is half done.
    fn see(&mut self, bytes: i64, count: i64, events: u64);
    /// A block of events has so many allocations, of so many bytes, and so many frees.
    fn add(&mut self, allocs: u64, allocated_bytes: u64, frees: u64);
}

/// The steps of one block of events.
pub(super) struct SeriesSteps<'a> {
    filtered: &'a Filtered<'a>,
    keep: [u8; BLOCK],
    allocs: Passing,
    frees: Passing,
    /// The first half of a realloc was taken, whose second half is this event.
    other_half: Option<u64>,
}

/// Which allocations, or frees, of a block pass, and the change that each makes.
struct Passing {
    /// One bit for each, and an empty word behind them.
    bits: [u64; BLOCK / 64 + 2],
    steps: Vec<SeriesStep>,
}

/// What one event changes.
#[derive(Clone, Copy, Default)]
struct SeriesStep {
    bytes: i64,
    /// The other half of a realloc follows at once.
    half: bool,
}

impl Passing {
    fn new() -> Self {
        Self { bits: [0; BLOCK / 64 + 2], steps: Vec::with_capacity(BLOCK) }
    }

    /// Sets which of them pass, one byte each, and calls `step` for those that do, in order.
    fn fill(&mut self, keep: &[u8], step: impl FnMut(usize) -> SeriesStep) {
        self.bits = [0; BLOCK / 64 + 2];
        for (word, keep) in self.bits.iter_mut().zip(keep.chunks(64)) {
            *word = packed(keep);
        }
        self.steps.clear();
        let places = self.bits.iter().enumerate().flat_map(|(at, &word)| ones(word).map(move |bit| at * 64 + bit));
        self.steps.extend(places.map(step));
    }

    /// The bits from place `at` on.
    #[inline]
    fn word_at(&self, at: usize) -> u64 {
        let (word, shift) = (at / 64, at % 64);
        let of = |word: usize| self.bits.get(word).copied().unwrap_or(0);
        of(word) >> shift | (of(word + 1) << 1) << (63 - shift)
    }
}

/// Positions of the ones.
#[inline]
fn ones(word: u64) -> impl Iterator<Item = usize> {
    let next = |&word: &u64| Some(word & (word - 1)).filter(|&word| word != 0);
    std::iter::successors(Some(word).filter(|&word| word != 0), next).map(|word| word.trailing_zeros() as usize)
}

/// At most 64 bytes that are 0 or 1, as bits.
#[inline]
fn packed(bytes: &[u8]) -> u64 {
    let (eights, rest) = bytes.as_chunks::<8>();
    let word = eights.iter().zip((0..).step_by(8)).fold(0, |word, (&eight, at)| {
        // The product's highest byte gathers one bit of each of the eight bytes.
        word | (u64::from_le_bytes(eight).wrapping_mul(0x0102_0408_1020_4080) >> 56) << at
    });
    rest.iter().zip(eights.len() * 8..).fold(word, |word, (&byte, at)| word | u64::from(byte) << at)
}

/// The lowest bits of `bits` at the places of the ones of `mask`.
#[inline]
fn deposit(bits: u64, mask: u64) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("bmi2") {
        // SAFETY: the processor has the instruction.
        return unsafe { deposit_at_once(bits, mask) };
    }
    deposit_one_by_one(bits, mask)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "bmi2")]
fn deposit_at_once(bits: u64, mask: u64) -> u64 {
    std::arch::x86_64::_pdep_u64(bits, mask)
}

fn deposit_one_by_one(mut bits: u64, mask: u64) -> u64 {
    let mut deposited = 0;
    for place in ones(mask) {
        deposited |= (bits & 1) << place;
        bits >>= 1;
    }
    deposited
}

impl<'a> SeriesSteps<'a> {
    pub(super) fn new(filtered: &'a Filtered<'a>) -> Self {
        Self { filtered, keep: [0; BLOCK], allocs: Passing::new(), frees: Passing::new(), other_half: None }
    }

    /// Passes all events of `span` to `watch`.
    pub(super) fn walk(&mut self, span: Span, watch: &mut impl Watch) -> Result<()> {
        let mut at = span.from;
        self.other_half = None;
        while at.events() < span.to.events() {
            self.filtered.cancel.check()?;
            let next = self.filtered.block_end(at, span.to);
            let block = Span { from: at, to: next };
            self.load(block, watch);
            self.walk_block(block, watch);
            at = next;
        }
        Ok(())
    }

    /// Goes from one step of a block to the next.
    fn walk_block(&mut self, span: Span, watch: &mut impl Watch) {
        let Self { filtered, allocs, frees, other_half, .. } = self;
        let (mut bytes, mut count) = watch.live();
        let (mut allocated, mut freed) = (allocs.steps.iter(), frees.steps.iter());
        // Allocations and frees of the block before the word.
        let (mut allocs_before, mut frees_before) = (0, 0);
        let (mut event, end) = (span.from.events(), span.to.events());
        while event < end && (!allocated.as_slice().is_empty() || !freed.as_slice().is_empty()) {
            let take = (64 - event % 64).min(end - event);
            let inside = u64::MAX >> (64 - take);
            let word = filtered.trace.order_word((event / 64) as usize) >> (event % 64);
            let free_ledgers = deposit(frees.word_at(frees_before), word & inside);
            let mut passing = free_ledgers | deposit(allocs.word_at(allocs_before), !word & inside);
            while passing != 0 {
                let bit = passing.trailing_zeros();
                passing &= passing - 1;
                let is_free = free_ledgers >> bit & 1 == 1;
                let step = if is_free { freed.next() } else { allocated.next() }.copied().unwrap_or_default();
                let at = event + u64::from(bit);
                if let Some(half) = other_half.take().filter(|&half| half < at) {
                    watch.see(bytes, count, half + 1);
                }
                bytes += step.bytes;
                count += 1 - 2 * i64::from(is_free);
                if step.half {
                    *other_half = Some(at + 1);
                } else {
                    watch.see(bytes, count, at + 1);
                }
            }
            let frees_inside = (word & inside).count_ones() as usize;
            frees_before += frees_inside;
            allocs_before += take as usize - frees_inside;
            event += take;
        }
        // The second half lies in the block and does not pass.
        if let Some(half) = other_half.filter(|&half| half < end) {
            *other_half = None;
            watch.see(bytes, count, half + 1);
        }
        watch.set_live(bytes, count);
    }

    /// Finds the steps of a block.
    fn load(&mut self, span: Span, watch: &mut impl Watch) {
        let Self { filtered, keep, allocs, frees, other_half: _ } = self;
        let trace = filtered.trace;
        let keep_allocs = &mut keep[..(span.to.allocs - span.from.allocs) as usize];
        filtered.range(span.from.allocs, keep_allocs);
        let own = trace.own_start().allocs;
        let (mut allocated, mut allocated_bytes) = (0, 0);
        allocs.fill(keep_allocs, |at| {
            let row = span.from.allocs + at as u64;
            let size = trace.size_of(row);
            if row >= own {
                allocated += 1;
                allocated_bytes += size;
            }
            SeriesStep { bytes: size as i64, half: false }
        });
        let keep_frees = &mut keep[..(span.to.frees - span.from.frees) as usize];
        filtered.frees(span.from.frees, keep_frees);
        let origins = &trace.columns().free_origin;
        frees.fill(keep_frees, |at| {
            let ordinal = span.from.frees + at as u64;
            let origin = origins.get(ordinal as usize).copied().unwrap_or(u32::MAX);
            let half = filtered.halves.get(origin as usize) == Some(&true);
            SeriesStep { bytes: -(trace.size_of_free(ordinal) as i64), half }
        });
        watch.add(allocated, allocated_bytes, frees.steps.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bits_go_where_the_mask_has_ones(bits: u64, mask: u64) {
            let places: Vec<usize> = (0..64).filter(|place| mask >> place & 1 == 1).collect();
            let expected = places.iter().enumerate().fold(0, |word, (at, place)| word | (bits >> at & 1) << place);
            prop_assert_eq!(deposit(bits, mask), expected);
            prop_assert_eq!(deposit_one_by_one(bits, mask), expected);
            prop_assert!(ones(mask).eq(places));
        }

        #[test]
        fn bytes_become_bits(keep in prop::collection::vec(0_u8..2, 0..=BLOCK), at in 0..BLOCK) {
            let mut passing = Passing::new();
            passing.fill(&keep, |at| SeriesStep { bytes: at as i64, half: false });
            let kept = (0..keep.len()).filter(|&at| keep[at] == 1);
            prop_assert!(passing.steps.iter().map(|step| step.bytes as usize).eq(kept));
            let from = (0..64).fold(0, |word, i| word | u64::from(keep.get(at + i).copied().unwrap_or(0)) << i);
            prop_assert_eq!(passing.word_at(at), from);
        }
    }
}
