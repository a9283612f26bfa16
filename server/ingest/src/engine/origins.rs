//! The distinct origins of events, numbered as they appear, and the sites among them.

use rustc_hash::FxHashMap;

use super::kinds::KindClass;
use crate::event_batch::EventBatch;
use tracehound_index::layout::NO_SITE;
use tracehound_index::ledger::fetch;
use tracehound_index::schema::EventOrigin;

/// All distinct origins, and the sites among them.
#[derive(Debug)]
pub struct Origins {
    list: Vec<EventOrigin>,
    /// By index: position of the thread.
    threads: Vec<u32>,
    table: OriginTable,
    site_of_node: FxHashMap<u32, u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OriginKey {
    node: u32,
    thread: u32,
    kind: u8,
    alignment: u8,
}

/// Key → index, with linear probing and at most half full: nearly always one memory access.
#[derive(Debug)]
struct OriginTable {
    /// Keys with 1 + index; 0 = empty.
    slots: Vec<(OriginKey, u32)>,
    len: usize,
}

/// Look-ups between the fetch of a slot and its use: the table of a large call tree does not fit the cache.
const AHEAD: usize = 16;

const EMPTY: (OriginKey, u32) = (OriginKey { node: 0, thread: 0, kind: 0, alignment: 0 }, 0);

impl OriginTable {
    /// The slot where the search for `key` begins.
    #[inline]
    fn home(&self, key: OriginKey) -> usize {
        let mixed = (u64::from(key.node)
            ^ u64::from(key.thread) << 32
            ^ u64::from(key.kind) << 56
            ^ u64::from(key.alignment) << 48)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> 24) as usize & (self.slots.len() - 1)
    }

    /// Fetches that slot into the cache.
    #[inline]
    fn prefetch(&self, key: OriginKey) {
        if let Some(slot) = self.slots.get(self.home(key)) {
            fetch(slot);
        }
    }

    /// The slot that holds `key`, or the empty one where it belongs.
    #[inline]
    fn slot(&self, key: OriginKey) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = self.home(key);
        while self.slots[at].1 != 0 && self.slots[at].0 != key {
            at = (at + 1) & mask;
        }
        at
    }

    /// Puts a new key in.
    fn insert(&mut self, key: OriginKey, index: u32) {
        if (self.len + 1) * 2 > self.slots.len() {
            let old = std::mem::take(&mut self.slots);
            self.slots = vec![EMPTY; old.len() * 2];
            for slot in old.into_iter().filter(|slot| slot.1 != 0) {
                let at = self.slot(slot.0);
                self.slots[at] = slot;
            }
        }
        let at = self.slot(key);
        self.slots[at] = (key, index + 1);
        self.len += 1;
    }
}

impl Default for Origins {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            threads: Vec::new(),
            table: OriginTable { slots: vec![EMPTY; 1 << 10], len: 0 },
            site_of_node: FxHashMap::default(),
        }
    }
}

impl Origins {
    /// The list, by index.
    #[must_use]
    pub fn list(&self) -> &[EventOrigin] {
        &self.list
    }

    /// Position of the thread of an origin.
    #[inline]
    pub(super) fn thread(&self, index: u32) -> u32 {
        self.threads.get(index as usize).copied().unwrap_or(0)
    }

    /// Takes one that is known already; for resuming.
    pub fn restore(&mut self, origin: EventOrigin) {
        let index = self.list.len() as u32;
        let EventOrigin { node, thread, kind, alignment, .. } = origin;
        self.table.insert(OriginKey { node, thread, kind, alignment }, index);
        if origin.site != NO_SITE {
            self.site_of_node.insert(origin.node, origin.site);
        }
        self.list.push(origin);
        self.threads.push(origin.thread);
    }

    /// Index of an origin; new ones are reported to `chunk`.
    #[inline]
    pub(super) fn intern(&mut self, node: u32, thread: u32, kind: u8, chunk: &mut EventBatch) -> u32 {
        self.find_or_add(OriginKey { node, thread, kind, alignment: 0 }, chunk)
    }

    /// Index of the origin at `index` with another alignment, a power of two.
    #[cold]
    pub(super) fn aligned(&mut self, index: u32, alignment: u8, chunk: &mut EventBatch) -> u32 {
        let Some(&EventOrigin { node, thread, kind, .. }) = self.list.get(index as usize) else { return index };
        self.find_or_add(OriginKey { node, thread, kind, alignment }, chunk)
    }

    #[inline]
    fn find_or_add(&mut self, key: OriginKey, chunk: &mut EventBatch) -> u32 {
        match self.table.slots[self.table.slot(key)].1 {
            0 => self.add(key, chunk),
            number => number - 1,
        }
    }

    /// Indices of a thread's origins, given as nodes and kinds; new ones are reported to `chunk`.
    pub(super) fn intern_all(&mut self, pairs: &[(u32, u8)], thread: u32, chunk: &mut EventBatch) -> Vec<u32> {
        let key = |&(node, kind): &(u32, u8)| OriginKey { node, thread, kind, alignment: 0 };
        pairs.iter().take(AHEAD).for_each(|pair| self.table.prefetch(key(pair)));
        let number = |(at, &(node, kind)): (usize, &(u32, u8))| {
            if let Some(next) = pairs.get(at + AHEAD) {
                self.table.prefetch(key(next));
            }
            self.intern(node, thread, kind, chunk)
        };
        pairs.iter().enumerate().map(number).collect()
    }

    #[cold]
    fn add(&mut self, key: OriginKey, chunk: &mut EventBatch) -> u32 {
        let OriginKey { node, thread, kind, alignment } = key;
        let index = self.list.len() as u32;
        self.table.insert(key, index);
        let site = if KindClass::of(kind).allocates() {
            let next_site = self.site_of_node.len() as u32;
            let site = *self.site_of_node.entry(node).or_insert(next_site);
            if site == next_site {
                chunk.sites.push(node);
            }
            site
        } else {
            NO_SITE
        };
        let origin = EventOrigin { node, thread, kind, site, alignment };
        self.list.push(origin);
        self.threads.push(thread);
        chunk.origins.push(origin);
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn an_origin_keeps_its_number(keys in prop::collection::vec((0_u32..300, 0_u32..9, 1_u8..40), 0..4000)) {
            let (mut origins, mut chunk, mut model) = (Origins::default(), EventBatch::default(), HashMap::new());
            for key in keys {
                let next = model.len() as u32;
                let expected = *model.entry(key).or_insert(next);
                prop_assert_eq!(origins.intern(key.0, key.1, key.2, &mut chunk), expected);
                prop_assert_eq!(origins.thread(expected), key.1);
                prop_assert_eq!(origins.intern_all(&[(key.0, key.2)], key.1, &mut chunk), [expected]);
            }
            prop_assert_eq!(origins.list().len(), model.len());
            prop_assert_eq!(&chunk.origins[..], origins.list());
        }
    }
}
