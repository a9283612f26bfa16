//! `GET recordings/{id}/churn`: who allocates how often, and what reallocs move.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Amount, Exactness};

/// Allocations by function of the program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Churn {
    /// `heaptrace.churn/1`.
    pub schema: String,
    /// Start of the window.
    pub from_ns: u64,
    /// End of the window.
    pub to_ns: u64,
    /// Of all rows, those included that are not in the answer.
    pub total: ChurnSum,
    /// Rows before the limit.
    pub total_rows: u64,
    /// By the asked order, largest first.
    pub rows: Vec<ChurnRow>,
    /// How far the figures can be trusted.
    pub exactness: Exactness,
}

/// What happened in the window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChurnSum {
    /// Blocks that were allocated, those that realloc made included.
    pub allocations: Amount,
    /// Allocations a second of the window.
    pub allocations_per_second: f64,
    /// Of the allocations, those that were temporary.
    pub temporary: Amount,
    /// Reallocs that made one block of another.
    pub reallocs: u64,
    /// Of these, those that gave another address.
    pub moved: u64,
    /// What such blocks held, the smaller of both sizes: copied, unless the kernel moved the pages.
    pub moved_bytes: u64,
}

/// One function: the innermost of the program, as in the table of functions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChurnRow {
    /// Demangled function, or `0x…` in `module` if there is no symbol.
    pub function: String,
    /// Source file of its declaration.
    pub file: Option<String>,
    /// Line of `file`.
    pub line: Option<u32>,
    /// File name of its module.
    pub module: Option<String>,
    /// Its sums.
    #[serde(flatten)]
    pub sum: ChurnSum,
    /// The chain of reallocs that moved most, of those that ended here.
    pub longest: Option<ReallocChain>,
}

/// One block that realloc resized again and again inside the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReallocChain {
    /// Reallocs.
    pub reallocs: u64,
    /// Of these, those that gave another address.
    pub moved: u64,
    /// What was moved, all moves together.
    pub moved_bytes: u64,
    /// Size before the first.
    pub first_bytes: u64,
    /// Size behind the last.
    pub last_bytes: u64,
    /// When the last one was.
    pub last_ns: u64,
}
