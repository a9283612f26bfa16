//! Quality of the recording's clock, from its calibration samples alone: the same instants on the clock of the
//! events, on CLOCK_MONOTONIC and on CLOCK_REALTIME.

use tracehound_format::meta::{Clock, ClockSample, ClockSource};

use tracehound_api::info::ClockQuality;

/// Ranges shorter than this measure the reading of a sample rather than the clock.
const SHORTEST_NS: u64 = 20_000_000;
/// A step of the wall clock; smaller ones are the work of a slewing time daemon.
const STEP_NS: u64 = 1_000_000;

/// Takes samples in the order of the file.
#[derive(Debug, Clone, Default)]
pub struct Calibration {
    samples: u64,
    first: Option<ClockSample>,
    /// The last two.
    last: [Option<ClockSample>; 2],
    /// Start of the range whose rate is measured next.
    from: Option<ClockSample>,
    /// Slowest and fastest range, nanoseconds a tick.
    rates: Option<(f64, f64)>,
    error_ns: u64,
    steps_back: u64,
    wall_steps: u64,
    largest_wall_step_ns: u64,
}

/// Nanoseconds a tick between two samples.
fn rate(from: ClockSample, to: ClockSample) -> Option<f64> {
    let ticks = to.tick.checked_sub(from.tick).filter(|&ticks| ticks > 0)?;
    Some(to.monotonic_ns.checked_sub(from.monotonic_ns)? as f64 / ticks as f64)
}

impl Calibration {
    /// Takes the next sample.
    pub fn see(&mut self, sample: ClockSample) {
        self.samples += 1;
        self.first.get_or_insert(sample);
        let [before, last] = self.last;
        if let Some(last) = last {
            if sample.tick < last.tick || sample.monotonic_ns < last.monotonic_ns {
                self.steps_back += 1;
            }
            let offset = |s: ClockSample| i128::from(s.realtime_ns) - i128::from(s.monotonic_ns);
            let step = u64::try_from((offset(sample) - offset(last)).unsigned_abs()).unwrap_or(u64::MAX);
            if step >= STEP_NS {
                self.wall_steps += 1;
                self.largest_wall_step_ns = self.largest_wall_step_ns.max(step);
            }
            if let Some(before) = before
                && let Some(rate) = rate(before, sample)
            {
                let expected = before.monotonic_ns as f64 + last.tick.saturating_sub(before.tick) as f64 * rate;
                self.error_ns = self.error_ns.max((expected - last.monotonic_ns as f64).abs() as u64);
            }
        }
        let from = *self.from.get_or_insert(sample);
        if sample.monotonic_ns.saturating_sub(from.monotonic_ns) >= SHORTEST_NS {
            if let Some(rate) = rate(from, sample) {
                let (slowest, fastest) = self.rates.unwrap_or((rate, rate));
                self.rates = Some((slowest.min(rate), fastest.max(rate)));
            }
            self.from = Some(sample);
        }
        self.last = [last, Some(sample)];
    }

    /// Quality of the clock by the samples; `None` where there are fewer than two. The pairing counts violations of the
    /// order of threads.
    #[must_use]
    pub fn quality(&self, clock: Option<&Clock>, order_violations: u64) -> Option<ClockQuality> {
        let (first, last) = (self.first?, self.last[1]?);
        let overall = rate(first, last).filter(|&rate| rate > 0.0)?;
        let ppm = |rate: f64| (rate / overall - 1.0) * 1e6;
        let drift_ppm = self.rates.map_or(0.0, |(slowest, fastest)| ppm(slowest).abs().max(ppm(fastest).abs()));
        let estimate_error_ppm = match clock {
            Some(clock) if clock.millihertz > 0 => ppm(1e12 / clock.millihertz as f64),
            _ => 0.0,
        };
        Some(ClockQuality {
            invariant: clock.is_some_and(|clock| clock.source != ClockSource::Monotonic),
            note: clock.map_or_else(String::new, |clock| clock.note.clone()),
            resolution_ns: overall,
            frequency_hz: 1e9 / overall,
            samples: self.samples,
            span_ns: last.monotonic_ns - first.monotonic_ns,
            estimate_error_ppm,
            drift_ppm,
            error_ns: self.error_ns,
            steps_back: self.steps_back,
            wall_steps: self.wall_steps,
            largest_wall_step_ns: self.largest_wall_step_ns,
            order_violations,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn sample(tick: u64, monotonic_ns: u64) -> ClockSample {
        ClockSample { tick, monotonic_ns, realtime_ns: monotonic_ns + 1_700_000_000_000_000_000 }
    }

    fn quality(samples: &[ClockSample], millihertz: u64) -> Option<ClockQuality> {
        let mut calibration = Calibration::default();
        samples.iter().for_each(|&sample| calibration.see(sample));
        calibration.quality(Some(&Clock { source: ClockSource::Tsc, shift: 0, millihertz, note: "x".into() }), 0)
    }

    #[test]
    fn a_steady_clock_has_no_errors() {
        // 2 ns a tick.
        let samples: Vec<_> = (0..10).map(|i| sample(i * 50 * MS, 7 + i * 100 * MS)).collect();
        let quality = quality(&samples, 500_000_000_000).unwrap();
        assert_eq!((quality.samples, quality.span_ns, quality.error_ns), (10, 900 * MS, 0));
        assert!((quality.resolution_ns - 2.0).abs() < 1e-9 && (quality.frequency_hz - 5e8).abs() < 1e-3);
        assert!(quality.drift_ppm < 1e-6 && quality.estimate_error_ppm.abs() < 1e-6);
        assert_eq!((quality.steps_back, quality.wall_steps), (0, 0));
    }

    #[test]
    fn a_wrong_estimate_a_bend_and_steps_are_reported() {
        let mut samples = vec![sample(0, 0), sample(100 * MS, 100 * MS), sample(200 * MS, 200 * MS + 3000)];
        samples.push(sample(300 * MS, 300 * MS));
        samples[3].realtime_ns += 5 * MS;
        let found = quality(&samples, 1_000_010_000_000).unwrap();
        assert_eq!(found.error_ns, 3000);
        // 3 µs more in a tenth of a second, then 3 µs less.
        assert!((found.drift_ppm - 30.0).abs() < 0.1, "{found:?}");
        assert!((found.estimate_error_ppm + 10.0).abs() < 0.1, "{found:?}");
        assert_eq!((found.wall_steps, found.largest_wall_step_ns, found.steps_back), (1, 5 * MS, 0));
        samples.push(sample(299 * MS, 400 * MS));
        assert_eq!(quality(&samples, 0).unwrap().steps_back, 1);
        assert!(quality(&samples[..1], 0).is_none());
    }
}
