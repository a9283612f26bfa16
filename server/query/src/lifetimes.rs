//! Lifetimes of the blocks allocated in a window, alone and against size. A block that still lives counts as living
//! until the end of the recording.

use std::ops::Range;

use rayon::prelude::*;

use super::Result;
use super::amounts::ranges;
use super::filter::{Filter, Selection};
use super::histogram::{ClassCount, Scale, document};
use super::scan::{Also, BLOCK, Picker, RowTest};
use super::window::Window;
use tracehound_api::histograms::{Histogram, Lifetimes};
use tracehound_api::sites::Quantiles;
use tracehound_index::layout::{CLASS_BITS, class_floor};
use tracehound_index::symbols::RecordingSymbols;
use tracehound_index::{Cancel, Span, Trace};

/// Parameters of the query.
#[derive(Debug, Clone, Default)]
pub struct LifetimesParams {
    /// Blocks allocated in this window.
    pub window: Window,
    /// Which blocks count.
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
pub fn run(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    params: &LifetimesParams,
    cancel: &Cancel,
) -> Result<Lifetimes> {
    let selection = params.filter.select(trace, symbols, cancel)?;
    let window = params.window.resolve(trace, &selection, cancel)?;
    let classes = MAP.classes();
    let test = selection.rows(trace);
    let parts: Vec<(Vec<ClassCount>, Vec<ClassCount>)> = ranges(window.span.from.allocs, window.span.to.allocs)
        .into_par_iter()
        .map(|range| {
            let mut cells = vec![ClassCount::default(); SCALE.classes()];
            let mut map = vec![ClassCount::default(); classes * classes];
            each(&test, trace, range, cancel, |_, size, class, lives| {
                cells[class].add(size, lives);
                map[MAP.class(size) * classes + map_class(class)].add(size, lives);
            })?;
            Ok((cells, map))
        })
        .collect::<Result<_>>()?;
    let mut cells = vec![ClassCount::default(); SCALE.classes()];
    let mut map = vec![ClassCount::default(); classes * classes];
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
    let cell = |pick: fn(&ClassCount) -> u64| -> Vec<u64> {
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

/// Passes row, size and class of the lifetime on [`SCALE`] of the blocks allocated in a span that pass, and whether they
/// live. The ledger has the class, except for the shortest and the longest lifetimes.
fn each(
    test: &RowTest<'_>,
    trace: &Trace,
    rows: Range<u64>,
    cancel: &Cancel,
    mut tell: impl FnMut(u64, u64, usize, bool),
) -> Result<()> {
    let mut picker = Picker::new(test, Also::Nothing);
    let ledgers = trace.ledgers();
    for (at, start) in rows.clone().step_by(BLOCK).enumerate() {
        if at.is_multiple_of(256) {
            cancel.check()?;
        }
        for &offset in picker.pick(start, (start + BLOCK as u64).min(rows.end)) {
            let row = start + u64::from(offset);
            let size = trace.size_of(row);
            let lives = trace.free_of(row).is_none();
            let known = usize::from((ledgers.lifetime_class.get(row as usize) & CLASS_BITS).max(1) - 1);
            let class = if lives || !EXACT.contains(&known) { SCALE.class(lifetime(trace, row)) } else { known };
            tell(row, size, class, lives);
        }
    }
    Ok(())
}

/// Histogram and quantiles of the lifetimes of the blocks allocated in a span.
///
/// # Errors
/// When cancelled.
pub fn summary(trace: &Trace, selection: &Selection, span: Span, cancel: &Cancel) -> Result<(Histogram, Quantiles)> {
    let mut groups = grouped(trace, selection, span, 1, |_| 0, cancel)?;
    let (cells, quantiles) = groups.pop().unwrap_or_default();
    Ok((document(SCALE, &cells), quantiles))
}

/// Quantiles of the lifetimes of the blocks that each of `sites` allocated in a span.
///
/// # Errors
/// When cancelled.
pub fn by_site(
    trace: &Trace,
    selection: &Selection,
    span: Span,
    sites: &[u32],
    cancel: &Cancel,
) -> Result<Vec<Quantiles>> {
    let mut groups = vec![0; trace.site_count() as usize];
    for (group, &site) in sites.iter().enumerate() {
        if let Some(of_site) = groups.get_mut(site as usize) {
            *of_site = group;
        }
    }
    let selection = selection.clone().and_sites(trace, sites).found(trace, span, cancel)?;
    // Only rows of these sites pass.
    let group_of = |row| groups.get(trace.site_amount(row).0 as usize).copied().unwrap_or(0);
    let found = grouped(trace, &selection, span, sites.len(), group_of, cancel)?;
    Ok(found.into_iter().map(|(_, quantiles)| quantiles).collect())
}

/// Counts and quantiles of the lifetimes in each of `groups` groups of the blocks allocated in a span.
fn grouped(
    trace: &Trace,
    selection: &Selection,
    span: Span,
    groups: usize,
    group_of: impl Fn(u64) -> usize + Sync,
    cancel: &Cancel,
) -> Result<Vec<(Vec<ClassCount>, Quantiles)>> {
    let classes = SCALE.classes();
    let test = selection.rows(trace);
    let ranges = ranges(span.from.allocs, span.to.allocs);
    let count = |rows: &Range<u64>| -> Result<Vec<ClassCount>> {
        let mut cells = vec![ClassCount::default(); groups * classes];
        each(&test, trace, rows.clone(), cancel, |row, size, class, lives| {
            cells[group_of(row) * classes + class].add(size, lives);
        })?;
        Ok(cells)
    };
    let mut cells = vec![ClassCount::default(); groups * classes];
    for part in ranges.par_iter().map(count).collect::<Result<Vec<_>>>()? {
        cells.iter_mut().zip(&part).for_each(|(a, b)| a.merge(b));
    }
    let places: Vec<[Option<QuantileRank>; 5]> = cells.chunks(classes).map(quantile_places).collect();
    // Exact values are needed of the classes alone that hold a quantile.
    let mut slots: Vec<Option<usize>> = vec![None; groups * classes];
    let mut slot_count = 0;
    for (group, places) in places.iter().enumerate() {
        for place in places.iter().flatten() {
            let slot = &mut slots[group * classes + place.class];
            if slot.is_none() {
                *slot = Some(slot_count);
                slot_count += 1;
            }
        }
    }
    let collect = |rows: &Range<u64>| -> Result<Vec<Vec<u64>>> {
        let mut found = vec![Vec::new(); slot_count];
        each(&test, trace, rows.clone(), cancel, |row, _, class, _| {
            if let Some(slot) = slots[group_of(row) * classes + class] {
                found[slot].push(lifetime(trace, row));
            }
        })?;
        Ok(found)
    };
    let mut found: Vec<Vec<u64>> = vec![Vec::new(); slot_count];
    for part in ranges.par_iter().map(collect).collect::<Result<Vec<_>>>()? {
        found.iter_mut().zip(part).for_each(|(all, part)| all.extend(part));
    }
    let mut value = |group: usize, place: Option<QuantileRank>| {
        let QuantileRank { class, rank } = place?;
        let values = &mut found[slots[group * classes + class]?];
        let rank = usize::try_from(rank).ok().filter(|&rank| rank < values.len())?;
        Some(*values.select_nth_unstable(rank).1)
    };
    let groups = cells.chunks(classes).zip(places).enumerate().map(|(group, (cells, places))| {
        let [min_ns, p10_ns, p50_ns, p90_ns, max_ns] = places.map(|place| value(group, place).unwrap_or(0));
        let censored = cells.iter().map(|c| c.live).sum();
        (cells.to_vec(), Quantiles { min_ns, p10_ns, p50_ns, p90_ns, max_ns, censored })
    });
    Ok(groups.collect())
}

/// Where a quantile lies: in this class, after so many blocks of the class.
#[derive(Debug, Clone, Copy)]
struct QuantileRank {
    class: usize,
    rank: u64,
}

/// Places of the smallest lifetime, the quantiles of [`Quantiles`], and the largest; none where nothing was counted.
fn quantile_places(cells: &[ClassCount]) -> [Option<QuantileRank>; 5] {
    let total: u64 = cells.iter().map(|c| c.count).sum();
    // The smallest value that at least this part of the blocks does not exceed.
    let rank = |part: f64| ((part * total as f64).ceil() as u64).max(1) - 1;
    let ranks = [0, rank(0.1), rank(0.5), rank(0.9), total.max(1) - 1];
    ranks.map(|rank| {
        let mut before = 0;
        let class = cells.iter().position(|cell| {
            before += cell.count;
            before > rank
        });
        class.map(|class| QuantileRank { class, rank: rank - (before - cells[class].count) })
    })
}

/// A class of [`MAP`], from one of [`SCALE`], which splits each in two.
const fn map_class(class: usize) -> usize {
    if class == 0 { 0 } else { class / 2 + 1 }
}

/// Of one block, nanoseconds.
pub(super) fn lifetime(trace: &Trace, row: u64) -> u64 {
    let end = trace.free_of(row).map_or(trace.duration_ns(), |d| trace.died_ns(d));
    end.saturating_sub(trace.born_ns(row))
}

/// Classes of the ledger that are the same on [`SCALE`].
const EXACT: Range<usize> = 2..126;

const _: () = {
    let mut class = EXACT.start;
    while class < EXACT.end {
        assert!(SCALE.floor(class) == class_floor(class as u8));
        assert!(MAP.class(SCALE.floor(class)) == map_class(class));
        class += 1;
    }
};
