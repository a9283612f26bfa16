//! Sums by column of time: from the index for whole pages, from events one by one at the edges.

use rayon::prelude::*;

use super::steps::{Filtered, SeriesSteps, Watch};
use crate::Result;
use crate::amounts::{SumKey, SumQuery};
use crate::filter::Selection;
use crate::window::Resolved;
use tracehound_index::{Cancel, Position, Span, Trace};

/// Borders of the columns: one more than there are columns.
pub(super) struct Grid {
    pub(super) times: Vec<u64>,
    pub(super) places: Vec<Position>,
}

/// What happened in a column.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PixelColumn {
    pub(super) min_bytes: i64,
    pub(super) max_bytes: i64,
    pub(super) last_bytes: i64,
    pub(super) min_count: i64,
    pub(super) max_count: i64,
    pub(super) last_count: i64,
    pub(super) allocs: u64,
    pub(super) frees: u64,
    pub(super) allocated_bytes: u64,
}

impl PixelColumn {
    fn starting(bytes: i64, count: i64) -> Self {
        Self {
            min_bytes: bytes,
            max_bytes: bytes,
            last_bytes: bytes,
            min_count: count,
            max_count: count,
            last_count: count,
            ..Self::default()
        }
    }

    fn shift(&mut self, bytes: i64, count: i64) {
        for value in [&mut self.min_bytes, &mut self.max_bytes, &mut self.last_bytes] {
            *value += bytes;
        }
        for value in [&mut self.min_count, &mut self.max_count, &mut self.last_count] {
            *value += count;
        }
    }
}

impl Watch for PixelColumn {
    #[inline]
    fn live(&self) -> (i64, i64) {
        (self.last_bytes, self.last_count)
    }

    #[inline]
    fn set_live(&mut self, bytes: i64, count: i64) {
        (self.last_bytes, self.last_count) = (bytes, count);
    }

    #[inline]
    fn see(&mut self, bytes: i64, count: i64, _: u64) {
        self.min_bytes = self.min_bytes.min(bytes);
        self.max_bytes = self.max_bytes.max(bytes);
        self.min_count = self.min_count.min(count);
        self.max_count = self.max_count.max(count);
    }

    #[inline]
    fn add(&mut self, allocs: u64, allocated_bytes: u64, frees: u64) {
        self.allocs += allocs;
        self.allocated_bytes += allocated_bytes;
        self.frees += frees;
    }
}

impl Grid {
    pub(super) fn new(trace: &Trace, window: &Resolved, points: usize) -> Self {
        let length = window.to_ns - window.from_ns;
        // Columns are a nanosecond wide at least.
        let points = (points as u64).min(length.max(1));
        let at = |i: u64| window.from_ns + (u128::from(length) * u128::from(i) / u128::from(points)) as u64;
        let times: Vec<u64> = (0..=points).map(at).collect();
        let mut places: Vec<Position> = times.iter().map(|&t| trace.position_before(t)).collect();
        if let (Some(first), Some(last)) = (places.first().copied(), places.last_mut()) {
            *last = window.span.to;
            debug_assert!(first.events() <= last.events());
        }
        if let Some(first) = places.first_mut() {
            *first = window.span.from;
        }
        Self { times, places }
    }

    pub(super) fn len(&self) -> usize {
        self.times.len() - 1
    }

    pub(super) fn seconds(&self, column: usize) -> f64 {
        (self.times[column + 1] - self.times[column]).max(1) as f64 / 1e9
    }

    pub(super) fn columns(&self, trace: &Trace, cancel: &Cancel) -> Result<Vec<PixelColumn>> {
        let everything = Selection::all();
        let filtered = Filtered::new(trace, &everything, trace.everything(), cancel);
        (0..self.len())
            .into_par_iter()
            .with_min_len(16)
            .map_init(
                || SeriesSteps::new(&filtered),
                |steps, i| whole_column(trace, steps, self.places[i], self.places[i + 1]),
            )
            .collect()
    }

    /// Every event of the window is looked at; what was live when it began comes from sums.
    pub(super) fn filtered_columns(
        &self,
        trace: &Trace,
        selection: &Selection,
        cancel: &Cancel,
    ) -> Result<Vec<PixelColumn>> {
        let span = Span { from: self.places[0], to: self.places[self.len()] };
        let filtered = Filtered::new(trace, selection, span, cancel);
        let mut columns: Vec<PixelColumn> = (0..self.len())
            .into_par_iter()
            .map_init(
                || SeriesSteps::new(&filtered),
                |steps, i| {
                    let mut column = PixelColumn::default();
                    steps.walk(Span { from: self.places[i], to: self.places[i + 1] }, &mut column)?;
                    Ok(column)
                },
            )
            .collect::<Result<_>>()?;
        let question = SumQuery { trace, selection, key: SumKey::Site, cancel };
        let (mut bytes, mut count) = (0, 0);
        for sum in question.live_at(self.places[0])? {
            bytes += sum.bytes;
            count += sum.count;
        }
        for column in &mut columns {
            let (more, more_count) = (column.last_bytes, column.last_count);
            column.shift(bytes, count);
            bytes += more;
            count += more_count;
        }
        Ok(columns)
    }
}

fn whole_column(trace: &Trace, steps: &mut SeriesSteps<'_>, from: Position, to: Position) -> Result<PixelColumn> {
    let start = trace.state_at(from);
    let count = |place: Position| (place.allocs - place.frees) as i64;
    let mut column = PixelColumn::starting(start.live as i64, count(from));
    if from.events() >= to.events() {
        return Ok(column);
    }
    let first = trace.page_of_event(from.events()).unwrap_or(0);
    let last = trace.page_of_event(to.events()).unwrap_or(0);
    let first_end = trace.page_start(first + 1);
    let first_end = if first_end.events() < to.events() { first_end } else { to };
    steps.walk(Span { from, to: first_end }, &mut column)?;
    if last > first {
        let c = trace.columns();
        let closed = last.min(c.page_time.len());
        for page in first + 1..closed {
            column.min_bytes = column.min_bytes.min(c.page_min_bytes[page] as i64);
            column.max_bytes = column.max_bytes.max(c.page_max_bytes[page] as i64);
            column.min_count = column.min_count.min(c.page_min_count[page] as i64);
            column.max_count = column.max_count.max(c.page_max_count[page] as i64);
        }
        let begin = trace.page_state(last);
        (column.last_bytes, column.last_count) = (begin.live as i64, count(begin.place));
        steps.walk(Span { from: begin.place, to }, &mut column)?;
    }
    let end = trace.state_at(to);
    column.last_bytes = end.live as i64;
    column.last_count = count(to);
    // What a forked process has inherited is no work of its own.
    let inherited = trace.facts().inherited.as_ref().map_or((0, 0), |inherited| (inherited.blocks, inherited.bytes));
    column.allocs = to.allocs.max(inherited.0) - from.allocs.max(inherited.0);
    column.frees = to.frees - from.frees;
    column.allocated_bytes = end.allocated.max(inherited.1) - start.allocated.max(inherited.1);
    Ok(column)
}
