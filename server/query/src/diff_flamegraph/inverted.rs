//! The difference upside down: the allocating functions first, their callers below. Rows are made as they are needed;
//! a row is the set of backtraces that end in its functions.

use std::collections::HashMap;

use super::super::pruned::Lazy;
use super::{AskedRow, Overlay, RowId, Sides, Tree, own_width};
use tracehound_api::diff_flamegraph::DiffWidth;

/// Bits of a row's id that stand for a backtrace; the row's depth is above them.
const LEAF_BITS: u32 = 37;
const LEAF: u64 = (1 << LEAF_BITS) - 1;
/// Deepest row that an id can tell.
const DEEPEST: u32 = (1 << (53 - LEAF_BITS)) - 1;

/// The laid-over tree, looked at from its ends.
pub struct InvertedDiff<'a> {
    overlay: &'a Overlay,
    /// Ids of the overlay's rows.
    ids: Vec<u64>,
    width_of: DiffWidth,
}

/// One backtrace in a row: where it began, and the caller that comes next (0: none).
#[derive(Debug, Clone, Copy)]
struct InvertedDiffItem {
    leaf: RowId,
    next: RowId,
}

/// A row of the inverted tree.
#[derive(Debug)]
pub struct InvertedDiffRow {
    depth: u32,
    function: u32,
    items: Vec<InvertedDiffItem>,
    sums: Sides,
    width: u64,
}

impl<'a> InvertedDiff<'a> {
    pub fn new(overlay: &'a Overlay, width_of: DiffWidth) -> Self {
        Self { overlay, ids: overlay.ids(), width_of }
    }

    fn row(&self, depth: u32, function: u32, items: Vec<InvertedDiffItem>) -> InvertedDiffRow {
        let mut sums = [0; 2];
        let mut width = 0;
        for item in &items {
            let own = &self.overlay.own[item.leaf as usize];
            sums[0] += own[0];
            sums[1] += own[1];
            width += own_width(self.width_of, own);
        }
        InvertedDiffRow { depth, function, items, sums, width }
    }

    fn whole(&self) -> InvertedDiffRow {
        let rows = (0..).zip(&self.overlay.own).filter(|&(_, own)| own_width(self.width_of, own) > 0);
        let items = rows.map(|(row, _): (RowId, _)| InvertedDiffItem { leaf: row, next: row }).collect();
        self.row(0, u32::MAX, items)
    }

    fn leaf_id(&self, leaf: RowId) -> u64 {
        self.ids[leaf as usize] & LEAF
    }
}

impl Lazy for InvertedDiff<'_> {
    type Row = InvertedDiffRow;

    fn children(&mut self, row: &InvertedDiffRow) -> Vec<InvertedDiffRow> {
        let mut groups: HashMap<u32, usize> = HashMap::new();
        let mut children: Vec<(u32, Vec<InvertedDiffItem>)> = Vec::new();
        for item in row.items.iter().filter(|item| item.next != 0) {
            let function = self.overlay.function[item.next as usize];
            let at = *groups.entry(function).or_insert_with(|| {
                children.push((function, Vec::new()));
                children.len() - 1
            });
            children[at].1.push(InvertedDiffItem { next: self.overlay.parent[item.next as usize], ..*item });
        }
        children.into_iter().map(|(function, items)| self.row(row.depth + 1, function, items)).collect()
    }

    fn weight(&self, row: &InvertedDiffRow) -> u64 {
        row.width
    }

    fn value(&self, row: &InvertedDiffRow) -> i64 {
        i64::try_from(row.width).unwrap_or(i64::MAX)
    }

    fn size(&self, row: &InvertedDiffRow) -> u32 {
        // How many rows lie below is not known without making them; how many backtraces do, is.
        u32::try_from(row.items.len()).unwrap_or(u32::MAX)
    }
}

impl Tree for InvertedDiff<'_> {
    fn sums(&self, row: &InvertedDiffRow) -> Sides {
        row.sums
    }

    /// Of the backtraces that have no further caller.
    fn own(&self, row: &InvertedDiffRow) -> Sides {
        let ended = row.items.iter().filter(|item| item.next == 0);
        ended.fold([0; 2], |sum, item| {
            let own = self.overlay.own[item.leaf as usize];
            [sum[0] + own[0], sum[1] + own[1]]
        })
    }

    /// A backtrace that ends in the row's functions, and their number: enough to find the row again.
    fn id(&self, row: &InvertedDiffRow) -> u64 {
        let leaf = row.items.iter().map(|item| self.leaf_id(item.leaf)).min().unwrap_or(0);
        if row.depth == 0 { 0 } else { u64::from(row.depth.min(DEEPEST)) << LEAF_BITS | leaf }
    }

    fn function(&self, row: &InvertedDiffRow) -> Option<u32> {
        (row.depth > 0).then_some(row.function)
    }

    fn find(&mut self, root: Option<u64>) -> Option<AskedRow<InvertedDiffRow>> {
        let mut row = self.whole();
        let mut above = Vec::new();
        let Some(id) = root.filter(|&id| id != 0) else { return Some(AskedRow { above, row }) };
        let depth = usize::try_from(id >> LEAF_BITS).ok()?;
        let leaf = (1..self.ids.len() as RowId).find(|&leaf| self.leaf_id(leaf) == id & LEAF)?;
        let functions: Vec<u32> =
            self.overlay.path(leaf).take(depth).map(|row| self.overlay.function[row as usize]).collect();
        if depth == 0 || functions.len() != depth {
            return None;
        }
        for function in functions {
            let found = self.children(&row).into_iter().find(|child| child.function == function);
            // A function that has nothing on either side now is an empty row, not an error.
            let child = found.unwrap_or_else(|| self.row(row.depth + 1, function, Vec::new()));
            above.push(std::mem::replace(&mut row, child));
        }
        Some(AskedRow { above, row })
    }
}
