//! From the payload of an events block back to its records.

use super::{AllocEntry, CLASS_MASK, ColumnRole, LAYOUT, Predictions, RecordColumns, class, context, node_slot, role};
use crate::record::Record;
use crate::varint::{Reader, unzigzag};
use crate::{FormatError, Result};

const WHAT: &str = "a block of events";

/// Takes the payloads of events blocks apart. Reuse one for many blocks: it keeps its tables.
#[derive(Debug, Default)]
pub struct Decoder {
    predictions: Predictions,
}

fn short() -> FormatError {
    FormatError::malformed(WHAT, "it ends early")
}

fn too_large() -> FormatError {
    FormatError::malformed(WHAT, "a value is too large for its field")
}

impl Decoder {
    /// A decoder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the payload of a block that promises `count` records and starts at `first_tick`, into `columns`
    /// (cleared first).
    ///
    /// # Errors
    /// When the layout is unknown, a column is cut off or has bytes left over, or a value does not fit its field.
    pub fn decode(&mut self, payload: &[u8], count: u32, first_tick: u64, columns: &mut RecordColumns) -> Result<()> {
        columns.clear();
        // A lying count cannot make us reserve more than the payload: every record has a byte in the nodes column.
        columns.reserve((count as usize).min(payload.len()));
        self.decode_each(payload, count, first_tick, |record| columns.push(record))
    }

    /// As [`Self::decode`], record by record. Records that were given before an error count for nothing.
    ///
    /// # Errors
    /// Those of [`Self::decode`].
    #[inline]
    pub fn decode_each(
        &mut self,
        payload: &[u8],
        count: u32,
        first_tick: u64,
        mut each: impl FnMut(Record),
    ) -> Result<()> {
        self.predictions.restart();
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
        if count as usize > lens[0] {
            return Err(FormatError::malformed(WHAT, format!("{count} records do not fit")));
        }
        let mut tick = first_tick;
        for _ in 0..count {
            let (node, kind) = self.node_and_kind(&mut nodes, &mut kinds)?;
            tick = tick.wrapping_add(unzigzag(ticks.next_u64().ok_or_else(short)?) as u64);
            let role = role(kind);
            let size = if role == ColumnRole::Free { 0 } else { self.size(node, &mut sizes)? };
            let address = self.address(role, size, shift, &mut addresses)?;
            each(Record { kind, tick, address, node, size });
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
        let predictions = &mut self.predictions;
        let last = &mut predictions.last;
        let prediction = &mut predictions.next_node[context(last.node, last.before)];
        let coded = nodes.next_u64().ok_or_else(short)?;
        let mut other = false;
        if coded != 0 {
            let step = unzigzag((coded - 1) >> 1);
            other = (coded - 1) & 1 != 0;
            *prediction = u32::try_from(i64::from(last.node).wrapping_add(step)).map_err(|_| too_large())?;
        }
        let node = *prediction;
        let kind = &mut predictions.memories[node_slot(node)].kind;
        if other {
            *kind = kinds.next_u8().ok_or_else(short)?;
        }
        (last.before, last.node) = (last.node, node);
        Ok((node, *kind))
    }

    #[inline]
    fn size(&mut self, node: u32, sizes: &mut Reader<'_>) -> Result<u32> {
        let prediction = &mut self.predictions.memories[node_slot(node)].size;
        let coded = sizes.next_u64().ok_or_else(short)?;
        if coded != 0 {
            *prediction = u32::try_from(coded - 1).map_err(|_| too_large())?;
        }
        Ok(*prediction)
    }

    #[inline]
    fn address(&mut self, role: ColumnRole, size: u32, shift: u32, addresses: &mut Reader<'_>) -> Result<u64> {
        let Predictions { allocs, free, last, .. } = &mut self.predictions;
        let coded = addresses.next_u64().ok_or_else(short)?;
        let after = |from: u64, step: u64| from.wrapping_add((unzigzag(step) as u64) << shift);
        Ok(match role {
            ColumnRole::Alloc => {
                let class = class(size);
                let address = match coded {
                    0 => {
                        let head = &mut free[usize::from(class)];
                        let reused = allocs.get(*head as usize).filter(|_| *head != 0).ok_or_else(|| {
                            FormatError::malformed(WHAT, "an allocation reuses a block that is not there")
                        })?;
                        *head = reused.older;
                        reused.address
                    }
                    1 => after(last.alloc_address, addresses.next_u64().ok_or_else(short)?),
                    _ => after(last.alloc_address, coded - 2),
                };
                allocs.push(AllocEntry { address, older: 0, class: u16::from(class) });
                last.alloc_address = address;
                address
            }
            ColumnRole::Free if coded != 0 => {
                let number = i64::from(last.freed).wrapping_add(unzigzag(coded - 1));
                let number = u32::try_from(number).map_err(|_| too_large())?;
                let alloc = allocs.get_mut(number as usize).filter(|_| number != 0);
                let alloc = alloc.ok_or_else(|| FormatError::malformed(WHAT, "a free without its allocation"))?;
                let head = &mut free[usize::from(alloc.class) & CLASS_MASK];
                alloc.older = *head;
                *head = number;
                last.freed = number;
                alloc.address
            }
            ColumnRole::Free => {
                last.free_address = after(last.free_address, addresses.next_u64().ok_or_else(short)?);
                last.free_address
            }
            ColumnRole::Other => {
                last.other_address = after(last.other_address, coded);
                last.other_address
            }
        })
    }
}
