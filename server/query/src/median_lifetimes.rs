//! Median lifetimes of the blocks of every site, for an order of all sites: the lifetimes of some sites at a time are put
//! beside each other, and the middle one of each is found. Sites with very many blocks are counted in classes.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rayon::prelude::*;

use super::Result;
use super::amounts::ranges;
use super::filter::Selection;
use super::lifetimes::{self, lifetime};
use super::scan::{Also, BLOCK, Picker, RowTest};
use tracehound_index::{Cancel, Span, Trace};

/// How much is held at once.
#[derive(Debug, Clone, Copy)]
struct MedianLimits {
    /// Lifetimes.
    blocks: u64,
    /// Sites with more blocks are counted in classes.
    most_of_site: u64,
}

const LIMITS: MedianLimits = MedianLimits { blocks: 1 << 24, most_of_site: 1 << 20 };

/// Median lifetimes of the blocks that each site allocated in a span, nanoseconds, by site; 0 where it allocated none.
///
/// # Errors
/// When cancelled.
pub fn run(trace: &Trace, selection: &Selection, span: Span, cancel: &Cancel) -> Result<Vec<u64>> {
    within(trace, selection, span, LIMITS, cancel)
}

fn within(trace: &Trace, selection: &Selection, span: Span, limits: MedianLimits, cancel: &Cancel) -> Result<Vec<u64>> {
    let test = selection.rows(trace);
    let ranges = ranges(span.from.allocs, span.to.allocs);
    let sites = trace.site_count();
    let counts: Vec<AtomicU64> = (0..sites).map(|_| AtomicU64::new(0)).collect();
    each_site(&test, trace, &ranges, cancel, |_, site| {
        if let Some(count) = counts.get(site as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    })?;
    let mut counts: Vec<u64> = counts.into_iter().map(AtomicU64::into_inner).collect();
    let mut medians = vec![0; sites as usize];

    let large: Vec<u32> = (0..sites).filter(|&site| counts[site as usize] > limits.most_of_site).collect();
    if !large.is_empty() {
        for (&site, quantiles) in large.iter().zip(lifetimes::by_site(trace, selection, span, &large, cancel)?) {
            medians[site as usize] = quantiles.p50_ns;
            counts[site as usize] = 0;
        }
    }
    for some in groups(&counts, limits.blocks) {
        let counts = &counts[some.clone()];
        let mut lists = LifetimeLists::new(some.start as u32, counts);
        each_site(&test, trace, &ranges, cancel, |row, site| lists.add(site, || lifetime(trace, row)))?;
        lists.medians(&mut medians[some]);
    }
    Ok(medians)
}

/// Cuts the sites into runs that have at most so many blocks together; a site alone may have more.
fn groups(counts: &[u64], blocks: u64) -> Vec<Range<usize>> {
    let (mut groups, mut start, mut sum) = (Vec::new(), 0, 0);
    for (site, &count) in counts.iter().enumerate() {
        if sum > 0 && sum + count > blocks {
            groups.push(start..site);
            (start, sum) = (site, 0);
        }
        sum += count;
    }
    if sum > 0 {
        groups.push(start..counts.len());
    }
    groups
}

/// The lifetimes of some sites, those of a site beside each other.
struct LifetimeLists {
    first_site: u32,
    /// By site: where its next lifetime goes. At the end: where those of the next site begin.
    next: Vec<AtomicU32>,
    counts: Vec<u64>,
    values: Vec<AtomicU64>,
}

impl LifetimeLists {
    fn new(first_site: u32, counts: &[u64]) -> Self {
        let mut sum = 0;
        let next = counts.iter().map(|&count| {
            let start = sum;
            sum += count as u32;
            AtomicU32::new(start)
        });
        let next = next.collect();
        Self { first_site, next, counts: counts.to_vec(), values: (0..sum).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Adds a lifetime if its site is one of these. Threads may do so at once.
    fn add(&self, site: u32, lifetime: impl FnOnce() -> u64) {
        let Some(at) = site.checked_sub(self.first_site).map(|at| at as usize) else { return };
        if self.counts.get(at).is_none_or(|&count| count == 0) {
            return;
        }
        let place = self.next[at].fetch_add(1, Ordering::Relaxed);
        if let Some(value) = self.values.get(place as usize) {
            value.store(lifetime(), Ordering::Relaxed);
        }
    }

    fn medians(&mut self, medians: &mut [u64]) {
        let Self { counts, values, .. } = self;
        let mut rest = &mut values[..];
        let lists: Vec<&mut [AtomicU64]> = counts
            .iter()
            .map(|&count| {
                let (list, others) = std::mem::take(&mut rest).split_at_mut(count as usize);
                rest = others;
                list
            })
            .collect();
        lists.into_par_iter().zip(medians).filter(|(list, _)| !list.is_empty()).for_each(|(list, median)| {
            let mut list: Vec<u64> = list.iter_mut().map(|value| *value.get_mut()).collect();
            // The smallest that at least half of the blocks do not exceed.
            let middle = list.len().div_ceil(2) - 1;
            *median = *list.select_nth_unstable(middle).1;
        });
    }
}

/// Calls `each` with the row and the site of every allocation among some that passes, on all threads of the pool.
fn each_site(
    test: &RowTest<'_>,
    trace: &Trace,
    ranges: &[Range<u64>],
    cancel: &Cancel,
    each: impl Fn(u64, u32) + Sync,
) -> Result<()> {
    ranges.par_iter().try_for_each(|rows| {
        let mut picker = Picker::new(test, Also::Nothing);
        for (at, start) in rows.clone().step_by(BLOCK).enumerate() {
            if at.is_multiple_of(256) {
                cancel.check()?;
            }
            for &offset in picker.pick(start, (start + BLOCK as u64).min(rows.end)) {
                let row = start + u64::from(offset);
                each(row, trace.site_amount(row).0);
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_are_cut_so_that_their_blocks_have_room() {
        let cut = |counts: &[u64], blocks| groups(counts, blocks);
        assert!(cut(&[], 10).is_empty());
        assert!(cut(&[0, 0], 10).is_empty());
        assert_eq!(cut(&[3, 4, 0, 3, 1, 11, 2], 10), [0..4, 4..5, 5..6, 6..7]);
        let whole = cut(&[3, 4, 0], 100);
        assert_eq!((whole.len(), whole[0].clone()), (1, 0..3));
    }

    #[test]
    fn medians_are_those_of_sorted_lifetimes_in_whatever_order_they_come() {
        let lifetimes: Vec<Vec<u64>> = vec![vec![5], vec![], vec![9, 1], vec![7, 3, 3], vec![4, 8, 2, 6]];
        let counts: Vec<u64> = lifetimes.iter().map(|some| some.len() as u64).collect();
        let mut lists = LifetimeLists::new(10, &counts);
        let all: Vec<(u32, u64)> =
            (10..).zip(&lifetimes).flat_map(|(site, some)| some.iter().map(move |&ns| (site, ns))).collect();
        all.par_iter().for_each(|&(site, ns)| lists.add(site, || ns));
        // Sites before and behind, and one without a block: not asked for their lifetimes.
        for site in [0, 9, 11, 15, 99] {
            lists.add(site, || unreachable!("site {site}"));
        }
        let mut medians = vec![0; counts.len()];
        lists.medians(&mut medians);
        assert_eq!(medians, [5, 0, 1, 3, 4]);
    }
}
