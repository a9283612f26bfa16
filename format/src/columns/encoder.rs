//! From records to the payload of an events block. This runs in the traced process, once for every event.
//!
//! In many programs it is nearly random whether a prediction holds, and a branch that the processor mispredicts costs
//! as much as the rest of a record. So each record is encoded by one path for allocations and one for frees, in which
//! what depends on a prediction is selected, not jumped to.

use super::{
    AllocEntry, CLASS_MASK, ColumnRole, FixedTable, LAYOUT, Predictions, RecordColumns, class, context, node_slot,
    role, table,
};
use crate::record::Record;
use crate::varint::{self, zigzag};

/// Allocations that the encoder can find again by address.
const FINDABLE: usize = 1 << 14;
/// Records whose entries are gathered before they are appended to the columns.
const GROUP: usize = 128;
/// The most that a record has in a column: a byte and the longest varint.
const LONGEST: usize = 1 + varint::MAX_LEN;
/// A power of two that holds the entries of a group.
const STAGE: usize = (GROUP * LONGEST).next_power_of_two();
/// Bytes that are stored at a time.
const WORD: usize = 8;

#[inline]
const fn find_slot(address: u64) -> usize {
    (address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as usize & (FINDABLE - 1)
}

/// Turns records into the payload of an events block. Reuse one for many blocks: it keeps its memory.
#[derive(Debug)]
pub struct Encoder {
    predictions: Predictions,
    /// Slot of an address → number of its latest allocation; 0 = none, or freed.
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
            nodes: ColumnBuffer::new(),
            kinds: ColumnBuffer::new(),
            ticks: ColumnBuffer::new(),
            sizes: ColumnBuffer::new(),
            addresses: ColumnBuffer::new(),
        }
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory(&self) -> usize {
        let columns = [&self.nodes, &self.kinds, &self.ticks, &self.sizes, &self.addresses];
        size_of_val(&*self.found)
            + self.predictions.memory()
            + columns.iter().map(|column| column.bytes.capacity() + size_of_val(&*column.stage)).sum::<usize>()
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
        for column in [&mut self.nodes, &mut self.kinds, &mut self.ticks, &mut self.sizes, &mut self.addresses] {
            column.bytes.clear();
        }
        self.predictions.restart();
        self.found.fill(0);
    }

    /// Adds records to the payload that was begun.
    #[inline]
    pub fn add(&mut self, mut records: impl Iterator<Item = Record>) {
        while self.add_group(&mut records) {}
    }

    /// Appends the payload to `out`.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        out.push(LAYOUT);
        out.push(self.shift as u8);
        let columns = [&self.nodes, &self.kinds, &self.ticks, &self.sizes, &self.addresses];
        for column in columns {
            varint::put(out, column.bytes.len() as u64);
        }
        for column in columns {
            out.extend_from_slice(&column.bytes);
        }
    }

    /// Adds the next [`GROUP`] records; false when there are no more.
    #[inline(always)]
    fn add_group(&mut self, records: &mut impl Iterator<Item = Record>) -> bool {
        let Self { predictions, found, shift, tick: last_tick, nodes, kinds, ticks, sizes, addresses } = self;
        let Predictions { next_node, memories, allocs, free, last: kept } = predictions;
        let (shift, mut last, mut tick) = (*shift, *kept, *last_tick);
        let mut group = RecordGroup {
            nodes: ColumnStage::of(&mut nodes.stage),
            kinds: ColumnStage::of(&mut kinds.stage),
            ticks: ColumnStage::of(&mut ticks.stage),
            sizes: ColumnStage::of(&mut sizes.stage),
            addresses: ColumnStage::of(&mut addresses.stage),
        };
        let mut count = 0;
        while count < GROUP
            && let Some(record) = records.next()
        {
            count += 1;
            let Record { kind, node, address, size, .. } = record;
            group.ticks.put_small(zigzag(record.tick.wrapping_sub(tick) as i64));
            tick = record.tick;

            let expected = &mut next_node[context(last.node, last.before)];
            let memory = &mut memories[node_slot(node)];
            let other = memory.kind != kind;
            // A program's events recur: the branch is predicted well.
            if (*expected == node) & !other {
                group.nodes.store([0], 1);
            } else {
                let step = zigzag(i64::from(node) - i64::from(last.node));
                group.nodes.put(1 + (step << 1 | u64::from(other)));
                group.kinds.put_byte_if(other, kind);
                *expected = node;
                memory.kind = kind;
            }
            (last.before, last.node) = (last.node, node);

            match role(kind) {
                ColumnRole::Alloc => {
                    group.sizes.put_small(if memory.size == size { 0 } else { 1 + u64::from(size) });
                    memory.size = size;
                    let class = class(size);
                    let head = &mut free[usize::from(class)];
                    let reused = allocs.get(*head as usize).filter(|_| *head != 0);
                    if let Some(alloc) = reused.filter(|alloc| alloc.address == address) {
                        *head = alloc.older;
                        group.addresses.store([0], 1);
                    } else {
                        let step = zigzag(address.wrapping_sub(last.alloc_address) as i64 >> shift);
                        if step > u64::MAX - 2 {
                            group.addresses.put_apart(step);
                        } else {
                            group.addresses.put(step + 2);
                        }
                    }
                    last.alloc_address = address;
                    found[find_slot(address)] = allocs.len() as u32;
                    allocs.push(AllocEntry { address, older: 0, class: u16::from(class) });
                }
                ColumnRole::Free => {
                    let number = &mut found[find_slot(address)];
                    let alloc = allocs.get_mut(*number as usize).filter(|_| *number != 0);
                    if let Some(alloc) = alloc.filter(|alloc| alloc.address == address) {
                        group.addresses.put(1 + zigzag(i64::from(*number) - i64::from(last.freed)));
                        let head = &mut free[usize::from(alloc.class) & CLASS_MASK];
                        (alloc.older, *head, last.freed) = (*head, *number, *number);
                        // A second free of the same block (seen only when its allocation is in another thread's stream)
                        // is not a free of this allocation.
                        *number = 0;
                    } else {
                        group.addresses.store([0], 1);
                        group.addresses.put(zigzag(address.wrapping_sub(last.free_address) as i64 >> shift));
                        last.free_address = address;
                    }
                }
                ColumnRole::Other => {
                    group.sizes.put_small(if memory.size == size { 0 } else { 1 + u64::from(size) });
                    memory.size = size;
                    group.addresses.put(zigzag(address.wrapping_sub(last.other_address) as i64 >> shift));
                    last.other_address = address;
                }
            }
        }
        let RecordGroup { nodes: at_nodes, kinds: at_kinds, ticks: at_ticks, sizes: at_sizes, addresses: at_addresses } =
            group;
        let ends = [at_nodes.at, at_kinds.at, at_ticks.at, at_sizes.at, at_addresses.at];
        for (column, end) in [nodes, kinds, ticks, sizes, addresses].into_iter().zip(ends) {
            column.bytes.extend_from_slice(column.stage.get(..end).unwrap_or_default());
        }
        (*kept, *last_tick) = (last, tick);
        count == GROUP
    }
}

/// One column's bytes, and the place where those of the next records gather.
#[derive(Debug)]
struct ColumnBuffer {
    bytes: Vec<u8>,
    stage: FixedTable<u8, { STAGE + WORD }>,
}

impl ColumnBuffer {
    fn new() -> Self {
        Self { bytes: Vec::new(), stage: table() }
    }
}

struct RecordGroup<'a> {
    nodes: ColumnStage<'a>,
    kinds: ColumnStage<'a>,
    ticks: ColumnStage<'a>,
    sizes: ColumnStage<'a>,
    addresses: ColumnStage<'a>,
}

/// The entries of a group in one column. The place is large enough for every group, so positions are not checked but
/// masked.
struct ColumnStage<'a> {
    bytes: &'a mut [u8; STAGE + WORD],
    at: usize,
}

impl<'a> ColumnStage<'a> {
    #[inline(always)]
    const fn of(bytes: &'a mut [u8; STAGE + WORD]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Stores bytes, the first `len` of which stay.
    #[inline(always)]
    fn store<const N: usize>(&mut self, bytes: [u8; N], len: usize) {
        let at = self.at & (STAGE - 1);
        self.bytes[at..at + N].copy_from_slice(&bytes);
        self.at += len;
    }

    #[inline(always)]
    fn put_byte_if(&mut self, condition: bool, byte: u8) {
        self.store([byte], usize::from(condition));
    }

    /// As [`put`](Self::put), where integers have one byte in most programs.
    #[inline(always)]
    fn put_small(&mut self, value: u64) {
        if value < 0x80 {
            self.store([value as u8], 1);
        } else {
            self.put(value);
        }
    }

    /// Appends an integer in the encoding of [`varint::put`].
    #[inline(always)]
    fn put(&mut self, value: u64) {
        if value < 1 << 14 {
            let two = value >= 0x80;
            let word = (value as u32 & 0x7f) | u32::from(two) << 7 | value as u32 >> 7 << 8;
            self.store((word as u16).to_le_bytes(), 1 + usize::from(two));
        } else if value < 1 << 28 {
            let value = value as u32;
            let halves = value & 0x3fff | (value & 0x0fff_c000) << 2;
            let quarters = halves & 0x007f_007f | (halves & 0x3f80_3f80) << 1;
            let four = value >= 1 << 21;
            self.store((quarters | 0x8080 | u32::from(four) << 23).to_le_bytes(), 3 + usize::from(four));
        } else {
            self.put_long(value);
        }
    }

    /// An address entry whose step leaves no room for the two numbers before it.
    #[cold]
    fn put_apart(&mut self, step: u64) {
        self.store([1], 1);
        self.put_long(step);
    }

    #[cold]
    fn put_long(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.store([value as u8 | 0x80], 1);
            value >>= 7;
        }
        self.store([value as u8], 1);
    }
}
