//! The ledger of resident memory: a part of `GET recordings/{id}/memory`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What resident memory was, in rows that add up to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MemoryLedger {
    /// When the recorder looked at the pages; none where it has not: then the rows are estimates.
    pub look_ns: Option<u64>,
    /// Resident memory: the sum of the rows.
    pub rss_bytes: u64,
    /// All rows but `unexplained`.
    pub explained_bytes: u64,
    /// The row `live`.
    pub live_bytes: u64,
    /// Blocks that were live at that look, those from before the recording that are known and those never touched included.
    pub live_count: u64,
    /// Whether all blocks that were live then are known: where not, `free_pages` and `free_top` may hold some from before the
    /// recording, or from when it was off.
    pub knows_all_blocks: bool,
    /// What `malloc_trim(0)` would give back; none where it is not known: for other allocators than glibc.
    pub returnable_by_trim_bytes: Option<u64>,
    /// The allocator whose rules were used.
    pub allocator: String,
    /// Why memory stays, in one sentence.
    pub why: String,
    /// The parts.
    pub rows: Vec<LedgerRow>,
    /// What is not a part of resident memory and belongs to the picture.
    pub beside: Vec<BesideRow>,
}

/// How a row was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Counted.
    #[default]
    Exact,
    /// By rules of the allocator, or by how mappings lie.
    Modelled,
}

/// A part of resident memory. Bytes of resident pages.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct LedgerRow {
    /// `live`, `rounding`, `holes`, `free_pages`, `free_top`, `allocator_metadata`, `stacks`, `mappings`, `runtime_heaps`,
    /// `modules`, `files`, `recorder`, `other`, `unexplained`; of a child what it is: `heap`, `thread`, `site`, `module`,
    /// `file`, `rest`.
    pub key: String,
    /// Of a child: its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Bytes.
    pub bytes: u64,
    /// How they were found.
    pub basis: Basis,
    /// What it consists of, most bytes first.
    #[schema(no_recursion)]
    pub children: Vec<LedgerRow>,
}

/// A figure beside resident memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BesideRow {
    /// `swapped`, `live_untouched`, `free_not_resident`, `lazy_free`, `huge_pages`, `page_tables`, `cgroup_…`.
    pub key: String,
    /// Bytes.
    pub bytes: u64,
}

/// `GET recordings/{id}/memory_history`: the ledger at several looks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MemoryHistory {
    /// `heaptrace.memory_history/1`.
    pub schema: String,
    /// Looks in the window, of which `t_ns` is a part.
    pub total_looks: u64,
    /// When the looks were, in order.
    pub t_ns: Vec<u64>,
    /// Resident memory at each look: the sum of the rows.
    pub rss_bytes: Vec<u64>,
    /// The rows of the ledger that are not empty at every look, in its order.
    pub rows: Vec<HistoryRow>,
    /// How far the figures can be trusted.
    pub exactness: super::Exactness,
}

/// A row of the ledger over time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistoryRow {
    /// As in the ledger.
    pub key: String,
    /// How it was found; `modelled` if it was at one look.
    pub basis: Basis,
    /// Bytes at each look.
    pub bytes: Vec<u64>,
}
