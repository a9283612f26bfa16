//! The address space as the program mapped it: intervals that mmap, mremap, munmap and brk make, move and take away,
//! in part or whole.

use std::collections::BTreeMap;

use super::Trace;
use super::events::{TraceEvent, What};

/// Use of a mapping, by the arguments of the call that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MappingUse {
    /// The program break.
    Break,
    /// Memory without a file.
    Anonymous,
    /// A stack: `MAP_STACK` was given.
    Stack,
    /// A file or device.
    File,
    /// It was there when recording began.
    Existing,
}

/// `MAP_STACK` of Linux on all architectures that we record on.
const MAP_STACK: u32 = 0x2_0000;

/// An address range with one history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// When it was mapped; a move does not change it.
    pub mapped_ns: u64,
    /// Call-tree node that mapped it; 0 = it was there before, or unknown.
    pub node: u32,
    /// Recording-wide id of the thread that mapped it.
    pub thread: u32,
    /// What it is for.
    pub kind: MappingUse,
}

/// What is mapped at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressSpace {
    /// By first address; no two overlap.
    mappings: BTreeMap<u64, Mapping>,
    bytes: u64,
}

impl AddressSpace {
    /// The mapping around an address.
    #[must_use]
    pub fn around(&self, address: u64) -> Option<&Mapping> {
        self.before(address).filter(|m| address - m.start < m.len)
    }

    /// Bytes that are mapped.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Mappings by address.
    pub fn mappings(&self) -> impl Iterator<Item = &Mapping> {
        self.mappings.values()
    }

    /// The last mapping that starts at or before an address.
    #[must_use]
    pub fn before(&self, address: u64) -> Option<&Mapping> {
        self.mappings.range(..=address).next_back().map(|(_, m)| m)
    }

    /// Mappings that start in a range.
    pub fn from(&self, range: std::ops::Range<u64>) -> impl Iterator<Item = &Mapping> {
        self.mappings.range(range).map(|(_, m)| m)
    }

    /// Maps a range; what was there is replaced, as `MAP_FIXED` does.
    pub fn map(&mut self, mapping: Mapping) {
        let len = mapping.len.min(u64::MAX - mapping.start);
        if len > 0 {
            self.unmap(mapping.start, len);
            self.mappings.insert(mapping.start, Mapping { len, ..mapping });
            self.bytes += len;
        }
    }

    /// Maps what of a range is not mapped yet: it had been mapped without being seen.
    pub fn fill(&mut self, mapping: Mapping) {
        let end = mapping.start.saturating_add(mapping.len);
        let mut at = self.before(mapping.start).map_or(mapping.start, |m| mapping.start.max(m.start + m.len));
        while at < end {
            let next = self.mappings.range(at..end).next().map_or((end, end), |(&start, m)| (start, start + m.len));
            self.map(Mapping { start: at, len: next.0 - at, ..mapping });
            at = next.1;
        }
    }

    /// Takes a range away; mappings that reach beyond it keep the rest.
    pub fn unmap(&mut self, start: u64, len: u64) {
        let end = start.saturating_add(len);
        let before = self.mappings.range(..start).next_back().map(|(&at, _)| at);
        let inside: Vec<u64> = self.mappings.range(start..end).map(|(&at, _)| at).collect();
        for at in before.into_iter().chain(inside) {
            let Some(old) = self.mappings.remove(&at) else { continue };
            self.bytes -= old.len;
            let old_end = old.start + old.len;
            let rests = [(old.start, start.min(old_end)), (end.max(old.start), old_end)];
            for (from, to) in rests.into_iter().filter(|(from, to)| from < to) {
                self.mappings.insert(from, Mapping { start: from, len: to - from, ..old });
                self.bytes += to - from;
            }
        }
    }

    /// Takes in one event of a recording.
    pub fn apply(&mut self, event: &TraceEvent) {
        let made = |start, len, kind| {
            let (mapped_ns, node, thread) = (event.t_ns, event.node, event.thread);
            Mapping { start, len, mapped_ns, node, thread, kind }
        };
        match event.what {
            What::Map { address, len, flags, fd, .. } => {
                let kind = match fd {
                    Some(_) => MappingUse::File,
                    None if flags & MAP_STACK != 0 => MappingUse::Stack,
                    None => MappingUse::Anonymous,
                };
                self.map(made(address, len, kind));
            }
            What::Existing { address, len } => self.fill(made(address, len, MappingUse::Existing)),
            What::Unmap { address, len } => self.unmap(address, len),
            What::Remap { old_address, old_len, address, len } => {
                let moved = self.before(old_address).copied().filter(|m| old_address - m.start < m.len);
                self.unmap(old_address, old_len);
                let origin = moved.unwrap_or_else(|| made(address, len, MappingUse::Existing));
                self.map(Mapping { start: address, len, ..origin });
            }
            What::Brk { address, delta } if delta >= 0 => {
                self.map(made(address.saturating_sub(delta as u64), delta as u64, MappingUse::Break));
            }
            What::Brk { address, delta } => self.unmap(address, delta.unsigned_abs()),
            _ => {}
        }
    }
}

impl Trace {
    /// What was mapped when everything up to `t_ns` had happened.
    #[must_use]
    pub fn mapped_at(&self, t_ns: u64) -> AddressSpace {
        let mut space = AddressSpace::default();
        for event in self.other_events().take_while(|e| e.t_ns <= t_ns) {
            space.apply(&event);
        }
        space
    }

    /// Bytes that were mapped behind each event that changed them, time and bytes; put together once for each snapshot.
    #[must_use]
    pub fn mapped_curve(&self) -> &[(u64, u64)] {
        self.mapped.get_or_init(|| {
            let mut space = AddressSpace::default();
            let mut curve: Vec<(u64, u64)> = Vec::new();
            for event in self.other_events() {
                space.apply(&event);
                if curve.last().map_or(0, |c| c.1) != space.bytes() {
                    curve.push((event.t_ns, space.bytes()));
                }
            }
            curve
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mapping(start: u64, len: u64, node: u32) -> Mapping {
        Mapping { start, len, mapped_ns: 0, node, thread: 1, kind: MappingUse::Anonymous }
    }

    proptest! {
        /// Against one owner for every address.
        #[test]
        fn behaves_as_an_array_of_owners(steps in prop::collection::vec((0_u8..4, 0_u64..60, 0_u64..30, 0_u64..60), 0..80)) {
            let mut space = AddressSpace::default();
            let mut owners = [0_u32; 128];
            for (number, (kind, start, len, to)) in (1..).zip(steps) {
                let range = |start: u64, len: u64| start as usize..(start + len) as usize;
                match kind {
                    0 => {
                        space.map(mapping(start, len, number));
                        owners[range(start, len)].fill(number);
                    }
                    3 => {
                        space.fill(mapping(start, len, number));
                        owners[range(start, len)].iter_mut().filter(|o| **o == 0).for_each(|o| *o = number);
                    }
                    1 => {
                        space.unmap(start, len);
                        owners[range(start, len)].fill(0);
                    }
                    _ => {
                        let what = What::Remap { old_address: start, old_len: len, address: to, len };
                        let first = owners[start as usize];
                        space.apply(&TraceEvent { t_ns: 0, thread: 1, node: number, context: 0, what });
                        owners[range(start, len)].fill(0);
                        owners[range(to, len)].fill(if first == 0 { number } else { first });
                    }
                }
                let mut found = [0_u32; 128];
                for m in space.mappings() {
                    let owned = &mut found[range(m.start, m.len)];
                    prop_assert!(owned.iter().all(|&o| o == 0), "overlap");
                    owned.fill(m.node);
                }
                prop_assert_eq!(&found[..], &owners[..]);
                prop_assert_eq!(space.bytes(), owners.iter().filter(|&&o| o != 0).count() as u64);
            }
        }
    }

    #[test]
    fn the_break_moves_both_ways() {
        let mut space = AddressSpace::default();
        let brk =
            |address, delta| TraceEvent { t_ns: 5, thread: 1, node: 2, context: 0, what: What::Brk { address, delta } };
        space.apply(&brk(0x3000, 0x2000));
        space.apply(&brk(0x2000, -0x1000));
        assert_eq!(space.mappings().map(|m| (m.start, m.len)).collect::<Vec<_>>(), [(0x1000, 0x1000)]);
    }

    #[test]
    fn hostile_lengths_stay_inside() {
        let mut space = AddressSpace::default();
        space.map(mapping(u64::MAX - 5, u64::MAX, 1));
        space.unmap(u64::MAX - 3, u64::MAX);
        assert_eq!(space.bytes(), 2);
    }
}
