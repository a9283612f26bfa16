//! Pruning of a large tree to the rows worth showing: the widest first, until they are too narrow or too many. Rows left
//! out below a row become one synthetic child, so that every row is still the sum of its children and its own.

use std::collections::BinaryHeap;

/// A tree that can be looked at row by row.
pub trait Lazy {
    /// What identifies a row.
    type Row;
    /// The children of a row that have a value.
    fn children(&mut self, row: &Self::Row) -> Vec<Self::Row>;
    /// Width: sum of the absolute values below and at the row.
    fn weight(&self, row: &Self::Row) -> u64;
    /// Signed sum below and at the row.
    fn value(&self, row: &Self::Row) -> i64;
    /// Rows with a value below and at the row; 1 or more.
    fn size(&self, row: &Self::Row) -> u32;
}

/// A row that was chosen, in pre-order.
#[derive(Debug)]
pub struct Chosen<R> {
    /// Position of the parent; the first row's is itself.
    pub parent: u32,
    /// The row; `None` for what was left out.
    pub row: Option<R>,
    /// Own and descendants' sum.
    pub value: i64,
    /// Own sum.
    pub own: i64,
    /// Rows that were left out here.
    pub folded: u32,
}

/// Limits of what is shown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Width of the root, in pixels.
    pub width: u32,
    /// Rows narrower than this are left out.
    pub min_px: f64,
    /// Most rows, synthetic ones included.
    pub max_nodes: usize,
}

struct PrunedRow<R> {
    row: R,
    parent: usize,
    children: Vec<usize>,
    /// Children that were not chosen: values and rows.
    left_value: i64,
    left_rows: u32,
    /// Number of children that are not chosen, or not yet.
    outstanding: usize,
    /// Value of all children.
    below: i64,
}

/// A child that waits to be chosen.
struct OpenRow<R> {
    row: R,
    parent: usize,
}

/// Chooses rows from `root` down, widest first.
pub fn prune<T: Lazy>(tree: &mut T, root: T::Row, limits: &Limits) -> Vec<Chosen<T::Row>> {
    let whole = tree.weight(&root) as f64;
    let least = (whole * limits.min_px.max(0.0) / f64::from(limits.width.max(1))).ceil().max(1.0) as u64;
    let mut pruning = Pruning { entries: Vec::new(), open: Vec::new(), heap: BinaryHeap::new(), short: 0, least };
    pruning.choose(tree, root, 0);
    while let Some((_, std::cmp::Reverse(index))) = pruning.heap.pop() {
        // A chosen row may need a synthetic child for what is left out below it.
        if pruning.entries.len() + pruning.short + 2 > limits.max_nodes {
            break;
        }
        let Some(OpenRow { row, parent }) = pruning.open.get_mut(index).and_then(Option::take) else { continue };
        let at = pruning.entries.len();
        let above = &mut pruning.entries[parent];
        above.children.push(at);
        above.outstanding -= 1;
        pruning.short -= usize::from(above.outstanding == 0);
        pruning.choose(tree, row, parent);
    }
    for OpenRow { row, parent } in std::mem::take(&mut pruning.open).into_iter().flatten() {
        pruning.leave_out(tree, &row, parent);
    }
    flatten(tree, pruning.entries)
}

struct Pruning<R> {
    entries: Vec<PrunedRow<R>>,
    open: Vec<Option<OpenRow<R>>>,
    heap: BinaryHeap<(u64, std::cmp::Reverse<usize>)>,
    /// Entries with outstanding children.
    short: usize,
    least: u64,
}

impl<R> Pruning<R> {
    fn choose<T: Lazy<Row = R>>(&mut self, tree: &mut T, row: R, parent: usize) {
        let children = tree.children(&row);
        let at = self.entries.len();
        let below = children.iter().map(|child| tree.value(child)).sum();
        let outstanding = children.len();
        self.short += usize::from(outstanding > 0);
        let (left_value, left_rows) = (0, 0);
        self.entries.push(PrunedRow { row, parent, children: Vec::new(), left_value, left_rows, outstanding, below });
        for child in children {
            let weight = tree.weight(&child);
            if weight < self.least {
                self.leave_out(tree, &child, at);
            } else {
                self.heap.push((weight, std::cmp::Reverse(self.open.len())));
                self.open.push(Some(OpenRow { row: child, parent: at }));
            }
        }
    }

    fn leave_out<T: Lazy<Row = R>>(&mut self, tree: &T, row: &R, parent: usize) {
        let above = &mut self.entries[parent];
        above.left_value += tree.value(row);
        above.left_rows = above.left_rows.saturating_add(tree.size(row).max(1));
    }
}

/// Pre-order, children widest first, what was left out last.
fn flatten<T: Lazy>(tree: &T, entries: Vec<PrunedRow<T::Row>>) -> Vec<Chosen<T::Row>> {
    let mut chosen = Vec::with_capacity(entries.len());
    let mut entries: Vec<Option<PrunedRow<T::Row>>> = entries.into_iter().map(Some).collect();
    let mut stack = vec![(0_usize, 0_u32)];
    // Synthetic rows wait on the same stack: usize::MAX with what they hold.
    let mut folded: Vec<(i64, u32)> = Vec::new();
    while let Some((index, parent)) = stack.pop() {
        if index >= FOLDED {
            if let Some(&(value, rows)) = folded.get(index - FOLDED) {
                chosen.push(Chosen { parent, row: None, value, own: value, folded: rows });
            }
            continue;
        }
        let Some(entry) = entries.get_mut(index).and_then(Option::take) else { continue };
        let at = chosen.len() as u32;
        debug_assert!(entry.parent <= index);
        if entry.left_rows > 0 {
            stack.push((FOLDED + folded.len(), at));
            folded.push((entry.left_value, entry.left_rows));
        }
        stack.extend(entry.children.iter().rev().map(|&child| (child, at)));
        let value = tree.value(&entry.row);
        chosen.push(Chosen { parent, own: value - entry.below, value, row: Some(entry.row), folded: 0 });
    }
    chosen
}

/// Indices from here on stand for synthetic rows.
const FOLDED: usize = usize::MAX / 2;
