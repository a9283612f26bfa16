//! Sparse selections: the rows that a selection keeps, found once where they are few; later queries read few other rows.

use std::sync::Arc;

use rayon::prelude::*;

use super::Result;
use super::amounts::{SumKey, SumQuery, ranges};
use super::filter::Selection;
use super::scan::{Also, BLOCK, Picker};
use crate::window::Resolved;
use tracehound_api::Metric;
use tracehound_index::ascending::Ascending;
use tracehound_index::{Cancel, Span, Trace};

/// Rows of allocations, and ordinals of their frees, both ascending.
#[derive(Debug)]
pub struct SparseSelection {
    /// Rows.
    pub allocs: Ascending,
    /// Ordinals; shorter than the rows when some live.
    pub frees: Ascending,
}

/// Few are at most one in so many.
const ONE_IN: u64 = 32;

impl SparseSelection {
    /// Whether an allocation is among them.
    #[must_use]
    pub fn has(&self, row: u64) -> bool {
        self.allocs.has(row)
    }

    /// Clears `keep`, which is for allocations from row `from` on, where a row is not among them.
    pub fn allocs_among(&self, from: u64, keep: &mut [u8]) {
        among(&self.allocs, from, keep);
    }

    /// Clears `keep`, which is for frees from `from` on, where a free is not among them.
    pub fn frees_among(&self, from: u64, keep: &mut [u8]) {
        among(&self.frees, from, keep);
    }
}

fn among(list: &Ascending, from: u64, keep: &mut [u8]) {
    let to = from + keep.len() as u64;
    let mut rest = keep;
    let mut row = from;
    for at in list.among(from, to) {
        let (out, behind) = rest.split_at_mut((at - row) as usize);
        out.fill(0);
        rest = &mut behind[1..];
        row = at + 1;
    }
    rest.fill(0);
}

impl Selection {
    /// The same selection, for queries over `span`. If it is for the blocks of few sites, their rows are found now;
    /// in a short span few rows are read anyway.
    ///
    /// # Errors
    /// When cancelled.
    pub fn found(mut self, trace: &Trace, span: Span, cancel: &Cancel) -> Result<Self> {
        self.few = None;
        let is_short = (span.to.events() - span.from.events()).saturating_mul(8) < trace.end_position().events();
        if self.sites.is_none() || is_short {
            return Ok(self);
        }
        let everything = Resolved::whole(trace);
        let sites = Self { sites: self.sites.clone(), ..Self::default() };
        let question = SumQuery { trace, selection: &sites, key: SumKey::Site, cancel };
        let allocated: i64 = question.metric(Metric::Allocated, &everything)?.iter().map(|sum| sum.count).sum();
        if allocated as u64 > trace.alloc_count() / ONE_IN {
            return Ok(self);
        }
        let test = self.rows(trace);
        let find = |range: std::ops::Range<u64>| -> Result<Vec<u64>> {
            let mut picker = Picker::new(&test, Also::Nothing);
            let mut rows = Vec::new();
            for start in range.clone().step_by(BLOCK) {
                cancel.check()?;
                let offsets = picker.pick(start, (start + BLOCK as u64).min(range.end));
                rows.extend(offsets.iter().map(|&offset| start + u64::from(offset)));
            }
            Ok(rows)
        };
        let parts: Vec<Vec<u64>> = ranges(0, trace.alloc_count()).into_par_iter().map(find).collect::<Result<_>>()?;
        let mut frees: Vec<u64> =
            parts.par_iter().flat_map_iter(|rows| rows.iter().filter_map(|&row| trace.free_of(row))).collect();
        frees.par_sort_unstable();
        let allocs = parts.into_iter().flatten().collect();
        self.few = Some(Arc::new(SparseSelection { allocs, frees: frees.into_iter().collect() }));
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn others_are_taken_out(list in prop::collection::btree_set(0_u64..300, 0..40), from in 0_u64..310, len in 0_usize..90) {
            let few = SparseSelection { allocs: list.iter().copied().collect(), frees: Ascending::default() };
            let mut keep = vec![1; len];
            few.allocs_among(from, &mut keep);
            for (at, keep) in keep.into_iter().enumerate() {
                let row = from + at as u64;
                prop_assert_eq!(keep == 1, list.contains(&row));
                prop_assert_eq!(few.has(row), list.contains(&row));
            }
        }
    }
}
