//! Growth: live bytes that rise, or blocks that are left below swings or beside a cache.

use super::outline::{STILL, SeriesOutline};
use super::statistics::theil_sen;
use super::words::{set_rate, verdict};
use super::{AGES, History};
use tracehound_api::leaks::{Shape, Verdict, VerdictKind};
use tracehound_api::units::{count, duration, signed_bytes};

/// The lowest live bytes of successive intervals rise, and still do.
pub fn growing(history: &History<'_>, o: &SeriesOutline) -> Option<Verdict> {
    let goes_on = o.rise > 0 && o.last_rise as f64 >= o.rise as f64 * STILL;
    // What began a moment ago has grown by definition.
    if !o.rises() || !goes_on || !o.is_long(history.duration_ns) {
        return None;
    }
    let slope = o.slope();
    if slope.low <= 0.0 {
        return None;
    }
    // A level that creeps within a tenth of itself in the second half is a level.
    let (low, high) = o.half;
    if ((high - low) as f64) < high as f64 * 0.1 && (o.last_rise as f64) < high as f64 * 0.05 {
        return None;
    }
    let rising = o.lows.windows(2).filter(|pair| pair[1].1 > pair[0].1).count();
    let (allocated, freed) = history.allocated_freed;
    let kept = match (allocated, freed) {
        (1, 0) => "; its one block was not freed".to_owned(),
        (_, 0) => format!("; none of {} blocks was freed", count(allocated)),
        _ => format!("; of {} blocks {} were freed", count(allocated), count(freed)),
    };
    let why = format!(
        "live bytes rose in {rising} of {} equal intervals from {} to {}, from {} to {}, {} a second ({} to {} with 95% confidence), and still rise{kept}",
        o.lows.len() - 1,
        duration(o.from_ns),
        duration(o.to_ns),
        signed_bytes(o.first),
        signed_bytes(o.last),
        signed_bytes(slope.rate as i64),
        signed_bytes(slope.low as i64),
        signed_bytes(slope.high as i64),
    );
    let confidence = o.tau.clamp(0.0, 1.0) * (1.0 - o.p);
    let mut verdict = verdict(VerdictKind::Growing, Shape::Growing, confidence, why);
    set_rate(&mut verdict, slope, o.last, o.to_ns - o.from_ns);
    Some(verdict)
}

/// What is left tells whether some of it is never freed: blocks of a queue or a cache are young, those of a leak were
/// allocated all the time. `churns`: nearly all blocks of the site are freed, which a leak beside a cache is seen by;
/// then their ages must be even. Else live bytes must swing, and the ages need not be as even.
pub fn leaking_below(history: &History<'_>, active: &[(u64, i64)], o: &SeriesOutline, churns: bool) -> Option<Verdict> {
    let (low, high) = o.half;
    let (allocated, freed) = history.allocated_freed;
    let from = (o.from_ns as f64 / history.duration_ns.max(1) as f64 * AGES as f64) as usize;
    let to = if churns { from + AGES.saturating_sub(from) * 5 / 8 } else { AGES * 7 / 8 };
    // The last ranges hold what is merely young.
    let ages = history.left_ages.get(from..to).unwrap_or_default();
    if ages.len() < if churns { 5 } else { 6 } || history.left_count < 12 {
        return None;
    }
    if churns && history.left_count.saturating_mul(10) > allocated || history.left_count.saturating_mul(5) > allocated {
        return None;
    }
    let falls: i64 = active.windows(2).map(|pair| (pair[0].1 - pair[1].1).max(0)).sum();
    let swings = (high - low) as f64 > high as f64 * 0.25 && falls as f64 > high as f64 * 0.25;
    let in_batches = !churns && swings && deep_falls(active) >= 3 && has_even_quarters(ages);
    let even = if churns { is_even(ages) } else { in_batches || swings && is_spread(ages) };
    // A leak goes on: what is young is at least as much.
    let old: u64 = ages.iter().sum();
    let (rest, mean) = (&history.left_ages[to..], old / ages.len() as u64);
    let goes_on = in_batches || rest.iter().sum::<u64>() / rest.len().max(1) as u64 >= mean / 2;
    if !even || !goes_on {
        return None;
    }
    // What was allocated by the end of each range and is never freed: a time series without swings.
    let range_ns = history.duration_ns / AGES as u64;
    let mut sum = 0;
    let curve: Vec<(u64, i64)> = ages
        .iter()
        .enumerate()
        .map(|(i, &bytes)| {
            sum += bytes.cast_signed();
            ((from + i + 1) as u64 * range_ns, sum)
        })
        .collect();
    let slope = theil_sen(&curve);
    let populated = ages.iter().filter(|&&bytes| bytes > 0).count();
    let why = format!(
        "live bytes {} between {} and {}, but {} that nobody freed were allocated in {populated} of {} equal intervals from {} to {}, {} a second ({} to {} with 95% confidence); of {} blocks {} were freed",
        if swings { "swing" } else { "are" },
        signed_bytes(low),
        signed_bytes(high),
        signed_bytes(old.cast_signed()),
        ages.len(),
        duration(o.from_ns),
        duration(to as u64 * range_ns),
        signed_bytes(slope.rate as i64),
        signed_bytes(slope.low as i64),
        signed_bytes(slope.high as i64),
        count(allocated),
        count(freed),
    );
    let largest = ages.iter().max().copied().unwrap_or(0);
    let confidence = populated as f64 / ages.len() as f64 * (1.0 - largest as f64 / old.max(1) as f64);
    let mut verdict = verdict(VerdictKind::Growing, Shape::Growing, confidence, why);
    set_rate(&mut verdict, slope, o.last, o.to_ns - o.from_ns);
    Some(verdict)
}

/// Whether blocks that are left were allocated in every quarter and in at least half of the ranges, most of them not in
/// one: few blocks leave some ranges empty by chance alone, a quarter hardly.
fn is_spread(ages: &[u64]) -> bool {
    let populated = ages.iter().filter(|&&bytes| bytes > 0).count();
    let quarter = |i: usize| &ages[ages.len() * i / 4..ages.len() * (i + 1) / 4];
    (0..4).all(|i| quarter(i).iter().any(|&bytes| bytes > 0))
        && populated * 2 >= ages.len()
        && ages.iter().max().is_some_and(|&largest| largest <= ages.iter().sum::<u64>() / 2)
}

/// How often live bytes fell to half of what they had risen to.
fn deep_falls(active: &[(u64, i64)]) -> usize {
    let (mut falls, mut high, mut low) = (0, 0, i64::MAX);
    for &(_, bytes) in active {
        if bytes.saturating_mul(2) <= high {
            falls += 1;
            (high, low) = (0, bytes);
        } else if low == i64::MAX || bytes >= low.saturating_mul(2) {
            // It rises again, or has not fallen yet.
            (high, low) = (high.max(bytes), i64::MAX);
        } else {
            low = low.min(bytes);
        }
    }
    falls
}

/// Whether about as much is left of every quarter: batches that each keep something, a few in all, leave most ranges empty.
/// A cache is not emptied by half again and again.
fn has_even_quarters(ages: &[u64]) -> bool {
    let quarters: [u64; 4] = std::array::from_fn(|i| ages[ages.len() * i / 4..ages.len() * (i + 1) / 4].iter().sum());
    let [least, most] = [quarters.iter().min(), quarters.iter().max()].map(|sum| sum.copied().unwrap_or(0));
    least > 0 && most <= 3 * least
}

/// Whether about as much is left of every range. Of a cache ever less is left the older it is, but for what is never
/// thrown out, which is as old as the cache.
fn is_even(ages: &[u64]) -> bool {
    let mut sorted = ages.to_vec();
    sorted.sort_unstable();
    let (median, largest) = (sorted[sorted.len() / 2], sorted[sorted.len() - 1]);
    let populated = sorted.iter().filter(|&&bytes| bytes > 0).count();
    let (older, younger) = ages.split_at(ages.len() / 2);
    let mean = |part: &[u64]| part.iter().sum::<u64>() as f64 / part.len().max(1) as f64;
    let (older, younger) = (mean(older), mean(younger));
    populated * 10 >= ages.len() * 8 && largest <= 4 * median && younger <= 1.6 * older && older <= 3.0 * younger
}
