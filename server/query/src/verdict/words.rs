//! Parts of the words of verdicts: rates, forecasts.

use super::statistics::Slope;
use tracehound_api::leaks::{Forecast, Shape, Verdict, VerdictKind};
use tracehound_api::units::signed_bytes;

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
    verdict.why.push_str(&format!("; at this rate {} in another hour", signed_bytes(bytes as i64)));
}
