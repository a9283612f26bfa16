//! Live bytes of many sites at many moments, in one pass.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, Ordering};

use rayon::prelude::*;

use super::Result;
use super::amounts::{Signed, SumKey, SumQuery, ranges};
use super::filter::Selection;
use super::live_changes::LiveChanges;
use super::sparse_selection::SparseSelection;
use crate::window::Resolved;
use tracehound_index::{Cancel, Position, Span, Trace};

/// Equally spaced moments of a window, the last at its end: times and places.
#[must_use]
pub fn moments(trace: &Trace, window: &Resolved, count: usize) -> Vec<(u64, Position)> {
    let length = u128::from(window.to_ns - window.from_ns);
    (1..=count as u128)
        .map(|i| {
            let t_ns = window.from_ns + (length * i / count as u128) as u64;
            let place = if t_ns == window.to_ns { window.span.to } else { trace.position_before(t_ns) };
            (t_ns, place)
        })
        .collect()
}

/// For each of `sites`: what is live at each of `places`, which are in order.
///
/// # Errors
/// When cancelled.
pub fn live_at(
    trace: &Trace,
    selection: &Selection,
    sites: &[u32],
    places: &[Position],
    cancel: &Cancel,
) -> Result<Vec<Vec<Signed>>> {
    Ok(transposed(&columns_at(trace, selection, sites, places, cancel)?, sites.len()))
}

/// For each of `places`, which are in order: what of each of `sites` is live there.
///
/// # Errors
/// When cancelled.
pub fn columns_at(
    trace: &Trace,
    selection: &Selection,
    sites: &[u32],
    places: &[Position],
    cancel: &Cancel,
) -> Result<Vec<Vec<Signed>>> {
    let question = SumQuery { trace, selection, key: SumKey::Site, cancel };
    if let Some(few) = &selection.few {
        return Ok(transposed(&live_of_few(trace, few, sites, places), places.len()));
    }
    let mut column_of = vec![u32::MAX; trace.site_count() as usize];
    for (position, &site) in (0..).zip(sites) {
        if let Some(to) = column_of.get_mut(site as usize) {
            *to = position;
        }
    }
    live_by_group(&question, &column_of, sites.len(), places)
}

/// The same for blocks that were found.
fn live_of_few(trace: &Trace, few: &SparseSelection, sites: &[u32], places: &[Position]) -> Vec<Vec<Signed>> {
    let positions: HashMap<u32, usize> = sites.iter().copied().zip(0..).collect();
    let mut curves = vec![vec![Signed::default(); places.len()]; sites.len()];
    let mut add = |at: usize, row: u64, sign: i64| {
        let (site, amount) = trace.site_amount(row);
        if let Some(live) = positions.get(&site).and_then(|&position| curves[position].get_mut(at)) {
            live.add(amount, sign);
        }
    };
    for row in few.allocs.iter() {
        add(places.partition_point(|place| place.allocs <= row), row, 1);
    }
    for ordinal in few.frees.iter() {
        let at = places.partition_point(|place| place.frees <= ordinal);
        add(at, trace.row_of_free(ordinal), -1);
    }
    for curve in &mut curves {
        for i in 1..curve.len() {
            let before = curve[i - 1];
            curve[i].count += before.count;
            curve[i].bytes += before.bytes;
        }
    }
    curves
}

/// Rows of a table by its columns, or the other way round.
#[must_use]
pub fn transposed(columns: &[Vec<Signed>], rows: usize) -> Vec<Vec<Signed>> {
    (0..rows).map(|row| columns.iter().map(|column| column[row]).collect()).collect()
}

/// For each of `places`, which are in order: what of each of `groups` groups of keys is live there. Sums are folded as soon
/// as they are found, so that memory is that of the groups and not that of all keys.
///
/// # Errors
/// When cancelled.
pub fn live_by_group(
    question: &SumQuery<'_>,
    group_of: &[u32],
    groups: usize,
    places: &[Position],
) -> Result<Vec<Vec<Signed>>> {
    let buckets = question.trace.facts().buckets.len();
    let are_dense = buckets <= places.len().saturating_mul(FEW_BUCKETS);
    if question.key == SumKey::Site && question.sums_do() && are_dense && places.len() * groups <= MOST_CELLS {
        return live_by_rows(question, group_of, groups, places);
    }
    let starts = [Position::default()].into_iter().chain(places.iter().copied());
    let spans: Vec<Span> = starts.zip(places).map(|(from, &to)| Span { from, to }).collect();
    let changes = LiveChanges::new(question);
    let grown = |span| {
        let mut folded = vec![Signed::default(); groups];
        changes.each(span, |key, change| {
            if let Some(to) = group_of.get(key).and_then(|&group| folded.get_mut(group as usize)) {
                to.count += change.count;
                to.bytes += change.bytes;
            }
        })?;
        Ok(folded)
    };
    // What happens between two places is added to what was live at the first.
    let mut columns: Vec<Vec<Signed>> = spans.into_par_iter().map(grown).collect::<Result<_>>()?;
    accumulate(&mut columns);
    Ok(columns)
}

/// Where fewer buckets than so many lie between two places, their sums save less than walking over the rows once costs.
const FEW_BUCKETS: usize = 4;
/// Places times groups that are added to at once: 128 MiB.
const MOST_CELLS: usize = 1 << 23;

/// What changed between two places.
#[derive(Debug, Default)]
struct ChangeCell {
    count: AtomicI64,
    bytes: AtomicI64,
}

/// The same as [`live_by_group`], from the rows: each is looked at once, and its free with it. So a free need not look its
/// allocation up, and of most rows nothing but the origin is read.
fn live_by_rows(
    question: &SumQuery<'_>,
    group_of: &[u32],
    groups: usize,
    places: &[Position],
) -> Result<Vec<Vec<Signed>>> {
    let SumQuery { trace, selection, cancel, .. } = *question;
    let group_of = group_of_origins(trace, |site| {
        let group = group_of.get(site as usize).copied().filter(|&group| (group as usize) < groups);
        group.filter(|_| selection.has_site(site))
    });
    // Of very many origins mostly few have a group: a bit of each fits in a processor's cache where its group does not.
    let with_group: Vec<u64> = group_of.chunks(64).map(bits_of_groups).collect();
    let has_group =
        |origin: u32| with_group.get(origin as usize / 64).is_some_and(|bits| bits >> (origin % 64) & 1 == 1);
    let cells = |_| (0..groups).map(|_| ChangeCell::default()).collect();
    let changes: Vec<Vec<ChangeCell>> = (0..places.len()).into_par_iter().map(cells).collect();
    let change = |at: usize, group: u32, count: i64, bytes: i64| {
        if let Some(cell) = changes.get(at).and_then(|cells| cells.get(group as usize)) {
            cell.count.fetch_add(count, Ordering::Relaxed);
            cell.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    };
    let origins = &trace.columns().alloc_origin;
    let walk = |rows: Range<u64>| -> Result<()> {
        let mut at = places.partition_point(|place| place.allocs <= rows.start);
        for row in rows {
            if row.is_multiple_of(1 << 16) {
                cancel.check()?;
            }
            while places.get(at).is_some_and(|place| place.allocs <= row) {
                at += 1;
            }
            let origin = origins.get(row as usize).copied().unwrap_or(u32::MAX);
            if !has_group(origin) {
                continue;
            }
            let group = group_of.get(origin as usize).copied().unwrap_or(u32::MAX);
            let bytes = trace.size_of(row).cast_signed();
            change(at, group, 1, bytes);
            if let Some(free) = trace.free_of(row) {
                change(places.partition_point(|place| place.frees <= free), group, -1, -bytes);
            }
        }
        Ok(())
    };
    let end = places.last().map_or(0, |place| place.allocs);
    ranges(0, end).into_par_iter().try_for_each(walk)?;
    let signed = |cell: ChangeCell| Signed { count: cell.count.into_inner(), bytes: cell.bytes.into_inner() };
    let column = |cells: Vec<ChangeCell>| cells.into_iter().map(signed).collect();
    let mut columns: Vec<Vec<Signed>> = changes.into_par_iter().map(column).collect();
    accumulate(&mut columns);
    Ok(columns)
}

/// A bit for each group that there is.
fn bits_of_groups(groups: &[u32]) -> u64 {
    (0..).zip(groups).fold(0, |bits, (at, &group)| bits | u64::from(group != u32::MAX) << at)
}

/// The group of the site of each origin; the largest number where it has none.
pub(super) fn group_of_origins(trace: &Trace, group_of: impl Fn(u32) -> Option<u32> + Sync) -> Vec<u32> {
    let group = |&site: &u32| group_of(site).unwrap_or(u32::MAX);
    trace.columns().origin_site.par_iter().map(group).collect()
}

/// Makes of what happened between two places what is live at each.
fn accumulate(columns: &mut [Vec<Signed>]) {
    for i in 1..columns.len() {
        let (done, rest) = columns.split_at_mut(i);
        for (now, before) in rest[0].iter_mut().zip(&done[i - 1]) {
            now.count += before.count;
            now.bytes += before.bytes;
        }
    }
}
