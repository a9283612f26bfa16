//! Blocks that were allocated before recording began. They are listed, their frees are reported; they are no
//! allocations of the recording, so nothing that is added up counts them.

use rustc_hash::FxHashMap;
use tracehound_format::record::Kind;

use super::{MergedEvent, PairingEngine};
use tracehound_index::schema::{Columns, OtherEvent, TableRow};

/// Those that are live, by address, with their bytes.
#[derive(Debug, Default)]
pub struct ExistingBlocks(FxHashMap<u64, u64>);

impl ExistingBlocks {
    /// Restores the live blocks after the events of an index.
    pub fn restore(&mut self, columns: &Columns) {
        self.0.clear();
        for (at, &kind) in columns.other_kind.iter().enumerate() {
            let Some(event) = OtherEvent::get(columns, at) else { continue };
            match Kind::from_u8(kind) {
                Some(Kind::ExistingBlock) => {
                    self.0.insert(event.a, event.b);
                }
                Some(kind) if kind.is_free() || kind.is_realloc_from() || kind.is_alloc() => {
                    self.0.remove(&event.a);
                }
                _ => {}
            }
        }
    }

    /// Removes the block at `address`, if there is one, and returns its bytes.
    #[inline]
    pub(super) fn end(&mut self, address: u64) -> Option<u64> {
        if self.0.is_empty() { None } else { self.0.remove(&address) }
    }

    #[inline]
    pub(super) fn holds(&self, address: u64) -> bool {
        !self.0.is_empty() && self.0.contains_key(&address)
    }
}

impl PairingEngine {
    /// Adds a listed block.
    #[cold]
    pub(super) fn list_existing(&mut self, ns: u64, event: &MergedEvent) {
        let (size, _) = self.full_size(event);
        if self.existing.0.insert(event.address, size).is_none() {
            let existing = &mut self.totals.counts.existing;
            existing.count += 1;
            existing.bytes += size;
            self.push_other(ns, event, event.address, size, 0, 0);
        }
    }

    /// Whether a free or the first half of a realloc ends a listed block; if so, it is recorded with the block's bytes.
    #[cold]
    pub(super) fn end_existing(&mut self, ns: u64, event: &MergedEvent) -> bool {
        let Some(size) = self.existing.end(event.address) else { return false };
        let existing = &mut self.totals.counts.existing;
        existing.freed_count += 1;
        existing.freed_bytes += size;
        self.push_other(ns, event, event.address, size, 0, 0);
        true
    }

    /// An allocation has the address of a listed block, whose free was not seen: the block has ended. It is stored as
    /// a `Malloc` among the other events, which has no other meaning there.
    #[cold]
    pub(super) fn replace_existing(&mut self, ns: u64, event: &MergedEvent) {
        if let Some(size) = self.existing.end(event.address) {
            let existing = &mut self.totals.counts.existing;
            existing.freed_count += 1;
            existing.freed_bytes += size;
            let event = event.of(Kind::Malloc);
            self.push_other(ns, &event, event.address, size, 0, 0);
        }
    }
}
