//! Sums per site or per thread over a range of events: the base of nearly every answer.
//!
//! Allocations and frees are kept apart: what is live is what was allocated minus what was freed, at any place.

use rayon::prelude::*;

use super::Result;
use super::filter::Selection;
use super::scan::{Also, BLOCK, Picker};
use super::timeline::peak;
use super::window::{Resolved, peak_of};
use tracehound_api::{Metric, PeakOf};
use tracehound_index::layout::field;
use tracehound_index::sums::BlockAmount;
use tracehound_index::{Cancel, Position, Span, Trace};

/// Key of the sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SumKey {
    /// Allocating backtraces.
    Site,
    /// Allocating threads, by position.
    Thread,
}

/// Blocks and bytes; negative for what shrank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Signed {
    /// Number of blocks.
    pub count: i64,
    /// Requested bytes.
    pub bytes: i64,
}

impl Signed {
    #[inline]
    pub(super) fn add(&mut self, amount: BlockAmount, sign: i64) {
        self.count += sign * amount.count as i64;
        self.bytes += sign * amount.bytes as i64;
    }

    /// Whether there is nothing.
    #[must_use]
    #[inline]
    pub const fn is_zero(&self) -> bool {
        self.count == 0 && self.bytes == 0
    }
}

/// Sums by key.
pub type Sums = Vec<Signed>;

/// Which blocks a metric is about.
#[derive(Debug, Clone, Copy)]
enum BlockPart {
    /// Allocated in the span.
    Allocated,
    /// Freed in the span.
    Freed,
    /// Allocated in the span and temporary.
    Temporary,
    /// Allocated in the span and live at the end.
    Leaked,
}

/// Everything that sums depend on.
#[derive(Debug)]
pub struct SumQuery<'a> {
    /// The index.
    pub trace: &'a Trace,
    /// What passes.
    pub selection: &'a Selection,
    /// Key of the sums.
    pub key: SumKey,
    /// Stops from outside.
    pub cancel: &'a Cancel,
}

/// Buckets `first..last` and the rows at both ends of a span that are added to them, or taken off.
#[derive(Debug)]
struct CoveredSpan {
    first: usize,
    last: usize,
    ends: [(Span, i64); 2],
}

/// Moment of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricMoment {
    /// When.
    pub ns: u64,
    /// Where among the events.
    pub place: Position,
    /// Whose peak it is, if it is one.
    pub peak_of: Option<PeakOf>,
}

impl SumQuery<'_> {
    /// The place at which something is live, for the metrics that are about a moment. The peak is that of what the
    /// selection keeps.
    ///
    /// # Errors
    /// When cancelled.
    pub fn moment(&self, metric: Metric, window: &Resolved) -> Result<Option<MetricMoment>> {
        match metric {
            Metric::Live => {
                let (ns, place) = window.at.unwrap_or((window.to_ns, window.span.to));
                Ok(Some(MetricMoment { ns, place, peak_of: window.peak_of }))
            }
            Metric::Peak => {
                let peak = peak::find(self.trace, self.selection, window.span, window.from_ns, self.cancel)?;
                Ok(Some(MetricMoment { ns: peak.at_ns, place: peak.place, peak_of: Some(peak_of(self.selection)) }))
            }
            _ => Ok(None),
        }
    }

    /// Sums of a metric over a window, and the moment that it is about.
    ///
    /// # Errors
    /// When cancelled.
    pub fn metric_at(&self, metric: Metric, window: &Resolved) -> Result<(Sums, Option<MetricMoment>)> {
        match self.moment(metric, window)? {
            Some(moment) => Ok((self.live_at(moment.place)?, Some(moment))),
            None => Ok((self.metric(metric, window)?, None)),
        }
    }

    /// Sums of a metric over a window.
    ///
    /// # Errors
    /// When cancelled.
    pub fn metric(&self, metric: Metric, window: &Resolved) -> Result<Sums> {
        let span = window.span;
        match metric {
            Metric::Live | Metric::Peak => {
                let place = self.moment(metric, window)?.map_or(span.to, |moment| moment.place);
                self.live_at(place)
            }
            Metric::Leaked => self.part(BlockPart::Leaked, span),
            Metric::Allocated => self.part(BlockPart::Allocated, span),
            Metric::Freed => self.part(BlockPart::Freed, span),
            Metric::Grown => {
                let mut sums = self.part(BlockPart::Allocated, span)?;
                for (sum, freed) in sums.iter_mut().zip(self.part(BlockPart::Freed, span)?) {
                    sum.count -= freed.count;
                    sum.bytes -= freed.bytes;
                }
                Ok(sums)
            }
            Metric::Temporary => self.part(BlockPart::Temporary, span),
        }
    }

    /// What is live at a place.
    ///
    /// # Errors
    /// When cancelled.
    pub fn live_at(&self, place: Position) -> Result<Sums> {
        if !self.sums_do() {
            return self.scan(0, place.allocs, &Also::LiveAt(place.frees));
        }
        let before = Span { from: Position::default(), to: place };
        let mut sums = self.part(BlockPart::Allocated, before)?;
        for (sum, freed) in sums.iter_mut().zip(self.part(BlockPart::Freed, before)?) {
            sum.count -= freed.count;
            sum.bytes -= freed.bytes;
        }
        Ok(sums)
    }

    /// What is live at `first` and still at `last`: the very same blocks.
    ///
    /// # Errors
    /// When cancelled.
    pub fn live_since(&self, first: Position, last: Position) -> Result<Sums> {
        self.scan(0, first.allocs, &Also::LiveAt(last.frees))
    }

    /// Whether the sums of buckets are exact for the selection.
    pub(super) fn sums_do(&self) -> bool {
        let s = self.selection;
        s.is_about_origins()
            && match self.key {
                SumKey::Site => s.threads.is_none(),
                SumKey::Thread => s.sites.is_none(),
            }
    }

    fn len(&self) -> usize {
        match self.key {
            SumKey::Site => self.trace.site_count() as usize,
            SumKey::Thread => self.trace.threads().len(),
        }
    }

    #[inline]
    pub(super) fn key_of(&self, row: u64) -> usize {
        let c = self.trace.columns();
        let origin = c.alloc_origin.get(row as usize).copied().unwrap_or(u32::MAX) as usize;
        let key = match self.key {
            SumKey::Site => c.origin_site.get(origin),
            SumKey::Thread => c.origin_thread.get(origin),
        };
        key.map_or(usize::MAX, |&k| k as usize)
    }

    fn part(&self, part: BlockPart, span: Span) -> Result<Sums> {
        self.cancel.check()?;
        if !self.sums_do() {
            return self.part_by_rows(part, span);
        }
        let empty = || vec![Signed::default(); self.len()];
        let mut sums = match self.cover(span) {
            Some(CoveredSpan { first, last, ends }) => {
                // Rows at both ends take about as long as all buckets between them.
                let by_buckets = || {
                    let mut sums = empty();
                    self.add_buckets(part, first, last, &mut sums)?;
                    Ok(sums)
                };
                let by_rows = || self.list_rows(part, &ends);
                let (inner, rows): (Result<Sums>, Result<_>) = rayon::join(by_buckets, by_rows);
                let mut sums = inner?;
                for (key, amount) in rows? {
                    if let Some(sum) = sums.get_mut(key as usize) {
                        sum.count += amount.count;
                        sum.bytes += amount.bytes;
                    }
                }
                sums
            }
            None => {
                let mut sums = empty();
                self.add_rows(part, span, &mut sums);
                sums
            }
        };
        if let (SumKey::Site, Some(sites)) = (self.key, &self.selection.sites) {
            for (sum, _) in sums.iter_mut().zip(sites).filter(|(_, passes)| !**passes) {
                *sum = Signed::default();
            }
        }
        if let (SumKey::Thread, Some(threads)) = (self.key, &self.selection.threads) {
            for (sum, _) in sums.iter_mut().zip(threads).filter(|(_, passes)| !**passes) {
                *sum = Signed::default();
            }
        }
        Ok(sums)
    }

    /// The buckets that are nearest to a span, and the rows by which they differ from it; `None` where rows alone are
    /// quicker.
    fn cover(&self, span: Span) -> Option<CoveredSpan> {
        let trace = self.trace;
        let (mut first, mut last) = trace.whole_buckets(span);
        // A span within one bucket, or within the open one.
        if !(span.from.events()..=span.to.events()).contains(&trace.bucket_start(first).events()) {
            return None;
        }
        let events = |span: Span| span.to.events() - span.from.events();
        let mut ends = [(span, 1); 2];
        let inside = Span { from: span.from, to: trace.bucket_start(first) };
        let outside = Span { from: trace.bucket_start(first.saturating_sub(1)), to: span.from };
        ends[0] = (inside, 1);
        if first > 0 && events(outside) < events(inside) {
            first -= 1;
            ends[0] = (outside, -1);
        }
        let inside = Span { from: trace.bucket_start(last), to: span.to };
        ends[1] = (inside, 1);
        if last < trace.facts().buckets.len() {
            let outside = Span { from: span.to, to: trace.bucket_start(last + 1) };
            if events(outside) < events(inside) {
                last += 1;
                ends[1] = (outside, -1);
            }
        }
        (first < last).then_some(CoveredSpan { first, last, ends })
    }

    fn add_buckets(&self, part: BlockPart, first: usize, last: usize, sums: &mut Sums) -> Result<()> {
        let (trace, facts, buckets) = (self.trace, self.trace.facts(), (first, last));
        let mut add = |key: u32, amount: BlockAmount| {
            if let Some(sum) = sums.get_mut(key as usize) {
                sum.add(amount, 1);
            }
        };
        match (part, self.key) {
            (BlockPart::Leaked, SumKey::Site) => (first..last).for_each(|b| trace.leaked().bucket(b, &mut add)),
            (BlockPart::Leaked, SumKey::Thread) => {
                let (from, to) = (trace.bucket_start(first), trace.bucket_start(last));
                for row in trace.leaked().rows_among(from.allocs, to.allocs) {
                    let (key, amount) = (self.key_of(row), trace.site_amount(row).1);
                    add(key as u32, amount);
                }
            }
            (BlockPart::Freed, SumKey::Thread) => {
                let bearers = &trace.columns().pair_bearer;
                trace.walk_buckets::<1>(&facts.pair_sums, buckets, 0, self.cancel, |pair, amount| {
                    add(bearers.get(pair as usize).copied().unwrap_or(u32::MAX), amount);
                })?;
            }
            (BlockPart::Allocated | BlockPart::Temporary, SumKey::Thread) => {
                let wanted = usize::from(matches!(part, BlockPart::Temporary));
                trace.walk_buckets::<2>(&facts.thread_sums, buckets, wanted, self.cancel, add)?;
            }
            (_, SumKey::Site) => {
                let wanted = match part {
                    BlockPart::Allocated => field::ALLOCATED,
                    BlockPart::Freed => field::FREED,
                    _ => field::TEMPORARY,
                };
                trace.walk_buckets::<3>(&facts.site_sums, buckets, wanted, self.cancel, add)?;
            }
        }
        if matches!(part, BlockPart::Temporary) {
            self.add_late(first, last, sums);
        }
        Ok(())
    }

    /// Adds temporary blocks that were freed after the bucket of their allocation was closed.
    fn add_late(&self, first: usize, last: usize, sums: &mut Sums) {
        let c = self.trace.columns();
        let (from, to) = (self.trace.bucket_start(first).allocs, self.trace.bucket_start(last).allocs);
        for (&row, &size) in c.late_row.iter().zip(c.late_size.iter()) {
            if (from..to).contains(&row)
                && let Some(sum) = sums.get_mut(self.key_of(row))
            {
                sum.add(BlockAmount { count: 1, bytes: size }, 1);
            }
        }
    }

    fn add_rows(&self, part: BlockPart, span: Span, sums: &mut Sums) {
        self.each_row(part, span, |key, bytes| {
            if let Some(sum) = sums.get_mut(key) {
                sum.add(BlockAmount { count: 1, bytes }, 1);
            }
        });
    }

    /// The rows of some spans, each with its key. They are few beside all keys: a list is added to sums sooner than
    /// other sums are.
    fn list_rows(&self, part: BlockPart, spans: &[(Span, i64)]) -> Result<Vec<(u32, Signed)>> {
        let mut rows = Vec::new();
        for &(span, sign) in spans {
            self.cancel.check()?;
            self.each_row(part, span, |key, bytes| {
                let amount = Signed { count: sign, bytes: sign * bytes as i64 };
                rows.push((u32::try_from(key).unwrap_or(u32::MAX), amount));
            });
        }
        Ok(rows)
    }

    /// Calls `each` with the key and the bytes of every row of a span.
    fn each_row(&self, part: BlockPart, span: Span, mut each: impl FnMut(usize, u64)) {
        let trace = self.trace;
        let allocs = span.from.allocs..span.to.allocs;
        if matches!(part, BlockPart::Freed) {
            for ordinal in span.from.frees..span.to.frees {
                each(self.key_of(trace.row_of_free(ordinal)), trace.size_of_free(ordinal));
            }
            return;
        }
        let mut each = |row: u64| each(self.key_of(row), trace.size_of(row));
        match part {
            BlockPart::Allocated | BlockPart::Freed => allocs.for_each(each),
            BlockPart::Temporary => {
                let everything = Selection::all();
                let test = everything.rows(trace);
                let mut picker = Picker::new(&test, Also::Temporary);
                for start in allocs.clone().step_by(BLOCK) {
                    let picked = picker.pick(start, (start + BLOCK as u64).min(allocs.end));
                    picked.iter().for_each(|&offset| each(start + u64::from(offset)));
                }
            }
            BlockPart::Leaked => trace.leaked().rows_among(allocs.start, allocs.end).for_each(each),
        }
    }

    fn part_by_rows(&self, part: BlockPart, span: Span) -> Result<Sums> {
        let (from, to) = (span.from.allocs, span.to.allocs);
        match part {
            BlockPart::Allocated => self.scan(from, to, &Also::Nothing),
            BlockPart::Temporary => self.scan(from, to, &Also::Temporary),
            BlockPart::Leaked => self.scan(from, to, &Also::LiveAt(self.trace.free_count())),
            BlockPart::Freed => {
                let frees = span.from.frees..span.to.frees;
                // A long range: read all allocations in order. A short one: look up the allocations of its frees.
                if (frees.end - frees.start).saturating_mul(6) > to {
                    self.scan(0, to, &Also::Freed(frees))
                } else {
                    self.scan_frees(frees.start, frees.end)
                }
            }
        }
    }

    /// Sums over the allocations `from..to` that pass the selection and fulfil `also`.
    fn scan(&self, from: u64, to: u64, also: &Also) -> Result<Sums> {
        let test = self.selection.rows(self.trace);
        self.add_up(
            from,
            to,
            |start, end, sums, picker: &mut Picker<'_>| {
                for &offset in picker.pick(start, end) {
                    self.add_row(start + u64::from(offset), 1, sums);
                }
            },
            || Picker::new(&test, also.clone()),
        )
    }

    /// Sums over the allocations that the frees `from..to` ended and that pass the selection.
    fn scan_frees(&self, from: u64, to: u64) -> Result<Sums> {
        let test = self.selection.rows(self.trace);
        self.add_up(
            from,
            to,
            |start, end, sums, picker: &mut Picker<'_>| {
                for &offset in picker.pick_frees(start, end) {
                    self.add_free(start + u64::from(offset), 1, sums);
                }
            },
            || Picker::new(&test, Also::Nothing),
        )
    }

    #[inline]
    fn add_row(&self, row: u64, sign: i64, sums: &mut Sums) {
        if let Some(sum) = sums.get_mut(self.key_of(row)) {
            sum.add(BlockAmount { count: 1, bytes: self.trace.size_of(row) }, sign);
        }
    }

    #[inline]
    fn add_free(&self, ordinal: u64, sign: i64, sums: &mut Sums) {
        if let Some(sum) = sums.get_mut(self.key_of(self.trace.row_of_free(ordinal))) {
            sum.add(BlockAmount { count: 1, bytes: self.trace.size_of_free(ordinal) }, sign);
        }
    }

    /// Scans `from..to` in blocks, on all threads of the pool.
    fn add_up<S>(
        &self,
        from: u64,
        to: u64,
        block: impl Fn(u64, u64, &mut Sums, &mut S) + Sync,
        state: impl Fn() -> S + Sync,
    ) -> Result<Sums> {
        let len = self.len();
        let one = |range: std::ops::Range<u64>| -> Result<Sums> {
            let (mut sums, mut state) = (vec![Signed::default(); len], state());
            for (at, start) in range.clone().step_by(BLOCK).enumerate() {
                if at.is_multiple_of(CHECK) {
                    self.cancel.check()?;
                }
                block(start, (start + BLOCK as u64).min(range.end), &mut sums, &mut state);
            }
            Ok(sums)
        };
        let merge = |a, b| Ok(added(a, b));
        ranges(from, to).into_par_iter().map(one).try_reduce(|| vec![Signed::default(); len], merge)
    }
}

fn added(mut a: Sums, b: Sums) -> Sums {
    for (a, b) in a.iter_mut().zip(b) {
        a.count += b.count;
        a.bytes += b.bytes;
    }
    a
}

/// Blocks between two looks at the cancel flag.
const CHECK: usize = 256;

/// Into how many parts so many sums are cut, so that no thread of the pool waits for another one; few stay together.
#[must_use]
pub fn parts(sums: usize) -> usize {
    const FEW: usize = 1 << 14;
    (sums / FEW).clamp(1, 2 * rayon::current_num_threads())
}

/// Cuts a range of rows into ranges for the threads of the pool; short ones stay whole.
#[must_use]
pub fn ranges(from: u64, to: u64) -> Vec<std::ops::Range<u64>> {
    const SHORT: u64 = 1 << 16;
    let len = to.saturating_sub(from);
    let parts = (len / SHORT).clamp(1, 4 * rayon::current_num_threads() as u64);
    (0..parts).map(|i| from + len * i / parts..from + len * (i + 1) / parts).collect()
}
