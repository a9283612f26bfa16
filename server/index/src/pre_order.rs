//! Rows of a tree in pre-order: what lies below a row is a range of places, so that sums over it are the difference of
//! two running sums.

use super::frame_tree::FrameId;

/// A place in the order; the root's is 0.
pub type TreePlace = u32;

/// See the module's text. Rows with the same caller keep the order of their ids.
#[derive(Debug, Default)]
pub struct PreOrder {
    /// By row: its place.
    pub place: Vec<TreePlace>,
    /// By place: the row.
    pub row: Vec<FrameId>,
    /// By place: the place behind everything below.
    pub end: Vec<TreePlace>,
    /// By place: the caller's place; the root's is the root's.
    pub caller: Vec<TreePlace>,
}

impl PreOrder {
    /// The order of rows by their callers, which come before them.
    #[must_use]
    pub fn new(parents: &[FrameId]) -> Self {
        let len = parents.len();
        let mut size = vec![1_u32; len];
        for row in (1..len).rev() {
            size[parents[row] as usize] += size[row];
        }
        let mut order = Self { place: vec![0; len], row: vec![0; len], end: vec![0; len], caller: vec![0; len] };
        // By row: the place of the next row that it calls.
        let mut next = vec![0_u32; len];
        for row in 0..len {
            let (place, caller) = match row {
                0 => (0, 0),
                _ => {
                    let parent = parents[row] as usize;
                    let place = next[parent];
                    next[parent] += size[row];
                    (place, order.place[parent])
                }
            };
            next[row] = place + 1;
            order.place[row] = place;
            order.row[place as usize] = row as FrameId;
            order.end[place as usize] = place + size[row];
            order.caller[place as usize] = caller;
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_below_a_row_is_a_range() {
        //   0 ─┬─ 1 ─┬─ 3
        //      │     └─ 5
        //      └─ 2 ─── 4 ── 6
        let order = PreOrder::new(&[0, 0, 0, 1, 2, 1, 4]);
        assert_eq!(order.row, [0, 1, 3, 5, 2, 4, 6]);
        assert_eq!(order.place, [0, 1, 4, 2, 5, 3, 6]);
        assert_eq!(order.end, [7, 4, 3, 4, 7, 7, 7]);
        assert_eq!(order.caller, [0, 0, 1, 1, 0, 4, 5]);
        assert!(PreOrder::new(&[]).row.is_empty());
    }
}
