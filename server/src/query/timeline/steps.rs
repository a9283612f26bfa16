//! The steps that events which pass a filter make, a block of events at a time: first what each birth and each death
//! adds or takes, column by column, then one walk in their true order.

use tracehound_format::record::Kind;

use super::columns::Column;
use crate::query::filter::Selection;
use crate::query::scan::{Also, BLOCK, Picker, RowTest};
use crate::trace::{Position, Span, Trace};

/// What passes, of a trace.
pub(super) struct Filtered<'a> {
    trace: &'a Trace,
    test: RowTest<'a>,
    /// By origin: it is the first half of a realloc.
    halves: Vec<bool>,
}

impl<'a> Filtered<'a> {
    pub(super) fn new(trace: &'a Trace, selection: &Selection) -> Self {
        let is_half = |id: u32| Kind::from_u8(trace.origin(id).kind).is_some_and(Kind::is_realloc_from);
        let halves = (0..trace.origin_count()).map(is_half).collect();
        Self { trace, test: selection.rows(trace), halves }
    }

    /// The place behind the next block of events, at most `end`.
    pub(super) fn block_end(&self, at: Position, end: Position) -> Position {
        let events = (at.events() + BLOCK as u64).min(end.events());
        let deaths = at.deaths + self.trace.deaths_among(at.events(), events);
        Position { births: events - deaths, deaths }
    }
}

/// The steps of one block of events.
pub(super) struct Steps<'a> {
    filtered: &'a Filtered<'a>,
    picker: Picker<'a>,
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
        Self { filtered, picker: Picker::new(&filtered.test, Also::Nothing), born: none, died: none }
    }

    /// Adds the events of `span`, at most a block of them, to a column.
    pub(super) fn walk(&mut self, span: Span, column: &mut Column) {
        self.load(span, column);
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
    }

    fn load(&mut self, span: Span, column: &mut Column) {
        let trace = self.filtered.trace;
        let c = trace.columns();
        self.born[..(span.to.births - span.from.births) as usize].fill(Step::default());
        self.died[..(span.to.deaths - span.from.deaths) as usize].fill(Step::default());
        let picked = self.picker.pick(span.from.births, span.to.births);
        column.births += picked.len() as u64;
        for &at in picked {
            let size = trace.size_of(span.from.births + u64::from(at));
            column.born_bytes += size;
            self.born[at as usize] = Step { bytes: size as i64, count: 1, half: false };
        }
        let ordinals = span.from.deaths as usize..span.to.deaths as usize;
        let rows = c.death_row.get(ordinals.clone()).unwrap_or_default();
        let origins = c.death_origin.get(ordinals).unwrap_or_default();
        let picked = self.picker.pick_rows(rows);
        column.deaths += picked.len() as u64;
        for &at in picked {
            let at = at as usize;
            let half = self.filtered.halves.get(origins[at] as usize) == Some(&true);
            self.died[at] = Step { bytes: -(trace.size_of(u64::from(rows[at])) as i64), count: -1, half };
        }
    }
}
