//! Curves over a window in equal columns of time: live bytes and blocks with their extremes, rates, sampled memory.
//!
//! Extremes are exact: whole pages of the index bring theirs, events at the edges of a column are walked one by one.

use rayon::prelude::*;

use super::amounts::{Key, Question};
use super::filter::{Filter, Selection};
use super::window::{Resolved, Window};
use super::{QueryError, Result};
use crate::api::info::{Capture, Mark, Peak};
use crate::api::timeline::{Series, SeriesName, Timeline};
use crate::trace::symbols::Symbols;
use crate::trace::{Cancel, Position, State, Trace};

/// What is asked.
#[derive(Debug, Clone)]
pub struct Params {
    /// Which curves.
    pub series: Vec<SeriesName>,
    /// When.
    pub window: Window,
    /// Of what.
    pub filter: Filter,
    /// Number of columns.
    pub points: usize,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            series: vec![SeriesName::LiveBytes, SeriesName::AllocRate, SeriesName::Rss],
            window: Window::default(),
            filter: Filter::default(),
            points: 1000,
        }
    }
}

/// Most columns of one answer.
pub const MAX_POINTS: usize = 20_000;

/// Draws the curves.
///
/// # Errors
/// When a parameter does not fit the recording, or cancelled.
pub fn run(trace: &Trace, symbols: &dyn Symbols, params: &Params, cancel: &Cancel) -> Result<Timeline> {
    let window = params.window.resolve(trace)?;
    let selection = params.filter.select(trace, symbols, cancel)?;
    if params.points == 0 || params.points > MAX_POINTS {
        return Err(QueryError::bad("points", format!("1 to {MAX_POINTS} columns can be asked for")));
    }
    draw(trace, &selection, &window, &params.series, params.points, cancel)
}

/// Draws curves for what a selection keeps.
///
/// # Errors
/// When cancelled.
pub fn draw(
    trace: &Trace,
    selection: &Selection,
    window: &Resolved,
    series: &[SeriesName],
    points: usize,
    cancel: &Cancel,
) -> Result<Timeline> {
    let grid = Grid::new(trace, window, points);
    let needs_columns =
        series.iter().any(|s| !matches!(s, SeriesName::Rss | SeriesName::RssAnonymous | SeriesName::VirtualSize));
    let columns = if !needs_columns {
        Vec::new()
    } else if selection.is_everything() {
        grid.columns(trace, cancel)?
    } else {
        grid.filtered_columns(trace, selection, cancel)?
    };
    let mut drawn = Vec::new();
    for &name in series {
        match name {
            SeriesName::ThreadRate => drawn.extend(thread_rates(trace, selection, &grid, cancel)?),
            SeriesName::Rss => drawn.push(sampled(trace, name, &trace.columns().sample_rss, &grid)),
            SeriesName::RssAnonymous => drawn.push(sampled(trace, name, &trace.columns().sample_anonymous, &grid)),
            SeriesName::VirtualSize => drawn.push(sampled(trace, name, &trace.columns().sample_virtual, &grid)),
            _ => drawn.push(curve(name, &columns, &grid)),
        }
    }
    let peak = trace.peak_in(window.span, window.from_ns);
    let facts = trace.facts();
    let inside = |t_ns: u64| (window.from_ns..=window.to_ns).contains(&t_ns);
    Ok(Timeline {
        schema: "heaptrace.timeline/1".into(),
        from_ns: window.from_ns,
        to_ns: window.to_ns,
        t_ns: grid.times[..grid.len()].to_vec(),
        series: drawn,
        marks: facts
            .marks
            .iter()
            .filter(|m| inside(m.t_ns))
            .map(|m| Mark { t_ns: m.t_ns, label: m.label.clone(), thread: m.thread })
            .collect(),
        captures: facts
            .captures
            .iter()
            .filter(|c| c.0 <= window.to_ns && c.1 >= window.from_ns)
            .map(|&(from_ns, to_ns)| Capture { from_ns, to_ns })
            .collect(),
        peak: Peak { bytes: peak.bytes, count: peak.count, at_ns: peak.at_ns },
        exactness: trace.exactness(),
    })
}

/// Borders of the columns: one more than there are columns.
struct Grid {
    times: Vec<u64>,
    places: Vec<Position>,
}

/// What happened in a column.
#[derive(Debug, Clone, Copy, Default)]
struct Column {
    min_bytes: i64,
    max_bytes: i64,
    last_bytes: i64,
    min_count: i64,
    max_count: i64,
    last_count: i64,
    births: u64,
    deaths: u64,
    born_bytes: u64,
}

impl Column {
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

    #[inline]
    fn see(&mut self, bytes: i64, count: i64) {
        self.min_bytes = self.min_bytes.min(bytes);
        self.max_bytes = self.max_bytes.max(bytes);
        self.min_count = self.min_count.min(count);
        self.max_count = self.max_count.max(count);
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

impl Grid {
    fn new(trace: &Trace, window: &Resolved, points: usize) -> Self {
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

    fn len(&self) -> usize {
        self.times.len() - 1
    }

    fn seconds(&self, column: usize) -> f64 {
        (self.times[column + 1] - self.times[column]).max(1) as f64 / 1e9
    }

    fn columns(&self, trace: &Trace, cancel: &Cancel) -> Result<Vec<Column>> {
        (0..self.len())
            .into_par_iter()
            .with_min_len(16)
            .map(|i| {
                cancel.check()?;
                Ok(whole_column(trace, self.places[i], self.places[i + 1]))
            })
            .collect()
    }

    /// Every event of the window is looked at; what was live when it began comes from sums.
    fn filtered_columns(&self, trace: &Trace, selection: &Selection, cancel: &Cancel) -> Result<Vec<Column>> {
        let test = selection.rows(trace);
        let mut columns: Vec<Column> = (0..self.len())
            .into_par_iter()
            .map(|i| {
                cancel.check()?;
                let mut column = Column::default();
                let (mut bytes, mut count) = (0_i64, 0_i64);
                let (mut at, end) = (self.places[i], self.places[i + 1].events());
                let mut since_check = 0_u32;
                while at.events() < end {
                    since_check += 1;
                    if since_check == 1 << 20 {
                        since_check = 0;
                        cancel.check()?;
                    }
                    let mut settled = true;
                    if trace.is_death(at.events()) {
                        let row = trace.row_of_death(at.deaths);
                        at.deaths += 1;
                        if !test.passes(row) {
                            continue;
                        }
                        settled = !trace.is_half(at.deaths - 1);
                        bytes -= trace.size_of(row) as i64;
                        count -= 1;
                        column.deaths += 1;
                    } else {
                        let row = at.births;
                        at.births += 1;
                        if test.passes(row) {
                            let size = trace.size_of(row);
                            bytes += size as i64;
                            count += 1;
                            column.births += 1;
                            column.born_bytes += size;
                        }
                    }
                    // The second half of a realloc settles the first even if it does not pass itself.
                    if settled {
                        column.see(bytes, count);
                    }
                }
                column.last_bytes = bytes;
                column.last_count = count;
                Ok(column)
            })
            .collect::<Result<_>>()?;
        let question = Question { trace, selection, key: Key::Site, cancel };
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

fn whole_column(trace: &Trace, from: Position, to: Position) -> Column {
    let start = trace.state_at(from);
    let count = |place: Position| (place.births - place.deaths) as i64;
    let mut column = Column::starting(start.live as i64, count(from));
    if from.events() >= to.events() {
        return column;
    }
    let walk = |column: &mut Column, mut state: State, events: u64| {
        trace.walk_from(&mut state, events, |state| {
            if state.settled {
                column.see(state.live as i64, count(state.place));
            }
        });
        state
    };
    let first = trace.page_of_event(from.events()).unwrap_or(0);
    let last = trace.page_of_event(to.events()).unwrap_or(0);
    let first_end = trace.page_start(first + 1).events().min(to.events());
    let mut end = walk(&mut column, start, first_end);
    if last > first {
        let c = trace.columns();
        let closed = last.min(c.page_time.len());
        for page in first + 1..closed {
            column.min_bytes = column.min_bytes.min(c.page_min_bytes[page] as i64);
            column.max_bytes = column.max_bytes.max(c.page_max_bytes[page] as i64);
            column.min_count = column.min_count.min(i64::from(c.page_min_count[page]));
            column.max_count = column.max_count.max(i64::from(c.page_max_count[page]));
        }
        end = if to == trace.end_position() && trace.page_start(last) == to {
            trace.state_at(to)
        } else {
            walk(&mut column, trace.page_state(last), to.events())
        };
    }
    column.last_bytes = end.live as i64;
    column.last_count = count(to);
    column.births = to.births - from.births;
    column.deaths = to.deaths - from.deaths;
    column.born_bytes = end.allocated - start.allocated;
    column
}

fn curve(name: SeriesName, columns: &[Column], grid: &Grid) -> Series {
    let value = |pick: &dyn Fn(usize, &Column) -> f64| -> Vec<Option<f64>> {
        columns.iter().enumerate().map(|(i, column)| Some(pick(i, column))).collect()
    };
    let rate = |pick: &dyn Fn(&Column) -> u64| {
        let rates = value(&|i, column| pick(column) as f64 / grid.seconds(i));
        (rates.clone(), rates.clone(), rates)
    };
    let (min, max, last) = match name {
        SeriesName::LiveCount => {
            (value(&|_, c| c.min_count as f64), value(&|_, c| c.max_count as f64), value(&|_, c| c.last_count as f64))
        }
        SeriesName::AllocRate => rate(&|c| c.births),
        SeriesName::FreeRate => rate(&|c| c.deaths),
        SeriesName::AllocBytesRate => rate(&|c| c.born_bytes),
        _ => (value(&|_, c| c.min_bytes as f64), value(&|_, c| c.max_bytes as f64), value(&|_, c| c.last_bytes as f64)),
    };
    Series { name, thread: None, min, max, last }
}

fn sampled(trace: &Trace, name: SeriesName, values: &[u64], grid: &Grid) -> Series {
    let times = &trace.columns().sample_time;
    let mut series = Series { name, thread: None, min: Vec::new(), max: Vec::new(), last: Vec::new() };
    for i in 0..grid.len() {
        let from = times.partition_point(|&t| t < grid.times[i]);
        let to = times.partition_point(|&t| t < grid.times[i + 1]);
        let samples = values.get(from..to).unwrap_or_default();
        let number = |value: Option<&u64>| value.map(|&v| v as f64);
        series.min.push(number(samples.iter().min()));
        series.max.push(number(samples.iter().max()));
        series.last.push(number(samples.last()));
    }
    series
}

fn thread_rates(trace: &Trace, selection: &Selection, grid: &Grid, cancel: &Cancel) -> Result<Vec<Series>> {
    let test = selection.rows(trace);
    let all = selection.is_everything();
    let counts: Vec<Vec<u32>> = (0..grid.len())
        .into_par_iter()
        .map(|i| {
            cancel.check()?;
            let mut counts = vec![0_u32; trace.threads().len()];
            let c = trace.columns();
            for row in grid.places[i].births..grid.places[i + 1].births {
                let origin = c.birth_origin.get(row as usize).copied().unwrap_or(u32::MAX);
                let thread = c.origin_thread.get(origin as usize).copied().unwrap_or(u32::MAX);
                if let Some(count) = counts.get_mut(thread as usize)
                    && (all || test.passes(row))
                {
                    *count += 1;
                }
            }
            Ok(counts)
        })
        .collect::<Result<_>>()?;
    let mut series = Vec::new();
    for (position, thread) in trace.threads().iter().enumerate() {
        let rates: Vec<Option<f64>> =
            counts.iter().enumerate().map(|(i, c)| Some(f64::from(c[position]) / grid.seconds(i))).collect();
        if rates.iter().any(|r| *r != Some(0.0)) {
            let (min, max) = (rates.clone(), rates.clone());
            series.push(Series { name: SeriesName::ThreadRate, thread: Some(thread.id), min, max, last: rates });
        }
    }
    Ok(series)
}
