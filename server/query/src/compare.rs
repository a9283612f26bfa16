//! Several recordings on each side, by backtrace: which differences are larger than those between equal runs.
//!
//! Each backtrace has one number in each recording. Welch's test says how likely a difference of the two means is by
//! chance alone; because there are many backtraces, the p-values are held against the Benjamini-Hochberg line, so that
//! about one in twenty reported changes is none. The rest is folded into one row.

use std::collections::HashMap;

use serde::Serialize;

use super::across::Across;
use super::diff::{DiffParams, Side, site_sums};
use super::statistics::{Moments, discoveries, welch};
use super::{QueryError, Result, stacks};
use tracehound_api::{Exactness, Frame, Unit};
use tracehound_index::Cancel;

/// `heaptrace.compare/1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// `heaptrace.compare/1`.
    pub schema: &'static str,
    /// What the numbers are.
    pub unit: Unit,
    /// Recordings of the first side.
    pub before: Vec<String>,
    /// Recordings of the second side.
    pub after: Vec<String>,
    /// All backtraces together.
    pub total: AmountChange,
    /// Backtraces that differ significantly, largest change first.
    pub rows: Vec<CompareRow>,
    /// Backtraces whose difference may be chance, together.
    pub noise: Noise,
    /// The part of the rows that may be chance, at most, on average.
    pub false_discovery_rate: f64,
    /// How far the figures can be trusted.
    pub exactness: Exactness,
}

/// One backtrace.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CompareRow {
    /// Its numbers.
    #[serde(flatten)]
    pub change: AmountChange,
    /// Leaf first.
    pub stack: Vec<Frame>,
}

/// Numbers of both sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AmountChange {
    /// One for each recording of the first side.
    pub before: Vec<i64>,
    /// One for each recording of the second side.
    pub after: Vec<i64>,
    /// Mean of the first.
    pub before_mean: f64,
    /// Mean of the second.
    pub after_mean: f64,
    /// Probability of such a difference by chance, two-sided.
    pub p: f64,
}

/// What was folded.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Noise {
    /// Backtraces.
    pub rows: u64,
    /// Sum of the first side's means.
    pub before_mean: f64,
    /// Sum of the second side's.
    pub after_mean: f64,
}

/// Part of the rows that may be chance.
const RATE: f64 = 0.05;

/// Compares two groups of recordings.
///
/// # Errors
/// When a side has fewer than two recordings, a parameter does not fit one, or cancelled.
pub fn run(before: &[Side<'_>], after: &[Side<'_>], params: &DiffParams, cancel: &Cancel) -> Result<Comparison> {
    if before.len() < 2 || after.len() < 2 {
        return Err(QueryError::bad("vs", "a test of significance needs two recordings a side at least, better five"));
    }
    let mut stacks_of: Vec<Vec<Frame>> = Vec::new();
    let mut known: HashMap<_, usize> = HashMap::new();
    let mut values: Vec<Vec<i64>> = Vec::new();
    let all: Vec<&Side<'_>> = before.iter().chain(after).collect();
    let sides: Vec<Side<'_>> = all.iter().map(|side| **side).collect();
    let across = Across::new(&sides, cancel)?;
    let mut exactness = Exactness { complete: true, watermark_ns: u64::MAX, ..Exactness::default() };
    for (at, side) in all.iter().enumerate() {
        let (sums, _) = site_sums(**side, params, cancel)?;
        for (site, sum) in (0_u32..).zip(sums).filter(|(_, sum)| !sum.is_zero()) {
            let node = side.trace.site_node(site).unwrap_or(0);
            let row = *known.entry(across.path(at, **side, node)).or_insert_with(|| {
                stacks_of.push(stacks::frames(side.trace, side.symbols, node));
                values.push(vec![0; all.len()]);
                values.len() - 1
            });
            values[row][at] += sum.of(params.unit);
        }
        let e = side.trace.exactness();
        exactness.events += e.events;
        exactness.lost_events += e.lost_events;
        exactness.damaged_blocks += e.damaged_blocks;
        exactness.watermark_ns = exactness.watermark_ns.min(e.watermark_ns);
        exactness.complete &= e.complete;
    }
    let change = |values: &[i64]| -> AmountChange {
        let (a, b) = values.split_at(before.len());
        AmountChange {
            before: a.to_vec(),
            after: b.to_vec(),
            before_mean: moments(a).mean(),
            after_mean: moments(b).mean(),
            p: welch(&moments(a), &moments(b)),
        }
    };
    let totals: Vec<i64> = (0..all.len()).map(|at| values.iter().map(|row| row[at]).sum()).collect();
    let mut rows: Vec<CompareRow> =
        values.iter().zip(stacks_of).map(|(values, stack)| CompareRow { change: change(values), stack }).collect();
    rows.sort_by(|a, b| a.change.p.total_cmp(&b.change.p));
    let p_values: Vec<f64> = rows.iter().map(|row| row.change.p).collect();
    let folded = rows.split_off(discoveries(&p_values, RATE));
    let noise = Noise {
        rows: folded.len() as u64,
        before_mean: folded.iter().map(|row| row.change.before_mean).sum(),
        after_mean: folded.iter().map(|row| row.change.after_mean).sum(),
    };
    let size = |row: &CompareRow| (row.change.after_mean - row.change.before_mean).abs();
    rows.sort_by(|a, b| size(b).total_cmp(&size(a)));
    rows.truncate(params.limit.unwrap_or(usize::MAX));
    let labels = |sides: &[Side<'_>]| sides.iter().map(|side| side.label.to_owned()).collect();
    Ok(Comparison {
        schema: "heaptrace.compare/1",
        unit: params.unit,
        before: labels(before),
        after: labels(after),
        total: change(&totals),
        rows,
        noise,
        false_discovery_rate: RATE,
        exactness,
    })
}

fn moments(values: &[i64]) -> Moments {
    Moments::of(values.iter().map(|&value| value as f64))
}
