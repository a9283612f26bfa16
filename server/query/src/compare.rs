//! Several recordings a side, by backtrace: which differences are more than what runs differ by anyhow.
//!
//! Each backtrace has one number in each recording. Welch's test says how likely a difference of the two means is by
//! chance alone; because there are many backtraces, the p-values are held against the Benjamini-Hochberg line, so that
//! of what is called a change about one in twenty is none. The rest is folded into one row.

use std::collections::HashMap;

use serde::Serialize;

use super::across::Across;
use super::diff::{DiffParams, Side, site_sums};
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
            before_mean: mean(a),
            after_mean: mean(b),
            p: welch(a, b),
        }
    };
    let totals: Vec<i64> = (0..all.len()).map(|at| values.iter().map(|row| row[at]).sum()).collect();
    let mut rows: Vec<CompareRow> =
        values.iter().zip(stacks_of).map(|(values, stack)| CompareRow { change: change(values), stack }).collect();
    // Benjamini and Hochberg, 1995: the largest rank whose p-value is below its part of the rate.
    rows.sort_by(|a, b| a.change.p.total_cmp(&b.change.p));
    let count = rows.len() as f64;
    let below = |(rank, row): (usize, &CompareRow)| row.change.p <= RATE * (rank + 1) as f64 / count;
    let significant =
        rows.iter().enumerate().filter(|&entry| below(entry)).map(|(rank, _)| rank + 1).max().unwrap_or(0);
    let folded = rows.split_off(significant);
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

fn mean(values: &[i64]) -> f64 {
    values.iter().map(|&value| value as f64).sum::<f64>() / values.len().max(1) as f64
}

/// Two-sided p-value of the difference of two means, whose variances may differ (Welch 1947). Numbers that are the same
/// in every run of a side have no variance: then any difference is one.
fn welch(a: &[i64], b: &[i64]) -> f64 {
    let spread = |values: &[i64]| {
        let mean = mean(values);
        let squares: f64 = values.iter().map(|&value| (value as f64 - mean).powi(2)).sum();
        squares / (values.len() as f64 - 1.0) / values.len() as f64
    };
    let (difference, va, vb) = (mean(b) - mean(a), spread(a), spread(b));
    let variance = va + vb;
    if variance <= 0.0 {
        return if difference == 0.0 { 1.0 } else { 0.0 };
    }
    let t = difference / variance.sqrt();
    let freedom = variance.powi(2) / (va.powi(2) / (a.len() as f64 - 1.0) + vb.powi(2) / (b.len() as f64 - 1.0));
    incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5)
}

/// The regularised incomplete beta function, by its continued fraction (Abramowitz and Stegun 26.5.8).
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // The fraction converges fast on one side of the mean.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp() / a;
    let tiny = 1e-300;
    let (mut c, mut d) = (1.0, 1.0 - (a + b) * x / (a + 1.0));
    d = 1.0 / if d.abs() < tiny { tiny } else { d };
    let mut fraction = d;
    for i in 1..300 {
        let m = f64::from(i);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut step = 1.0;
        for term in [even, odd] {
            d = 1.0 + term * d;
            d = 1.0 / if d.abs() < tiny { tiny } else { d };
            c = 1.0 + term / c;
            c = if c.abs() < tiny { tiny } else { c };
            step = c * d;
            fraction *= step;
        }
        if (step - 1.0).abs() < 1e-12 {
            break;
        }
    }
    (front * fraction).clamp(0.0, 1.0)
}

/// Logarithm of the gamma function for positive numbers (Lanczos 1964).
fn ln_gamma(x: f64) -> f64 {
    const G: [f64; 6] = [
        76.180_091_729_471_46,
        -86.505_320_329_416_77,
        24.014_098_240_830_91,
        -1.231_739_572_450_155,
        0.120_865_097_386_617_9e-2,
        -0.539_523_938_495_3e-5,
    ];
    let base = x + 5.5;
    let series = G.iter().zip(1..).fold(1.000_000_000_190_015, |sum, (g, i)| sum + g / (x + f64::from(i)));
    (x + 0.5) * base.ln() - base + (2.506_628_274_631_000_5 * series / x).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_values_are_those_of_the_tables() {
        // t = 2.776 with 4 degrees of freedom, t = 2.228 with 10: five percent.
        for (t, freedom) in [(2.776_445_f64, 4.0), (2.228_139, 10.0), (12.706_205, 1.0)] {
            let p = incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5);
            assert!((p - 0.05).abs() < 1e-6, "{t} {freedom}: {p}");
        }
        assert_eq!(welch(&[5, 5, 5], &[5, 5, 5]), 1.0);
        assert_eq!(welch(&[5, 5, 5], &[6, 6, 6]), 0.0);
        assert!(welch(&[100, 110, 90, 105, 95], &[102, 108, 93, 104, 96]) > 0.5);
        assert!(welch(&[100, 110, 90, 105, 95], &[200, 210, 190, 205, 195]) < 0.001);
    }
}
