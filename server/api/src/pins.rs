//! `GET recordings/{id}/pins`, `heaptrace pins`: whose blocks hold pages that would be given back without them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Exactness;
use super::ledger::Basis;

/// Pages with live blocks, and whose they are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Pins {
    /// `heaptrace.pins/1`.
    pub schema: String,
    /// The moment.
    pub at_ns: u64,
    /// When the recorder looked at the pages; none where it has not: then all pages with live blocks count as resident.
    pub look_ns: Option<u64>,
    /// Size of a page; of `2M` that of a huge page.
    pub page_bytes: u64,
    /// What is given back as a whole.
    pub unit: PinUnit,
    /// Whether it is known where such units begin and end.
    pub unit_basis: Basis,
    /// What a unit is, in sentences; empty for `4k`.
    pub unit_words: String,
    /// What a row is.
    pub by: PinGroup,
    /// Whether the pages were counted.
    pub basis: Basis,
    /// Resident pages with live blocks; of `slab` the resident pages of slabs with live blocks.
    pub pages: PinnedPages,
    /// Resident pages of 4 KiB with live blocks that are left out: of `2M` those in ranges that are not wholly resident.
    pub outside: PinnedPages,
    /// Rows that exist, of which `rows` is a part.
    pub total_rows: u64,
    /// Rows, what gives most back first; functions of libraries come behind the program's, and those that hold nearly all
    /// pages, such as `main`, last.
    pub rows: Vec<PinRow>,
    /// Two functions that hold pages together which neither holds alone, most bytes first.
    pub pairs: Vec<PinPair>,
    /// How far the figures can be trusted.
    pub exactness: Exactness,
}

/// What a row of pins is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PinGroup {
    /// A function anywhere on the backtrace.
    #[default]
    Function,
    /// An allocating backtrace.
    Site,
    /// Blocks by how long they had lived.
    Age,
    /// The allocating thread.
    Thread,
}

/// Memory that is given back as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema)]
pub enum PinUnit {
    /// The kernel's page: 4 KiB on x86-64.
    #[default]
    #[serde(rename = "4k")]
    Page,
    /// A huge page: 2 MiB, wholly resident.
    #[serde(rename = "2M")]
    Huge,
    /// What the allocator gives back as a whole: of jemalloc a slab, of tcmalloc a span, of mimalloc a page, of glibc the
    /// kernel's page.
    #[serde(rename = "slab")]
    Slab,
}

/// Resident pages with live blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct PinnedPages {
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Requested bytes of live blocks in them.
    pub live_bytes: u64,
}

/// Blocks of one function, site, age or thread.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct PinRow {
    /// Name of the function; of the innermost function of the site; the thread; the age in words.
    pub function: String,
    /// Source file, where there is one.
    pub file: Option<String>,
    /// Its line.
    pub line: Option<u32>,
    /// Of a function: of a standard library, or one that only hands out memory under another name.
    #[serde(default)]
    #[schema(required = true)]
    pub library: bool,
    /// Handle of a site, id of a thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What resident memory would shrink by if these blocks were elsewhere: the pages that only they hold, less the bytes that
    /// they would take elsewhere. Never below 0.
    pub given_back_bytes: u64,
    /// Bytes of the blocks in resident pages, with what the allocator adds.
    pub own_bytes: u64,
    /// Pages that only they hold.
    pub pages: u64,
    /// Blocks.
    pub blocks: u64,
    /// Allocation of the oldest block.
    pub born_first_ns: u64,
    /// Allocation of the youngest one.
    pub born_last_ns: u64,
}

/// Two functions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PinPair {
    /// Both, by name.
    pub functions: Vec<String>,
    /// What resident memory would shrink by if the blocks of both were elsewhere.
    pub given_back_bytes: u64,
    /// Of these, pages that neither holds alone.
    pub shared_pages: u64,
}
