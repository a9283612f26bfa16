//! Histories that do not grow, or grow in steps: levels, swings, jumps; and histories without a verdict.

use super::History;
use super::outline::{STILL, SeriesOutline};
use super::statistics::{mann_kendall, theil_sen};
use super::words::{set_rate, verdict};
use tracehound_api::leaks::{Shape, Verdict, VerdictKind};
use tracehound_api::units::{count, duration, plural, signed_bytes};

/// Most jumps that are called steps.
const STEPS: usize = 12;
/// After so many times the longest pause between two steps no other is expected.
const PATIENCE: u64 = 3;

/// Always as much, but for brief moments.
pub fn constant(history: &History<'_>, active: &[(u64, i64)]) -> Option<Verdict> {
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
    let (allocated, freed) = history.allocated_freed;
    let churn = if freed > 0 {
        format!(", although {} blocks were allocated and {} freed", count(allocated), count(freed))
    } else {
        String::new()
    };
    // Between the moments there may have been more.
    let others = if away == 0 {
        String::new()
    } else {
        format!(", {} to {} at the others", signed_bytes(low), signed_bytes(high))
    };
    let why = format!(
        "{} live at {} of {} moments since {}{others}{churn}",
        signed_bytes(level),
        values.len() - away,
        values.len(),
        duration(settled[0].0)
    );
    let confidence = 1.0 - away as f64 / values.len() as f64;
    Some(verdict(VerdictKind::Bounded, Shape::Constant, confidence, why))
}

/// Few jumps, and nothing between them.
pub fn stepwise(history: &History<'_>, active: &[(u64, i64)]) -> Option<Verdict> {
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
    // A burst, such as what a program sets up, is over when nothing comes for much longer than its steps were apart.
    let pause = steps.windows(2).map(|pair| pair[1].1 - pair[0].1).max().unwrap_or(0);
    let quiet = history.duration_ns.saturating_sub(last_step);
    let over = quiet > PATIENCE * pause.max(spacing);
    // Of a leak some site allocates again.
    let first_times = history.sites > 1 && history.left_count < 2 * history.sites;
    let kind = match steps.len() {
        _ if !late || over => VerdictKind::Bounded,
        _ if first_times => VerdictKind::Unclear,
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
        1 if history.allocated_freed.0 > 1 => " (one block that was replaced by larger ones)",
        _ => "",
    };
    let since = match (late, over) {
        (true, true) => format!("; the {} since are over {PATIENCE} times their longest pause", duration(quiet)),
        _ => String::new(),
    };
    let sites = match kind {
        VerdictKind::Unclear if first_times => {
            format!("; {} of {} sites: hardly one allocated twice", plural(history.left_count, "block"), history.sites)
        }
        _ => String::new(),
    };
    let why = format!(
        "live bytes rose in {} steps to {}{grown}, the last of {} at {}{marks}; between the steps they stayed{since}{sites}",
        steps.len(),
        signed_bytes(last.1),
        signed_bytes(steps[steps.len() - 1].2),
        duration(last_step),
    );
    let mut verdict = verdict(kind, Shape::Stepwise, in_steps as f64 / rise as f64, why);
    if kind == VerdictKind::Growing {
        let slope = theil_sen(&ramp(&steps, last.0));
        set_rate(&mut verdict, slope, last.1, last.0 - active[0].0);
    }
    Some(verdict)
}

/// Steps as straight lines from one to the next, at equal distances until the end: between steps nothing moves, which would
/// make the slope of all moments zero, and steps that come ever more slowly have most of their slopes early.
fn ramp(steps: &[(u64, u64, i64)], end_ns: u64) -> Vec<(u64, i64)> {
    const MOMENTS: u64 = 32;
    let mut level = 0;
    let corners: Vec<(u64, i64)> = steps
        .iter()
        .map(|step| {
            level += step.2;
            (step.1, level)
        })
        .collect();
    let Some(&(from_ns, _)) = corners.first() else { return corners };
    let at = |t: u64| {
        let next = corners.partition_point(|corner| corner.0 <= t);
        match (corners.get(next.saturating_sub(1)), corners.get(next)) {
            (Some(&(t0, low)), Some(&(t1, high))) => {
                low + ((high - low) as f64 * (t - t0) as f64 / (t1 - t0).max(1) as f64) as i64
            }
            _ => level,
        }
    };
    let moments = (0..=MOMENTS).map(|i| from_ns + (end_ns.saturating_sub(from_ns)) * i / MOMENTS);
    moments.map(|t| (t, at(t))).collect()
}

/// A level that is kept, swung below, or reached.
pub fn bounded(history: &History<'_>, active: &[(u64, i64)], o: &SeriesOutline) -> Option<Verdict> {
    let (low, high) = o.half;
    let spread = (high - low) as f64 / high.max(1) as f64;
    let stays = spread <= 0.1;
    let highest_before = active[..active.len() / 2].iter().map(|&(_, bytes)| bytes).max().unwrap_or(0);
    // Swings that do not get higher, above lows that do not rise.
    let second: Vec<i64> = o.lows[o.lows.len() / 2..].iter().map(|&(_, low)| low).collect();
    let (tau, p) = mann_kendall(&second);
    let level = o.lows.last().map_or(0, |&(_, low)| low) <= highest_before;
    let swings = high as f64 <= highest_before as f64 * 1.25 && level && (tau <= 0.0 || p > 0.01);
    // A level that is approached ever more slowly, or was reached. A moment after it began nobody knows which it is.
    let saturates = o.rise > 0
        && (o.last_rise as f64) < o.rise as f64 * STILL
        && high as f64 <= o.last as f64 * 1.1
        && o.is_long(history.duration_ns);
    if !(stays || swings || saturates) {
        return None;
    }
    let (from, to) = (duration(o.half_ns), duration(o.to_ns));
    let (low, high) = (signed_bytes(low), signed_bytes(high));
    let why = if stays && low == high {
        format!("live bytes were {low} at all moments that were looked at from {from} to {to}")
    } else if stays {
        format!("live bytes were between {low} and {high} at all moments that were looked at from {from} to {to}")
    } else if swings && is_falling(active) {
        let half = &active[active.len() / 2..];
        let [begin, end] = [half.first(), half.last()].map(|it| signed_bytes(it.map_or(0, |it| it.1)));
        format!("live bytes only fell from {from} to {to}, from {begin} to {end}")
    } else if swings {
        let more = (o.half.1 - highest_before) as f64 / highest_before.max(1) as f64 * 100.0;
        let than_before = match o.half.1 > highest_before {
            true => format!("at most {:.0}% higher than before", more.max(1.0)),
            false => "no higher than before".to_owned(),
        };
        format!("live bytes go up and down between {low} and {high} from {from} to {to}, {than_before}")
    } else if let Some(end) = sudden_end(o) {
        format!(
            "live bytes rose to {high} until {}, and stayed there for the {} since",
            duration(end),
            duration(o.to_ns - end)
        )
    } else {
        let part = o.last_rise as f64 / o.rise as f64 * 100.0;
        format!("live bytes rose to {high}, ever more slowly: {part:.0}% of the rise was in the last quarter")
    };
    let confidence = if stays { 1.0 - spread } else { 0.7 };
    Some(verdict(VerdictKind::Bounded, Shape::Bounded, confidence, why))
}

/// Whether nothing rose in the second half.
fn is_falling(active: &[(u64, i64)]) -> bool {
    active[active.len() / 2..].is_sorted_by(|before, after| before.1 >= after.1)
}

/// When a rise ended that had not slowed down before: its last quarter had at least half of its usual rate.
fn sudden_end(o: &SeriesOutline) -> Option<u64> {
    let (_, (end, _)) = o.risen(0.99)?;
    let (_, (late, level)) = o.risen(0.75)?;
    let begin = o.lows[0];
    let usual = o.rise as f64 / end.saturating_sub(begin.0).max(1) as f64;
    let last = (begin.1 as f64 + o.rise as f64 - level as f64) / end.saturating_sub(late).max(1) as f64;
    (last >= usual / 2.0).then_some(end)
}

/// None of the others.
pub fn unclear(history: &History<'_>, o: &SeriesOutline) -> Verdict {
    let (low, high) = o.half;
    let why = if o.only_rises() {
        // The tenth before is what was there already.
        let (from, level) =
            o.risen(0.1).filter(|_| o.is_long(history.duration_ns)).map_or((o.from_ns, o.first), |it| it.0);
        let part = (history.duration_ns.saturating_sub(from)) as f64 / history.duration_ns.max(1) as f64 * 100.0;
        let (allocated, freed) = history.allocated_freed;
        let because = match part > 25.0 {
            true => "too unevenly to tell growth from swings",
            false => "too little of it to tell growth from a beginning",
        };
        format!(
            "live bytes rose from {} to {} since {}, in the last {part:.0}% of the recording: {because}; {} of {} freed",
            signed_bytes(level),
            signed_bytes(o.last),
            duration(from),
            if freed == 0 { "none".to_owned() } else { count(freed) },
            plural(allocated, "block"),
        )
    } else {
        format!(
            "live bytes moved between {} and {} in the second half, without a clear direction (tau {:.2}, p {:.1e})",
            signed_bytes(low),
            signed_bytes(high),
            o.tau,
            o.p,
        )
    };
    verdict(VerdictKind::Unclear, Shape::Unclear, 0.0, why)
}
