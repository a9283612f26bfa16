//! Live bytes of many sites at many moments, in one pass.

use std::collections::HashMap;

use rayon::prelude::*;

use super::Result;
use super::amounts::{Signed, SumKey, SumQuery};
use super::filter::Selection;
use super::sparse_selection::SparseSelection;
use crate::window::Resolved;
use tracehound_api::Metric;
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
    let question = SumQuery { trace, selection, key: SumKey::Site, cancel };
    let pick = |sums: Vec<Signed>| -> Vec<Signed> {
        sites.iter().map(|&site| sums.get(site as usize).copied().unwrap_or_default()).collect()
    };
    if let Some(few) = &selection.few {
        return Ok(live_of_few(trace, few, sites, places));
    }
    if !selection.is_about_origins() || selection.threads.is_some() {
        let columns: Vec<Vec<Signed>> =
            places.iter().map(|&place| question.live_at(place).map(pick)).collect::<Result<_>>()?;
        return Ok(transposed(&columns, sites.len()));
    }
    // What happens between two places is added to what was live at the first.
    let starts = [Position::default()].into_iter().chain(places.iter().copied());
    let spans: Vec<Span> = starts.zip(places).map(|(from, &to)| Span { from, to }).collect();
    let mut columns: Vec<Vec<Signed>> = spans
        .into_par_iter()
        .map(|span| {
            let window = Resolved { from_ns: 0, to_ns: 0, span, at: None, peak_of: None };
            question.metric(Metric::Grown, &window).map(pick)
        })
        .collect::<Result<_>>()?;
    for i in 1..columns.len() {
        let (done, rest) = columns.split_at_mut(i);
        for (now, before) in rest[0].iter_mut().zip(&done[i - 1]) {
            now.count += before.count;
            now.bytes += before.bytes;
        }
    }
    Ok(transposed(&columns, sites.len()))
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

fn transposed(columns: &[Vec<Signed>], sites: usize) -> Vec<Vec<Signed>> {
    (0..sites).map(|site| columns.iter().map(|column| column[site]).collect()).collect()
}
