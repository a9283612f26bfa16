//! Constants that ingest and queries agree on.

use super::links;

/// The site of an origin that allocates nothing.
pub const NO_SITE: u32 = u32::MAX;

/// Granularity of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Granularity {
    /// Events between two rows of the page table.
    pub page_events: u64,
    /// Events after which a bucket is closed at the next page.
    pub bucket_events: u64,
    /// Events after which ingest hands a chunk over, at the next page.
    pub chunk_events: u64,
    /// Distinct larger sizes that get a code.
    pub table_sizes: u16,
    /// Allocations, or frees, of a run that has a zone of its own.
    pub zone_rows: u64,
    /// Allocations and frees that are farther apart are far, see `trace::links`.
    pub reach: u64,
}

impl Default for Granularity {
    fn default() -> Self {
        Self {
            page_events: 1024,
            bucket_events: 256 << 10,
            chunk_events: 32 << 10,
            table_sizes: LARGE_SIZE - TABLE_SIZE,
            zone_rows: 4096,
            reach: links::REACH,
        }
    }
}

/// Codes of sizes take two bytes: below this number they are the size itself, from it on places in the table of larger
/// sizes, of which most programs have few.
pub const TABLE_SIZE: u16 = 0xC000;
/// A larger size for which the table had no room: it is in a column of its own.
pub const LARGE_SIZE: u16 = u16::MAX;
/// Upper 16 bits of an address whose full value is in a column of its own.
pub const ODD_ADDRESS: u16 = u16::MAX;

/// The low seven bits of a lifetime class: 0 = live, else 1 + class of the lifetime.
pub const CLASS_BITS: u8 = 0x7f;
/// The block was temporary.
pub const TEMPORARY_BIT: u8 = 0x80;

/// Class of a lifetime: two for every power of two of nanoseconds, 0 to 126.
#[inline]
#[must_use]
pub const fn lifetime_class(ns: u64) -> u8 {
    if ns < 2 {
        return 0;
    }
    let log = 63 - ns.leading_zeros();
    let half = (ns >> (log - 1) & 1) as u32;
    let class = 2 * log + half;
    if class > 126 { 126 } else { class as u8 }
}

/// Smallest lifetime of a class.
#[must_use]
pub const fn class_floor(class: u8) -> u64 {
    let (log, half) = (class as u32 / 2, class as u64 % 2);
    if log == 0 { if half == 0 { 0 } else { 2 } } else { (1 << log) | half << (log - 1) }
}

/// Fields of the sums by site.
pub mod field {
    /// Allocated in the bucket.
    pub const ALLOCATED: usize = 0;
    /// Freed in the bucket.
    pub const FREED: usize = 1;
    /// Allocated in the bucket and temporary, as far as that was known when it was closed.
    pub const TEMPORARY: usize = 2;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_ordered_and_closed() {
        let mut last = 0;
        for ns in (0..5000).chain((12..64).flat_map(|b| [(1_u64 << b) - 1, 1 << b, (1 << b) + (1 << (b - 1))])) {
            let class = lifetime_class(ns);
            assert!(class >= last || ns < 5000, "{ns}");
            last = class;
            assert!(class_floor(class) <= ns);
            assert!(class >= 126 || class_floor(class + 1) > ns || class == 0 && ns < 2, "{ns} {class}");
        }
    }
}
