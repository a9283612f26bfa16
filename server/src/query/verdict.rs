//! What the history of a site says, by simple statistics on its exact live bytes, with the numbers in words.
//!
//! ```text
//! one_time   everything that is left was born within 1 % of the recording
//! growing    live bytes rise with time (Mann-Kendall, tau ≥ 0.6, p < 0.01), and by a fifth in the second half
//! bounded    in the second half live bytes stay within a tenth of their level at its start
//! unclear    anything else, or fewer than eight moments
//! ```

use crate::api::leaks::{Verdict, VerdictKind};

/// A site's history.
#[derive(Debug, Clone, PartialEq)]
pub struct History<'a> {
    /// Length of the recording, nanoseconds.
    pub duration_ns: u64,
    /// Live bytes at moments in time, equally spaced.
    pub curve: &'a [(u64, i64)],
    /// Births of the first and the last block that is left.
    pub left_born_ns: Option<(u64, u64)>,
    /// Blocks that are left.
    pub left_count: u64,
}

/// Fewest moments with something live that a judgement on growth needs.
const FEWEST: usize = 8;

/// Judges a site.
#[must_use]
pub fn judge(history: &History<'_>) -> Verdict {
    let since = history.curve.iter().position(|&(_, bytes)| bytes > 0);
    let active = since.map_or(&[][..], |at| &history.curve[at..]);
    if let Some((first, last)) = history.left_born_ns
        && (last - first) <= history.duration_ns / 100
        && is_flat_after(active, last)
    {
        let blocks =
            if history.left_count == 1 { "1 block is".into() } else { format!("{} blocks are", history.left_count) };
        let when = if first == last {
            format!("at {}", seconds(first))
        } else {
            format!("between {} and {}", seconds(first), seconds(last))
        };
        let why = format!(
            "{blocks} left, born {when}; nothing was added in the {} since",
            seconds(history.duration_ns - last)
        );
        let quiet = (history.duration_ns - last) as f64 / history.duration_ns.max(1) as f64;
        return verdict(VerdictKind::OneTime, 0.0, 0.5 + quiet / 2.0, why);
    }
    let bytes: Vec<i64> = active.iter().map(|&(_, b)| b).collect();
    if bytes.len() < FEWEST {
        let why = format!("something was live at {} of {} moments only", bytes.len(), history.curve.len());
        return verdict(VerdictKind::Unclear, 0.0, 0.0, why);
    }
    let (tau, p) = mann_kendall(&bytes);
    let (first, middle, last) = (bytes[0], bytes[bytes.len() / 2], bytes[bytes.len() - 1]);
    let (from, to) = (active[0].0, active[active.len() - 1].0);
    let rising = bytes.windows(2).filter(|w| w[1] > w[0]).count();
    if tau >= 0.6 && p < 0.01 && last as f64 >= middle as f64 * 1.2 {
        let rate = theil_sen(active);
        let why = format!(
            "live bytes rose in {rising} of {} equal steps from {} to {}, from {} to {}, {} a second (tau {tau:.2}, p {p:.1e})",
            bytes.len() - 1,
            seconds(from),
            seconds(to),
            size(first),
            size(last),
            size(rate as i64),
        );
        return verdict(VerdictKind::Growing, rate, tau.clamp(0.0, 1.0) * (1.0 - p), why);
    }
    let half = &bytes[bytes.len() / 2..];
    let (low, high) = (half.iter().min().copied().unwrap_or(0), half.iter().max().copied().unwrap_or(0));
    let spread = (high - low) as f64 / middle.max(1) as f64;
    if spread <= 0.1 {
        let why = format!(
            "live bytes stayed between {} and {} from {} to {}",
            size(low),
            size(high),
            seconds(active[bytes.len() / 2].0),
            seconds(to),
        );
        return verdict(VerdictKind::Bounded, 0.0, 1.0 - spread, why);
    }
    let why = format!(
        "live bytes moved between {} and {} in the second half, without a clear direction (tau {tau:.2}, p {p:.1e})",
        size(low),
        size(high),
    );
    verdict(VerdictKind::Unclear, 0.0, 0.0, why)
}

fn verdict(kind: VerdictKind, bytes_per_second: f64, confidence: f64, why: String) -> Verdict {
    let confidence = (confidence.clamp(0.0, 1.0) * 100.0).round() / 100.0;
    Verdict { kind, bytes_per_second, confidence, why }
}

fn is_flat_after(active: &[(u64, i64)], last_ns: u64) -> bool {
    let mut after = active.iter().filter(|&&(t, _)| t > last_ns).map(|&(_, bytes)| bytes);
    let Some(first) = after.next() else { return true };
    after.all(|bytes| bytes == first)
}

/// Kendall's tau of the values against their order, and the two-sided p-value of there being no trend (normal
/// approximation with the correction for ties; Mann 1945, Kendall 1975).
fn mann_kendall(values: &[i64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mut s = 0_i64;
    for (i, a) in values.iter().enumerate() {
        s += values[i + 1..].iter().map(|b| (b.cmp(a)) as i64).sum::<i64>();
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let ties: Vec<f64> = sorted.chunk_by(|a, b| a == b).map(|run| run.len() as f64).collect();
    let tie_term = |f: fn(f64) -> f64| ties.iter().map(|&t| f(t)).sum::<f64>();
    let variance = (n * (n - 1.0) * (2.0 * n + 5.0) - tie_term(|t| t * (t - 1.0) * (2.0 * t + 5.0))) / 18.0;
    let pairs = n * (n - 1.0) / 2.0;
    let untied = pairs - tie_term(|t| t * (t - 1.0) / 2.0);
    if variance <= 0.0 || untied <= 0.0 {
        return (0.0, 1.0);
    }
    let z = (s as f64 - (s.signum()) as f64) / variance.sqrt();
    (s as f64 / (pairs * untied).sqrt(), 2.0 * upper_tail(z.abs()))
}

/// Probability that a standard normal variable is above `z` (Abramowitz and Stegun 26.2.17, error below 1e-7).
fn upper_tail(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let series = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let polynomial = series.iter().rev().fold(0.0, |sum, c| (sum + c) * t);
    ((-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * polynomial).clamp(0.0, 0.5)
}

/// Median of the slopes between all pairs of moments, bytes a second (Theil 1950, Sen 1968).
fn theil_sen(curve: &[(u64, i64)]) -> f64 {
    let mut slopes = Vec::new();
    for (i, a) in curve.iter().enumerate() {
        for b in &curve[i + 1..] {
            if b.0 > a.0 {
                slopes.push((b.1 - a.1) as f64 / ((b.0 - a.0) as f64 / 1e9));
            }
        }
    }
    slopes.sort_by(f64::total_cmp);
    slopes.get(slopes.len() / 2).copied().unwrap_or(0.0)
}

fn seconds(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

fn size(bytes: i64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value.abs() >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(bytes: impl Fn(u64) -> i64, left: Option<(u64, u64)>, count: u64) -> Verdict {
        let curve: Vec<_> = (1..=32).map(|i| (i * 1_000_000_000, bytes(i))).collect();
        judge(&History { duration_ns: 32_000_000_000, curve: &curve, left_born_ns: left, left_count: count })
    }

    #[test]
    fn kinds_are_told_apart() {
        let s = 1_000_000_000;
        let growing = judged(|i| i as i64 * 1000, Some((s, 31 * s)), 32);
        assert_eq!(growing.kind, VerdictKind::Growing, "{growing:?}");
        assert!((growing.bytes_per_second - 1000.0).abs() < 1.0);
        assert!(growing.why.contains("31 of 31"), "{}", growing.why);
        let bounded = judged(|i| 100_000.min(i as i64 * 20_000), Some((s, 31 * s)), 5);
        assert_eq!(bounded.kind, VerdictKind::Bounded, "{bounded:?}");
        let once = judged(|_| 64, Some((s / 2, s / 2)), 1);
        assert_eq!(once.kind, VerdictKind::OneTime, "{once:?}");
        let saw = judged(|i| if i % 2 == 0 { 10 } else { 90_000 }, Some((s, 31 * s)), 4);
        assert_eq!(saw.kind, VerdictKind::Unclear, "{saw:?}");
        let late = judged(|i| if i > 30 { 9 } else { 0 }, Some((20 * s, 31 * s)), 2);
        assert_eq!(late.kind, VerdictKind::Unclear, "{late:?}");
    }

    #[test]
    fn the_tail_is_right() {
        assert!((upper_tail(1.959_964) - 0.025).abs() < 1e-6);
        assert!((upper_tail(0.0) - 0.5).abs() < 1e-6);
    }
}
