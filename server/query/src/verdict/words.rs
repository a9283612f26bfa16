//! Parts of the words of verdicts: rates, forecasts.

use super::statistics::Slope;
use tracehound_api::leaks::{Forecast, Shape, Verdict, VerdictKind};
use tracehound_api::units::signed_bytes;

/// A verdict with its confidence rounded.
pub fn verdict(kind: VerdictKind, shape: Shape, confidence: f64, why: String) -> Verdict {
    let confidence = (confidence.clamp(0.0, 1.0) * 100.0).round() / 100.0;
    Verdict { kind, shape, confidence, why, ..Verdict::default() }
}

/// Lengths of time that forecasts look ahead, each behind growth that was observed for so long at least.
const AHEAD: [(u64, u64, &str); 5] = [
    (60 * SECOND, 3600 * SECOND, "hour"),
    (10 * SECOND, 600 * SECOND, "ten minutes"),
    (SECOND, 60 * SECOND, "minute"),
    (SECOND / 10, 10 * SECOND, "ten seconds"),
    (0, SECOND, "second"),
];
const SECOND: u64 = 1_000_000_000;

/// Adds the rate, and where it leads.
pub fn set_rate(verdict: &mut Verdict, slope: Slope, now: i64, observed_ns: u64) {
    verdict.bytes_per_second = slope.rate;
    verdict.bytes_per_second_low = Some(slope.low);
    verdict.bytes_per_second_high = Some(slope.high);
    let Some((_, after_ns, length)) = AHEAD.into_iter().find(|(least, ..)| observed_ns >= *least) else { return };
    let bytes = now as f64 + slope.rate * (after_ns as f64 / 1e9);
    verdict.forecast = Some(Forecast { after_ns, bytes: bytes.max(0.0) as u64 });
    verdict.why.push_str(&format!("; at this rate {} in another {length}", signed_bytes(bytes as i64)));
}
