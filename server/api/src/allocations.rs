//! `GET recordings/{id}/allocations`: every block, in pages.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Exactness, Frame};

/// A page of blocks allocated in the window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Allocations {
    /// `heaptrace.allocations/1`.
    pub schema: String,
    /// Start of the window.
    pub from_ns: u64,
    /// End of the window.
    pub to_ns: u64,
    /// Blocks that pass the filter, of which `allocations` is a part.
    pub total: u64,
    /// In the order that was asked for.
    pub allocations: Vec<Allocation>,
    /// Give it as `cursor=` for the next page; `null` on the last.
    pub next_cursor: Option<String>,
    /// How far the figures can be trusted.
    pub exactness: Exactness,
}

/// One block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Allocation {
    /// Position among all allocations, from 0.
    pub index: u64,
    /// `0x…`.
    pub address: String,
    /// Requested bytes.
    pub size: u64,
    /// Allocation function that was called.
    pub function: String,
    /// Allocation.
    pub born_ns: u64,
    /// Free; `null` while it lives.
    pub died_ns: Option<u64>,
    /// Thread that allocated it.
    pub thread: u32,
    /// Thread that freed it.
    pub free_thread: Option<u32>,
    /// Handle of its site, `s12`.
    pub site: String,
    /// Leaf first.
    pub stack: Vec<Frame>,
    /// Leaf first; empty while it lives or when frees were recorded without stacks.
    pub free_stack: Vec<Frame>,
    /// The block that realloc made it from.
    pub previous: Option<u64>,
    /// The block that realloc made of it.
    pub next: Option<u64>,
}
