//! Live bytes of many sites at many moments, in one pass.

use std::collections::HashMap;

use rayon::prelude::*;

use super::Result;
use super::amounts::{Signed, SumKey, SumQuery};
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
