//! `GET recordings/{id}/map`, `heaptrace map`: the heap by address and time.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Exactness, Frame};

/// What of the address space was occupied when, by which site, and what of it was in memory.
///
/// A row is an aligned range of addresses that a block reaches into at one of the moments; a column is a moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeapMap {
    /// `heaptrace.map/1`.
    pub schema: String,
    /// Start of the window.
    pub from_ns: u64,
    /// End of the window.
    pub to_ns: u64,
    /// The moments, equally spaced, the last at the end of the window.
    pub t_ns: Vec<u64>,
    /// For each moment: when the recorder looked at the pages that `resident` is from. Empty where it never has.
    pub look_ns: Vec<u64>,
    /// Bytes of addresses of a row: a power of two, the least with which the rows are as few as was asked for.
    pub row_bytes: u64,
    /// First address of each row, ascending; between two that are not neighbours no block is.
    pub addresses: Vec<u64>,
    /// Requested bytes of live blocks, by row and moment. Blocks of a pool lie in other blocks and do not count.
    pub occupied: Vec<Vec<u64>>,
    /// Bytes in memory, by row and moment. Empty where the recorder has not looked at the pages.
    pub resident: Vec<Vec<u64>>,
    /// The site that has most bytes, as a position in `sites`, by row and moment; none where nothing is live, or for a
    /// site that is not listed.
    pub dominant: Vec<Vec<Option<u32>>>,
    /// Sites that have most bytes of a row at a moment, those of most such cells first.
    pub sites: Vec<MapSite>,
    /// How many such sites there are.
    pub total_sites: u64,
    /// How far the figures can be trusted.
    pub exactness: Exactness,
}

/// A site that has most bytes somewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MapSite {
    /// Handle of the site.
    pub id: String,
    /// The program's function that allocated.
    pub function: Option<String>,
    /// Its source file.
    pub file: Option<String>,
    /// Its line.
    pub line: Option<u32>,
    /// Its module.
    pub module: Option<String>,
    /// Where another site is the same function at the same line: the innermost frame by which its backtrace differs from
    /// those of all such sites in the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<Frame>,
    /// Rows and moments in which it has most bytes.
    pub cells: u64,
}
