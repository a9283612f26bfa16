//! Batch that the pairing passes to the sealer: a range of consecutive events as columns.

use super::checkpoint::Checkpoint;
use super::engine::OccupiedRun;
use tracehound_index::schema::{EventOrigin, EventPage, LateTemporary, OddAddress, OrphanRealloc, OtherEvent};

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
    pub free_class: Vec<u8>,
    /// Allocations: request contexts, see `engine::contexts`; empty as long as there is none.
    pub alloc_context: Vec<u32>,
    /// Frees: request contexts.
    pub free_context: Vec<u32>,
    /// Ids of request contexts seen first in this chunk.
    pub contexts: Vec<u64>,
    /// Full words of one bit an event, 1 = free.
    pub order: Vec<u64>,
    /// Pages with live blocks, for each full word.
    pub occupied: Vec<OccupiedRun>,
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
    /// Allocations whose address does not fit its column.
    pub odd: Vec<OddAddress>,
    /// Reallocs whose old block was not seen.
    pub orphans: Vec<OrphanRealloc>,
    /// Temporary blocks allocated in the open bucket: origin and size.
    pub temporary: Vec<(u32, u64)>,
    /// Temporary blocks allocated in a closed bucket.
    pub late: Vec<LateTemporary>,
    /// Other events.
    pub others: Vec<OtherEvent>,
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
            free_class,
            alloc_context,
            free_context,
            contexts,
            order,
            occupied,
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
        alloc_context.clear();
        free_context.clear();
        contexts.clear();
        free_row.clear();
        free_alloc_origin.clear();
        alloc_address_high.clear();
        free_size.clear();
        free_class.clear();
        order.clear();
        occupied.clear();
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
