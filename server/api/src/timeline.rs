//! `GET recordings/{id}/timeline`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::info::{Capture, Mark, Peak};
use super::{Exactness, PeakOf};

/// Time series over a window, in equal columns of time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Timeline {
    /// `heaptrace.timeline/1`.
    pub schema: String,
    /// Start of the window.
    pub from_ns: u64,
    /// End of the window.
    pub to_ns: u64,
    /// Start of each column; column `i` covers `[t_ns[i], t_ns[i + 1])`, the last one ends at `to_ns`.
    pub t_ns: Vec<u64>,
    /// The time series that were asked for.
    pub series: Vec<Series>,
    /// Marks inside the window.
    pub marks: Vec<Mark>,
    /// Captures that overlap the window.
    pub captures: Vec<Capture>,
    /// Peak of live bytes inside the window; under a filter, of the bytes that pass it.
    pub peak: Peak,
    /// Whose peak that is.
    pub peak_of: PeakOf,
    /// How far the figures can be trusted.
    pub exactness: Exactness,
}

/// One time series: smallest, largest and last value of each column. Columns without a sample hold `null`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Series {
    /// Which.
    pub name: SeriesName,
    /// For `thread_rate`: which thread.
    pub thread: Option<u32>,
    /// Smallest value in the column.
    pub min: Vec<Option<f64>>,
    /// Largest value in the column.
    pub max: Vec<Option<f64>>,
    /// Value at the end of the column.
    pub last: Vec<Option<f64>>,
}

/// Time series that can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SeriesName {
    /// Live bytes.
    LiveBytes,
    /// Live blocks.
    LiveCount,
    /// Allocations a second (the average over the column in all three arrays).
    AllocRate,
    /// Frees a second.
    FreeRate,
    /// Allocated bytes a second.
    AllocBytesRate,
    /// Bytes of the pages, of 4,096 bytes, that hold a live block: between live bytes and resident memory. Of the whole
    /// heap, whatever the filter; at the borders of columns exact to 64 events.
    OccupiedBytes,
    /// Resident set, sampled.
    Rss,
    /// The same without the recorder's own part, by the recorder's estimate from above at each sample.
    RssProgram,
    /// Resident anonymous memory, sampled.
    RssAnonymous,
    /// Address space, sampled.
    VirtualSize,
    /// Address space that the program has mapped: `mmap`, `mremap`, the program break, and what was there before.
    MappedBytes,
    /// Allocations a second of each thread, one series a thread.
    ThreadRate,
}
