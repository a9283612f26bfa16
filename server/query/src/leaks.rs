//! Blocks that live at the end, by allocating backtrace, with a verdict on each site's history.

mod by_function;
mod freed_late;
mod site_verdicts;
mod still_mapped;

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

use super::amounts::{SumKey, SumQuery, ranges};
use super::filter::{Filter, Selection};
use super::suppress::{self, SuppressedStacks, Suppression};
use super::trend::group_of_origins;
use super::verdict::AGES;
use super::window::Window;
use super::{Result, site_handle, stacks};
use freed_late::FreedLate;
pub use site_verdicts::{are_worth_keeping, growing, keep, verdicts};
use tracehound_api::info::End;
use tracehound_api::leaks::{LeakSite, Leaks, SuppressedSite, UsedSuppression};
use tracehound_api::{Amount, Metric};
use tracehound_index::symbols::RecordingSymbols;
use tracehound_index::{Cancel, Span, Trace};

/// Parameters of the query.
#[derive(Debug, Clone, Default)]
pub struct LeaksParams {
    /// Blocks allocated in this window.
    pub window: Window,
    /// Which blocks count.
    pub filter: Filter,
    /// Sites with a function, source file or module that matches one of these are added up apart.
    pub suppress: Vec<Suppression>,
    /// List the sites that were suppressed.
    pub show_suppressed: bool,
    /// Most sites in the answer; `None`: all.
    pub limit: Option<usize>,
    /// Most functions in the answer; 0: they are not looked for.
    pub functions: usize,
}

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
    sites.sort_unstable_by_key(|&(site, amount)| (std::cmp::Reverse((amount.bytes, amount.count)), site));
    let all = sites.len();
    let (mut leaked, mut suppressed) = (Amount::default(), Amount::default());
    let mut used: Vec<Option<UsedSuppression>> = vec![None; params.suppress.len()];
    let mut suppressed_sites = Vec::new();
    if !params.suppress.is_empty() {
        let mut stacks_hit = SuppressedStacks::new(trace, symbols, &params.suppress);
        let most = suppress::most_by_design(trace);
        sites.retain(|&(site, amount)| {
            let node = trace.site_node(site).unwrap_or(0);
            let covers = |hit: usize| params.suppress.get(hit).is_some_and(|by| by.is_about(amount.count, most));
            let hit = stacks_hit.hit(node).and_then(|first| {
                if covers(first) {
                    return Some(first);
                }
                // Another one may cover it all the same.
                let stack = stacks::frames(trace, symbols, node);
                params.suppress.iter().position(|by| by.is_about(amount.count, most) && by.matches(&stack))
            });
            let Some(hit) = hit else { return true };
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
                let stack = stacks::frames(trace, symbols, node);
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
    let span = window.span;
    let ids: Vec<u32> = sites.iter().take(params.limit.unwrap_or(usize::MAX)).map(|s| s.0).collect();
    let is_whole = params.window == Window::default() && params.filter.is_empty();
    // Found once for the snapshot, before several threads ask for it.
    let _ = trace.leaked();
    let by_function = || match params.functions {
        0 => Ok((Vec::new(), 0)),
        most => by_function::run(&question, symbols, &sites, span, most),
    };
    let by_site = || -> Result<_> {
        let left = left_of(trace, &selection, &ids, span);
        let kept = if is_whole { site_verdicts::kept(trace, &ids, all, cancel)? } else { None };
        let verdicts = match kept {
            Some(kept) => kept,
            None => verdicts(trace, &selection, &ids, &left, cancel)?,
        };
        Ok((left, verdicts, late_of(trace, params, &selection, cancel)?))
    };
    // A part of each runs on one thread alone. No names are looked up in the second.
    let (by_function, by_site) = rayon::join(by_function, by_site);
    let ((functions, total_functions), (left, verdicts, late)) = (by_function?, by_site?);
    sites.truncate(ids.len());
    let sites = sites
        .into_par_iter()
        .zip(left)
        .zip(verdicts)
        .map(|(((site, amount), left), verdict)| {
            let stack = stacks::frames(trace, symbols, trace.site_node(site).unwrap_or(0));
            let (bytes, count) = (amount.bytes, amount.count);
            let (first_ns, last_ns) = (left.first_ns, left.last_ns);
            LeakSite { id: site_handle(site), bytes, count, first_ns, last_ns, verdict, stack }
        })
        .collect();
    let schema = "heaptrace.leaks/1".into();
    let freed_at_exit = freed_at_exit(trace, symbols, params, &late);
    let still_mapped =
        if is_whole { still_mapped::find(trace, symbols, &params.suppress, cancel)? } else { Vec::new() };
    Ok(Leaks {
        schema,
        leaked,
        suppressed,
        suppressions: used.into_iter().flatten().collect(),
        suppressed_sites,
        total_sites,
        sites,
        functions,
        total_functions,
        freed_at_exit,
        still_mapped,
        exactness: trace.exactness(),
    })
}

/// Leaked blocks of a site.
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

impl Left {
    /// Adds what was left of later rows.
    fn join(&mut self, later: &Self) {
        if later.count > 0 {
            self.first_ns = if self.count == 0 { later.first_ns } else { self.first_ns };
            self.last_ns = later.last_ns;
        }
        self.count += later.count;
        for (bytes, more) in self.ages.iter_mut().zip(later.ages) {
            *bytes += more;
        }
    }
}

/// Marks sites that are in none of the groups.
const NO_GROUP: u32 = u32::MAX;
/// So many groups are too many to be in memory several times.
const MANY_GROUPS: usize = 1 << 14;

/// When the blocks that are left of groups of sites were allocated, in a span. `group_of`: by site. A group of which
/// nothing is left has no blocks.
fn left_by_group(trace: &Trace, selection: &Selection, group_of: &[u32], groups: usize, span: Span) -> Vec<Left> {
    // Rows first; their times are looked up at the end.
    let test = selection.rows(trace);
    // Rows are in the order of allocation: the range is known without looking up the time of each.
    let border = |i: usize| (u128::from(trace.duration_ns()) * i as u128 / AGES as u128) as u64;
    let borders: Vec<u64> = (1..AGES).map(|range| trace.position_before(border(range)).allocs).collect();
    let group_of = group_of_origins(trace, |site| group_of.get(site as usize).copied());
    let origins = &trace.columns().alloc_origin;
    let find = |rows: Range<u64>| {
        let mut found = vec![Left::default(); groups];
        let mut range = 0;
        for row in trace.leaked().rows_among(rows.start, rows.end) {
            while borders.get(range).is_some_and(|&border| row >= border) {
                range += 1;
            }
            let origin = origins.get(row as usize).copied().unwrap_or(u32::MAX);
            let group = group_of.get(origin as usize).copied().unwrap_or(NO_GROUP);
            if let Some(left) = found.get_mut(group as usize)
                && test.passes(row)
            {
                if left.count == 0 {
                    left.first_ns = row;
                }
                left.last_ns = row;
                left.count += 1;
                left.ages[range] += trace.size_of(row);
            }
        }
        found
    };
    let (from, to) = (span.from.allocs, span.to.allocs);
    // Every part has all groups.
    let parts = if groups > MANY_GROUPS { vec![Range { start: from, end: to }] } else { ranges(from, to) };
    let parts: Vec<Vec<Left>> = parts.into_par_iter().map(find).collect();
    let mut found = vec![Left::default(); groups];
    for part in parts {
        found.iter_mut().zip(&part).for_each(|(left, part)| left.join(part));
    }
    for left in found.iter_mut().filter(|left| left.count > 0) {
        left.first_ns = trace.born_ns(left.first_ns);
        left.last_ns = trace.born_ns(left.last_ns);
    }
    found
}

/// When the blocks that are left of each of some sites were allocated, in a span.
#[must_use]
pub fn left_of(trace: &Trace, selection: &Selection, sites: &[u32], span: Span) -> Vec<Left> {
    let mut group_of = vec![NO_GROUP; trace.site_count() as usize];
    for (group, &site) in (0..).zip(sites) {
        if let Some(to) = group_of.get_mut(site as usize) {
            *to = group;
        }
    }
    left_by_group(trace, selection, &group_of, sites.len(), span)
}

/// Sites that grew until the program ended and were freed then, largest first: they look clean at the end.
fn late_of(trace: &Trace, params: &LeaksParams, selection: &Selection, cancel: &Cancel) -> Result<Arc<Vec<FreedLate>>> {
    if trace.end() != End::Exit || params.window != Window::default() {
        return Ok(Arc::default());
    }
    if params.filter.is_empty() {
        freed_late::kept(trace, cancel)
    } else {
        Ok(Arc::new(freed_late::find(trace, selection, cancel)?))
    }
}

/// These, with their names; without those that are suppressed.
fn freed_at_exit(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    params: &LeaksParams,
    late: &[FreedLate],
) -> Vec<LeakSite> {
    let most = suppress::most_by_design(trace);
    let named = |site: &FreedLate| {
        let FreedLate { site, bytes, count, first_ns, last_ns, ref verdict } = *site;
        let stack = stacks::frames(trace, symbols, trace.site_node(site).unwrap_or(0));
        let hidden = params.suppress.iter().any(|by| by.is_about(count, most) && by.matches(&stack));
        let id = site_handle(site);
        (!hidden).then(|| LeakSite { id, bytes, count, first_ns, last_ns, verdict: verdict.clone(), stack })
    };
    late.iter().filter_map(named).collect()
}
