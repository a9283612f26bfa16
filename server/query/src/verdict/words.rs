//! Verdicts put together: numbers in words, rates, forecasts.

use super::statistics::Slope;
use tracehound_api::leaks::{Forecast, Shape, Verdict, VerdictKind};

/// A verdict with its confidence rounded.
pub fn verdict(kind: VerdictKind, shape: Shape, confidence: f64, why: String) -> Verdict {
    let confidence = (confidence.clamp(0.0, 1.0) * 100.0).round() / 100.0;
    Verdict { kind, shape, confidence, why, ..Verdict::default() }
}

/// The length of time that forecasts look ahead.
const AHEAD_NS: u64 = 3_600_000_000_000;

/// Adds the rate, and where it leads.
pub fn set_rate(verdict: &mut Verdict, slope: Slope, now: i64) {
    verdict.bytes_per_second = slope.rate;
    verdict.bytes_per_second_low = Some(slope.low);
    verdict.bytes_per_second_high = Some(slope.high);
    let bytes = now as f64 + slope.rate * (AHEAD_NS as f64 / 1e9);
    verdict.forecast = Some(Forecast { after_ns: AHEAD_NS, bytes: bytes.max(0.0) as u64 });
    verdict.why.push_str(&format!("; at this rate {} in another hour", size(bytes as i64)));
}

/// A time in words.
pub fn seconds(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

/// An amount in words.
pub fn size(bytes: i64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value.abs() >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}
