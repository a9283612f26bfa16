//! Verdicts on sites: the histories of many in one pass, judged in parallel, and kept beside the index.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{Left, freed_late, left_of};
use crate::amounts::{Signed, SumKey, SumQuery};
use crate::filter::Selection;
use crate::verdict::{History, exit_ns, judge};
use crate::window::Resolved;
use crate::{Result, trend};
use tracehound_api::leaks::{Verdict, VerdictKind};
use tracehound_api::{Amount, Metric};
use tracehound_index::kept::KeptKind;
use tracehound_index::{Cancel, Trace};

/// Moments at which live bytes are looked at for a verdict.
pub const MOMENTS: usize = 256;
/// The same for very many sites.
const FEWER_MOMENTS: usize = 64;
/// Sites that are very many.
const MANY_SITES: usize = 1 << 14;
/// Sites times moments whose live bytes are in memory at once: 128 MiB.
const CELLS: usize = 1 << 23;
/// Verdicts on fewer sites are not kept: they take no time.
const FEW_SITES: usize = 1 << 11;
/// Largest sites whose verdicts are kept with all moments, as answers with a limit show them.
const LARGEST: usize = 10_000;
/// Version of cached verdicts: it grows when they change.
pub(super) const JUDGES: u32 = 36;
/// Verdicts on all sites that leak, as they are when all are asked about.
const VERDICTS: KeptKind = KeptKind { name: "verdicts", version: JUDGES };
/// Verdicts on the largest, if the sites are so many that it makes a difference.
const LARGEST_VERDICTS: KeptKind = KeptKind { name: "largest-verdicts", version: JUDGES };
/// How many sites grow: a few bytes, where all verdicts are megabytes.
const GROWING: KeptKind = KeptKind { name: "growing", version: JUDGES };

/// Verdicts on sites over the whole recording. `left`: of each of them.
///
/// # Errors
/// When cancelled.
pub fn verdicts(
    trace: &Trace,
    selection: &Selection,
    sites: &[u32],
    left: &[Left],
    cancel: &Cancel,
) -> Result<Vec<Verdict>> {
    if sites.is_empty() {
        return Ok(Vec::new());
    }
    let everything = Resolved::whole(trace);
    let count = if sites.len() > MANY_SITES { FEWER_MOMENTS } else { MOMENTS };
    let moments = trend::moments(trace, &everything, count);
    let places: Vec<_> = moments.iter().map(|m| m.1).collect();
    let question = SumQuery { trace, selection, key: SumKey::Site, cancel };
    let allocated = question.metric(Metric::Allocated, &everything)?;
    let freed = question.metric(Metric::Freed, &everything)?;
    let marks: Vec<(u64, &str)> = trace.marks().iter().map(|mark| (mark.t_ns, mark.label.as_str())).collect();
    let blocks = |sums: &[Signed], site: u32| sums.get(site as usize).map_or(0, |sum| sum.amount().count);
    let at_once = CELLS / count;
    let mut judged = Vec::with_capacity(sites.len());
    for (some, left) in sites.chunks(at_once).zip(left.chunks(at_once)) {
        let columns = trend::columns_at(trace, selection, some, &places, cancel)?;
        let of_site = |curve: &mut Vec<(u64, i64)>, (at, &site): (usize, &u32)| {
            if at.is_multiple_of(1024) {
                cancel.check()?;
            }
            curve.clear();
            curve.extend(moments.iter().zip(&columns).map(|(moment, column)| (moment.0, column[at].bytes)));
            let left = left.get(at).copied().unwrap_or_default();
            Ok(judge(&History {
                duration_ns: trace.duration_ns(),
                curve,
                allocated_freed: (blocks(&allocated, site), blocks(&freed, site)),
                left_allocated_ns: (left.count > 0).then_some((left.first_ns, left.last_ns)),
                left_count: left.count,
                sites: 1,
                left_ages: left.ages,
                marks: &marks,
                exit_ns: exit_ns(trace),
                misses_events: trace.misses_events(),
            }))
        };
        let verdicts: Result<Vec<Verdict>> = some.par_iter().enumerate().map_init(Vec::new, of_site).collect();
        judged.extend(verdicts?);
    }
    Ok(judged)
}

/// Verdicts on sites that leak, of the whole recording, by site.
#[derive(Debug, Serialize, Deserialize)]
struct KeptVerdicts(Vec<(u32, Verdict)>);

impl KeptVerdicts {
    fn make(trace: &Trace, sites: &[(u32, Amount)], cancel: &Cancel) -> Result<Self> {
        let everything = Selection::all();
        let mut ids: Vec<u32> = sites.iter().map(|site| site.0).collect();
        ids.sort_unstable();
        let left = left_of(trace, &everything, &ids, trace.everything());
        let verdicts = verdicts(trace, &everything, &ids, &left, cancel)?;
        Ok(Self(ids.into_iter().zip(verdicts).collect()))
    }

    /// Verdicts on these sites; `None` if one of them is not there.
    fn of(&self, sites: &[u32]) -> Option<Vec<Verdict>> {
        let find = |site: &u32| self.0.binary_search_by_key(site, |known| known.0).ok();
        sites.iter().map(|site| find(site).map(|at| self.0[at].1.clone())).collect()
    }
}

/// Sites of the whole recording that grow, and their bytes a second together.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct KeptGrowing {
    sites: u64,
    bytes_per_second: f64,
}

/// Sites that leak, largest first.
fn leaking(trace: &Trace, cancel: &Cancel) -> Result<Vec<(u32, Amount)>> {
    let everything = Selection::all();
    let question = SumQuery { trace, selection: &everything, key: SumKey::Site, cancel };
    let sums = question.metric(Metric::Leaked, &Resolved::whole(trace))?;
    let mut sites: Vec<(u32, Amount)> =
        (0..).zip(sums).filter(|(_, sum)| sum.count > 0).map(|(site, sum)| (site, sum.amount())).collect();
    sites.sort_unstable_by_key(|&(site, amount)| (std::cmp::Reverse((amount.bytes, amount.count)), site));
    Ok(sites)
}

/// Whether verdicts are worth keeping.
pub fn are_worth_keeping(trace: &Trace) -> bool {
    trace.site_count() as usize >= FEW_SITES
}

/// Verdicts on some of the sites that leak, of the whole recording without a filter, where they are worth keeping. `all`:
/// how many leak.
///
/// # Errors
/// When cancelled.
pub fn kept(trace: &Trace, sites: &[u32], all: usize, cancel: &Cancel) -> Result<Option<Vec<Verdict>>> {
    if !are_worth_keeping(trace) {
        return Ok(None);
    }
    // Few of very many sites get their verdicts with all moments.
    let (kind, most) = if sites.len() <= MANY_SITES && all > MANY_SITES {
        (LARGEST_VERDICTS, LARGEST)
    } else {
        (VERDICTS, usize::MAX)
    };
    let kept = trace.kept(kind, || -> Result<KeptVerdicts> {
        let mut all = leaking(trace, cancel)?;
        all.truncate(most);
        KeptVerdicts::make(trace, &all, cancel)
    })?;
    Ok(kept.of(sites))
}

/// Computes and caches what the first queries for leaks need, as far as caching pays: the largest leaks first.
///
/// # Errors
/// When cancelled.
pub fn keep(trace: &Trace, cancel: &Cancel) -> Result<()> {
    if are_worth_keeping(trace) {
        let sites = leaking(trace, cancel)?;
        let largest: Vec<u32> = sites.iter().take(1).map(|site| site.0).collect();
        kept(trace, &largest, sites.len(), cancel)?;
        freed_late::kept(trace, cancel)?;
        growing(trace, cancel)?;
    }
    Ok(())
}

/// Sites of the whole recording that grow, and their bytes a second together.
///
/// # Errors
/// When cancelled.
pub fn growing(trace: &Trace, cancel: &Cancel) -> Result<(u64, f64)> {
    let count = || -> Result<KeptGrowing> {
        let sites = leaking(trace, cancel)?;
        let ids: Vec<u32> = sites.iter().map(|site| site.0).collect();
        let verdicts = match kept(trace, &ids, sites.len(), cancel)? {
            Some(kept) => kept,
            None => KeptVerdicts::make(trace, &sites, cancel)?.of(&ids).unwrap_or_default(),
        };
        let growing = verdicts.iter().filter(|verdict| verdict.kind == VerdictKind::Growing);
        let (sites, bytes_per_second) =
            growing.fold((0, 0.0), |(count, rate), verdict| (count + 1, rate + verdict.bytes_per_second));
        Ok(KeptGrowing { sites, bytes_per_second })
    };
    let growing = if are_worth_keeping(trace) { *trace.kept(GROWING, count)? } else { count()? };
    Ok((growing.sites, growing.bytes_per_second))
}
