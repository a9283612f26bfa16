//! A time series of live bytes, summed up: what the rules on growth and on levels look at.

use super::statistics::{Slope, mann_kendall, theil_sen};

/// Ranges whose lowest values are looked at.
const RANGES: usize = 32;
/// Part of the rise that the last quarter has at least, if it is to go on: a straight line has 0.25 there.
pub const STILL: f64 = 0.12;

/// What a time series comes down to.
pub struct SeriesOutline {
    pub from_ns: u64,
    pub to_ns: u64,
    pub first: i64,
    pub last: i64,
    /// Lowest values of ranges, with the middle of each.
    pub lows: Vec<(u64, i64)>,
    pub tau: f64,
    pub p: f64,
    /// Lowest and highest value of the second half.
    pub half: (i64, i64),
    pub half_ns: u64,
    /// Rise of the lowest values: in all, and in the last quarter.
    pub rise: i64,
    pub last_rise: i64,
}

/// Outlines what is not empty.
pub fn outline(active: &[(u64, i64)]) -> SeriesOutline {
    let ranges = active.len().min(RANGES);
    let part = |i: usize| &active[active.len() * i / ranges..active.len() * (i + 1) / ranges];
    let lowest = |part: &[(u64, i64)]| {
        let low = part.iter().map(|&(_, bytes)| bytes).min().unwrap_or(0);
        (part[part.len() / 2].0, low)
    };
    let lows: Vec<(u64, i64)> = (0..ranges).map(|i| lowest(part(i))).collect();
    let values: Vec<i64> = lows.iter().map(|&(_, low)| low).collect();
    let (tau, p) = mann_kendall(&values);
    let half = &active[active.len() / 2..];
    let bytes = |part: &[(u64, i64)]| -> Vec<i64> { part.iter().map(|&(_, bytes)| bytes).collect() };
    let (low, high) = (bytes(half).into_iter().min().unwrap_or(0), bytes(half).into_iter().max().unwrap_or(0));
    let quarter = values[values.len() * 3 / 4];
    let end = values[values.len() - 1];
    SeriesOutline {
        from_ns: active[0].0,
        to_ns: active[active.len() - 1].0,
        first: active[0].1,
        last: active[active.len() - 1].1,
        tau,
        p,
        half: (low, high),
        half_ns: half[0].0,
        rise: end - values[0],
        last_rise: end - quarter,
        lows,
    }
}

impl SeriesOutline {
    /// Whether it is a part of the recording that says more than that it has just begun.
    pub fn is_long(&self, duration_ns: u64) -> bool {
        self.to_ns - self.from_ns >= duration_ns / 8
    }

    /// Whether the lowest values rise by more than chance.
    pub fn rises(&self) -> bool {
        self.rise > 0 && self.tau >= 0.5 && self.p < 0.001
    }

    /// Whether they rise, by more than chance or without ever falling.
    pub fn only_rises(&self) -> bool {
        self.rises() || self.rise > 0 && self.lows.is_sorted_by_key(|&(_, low)| low)
    }

    /// When the lowest values had risen by a part of their whole rise, and what they were before and after.
    pub fn risen(&self, part: f64) -> Option<((u64, i64), (u64, i64))> {
        let first = self.lows[0].1;
        let height = first as f64 + self.rise as f64 * part;
        self.lows.windows(2).find(|pair| pair[1].1 as f64 >= height).map(|pair| (pair[0], pair[1]))
    }

    /// Slope of the lowest values: the dear part, for which few time series qualify.
    pub fn slope(&self) -> Slope {
        theil_sen(&self.lows)
    }
}
