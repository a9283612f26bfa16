//! The page of an allocation or a free by its number: a table says where to begin looking, so that a look-up costs a
//! few steps however many pages there are.

use super::Trace;

/// Rows between two entries of a table: about half a page.
const STRIDE: u64 = 256;

/// For every [`STRIDE`] allocations and frees the page that holds the first of them.
#[derive(Debug, Default)]
pub struct PageFinder {
    allocs: Vec<u32>,
    frees: Vec<u32>,
}

fn table(starts: &[u64], rows: u64) -> Vec<u32> {
    let mut page = 0;
    (0..rows.div_ceil(STRIDE))
        .map(|i| {
            while starts.get(page + 1).is_some_and(|&start| start <= i * STRIDE) {
                page += 1;
            }
            page as u32
        })
        .collect()
}

/// The last page that starts at or before `row`, if one does.
fn find(table: &[u32], starts: &[u64], row: u64) -> Option<usize> {
    let at = (row / STRIDE) as usize;
    let low = table.get(at).map_or(0, |&page| page as usize);
    let high = table.get(at + 1).map_or(starts.len(), |&page| (page as usize + 1).min(starts.len()));
    let within = starts.get(low..high).unwrap_or_default();
    (low + within.partition_point(|&start| start <= row)).checked_sub(1)
}

impl Trace {
    fn page_finder(&self) -> &PageFinder {
        self.page_finder.get_or_init(|| {
            let c = self.columns();
            PageFinder {
                allocs: table(&c.page_allocs, self.alloc_count()),
                frees: table(&c.page_frees, self.free_count()),
            }
        })
    }

    /// The closed page that holds allocation `row`, were there no open one.
    pub(super) fn closed_page_of_alloc(&self, row: u64) -> Option<usize> {
        find(&self.page_finder().allocs, &self.columns().page_allocs, row)
    }

    /// The closed page that holds free `ordinal`, were there no open one.
    pub(super) fn closed_page_of_free(&self, ordinal: u64) -> Option<usize> {
        find(&self.page_finder().frees, &self.columns().page_frees, ordinal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn finds_what_a_search_through_all_pages_finds(steps in prop::collection::vec(0_u64..900, 0..200), more in 0_u64..3000) {
            // Pages without an allocation, and pages with many.
            let starts: Vec<u64> = steps.iter().scan(0, |at, step| { let start = *at; *at += step * (step % 3); Some(start) }).collect();
            let rows = starts.last().map_or(0, |&last| last + more);
            let table = table(&starts, rows);
            for row in (0..rows + 2000).step_by(37) {
                let expected = starts.partition_point(|&start| start <= row).checked_sub(1);
                prop_assert_eq!(find(&table, &starts, row), expected);
            }
        }
    }
}
