//! Queries over a recording: pure functions `(trace, symbols, parameters) → document`, one file each.
//!
//! ```text
//! window (times → positions)    filter (texts → selection of sites, threads, rows)
//!            └──────────── sums (per site or thread) ────────────┘
//!   flamegraph · functions · sites · leaks · diff        timeline · allocations · sizes · lifetimes · threads
//! ```
//! Whole buckets are answered by their sums, the two edges by rows; conditions on rows (size, lifetime, thread) scan
//! the columns in parallel.

pub mod across;
pub mod allocations;
pub mod amounts;
pub mod breakdown;
pub mod churn;
pub mod classes;
pub mod compare;
pub mod contexts;
pub mod diff;
pub mod diff_flamegraph;
pub mod filter;
mod filter_functions;
pub mod flamegraph;
pub mod freeing;
pub mod functions;
pub mod heap_map;
pub mod histogram;
pub mod info;
pub mod leaks;
pub mod ledger;
mod lifetime_filter;
pub mod lifetimes;
pub mod live_blocks;
pub mod live_changes;
mod median_lifetimes;
pub mod memory;
pub mod node_sums;
pub mod own_frames;
pub mod pins;
mod place_set;
pub mod pruned;
pub mod replay_basis;
pub mod replays;
pub mod scan;
pub mod site_order;
pub mod sites;
pub mod size_classes;
pub mod sizes;
pub mod sorting;
pub mod source;
pub mod sparse_selection;
pub mod stack_view;
pub mod stacks;
pub mod statistics;
mod subtree_sums;
pub mod suppress;
pub mod threads;
pub mod timeline;
pub mod transform;
pub mod trend;
pub mod value_tree;
pub mod verdict;
pub mod window;
pub mod zone_pruning;

pub use filter::{AddressRange, ContextFilter, Filter, LifetimeKind, ThreadFilter};
pub use window::{TimeExpr, Window, parse_duration, parse_size};

use tracehound_index::Cancelled;

/// Error of a query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// A parameter cannot be understood or does not fit the recording.
    #[error("{parameter}: {why}")]
    BadParameter {
        /// Its name, as in the URL.
        parameter: String,
        /// What is wrong with it, and what is accepted.
        why: String,
    },
    /// What was asked about is not in the recording.
    #[error("{what} is not in this recording")]
    NotFound {
        /// What was asked about.
        what: String,
    },
    /// What does not fit in memory cannot be put on the disk.
    #[error("a temporary file cannot be written or read: {why}")]
    Scratch {
        /// What the system said.
        why: String,
    },
    /// Stopped from outside.
    #[error("cancelled")]
    Cancelled,
}

/// Refuses what is about addresses where the recording has none: those of an import number its blocks.
///
/// # Errors
/// When the recording was made by a tool that keeps no addresses.
pub fn need_addresses(trace: &tracehound_index::Trace) -> Result<()> {
    match trace.imported_from() {
        None => Ok(()),
        Some(tool) => Err(QueryError::NotFound {
            what: format!("where blocks lie in memory (it was imported from {tool}, which keeps no addresses)"),
        }),
    }
}

impl QueryError {
    /// The same of another parameter, in which the one at hand was given.
    #[must_use]
    pub fn of_parameter(self, name: &str) -> Self {
        match self {
            Self::BadParameter { why, .. } => Self::BadParameter { parameter: name.to_owned(), why },
            other => other,
        }
    }

    /// A bad parameter.
    #[must_use]
    pub fn bad(parameter: &str, why: impl Into<String>) -> Self {
        Self::BadParameter { parameter: parameter.into(), why: why.into() }
    }
}

impl From<Cancelled> for QueryError {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

/// Shorthand for results of queries.
pub type Result<T> = std::result::Result<T, QueryError>;

/// Handle of a site, as documents have it.
#[must_use]
pub fn site_handle(site: u32) -> String {
    format!("s{site}")
}

/// The site behind a handle.
///
/// # Errors
/// When it is no handle of a site.
pub fn parse_site(parameter: &str, handle: &str) -> Result<u32> {
    let number = handle.strip_prefix('s').and_then(|n| n.parse().ok());
    number.ok_or_else(|| QueryError::bad(parameter, format!("`{handle}` is no site; sites look like `s12`")))
}
