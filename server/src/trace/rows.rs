//! Rows: births with their deaths, and what is known of each.

use tracehound_format::record::Kind;

use super::Trace;
use super::layout::{FATE_TEMPORARY, LARGE_SIZE, ODD_ADDRESS, TABLE_SIZE};
use super::links::NOTHING;

/// One block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Birth {
    /// Position among all births.
    pub row: u64,
    /// When it was born.
    pub born_ns: u64,
    /// Where.
    pub address: u64,
    /// Requested bytes.
    pub size: u64,
    /// Call-tree node of the caller.
    pub node: u32,
    /// Position of the bearing thread.
    pub thread: u32,
    /// Kind number of the function.
    pub kind: u8,
    /// Site.
    pub site: u32,
    /// It was temporary.
    pub is_temporary: bool,
    /// Its death, if it died.
    pub death: Option<Death>,
    /// The block that realloc made it from.
    pub previous: Option<u64>,
    /// The block that realloc made of it.
    pub next: Option<u64>,
}

/// The end of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Death {
    /// Position among all deaths.
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
    /// Births in the snapshot.
    #[must_use]
    pub fn birth_count(&self) -> u64 {
        self.columns().birth_time.len() as u64
    }

    /// Deaths of seen births in the snapshot.
    #[must_use]
    pub fn death_count(&self) -> u64 {
        self.columns().death_time.len() as u64
    }

    /// When a block was born.
    #[must_use]
    pub fn born_ns(&self, row: u64) -> u64 {
        let base = self.page_of_birth(row).map_or(0, |i| self.page(i).time_ns);
        base + self.columns().birth_time.get(row as usize).map_or(0, |&t| u64::from(t))
    }

    /// When a death happened.
    #[must_use]
    pub fn died_ns(&self, ordinal: u64) -> u64 {
        let base = self.page_of_death(ordinal).map_or(0, |i| self.page(i).time_ns);
        base + self.columns().death_time.get(ordinal as usize).map_or(0, |&t| u64::from(t))
    }

    /// Ordinal of the death of a block; `None` while it lives.
    #[inline]
    #[must_use]
    pub fn death_of(&self, row: u64) -> Option<u64> {
        let death = self.death_behind(row, self.ledgers().death.get(row as usize));
        Some(death).filter(|&d| d < self.death_count())
    }

    /// Requested bytes of a block.
    #[inline]
    #[must_use]
    pub fn size_of(&self, row: u64) -> u64 {
        let code = self.columns().birth_size.get(row as usize).copied().unwrap_or(0);
        self.size_of_code(code, || row)
    }

    /// Requested bytes of the block that a death ended.
    #[inline]
    #[must_use]
    pub fn size_of_death(&self, ordinal: u64) -> u64 {
        let code = self.columns().death_size.get(ordinal as usize).copied().unwrap_or(0);
        self.size_of_code(code, || self.row_of_death(ordinal))
    }

    /// The size behind a code; `row` tells whose it is.
    #[inline]
    pub(crate) fn size_of_code(&self, code: u16, row: impl FnOnce() -> u64) -> u64 {
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
        let low = c.birth_address.get(row as usize).copied().unwrap_or(0);
        match c.birth_address_high.get(row as usize) {
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

    /// One death.
    #[must_use]
    pub fn death(&self, ordinal: u64) -> Death {
        let origin = self.origin(self.columns().death_origin.get(ordinal as usize).copied().unwrap_or(u32::MAX));
        Death { ordinal, died_ns: self.died_ns(ordinal), node: origin.node, thread: origin.thread, kind: origin.kind }
    }

    /// Row of the block that a death ended.
    #[must_use]
    pub fn row_of_death(&self, ordinal: u64) -> u64 {
        self.columns().death_row.get(ordinal as usize).map_or(NOTHING, |&code| self.birth_behind(ordinal, code))
    }

    /// The block that realloc made block `row` from.
    #[must_use]
    pub fn previous(&self, row: u64, kind: u8) -> Option<u64> {
        if !Kind::from_u8(kind).is_some_and(Kind::is_realloc_to) {
            return None;
        }
        let event = self.event_of_birth(row)?.checked_sub(1)?;
        if !self.is_death(event) {
            return None;
        }
        let ordinal = self.position_after(event).deaths;
        let death = self.columns().death_origin.get(ordinal as usize).map(|&o| self.origin(o))?;
        let linked = Kind::from_u8(death.kind).is_some_and(Kind::is_realloc_from);
        (linked && self.orphan_row(row).is_none()).then(|| self.row_of_death(ordinal))
    }

    pub(super) fn orphan_row(&self, row: u64) -> Option<usize> {
        self.columns().orphan_row.binary_search(&row).ok()
    }

    /// Everything about block `row`; rows from [`Self::birth_count`] on give an empty one.
    #[must_use]
    pub fn birth(&self, row: u64) -> Birth {
        let origin = self.origin(self.columns().birth_origin.get(row as usize).copied().unwrap_or(u32::MAX));
        let death = self.death_of(row).map(|ordinal| self.death(ordinal));
        let next = death.as_ref().and_then(|death| {
            if !Kind::from_u8(death.kind).is_some_and(Kind::is_realloc_from) {
                return None;
            }
            let event = self.event_of_death(death.ordinal)?;
            Some(self.position_after(event + 1).births).filter(|&row| row < self.birth_count())
        });
        let fate = self.ledgers().fate.get(row as usize);
        Birth {
            row,
            born_ns: self.born_ns(row),
            address: self.address_of(row),
            size: self.size_of(row),
            node: origin.node,
            thread: origin.thread,
            kind: origin.kind,
            site: origin.site,
            is_temporary: death.is_some() && fate & FATE_TEMPORARY != 0,
            death,
            previous: self.previous(row, origin.kind),
            next,
        }
    }
}
