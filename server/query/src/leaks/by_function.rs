//! Leaks grouped by the program's function: one leak may have several backtraces.

use std::collections::HashMap;

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::site_verdicts::MOMENTS;
use super::{NO_GROUP, left_by_group};
use crate::amounts::{Signed, SumQuery};
use crate::own_frames::{OwnFrame, OwnFrames};
use crate::verdict::{History, exit_ns, judge};
use crate::window::Resolved;
use crate::{Result, site_handle, trend};
use tracehound_api::leaks::LeakFunction;
use tracehound_api::{Amount, Frame, Metric};
use tracehound_index::Span;
use tracehound_index::symbols::{FileId, FunctionId, RecordingSymbols};

/// Points of a function's curve.
const CURVE: usize = 64;
/// Sites that a function lists.
const SITES: usize = 50;

/// What is known of one function.
#[derive(Debug, Clone, Default)]
struct Gathered {
    /// Of its largest site.
    frame: Option<OwnFrame>,
    amount: Amount,
    total_sites: u64,
    sites: Vec<u32>,
}

/// Leaking functions, largest first, and how many there are. `sites` are those that leak of what was allocated in `span`,
/// largest first.
///
/// # Errors
/// When cancelled.
pub fn run(
    question: &SumQuery<'_>,
    symbols: &dyn RecordingSymbols,
    sites: &[(u32, Amount)],
    span: Span,
    limit: usize,
) -> Result<(Vec<LeakFunction>, u64)> {
    let trace = question.trace;
    // Texts are made once for each function and file, not for each site.
    let mut known: FxHashMap<Option<(FunctionId, Option<FileId>)>, usize> = FxHashMap::default();
    let mut position: HashMap<[Option<String>; 3], usize> = HashMap::new();
    let mut found: Vec<Gathered> = Vec::new();
    let mut of_site: Vec<(u32, usize)> = Vec::new();
    // Looked up in parallel, so many at a time that what is found takes little memory.
    let own_frames = OwnFrames::new(trace, symbols);
    let look = |&(site, amount): &(u32, Amount)| (site, amount, own_frames.of_site(site));
    for (site, amount, frame) in sites.chunks(4096).flat_map(|some| some.par_iter().map(look).collect::<Vec<_>>()) {
        if of_site.len().is_multiple_of(4096) {
            question.cancel.check()?;
        }
        let ids = frame.map(|frame| frame.place());
        let at = *known.entry(ids).or_insert_with(|| {
            let mut add = || {
                found.push(Gathered { frame, ..Gathered::default() });
                found.len() - 1
            };
            let texts = match frame {
                // Its address is its name: there is no other of the same.
                Some(frame) if frame.is_nameless(symbols) => return add(),
                Some(frame) => {
                    let texts = frame.texts(trace, symbols);
                    [texts.module.clone(), Some(name(&texts)), texts.file]
                }
                None => [None, None, None],
            };
            *position.entry(texts).or_insert_with(add)
        });
        let gathered = &mut found[at];
        gathered.amount.bytes += amount.bytes;
        gathered.amount.count += amount.count;
        gathered.total_sites += 1;
        if gathered.sites.len() < SITES {
            gathered.sites.push(site);
        }
        of_site.push((site, at));
    }
    let total = found.len() as u64;
    let mut order: Vec<usize> = (0..found.len()).collect();
    order.sort_by_key(|&at| (std::cmp::Reverse((found[at].amount.bytes, found[at].amount.count)), at));
    order.truncate(limit);

    let mut group = vec![NO_GROUP; found.len()];
    for (number, &at) in (0..).zip(&order) {
        group[at] = number;
    }
    let mut group_of = vec![NO_GROUP; trace.site_count() as usize];
    for (site, at) in of_site {
        if let Some(to) = group_of.get_mut(site as usize) {
            *to = group[at];
        }
    }
    let left = left_by_group(trace, question.selection, &group_of, order.len(), span);
    let everything = Resolved::whole(trace);
    let moments = trend::moments(trace, &everything, MOMENTS);
    let places: Vec<_> = moments.iter().map(|moment| moment.1).collect();
    let curves = trend::transposed(&trend::live_by_group(question, &group_of, order.len(), &places)?, order.len());
    let blocks = |metric| -> Result<Vec<u64>> {
        let mut sums = vec![0; order.len()];
        for (sum, &group) in question.metric(metric, &everything)?.iter().zip(&group_of) {
            if let Some(to) = sums.get_mut(group as usize) {
                *to += Signed::amount(sum).count;
            }
        }
        Ok(sums)
    };
    let (allocated, freed) = (blocks(Metric::Allocated)?, blocks(Metric::Freed)?);
    let marks: Vec<(u64, &str)> = trace.marks().iter().map(|mark| (mark.t_ns, mark.label.as_str())).collect();
    let mut functions = Vec::new();
    for (number, ((at, curve), left)) in order.into_iter().zip(curves).zip(left).enumerate() {
        let Gathered { frame, amount, total_sites, sites } = std::mem::take(&mut found[at]);
        let frame = frame.map(|frame| frame.texts(trace, symbols));
        let curve: Vec<(u64, i64)> = moments.iter().zip(curve).map(|(moment, live)| (moment.0, live.bytes)).collect();
        let verdict = judge(&History {
            duration_ns: trace.duration_ns(),
            curve: &curve,
            allocated_freed: (allocated[number], freed[number]),
            left_allocated_ns: (left.count > 0).then_some((left.first_ns, left.last_ns)),
            left_count: left.count,
            sites: total_sites,
            left_ages: left.ages,
            marks: &marks,
            exit_ns: exit_ns(trace),
            misses_events: trace.misses_events(),
        });
        let step = MOMENTS / CURVE;
        functions.push(LeakFunction {
            function: frame.as_ref().map_or_else(|| "(no backtrace)".to_owned(), name),
            module: frame.as_ref().and_then(|frame| frame.module.clone()),
            file: frame.as_ref().and_then(|frame| frame.file.clone()),
            line: frame.as_ref().and_then(|frame| frame.line),
            library: frame.is_none_or(|frame| frame.library),
            bytes: amount.bytes,
            count: amount.count,
            first_ns: left.first_ns,
            last_ns: left.last_ns,
            total_sites,
            sites: sites.into_iter().map(site_handle).collect(),
            curve: curve.iter().skip(step - 1).step_by(step).map(|moment| moment.1).collect(),
            verdict,
        });
    }
    Ok((functions, total))
}

fn name(frame: &Frame) -> String {
    frame.function.clone().or_else(|| frame.offset.clone()).unwrap_or_else(|| frame.address.clone())
}
