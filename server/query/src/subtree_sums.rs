//! Sums at and below each row of a tree, from the rows that have something of their own: running sums over these in
//! pre-order, in which what lies below a row is a range. Rows without anything below cost nothing.

use rayon::prelude::*;

use super::amounts::{Signed, parts};
use super::place_set::PlaceSet;
use super::value_tree::{RowId, ValueTree};
use tracehound_api::Unit;
use tracehound_index::pre_order::{PreOrder, TreePlace};

/// See the module's text.
pub struct SubtreeSums<'a> {
    order: &'a PreOrder,
    /// Places of the rows with something of their own.
    ends: &'a PlaceSet,
    /// By number of such rows: the sums of those before it in its run.
    running: Vec<RunningSum>,
    /// By run: the number of its first row, and the sums of all runs before it.
    starts: Vec<(usize, RunningSum)>,
    /// Places of the rows that have a width.
    wide: PlaceSet,
}

/// Sums over rows.
#[derive(Debug, Clone, Copy, Default)]
struct RunningSum {
    value: i64,
    other: i64,
    /// Of the magnitudes of the values.
    weight: u64,
}

impl RunningSum {
    /// With what a row has of its own. Blocks of no bytes have no width, but they are blocks.
    #[inline]
    fn with(self, own: &Signed, unit: Unit) -> Self {
        let value = own.of(unit);
        self.and(Self { value, other: own.other(unit), weight: value.unsigned_abs() })
    }

    #[inline]
    const fn and(self, more: Self) -> Self {
        Self { value: self.value + more.value, other: self.other + more.other, weight: self.weight + more.weight }
    }
}

/// A run of the rows with something of their own.
struct RowRun<'a, P> {
    places: P,
    own: &'a [Signed],
    running: &'a mut [RunningSum],
}

impl<P: Iterator<Item = TreePlace>> RowRun<'_, P> {
    /// Fills in the running sums; returns how many rows there are, their sum, and the places of the rows that have a
    /// width by them.
    fn add_up(self, order: &PreOrder, unit: Unit) -> (usize, RunningSum, PlaceSet) {
        let rows = self.own.len();
        let mut wide = PlaceSet::new(order.row.len());
        let mut sum = RunningSum::default();
        let mut last: Option<TreePlace> = None;
        for ((place, own), running) in self.places.zip(self.own).zip(self.running) {
            *running = sum;
            sum = sum.with(own, unit);
            if own.of(unit) == 0 {
                continue;
            }
            // Callers that come before the last such row are callers of it, and have their width already.
            let mut at = place;
            while last.is_none_or(|last| at > last) {
                wide.insert(at);
                if at == 0 {
                    break;
                }
                at = order.caller[at as usize];
            }
            last = Some(place);
        }
        (rows, sum, wide)
    }
}

impl<'a> SubtreeSums<'a> {
    /// Adds up a tree, several runs of its rows at once.
    pub fn new(values: &'a ValueTree, unit: Unit) -> Self {
        let (order, ends) = (values.shape.pre_order(), &values.ends);
        let mut running = vec![RunningSum::default(); values.sums.len() + 1];
        let mut runs = Vec::new();
        let (mut sums, mut slots) = (&values.sums[..], &mut running[..]);
        for (len, places) in ends.runs(parts(values.sums.len())) {
            let (own, rest) = sums.split_at(len);
            let (filled, others) = slots.split_at_mut(len);
            (sums, slots) = (rest, others);
            runs.push(RowRun { places, own, running: filled });
        }
        let added: Vec<(usize, RunningSum, PlaceSet)> =
            runs.into_par_iter().map(|run| run.add_up(order, unit)).collect();
        let mut wide = PlaceSet::new(order.row.len());
        let mut before = RunningSum::default();
        let mut starts = Vec::with_capacity(added.len());
        let mut number = 0;
        for (rows, sum, places) in added {
            starts.push((number, before));
            number += rows;
            before = before.and(sum);
            wide.insert_all(&places);
        }
        // Behind the last row.
        starts.push((number, before));
        wide.finish();
        Self { order, ends, running, starts, wide }
    }

    fn below(&self, row: RowId) -> [RunningSum; 2] {
        let place = self.order.place[row as usize];
        [place, self.order.end[place as usize]].map(|place| {
            let number = self.ends.count_before(place);
            let run = self.starts.partition_point(|&(first, _)| first <= number) - 1;
            self.starts[run].1.and(self.running[number])
        })
    }

    /// Sum in the unit.
    pub fn value(&self, row: RowId) -> i64 {
        let [before, behind] = self.below(row);
        behind.value - before.value
    }

    /// Sum in the other unit.
    pub fn other(&self, row: RowId) -> i64 {
        let [before, behind] = self.below(row);
        behind.other - before.other
    }

    /// Sum of the magnitudes of what each row has of its own: the width.
    pub fn weight(&self, row: RowId) -> u64 {
        let [before, behind] = self.below(row);
        behind.weight - before.weight
    }

    /// How many rows have a width, the row itself among them.
    pub fn size(&self, row: RowId) -> u32 {
        let place = self.order.place[row as usize];
        let end = self.order.end[place as usize];
        (self.wide.count_before(end) - self.wide.count_before(place)) as u32
    }

    /// The rows right below a row that have a width, by id.
    pub fn children(&self, row: RowId) -> Vec<RowId> {
        let place = self.order.place[row as usize];
        let end = self.order.end[place as usize];
        let within = |place: TreePlace| self.wide.first_from(place).filter(|&place| place < end);
        // The first of them behind a row is its child: whatever else lies below a child comes behind it.
        std::iter::successors(within(place + 1), |&child| within(self.order.end[child as usize]))
            .map(|child| self.order.row[child as usize])
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tracehound_index::frame_tree::{NO_FUNCTION, TreeRow, TreeShape};
    use tracehound_index::symbols::SymbolFrame;

    const ROWS: u32 = 70_000;

    #[test]
    fn however_many_runs_there_are_the_sums_are_those_of_all_rows_below() {
        let mut state = 7_u64;
        let mut below = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % limit
        };
        let mut shape = TreeShape::default();
        let frame = SymbolFrame { function: NO_FUNCTION, file: None, line: None, inlined: false };
        for row in 0..ROWS {
            // Wide at some rows, deep at others.
            let parent = if row % 3 == 0 { row.saturating_sub(1) } else { below(u64::from(row.max(1))) as u32 };
            shape.push(TreeRow { parent, frame, recursive: false });
        }
        let own: Vec<Signed> = (0..ROWS)
            .map(|_| if below(3) == 0 { Signed::default() } else { Signed { count: 1, bytes: below(9) as i64 - 3 } })
            .collect();
        let order = shape.pre_order();
        let mut ends = PlaceSet::new(shape.len());
        let has_own = |row: u32| !own[row as usize].is_zero() || row.is_multiple_of(5);
        (0..ROWS).filter(|&row| has_own(row)).for_each(|row| ends.insert(order.place[row as usize]));
        ends.finish();
        let sums = ends.iter().map(|place| own[order.row[place as usize] as usize]).collect();
        let mut tree = ValueTree::default();
        (tree.shape, tree.ends, tree.sums) = (Arc::new(shape), Arc::new(ends), sums);

        let mut expected: Vec<(i64, i64, u64)> =
            own.iter().map(|own| (own.bytes, own.count, own.bytes.unsigned_abs())).collect();
        let mut children = vec![Vec::new(); ROWS as usize];
        for row in (1..ROWS as usize).rev() {
            let (value, other, weight) = expected[row];
            let parent = tree.shape.parent[row] as usize;
            let above = &mut expected[parent];
            above.0 += value;
            above.1 += other;
            above.2 += weight;
            if weight > 0 {
                children[parent].push(row as u32);
            }
        }
        let mut sizes: Vec<u32> = expected.iter().map(|sums| u32::from(sums.2 > 0)).collect();
        for row in (1..ROWS as usize).rev() {
            sizes[tree.shape.parent[row] as usize] += sizes[row];
        }

        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let found = pool.install(|| SubtreeSums::new(&tree, Unit::Bytes));
        assert!(found.starts.len() > 3, "{} runs", found.starts.len());
        for row in 0..ROWS {
            let at = row as usize;
            let sums = (found.value(row), found.other(row), found.weight(row), found.size(row));
            assert_eq!(sums, (expected[at].0, expected[at].1, expected[at].2, sizes[at]), "{row}");
            let mut named = found.children(row);
            named.sort_unstable();
            children[at].reverse();
            assert_eq!(named, children[at], "{row}");
        }
    }
}
