//! Two moments of a recording, or two recordings, by backtrace: what is live on each side, largest change first.

use std::collections::HashMap;

use super::across::Across;
use super::amounts::{Signed, SumKey, SumQuery};
use super::filter::Filter;
use super::stacks;
use super::window::Window;
use super::{QueryError, Result};
use tracehound_api::diff::{Diff, DiffRow};
use tracehound_api::{Amount, Exactness, Frame, Metric, Unit};
use tracehound_index::symbols::RecordingSymbols;
use tracehound_index::{Cancel, Position, Trace};

/// One side.
#[derive(Clone, Copy)]
pub struct Side<'a> {
    /// The recording.
    pub trace: &'a Trace,
    /// Its symbols.
    pub symbols: &'a dyn RecordingSymbols,
    /// What is measured in this window; for `live` the moment is `at`, else the window's end.
    pub window: &'a Window,
    /// The side in words, for the document.
    pub label: &'a str,
}

/// Parameters of the query.
#[derive(Debug, Clone, Default)]
pub struct DiffParams {
    /// What is measured on both sides.
    pub metric: Metric,
    /// What the order is about.
    pub unit: Unit,
    /// Which blocks count.
    pub filter: Filter,
    /// Rows to skip.
    pub offset: usize,
    /// Most rows in the answer; `None`: all.
    pub limit: Option<usize>,
    /// Scale the first side so that both sides have the same total: what is left is a change of shares.
    pub normalize: bool,
}

/// Identity of a backtrace in two recordings: addresses and line numbers are not part of it. See [`super::across`].
pub type BacktraceIdentity = Vec<(Option<String>, Option<String>)>;

#[derive(Debug, Default)]
struct Pair {
    before: Amount,
    after: Amount,
    survived: Option<Amount>,
    /// Of one recording: the frames are those of this site.
    site: Option<u32>,
    stack: Vec<Frame>,
}

/// Compares two sides.
///
/// # Errors
/// When a parameter does not fit a recording, or cancelled.
pub fn run(before: Side<'_>, after: Side<'_>, params: &DiffParams, cancel: &Cancel) -> Result<Diff> {
    let same = std::ptr::eq(before.trace, after.trace);
    let mut pairs =
        if same { by_site(before, after, params, cancel)? } else { by_path(before, after, params, cancel)? };
    let mut scaled_by = None;
    if params.normalize {
        scaled_by = scale(&mut pairs, params.unit);
    }
    let of = |amount: &Amount| match params.unit {
        Unit::Bytes => amount.bytes as i128,
        Unit::Count => i128::from(amount.count),
    };
    let change = |pair: &Pair| (of(&pair.after) - of(&pair.before)).abs();
    pairs.retain(|pair| pair.before != Amount::default() || pair.after != Amount::default());
    pairs.sort_by_key(|pair| std::cmp::Reverse((change(pair), of(&pair.after))));
    let total = |side: fn(&Pair) -> Amount| {
        pairs.iter().map(side).fold(Amount::default(), |sum, amount| Amount {
            bytes: sum.bytes + amount.bytes,
            count: sum.count + amount.count,
        })
    };
    let (total_before, total_after) = (total(|p| p.before), total(|p| p.after));
    let total_rows = pairs.len() as u64;
    let row = |pair: Pair| {
        // Of all sites only those that are shown need their frames.
        let of_site = |site| stacks::frames(before.trace, before.symbols, before.trace.site_node(site).unwrap_or(0));
        let stack = pair.site.map_or(pair.stack, of_site);
        DiffRow { before: pair.before, after: pair.after, survived: pair.survived, stack }
    };
    let limit = params.limit.unwrap_or(usize::MAX);
    Ok(Diff {
        schema: "heaptrace.diff/1".into(),
        unit: params.unit,
        scaled_by,
        before: before.label.to_owned(),
        after: after.label.to_owned(),
        total_before,
        total_after,
        total_rows,
        rows: pairs.into_iter().skip(params.offset).take(limit).map(row).collect(),
        exactness: both(before.trace.exactness(), after.trace.exactness(), same),
    })
}

/// Makes the totals of both sides the same by scaling the first; the factor, or nothing if a side is empty.
fn scale(pairs: &mut [Pair], unit: Unit) -> Option<f64> {
    let of = |amount: &Amount| match unit {
        Unit::Bytes => amount.bytes as f64,
        Unit::Count => amount.count as f64,
    };
    let before: f64 = pairs.iter().map(|pair| of(&pair.before)).sum();
    let after: f64 = pairs.iter().map(|pair| of(&pair.after)).sum();
    if before <= 0.0 || after <= 0.0 {
        return None;
    }
    let factor = after / before;
    for pair in pairs {
        pair.before.bytes = (pair.before.bytes as f64 * factor).round() as u64;
        pair.before.count = (pair.before.count as f64 * factor).round() as u64;
    }
    Some(factor)
}

/// Exactness of a result that depends on two recordings, or on one twice.
pub(super) fn both(a: Exactness, b: Exactness, same: bool) -> Exactness {
    if same {
        return b;
    }
    Exactness {
        events: a.events + b.events,
        lost_events: a.lost_events + b.lost_events,
        damaged_blocks: a.damaged_blocks + b.damaged_blocks,
        watermark_ns: a.watermark_ns.min(b.watermark_ns),
        complete: a.complete && b.complete,
    }
}

/// Sums of a side by its sites, and the place of the moment if the metric has one.
///
/// # Errors
/// When a parameter does not fit the recording, or cancelled.
pub fn site_sums(side: Side<'_>, params: &DiffParams, cancel: &Cancel) -> Result<(Vec<Signed>, Option<Position>)> {
    if params.metric == Metric::Grown {
        return Err(QueryError::bad("metric", "`grown` is a difference already; compare `live` instead"));
    }
    let selection = params.filter.select(side.trace, side.symbols, cancel)?;
    let window = side.window.resolve(side.trace, &selection, cancel)?;
    let question = SumQuery { trace: side.trace, selection: &selection, key: SumKey::Site, cancel };
    let (sums, moment) = question.metric_at(params.metric, &window)?;
    Ok((sums, moment.map(|moment| moment.place)))
}

/// One recording: sites are the same on both sides, and the very same blocks can be found again.
fn by_site(before: Side<'_>, after: Side<'_>, params: &DiffParams, cancel: &Cancel) -> Result<Vec<Pair>> {
    let trace = before.trace;
    let (old, old_place) = site_sums(before, params, cancel)?;
    let (new, new_place) = site_sums(after, params, cancel)?;
    let survived = match (old_place, new_place) {
        (Some(a), Some(b)) => {
            // Live at both places: allocated before the earlier one, not dead at the later one.
            let (first, last) = if a.events() <= b.events() { (a, b) } else { (b, a) };
            let selection = params.filter.select(trace, before.symbols, cancel)?;
            let question = SumQuery { trace, selection: &selection, key: SumKey::Site, cancel };
            Some(question.live_since(first, last)?)
        }
        _ => None,
    };
    let pair = |site: u32| {
        let at = site as usize;
        Pair {
            before: old.get(at).map_or_else(Amount::default, Signed::amount),
            after: new.get(at).map_or_else(Amount::default, Signed::amount),
            survived: survived.as_ref().map(|s| s.get(at).map_or_else(Amount::default, Signed::amount)),
            site: Some(site),
            stack: Vec::new(),
        }
    };
    let changed = |site: &u32| {
        let at = *site as usize;
        old.get(at).is_some_and(|s| !s.is_zero()) || new.get(at).is_some_and(|s| !s.is_zero())
    };
    Ok((0..trace.site_count()).filter(changed).map(pair).collect())
}

/// Two recordings: backtraces are equal if their functions and modules are.
fn by_path(before: Side<'_>, after: Side<'_>, params: &DiffParams, cancel: &Cancel) -> Result<Vec<Pair>> {
    let mut pairs: Vec<Pair> = Vec::new();
    let mut known: HashMap<BacktraceIdentity, usize> = HashMap::new();
    let across = Across::new(&[before, after], cancel)?;
    for (at_side, side) in [before, after].into_iter().enumerate() {
        let is_after = at_side == 1;
        let (sums, _) = site_sums(side, params, cancel)?;
        for (site, sum) in (0_u32..).zip(sums).filter(|(_, sum)| !sum.is_zero()) {
            let node = side.trace.site_node(site).unwrap_or(0);
            let at = *known.entry(across.path(at_side, side, node)).or_insert_with(|| {
                pairs.push(Pair { stack: stacks::frames(side.trace, side.symbols, node), ..Pair::default() });
                pairs.len() - 1
            });
            let amount = sum.amount();
            let to = if is_after { &mut pairs[at].after } else { &mut pairs[at].before };
            to.bytes += amount.bytes;
            to.count += amount.count;
        }
    }
    Ok(pairs)
}
