//! What the history of a site says, from its exact live bytes and from the ages of the blocks that are left, with the
//! numbers in words.
//!
//! ```text
//! one_time    everything that is left was born within 1 % of the recording, and nothing came after
//! constant    from its first twentieth on, the site has the same number of live bytes, but for brief moments
//! stepwise    a few jumps make up nearly the whole rise, and between them nothing moves
//! growing     the lowest live bytes of successive stretches rise (Mann-Kendall), and still do in the last quarter;
//!             or: live bytes swing, but blocks that nobody frees were born in every quarter of the run and in at
//!             least half of its stretches
//! bounded     they rose to a level and stay there, or swing below a height that does not rise
//! unclear     anything else, or too few moments
//! ```
//! The lowest value of a stretch is what a queue or an arena goes back to: it shows a leak below swings that hide it.
//! What is freed when the program ends is left out before judging, so that a list that only exit frees grows, too.

mod statistics;

use crate::api::leaks::{Forecast, Shape, Verdict, VerdictKind};
use statistics::{Slope, mann_kendall, theil_sen};

/// Stretches of the recording in which births of blocks that are left are counted.
pub const AGES: usize = 16;

/// A site's history.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct History<'a> {
    /// Length of the recording, nanoseconds.
    pub duration_ns: u64,
    /// Live bytes at moments in time, equally spaced.
    pub curve: &'a [(u64, i64)],
    /// Blocks born and blocks freed.
    pub born_freed: (u64, u64),
    /// Births of the first and the last block that is left.
    pub left_born_ns: Option<(u64, u64)>,
    /// Blocks that are left.
    pub left_count: u64,
    /// Bytes of the blocks that are left, by the stretch of the recording in which they were born.
    pub left_ages: [u64; AGES],
    /// Marks: when, and their labels.
    pub marks: &'a [(u64, &'a str)],
    /// The process has ended in an orderly way, so that what it freed last it freed because it ended.
    pub ended: bool,
}

/// Fewest moments with something live that a judgement on growth needs.
const FEWEST: usize = 8;
/// Stretches whose lowest values are looked at.
const STRETCHES: usize = 32;
/// What is freed in this last part of the recording may be freed because the program ends.
const EXIT: f64 = 0.03;
/// Part of the rise that the last quarter has at least, if it is to go on: a straight line has 0.25 there.
const STILL: f64 = 0.12;
/// Most jumps that are called steps.
const STEPS: usize = 12;

/// Judges a site.
#[must_use]
pub fn judge(history: &History<'_>) -> Verdict {
    let since = history.curve.iter().position(|&(_, bytes)| bytes > 0);
    let mut active = since.map_or(&[][..], |at| &history.curve[at..]);
    if let Some(verdict) = one_time(history, active) {
        return verdict;
    }
    let freed_at_exit = history.ended && cut_exit(history.duration_ns, &mut active);
    let mut verdict = if active.len() < FEWEST {
        let why = format!("something was live at {} of {} moments only", active.len(), history.curve.len());
        verdict(VerdictKind::Unclear, Shape::Unclear, 0.0, why)
    } else {
        judge_curve(history, active)
    };
    if freed_at_exit && history.left_count == 0 {
        verdict.freed_at_exit = true;
        verdict.why.push_str("; freed only when the program ended");
    } else if freed_at_exit {
        verdict.why.push_str("; most of it was freed when the program ended");
    }
    verdict
}

fn one_time(history: &History<'_>, active: &[(u64, i64)]) -> Option<Verdict> {
    let (first, last) = history.left_born_ns?;
    // Something was live before: then what is left is the last of a history, such as a vector that realloc grew.
    let spacing = history.duration_ns / history.curve.len().max(1) as u64;
    let has_past = active.first().is_some_and(|&(t, _)| t.saturating_add(spacing) < first);
    if last - first > history.duration_ns / 100 || has_past || !is_flat_after(active, last) {
        return None;
    }
    let blocks =
        if history.left_count == 1 { "1 block is".into() } else { format!("{} blocks are", history.left_count) };
    let when = if first == last {
        format!("at {}", seconds(first))
    } else {
        format!("between {} and {}", seconds(first), seconds(last))
    };
    let since = seconds(history.duration_ns - last);
    let why = format!("{blocks} left, born {when}; nothing was added in the {since} since");
    let quiet = (history.duration_ns - last) as f64 / history.duration_ns.max(1) as f64;
    Some(verdict(VerdictKind::OneTime, Shape::OneTime, 0.5 + quiet / 2.0, why))
}

fn is_flat_after(active: &[(u64, i64)], last_ns: u64) -> bool {
    let mut after = active.iter().filter(|&&(t, _)| t > last_ns).map(|&(_, bytes)| bytes);
    let Some(first) = after.next() else { return true };
    after.all(|bytes| bytes == first)
}

/// Leaves the end out if most of what was live went away there.
fn cut_exit(duration_ns: u64, active: &mut &[(u64, i64)]) -> bool {
    let start = (duration_ns as f64 * (1.0 - EXIT)) as u64;
    let before = active.partition_point(|&(t, _)| t <= start);
    let (Some(&(_, held)), Some(&(_, last))) = (before.checked_sub(1).and_then(|at| active.get(at)), active.last())
    else {
        return false;
    };
    let gone = held > 0 && last.saturating_mul(4) <= held;
    if gone {
        *active = &active[..before];
    }
    gone
}

/// What a curve comes down to.
struct Outline {
    from_ns: u64,
    to_ns: u64,
    first: i64,
    last: i64,
    /// Lowest values of stretches, with the middle of each.
    lows: Vec<(u64, i64)>,
    tau: f64,
    p: f64,
    slope: Slope,
    /// Lowest and highest value of the second half.
    half: (i64, i64),
    half_ns: u64,
    /// Rise of the lowest values: in all, and in the last quarter.
    rise: i64,
    last_rise: i64,
}

fn outline(active: &[(u64, i64)]) -> Outline {
    let stretches = active.len().min(STRETCHES);
    let part = |i: usize| &active[active.len() * i / stretches..active.len() * (i + 1) / stretches];
    let lowest = |part: &[(u64, i64)]| {
        let low = part.iter().map(|&(_, bytes)| bytes).min().unwrap_or(0);
        (part[part.len() / 2].0, low)
    };
    let lows: Vec<(u64, i64)> = (0..stretches).map(|i| lowest(part(i))).collect();
    let values: Vec<i64> = lows.iter().map(|&(_, low)| low).collect();
    let (tau, p) = mann_kendall(&values);
    let half = &active[active.len() / 2..];
    let bytes = |part: &[(u64, i64)]| -> Vec<i64> { part.iter().map(|&(_, bytes)| bytes).collect() };
    let (low, high) = (bytes(half).into_iter().min().unwrap_or(0), bytes(half).into_iter().max().unwrap_or(0));
    let quarter = values[values.len() * 3 / 4];
    let end = values[values.len() - 1];
    Outline {
        from_ns: active[0].0,
        to_ns: active[active.len() - 1].0,
        first: active[0].1,
        last: active[active.len() - 1].1,
        tau,
        p,
        slope: theil_sen(&lows),
        half: (low, high),
        half_ns: half[0].0,
        rise: end - values[0],
        last_rise: end - quarter,
        lows,
    }
}

fn judge_curve(history: &History<'_>, active: &[(u64, i64)]) -> Verdict {
    let outline = outline(active);
    constant(history, active)
        .or_else(|| stepwise(history, active))
        .or_else(|| growing(history, &outline))
        .or_else(|| growing_below_swings(history, &outline))
        .or_else(|| bounded(active, &outline))
        .unwrap_or_else(|| unclear(&outline))
}

fn constant(history: &History<'_>, active: &[(u64, i64)]) -> Option<Verdict> {
    let settled = &active[active.len() / 20..];
    let mut values: Vec<i64> = settled.iter().map(|&(_, bytes)| bytes).collect();
    values.sort_unstable();
    let (low, level, high) = (values[0], values[values.len() / 2], values[values.len() - 1]);
    // Who frees a block before or after taking the next has one less or one more for a moment.
    let away = values.iter().filter(|&&bytes| bytes != level).count();
    let brief = away * 20 <= values.len() && high <= level.saturating_mul(2);
    // What begins late has shown too little of itself.
    if settled[0].0 > history.duration_ns / 2 || !brief {
        return None;
    }
    let (born, freed) = history.born_freed;
    let churn = if freed > 0 { format!(", although {born} blocks were born and {freed} freed") } else { String::new() };
    let moments =
        if away == 0 { String::new() } else { format!(" (for moments between {} and {})", size(low), size(high)) };
    let why = format!("always {} live since {}{moments}{churn}", size(level), seconds(settled[0].0));
    let confidence = 1.0 - away as f64 / values.len() as f64;
    Some(verdict(VerdictKind::Bounded, Shape::Constant, confidence, why))
}

fn stepwise(history: &History<'_>, active: &[(u64, i64)]) -> Option<Verdict> {
    // The first value is a step, too: from nothing.
    let mut moves: Vec<(u64, u64, i64)> = vec![(0, active[0].0, active[0].1)];
    moves.extend(active.windows(2).map(|pair| (pair[0].0, pair[1].0, pair[1].1 - pair[0].1)));
    let rise: i64 = moves.iter().map(|step| step.2.max(0)).sum();
    let fall: i64 = moves.iter().map(|step| (-step.2).max(0)).sum();
    let steps: Vec<_> = moves.into_iter().filter(|step| step.2 as f64 >= rise as f64 * 0.05).collect();
    let in_steps: i64 = steps.iter().map(|step| step.2).sum();
    if steps.len() < 2 || steps.len() > STEPS || (in_steps as f64) < rise as f64 * 0.9 || fall * 10 > rise {
        return None;
    }
    // A step is at a mark if the mark lies between the two moments that it lies between. Marks everywhere say nothing.
    let spacing = active.get(1).map_or(0, |next| next.0 - active[0].0);
    let marked = |step: &&(u64, u64, i64)| {
        history.marks.iter().find(|mark| mark.0 + spacing > step.0 && mark.0 <= step.1).map(|mark| mark.1)
    };
    let at_marks: Vec<&str> = steps.iter().filter_map(|step| marked(&step)).collect();
    let telling = history.marks.len() <= 2 * steps.len() && at_marks.len() * 5 >= steps.len() * 4;
    let last_step = steps[steps.len() - 1].1;
    let late = last_step > history.duration_ns / 2;
    let kind = match steps.len() {
        _ if !late => VerdictKind::Bounded,
        0..=2 => VerdictKind::Bounded,
        3 => VerdictKind::Unclear,
        _ => VerdictKind::Growing,
    };
    let marks = if telling {
        let mut labels = at_marks.clone();
        labels.dedup();
        labels.truncate(4);
        format!(", at the marks {}", labels.iter().map(|label| format!("“{label}”")).collect::<Vec<_>>().join(", "))
    } else {
        String::new()
    };
    let last = active[active.len() - 1];
    let grown = match history.left_count {
        1 if history.born_freed.0 > 1 => " (one block that was replaced by larger ones)",
        _ => "",
    };
    let why = format!(
        "live bytes rose in {} steps to {}{grown}, the last of {} at {}{marks}; between the steps they stayed",
        steps.len(),
        size(last.1),
        size(steps[steps.len() - 1].2),
        seconds(last_step),
    );
    let mut verdict = verdict(kind, Shape::Stepwise, in_steps as f64 / rise as f64, why);
    if kind == VerdictKind::Growing {
        let slope = theil_sen(active);
        set_rate(&mut verdict, slope, last.1);
    }
    Some(verdict)
}

fn growing(history: &History<'_>, o: &Outline) -> Option<Verdict> {
    let goes_on = o.rise > 0 && o.last_rise as f64 >= o.rise as f64 * STILL;
    // What began a moment ago has grown by definition.
    let long = o.to_ns - o.from_ns >= history.duration_ns / 8;
    if o.tau < 0.5 || o.p >= 0.001 || o.slope.low <= 0.0 || !goes_on || !long {
        return None;
    }
    // A level that creeps within a tenth of itself in the second half is a level.
    let (low, high) = o.half;
    if ((high - low) as f64) < high as f64 * 0.1 && (o.last_rise as f64) < high as f64 * 0.05 {
        return None;
    }
    let rising = o.lows.windows(2).filter(|pair| pair[1].1 > pair[0].1).count();
    let (born, freed) = history.born_freed;
    let kept = if freed > 0 {
        format!("; of {born} blocks {freed} were freed")
    } else {
        format!("; none of {born} blocks was freed")
    };
    let why = format!(
        "live bytes rose in {rising} of {} equal stretches from {} to {}, from {} to {}, {} a second ({} to {} with 95 % confidence), and still rise{kept}",
        o.lows.len() - 1,
        seconds(o.from_ns),
        seconds(o.to_ns),
        size(o.first),
        size(o.last),
        size(o.slope.rate as i64),
        size(o.slope.low as i64),
        size(o.slope.high as i64),
    );
    let confidence = o.tau.clamp(0.0, 1.0) * (1.0 - o.p);
    let mut verdict = verdict(VerdictKind::Growing, Shape::Growing, confidence, why);
    set_rate(&mut verdict, o.slope, o.last);
    Some(verdict)
}

/// Live bytes go up and down; what is left tells whether some of it is never freed: blocks of a queue are young.
fn growing_below_swings(history: &History<'_>, o: &Outline) -> Option<Verdict> {
    let (low, high) = o.half;
    let swings = (high - low) as f64 > high as f64 * 0.25;
    let from = (o.from_ns as f64 / history.duration_ns.max(1) as f64 * AGES as f64) as usize;
    // The last stretches hold what is merely young.
    let ages = history.left_ages.get(from..AGES * 7 / 8).unwrap_or_default();
    if !swings || ages.len() < 6 || history.left_count < 12 {
        return None;
    }
    let old: u64 = ages.iter().sum();
    let populated = ages.iter().filter(|&&bytes| bytes > 0).count();
    let largest = ages.iter().max().copied().unwrap_or(0);
    let quarters = (0..4).all(|i| ages[ages.len() * i / 4..ages.len() * (i + 1) / 4].iter().any(|&bytes| bytes > 0));
    // Few blocks leave some stretches empty by chance alone, a quarter hardly.
    if !quarters || populated * 2 < ages.len() || largest > old / 2 {
        return None;
    }
    // What was born by the end of each stretch and is never freed: a curve without swings.
    let stretch_ns = history.duration_ns / AGES as u64;
    let mut sum = 0;
    let curve: Vec<(u64, i64)> = ages
        .iter()
        .enumerate()
        .map(|(i, &bytes)| {
            sum += bytes.cast_signed();
            ((from + i + 1) as u64 * stretch_ns, sum)
        })
        .collect();
    let slope = theil_sen(&curve);
    let (born, freed) = history.born_freed;
    let why = format!(
        "live bytes swing between {} and {}, but {} that nobody freed were born in {populated} of {} equal stretches from {} on, {} a second ({} to {} with 95 % confidence); of {born} blocks {freed} were freed",
        size(low),
        size(high),
        size(old.cast_signed()),
        ages.len(),
        seconds(o.from_ns),
        size(slope.rate as i64),
        size(slope.low as i64),
        size(slope.high as i64),
    );
    let confidence = populated as f64 / ages.len() as f64 * (1.0 - largest as f64 / old.max(1) as f64);
    let mut verdict = verdict(VerdictKind::Growing, Shape::Growing, confidence, why);
    set_rate(&mut verdict, slope, o.last);
    Some(verdict)
}

fn bounded(active: &[(u64, i64)], o: &Outline) -> Option<Verdict> {
    let (low, high) = o.half;
    let spread = (high - low) as f64 / high.max(1) as f64;
    let stays = spread <= 0.1;
    let highest_before = active[..active.len() / 2].iter().map(|&(_, bytes)| bytes).max().unwrap_or(0);
    // Swings that do not get higher, above lows that do not rise.
    let second: Vec<i64> = o.lows[o.lows.len() / 2..].iter().map(|&(_, low)| low).collect();
    let (tau, p) = mann_kendall(&second);
    let level = o.lows.last().map_or(0, |&(_, low)| low) <= highest_before;
    let swings = high as f64 <= highest_before as f64 * 1.25 && level && (tau <= 0.0 || p > 0.01);
    // A level that is still approached, ever more slowly.
    let saturates = o.rise > 0 && (o.last_rise as f64) < o.rise as f64 * STILL && high as f64 <= o.last as f64 * 1.1;
    if !(stays || swings || saturates) {
        return None;
    }
    let (from, to) = (seconds(o.half_ns), seconds(o.to_ns));
    let (low, high) = (size(low), size(high));
    let why = if stays {
        format!("live bytes stayed between {low} and {high} from {from} to {to}")
    } else if swings {
        format!("live bytes go up and down between {low} and {high} from {from} to {to}, no higher than before")
    } else {
        let part = o.last_rise as f64 / o.rise as f64 * 100.0;
        format!("live bytes rose to {high}, ever more slowly: {part:.0} % of the rise was in the last quarter")
    };
    let confidence = if stays { 1.0 - spread } else { 0.7 };
    Some(verdict(VerdictKind::Bounded, Shape::Bounded, confidence, why))
}

fn unclear(o: &Outline) -> Verdict {
    let (low, high) = o.half;
    let why = format!(
        "live bytes moved between {} and {} in the second half, without a clear direction (tau {:.2}, p {:.1e})",
        size(low),
        size(high),
        o.tau,
        o.p,
    );
    verdict(VerdictKind::Unclear, Shape::Unclear, 0.0, why)
}

fn verdict(kind: VerdictKind, shape: Shape, confidence: f64, why: String) -> Verdict {
    let confidence = (confidence.clamp(0.0, 1.0) * 100.0).round() / 100.0;
    Verdict { kind, shape, confidence, why, ..Verdict::default() }
}

/// The length of time that forecasts look ahead.
const AHEAD_NS: u64 = 3_600_000_000_000;

fn set_rate(verdict: &mut Verdict, slope: Slope, now: i64) {
    verdict.bytes_per_second = slope.rate;
    verdict.bytes_per_second_low = Some(slope.low);
    verdict.bytes_per_second_high = Some(slope.high);
    let bytes = now as f64 + slope.rate * (AHEAD_NS as f64 / 1e9);
    verdict.forecast = Some(Forecast { after_ns: AHEAD_NS, bytes: bytes.max(0.0) as u64 });
    verdict.why.push_str(&format!("; at this rate {} in another hour", size(bytes as i64)));
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

    const S: u64 = 1_000_000_000;
    const N: u64 = 256;

    fn judged(bytes: impl Fn(u64) -> i64, left: Option<(u64, u64)>, count: u64) -> Verdict {
        let curve: Vec<_> = (1..=N).map(|i| (i * S, bytes(i))).collect();
        let history = History {
            duration_ns: N * S,
            curve: &curve,
            left_born_ns: left,
            left_count: count,
            born_freed: (count, 0),
            ended: true,
            ..History::default()
        };
        judge(&history)
    }

    /// The same noise every time.
    fn noise(i: u64, height: u64) -> i64 {
        let mut x = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((x >> 33) % height) as i64
    }

    #[test]
    fn kinds_are_told_apart() {
        let growing = judged(|i| i as i64 * 1000, Some((S, 255 * S)), 256);
        assert_eq!((growing.kind, growing.shape), (VerdictKind::Growing, Shape::Growing), "{growing:?}");
        assert!((growing.bytes_per_second - 1000.0).abs() < 1.0);
        assert!(growing.why.contains("31 of 31") && growing.why.contains("95 %"), "{}", growing.why);
        let forecast = growing.forecast.unwrap();
        assert_eq!((forecast.after_ns, forecast.bytes), (3600 * S, 256_000 + 3_600_000));

        let bounded = judged(|i| 100_000.min(i as i64 * 2_000), Some((S, 255 * S)), 50);
        assert_eq!((bounded.kind, bounded.shape), (VerdictKind::Bounded, Shape::Bounded), "{bounded:?}");
        let filling = judged(|i| (1e6 * (1.0 - (-(i as f64) / 80.0).exp())) as i64, Some((S, 255 * S)), 50);
        assert_eq!(filling.kind, VerdictKind::Bounded, "{filling:?}");
        let once = judged(|_| 64, Some((S / 2, S / 2)), 1);
        assert_eq!((once.kind, once.shape), (VerdictKind::OneTime, Shape::OneTime), "{once:?}");
        let constant = judged(|_| 64, Some((S, 200 * S)), 4);
        assert_eq!((constant.kind, constant.shape), (VerdictKind::Bounded, Shape::Constant), "{constant:?}");
        for other in [0, 4032, 8192] {
            let churn = judged(|i| if i % 50 == 27 { other } else { 4096 }, Some((S, 255 * S)), 64);
            assert_eq!((churn.kind, churn.shape), (VerdictKind::Bounded, Shape::Constant), "{churn:?}");
            assert!(churn.why.contains("for moments between"), "{churn:?}");
        }
        let saw = judged(|i| if i % 2 == 0 { 10 } else { 90_000 }, Some((S, 255 * S)), 4);
        assert_eq!(saw.kind, VerdictKind::Bounded, "{saw:?}");
        let late = judged(|i| if i > 252 { 9 } else { 0 }, Some((20 * S, 255 * S)), 2);
        assert_eq!(late.kind, VerdictKind::Unclear, "{late:?}");
        let wild = judged(|i| noise(i, 1000) * i as i64 * i as i64, Some((S, 255 * S)), 9);
        assert_ne!(wild.kind, VerdictKind::Growing, "{wild:?}");
    }

    #[test]
    fn a_slow_leak_shows_below_noise() {
        let leak = judged(|i| i as i64 * 100 + noise(i, 20_000), Some((S, 255 * S)), 256);
        assert_eq!(leak.kind, VerdictKind::Growing, "{leak:?}");
        let (low, high) = (leak.bytes_per_second_low.unwrap(), leak.bytes_per_second_high.unwrap());
        assert!(low < 100.0 && high > 100.0, "{leak:?}");
        let queue = judged(|i| noise(i, 20_000), Some((250 * S, 255 * S)), 256);
        assert_eq!(queue.kind, VerdictKind::Bounded, "{queue:?}");
    }

    #[test]
    fn a_leak_below_swings_shows_in_the_ages_of_what_is_left() {
        let curve: Vec<_> = (1..=N).map(|i| (i * S, 1_000_000 * (i as i64 % 40) + i as i64)).collect();
        let history = |left_ages| History {
            duration_ns: N * S,
            curve: &curve,
            left_born_ns: Some((S, 255 * S)),
            left_count: 500,
            left_ages,
            born_freed: (1_000_000, 999_500),
            ..History::default()
        };
        let leak = judge(&history([100; AGES]));
        assert_eq!(leak.kind, VerdictKind::Growing, "{leak:?}");
        assert!((leak.bytes_per_second - 100.0 / 16.0).abs() < 0.1, "{leak:?}");
        // Few blocks, born at random: some stretches are empty by chance.
        let sparse = [2, 0, 1, 3, 0, 2, 0, 0, 4, 1, 2, 3, 0, 5, 2, 6].map(|blocks| blocks * 128);
        assert_eq!(judge(&history(sparse)).kind, VerdictKind::Growing);
        let early = [9, 0, 1, 3, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 2, 6].map(|blocks| blocks * 128);
        assert_eq!(judge(&history(early)).kind, VerdictKind::Bounded);
        let mut young = [0; AGES];
        young[AGES - 1] = 1600;
        assert_eq!(judge(&history(young)).kind, VerdictKind::Bounded);
    }

    #[test]
    fn what_exit_frees_grows_until_then() {
        let at_exit = judged(|i| if i < N { i as i64 * 1000 } else { 0 }, None, 0);
        assert_eq!(at_exit.kind, VerdictKind::Growing, "{at_exit:?}");
        assert!(at_exit.freed_at_exit && at_exit.why.contains("only when the program ended"), "{at_exit:?}");
    }

    #[test]
    fn steps_are_seen_with_their_marks() {
        let phases = |i: u64| 1_000_000 * (1 + i as i64 / 100);
        let marks = [(100 * S - S / 2, "second"), (200 * S - S / 2, "third")];
        let curve: Vec<_> = (1..=N).map(|i| (i * S, phases(i))).collect();
        let history = History {
            duration_ns: N * S,
            curve: &curve,
            left_born_ns: Some((S, 200 * S)),
            left_count: 3,
            born_freed: (3, 0),
            marks: &marks,
            ..History::default()
        };
        let steps = judge(&history);
        assert_eq!((steps.kind, steps.shape), (VerdictKind::Unclear, Shape::Stepwise), "{steps:?}");
        let many = judged(|i| 1000 * (i as i64 / 32), Some((S, 255 * S)), 8);
        assert_eq!((many.kind, many.shape), (VerdictKind::Growing, Shape::Stepwise), "{many:?}");
        let vector = judged(|i| (i as i64).next_power_of_two_signed(), Some((200 * S, 200 * S)), 1);
        assert_eq!(vector.shape, Shape::Stepwise, "{vector:?}");
    }

    trait NextPowerOfTwo {
        fn next_power_of_two_signed(self) -> i64;
    }

    impl NextPowerOfTwo for i64 {
        fn next_power_of_two_signed(self) -> i64 {
            self.cast_unsigned().next_power_of_two().cast_signed()
        }
    }
}
