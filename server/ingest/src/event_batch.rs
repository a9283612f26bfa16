//! What the pairing hands to the sealer: a range of consecutive events as columns.

use super::checkpoint::Checkpoint;
use tracehound_index::layout::{EventOrigin, EventPage};

/// An event that is neither an allocation nor the free of a seen block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Other {
    /// Allocations and frees before it.
    pub position: u64,
    /// When.
    pub t_ns: u64,
    /// Position in the list of threads.
    pub thread: u32,
    /// Kind number.
    pub kind: u8,
    /// Call-tree node.
    pub node: u32,
    /// Address, new break, ordinal of a mark, number of lost records.
    pub a: u64,
    /// Length, bytes moved, pid.
    pub b: u64,
    /// Old address, or `prot | flags << 32`.
    pub c: u64,
    /// Old length, or file descriptor.
    pub d: u64,
}

/// Resident memory and the like at an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryReading {
    /// When.
    pub t_ns: u64,
    /// Resident set.
    pub rss: u64,
    /// Of it anonymous.
    pub rss_anonymous: u64,
    /// Address space.
    pub virtual_size: u64,
    /// Of the resident set the recorder's.
    pub recorder: u64,
}

/// A range of consecutive events.
#[derive(Debug, Default)]
pub struct EventBatch {
    /// Allocations before the chunk.
    pub first_alloc: u64,
    /// Frees before the chunk.
    pub first_free: u64,
    /// Allocations: nanoseconds since their page's time.
    pub alloc_time: Vec<u32>,
    /// Allocations: sizes, the largest number where they do not fit.
    pub alloc_size: Vec<u32>,
    /// Allocations: origins.
    pub alloc_origin: Vec<u32>,
    /// Allocations: low 32 bits of the address.
    pub alloc_address: Vec<u32>,
    /// Allocations: next 16 bits of the address, or [`tracehound_index::layout::ODD_ADDRESS`].
    pub alloc_address_high: Vec<u16>,
    /// Frees: nanoseconds since their page's time.
    pub free_time: Vec<u32>,
    /// Frees: row of the allocation.
    pub free_row: Vec<u64>,
    /// Frees: origins.
    pub free_origin: Vec<u32>,
    /// Frees: origin of the allocation (for the sums only).
    pub free_alloc_origin: Vec<u32>,
    /// Frees: size of the block.
    pub free_size: Vec<u64>,
    /// Frees: class of the lifetime and whether the block was temporary, for the ledger of allocations.
    pub free_fate: Vec<u8>,
    /// Full words of one bit an event, 1 = free.
    pub order: Vec<u64>,
    /// Index of the first word.
    pub order_first: u64,
    /// Pages closed in this chunk.
    pub pages: Vec<EventPage>,
    /// Origins seen first in this chunk.
    pub origins: Vec<EventOrigin>,
    /// Nodes of the sites seen first in this chunk.
    pub sites: Vec<u32>,
    /// Sizes of allocations too large for their column.
    pub large: Vec<u64>,
    /// Row and address of allocations that do not fit their columns.
    pub odd: Vec<(u64, u64)>,
    /// Row and old address of reallocs whose old block was not seen.
    pub orphans: Vec<(u64, u64)>,
    /// Temporary blocks allocated in the open bucket: origin and size.
    pub temporary: Vec<(u32, u64)>,
    /// Temporary blocks allocated in a closed bucket: row, origin, size.
    pub late: Vec<(u64, u32, u64)>,
    /// Other events.
    pub others: Vec<Other>,
    /// The open bucket ends with this chunk.
    pub ends_bucket: bool,
    /// What a later run needs to go on behind this chunk.
    pub checkpoint: Option<Box<Checkpoint>>,
}

impl EventBatch {
    /// Allocations and frees in the chunk.
    #[must_use]
    pub fn events(&self) -> u64 {
        (self.alloc_time.len() + self.free_time.len()) as u64
    }

    /// Takes everything out and keeps the memory.
    pub fn clear(&mut self) {
        let Self {
            first_alloc: _,
            first_free: _,
            alloc_time,
            alloc_size,
            alloc_origin,
            alloc_address,
            alloc_address_high,
            free_time,
            free_row,
            free_origin,
            free_alloc_origin,
            free_size,
            free_fate,
            order,
            order_first: _,
            pages,
            origins,
            sites,
            large,
            odd,
            orphans,
            temporary,
            late,
            others,
            ends_bucket,
            checkpoint,
        } = self;
        for column in [alloc_time, alloc_size, alloc_origin, alloc_address, free_time, free_origin] {
            column.clear();
        }
        free_row.clear();
        free_alloc_origin.clear();
        alloc_address_high.clear();
        free_size.clear();
        free_fate.clear();
        order.clear();
        pages.clear();
        origins.clear();
        sites.clear();
        large.clear();
        odd.clear();
        orphans.clear();
        temporary.clear();
        late.clear();
        others.clear();
        *ends_bucket = false;
        *checkpoint = None;
    }

    /// Whether there is nothing to store.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events() == 0 && self.others.is_empty() && self.origins.is_empty() && self.pages.is_empty()
    }
}
