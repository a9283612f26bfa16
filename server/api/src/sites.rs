//! `GET recordings/{id}/sites` and `…/sites/{site}`: allocating backtraces.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::histograms::Histogram;
use super::leaks::Verdict;
use super::timeline::Timeline;
use super::{Amount, Exactness, Frame};

/// A page of sites.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Sites {
    /// `heaptrace.sites/1`.
    pub schema: String,
    /// Start of the window.
    pub from_ns: u64,
    /// End of the window.
    pub to_ns: u64,
    /// Sites with an event in the window that pass the filter, of which `sites` is a part.
    pub total_sites: u64,
    /// In the order that was asked for.
    pub sites: Vec<SiteRow>,
    /// How far the figures can be trusted.
    pub exactness: Exactness,
}

/// One allocating backtrace, for a window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SiteRow {
    /// Handle, `s12`.
    pub id: String,
    /// The program's function: the innermost one that has a name and is neither a standard library's nor a wrapper of
    /// the allocator; else the best that there is.
    pub function: Option<String>,
    /// Source file of that function's frame.
    pub file: Option<String>,
    /// Line of that function's frame.
    pub line: Option<u32>,
    /// Module of that function's frame.
    pub module: Option<String>,
    /// Where that frame is in the file of its module, `0x…`, if it has no function.
    pub offset: Option<String>,
    /// The nearest function above it that is no library's, or the offset of its frame.
    pub called_from: Option<String>,
    /// Allocated in the window.
    pub allocated: Amount,
    /// Freed in the window.
    pub freed: Amount,
    /// Live at the end of the window.
    pub live: Amount,
    /// Allocated in the window and live at the end of the recording.
    pub leaked: Amount,
    /// Live at the moment of the peak.
    pub at_peak: Amount,
    /// Allocated in the window and temporary.
    pub temporary: Amount,
    /// How long the blocks lived that were allocated in the window.
    pub lifetimes: Quantiles,
    /// Live bytes at 32 equally spaced instants of the window, the last at its end.
    pub trend: Vec<u64>,
}

/// Everything about one site, for a window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Site {
    /// `heaptrace.site/1`.
    pub schema: String,
    /// The row of the site in the list.
    pub row: SiteRow,
    /// Leaf first.
    pub stack: Vec<Frame>,
    /// Its live bytes and rates over the window.
    pub timeline: Timeline,
    /// Sizes of the blocks allocated in the window.
    pub sizes: Histogram,
    /// Lifetimes of the blocks allocated in the window.
    pub lifetimes: Histogram,
    /// Quantiles of the lifetimes.
    pub lifetime_quantiles: Quantiles,
    /// Who frees its blocks, most bytes first.
    pub freed_by: Vec<FreeSite>,
    /// What its history says.
    pub verdict: Verdict,
    /// How far the figures can be trusted.
    pub exactness: Exactness,
}

/// Lifetimes in nanoseconds; blocks that are still live count as living until the end of the recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Quantiles {
    /// Smallest.
    pub min_ns: u64,
    /// A tenth lives no longer.
    pub p10_ns: u64,
    /// Half lives no longer.
    pub p50_ns: u64,
    /// Nine tenths live no longer.
    pub p90_ns: u64,
    /// Largest.
    pub max_ns: u64,
    /// Blocks whose end was not seen.
    pub censored: u64,
}

/// A backtrace that frees blocks of a site.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FreeSite {
    /// Blocks and bytes that it freed.
    pub amount: Amount,
    /// Of them freed by the thread that allocated them.
    pub same_thread: Amount,
    /// Leaf first; empty when frees were recorded without stacks.
    pub stack: Vec<Frame>,
}
