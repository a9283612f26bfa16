//! The distinct origins of events, numbered as they appear, and the sites among them.

use rustc_hash::FxHashMap;

use super::kinds::Class;
use crate::ingest::chunk::Chunk;
use crate::trace::layout::{NO_SITE, Origin};

/// All distinct origins, and the sites among them.
#[derive(Debug)]
pub struct Origins {
    list: Vec<Origin>,
    /// By index: position of the thread.
    threads: Vec<u32>,
    by_key: FxHashMap<Key, u32>,
    /// What was looked up lately, by hash: a hit costs one memory access.
    recent: Vec<(Key, u32)>,
    site_of_node: FxHashMap<u32, u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    node: u32,
    thread: u32,
    kind: u8,
}

/// No record has this key: there are fewer threads.
const NO_KEY: Key = Key { node: u32::MAX, thread: u32::MAX, kind: u8::MAX };
const RECENT: usize = 1 << 16;

impl Key {
    #[inline]
    const fn slot(self) -> usize {
        let mixed = (self.node as u64 ^ (self.thread as u64) << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed.rotate_left(20) ^ self.kind as u64) as usize % RECENT
    }
}

impl Default for Origins {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            threads: Vec::new(),
            by_key: FxHashMap::default(),
            recent: vec![(NO_KEY, 0); RECENT],
            site_of_node: FxHashMap::default(),
        }
    }
}

impl Origins {
    /// The list, by index.
    #[must_use]
    pub fn list(&self) -> &[Origin] {
        &self.list
    }

    /// Position of the thread of an origin.
    #[inline]
    pub(super) fn thread(&self, index: u32) -> u32 {
        self.threads.get(index as usize).copied().unwrap_or(0)
    }

    /// Takes one that is known already; for resuming.
    pub fn restore(&mut self, origin: Origin) {
        let index = self.list.len() as u32;
        self.by_key.insert(Key { node: origin.node, thread: origin.thread, kind: origin.kind }, index);
        if origin.site != NO_SITE {
            self.site_of_node.insert(origin.node, origin.site);
        }
        self.list.push(origin);
        self.threads.push(origin.thread);
    }

    /// Index of an origin; new ones are told to `chunk`.
    #[inline]
    pub(super) fn intern(&mut self, node: u32, thread: u32, kind: u8, chunk: &mut Chunk) -> u32 {
        let key = Key { node, thread, kind };
        let (known, index) = self.recent[key.slot()];
        if known == key { index } else { self.look_up(key, chunk) }
    }

    #[cold]
    fn look_up(&mut self, key: Key, chunk: &mut Chunk) -> u32 {
        let Key { node, thread, kind } = key;
        let next = self.list.len() as u32;
        let index = *self.by_key.entry(key).or_insert(next);
        self.recent[key.slot()] = (key, index);
        if index == next {
            let site = if Class::of(kind).bears() {
                let next_site = self.site_of_node.len() as u32;
                let site = *self.site_of_node.entry(node).or_insert(next_site);
                if site == next_site {
                    chunk.sites.push(node);
                }
                site
            } else {
                NO_SITE
            };
            let origin = Origin { node, thread, kind, site };
            self.list.push(origin);
            self.threads.push(thread);
            chunk.origins.push(origin);
        }
        index
    }
}
