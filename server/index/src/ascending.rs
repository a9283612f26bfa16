//! Ascending numbers of rows in four bytes each: the low halves, and where in the list the upper half changes.

/// See the module's description.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ascending {
    low: Vec<u32>,
    /// Where in the list each upper half begins. Numbers of the first one begin at position 0.
    starts: Vec<usize>,
}

impl Ascending {
    /// Appends `number`, which must be larger than all others.
    #[inline]
    pub fn push(&mut self, number: u64) {
        let upper = (number >> 32) as usize;
        if upper > self.starts.len() {
            self.starts.resize(upper, self.low.len());
        }
        self.low.push(number as u32);
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.low.len()
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.low.is_empty()
    }

    /// Range of the list with the numbers of an upper half.
    fn half(&self, upper: usize) -> std::ops::Range<usize> {
        let start = |upper: usize| match upper {
            0 => 0,
            _ => self.starts.get(upper - 1).copied().unwrap_or(self.low.len()),
        };
        start(upper)..start(upper + 1)
    }

    /// Number of elements below `number`.
    #[must_use]
    pub fn before(&self, number: u64) -> usize {
        let half = self.half((number >> 32) as usize);
        let within = self.low.get(half.clone()).unwrap_or_default();
        half.start + within.partition_point(|&low| low < number as u32)
    }

    /// Whether `number` is among them.
    #[must_use]
    pub fn has(&self, number: u64) -> bool {
        let half = self.half((number >> 32) as usize);
        self.low.get(half).is_some_and(|within| within.binary_search(&(number as u32)).is_ok())
    }

    /// The elements from `from` up to below `to`, ascending.
    pub fn among(&self, from: u64, to: u64) -> impl Iterator<Item = u64> + '_ {
        let (first, end) = (self.before(from), self.before(to));
        let mut upper = (from >> 32) as usize;
        let mut half_end = self.half(upper).end;
        (first..end.max(first)).filter_map(move |at| {
            while at >= half_end {
                upper += 1;
                half_end = self.half(upper).end;
            }
            self.low.get(at).map(|&low| u64::from(low) | (upper as u64) << 32)
        })
    }

    /// All of them, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.among(0, u64::MAX)
    }
}

impl FromIterator<u64> for Ascending {
    fn from_iter<I: IntoIterator<Item = u64>>(numbers: I) -> Self {
        let mut list = Self::default();
        numbers.into_iter().for_each(|number| list.push(number));
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number() -> impl Strategy<Value = u64> {
        // At borders of the upper half, and upper halves that have none.
        (0_u64..5, prop_oneof![0_u64..4, (1_u64 << 32) - 4..1 << 32]).prop_map(|(upper, low)| upper << 32 | low)
    }

    proptest! {
        #[test]
        fn behaves_as_a_list(list in prop::collection::btree_set(number(), 0..30), from in number(), to in number()) {
            let numbers: Ascending = list.iter().copied().collect();
            prop_assert_eq!(numbers.len(), list.len());
            prop_assert!(numbers.iter().eq(list.iter().copied()));
            prop_assert_eq!(numbers.before(from), list.range(..from).count());
            prop_assert_eq!(numbers.has(from), list.contains(&from));
            let expected: Vec<u64> = list.iter().copied().filter(|n| (from..to).contains(n)).collect();
            prop_assert_eq!(numbers.among(from, to).collect::<Vec<_>>(), expected);
        }
    }
}
