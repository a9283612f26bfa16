//! From records to the payload of an events block. This runs in the traced process, once for every event.

use super::{ColumnRole, FixedTable, LAYOUT, Predictions, RecordColumns, class, context, node_slot, role, table};
use crate::record::Record;
use crate::varint::{self, zigzag};

/// Allocations that the encoder can find again by address.
const FINDABLE: usize = 1 << 14;

#[inline]
const fn find_slot(address: u64) -> usize {
    (address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as usize & (FINDABLE - 1)
}

/// Turns records into the payload of an events block. Reuse one for many blocks: it keeps its memory.
#[derive(Debug)]
pub struct Encoder {
    predictions: Predictions,
    /// Slot of an address → 1 + ordinal of its latest allocation.
    found: FixedTable<u32, FINDABLE>,
    shift: u32,
    /// Of the record before.
    tick: u64,
    nodes: ColumnBuffer,
    kinds: ColumnBuffer,
    ticks: ColumnBuffer,
    sizes: ColumnBuffer,
    addresses: ColumnBuffer,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// An encoder.
    #[must_use]
    pub fn new() -> Self {
        Self {
            predictions: Predictions::default(),
            found: table(),
            shift: 0,
            tick: 0,
            nodes: ColumnBuffer::default(),
            kinds: ColumnBuffer::default(),
            ticks: ColumnBuffer::default(),
            sizes: ColumnBuffer::default(),
            addresses: ColumnBuffer::default(),
        }
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory(&self) -> usize {
        let columns = [&self.nodes, &self.kinds, &self.ticks, &self.sizes, &self.addresses];
        size_of_val(&*self.found)
            + self.predictions.memory()
            + columns.iter().map(|column| column.buffer.capacity()).sum::<usize>()
    }

    /// Appends the payload for `columns` to `out`; `first_tick` is the block header's.
    pub fn encode(&mut self, columns: &RecordColumns, first_tick: u64, out: &mut Vec<u8>) {
        let rows =
            columns.kinds.iter().zip(&columns.ticks).zip(&columns.nodes).zip(&columns.addresses).zip(&columns.sizes);
        let records =
            rows.map(|((((&kind, &tick), &node), &address), &size)| Record { kind, tick, address, node, size });
        self.begin(columns.addresses.iter().fold(0, |bits, address| bits | address), first_tick);
        self.add(records);
        self.finish(out);
    }

    /// Begins a payload. `address_bits` are those that occur in any address word, `first_tick` is the block header's.
    pub fn begin(&mut self, address_bits: u64, first_tick: u64) {
        self.shift = if address_bits == 0 { 0 } else { address_bits.trailing_zeros().min(12) };
        self.tick = first_tick;
        self.restart();
    }

    /// Adds records to the payload that was begun.
    #[inline]
    pub fn add(&mut self, records: impl Iterator<Item = Record>) {
        let shift = self.shift;
        let mut tick = self.tick;
        records.for_each(|record| {
            self.node_and_kind(record.node, record.kind);
            self.ticks.put(zigzag(record.tick.wrapping_sub(tick) as i64));
            tick = record.tick;
            let role = role(record.kind);
            if role != ColumnRole::Free {
                self.size(record.node, record.size);
            }
            self.address(role, record.address, record.size, shift);
        });
        self.tick = tick;
    }

    /// Appends the payload to `out`.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        out.push(LAYOUT);
        out.push(self.shift as u8);
        let columns = [&self.nodes, &self.kinds, &self.ticks, &self.sizes, &self.addresses];
        for column in columns {
            varint::put(out, column.bytes().len() as u64);
        }
        for column in columns {
            out.extend_from_slice(column.bytes());
        }
    }

    fn restart(&mut self) {
        for column in [&mut self.nodes, &mut self.kinds, &mut self.ticks, &mut self.sizes, &mut self.addresses] {
            column.len = 0;
        }
        self.predictions.restart();
        self.found.fill(0);
    }

    #[inline(always)]
    fn node_and_kind(&mut self, node: u32, kind: u8) {
        let predictions = &mut self.predictions;
        let prediction = &mut predictions.next_node[context(predictions.previous, predictions.before)];
        let last_kind = &mut predictions.memories[node_slot(node)].kind;
        let other = *last_kind != kind;
        if *prediction == node && !other {
            self.nodes.put_byte(0);
        } else {
            let step = zigzag(i64::from(node) - i64::from(predictions.previous));
            self.nodes.put(1 + (step << 1 | u64::from(other)));
            *prediction = node;
            if other {
                self.kinds.put_byte(kind);
                *last_kind = kind;
            }
        }
        predictions.before = predictions.previous;
        predictions.previous = node;
    }

    #[inline(always)]
    fn size(&mut self, node: u32, size: u32) {
        let prediction = &mut self.predictions.memories[node_slot(node)].size;
        if *prediction == size {
            self.sizes.put_byte(0);
        } else {
            self.sizes.put(1 + u64::from(size));
            *prediction = size;
        }
    }

    #[inline(always)]
    fn address(&mut self, role: ColumnRole, address: u64, size: u32, shift: u32) {
        let predictions = &mut self.predictions;
        let step = |from: u64| zigzag(address.wrapping_sub(from) as i64 >> shift);
        match role {
            ColumnRole::Alloc => {
                let class = class(size);
                let older = predictions.reused(class).filter(|alloc| alloc.address == address).map(|alloc| alloc.older);
                if older.is_some() {
                    self.addresses.put_byte(0);
                } else {
                    let step = step(predictions.alloc_address);
                    if step > u64::MAX - 2 {
                        self.addresses.put_byte(1);
                        self.addresses.put(step);
                    } else {
                        self.addresses.put(step + 2);
                    }
                }
                predictions.allocated(address, class, older);
                self.found[find_slot(address)] = predictions.allocs.len() as u32;
            }
            ColumnRole::Free => {
                let ordinal = self.found[find_slot(address)].wrapping_sub(1);
                if predictions.allocs.get(ordinal as usize).is_some_and(|alloc| alloc.address == address) {
                    self.addresses.put(1 + zigzag(i64::from(ordinal) - i64::from(predictions.last_dead)));
                    predictions.freed(ordinal);
                    // A second free of the same block (seen only when its allocation is in another thread's stream) is
                    // not a free of this allocation.
                    self.found[find_slot(address)] = 0;
                } else {
                    self.addresses.put_byte(0);
                    self.addresses.put(step(predictions.free_address));
                    predictions.free_address = address;
                }
            }
            ColumnRole::Other => {
                self.addresses.put(step(predictions.other_address));
                predictions.other_address = address;
            }
        }
    }
}

/// One column's bytes: the first `len` of `buffer`, the rest is room.
#[derive(Debug, Default)]
struct ColumnBuffer {
    buffer: Vec<u8>,
    len: usize,
}

impl ColumnBuffer {
    fn bytes(&self) -> &[u8] {
        self.buffer.get(..self.len).unwrap_or_default()
    }

    /// Appends an integer in the encoding of [`varint::put`].
    #[inline(always)]
    fn put(&mut self, value: u64) {
        if value < 0x80 {
            self.put_byte(value as u8);
        } else if value < 1 << 14
            && let Some(place) = self.buffer.get_mut(self.len..self.len + 2)
        {
            place.copy_from_slice(&((value & 0x7f | 0x80 | value >> 7 << 8) as u16).to_le_bytes());
            self.len += 2;
        } else {
            self.put_long(value);
        }
    }

    #[inline(always)]
    fn put_byte(&mut self, byte: u8) {
        match self.buffer.get_mut(self.len) {
            Some(place) => *place = byte,
            None => self.grow(byte),
        }
        self.len += 1;
    }

    #[cold]
    fn grow(&mut self, byte: u8) {
        self.buffer.push(byte);
        self.buffer.resize((2 * self.len).max(4096), 0);
    }

    #[inline(never)]
    fn put_long(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.put_byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.put_byte(value as u8);
    }
}
