//! Blocks that live at the end, by allocating backtrace, with a verdict on each site's history.

use std::collections::HashMap;

use super::amounts::{Signed, SumKey, SumQuery};
use super::filter::{Filter, Selection};
use super::suppress::Suppression;
use super::verdict::{AGES, History, judge};
use super::window::{Resolved, Window};
use super::{Result, site_handle, stacks, trend};
use tracehound_api::info::End;
use tracehound_api::leaks::{LeakSite, Leaks, SuppressedSite, UsedSuppression, Verdict, VerdictKind};
use tracehound_api::{Amount, Metric};
use tracehound_index::symbols::RecordingSymbols;
use tracehound_index::{Cancel, Trace};

/// What is asked.
#[derive(Debug, Clone, Default)]
pub struct LeaksParams {
    /// Blocks allocated in this window.
    pub window: Window,
    /// Of what.
    pub filter: Filter,
    /// Sites with a function, source file or module that matches one of these are added up apart.
    pub suppress: Vec<Suppression>,
    /// List the sites that were suppressed.
    pub show_suppressed: bool,
    /// Most sites in the answer; `None`: all.
    pub limit: Option<usize>,
}

/// Moments at which live bytes are looked at for a verdict.
const MOMENTS: usize = 256;
/// The same for very many sites.
const FEWER_MOMENTS: usize = 64;
/// Sites that are very many.
const MANY_SITES: usize = 1 << 14;

/// Lists leaks, largest first.
///
/// # Errors
/// When a parameter does not fit the recording, or cancelled.
pub fn run(trace: &Trace, symbols: &dyn RecordingSymbols, params: &LeaksParams, cancel: &Cancel) -> Result<Leaks> {
    let selection = params.filter.select(trace, symbols, cancel)?;
    let window = params.window.resolve(trace, &selection, cancel)?;
    let question = SumQuery { trace, selection: &selection, key: SumKey::Site, cancel };
    let sums = question.metric(Metric::Leaked, &window)?;
    let mut sites: Vec<(u32, Amount)> =
        (0..).zip(sums).filter(|(_, sum)| sum.count > 0).map(|(site, sum)| (site, sum.amount())).collect();
    sites.sort_by_key(|&(site, amount)| (std::cmp::Reverse((amount.bytes, amount.count)), site));
    let (mut leaked, mut suppressed) = (Amount::default(), Amount::default());
    let mut used: Vec<Option<UsedSuppression>> = vec![None; params.suppress.len()];
    let mut suppressed_sites = Vec::new();
    if !params.suppress.is_empty() {
        sites.retain(|&(site, amount)| {
            let stack = stacks::frames(trace, symbols, trace.site_node(site).unwrap_or(0));
            let Some(hit) = params.suppress.iter().position(|suppression| suppression.matches(&stack)) else {
                return true;
            };
            suppressed.bytes += amount.bytes;
            suppressed.count += amount.count;
            let by = &params.suppress[hit];
            let entry = used[hit].get_or_insert_with(|| UsedSuppression {
                pattern: by.pattern.clone(),
                origin: by.origin.to_string(),
                bytes: 0,
                count: 0,
                sites: 0,
            });
            entry.bytes += amount.bytes;
            entry.count += amount.count;
            entry.sites += 1;
            if params.show_suppressed {
                let (id, pattern) = (site_handle(site), by.pattern.clone());
                let (bytes, count) = (amount.bytes, amount.count);
                suppressed_sites.push(SuppressedSite { id, bytes, count, pattern, stack });
            }
            false
        });
    }
    for (_, amount) in &sites {
        leaked.bytes += amount.bytes;
        leaked.count += amount.count;
    }
    let total_sites = sites.len() as u64;
    sites.truncate(params.limit.unwrap_or(usize::MAX));
    let span = window.span;
    let allocated = allocated_range(trace, &selection, &sites, span.from.allocs, span.to.allocs);
    let ids: Vec<u32> = sites.iter().map(|s| s.0).collect();
    let verdicts = verdicts(trace, &selection, &ids, &allocated, cancel)?;
    let sites = sites
        .into_iter()
        .zip(verdicts)
        .map(|((site, amount), verdict)| {
            let (first_ns, last_ns) = allocated.get(&site).map_or((0, 0), |b| (b.first_ns, b.last_ns));
            let stack = stacks::frames(trace, symbols, trace.site_node(site).unwrap_or(0));
            let (bytes, count) = (amount.bytes, amount.count);
            LeakSite { id: site_handle(site), bytes, count, first_ns, last_ns, verdict, stack }
        })
        .collect();
    let schema = "heaptrace.leaks/1".into();
    let freed_at_exit = freed_at_exit(trace, symbols, params, &selection, cancel)?;
    Ok(Leaks {
        schema,
        leaked,
        suppressed,
        suppressions: used.into_iter().flatten().collect(),
        suppressed_sites,
        total_sites,
        sites,
        freed_at_exit,
        exactness: trace.exactness(),
    })
}

/// Blocks of a site that are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Left {
    /// Allocation of the first.
    pub first_ns: u64,
    /// Allocation of the last.
    pub last_ns: u64,
    /// How many.
    pub count: u64,
    /// Their bytes, by the interval of the recording in which they were allocated.
    pub ages: [u64; AGES],
}

/// When the blocks that are left of each site were allocated, among allocations `from..to`.
fn allocated_range(
    trace: &Trace,
    selection: &Selection,
    sites: &[(u32, Amount)],
    from: u64,
    to: u64,
) -> HashMap<u32, Left> {
    let mut found: HashMap<u32, Option<Left>> = sites.iter().map(|s| (s.0, None)).collect();
    let test = selection.rows(trace);
    // Rows are in the order of allocation: the range is known without looking up the time of each.
    let border = |i: usize| (u128::from(trace.duration_ns()) * i as u128 / AGES as u128) as u64;
    let mut range = 0;
    let mut next = trace.position_before(border(1)).allocs;
    for row in trace.leaked().rows_among(from, to) {
        while row >= next && range + 1 < AGES {
            range += 1;
            next = trace.position_before(border(range + 1)).allocs;
        }
        let (site, amount) = trace.site_amount(row);
        if let Some(left) = found.get_mut(&site)
            && test.passes(row)
        {
            // Rows first; their times are looked up at the end.
            let left = left.get_or_insert(Left { first_ns: row, ..Left::default() });
            left.last_ns = row;
            left.count += 1;
            left.ages[range] += amount.bytes;
        }
    }
    let timed =
        |left: Left| Left { first_ns: trace.born_ns(left.first_ns), last_ns: trace.born_ns(left.last_ns), ..left };
    found.into_iter().filter_map(|(site, left)| Some((site, timed(left?)))).collect()
}

/// Verdicts on sites over the whole recording.
///
/// # Errors
/// When cancelled.
pub fn verdicts(
    trace: &Trace,
    selection: &Selection,
    sites: &[u32],
    left: &HashMap<u32, Left>,
    cancel: &Cancel,
) -> Result<Vec<Verdict>> {
    let everything = Resolved::whole(trace);
    let count = if sites.len() > MANY_SITES { FEWER_MOMENTS } else { MOMENTS };
    let moments = trend::moments(trace, &everything, count);
    let places: Vec<_> = moments.iter().map(|m| m.1).collect();
    let curves = trend::live_at(trace, selection, sites, &places, cancel)?;
    let question = SumQuery { trace, selection, key: SumKey::Site, cancel };
    let allocated = question.metric(Metric::Allocated, &everything)?;
    let freed = question.metric(Metric::Freed, &everything)?;
    let marks: Vec<(u64, &str)> = trace.marks().iter().map(|mark| (mark.t_ns, mark.label.as_str())).collect();
    let blocks = |sums: &[Signed], site: u32| sums.get(site as usize).map_or(0, |sum| sum.amount().count);
    let judged = sites.iter().zip(curves).map(|(&site, curve)| {
        let curve: Vec<(u64, i64)> = moments.iter().zip(curve).map(|(m, live)| (m.0, live.bytes)).collect();
        let left = left.get(&site);
        judge(&History {
            duration_ns: trace.duration_ns(),
            curve: &curve,
            allocated_freed: (blocks(&allocated, site), blocks(&freed, site)),
            left_allocated_ns: left.map(|l| (l.first_ns, l.last_ns)),
            left_count: left.map_or(0, |l| l.count),
            left_ages: left.map_or([0; AGES], |l| l.ages),
            marks: &marks,
            ended: matches!(trace.end(), End::Exit),
        })
    });
    Ok(judged.collect())
}

/// Sites that grew until the program ended and were freed then, largest first: they look clean at the end.
fn freed_at_exit(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    params: &LeaksParams,
    selection: &Selection,
    cancel: &Cancel,
) -> Result<Vec<LeakSite>> {
    const MOST: usize = 50;
    if trace.end() != End::Exit || params.window != Window::default() {
        return Ok(Vec::new());
    }
    // What was there shortly before the end and is not there at the end.
    let duration = trace.duration_ns();
    let before = trace.position_before((duration as f64 * BEFORE_EXIT) as u64);
    let question = SumQuery { trace, selection, key: SumKey::Site, cancel };
    let held = question.live_at(before)?;
    let at_end = question.live_at(trace.end_position())?;
    // What grows has more and more on the way there; a verdict on each site would look at all events again.
    let part = |part: f64| question.live_at(trace.position_before((duration as f64 * part) as u64));
    let (early, middle) = (part(0.3)?, part(0.6)?);
    let rises = |site: usize, held: &Signed| {
        let at = |sums: &[Signed]| sums.get(site).map_or(0, |sum| sum.bytes) as f64;
        at(&middle) > at(&early) && held.bytes as f64 > at(&middle) * 1.1
    };
    let mut sites: Vec<(u32, Amount)> = (0..)
        .zip(held.iter().zip(at_end))
        .filter(|(site, (held, end))| held.bytes > 0 && end.count == 0 && rises(*site as usize, held))
        .map(|(site, (held, _))| (site, held.amount()))
        .collect();
    sites.sort_by_key(|&(site, amount)| (std::cmp::Reverse((amount.bytes, amount.count)), site));
    sites.truncate(MOST);
    let ids: Vec<u32> = sites.iter().map(|s| s.0).collect();
    let verdicts = verdicts(trace, selection, &ids, &HashMap::new(), cancel)?;
    let mut found = Vec::new();
    for ((site, amount), verdict) in sites.into_iter().zip(verdicts) {
        let stack = stacks::frames(trace, symbols, trace.site_node(site).unwrap_or(0));
        let hidden = params.suppress.iter().any(|suppression| suppression.matches(&stack));
        if verdict.kind == VerdictKind::Growing && verdict.freed_at_exit && !hidden {
            let (bytes, count) = (amount.bytes, amount.count);
            let id = site_handle(site);
            let of_site = |row: &u64| trace.site_amount(*row).0 == site;
            let mut rows = 0..trace.alloc_count();
            let (first, last) = (rows.clone().find(of_site), rows.rfind(of_site));
            let (first_ns, last_ns) =
                (first.map_or(0, |row| trace.born_ns(row)), last.map_or(0, |row| trace.born_ns(row)));
            found.push(LeakSite { id, bytes, count, first_ns, last_ns, verdict, stack });
        }
    }
    Ok(found)
}

/// Part of the recording that is over when the program has not begun to end.
const BEFORE_EXIT: f64 = 0.97;

/// What is left of one site at the end of the recording.
#[must_use]
pub fn left_of(trace: &Trace, selection: &Selection, site: u32) -> HashMap<u32, Left> {
    allocated_range(trace, selection, &[(site, Amount::default())], 0, trace.alloc_count())
}
