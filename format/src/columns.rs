//! The payload of an events block: the records of one thread, column by column.
//!
//! ```text
//! u8      layout, 1
//! u8      address shift: all addresses are multiples of 1 << shift
//! varint  length in bytes of the kinds, ticks, nodes, addresses and sizes columns
//! columns, in that order
//! ```
//! - kinds: one byte a record.
//! - ticks: zig-zag varint of the difference to the record before (the first: to the block's first tick).
//! - nodes: one varint a record: 0 = the node that followed the same (kind, previous node) last time in this block;
//!   else 1 + zig-zag of the difference to the previous record's node.
//! - addresses: one varint a record: zig-zag of the difference to the previous address, shifted right.
//! - sizes: one varint for each record whose kind carries a size: 0 = the size that this node had last time in this
//!   block; else 1 + size.
//!
//! The two predictions use direct-mapped tables of [`TABLE`] entries that start zeroed with every block, so that a
//! block stands alone.

use crate::record::{Kind, Record};
use crate::varint::{Reader, put, unzigzag, zigzag};
use crate::{FormatError, Result};

/// Layout number written by this version.
pub const LAYOUT: u8 = 1;
/// Entries of a prediction table.
pub const TABLE: usize = 4096;

const WHAT: &str = "a block of events";

/// Events of one block, column by column; index `i` is one record in all five.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Columns {
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

impl Columns {
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

    /// Removes all records, keeps the memory.
    pub fn clear(&mut self) {
        self.kinds.clear();
        self.ticks.clear();
        self.nodes.clear();
        self.addresses.clear();
        self.sizes.clear();
    }
}

/// Whether records of this kind number carry a size; unknown kinds do.
const fn has_size(kind: u8) -> bool {
    match Kind::from_u8(kind) {
        Some(kind) => !(kind.is_free() || kind.is_realloc_from()),
        None => true,
    }
}

#[inline]
const fn node_slot(kind: u8, previous: u32) -> usize {
    (previous.wrapping_mul(0x9E37_79B1) ^ (kind as u32).wrapping_mul(0x85EB_CA6B)) as usize >> 8 & (TABLE - 1)
}

#[inline]
const fn size_slot(node: u32) -> usize {
    node.wrapping_mul(0x9E37_79B1) as usize >> 8 & (TABLE - 1)
}

/// Turns records into the payload of an events block. Reuse one for many blocks: it keeps its memory.
#[derive(Debug, Default)]
pub struct Encoder {
    ticks: Vec<u8>,
    nodes: Vec<u8>,
    addresses: Vec<u8>,
    sizes: Vec<u8>,
    next_node: Vec<u32>,
    last_size: Vec<u32>,
}

impl Encoder {
    /// An encoder without memory yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends the payload for `columns` to `out`; `first_tick` is the block header's.
    pub fn encode(&mut self, columns: &Columns, first_tick: u64, out: &mut Vec<u8>) {
        for column in [&mut self.ticks, &mut self.nodes, &mut self.addresses, &mut self.sizes] {
            column.clear();
        }
        for table in [&mut self.next_node, &mut self.last_size] {
            table.clear();
            table.resize(TABLE, 0);
        }
        let used_bits = columns.addresses.iter().fold(0, |bits, address| bits | address);
        let shift = if used_bits == 0 { 0 } else { used_bits.trailing_zeros().min(12) };
        let (mut tick, mut node, mut address) = (first_tick, 0_u32, 0_u64);
        let rows =
            columns.kinds.iter().zip(&columns.ticks).zip(&columns.nodes).zip(&columns.addresses).zip(&columns.sizes);
        for ((((&kind, &at), &its_node), &its_address), &size) in rows {
            put(&mut self.ticks, zigzag(at.wrapping_sub(tick) as i64));
            tick = at;
            let guess = &mut self.next_node[node_slot(kind, node)];
            if *guess == its_node {
                self.nodes.push(0);
            } else {
                put(&mut self.nodes, 1 + zigzag(i64::from(its_node) - i64::from(node)));
                *guess = its_node;
            }
            node = its_node;
            put(&mut self.addresses, zigzag(its_address.wrapping_sub(address) as i64 >> shift));
            address = its_address;
            if has_size(kind) {
                let guess = &mut self.last_size[size_slot(node)];
                if *guess == size {
                    self.sizes.push(0);
                } else {
                    put(&mut self.sizes, 1 + u64::from(size));
                    *guess = size;
                }
            }
        }
        out.push(LAYOUT);
        out.push(shift as u8);
        for len in [columns.kinds.len(), self.ticks.len(), self.nodes.len(), self.addresses.len(), self.sizes.len()] {
            put(out, len as u64);
        }
        out.extend_from_slice(&columns.kinds);
        for column in [&self.ticks, &self.nodes, &self.addresses, &self.sizes] {
            out.extend_from_slice(column);
        }
    }
}

/// Takes the payloads of events blocks apart. Reuse one for many blocks: it keeps its tables.
#[derive(Debug, Default)]
pub struct Decoder {
    next_node: Vec<u32>,
    last_size: Vec<u32>,
}

impl Decoder {
    /// A decoder without memory yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the payload of a block that promises `count` records and starts at `first_tick`, into `columns`
    /// (cleared first).
    ///
    /// # Errors
    /// When the layout is unknown, a column is cut off or has bytes left over, or a value does not fit its field.
    pub fn decode(&mut self, payload: &[u8], count: u32, first_tick: u64, columns: &mut Columns) -> Result<()> {
        columns.clear();
        for table in [&mut self.next_node, &mut self.last_size] {
            table.clear();
            table.resize(TABLE, 0);
        }
        let short = || FormatError::malformed(WHAT, "it ends early");
        let mut reader = Reader::new(payload);
        let layout = reader.next_u8().ok_or_else(short)?;
        if layout != LAYOUT {
            return Err(FormatError::malformed(WHAT, format!("unknown layout {layout}")));
        }
        let shift = u32::from(reader.next_u8().ok_or_else(short)?);
        if shift > 12 {
            return Err(FormatError::malformed(WHAT, format!("address shift {shift}")));
        }
        let mut lens = [0_usize; 5];
        for len in &mut lens {
            *len = usize::try_from(reader.next_u64().ok_or_else(short)?).map_err(|_| short())?;
        }
        let mut column = |len: usize| reader.take(len).ok_or_else(short);
        let kinds = column(lens[0])?;
        let (mut ticks, mut nodes) = (Reader::new(column(lens[1])?), Reader::new(column(lens[2])?));
        let (mut addresses, mut sizes) = (Reader::new(column(lens[3])?), Reader::new(column(lens[4])?));
        if kinds.len() != count as usize {
            return Err(FormatError::malformed(WHAT, format!("{} records where {count} were promised", kinds.len())));
        }
        columns.kinds.extend_from_slice(kinds);
        columns.ticks.reserve(kinds.len());
        columns.nodes.reserve(kinds.len());
        columns.addresses.reserve(kinds.len());
        columns.sizes.reserve(kinds.len());
        let too_large = || FormatError::malformed(WHAT, "a value is too large for its field");
        let (mut tick, mut node, mut address) = (first_tick, 0_u32, 0_u64);
        for &kind in kinds {
            tick = tick.wrapping_add(unzigzag(ticks.next_u64().ok_or_else(short)?) as u64);
            columns.ticks.push(tick);
            let slot = node_slot(kind, node);
            match nodes.next_u64().ok_or_else(short)? {
                0 => node = self.next_node[slot],
                coded => {
                    let next = i64::from(node).wrapping_add(unzigzag(coded - 1));
                    node = u32::try_from(next).map_err(|_| too_large())?;
                    self.next_node[slot] = node;
                }
            }
            columns.nodes.push(node);
            let step = (unzigzag(addresses.next_u64().ok_or_else(short)?) as u64) << shift;
            address = address.wrapping_add(step);
            columns.addresses.push(address);
            let size = if has_size(kind) {
                let slot = size_slot(node);
                match sizes.next_u64().ok_or_else(short)? {
                    0 => self.last_size[slot],
                    coded => {
                        let size = u32::try_from(coded - 1).map_err(|_| too_large())?;
                        self.last_size[slot] = size;
                        size
                    }
                }
            } else {
                0
            };
            columns.sizes.push(size);
        }
        if ticks.is_empty() && nodes.is_empty() && addresses.is_empty() && sizes.is_empty() && reader.is_empty() {
            Ok(())
        } else {
            Err(FormatError::malformed(WHAT, "bytes are left over"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record() -> impl Strategy<Value = Record> {
        let kind = prop_oneof![Just(1_u8), Just(16), Just(24), Just(25), Just(32), 1..64_u8];
        let tick = prop_oneof![0..1000_u64, 0..1_u64 << 58];
        let address = prop_oneof![(0..1000_u64).prop_map(|a| a * 16), any::<u64>()];
        (kind, tick, address, prop_oneof![0..9_u32, any::<u32>()], prop_oneof![0..99_u32, any::<u32>()]).prop_map(
            |(kind, tick, address, node, size)| Record {
                kind,
                tick,
                address,
                node,
                size: if has_size(kind) { size } else { 0 },
            },
        )
    }

    proptest! {
        #[test]
        fn records_come_back(records in prop::collection::vec(record(), 0..300)) {
            let mut columns = Columns::default();
            records.iter().for_each(|&r| columns.push(r));
            let first = records.first().map_or(0, |r| r.tick);
            let mut payload = Vec::new();
            Encoder::new().encode(&columns, first, &mut payload);
            let mut back = Columns::default();
            Decoder::new().decode(&payload, records.len() as u32, first, &mut back).unwrap();
            prop_assert_eq!(back, columns);
        }

        #[test]
        fn hostile_bytes_never_panic(bytes: Vec<u8>, count in 0_u32..100) {
            let mut framed = vec![LAYOUT];
            framed.extend_from_slice(&bytes);
            let mut columns = Columns::default();
            let _ = Decoder::new().decode(&framed, count, 0, &mut columns);
            let _ = Decoder::new().decode(&bytes, count, 0, &mut columns);
        }
    }
}
