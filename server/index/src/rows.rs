//! Rows: allocations with their frees, and the details of each.

use tracehound_format::record::Kind;

use super::Trace;
use super::layout::{LARGE_SIZE, ODD_ADDRESS, TABLE_SIZE, TEMPORARY_BIT};
use super::links::NOTHING;

/// One block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocRow {
    /// Position among all allocations.
    pub row: u64,
    /// When it was allocated.
    pub born_ns: u64,
    /// Where.
    pub address: u64,
    /// Requested bytes.
    pub size: u64,
    /// Call-tree node of the caller.
    pub node: u32,
    /// Position of the allocating thread.
    pub thread: u32,
    /// Kind number of the function.
    pub kind: u8,
    /// Site.
    pub site: u32,
    /// It was temporary.
    pub is_temporary: bool,
    /// Its free, if it was freed.
    pub free: Option<Free>,
    /// The block that realloc made it from.
    pub previous: Option<u64>,
    /// The block that realloc made of it.
    pub next: Option<u64>,
}

/// The end of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Free {
    /// Position among all frees.
    pub ordinal: u64,
    /// When.
    pub died_ns: u64,
    /// Call-tree node of the caller; 0 = not recorded.
    pub node: u32,
    /// Position of the freeing thread.
    pub thread: u32,
    /// Kind number of the function.
    pub kind: u8,
}

impl Trace {
    /// Allocations in the snapshot.
    #[must_use]
    pub fn alloc_count(&self) -> u64 {
        self.columns().alloc_time.len() as u64
    }

    /// Frees of seen allocations in the snapshot.
    #[must_use]
    pub fn free_count(&self) -> u64 {
        self.columns().free_time.len() as u64
    }

    /// When a block was allocated.
    #[must_use]
    pub fn born_ns(&self, row: u64) -> u64 {
        let base = self.page_of_alloc(row).map_or(0, |i| self.page(i).time_ns);
        base + self.columns().alloc_time.get(row as usize).map_or(0, |&t| u64::from(t))
    }

    /// When a free happened.
    #[must_use]
    pub fn died_ns(&self, ordinal: u64) -> u64 {
        let base = self.page_of_free(ordinal).map_or(0, |i| self.page(i).time_ns);
        base + self.columns().free_time.get(ordinal as usize).map_or(0, |&t| u64::from(t))
    }

    /// Ordinal of the free of a block; `None` while it lives.
    #[inline]
    #[must_use]
    pub fn free_of(&self, row: u64) -> Option<u64> {
        let free = self.free_behind(row, self.ledgers().free.get(row as usize));
        Some(free).filter(|&d| d < self.free_count())
    }

    /// Requested bytes of a block.
    #[inline]
    #[must_use]
    pub fn size_of(&self, row: u64) -> u64 {
        let code = self.columns().alloc_size.get(row as usize).copied().unwrap_or(0);
        self.size_of_code(code, || row)
    }

    /// Requested bytes of the block that a free ended.
    #[inline]
    #[must_use]
    pub fn size_of_free(&self, ordinal: u64) -> u64 {
        let code = self.columns().free_size.get(ordinal as usize).copied().unwrap_or(0);
        self.size_of_code(code, || self.row_of_free(ordinal))
    }

    /// The size behind a code, of the block in `row`.
    #[inline]
    pub fn size_of_code(&self, code: u16, row: impl FnOnce() -> u64) -> u64 {
        match code {
            0..TABLE_SIZE => u64::from(code),
            LARGE_SIZE => self.large_size(row()),
            _ => self.columns().size_table.get(usize::from(code - TABLE_SIZE)).copied().unwrap_or(0),
        }
    }

    #[cold]
    fn large_size(&self, row: u64) -> u64 {
        let c = self.columns();
        c.large_row.binary_search(&row).ok().and_then(|at| c.large_size.get(at).copied()).unwrap_or(0)
    }

    /// Address of a block.
    #[must_use]
    pub fn address_of(&self, row: u64) -> u64 {
        let c = self.columns();
        let low = c.alloc_address.get(row as usize).copied().unwrap_or(0);
        match c.alloc_address_high.get(row as usize) {
            Some(&ODD_ADDRESS) => {
                c.odd_row.binary_search(&row).ok().and_then(|at| c.odd_address.get(at).copied()).unwrap_or(0)
            }
            high => u64::from(low) | u64::from(high.copied().unwrap_or(0)) << 32,
        }
    }

    /// The old address of a realloc whose old block was not seen.
    #[must_use]
    pub fn orphan_address(&self, row: u64) -> Option<u64> {
        let c = self.columns();
        let at = c.orphan_row.binary_search(&row).ok()?;
        c.orphan_address.get(at).copied().filter(|&a| a != u64::MAX)
    }

    /// One free.
    #[must_use]
    pub fn free(&self, ordinal: u64) -> Free {
        let origin = self.origin(self.columns().free_origin.get(ordinal as usize).copied().unwrap_or(u32::MAX));
        Free { ordinal, died_ns: self.died_ns(ordinal), node: origin.node, thread: origin.thread, kind: origin.kind }
    }

    /// Row of the block that a free ended.
    #[must_use]
    pub fn row_of_free(&self, ordinal: u64) -> u64 {
        self.columns().free_row.get(ordinal as usize).map_or(NOTHING, |&code| self.alloc_behind(ordinal, code))
    }

    /// The block that realloc made block `row` from.
    #[must_use]
    pub fn previous(&self, row: u64, kind: u8) -> Option<u64> {
        if !Kind::from_u8(kind).is_some_and(Kind::is_realloc_to) {
            return None;
        }
        let event = self.event_of_alloc(row)?.checked_sub(1)?;
        if !self.is_free(event) {
            return None;
        }
        let ordinal = self.position_after(event).frees;
        let free = self.columns().free_origin.get(ordinal as usize).map(|&o| self.origin(o))?;
        let linked = Kind::from_u8(free.kind).is_some_and(Kind::is_realloc_from);
        (linked && self.orphan_row(row).is_none()).then(|| self.row_of_free(ordinal))
    }

    pub(super) fn orphan_row(&self, row: u64) -> Option<usize> {
        self.columns().orphan_row.binary_search(&row).ok()
    }

    /// Everything about block `row`; rows from [`Self::alloc_count`] on give an empty one.
    #[must_use]
    pub fn alloc(&self, row: u64) -> AllocRow {
        let origin = self.origin(self.columns().alloc_origin.get(row as usize).copied().unwrap_or(u32::MAX));
        let free = self.free_of(row).map(|ordinal| self.free(ordinal));
        let next = free.as_ref().and_then(|free| {
            if !Kind::from_u8(free.kind).is_some_and(Kind::is_realloc_from) {
                return None;
            }
            let event = self.event_of_free(free.ordinal)?;
            Some(self.position_after(event + 1).allocs).filter(|&row| row < self.alloc_count())
        });
        let lifetime_class = self.ledgers().lifetime_class.get(row as usize);
        AllocRow {
            row,
            born_ns: self.born_ns(row),
            address: self.address_of(row),
            size: self.size_of(row),
            node: origin.node,
            thread: origin.thread,
            kind: origin.kind,
            site: origin.site,
            is_temporary: free.is_some() && lifetime_class & TEMPORARY_BIT != 0,
            free,
            previous: self.previous(row, origin.kind),
            next,
        }
    }
}
