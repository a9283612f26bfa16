//! Ticks to nanoseconds since the start of the recording: piecewise linear through the calibration samples, never
//! backwards.
//!
//! While a recording grows, samples arrive after events were converted; what has been converted stays, and the line
//! bends back to the new sample from there.

use serde::{Deserialize, Serialize};
use tracehound_format::meta::ClockSample;

use tracehound_index::facts::{ClockPoint as Point, ns_of_tick};

/// The mapping.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClockMap {
    points: Vec<Point>,
    /// Index of the segment that was used last.
    #[serde(skip)]
    hint: usize,
    last_sample: Option<(u64, u64)>,
    /// Monotonic time of nanosecond 0.
    zero_ns: Option<u64>,
    frontier: u64,
}

const ONE: u64 = 1 << 32;

fn ratio(ns: u64, ticks: u64) -> u64 {
    u64::try_from((u128::from(ns) << 32) / u128::from(ticks.max(1))).unwrap_or(u64::MAX)
}

impl ClockMap {
    /// Starts at `start_tick` = 0 ns with the first estimate of ticks a second, times 1000 (0: a tick is a nanosecond).
    #[must_use]
    pub fn new(start_tick: u64, millihertz: u64) -> Self {
        let rate = if millihertz == 0 { ONE } else { ratio(1_000_000_000_000, millihertz) };
        let points = vec![Point { tick: start_tick, ns: 0, rate }];
        Self { points, hint: 0, last_sample: None, zero_ns: None, frontier: start_tick }
    }

    /// Takes a calibration sample; samples come in the order of their ticks.
    pub fn sample(&mut self, sample: &ClockSample) {
        let (tick, mono) = (sample.tick, sample.monotonic_ns);
        let Some(&last) = self.points.last() else { return };
        if let Some((before_tick, before_mono)) = self.last_sample {
            if tick <= before_tick || mono < before_mono {
                return;
            }
            let rate = ratio(mono - before_mono, tick - before_tick);
            if self.points.len() == 1 && self.frontier <= last.tick {
                // Nothing has been converted: the first pair of samples also says where zero lies.
                self.points[0].rate = rate;
                let since_start = before_tick.saturating_sub(last.tick);
                self.zero_ns = Some(before_mono.saturating_sub(scale(since_start, rate)));
            }
            let zero = self.zero_ns.unwrap_or_else(|| before_mono.saturating_sub(self.peek(before_tick)));
            self.zero_ns = Some(zero);
            let target = mono.saturating_sub(zero);
            // The line goes from the last converted tick to the sample, and continues at the sample's rate.
            let from = self.frontier.max(last.tick);
            let from_ns = self.peek(from);
            if tick > from && target >= from_ns {
                self.put(Point { tick: from, ns: from_ns, rate: ratio(target - from_ns, tick - from) });
                self.put(Point { tick, ns: target, rate });
            } else {
                self.put(Point { tick: from, ns: from_ns, rate });
            }
        }
        self.last_sample = Some((tick, mono));
    }

    fn put(&mut self, point: Point) {
        match self.points.last_mut() {
            Some(last) if last.tick == point.tick => *last = Point { ns: last.ns, ..point },
            _ => self.points.push(point),
        }
    }

    fn peek(&self, tick: u64) -> u64 {
        ns_of_tick(&self.points, tick)
    }

    /// Where the line bends; what was converted before lies on it.
    #[must_use]
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Nanoseconds of a tick, for information that is not part of the order of events.
    #[must_use]
    pub fn look_up(&self, tick: u64) -> u64 {
        self.peek(tick)
    }

    /// Ticks that so many nanoseconds take, at the latest rate that is known.
    #[must_use]
    pub fn ticks(&self, ns: u64) -> u64 {
        let rate = self.points.last().map_or(ONE, |point| point.rate);
        u64::try_from((u128::from(ns) << 32) / u128::from(rate.max(1))).unwrap_or(u64::MAX)
    }

    /// Nanoseconds of a tick that is not smaller than any converted before.
    #[inline]
    pub fn convert(&mut self, tick: u64) -> u64 {
        self.frontier = self.frontier.max(tick);
        while self.points.get(self.hint + 1).is_some_and(|next| next.tick <= tick) {
            self.hint += 1;
        }
        let Some(point) = self.points.get(self.hint) else { return 0 };
        if tick < point.tick && self.hint > 0 {
            return self.peek(tick);
        }
        point.ns_of(tick)
    }
}

/// Nanoseconds of so many ticks at a rate.
fn scale(ticks: u64, rate: u64) -> u64 {
    ((u128::from(ticks) * u128::from(rate)) >> 32) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(tick: u64, monotonic_ns: u64) -> ClockSample {
        ClockSample { tick, monotonic_ns, realtime_ns: 0 }
    }

    #[test]
    fn goes_through_the_samples() {
        let mut clock = ClockMap::new(1000, 1_000_000_000_000);
        clock.sample(&sample(1000, 50_000));
        clock.sample(&sample(2000, 52_000));
        clock.sample(&sample(3000, 55_000));
        assert_eq!(clock.convert(1000), 0);
        assert_eq!(clock.convert(1500), 1000);
        assert_eq!(clock.convert(2000), 2000);
        assert_eq!(clock.convert(2500), 3500);
        assert_eq!(clock.convert(3000), 5000);
        assert_eq!(clock.convert(4000), 8000);
    }

    #[test]
    fn one_sample_leaves_the_estimate() {
        let mut clock = ClockMap::new(100, 2_000_000_000_000);
        clock.sample(&sample(150, 9));
        assert_eq!(clock.convert(300), 100);
        let mut plain = ClockMap::new(100, 0);
        assert_eq!(plain.convert(300), 200);
    }

    proptest! {
        #[test]
        fn never_goes_backwards(steps in prop::collection::vec((any::<bool>(), 0_u64..1000, 0_u64..3000), 0..200)) {
            let mut clock = ClockMap::new(10, 1_000_000_000_000);
            let (mut tick, mut mono, mut event, mut last) = (10_u64, 500_u64, 10_u64, 0_u64);
            for (is_sample, a, b) in steps {
                if is_sample {
                    tick += a;
                    mono += b;
                    clock.sample(&sample(tick, mono));
                } else {
                    event += a;
                    let ns = clock.convert(event);
                    prop_assert!(ns >= last, "{ns} after {last}");
                    prop_assert_eq!(clock.look_up(event), ns);
                    last = ns;
                }
            }
        }
    }
}
