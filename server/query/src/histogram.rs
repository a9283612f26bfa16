//! Classes of sizes and lifetimes, and counting into them.

use tracehound_api::histograms::Histogram;

/// Classes by powers of two, each split in `split` (a power of two).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Classes for each power of two: 1, 2 or 4.
    pub split: u32,
}

impl Scale {
    /// Class of a value.
    #[inline]
    #[must_use]
    pub const fn class(self, value: u64) -> usize {
        let bits = self.split.trailing_zeros();
        // Below `split` every value is a class of its own.
        if value < self.split as u64 {
            return value as usize;
        }
        let log = 63 - value.leading_zeros();
        let part = (value >> (log - bits)) as u32 & (self.split - 1);
        ((log - bits + 1) * self.split + part) as usize
    }

    /// Smallest value of a class.
    #[must_use]
    pub const fn floor(self, class: usize) -> u64 {
        let bits = self.split.trailing_zeros();
        let class = class as u64;
        let split = self.split as u64;
        if class < split {
            return class;
        }
        let log = class / split - 1 + bits as u64;
        let part = class % split;
        (1_u64 << log) | part << (log - bits as u64)
    }

    /// More than the class of any value.
    #[must_use]
    pub const fn classes(self) -> usize {
        self.class(u64::MAX) + 1
    }
}

/// Counts of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClassCount {
    /// Blocks.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Blocks that still live.
    pub live: u64,
}

impl ClassCount {
    /// Adds a block.
    #[inline]
    pub fn add(&mut self, bytes: u64, lives: bool) {
        self.count += 1;
        self.bytes += bytes;
        self.live += u64::from(lives);
    }

    /// Adds another class.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.live += other.live;
    }
}

/// The classes from the first to the last that holds something.
#[must_use]
pub fn document(scale: Scale, cells: &[ClassCount]) -> Histogram {
    let used = |cell: &ClassCount| cell.count > 0;
    let (Some(first), Some(last)) = (cells.iter().position(used), cells.iter().rposition(used)) else {
        return Histogram::default();
    };
    let cells = &cells[first..=last];
    Histogram {
        lower: (first..=last).map(|class| scale.floor(class)).collect(),
        count: cells.iter().map(|c| c.count).collect(),
        bytes: cells.iter().map(|c| c.bytes).collect(),
        live_count: cells.iter().map(|c| c.live).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_contiguous() {
        for split in [1, 2, 4] {
            let scale = Scale { split };
            for class in 1..scale.classes() {
                let floor = scale.floor(class);
                assert_eq!(scale.class(floor), class, "{split} {class}");
                assert_eq!(scale.class(floor - 1), class - 1, "{split} {class}");
            }
        }
    }
}
