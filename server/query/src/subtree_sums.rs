//! Sums at and below each row of a tree, from the rows that have something of their own: running sums over these in
//! pre-order, in which what lies below a row is a range. Rows without anything below cost nothing.

use super::place_set::PlaceSet;
use super::value_tree::{RowId, ValueTree};
use tracehound_api::Unit;
use tracehound_index::pre_order::{PreOrder, TreePlace};

/// See the module's text.
pub struct SubtreeSums<'a> {
    order: &'a PreOrder,
    /// Places of the rows with something of their own.
    ends: &'a PlaceSet,
    /// By number of such rows: the sums of those before it.
    running: Vec<RunningSum>,
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

impl<'a> SubtreeSums<'a> {
    /// Adds up a tree.
    pub fn new(values: &'a ValueTree, unit: Unit) -> Self {
        let (order, ends) = (values.shape.pre_order(), &values.ends);
        let mut running = Vec::with_capacity(values.sums.len() + 1);
        let mut wide = PlaceSet::new(order.row.len());
        let mut sum = RunningSum::default();
        let mut last: Option<TreePlace> = None;
        for (place, own) in ends.iter().zip(&values.sums) {
            running.push(sum);
            let value = own.of(unit);
            sum.value += value;
            // Blocks of no bytes have no width, but they are blocks.
            sum.other += own.other(unit);
            if value == 0 {
                continue;
            }
            sum.weight += value.unsigned_abs();
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
        running.push(sum);
        wide.finish();
        Self { order, ends, running, wide }
    }

    fn below(&self, row: RowId) -> [RunningSum; 2] {
        let place = self.order.place[row as usize];
        [place, self.order.end[place as usize]].map(|place| self.running[self.ends.count_before(place)])
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
