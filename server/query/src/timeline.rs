//! Time series over a window in equal columns of time: live bytes and blocks with their extremes, rates, sampled
//! memory.
//!
//! Extremes are exact: whole pages of the index bring theirs, events at the edges of a column are walked one by one.

mod columns;
mod occupied;
pub mod peak;
mod steps;

use columns::{Grid, PixelColumn};
use rayon::prelude::*;

use super::filter::{Filter, Selection};
use super::scan::{Also, BLOCK, Picker};
use super::window::{Resolved, Window, peak_of};
use super::{QueryError, Result};
use tracehound_api::info::{Mark, Peak};
use tracehound_api::timeline::{Series, SeriesName, Timeline};
use tracehound_index::symbols::RecordingSymbols;
use tracehound_index::{Cancel, Trace};

/// Parameters of the query.
#[derive(Debug, Clone)]
pub struct TimelineParams {
    /// Which time series.
    pub series: Vec<SeriesName>,
    /// Window of time.
    pub window: Window,
    /// Which blocks count.
    pub filter: Filter,
    /// Number of columns.
    pub points: usize,
}

impl Default for TimelineParams {
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

/// Draws the time series.
///
/// # Errors
/// When a parameter does not fit the recording, or cancelled.
pub fn run(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    params: &TimelineParams,
    cancel: &Cancel,
) -> Result<Timeline> {
    let selection = params.filter.select(trace, symbols, cancel)?;
    let window = params.window.resolve(trace, &selection, cancel)?;
    if params.points == 0 || params.points > MAX_POINTS {
        return Err(QueryError::bad("points", format!("1 to {MAX_POINTS} columns can be asked for")));
    }
    let selection = selection.found(trace, window.span, cancel)?;
    draw(trace, &selection, &window, &params.series, params.points, cancel)
}

/// Draws time series for what a selection keeps.
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
    let needs_columns = series.iter().any(|s| {
        let others = [
            SeriesName::OccupiedBytes,
            SeriesName::Rss,
            SeriesName::RssProgram,
            SeriesName::RssAnonymous,
            SeriesName::VirtualSize,
            SeriesName::MappedBytes,
        ];
        !others.contains(s)
    });
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
            SeriesName::OccupiedBytes => drawn.push(occupied::series(trace, &grid)),
            SeriesName::Rss => drawn.push(sampled(trace, name, &trace.columns().sample_rss, &grid)),
            SeriesName::RssProgram => {
                let c = trace.columns();
                let own = c.sample_rss.iter().zip(c.sample_recorder.iter());
                let own: Vec<u64> = own.map(|(rss, recorder)| rss.saturating_sub(*recorder)).collect();
                drawn.push(sampled(trace, name, &own, &grid));
            }
            SeriesName::RssAnonymous => drawn.push(sampled(trace, name, &trace.columns().sample_anonymous, &grid)),
            SeriesName::VirtualSize => drawn.push(sampled(trace, name, &trace.columns().sample_virtual, &grid)),
            SeriesName::MappedBytes => drawn.push(mapped(trace, &grid)),
            _ => drawn.push(curve(name, &columns, &grid)),
        }
    }
    let peak = peak::find(trace, selection, window.span, window.from_ns, cancel)?;
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
            .filter(|c| c.from_ns <= window.to_ns && c.to_ns >= window.from_ns)
            .copied()
            .collect(),
        peak: Peak { bytes: peak.bytes, count: peak.count, at_ns: peak.at_ns },
        peak_of: peak_of(selection),
        exactness: trace.exactness(),
    })
}

fn curve(name: SeriesName, columns: &[PixelColumn], grid: &Grid) -> Series {
    let value = |pick: &dyn Fn(usize, &PixelColumn) -> f64| -> Vec<Option<f64>> {
        columns.iter().enumerate().map(|(i, column)| Some(pick(i, column))).collect()
    };
    let rate = |pick: &dyn Fn(&PixelColumn) -> u64| {
        let rates = value(&|i, column| pick(column) as f64 / grid.seconds(i));
        (rates.clone(), rates.clone(), rates)
    };
    let (min, max, last) = match name {
        SeriesName::LiveCount => {
            (value(&|_, c| c.min_count as f64), value(&|_, c| c.max_count as f64), value(&|_, c| c.last_count as f64))
        }
        SeriesName::AllocRate => rate(&|c| c.allocs),
        SeriesName::FreeRate => rate(&|c| c.frees),
        SeriesName::AllocBytesRate => rate(&|c| c.allocated_bytes),
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

/// Mapped bytes hold from one event to the next.
fn mapped(trace: &Trace, grid: &Grid) -> Series {
    let steps = trace.mapped_curve();
    let mut series =
        Series { name: SeriesName::MappedBytes, thread: None, min: Vec::new(), max: Vec::new(), last: Vec::new() };
    for i in 0..grid.len() {
        let from = steps.partition_point(|s| s.0 < grid.times[i]);
        let to = steps.partition_point(|s| s.0 < grid.times[i + 1]);
        let before = from.checked_sub(1).map_or(0, |at| steps[at].1);
        let mut inside = steps[from..to].iter().map(|s| s.1);
        series.min.push(Some(inside.clone().fold(before, u64::min) as f64));
        series.max.push(Some(inside.clone().fold(before, u64::max) as f64));
        series.last.push(Some(inside.next_back().unwrap_or(before) as f64));
    }
    series
}

fn thread_rates(trace: &Trace, selection: &Selection, grid: &Grid, cancel: &Cancel) -> Result<Vec<Series>> {
    let test = selection.rows(trace);
    let counts: Vec<Vec<u64>> = (0..grid.len())
        .into_par_iter()
        .map(|i| {
            cancel.check()?;
            let mut counts = vec![0_u64; trace.threads().len()];
            let c = trace.columns();
            let mut picker = Picker::new(&test, Also::Nothing);
            let own = trace.own_start().allocs;
            let (from, to) = (grid.places[i].allocs.max(own), grid.places[i + 1].allocs);
            for start in (from..to).step_by(BLOCK) {
                for &offset in picker.pick(start, (start + BLOCK as u64).min(to)) {
                    let origin = c.alloc_origin.get(start as usize + usize::from(offset)).copied().unwrap_or(u32::MAX);
                    let thread = c.origin_thread.get(origin as usize).copied().unwrap_or(u32::MAX);
                    if let Some(count) = counts.get_mut(thread as usize) {
                        *count += 1;
                    }
                }
            }
            Ok(counts)
        })
        .collect::<Result<_>>()?;
    let mut series = Vec::new();
    for (position, thread) in trace.threads().iter().enumerate() {
        let rates: Vec<Option<f64>> =
            counts.iter().enumerate().map(|(i, c)| Some(c[position] as f64 / grid.seconds(i))).collect();
        if rates.iter().any(|r| *r != Some(0.0)) {
            let (min, max) = (rates.clone(), rates.clone());
            series.push(Series { name: SeriesName::ThreadRate, thread: Some(thread.id), min, max, last: rates });
        }
    }
    Ok(series)
}
