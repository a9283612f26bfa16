//! Buckets of events: where they begin, which of them lie in a span, and their sums.

use super::layout::TEMPORARY_BIT;
use super::sums::{BlockAmount, SumDirectory, walk_field};
use super::{Cancel, Cancelled, Position, Span, Trace};

impl Trace {
    /// Whether a block was temporary.
    #[inline]
    #[must_use]
    pub fn is_temporary(&self, row: u64) -> bool {
        self.ledgers().lifetime_class.get(row as usize) & TEMPORARY_BIT != 0 && self.free_of(row).is_some()
    }

    /// Closed buckets that lie wholly in a span: the first, and the one behind the last.
    #[must_use]
    pub fn whole_buckets(&self, span: Span) -> (usize, usize) {
        // Bucket `i` goes from `starts[i]` to `starts[i + 1]`, the last one to the open bucket.
        let buckets = &self.facts().buckets;
        let first = buckets.partition_point(|b| b.allocs + b.frees < span.from.events());
        let last = if span.to.events() >= self.open_bucket().events() {
            buckets.len()
        } else {
            buckets.partition_point(|b| b.allocs + b.frees <= span.to.events()).saturating_sub(1)
        };
        (first, last.max(first))
    }

    /// Where a bucket begins; behind the closed ones, the open one.
    #[must_use]
    pub fn bucket_start(&self, index: usize) -> Position {
        let closed = self.facts().buckets.get(index);
        closed.map_or_else(|| self.open_bucket(), |b| Position { allocs: b.allocs, frees: b.frees })
    }

    /// Walks a field of the fewest lists that cover buckets `first..last` of a tree of sums with `N` fields.
    ///
    /// # Errors
    /// When cancelled.
    pub fn walk_buckets<const N: usize>(
        &self,
        directory: &SumDirectory,
        (first, last): (usize, usize),
        field: usize,
        cancel: &Cancel,
        mut each: impl FnMut(u32, BlockAmount),
    ) -> Result<(), Cancelled> {
        for extent in directory.cover(first, last) {
            cancel.check()?;
            let list = self.columns().sums.get(extent.offset as usize..(extent.offset + extent.len) as usize);
            walk_field::<N>(list.unwrap_or_default(), field, &mut each);
        }
        Ok(())
    }
}
