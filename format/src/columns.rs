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
//! The columns hold what these four guesses miss:
//!
//! - nodes: one varint a record. 0 = the node that followed the two previous nodes last time, with the kind that it
//!   had last time. Else `1 + (zigzag(node - previous node) << 1 | other)`; `other` = the kind is not the node's last
//!   one and stands in the kinds column.
//! - kinds: one byte for each record with `other`.
//! - ticks: zig-zag varint of the difference to the record before (the first: to the block's first tick).
//! - sizes: one varint for each record whose kind carries a size: 0 = the size that this node had last time, else
//!   1 + size.
//! - addresses of births: 0 = the block of this size class that died last and was not handed out since;
//!   1 = a zig-zag varint of the shifted difference to the last birth's address follows; else 2 + that difference.
//! - addresses of deaths: 0 = a zig-zag varint of the shifted difference to the last such death's address follows;
//!   else 1 + zigzag(ordinal of the birth in this block - ordinal of the birth whose block died last).
//! - other addresses: zig-zag varint of the shifted difference to the last one of them.
//!
//! The guesses start from zero with every block, so that a block stands alone.

use crate::record::{Kind, Record};
use crate::varint::{Reader, put, unzigzag, zigzag};
use crate::{FormatError, Result};

/// Layout number written by this version.
pub const LAYOUT: u8 = 1;
/// Contexts of the node guess.
const CONTEXTS: usize = 1 << 14;
/// Nodes with a remembered kind and size.
const NODES: usize = 1 << 12;
/// Size classes: 16 bytes each, the last one is open.
const CLASSES: usize = 256;
/// Births that the encoder can find again by address.
const FINDABLE: usize = 1 << 14;

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

/// What a kind means for the columns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Birth,
    Death,
    Other,
}

const ROLES: [Role; 64] = {
    let mut roles = [Role::Other; 64];
    let mut number = 0;
    while number < 64 {
        if let Some(kind) = Kind::from_u8(number) {
            if kind.is_alloc() || kind.is_realloc_to() {
                roles[number as usize] = Role::Birth;
            } else if kind.is_free() || kind.is_realloc_from() {
                roles[number as usize] = Role::Death;
            }
        }
        number += 1;
    }
    roles
};

/// Unknown kinds carry everything.
#[inline]
const fn role(kind: u8) -> Role {
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

#[inline]
const fn find_slot(address: u64) -> usize {
    (address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as usize & (FINDABLE - 1)
}

/// A C library rounds requests up to multiples of 16 after adding its own 8 bytes.
#[inline]
const fn class(size: u32) -> usize {
    let class = (size as usize + 23) >> 4;
    if class < CLASSES { class } else { CLASSES - 1 }
}

/// The guesses, kept in step by encoder and decoder.
#[derive(Debug, Default)]
struct Guesses {
    next_node: Vec<u32>,
    last_kind: Vec<u8>,
    last_size: Vec<u32>,
    /// Births of this block: address, and the next older free block of the same class (1 + ordinal; 0 = none).
    births: Vec<(u64, u32, u8)>,
    /// Per class: 1 + ordinal of the birth whose block died last; 0 = none.
    free: Vec<u32>,
    previous: u32,
    before: u32,
    last_dead: u32,
    birth_address: u64,
    death_address: u64,
    other_address: u64,
}

impl Guesses {
    fn restart(&mut self) {
        fn zero<T: Clone + Default>(table: &mut Vec<T>, len: usize) {
            table.clear();
            table.resize(len, T::default());
        }
        zero(&mut self.next_node, CONTEXTS);
        zero(&mut self.last_kind, NODES);
        zero(&mut self.last_size, NODES);
        zero(&mut self.free, CLASSES);
        self.births.clear();
        (self.previous, self.before, self.last_dead) = (0, 0, 0);
        (self.birth_address, self.death_address, self.other_address) = (0, 0, 0);
    }

    /// The address that a birth of this class is expected at.
    #[inline]
    fn reused(&self, class: usize) -> Option<u64> {
        self.births.get((self.free[class] as usize).wrapping_sub(1)).map(|birth| birth.0)
    }

    #[inline]
    fn born(&mut self, address: u64, class: usize, reused: bool) {
        if reused && let Some(birth) = self.births.get(self.free[class] as usize - 1) {
            self.free[class] = birth.1;
        }
        self.births.push((address, 0, class as u8));
        self.birth_address = address;
    }

    /// The block of birth `ordinal` died.
    #[inline]
    fn died(&mut self, ordinal: u32) {
        if let Some(birth) = self.births.get_mut(ordinal as usize) {
            let head = &mut self.free[birth.2 as usize];
            birth.1 = *head;
            *head = ordinal + 1;
        }
        self.last_dead = ordinal;
    }
}

/// Turns records into the payload of an events block. Reuse one for many blocks: it keeps its memory.
#[derive(Debug, Default)]
pub struct Encoder {
    guesses: Guesses,
    /// Slot of an address → 1 + ordinal of its latest birth.
    found: Vec<u32>,
    nodes: Vec<u8>,
    kinds: Vec<u8>,
    ticks: Vec<u8>,
    sizes: Vec<u8>,
    addresses: Vec<u8>,
}

impl Encoder {
    /// An encoder without memory yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends the payload for `columns` to `out`; `first_tick` is the block header's.
    pub fn encode(&mut self, columns: &Columns, first_tick: u64, out: &mut Vec<u8>) {
        for column in [&mut self.nodes, &mut self.kinds, &mut self.ticks, &mut self.sizes, &mut self.addresses] {
            column.clear();
        }
        self.guesses.restart();
        self.found.clear();
        self.found.resize(FINDABLE, 0);
        let used_bits = columns.addresses.iter().fold(0, |bits, address| bits | address);
        let shift = if used_bits == 0 { 0 } else { used_bits.trailing_zeros().min(12) };
        let mut tick = first_tick;
        let rows =
            columns.kinds.iter().zip(&columns.ticks).zip(&columns.nodes).zip(&columns.addresses).zip(&columns.sizes);
        for ((((&kind, &at), &node), &address), &size) in rows {
            self.node_and_kind(node, kind);
            put(&mut self.ticks, zigzag(at.wrapping_sub(tick) as i64));
            tick = at;
            let role = role(kind);
            if role != Role::Death {
                self.size(node, size);
            }
            self.address(role, address, size, shift);
        }
        out.push(LAYOUT);
        out.push(shift as u8);
        let columns = [&self.nodes, &self.kinds, &self.ticks, &self.sizes, &self.addresses];
        for column in columns {
            put(out, column.len() as u64);
        }
        for column in columns {
            out.extend_from_slice(column);
        }
    }

    #[inline]
    fn node_and_kind(&mut self, node: u32, kind: u8) {
        let guesses = &mut self.guesses;
        let guess = &mut guesses.next_node[context(guesses.previous, guesses.before)];
        let last_kind = &mut guesses.last_kind[node_slot(node)];
        let other = *last_kind != kind;
        if *guess == node && !other {
            self.nodes.push(0);
        } else {
            let step = zigzag(i64::from(node) - i64::from(guesses.previous));
            put(&mut self.nodes, 1 + (step << 1 | u64::from(other)));
            *guess = node;
            if other {
                self.kinds.push(kind);
                *last_kind = kind;
            }
        }
        guesses.before = guesses.previous;
        guesses.previous = node;
    }

    #[inline]
    fn size(&mut self, node: u32, size: u32) {
        let guess = &mut self.guesses.last_size[node_slot(node)];
        if *guess == size {
            self.sizes.push(0);
        } else {
            put(&mut self.sizes, 1 + u64::from(size));
            *guess = size;
        }
    }

    #[inline]
    fn address(&mut self, role: Role, address: u64, size: u32, shift: u32) {
        let guesses = &mut self.guesses;
        let step = |from: u64| zigzag(address.wrapping_sub(from) as i64 >> shift);
        match role {
            Role::Birth => {
                let class = class(size);
                let reused = guesses.reused(class) == Some(address);
                if reused {
                    self.addresses.push(0);
                } else {
                    let step = step(guesses.birth_address);
                    if step > u64::MAX - 2 {
                        self.addresses.push(1);
                        put(&mut self.addresses, step);
                    } else {
                        put(&mut self.addresses, step + 2);
                    }
                }
                guesses.born(address, class, reused);
                self.found[find_slot(address)] = guesses.births.len() as u32;
            }
            Role::Death => {
                let ordinal = self.found[find_slot(address)].wrapping_sub(1);
                if guesses.births.get(ordinal as usize).is_some_and(|birth| birth.0 == address) {
                    put(&mut self.addresses, 1 + zigzag(i64::from(ordinal) - i64::from(guesses.last_dead)));
                    guesses.died(ordinal);
                    // A second death of the same block (seen only when its birth is in another thread's stream) is
                    // not a death of this birth.
                    self.found[find_slot(address)] = 0;
                } else {
                    self.addresses.push(0);
                    put(&mut self.addresses, step(guesses.death_address));
                    guesses.death_address = address;
                }
            }
            Role::Other => {
                put(&mut self.addresses, step(guesses.other_address));
                guesses.other_address = address;
            }
        }
    }
}

/// Takes the payloads of events blocks apart. Reuse one for many blocks: it keeps its tables.
#[derive(Debug, Default)]
pub struct Decoder {
    guesses: Guesses,
}

fn short() -> FormatError {
    FormatError::malformed(WHAT, "it ends early")
}

fn too_large() -> FormatError {
    FormatError::malformed(WHAT, "a value is too large for its field")
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
        self.guesses.restart();
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
        let mut column = |len: usize| reader.take(len).map(Reader::new).ok_or_else(short);
        let (mut nodes, mut kinds) = (column(lens[0])?, column(lens[1])?);
        let (mut ticks, mut sizes, mut addresses) = (column(lens[2])?, column(lens[3])?, column(lens[4])?);
        // Every record has a byte in the nodes column: a lying count cannot make us reserve more than the payload.
        if count as usize > lens[0] {
            return Err(FormatError::malformed(WHAT, format!("{count} records do not fit")));
        }
        columns.reserve(count as usize);
        let mut tick = first_tick;
        for _ in 0..count {
            let (node, kind) = self.node_and_kind(&mut nodes, &mut kinds)?;
            tick = tick.wrapping_add(unzigzag(ticks.next_u64().ok_or_else(short)?) as u64);
            let role = role(kind);
            let size = if role == Role::Death { 0 } else { self.size(node, &mut sizes)? };
            let address = self.address(role, size, shift, &mut addresses)?;
            columns.push(Record { kind, tick, address, node, size });
        }
        let rest = [nodes, kinds, ticks, sizes, addresses, reader];
        if rest.iter().all(Reader::is_empty) {
            Ok(())
        } else {
            Err(FormatError::malformed(WHAT, "bytes are left over"))
        }
    }

    #[inline]
    fn node_and_kind(&mut self, nodes: &mut Reader<'_>, kinds: &mut Reader<'_>) -> Result<(u32, u8)> {
        let guesses = &mut self.guesses;
        let guess = &mut guesses.next_node[context(guesses.previous, guesses.before)];
        let coded = nodes.next_u64().ok_or_else(short)?;
        let mut other = false;
        if coded != 0 {
            let step = unzigzag((coded - 1) >> 1);
            other = (coded - 1) & 1 != 0;
            *guess = u32::try_from(i64::from(guesses.previous).wrapping_add(step)).map_err(|_| too_large())?;
        }
        let node = *guess;
        let kind = &mut guesses.last_kind[node_slot(node)];
        if other {
            *kind = kinds.next_u8().ok_or_else(short)?;
        }
        guesses.before = guesses.previous;
        guesses.previous = node;
        Ok((node, *kind))
    }

    #[inline]
    fn size(&mut self, node: u32, sizes: &mut Reader<'_>) -> Result<u32> {
        let guess = &mut self.guesses.last_size[node_slot(node)];
        let coded = sizes.next_u64().ok_or_else(short)?;
        if coded != 0 {
            *guess = u32::try_from(coded - 1).map_err(|_| too_large())?;
        }
        Ok(*guess)
    }

    #[inline]
    fn address(&mut self, role: Role, size: u32, shift: u32, addresses: &mut Reader<'_>) -> Result<u64> {
        let guesses = &mut self.guesses;
        let coded = addresses.next_u64().ok_or_else(short)?;
        let after = |from: u64, step: u64| from.wrapping_add((unzigzag(step) as u64) << shift);
        Ok(match role {
            Role::Birth => {
                let class = class(size);
                let address = match coded {
                    0 => guesses
                        .reused(class)
                        .ok_or_else(|| FormatError::malformed(WHAT, "a birth reuses a block that is not there"))?,
                    1 => after(guesses.birth_address, addresses.next_u64().ok_or_else(short)?),
                    _ => after(guesses.birth_address, coded - 2),
                };
                guesses.born(address, class, coded == 0);
                address
            }
            Role::Death if coded != 0 => {
                let ordinal = i64::from(guesses.last_dead).wrapping_add(unzigzag(coded - 1));
                let ordinal = u32::try_from(ordinal).map_err(|_| too_large())?;
                let birth = guesses.births.get(ordinal as usize);
                let address = birth.ok_or_else(|| FormatError::malformed(WHAT, "a death without its birth"))?.0;
                guesses.died(ordinal);
                address
            }
            Role::Death => {
                guesses.death_address = after(guesses.death_address, addresses.next_u64().ok_or_else(short)?);
                guesses.death_address
            }
            Role::Other => {
                guesses.other_address = after(guesses.other_address, coded);
                guesses.other_address
            }
        })
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
                size: if role(kind) == Role::Death { 0 } else { size },
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
