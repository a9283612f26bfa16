//! Blocks that live at the end, by allocating backtrace, with a verdict on each site's history.

use std::collections::HashMap;

use regex::Regex;

use super::amounts::{Key, Question};
use super::filter::{Filter, Selection};
use super::verdict::{History, judge};
use super::window::Window;
use super::{Result, site_handle, stacks, trend};
use crate::api::leaks::{LeakSite, Leaks, Verdict};
use crate::api::{Amount, Frame, Metric};
use crate::trace::symbols::Symbols;
use crate::trace::{Cancel, Trace};

/// What is asked.
#[derive(Debug, Clone, Default)]
pub struct Params {
    /// Blocks born in this window.
    pub window: Window,
    /// Of what.
    pub filter: Filter,
    /// Sites with a function, source file or module that matches one of these are added up apart.
    pub suppress: Vec<Regex>,
    /// Most sites in the answer; `None`: all.
    pub limit: Option<usize>,
}

/// Moments at which live bytes are looked at for a verdict.
pub const MOMENTS: usize = 64;

/// Lists leaks, largest first.
///
/// # Errors
/// When a parameter does not fit the recording, or cancelled.
pub fn run(trace: &Trace, symbols: &dyn Symbols, params: &Params, cancel: &Cancel) -> Result<Leaks> {
    let window = params.window.resolve(trace)?;
    let selection = params.filter.select(trace, symbols, cancel)?;
    let question = Question { trace, selection: &selection, key: Key::Site, cancel };
    let sums = question.metric(Metric::Leaked, &window)?;
    let mut sites: Vec<(u32, Amount)> =
        (0..).zip(sums).filter(|(_, sum)| sum.count > 0).map(|(site, sum)| (site, sum.amount())).collect();
    sites.sort_by_key(|&(site, amount)| (std::cmp::Reverse((amount.bytes, amount.count)), site));
    let (mut leaked, mut suppressed) = (Amount::default(), Amount::default());
    if !params.suppress.is_empty() {
        sites.retain(|&(site, amount)| {
            let frames = stacks::frames(trace, symbols, trace.site_node(site).unwrap_or(0));
            let hit = frames.iter().any(|frame| matches(&params.suppress, frame));
            if hit {
                suppressed.bytes += amount.bytes;
                suppressed.count += amount.count;
            }
            !hit
        });
    }
    for (_, amount) in &sites {
        leaked.bytes += amount.bytes;
        leaked.count += amount.count;
    }
    let total_sites = sites.len() as u64;
    sites.truncate(params.limit.unwrap_or(usize::MAX));
    let span = window.span;
    let born = born_range(trace, &selection, &sites, span.from.births, span.to.births);
    let ids: Vec<u32> = sites.iter().map(|s| s.0).collect();
    let verdicts = verdicts(trace, &selection, &ids, &born, cancel)?;
    let sites = sites
        .into_iter()
        .zip(verdicts)
        .map(|((site, amount), verdict)| {
            let (first_ns, last_ns) = born.get(&site).map_or((0, 0), |b| (b.first_ns, b.last_ns));
            let stack = stacks::frames(trace, symbols, trace.site_node(site).unwrap_or(0));
            let (bytes, count) = (amount.bytes, amount.count);
            LeakSite { id: site_handle(site), bytes, count, first_ns, last_ns, verdict, stack }
        })
        .collect();
    let schema = "heaptrace.leaks/1".into();
    Ok(Leaks { schema, leaked, suppressed, total_sites, sites, exactness: trace.exactness() })
}

fn matches(suppress: &[Regex], frame: &Frame) -> bool {
    let texts = [&frame.function, &frame.file, &frame.module];
    suppress.iter().any(|re| texts.iter().any(|t| t.as_ref().is_some_and(|t| re.is_match(t))))
}

/// Blocks of a site that are left.
#[derive(Debug, Clone, Copy, Default)]
pub struct Left {
    /// Birth of the first.
    pub first_ns: u64,
    /// Birth of the last.
    pub last_ns: u64,
    /// How many.
    pub count: u64,
}

/// When the blocks that are left of each site were born, among births `from..to`.
fn born_range(trace: &Trace, selection: &Selection, sites: &[(u32, Amount)], from: u64, to: u64) -> HashMap<u32, Left> {
    let mut rows: HashMap<u32, Option<(u64, u64, u64)>> = sites.iter().map(|s| (s.0, None)).collect();
    let test = selection.rows(trace);
    for &row in trace.leaked().rows_among(from, to) {
        let row = u64::from(row);
        if let Some(range) = rows.get_mut(&trace.site_amount(row).0)
            && test.passes(row)
        {
            *range = Some(range.map_or((row, row, 1), |(first, _, count)| (first, row, count + 1)));
        }
    }
    let left = |(first, last, count)| Left { first_ns: trace.born_ns(first), last_ns: trace.born_ns(last), count };
    rows.into_iter().filter_map(|(site, range)| Some((site, left(range?)))).collect()
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
    let everything = Window::default().resolve(trace)?;
    let moments = trend::moments(trace, &everything, MOMENTS);
    let places: Vec<_> = moments.iter().map(|m| m.1).collect();
    let curves = trend::live_at(trace, selection, sites, &places, cancel)?;
    let judged = sites.iter().zip(curves).map(|(site, curve)| {
        let curve: Vec<(u64, i64)> = moments.iter().zip(curve).map(|(m, live)| (m.0, live.bytes)).collect();
        let left = left.get(site);
        judge(&History {
            duration_ns: trace.duration_ns(),
            curve: &curve,
            left_born_ns: left.map(|l| (l.first_ns, l.last_ns)),
            left_count: left.map_or(0, |l| l.count),
        })
    });
    Ok(judged.collect())
}

/// What is left of one site at the end of the recording.
#[must_use]
pub fn left_of(trace: &Trace, selection: &Selection, site: u32) -> HashMap<u32, Left> {
    born_range(trace, selection, &[(site, Amount::default())], 0, trace.birth_count())
}
