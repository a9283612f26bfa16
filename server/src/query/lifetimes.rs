//! Lifetimes of the blocks born in a window, alone and against size. A block that still lives counts as living until
//! the end of the recording.

use rayon::prelude::*;

use super::Result;
use super::amounts::stretches;
use super::filter::{Filter, Selection};
use super::histogram::{Cell, Scale, document};
use super::window::Window;
use crate::api::histograms::{Histogram, Lifetimes};
use crate::api::sites::Quantiles;
use crate::trace::symbols::Symbols;
use crate::trace::{Cancel, Span, Trace};

/// What is asked.
#[derive(Debug, Clone, Default)]
pub struct Params {
    /// Blocks born in this window.
    pub window: Window,
    /// Of what.
    pub filter: Filter,
}

/// Classes of lifetimes, nanoseconds.
pub const SCALE: Scale = Scale { split: 2 };
/// Classes of both axes of the heat map.
const MAP: Scale = Scale { split: 1 };

/// Counts lifetimes.
///
/// # Errors
/// When a parameter does not fit the recording, or cancelled.
pub fn run(trace: &Trace, symbols: &dyn Symbols, params: &Params, cancel: &Cancel) -> Result<Lifetimes> {
    let window = params.window.resolve(trace)?;
    let selection = params.filter.select(trace, symbols, cancel)?;
    let classes = MAP.classes();
    let parts: Vec<(Vec<Cell>, Vec<Cell>)> = stretches(window.span.from.births, window.span.to.births)
        .into_par_iter()
        .map(|stretch| {
            let mut cells = vec![Cell::default(); SCALE.classes()];
            let mut map = vec![Cell::default(); classes * classes];
            let span = Span {
                from: crate::trace::Position { births: stretch.start, deaths: 0 },
                to: crate::trace::Position { births: stretch.end, deaths: 0 },
            };
            each(trace, &selection, span, cancel, |size, lifetime, lives| {
                cells[SCALE.class(lifetime)].add(size, lives);
                map[MAP.class(size) * classes + MAP.class(lifetime)].add(size, lives);
            })?;
            Ok((cells, map))
        })
        .collect::<Result<_>>()?;
    let mut cells = vec![Cell::default(); SCALE.classes()];
    let mut map = vec![Cell::default(); classes * classes];
    for (part, part_map) in &parts {
        cells.iter_mut().zip(part).for_each(|(a, b)| a.merge(b));
        map.iter_mut().zip(part_map).for_each(|(a, b)| a.merge(b));
    }
    let used = |axis: &dyn Fn(usize) -> usize| -> std::ops::Range<usize> {
        let mut hit = (0..map.len()).filter(|&i| map[i].count > 0).map(axis);
        let Some(first) = hit.next() else { return 0..0 };
        let (low, high) = hit.fold((first, first), |(low, high), c| (low.min(c), high.max(c)));
        low..high + 1
    };
    let sizes = used(&|i| i / classes);
    let lifetimes = used(&|i| i % classes);
    let cell = |pick: fn(&Cell) -> u64| -> Vec<u64> {
        sizes.clone().flat_map(|s| lifetimes.clone().map(move |l| s * classes + l)).map(|i| pick(&map[i])).collect()
    };
    Ok(Lifetimes {
        schema: "heaptrace.lifetimes/1".into(),
        from_ns: window.from_ns,
        to_ns: window.to_ns,
        histogram: document(SCALE, &cells),
        map_lifetime: lifetimes.clone().map(|c| MAP.floor(c)).collect(),
        map_size: sizes.clone().map(|c| MAP.floor(c)).collect(),
        map_count: cell(|c| c.count),
        map_bytes: cell(|c| c.bytes),
        exactness: trace.exactness(),
    })
}

/// Tells size, lifetime, and whether it lives, of every block born in a span that passes.
fn each(
    trace: &Trace,
    selection: &Selection,
    span: Span,
    cancel: &Cancel,
    mut tell: impl FnMut(u64, u64, bool),
) -> Result<()> {
    let test = selection.rows(trace);
    let mut row = span.from.births;
    let Some(mut page) = trace.page_of_birth(row) else { return Ok(()) };
    while row < span.to.births {
        cancel.check()?;
        let base = trace.page(page).time_ns;
        page += 1;
        let end = trace.page_start(page).births.min(span.to.births);
        for row in row..end {
            if !test.passes(row) {
                continue;
            }
            let born = base + u64::from(trace.columns().birth_time.get(row as usize).copied().unwrap_or(0));
            let death = trace.death_of(row);
            let until = death.map_or(trace.duration_ns(), |d| trace.died_ns(d));
            tell(trace.size_of(row), until.saturating_sub(born), death.is_none());
        }
        row = end.max(row);
    }
    Ok(())
}

/// Histogram and quantiles of the lifetimes of the blocks born in a span.
///
/// # Errors
/// When cancelled.
pub fn summary(trace: &Trace, selection: &Selection, span: Span, cancel: &Cancel) -> Result<(Histogram, Quantiles)> {
    let mut cells = vec![Cell::default(); SCALE.classes()];
    let (mut lifetimes, mut censored) = (Vec::new(), 0);
    each(trace, selection, span, cancel, |size, lifetime, lives| {
        cells[SCALE.class(lifetime)].add(size, lives);
        lifetimes.push(lifetime);
        censored += u64::from(lives);
    })?;
    lifetimes.sort_unstable();
    let at = |part: f64| {
        // The smallest value that at least this part of the blocks does not exceed.
        let rank = (part * lifetimes.len() as f64).ceil() as usize;
        lifetimes.get(rank.max(1) - 1).copied().unwrap_or(0)
    };
    let quantiles = Quantiles {
        min_ns: at(0.0),
        p10_ns: at(0.1),
        p50_ns: at(0.5),
        p90_ns: at(0.9),
        max_ns: lifetimes.last().copied().unwrap_or(0),
        censored,
    };
    Ok((document(SCALE, &cells), quantiles))
}
