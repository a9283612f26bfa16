//! Which blocks are alive, kept only where forked children are followed: a child's recording begins with what it
//! inherited.
//!
//! Events come in thread by thread, not in the order of their times. At one address the order by tick is the true one,
//! so the last event there, by tick, tells whether a block lives there now.

use std::collections::HashMap;

use tracehound_format::record::{Kind, Record};

/// A block that is alive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveBlock {
    /// When it was born.
    pub tick: u64,
    /// Address.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Where it was born.
    pub node: u32,
}

/// See the module's description.
#[derive(Default)]
pub struct LiveBlocks {
    last: HashMap<u64, Last>,
    dead: usize,
}

struct Last {
    tick: u64,
    /// Size and node of the birth; `None`: a death.
    birth: Option<(u64, u32)>,
}

impl LiveBlocks {
    /// Takes the events of one block of one thread in.
    pub fn add(&mut self, records: impl Iterator<Item = Record>) {
        let mut high = 0_u64;
        for record in records {
            let Some(kind) = Kind::from_u8(record.kind) else { continue };
            if kind == Kind::SizeHigh {
                high = record.address << 32;
                continue;
            }
            let size = high | u64::from(record.size);
            high = 0;
            if kind.is_alloc() || kind.is_realloc_to() {
                self.put(record.address, record.tick, Some((size, record.node)));
            } else if kind.is_free() || kind.is_realloc_from() {
                self.put(record.address, record.tick, None);
            }
        }
    }

    fn put(&mut self, address: u64, tick: u64, birth: Option<(u64, u32)>) {
        let new = Last { tick, birth };
        match self.last.entry(address) {
            std::collections::hash_map::Entry::Vacant(place) => {
                self.dead += usize::from(new.birth.is_none());
                place.insert(new);
            }
            std::collections::hash_map::Entry::Occupied(mut place) => {
                if tick >= place.get().tick {
                    self.dead += usize::from(new.birth.is_none());
                    self.dead -= usize::from(place.get().birth.is_none());
                    place.insert(new);
                }
            }
        }
    }

    /// Forgets deaths before `watermark`: nothing older can still come in.
    pub fn prune(&mut self, watermark: u64) {
        if self.dead > 4096 && self.dead > self.last.len() / 2 {
            self.last.retain(|_, last| last.birth.is_some() || last.tick > watermark);
            self.dead = self.last.values().filter(|last| last.birth.is_none()).count();
        }
    }

    /// All blocks that are alive, in the order of their births.
    pub fn list(&self) -> Vec<LiveBlock> {
        let alive = |(&address, last): (&u64, &Last)| {
            last.birth.map(|(size, node)| LiveBlock { tick: last.tick, address, size, node })
        };
        let mut list: Vec<LiveBlock> = self.last.iter().filter_map(alive).collect();
        list.sort_unstable_by_key(|block| (block.tick, block.address));
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(list: &[(Kind, u64, u64, u32)]) -> Vec<Record> {
        list.iter().map(|&(kind, tick, address, size)| Record::new(kind, tick, address, 9, size)).collect()
    }

    #[test]
    fn threads_may_come_in_any_order() {
        let one = records(&[(Kind::Malloc, 10, 0x100, 8), (Kind::Malloc, 30, 0x100, 16), (Kind::Malloc, 40, 0x200, 4)]);
        let two = records(&[(Kind::Free, 20, 0x100, 0), (Kind::Free, 50, 0x200, 0)]);
        for order in [[&one, &two], [&two, &one]] {
            let mut live = LiveBlocks::default();
            order.into_iter().for_each(|records| live.add(records.iter().copied()));
            assert_eq!(live.list(), [LiveBlock { tick: 30, address: 0x100, size: 16, node: 9 }]);
        }
    }

    #[test]
    fn large_sizes_and_reallocs() {
        let mut live = LiveBlocks::default();
        let list = [
            (Kind::SizeHigh, 1, 2, 0),
            (Kind::Malloc, 1, 0x100, 7),
            (Kind::ReallocFrom, 2, 0x100, 0),
            (Kind::ReallocTo, 3, 0x300, 5),
        ];
        live.add(records(&list).into_iter());
        assert_eq!(live.list(), [LiveBlock { tick: 3, address: 0x300, size: 5, node: 9 }]);
        live.add(records(&[(Kind::SizeHigh, 4, 2, 0), (Kind::Malloc, 4, 0x400, 7)]).into_iter());
        assert_eq!(live.list()[1].size, (2 << 32) + 7);
    }

    #[test]
    fn deaths_are_forgotten_behind_the_watermark() {
        let mut live = LiveBlocks::default();
        let list: Vec<_> = (0..10_000_u64).map(|i| (Kind::Free, i, i * 16, 0)).collect();
        live.add(records(&list).into_iter());
        live.prune(9_000);
        assert_eq!(live.last.len(), 999);
        assert_eq!(live.dead, 999);
    }
}
