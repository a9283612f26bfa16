//! The distinct origins of events, numbered as they appear, and the sites among them.

use rustc_hash::FxHashMap;

use super::kinds::Class;
use crate::ingest::chunk::Chunk;
use crate::trace::layout::{NO_SITE, Origin};

/// All distinct origins, and the sites among them.
#[derive(Debug, Default)]
pub struct Origins {
    list: Vec<Origin>,
    by_key: FxHashMap<(u64, u8), u32>,
    site_of_node: FxHashMap<u32, u32>,
}

const fn key(node: u32, thread: u32, kind: u8) -> (u64, u8) {
    ((node as u64) << 32 | thread as u64, kind)
}

impl Origins {
    /// The list, by index.
    #[must_use]
    pub fn list(&self) -> &[Origin] {
        &self.list
    }

    /// Takes one that is known already; for resuming.
    pub fn restore(&mut self, origin: Origin) {
        let index = self.list.len() as u32;
        self.by_key.insert(key(origin.node, origin.thread, origin.kind), index);
        if origin.site != NO_SITE {
            self.site_of_node.insert(origin.node, origin.site);
        }
        self.list.push(origin);
    }

    /// Index of an origin; new ones are told to `chunk`.
    pub(super) fn intern(&mut self, node: u32, thread: u32, kind: u8, chunk: &mut Chunk) -> u32 {
        let next = self.list.len() as u32;
        let index = *self.by_key.entry(key(node, thread, kind)).or_insert(next);
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
            chunk.origins.push(origin);
        }
        index
    }
}
