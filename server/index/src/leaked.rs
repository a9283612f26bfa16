//! The blocks that live at the end: their rows, and sums by site for every bucket of allocations.

use super::Trace;
use super::ascending::Ascending;
use super::sums::{BlockAmount, Dense, walk_field};

/// Rows of blocks that live at the end of a snapshot.
#[derive(Debug, Default)]
pub struct LeakIndex {
    /// Rows, ascending.
    pub rows: Ascending,
    /// For each closed bucket: the list of its sums by site.
    lists: Vec<Vec<u8>>,
}

impl Trace {
    /// Rows of the blocks that live at the end; found once for each snapshot.
    #[must_use]
    pub fn leaked(&self) -> &LeakIndex {
        self.leaked.get_or_init(|| LeakIndex::build(self))
    }
}

impl LeakIndex {
    fn build(trace: &Trace) -> Self {
        use rayon::prelude::*;
        const RANGE: u64 = 1 << 20;
        let allocs = trace.alloc_count();
        let ranges: Vec<Ascending> = (0..allocs.div_ceil(RANGE))
            .into_par_iter()
            .map(|s| {
                let (from, to) = (s * RANGE, ((s + 1) * RANGE).min(allocs));
                let runs = trace.ledgers().alloc_zones.touching(from, to);
                let runs = runs.filter(|(rows, zone)| u64::from(zone.freed) < rows.end - rows.start);
                let rows = runs.flat_map(|(rows, _)| rows.start.max(from)..rows.end.min(to));
                rows.filter(|&row| trace.free_of(row).is_none()).collect()
            })
            .collect();
        let rows: Ascending = ranges.iter().flat_map(Ascending::iter).collect();
        let buckets = &trace.facts().buckets;
        let lists = (0..buckets.len())
            .into_par_iter()
            .map(|i| {
                let from = buckets[i].allocs;
                let to = buckets.get(i + 1).map_or(trace.open_bucket().allocs, |b| b.allocs);
                let mut sums = Dense::<1>::default();
                for row in rows.among(from, to) {
                    let (site, amount) = trace.site_amount(row);
                    if site < trace.site_count() {
                        sums.add(site, 0, amount);
                    }
                }
                sums.drain_list()
            })
            .collect();
        Self { rows, lists }
    }

    /// Leaked rows among `from..to`.
    pub fn rows_among(&self, from: u64, to: u64) -> impl Iterator<Item = u64> + '_ {
        self.rows.among(from, to)
    }

    /// Sums by site of the allocations of a closed bucket.
    pub fn bucket(&self, index: usize, each: impl FnMut(u32, BlockAmount)) {
        if let Some(list) = self.lists.get(index) {
            walk_field::<1>(list, 0, each);
        }
    }
}

impl Trace {
    /// Site and amount of one block.
    #[inline]
    #[must_use]
    pub fn site_amount(&self, row: u64) -> (u32, BlockAmount) {
        let c = self.columns();
        let origin = c.alloc_origin.get(row as usize).copied().unwrap_or(u32::MAX);
        let site = c.origin_site.get(origin as usize).copied().unwrap_or(u32::MAX);
        (site, BlockAmount { count: 1, bytes: self.size_of(row) })
    }

    /// Where the bucket begins that has no sums yet.
    #[must_use]
    pub fn open_bucket(&self) -> super::Position {
        let [allocs, frees] = self.facts().open_bucket;
        super::Position { allocs, frees }
    }
}
