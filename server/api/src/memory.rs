//! `GET recordings/{id}/memory`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ledger::MemoryLedger;
use super::{Amount, Exactness, Frame};

/// Where the process's memory was at one moment: what the program had asked for, what was mapped and by whom, and how
/// well the pages with live blocks are filled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Memory {
    /// `heaptrace.memory/2`.
    pub schema: String,
    /// The moment.
    pub at_ns: u64,
    /// What resident memory was, in rows that add up to it; none where resident memory is not known.
    #[serde(flatten)]
    pub ledger: Option<MemoryLedger>,
    /// The last memory sample up to then.
    pub sample: Option<Sample>,
    /// The last look at the kernel's kinds of memory up to then, where there is one.
    pub kernel: Option<KernelKinds>,
    /// Live blocks: what the program had asked for.
    pub live: Amount,
    /// Pages that hold a part of a live block.
    pub pages: Pages,
    /// Address space that was mapped: `mmap`, `mremap` and the program break, what was there before included.
    pub mapped_bytes: u64,
    /// Largest mapped address space up to then.
    pub mapped_peak_bytes: u64,
    /// Who mapped it, most bytes first.
    pub mappers: Vec<Mapper>,
    /// How far the figures can be trusted.
    pub exactness: Exactness,
}

/// Memory of the process as the kernel tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Sample {
    /// When it was taken.
    pub t_ns: u64,
    /// Resident set.
    pub rss_bytes: u64,
    /// Of it anonymous: heap and stacks.
    pub rss_anonymous_bytes: u64,
    /// Address space.
    pub virtual_bytes: u64,
}

/// Resident memory by the kernel's kinds (`smaps_rollup`), the recorder's own included. They are looked at more seldom than
/// the resident set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KernelKinds {
    /// When the kernel was asked.
    pub t_ns: u64,
    /// Resident set.
    pub rss_bytes: u64,
    /// The process's share of it: pages that others use, too, count in parts.
    pub pss_bytes: u64,
    /// Of no file: heap, stacks.
    pub anonymous_bytes: u64,
    /// Of the anonymous part in huge pages: a few live bytes can hold two megabytes.
    pub anonymous_huge_bytes: u64,
    /// Given back with `MADV_FREE` and still resident, until the kernel needs it.
    pub lazy_free_bytes: u64,
    /// This process's alone and changed.
    pub private_dirty_bytes: u64,
    /// This process's alone and as the file has it.
    pub private_clean_bytes: u64,
    /// Mapped by others, too: libraries, shared memory.
    pub shared_bytes: u64,
    /// Swapped out: not resident, but in use.
    pub swap_bytes: u64,
    /// Locked.
    pub locked_bytes: u64,
}

/// Pages with live blocks. What they hold beside the blocks can serve later requests, but cannot be given back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pages {
    /// Size of a page.
    pub page_bytes: u64,
    /// How many there are.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of these the bytes of live blocks; blocks of pools inside other blocks count once.
    pub used_bytes: u64,
    /// Pages by how full they are: ten classes, the first up to a tenth.
    pub by_tenths: Vec<u64>,
}

/// A backtrace that mapped address space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Mapper {
    /// Address space that it mapped and that was still mapped.
    pub mapped_bytes: u64,
    /// In so many pieces.
    pub mappings: u64,
    /// The backtrace, leaf first; empty for what was there before recording began, and where none was recorded.
    pub stack: Vec<Frame>,
}
