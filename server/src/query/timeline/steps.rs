//! The steps that events which pass a filter make, a block of events at a time: first what each birth and each death
//! adds or takes, column by column, then one walk in their true order.

use rayon::prelude::*;
use tracehound_format::record::Kind;

use super::columns::Column;
use crate::query::Result;
use crate::query::filter::Selection;
use crate::query::scan::{BLOCK, RowTest, compact};
use crate::trace::{Cancel, Position, Span, Trace};

/// What passes, of a trace.
pub(super) struct Filtered<'a> {
    trace: &'a Trace,
    test: RowTest<'a>,
    /// One bit a birth, where many births are asked for more than once.
    passing: Option<Vec<u64>>,
    /// By origin: it is the first half of a realloc.
    halves: Vec<bool>,
    cancel: &'a Cancel,
}

impl<'a> Filtered<'a> {
    pub(super) fn new(trace: &'a Trace, selection: &Selection, span: Span, cancel: &'a Cancel) -> Self {
        let is_half = |id: u32| Kind::from_u8(trace.origin(id).kind).is_some_and(Kind::is_realloc_from);
        let halves = (0..trace.origin_count()).map(is_half).collect();
        let test = selection.rows(trace);
        // Testing all births in order is worth it when many deaths would look theirs up one by one.
        let is_long = (span.to.deaths - span.from.deaths).saturating_mul(8) > span.to.births;
        let passing = (is_long && !test.passes_all()).then(|| passing(&test, span.to.births, cancel));
        Self { trace, test, passing, halves, cancel }
    }

    /// For births from row `from` on: 1 where one passes.
    fn range(&self, from: u64, keep: &mut [u8]) {
        match &self.passing {
            Some(bits) => keep.iter_mut().zip(from..).for_each(|(keep, row)| *keep = bit(bits, row)),
            None => {
                keep.fill(1);
                self.test.range(from, keep);
            }
        }
    }

    /// For births in any order: 1 where one passes.
    fn rows(&self, rows: &[u32], keep: &mut [u8]) {
        match &self.passing {
            Some(bits) => keep.iter_mut().zip(rows).for_each(|(keep, &row)| *keep = bit(bits, u64::from(row))),
            None => {
                keep.fill(1);
                self.test.rows(rows, keep);
            }
        }
    }

    /// The place behind the next block of events, at most `end`.
    fn block_end(&self, at: Position, end: Position) -> Position {
        let events = (at.events() + BLOCK as u64).min(end.events());
        let deaths = at.deaths + self.trace.deaths_among(at.events(), events);
        Position { births: events - deaths, deaths }
    }
}

#[inline]
fn bit(bits: &[u64], row: u64) -> u8 {
    bits.get((row / 64) as usize).map_or(0, |word| (word >> (row % 64) & 1) as u8)
}

/// One bit for each of the births `0..to`: it passes.
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
            *word = keep.iter().rev().fold(0, |word, &keep| word << 1 | u64::from(keep));
        }
    });
    bits
}

/// The steps of one block of events.
pub(super) struct Steps<'a> {
    filtered: &'a Filtered<'a>,
    keep: [u8; BLOCK],
    picked: [u16; BLOCK],
    /// All empty between two blocks.
    born: [Step; BLOCK],
    died: [Step; BLOCK],
}

/// What one event changes; nothing if it does not pass.
#[derive(Clone, Copy, Default)]
struct Step {
    bytes: i64,
    count: i32,
    /// The other half of a realloc follows at once.
    half: bool,
}

impl<'a> Steps<'a> {
    pub(super) fn new(filtered: &'a Filtered<'a>) -> Self {
        let none = [Step::default(); BLOCK];
        Self { filtered, keep: [0; BLOCK], picked: [0; BLOCK], born: none, died: none }
    }

    /// Adds all events of `span` to a column.
    pub(super) fn walk(&mut self, span: Span, column: &mut Column) -> Result<()> {
        let mut at = span.from;
        while at.events() < span.to.events() {
            self.filtered.cancel.check()?;
            let next = self.filtered.block_end(at, span.to);
            let block = Span { from: at, to: next };
            if self.load(block, column) {
                self.walk_block(block, column);
            }
            at = next;
        }
        Ok(())
    }

    /// Goes through a block in its order, and empties it.
    fn walk_block(&mut self, span: Span, column: &mut Column) {
        let trace = self.filtered.trace;
        let (mut bytes, mut count) = (column.last_bytes, column.last_count);
        let (mut births, mut deaths) = (0, 0);
        let (mut event, end) = (span.from.events(), span.to.events());
        while event < end {
            let word = trace.order_word((event / 64) as usize) >> (event % 64);
            let take = (64 - event % 64).min(end - event);
            for bit in 0..take {
                let is_death = word >> bit & 1;
                // Both are read and one is taken: which one comes cannot be foretold.
                let (born, died) = (self.born[births % BLOCK], self.died[deaths % BLOCK]);
                let step = if is_death == 1 { died } else { born };
                deaths += is_death as usize;
                births += 1 - is_death as usize;
                bytes += step.bytes;
                count += i64::from(step.count);
                if !step.half {
                    column.see(bytes, count);
                }
            }
            event += take;
        }
        (column.last_bytes, column.last_count) = (bytes, count);
        self.born[..births].fill(Step::default());
        self.died[..deaths].fill(Step::default());
    }

    /// Finds the steps of a block; whether there are any.
    fn load(&mut self, span: Span, column: &mut Column) -> bool {
        let Self { filtered, keep, picked, born, died } = self;
        let trace = filtered.trace;
        let c = trace.columns();
        let births = &mut keep[..(span.to.births - span.from.births) as usize];
        filtered.range(span.from.births, births);
        let passing = compact(births, picked);
        let mut any = !passing.is_empty();
        column.births += passing.len() as u64;
        for &at in passing {
            let size = trace.size_of(span.from.births + u64::from(at));
            column.born_bytes += size;
            born[at as usize] = Step { bytes: size as i64, count: 1, half: false };
        }
        let ordinals = span.from.deaths as usize..span.to.deaths as usize;
        let rows = c.death_row.get(ordinals.clone()).unwrap_or_default();
        let origins = c.death_origin.get(ordinals).unwrap_or_default();
        let deaths = &mut keep[..rows.len()];
        filtered.rows(rows, deaths);
        let passing = compact(deaths, picked);
        any |= !passing.is_empty();
        column.deaths += passing.len() as u64;
        for &at in passing {
            let at = at as usize;
            let half = filtered.halves.get(origins[at] as usize) == Some(&true);
            died[at] = Step { bytes: -(trace.size_of(u64::from(rows[at])) as i64), count: -1, half };
        }
        any
    }
}
