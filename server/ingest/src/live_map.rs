//! The live blocks by address: an open-addressing table with linear probing, one 32-byte slot a block, so that a
//! lookup is one cache miss and brings everything that a free needs to know. Sizes of four gibibytes and more, which
//! few blocks have, stand beside it.
//!
//! Beyond a budget the table lies in an unlinked file of the index folder: the kernel may then write it out, and
//! memory stays bounded however large the live set is.

use std::io;
use std::path::PathBuf;

use memmap2::{Advice, MmapMut};
use rustc_hash::FxHashMap;

use tracehound_index::column::allocate;
use tracehound_index::ledger::fetch;

/// A live block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LiveBlock {
    /// Allocation, nanoseconds.
    pub born_ns: u64,
    /// Requested bytes.
    pub size: u64,
    /// Position among all allocations.
    pub row: u64,
    /// Origin of the allocation.
    pub origin: u32,
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct BlockSlot {
    /// Key plus one; 0 = empty.
    tag: u64,
    born_ns: u64,
    row: u64,
    /// [`LARGE`]: see the map's list.
    size: u32,
    origin: u32,
}

/// A size that does not fit its slot.
const LARGE: u32 = u32::MAX;

impl BlockSlot {
    #[inline]
    fn new(tag: u64, live: &LiveBlock) -> Self {
        let size = u32::try_from(live.size).unwrap_or(LARGE);
        Self { tag, born_ns: live.born_ns, row: live.row, size, origin: live.origin }
    }

    /// The block; its size is that of the slot.
    #[inline]
    fn live(&self) -> LiveBlock {
        LiveBlock { born_ns: self.born_ns, size: u64::from(self.size), row: self.row, origin: self.origin }
    }
}

const _: () = assert!(size_of::<BlockSlot>() == 32);

/// Address → live block.
#[derive(Debug)]
pub struct LiveMap {
    map: MmapMut,
    slots: usize,
    shift: u32,
    len: usize,
    /// Sizes of blocks whose slot has [`LARGE`], by tag.
    large: FxHashMap<u64, u64>,
    budget_bytes: u64,
    folder: PathBuf,
}

const FIRST_SLOTS: usize = 1 << 12;

impl LiveMap {
    /// An empty table that moves into a file of `folder` when it would take more than `budget_bytes`.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn new(folder: PathBuf, budget_bytes: u64) -> io::Result<Self> {
        let map = MmapMut::map_anon(FIRST_SLOTS * size_of::<BlockSlot>())?;
        let shift = 64 - FIRST_SLOTS.trailing_zeros();
        Ok(Self { map, slots: FIRST_SLOTS, shift, len: 0, large: FxHashMap::default(), budget_bytes, folder })
    }

    /// Number of live blocks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is live.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the table.
    #[must_use]
    pub fn table_bytes(&self) -> u64 {
        (self.slots * size_of::<BlockSlot>()) as u64
    }

    #[inline]
    fn home(&self, tag: u64) -> usize {
        (tag.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }

    #[inline]
    fn table(&self) -> &[BlockSlot] {
        // SAFETY: the mapping is page-aligned, zeroed at first and `slots * 32` bytes long; any bytes are a Slot.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.slots) }
    }

    #[inline]
    fn table_mut(&mut self) -> &mut [BlockSlot] {
        // SAFETY: as in `table`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr().cast(), self.slots) }
    }

    /// Fetches the slot of `key` into the cache.
    #[inline]
    pub fn prefetch(&self, key: u64) {
        let home = self.home(key.wrapping_add(1));
        if let Some(slot) = self.table().get(home) {
            fetch(slot);
        }
    }

    /// Inserts a block; returns the block that was there.
    ///
    /// # Errors
    /// When the table must grow and there is no memory or disk for it.
    #[inline]
    pub fn insert(&mut self, key: u64, live: LiveBlock) -> io::Result<Option<LiveBlock>> {
        if (self.len + 1) * 8 > self.slots * 5 {
            self.grow()?;
        }
        let tag = key.wrapping_add(1).max(1);
        let mask = self.slots - 1;
        let mut at = self.home(tag);
        let table = self.table_mut();
        let old = loop {
            let slot = &mut table[at & mask];
            if slot.tag == 0 || slot.tag == tag {
                break std::mem::replace(slot, BlockSlot::new(tag, &live));
            }
            at += 1;
        };
        let old = (old.tag != 0).then(|| self.take_large(old));
        self.len += usize::from(old.is_none());
        if live.size >= u64::from(LARGE) {
            self.large.insert(tag, live.size);
        }
        Ok(old)
    }

    /// The block of a slot that is not in the table any more.
    #[inline]
    fn take_large(&mut self, slot: BlockSlot) -> LiveBlock {
        let mut live = slot.live();
        if slot.size == LARGE {
            live.size = self.large.remove(&slot.tag).unwrap_or(live.size);
        }
        live
    }

    /// The block at `key`.
    #[must_use]
    pub fn get(&self, key: u64) -> Option<LiveBlock> {
        let tag = key.wrapping_add(1).max(1);
        let mask = self.slots - 1;
        let mut at = self.home(tag);
        loop {
            let slot = self.table()[at & mask];
            if slot.tag == 0 {
                return None;
            }
            if slot.tag == tag {
                let size = self.large.get(&tag).filter(|_| slot.size == LARGE);
                return Some(LiveBlock { size: size.copied().unwrap_or(u64::from(slot.size)), ..slot.live() });
            }
            at += 1;
        }
    }

    /// Removes a block.
    #[inline]
    pub fn remove(&mut self, key: u64) -> Option<LiveBlock> {
        let tag = key.wrapping_add(1).max(1);
        let (mask, shift) = (self.slots - 1, self.shift);
        let mut at = self.home(tag) & mask;
        let table = self.table_mut();
        loop {
            match table[at].tag {
                0 => return None,
                found if found == tag => break,
                _ => at = (at + 1) & mask,
            }
        }
        let found = table[at];
        // Close the gap: pull back every follower whose home is not behind the gap.
        let mut next = at;
        loop {
            next = (next + 1) & mask;
            let slot = table[next];
            if slot.tag == 0 {
                break;
            }
            let home = (slot.tag.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> shift) as usize & mask;
            if (next.wrapping_sub(home) & mask) >= (next.wrapping_sub(at) & mask) {
                table[at] = slot;
                at = next;
            }
        }
        table[at] = BlockSlot::default();
        self.len -= 1;
        Some(self.take_large(found))
    }

    #[cold]
    fn grow(&mut self) -> io::Result<()> {
        let slots = self.slots * 2;
        let bytes = slots * size_of::<BlockSlot>();
        let map = if bytes as u64 > self.budget_bytes {
            let file = tempfile::tempfile_in(&self.folder)?;
            file.set_len(bytes as u64)?;
            allocate(&file, 0, bytes as u64)?;
            // SAFETY: the file is unlinked and ours alone; nobody can cut it.
            unsafe { MmapMut::map_mut(&file)? }
        } else {
            let map = MmapMut::map_anon(bytes)?;
            // Large pages save a TLB miss per lookup. The advice may be refused, which is no error.
            let _ = map.advise(Advice::HugePage);
            map
        };
        let old = std::mem::replace(&mut self.map, map);
        let old_slots = std::mem::replace(&mut self.slots, slots);
        self.shift -= 1;
        // SAFETY: as in `table`; `old` is the previous mapping of `old_slots` slots.
        let old_table: &[BlockSlot] = unsafe { std::slice::from_raw_parts(old.as_ptr().cast(), old_slots) };
        let (mask, shift) = (slots - 1, self.shift);
        let table = self.table_mut();
        for slot in old_table.iter().filter(|s| s.tag != 0) {
            let mut at = (slot.tag.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> shift) as usize;
            while table[at & mask].tag != 0 {
                at += 1;
            }
            table[at & mask] = *slot;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn behaves_as_a_map(ops in prop::collection::vec((any::<bool>(), 0_u64..300, any::<u64>()), 0..3000), spill: bool) {
            let folder = tempfile::tempdir().unwrap();
            let mut map = LiveMap::new(folder.path().into(), if spill { 0 } else { u64::MAX }).unwrap();
            let mut model = HashMap::new();
            for (insert, key, size) in ops {
                // Spread over few homes so that runs of slots collide and wrap around.
                let key = key << 52;
                if insert {
                    // Sizes on both sides of what a slot holds.
                    let size = if size % 3 == 0 { u64::from(u32::MAX) - 1 + size % 5 } else { size };
                    let live = LiveBlock { size, row: size / 7, ..LiveBlock::default() };
                    prop_assert_eq!(map.insert(key, live).unwrap(), model.insert(key, live));
                } else {
                    prop_assert_eq!(map.remove(key), model.remove(&key));
                }
                prop_assert_eq!(map.len(), model.len());
            }
            for (key, live) in model { prop_assert_eq!(map.get(key), Some(live)); }
        }
    }

    #[test]
    fn grows_and_keeps_everything() {
        let folder = tempfile::tempdir().unwrap();
        let mut map = LiveMap::new(folder.path().into(), 1 << 20).unwrap();
        for key in 0..100_000_u64 {
            assert_eq!(map.insert(key * 16, LiveBlock { size: key, ..LiveBlock::default() }).unwrap(), None);
        }
        for key in 0..100_000_u64 {
            assert_eq!(map.remove(key * 16).map(|l| l.size), Some(key));
        }
        assert_eq!(map.len(), 0);
    }
}
