//! Orders of rows by several columns: the first decides, the next among equals of the first.

use std::cmp::Ordering;

/// Columns to sort by, the most important first; each may be turned round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortKeys<T>(Vec<(T, bool)>);

/// Most columns of one order.
pub const MAX_SORT_KEYS: usize = 4;

impl<T: Copy + PartialEq> SortKeys<T> {
    /// Columns and whether each is turned round; a column that was named before decides nothing and is left out.
    /// Nothing, if there is none or there are more than [`MAX_SORT_KEYS`].
    #[must_use]
    pub fn new(keys: impl IntoIterator<Item = (T, bool)>) -> Option<Self> {
        let mut own: Vec<(T, bool)> = Vec::new();
        for (column, reversed) in keys {
            if own.iter().all(|&(known, _)| known != column) {
                own.push((column, reversed));
            }
        }
        (1..=MAX_SORT_KEYS).contains(&own.len()).then_some(Self(own))
    }

    /// The columns, and whether each is turned round.
    pub fn keys(&self) -> impl Iterator<Item = (T, bool)> + '_ {
        self.0.iter().copied()
    }

    /// Whether this column decides first, be it turned round or not.
    #[must_use]
    pub fn is_first(&self, column: T) -> bool {
        self.0.first().is_some_and(|key| key.0 == column)
    }

    /// Compares two rows; `by` compares them by one column in its usual order.
    pub fn compare(&self, mut by: impl FnMut(T) -> Ordering) -> Ordering {
        self.keys()
            .map(|(column, reversed)| if reversed { by(column).reverse() } else { by(column) })
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }
}

impl<T> From<T> for SortKeys<T> {
    fn from(column: T) -> Self {
        Self(vec![(column, false)])
    }
}

impl<T: Default> Default for SortKeys<T> {
    fn default() -> Self {
        T::default().into()
    }
}

/// A column's value to compare by: rows that have none come last in the column's usual order.
pub fn or_last<T: Ord>(value: Option<T>) -> (bool, Option<T>) {
    (value.is_none(), value)
}

#[cfg(test)]
mod tests {
    use super::{SortKeys, or_last};

    #[test]
    fn what_has_no_value_comes_last() {
        let mut rows = [Some("b"), None, Some("a")];
        rows.sort_by_key(|&row| or_last(row));
        assert_eq!(rows, [Some("a"), Some("b"), None]);
    }

    #[test]
    fn the_next_column_decides_among_equals_of_the_first() {
        let rows = [(1, 7), (2, 5), (1, 9), (2, 6)];
        let sorted = |keys: &[(u8, bool)]| {
            let keys = SortKeys::new(keys.iter().copied()).unwrap();
            let mut rows = rows;
            rows.sort_by(|a, b| keys.compare(|column| if column == 0 { a.0.cmp(&b.0) } else { a.1.cmp(&b.1) }));
            rows
        };
        assert_eq!(sorted(&[(0, false), (1, false)]), [(1, 7), (1, 9), (2, 5), (2, 6)]);
        assert_eq!(sorted(&[(0, true), (1, false)]), [(2, 5), (2, 6), (1, 7), (1, 9)]);
        assert_eq!(sorted(&[(0, false), (1, true)]), [(1, 9), (1, 7), (2, 6), (2, 5)]);
    }

    #[test]
    fn a_column_counts_once_and_five_are_too_many() {
        assert_eq!(SortKeys::new([(1, false), (1, true)]), Some(1.into()));
        assert_eq!(SortKeys::<u8>::new([]), None);
        assert_eq!(SortKeys::new((0..5).map(|column| (column, false))), None);
    }
}
