//! Sites that grew until the program ended and were freed then: no block of them is left, so no list of leaks has them.

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::Left;
use super::site_verdicts::{JUDGES, are_worth_keeping, verdicts};
use crate::amounts::{Signed, SumKey, SumQuery, ranges};
use crate::filter::Selection;
use crate::trend::group_of_origins;
use crate::verdict::exit_ns;
use crate::{Result, trend};
use tracehound_api::Amount;
use tracehound_api::leaks::{Verdict, VerdictKind};
use tracehound_index::kept::KeptKind;
use tracehound_index::{Cancel, Trace};

/// Most sites that are looked for.
const MOST: usize = 50;
/// Sites that were freed late.
const KEPT: KeptKind = KeptKind { name: "freed-late", version: JUDGES };

/// One of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FreedLate {
    /// Which.
    pub site: u32,
    /// Live bytes when its last block was allocated.
    pub bytes: u64,
    /// Blocks then.
    pub count: u64,
    /// Allocation of its first block.
    pub first_ns: u64,
    /// Allocation of its last block.
    pub last_ns: u64,
    /// The verdict, which is growth.
    pub verdict: Verdict,
}

/// The sites of the whole recording without a filter, largest first, cached.
///
/// # Errors
/// When cancelled.
pub fn kept(trace: &Trace, cancel: &Cancel) -> Result<Arc<Vec<FreedLate>>> {
    let make = || find(trace, &Selection::all(), cancel);
    if are_worth_keeping(trace) { trace.kept(KEPT, make) } else { Ok(Arc::new(make()?)) }
}

/// Finds the sites, largest first.
///
/// # Errors
/// When cancelled.
pub fn find(trace: &Trace, selection: &Selection, cancel: &Cancel) -> Result<Vec<FreedLate>> {
    // What was there when the program began to end and is not there at the end.
    let Some(exit_ns) = exit_ns(trace) else { return Ok(Vec::new()) };
    let before = trace.position_before(exit_ns);
    let question = SumQuery { trace, selection, key: SumKey::Site, cancel };
    // A growing site has more at each of the first moments; this is cheaper than a verdict on each site.
    let part = |part: f64| trace.position_before((exit_ns as f64 * part) as u64);
    let places = [part(0.3), part(0.6), before, trace.end_position()];
    let sites: Vec<u32> = (0..trace.site_count()).collect();
    let columns = trend::live_by_group(&question, &sites, sites.len(), &places)?;
    let [early, middle, held, at_end] = &columns[..] else { return Ok(Vec::new()) };
    let rises = |site: usize, held: &Signed| {
        let at = |sums: &[Signed]| sums.get(site).map_or(0, |sum| sum.bytes) as f64;
        at(middle) > at(early) && held.bytes as f64 > at(middle) * 1.1
    };
    let mut sites: Vec<(u32, Amount)> = (0..)
        .zip(held.iter().zip(at_end))
        .filter(|(site, (held, end))| held.bytes > 0 && end.count == 0 && rises(*site as usize, held))
        .map(|(site, (held, _))| (site, held.amount()))
        .collect();
    sites.sort_by_key(|&(site, amount)| (std::cmp::Reverse((amount.bytes, amount.count)), site));
    sites.truncate(MOST);
    let ids: Vec<u32> = sites.iter().map(|s| s.0).collect();
    let verdicts = verdicts(trace, selection, &ids, &vec![Left::default(); ids.len()], cancel)?;
    let rows = first_and_last(trace, &ids, cancel)?;
    let grown = sites.into_iter().zip(verdicts).zip(rows);
    let grown = grown.filter(|((_, verdict), _)| verdict.kind == VerdictKind::Growing && verdict.freed_at_exit);
    let times = |(first, last): (u64, u64)| (trace.born_ns(first), trace.born_ns(last));
    let mut found: Vec<FreedLate> = grown
        .map(|(((site, amount), verdict), rows)| {
            let (first_ns, last_ns) = rows.map_or((0, 0), times);
            FreedLate { site, bytes: amount.bytes, count: amount.count, first_ns, last_ns, verdict }
        })
        .collect();
    // The program may have gone on for a moment after the end seems to begin: what was kept is what the last one joined.
    let places: Vec<_> = found.iter().map(|late| trace.position_before(late.last_ns + 1)).collect();
    let ids: Vec<u32> = found.iter().map(|late| late.site).collect();
    let columns = trend::columns_at(trace, selection, &ids, &places, cancel)?;
    for (at, late) in found.iter_mut().enumerate() {
        let kept = columns.get(at).and_then(|column| column.get(at)).map(Signed::amount).unwrap_or_default();
        (late.bytes, late.count) = (late.bytes.max(kept.bytes), late.count.max(kept.count));
    }
    Ok(found)
}

/// Rows of the first and the last allocation of each of some sites.
fn first_and_last(trace: &Trace, sites: &[u32], cancel: &Cancel) -> Result<Vec<Option<(u64, u64)>>> {
    let mut rows: Vec<Option<(u64, u64)>> = vec![None; sites.len()];
    if sites.is_empty() {
        return Ok(rows);
    }
    let numbers: FxHashMap<u32, u32> = sites.iter().copied().zip(0..).collect();
    let number_of = group_of_origins(trace, |site| numbers.get(&site).copied());
    let origins = &trace.columns().alloc_origin;
    let find = |range: Range<u64>| {
        let mut rows: Vec<Option<(u64, u64)>> = vec![None; sites.len()];
        for row in range {
            if row.is_multiple_of(1 << 16) {
                cancel.check()?;
            }
            let origin = origins.get(row as usize).copied().unwrap_or(u32::MAX);
            let number = number_of.get(origin as usize).copied().unwrap_or(u32::MAX);
            if let Some(rows) = rows.get_mut(number as usize) {
                rows.get_or_insert((row, row)).1 = row;
            }
        }
        Ok(rows)
    };
    let parts: Vec<_> = ranges(0, trace.alloc_count()).into_par_iter().map(find).collect::<Result<_>>()?;
    for part in parts {
        for (rows, part) in rows.iter_mut().zip(part) {
            // Parts are in the order of rows.
            *rows = rows.map_or(part, |(first, last)| Some((first, part.map_or(last, |(_, last)| last))));
        }
    }
    Ok(rows)
}
