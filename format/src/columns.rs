//! The payload of an events block: the records of one thread, column by column.
//!
//! ```text
//! u8      layout, 1
//! u8      address shift: all addresses are multiples of 1 << shift
//! varint  length in bytes of the nodes, kinds, ticks, sizes and addresses columns
//! columns, in that order
//! ```
//! A call site nearly always calls the same function for the same size, a sequence of call sites recurs, an allocator
//! hands out the block of a size that was freed last, and a program frees in the order of allocation or against it.
//! The columns hold what these four predictions miss:
//!
//! - nodes: one varint a record. 0 = the node that followed the two previous nodes last time, with the kind that it
//!   had last time. Else `1 + (zigzag(node - previous node) << 1 | other)`; `other` = the kind is not the node's last
//!   one and is in the kinds column.
//! - kinds: one byte for each record with `other`.
//! - ticks: zig-zag varint of the difference to the record before (the first: to the block's first tick).
//! - sizes: one varint for each record whose kind carries a size: 0 = the size that this node had last time, else
//!   1 + size.
//! - addresses of allocations: 0 = the block of this size class that were freed last and was not handed out since;
//!   1 = a zig-zag varint of the shifted difference to the last allocation's address follows; else 2 + that difference.
//! - addresses of frees: 0 = a zig-zag varint of the shifted difference to the last such free's address follows;
//!   else 1 + zigzag(ordinal of the allocation in this block - ordinal of the allocation whose block was freed last).
//! - other addresses: zig-zag varint of the shifted difference to the last one of them.
//!
//! The predictions start from zero with every block, so that a block needs no other.

mod decoder;
mod encoder;

use crate::record::{Kind, Record};

pub use decoder::Decoder;
pub use encoder::Encoder;

/// Layout number written by this version.
pub const LAYOUT: u8 = 1;
/// Contexts of the node prediction.
const CONTEXTS: usize = 1 << 14;
/// Nodes with a remembered kind and size.
const NODES: usize = 1 << 12;
/// Size classes: 16 bytes each, the last one is open.
const CLASSES: usize = 256;

/// Events of one block, column by column; index `i` is one record in all five.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordColumns {
    /// Kind numbers; unknown ones are kept, the reader counts them.
    pub kinds: Vec<u8>,
    /// Clock ticks.
    pub ticks: Vec<u64>,
    /// Call-tree nodes.
    pub nodes: Vec<u32>,
    /// Address words.
    pub addresses: Vec<u64>,
    /// Sizes modulo 2^32; 0 where the kind has none.
    pub sizes: Vec<u32>,
}

impl RecordColumns {
    /// Number of records.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Whether there is no record.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Record `i`, if there is one.
    #[must_use]
    pub fn get(&self, i: usize) -> Option<Record> {
        Some(Record {
            kind: *self.kinds.get(i)?,
            tick: *self.ticks.get(i)?,
            address: *self.addresses.get(i)?,
            node: *self.nodes.get(i)?,
            size: *self.sizes.get(i)?,
        })
    }

    /// Appends a record.
    pub fn push(&mut self, record: Record) {
        self.kinds.push(record.kind);
        self.ticks.push(record.tick);
        self.nodes.push(record.node);
        self.addresses.push(record.address);
        self.sizes.push(record.size);
    }

    fn reserve(&mut self, more: usize) {
        self.kinds.reserve(more);
        self.ticks.reserve(more);
        self.nodes.reserve(more);
        self.addresses.reserve(more);
        self.sizes.reserve(more);
    }

    /// Removes all records, keeps the memory.
    pub fn clear(&mut self) {
        self.kinds.clear();
        self.ticks.clear();
        self.nodes.clear();
        self.addresses.clear();
        self.sizes.clear();
    }
}

/// Which columns a kind uses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ColumnRole {
    Alloc,
    Free,
    Other,
}

const ROLES: [ColumnRole; 64] = {
    let mut roles = [ColumnRole::Other; 64];
    let mut number = 0;
    while number < 64 {
        if let Some(kind) = Kind::from_u8(number) {
            if kind.is_alloc() || kind.is_realloc_to() {
                roles[number as usize] = ColumnRole::Alloc;
            } else if kind.is_free() || kind.is_realloc_from() {
                roles[number as usize] = ColumnRole::Free;
            }
        }
        number += 1;
    }
    roles
};

/// Unknown kinds carry everything.
#[inline]
const fn role(kind: u8) -> ColumnRole {
    ROLES[(kind & 63) as usize]
}

#[inline]
const fn context(previous: u32, before: u32) -> usize {
    let mixed = previous.wrapping_mul(0x9E37_79B1) ^ before.wrapping_mul(0x85EB_CA6B);
    (mixed ^ mixed >> 15) as usize & (CONTEXTS - 1)
}

#[inline]
const fn node_slot(node: u32) -> usize {
    (node.wrapping_mul(0x9E37_79B1) >> 16) as usize & (NODES - 1)
}

/// A C library rounds requests up to multiples of 16 after adding its own 8 bytes.
#[inline]
const fn class(size: u32) -> u8 {
    let class = (size as u64 + 23) >> 4;
    if class < CLASSES as u64 { class as u8 } else { (CLASSES - 1) as u8 }
}

/// A table whose length the compiler knows: an index below it needs no check.
type FixedTable<T, const LEN: usize> = Box<[T; LEN]>;

fn table<T: Clone + Default, const LEN: usize>() -> FixedTable<T, LEN> {
    let zeros = vec![T::default(); LEN].into_boxed_slice();
    // The length is right by construction; the alternative is only for the type.
    zeros.try_into().unwrap_or_else(|_| Box::new(core::array::from_fn(|_| T::default())))
}

/// The last event of a node.
#[derive(Debug, Clone, Copy, Default)]
struct NodeMemory {
    size: u32,
    kind: u8,
}

/// An allocation of this block.
#[derive(Debug, Clone, Copy, Default)]
struct AllocEntry {
    address: u64,
    /// Number of the next older free block of the same class; 0 = none.
    older: u32,
    class: u16,
}

/// Class of allocation number 0, which stands for none.
const NO_CLASS: u16 = CLASSES as u16;
const CLASS_MASK: usize = 2 * CLASSES - 1;

/// The predictions, kept in step by encoder and decoder. The allocations of a block have the numbers 1, 2, 3 …
#[derive(Debug)]
struct Predictions {
    next_node: FixedTable<u32, CONTEXTS>,
    memories: FixedTable<NodeMemory, NODES>,
    /// By number; the first stands for none.
    allocs: Vec<AllocEntry>,
    /// Per class: number of the allocation whose block was freed last; 0 = none. Frees without an allocation in this block
    /// go to the entry behind the last class.
    free: FixedTable<u32, { CLASS_MASK + 1 }>,
    last: LastRecord,
}

/// State left by the records before.
#[derive(Debug, Clone, Copy)]
struct LastRecord {
    /// Node of the last record, and of the one before.
    node: u32,
    before: u32,
    /// Number of the allocation whose block was freed last.
    freed: u32,
    alloc_address: u64,
    free_address: u64,
    other_address: u64,
}

impl LastRecord {
    const NOTHING: Self = Self { node: 0, before: 0, freed: 1, alloc_address: 0, free_address: 0, other_address: 0 };
}

impl Default for Predictions {
    fn default() -> Self {
        Self { next_node: table(), memories: table(), allocs: Vec::new(), free: table(), last: LastRecord::NOTHING }
    }
}

impl Predictions {
    /// Bytes of memory.
    fn memory(&self) -> usize {
        size_of_val(&*self.next_node)
            + size_of_val(&*self.memories)
            + size_of_val(&*self.free)
            + self.allocs.capacity() * size_of::<AllocEntry>()
    }

    fn restart(&mut self) {
        self.next_node.fill(0);
        self.memories.fill(NodeMemory::default());
        self.free.fill(0);
        self.allocs.clear();
        self.allocs.push(AllocEntry { class: NO_CLASS, ..AllocEntry::default() });
        self.last = LastRecord::NOTHING;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record() -> impl Strategy<Value = Record> {
        let kind = prop_oneof![Just(1_u8), Just(16), Just(24), Just(25), Just(32), 1..64_u8];
        let tick = prop_oneof![0..1000_u64, 0..1_u64 << 58];
        let address = prop_oneof![(0..9_u64).prop_map(|a| a * 16), (0..1000_u64).prop_map(|a| a * 16), any::<u64>()];
        (kind, tick, address, prop_oneof![0..9_u32, any::<u32>()], prop_oneof![0..99_u32, any::<u32>()]).prop_map(
            |(kind, tick, address, node, size)| Record {
                kind,
                tick,
                address,
                node,
                size: if role(kind) == ColumnRole::Free { 0 } else { size },
            },
        )
    }

    proptest! {
        #[test]
        fn records_come_back(records in prop::collection::vec(record(), 0..300)) {
            let mut columns = RecordColumns::default();
            records.iter().for_each(|&r| columns.push(r));
            let first = records.first().map_or(0, |r| r.tick);
            let mut payload = Vec::new();
            Encoder::new().encode(&columns, first, &mut payload);
            let mut back = RecordColumns::default();
            Decoder::new().decode(&payload, records.len() as u32, first, &mut back).unwrap();
            prop_assert_eq!(back, columns);
        }

        #[test]
        fn hostile_bytes_never_panic(bytes: Vec<u8>, count in 0_u32..100) {
            let mut framed = vec![LAYOUT];
            framed.extend_from_slice(&bytes);
            let mut columns = RecordColumns::default();
            let _ = Decoder::new().decode(&framed, count, 0, &mut columns);
            let _ = Decoder::new().decode(&bytes, count, 0, &mut columns);
        }
    }
}
