//! What the pairing hands to the sealer: a stretch of consecutive events as columns.

use super::checkpoint::Checkpoint;
use crate::trace::layout::{Origin, Page};

/// An event that is neither a birth nor the death of a seen block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Other {
    /// Births and deaths before it.
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
pub struct Sample {
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

/// A stretch of consecutive events.
#[derive(Debug, Default)]
pub struct Chunk {
    /// Births before the chunk.
    pub first_birth: u64,
    /// Deaths before the chunk.
    pub first_death: u64,
    /// Births: nanoseconds since their page's time.
    pub birth_time: Vec<u32>,
    /// Births: sizes, the largest number where they do not fit.
    pub birth_size: Vec<u32>,
    /// Births: origins.
    pub birth_origin: Vec<u32>,
    /// Births: low 32 bits of the address.
    pub birth_address: Vec<u32>,
    /// Births: next 16 bits of the address, or [`crate::trace::layout::ODD_ADDRESS`].
    pub birth_address_high: Vec<u16>,
    /// Deaths: nanoseconds since their page's time.
    pub death_time: Vec<u32>,
    /// Deaths: row of the birth.
    pub death_row: Vec<u64>,
    /// Deaths: origins.
    pub death_origin: Vec<u32>,
    /// Deaths: origin of the birth (for the sums only).
    pub death_birth_origin: Vec<u32>,
    /// Deaths: size of the block.
    pub death_size: Vec<u64>,
    /// Deaths: class of the lifetime and whether the block was temporary, for the ledger of births.
    pub death_fate: Vec<u8>,
    /// Full words of one bit an event, 1 = death.
    pub order: Vec<u64>,
    /// Index of the first word.
    pub order_first: u64,
    /// Pages closed in this chunk.
    pub pages: Vec<Page>,
    /// Origins seen first in this chunk.
    pub origins: Vec<Origin>,
    /// Nodes of the sites seen first in this chunk.
    pub sites: Vec<u32>,
    /// Sizes of births too large for their column.
    pub large: Vec<u64>,
    /// Row and address of births that do not fit their columns.
    pub odd: Vec<(u64, u64)>,
    /// Row and old address of reallocs whose old block was not seen.
    pub orphans: Vec<(u64, u64)>,
    /// Temporary blocks born in the open bucket: origin and size.
    pub temporary: Vec<(u32, u64)>,
    /// Temporary blocks born in a closed bucket: row, origin, size.
    pub late: Vec<(u64, u32, u64)>,
    /// Other events.
    pub others: Vec<Other>,
    /// The open bucket ends with this chunk.
    pub ends_bucket: bool,
    /// What a later run needs to go on behind this chunk.
    pub checkpoint: Option<Box<Checkpoint>>,
}

impl Chunk {
    /// Births and deaths in the chunk.
    #[must_use]
    pub fn events(&self) -> u64 {
        (self.birth_time.len() + self.death_time.len()) as u64
    }

    /// Takes everything out and keeps the memory.
    pub fn clear(&mut self) {
        let Self {
            first_birth: _,
            first_death: _,
            birth_time,
            birth_size,
            birth_origin,
            birth_address,
            birth_address_high,
            death_time,
            death_row,
            death_origin,
            death_birth_origin,
            death_size,
            death_fate,
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
        for column in [birth_time, birth_size, birth_origin, birth_address, death_time, death_origin] {
            column.clear();
        }
        death_row.clear();
        death_birth_origin.clear();
        birth_address_high.clear();
        death_size.clear();
        death_fate.clear();
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
