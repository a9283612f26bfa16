//! Verdict on a site, from its exact live bytes and from the ages of the blocks that are left, with the
//! numbers in words.
//!
//! ```text
//! one_time    everything that is left was allocated within 1 % of the recording, and nothing came after
//! constant    from its first twentieth on, the site has the same number of live bytes, but for brief moments
//! stepwise    a few jumps make up nearly the whole rise, and between them nothing moves; it grows only while the time
//!             since the last is not much longer than the pauses between them, and not if nearly every block is of
//!             another site: code that runs for the first time, as at a program's start
//! growing     the lowest live bytes of successive intervals rise (Mann-Kendall), and still do in the last quarter;
//!             or: live bytes swing, but blocks that nobody frees were allocated in every quarter of the run and in at
//!             least half of its ranges;
//!             or: nearly all blocks are freed, as in a cache, and those that do not were allocated evenly all the time
//! bounded     they rose to a level and stay there, or swing below a height that does not rise
//! unclear     anything else, too few moments, or a rise in the last eighth of the recording alone
//! ```
//! The lowest value of a range is what a queue or an arena goes back to: it shows a leak below swings that hide it.
//! What is freed when the program ends is left out before judging, so that a list that only exit frees grows, too.

mod growth;
mod level;
mod outline;
mod statistics;
#[cfg(test)]
mod tests;
mod words;

use growth::{growing, leaking_below};
use level::{bounded, constant, stepwise, unclear};
use outline::outline;
use tracehound_api::info::End;
use tracehound_api::leaks::{Shape, Verdict, VerdictKind};
use tracehound_api::units::{count, duration, plural};
use tracehound_index::Trace;
use words::verdict;

/// Ranges of the recording in which allocations of blocks that are left are counted.
pub const AGES: usize = 16;

/// A site's history.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct History<'a> {
    /// Length of the recording, nanoseconds.
    pub duration_ns: u64,
    /// Live bytes at moments in time, equally spaced.
    pub curve: &'a [(u64, i64)],
    /// Blocks allocated and blocks freed.
    pub allocated_freed: (u64, u64),
    /// Allocations of the first and the last block that is left.
    pub left_allocated_ns: Option<(u64, u64)>,
    /// Blocks that are left.
    pub left_count: u64,
    /// Sites that they are of; 0 and 1: it is one site's history.
    pub sites: u64,
    /// Bytes of the blocks that are left, by the interval of the recording in which they were allocated.
    pub left_ages: [u64; AGES],
    /// Marks: when, and their labels.
    pub marks: &'a [(u64, &'a str)],
    /// When the process began to end in an orderly way, by [`exit_ns`]: what it freed since then it freed because it ended.
    pub exit_ns: Option<u64>,
    /// Events are missing, frees perhaps: what seems to grow may not.
    pub misses_events: bool,
}

/// Fewest moments with something live that a judgement on growth needs.
const FEWEST: usize = 8;
/// Fewest blocks of which none was freed that are worth a word.
const MANY_KEPT: u64 = 100;
/// What is freed in this last part of the recording may be freed because the program ends.
const EXIT: f64 = 0.03;
/// A program that allocates nothing more ends, however long that takes, up to this part.
const SLOW_EXIT: f64 = 0.2;

/// When the process began to end, nanoseconds; `None` unless it ended in an orderly way. What frees at the end takes time,
/// and a busy machine makes it longer; but it allocates little.
#[must_use]
pub fn exit_ns(trace: &Trace) -> Option<u64> {
    let last = trace.alloc_count().checked_sub(1).map(|row| trace.born_ns(row));
    matches!(trace.end(), End::Exit).then(|| exit_of(trace.duration_ns(), last.unwrap_or(0)))
}

/// The same of a recording that is so long, and whose last allocation was then, nanoseconds.
fn exit_of(duration_ns: u64, last_alloc_ns: u64) -> u64 {
    let duration = duration_ns as f64;
    last_alloc_ns.clamp((duration * (1.0 - SLOW_EXIT)) as u64, (duration * (1.0 - EXIT)) as u64)
}

/// Judges a site.
#[must_use]
pub fn judge(history: &History<'_>) -> Verdict {
    let since = history.curve.iter().position(|&(_, bytes)| bytes > 0);
    let mut active = since.map_or(&[][..], |at| &history.curve[at..]);
    if let Some(verdict) = one_time(history, active) {
        return verdict;
    }
    let freed_at_exit = history.exit_ns.is_some_and(|exit_ns| cut_exit(exit_ns, &mut active));
    let mut verdict = if active.len() < FEWEST {
        let why = match (active.len(), history.curve.len()) {
            (0, all) => format!("nothing was live at any of {all} moments"),
            (some, all) => format!("something was live at {some} of {all} moments only"),
        };
        verdict(VerdictKind::Unclear, Shape::Unclear, 0.0, why)
    } else {
        judge_curve(history, active)
    };
    if history.misses_events && verdict.kind == VerdictKind::Growing {
        verdict.kind = VerdictKind::Unclear;
        verdict.why = format!("events are missing, and frees may be among them: {}", verdict.why);
        return verdict;
    }
    if never_freed(history, &verdict) {
        verdict.never_freed = true;
        let until = history.left_allocated_ns.map_or(0, |left| left.1);
        let end = if has_stopped(history, until) { "growth stopped at" } else { "some were added until" };
        verdict.why = format!(
            "none of {} blocks was ever freed; {end} {}: {}",
            count(history.allocated_freed.0),
            duration(until),
            verdict.why
        );
    }
    if freed_at_exit && history.left_count == 0 {
        verdict.freed_at_exit = true;
        verdict.why.push_str("; freed only when the program ended");
    } else if freed_at_exit {
        verdict.why.push_str("; most of it was freed when the program ended");
    }
    verdict
}

/// Growth that has stopped without a free. A table that is filled once looks like this, and so does a leak whose requests
/// have stopped; a cache does not, because it frees.
fn never_freed(history: &History<'_>, verdict: &Verdict) -> bool {
    let (allocated, freed) = history.allocated_freed;
    let Some((first, last)) = history.left_allocated_ns else { return false };
    // A few jumps are what a program sets up.
    (verdict.kind, verdict.shape) == (VerdictKind::Bounded, Shape::Bounded)
        && freed == 0
        && allocated >= MANY_KEPT
        && (last - first).saturating_mul(10) >= history.duration_ns
}

/// Whether nothing was added for the last part of the recording, before the process began to end.
fn has_stopped(history: &History<'_>, last_ns: u64) -> bool {
    const QUIET: f64 = 0.05;
    let end_ns = history.exit_ns.unwrap_or(history.duration_ns);
    end_ns.saturating_sub(last_ns) as f64 >= QUIET * history.duration_ns as f64
}

fn one_time(history: &History<'_>, active: &[(u64, i64)]) -> Option<Verdict> {
    let (first, last) = history.left_allocated_ns?;
    // Something was live before: then what is left is the last of a history, such as a vector that realloc grew.
    let spacing = history.duration_ns / history.curve.len().max(1) as u64;
    let has_past = active.first().is_some_and(|&(t, _)| t.saturating_add(spacing) < first);
    if last - first > history.duration_ns / 100 || has_past || !is_flat_after(active, last) {
        return None;
    }
    let are = if history.left_count == 1 { "is" } else { "are" };
    let blocks = format!("{} {are}", plural(history.left_count, "block"));
    let when = if first == last {
        format!("at {}", duration(first))
    } else {
        format!("between {} and {}, the last", duration(first), duration(last))
    };
    let since = duration(history.duration_ns - last);
    let why = format!("{blocks} left, allocated {when}, {since} before the end");
    let quiet = (history.duration_ns - last) as f64 / history.duration_ns.max(1) as f64;
    Some(verdict(VerdictKind::OneTime, Shape::OneTime, 0.5 + quiet / 2.0, why))
}

fn is_flat_after(active: &[(u64, i64)], last_ns: u64) -> bool {
    let mut after = active.iter().filter(|&&(t, _)| t > last_ns).map(|&(_, bytes)| bytes);
    let Some(first) = after.next() else { return true };
    after.all(|bytes| bytes == first)
}

/// Leaves the end out if most of what was live went away there.
fn cut_exit(exit_ns: u64, active: &mut &[(u64, i64)]) -> bool {
    let before = active.partition_point(|&(t, _)| t <= exit_ns);
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

fn judge_curve(history: &History<'_>, active: &[(u64, i64)]) -> Verdict {
    if let Some(verdict) = constant(history, active) {
        return verdict;
    }
    let outline = outline(active);
    leaking_below(history, active, &outline, true)
        .or_else(|| stepwise(history, active))
        .or_else(|| growing(history, &outline))
        .or_else(|| leaking_below(history, active, &outline, false))
        .or_else(|| bounded(history, active, &outline))
        .unwrap_or_else(|| unclear(history, &outline))
}
