//! Events blocks to runs of records, on several threads ahead of the merge.
//!
//! A run keeps its thread's order. Its (node, kind) pairs are numbered, so that the merge looks each of them up once a
//! block instead of once a record.

use std::fs::File;
use std::os::unix::fs::FileExt;

use tracehound_format::FormatError;
use tracehound_format::columns::{Decoder, RecordColumns};
use tracehound_format::record::Record;

use super::scan::{BlockRef, unzstd};

/// One record of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct DecodedRecord {
    /// Clock ticks.
    pub tick: u64,
    /// Address word.
    pub address: u64,
    /// Size modulo 2^32.
    pub size: u32,
    /// Index into [`Run::origins`] `<< 6 |` kind number.
    pub origin_kind: u32,
}

impl DecodedRecord {
    /// Kind number.
    #[inline]
    #[must_use]
    pub const fn kind(&self) -> u8 {
        (self.origin_kind & 63) as u8
    }

    /// Index into [`Run::origins`].
    #[inline]
    #[must_use]
    pub const fn origin(&self) -> usize {
        (self.origin_kind >> 6) as usize
    }
}

/// Records of one thread, in its order.
#[derive(Debug, Clone, Default)]
pub struct Run {
    /// The records.
    pub items: Vec<DecodedRecord>,
    /// Distinct (node, kind number) pairs; a pair may appear twice.
    pub origins: Vec<(u32, u8)>,
}

/// Slots of the table that finds pairs again.
const RECENT: usize = 1 << 12;

/// Turns blocks into runs; reuse one for many blocks.
#[derive(Debug, Default)]
pub struct BlockDecoder {
    stored: Vec<u8>,
    raw: Vec<u8>,
    decoder: Decoder,
    numbering: Numbering,
}

#[derive(Debug, Default)]
struct Numbering {
    /// (node, kind, number + 1) by hash.
    recent: Vec<(u32, u8, u32)>,
}

impl Numbering {
    fn start(&mut self, run: &mut Run) {
        run.items.clear();
        run.origins.clear();
        self.recent.clear();
        self.recent.resize(RECENT, (0, 0, 0));
    }

    #[inline]
    fn take(&mut self, record: Record, run: &mut Run) {
        let Record { tick, address, size, node, .. } = record;
        let kind = record.kind & 63;
        let origin = self.number(node, kind, &mut run.origins);
        run.items.push(DecodedRecord { tick, address, size, origin_kind: origin << 6 | u32::from(kind) });
    }

    #[inline]
    fn number(&mut self, node: u32, kind: u8, origins: &mut Vec<(u32, u8)>) -> u32 {
        let slot = (node ^ u32::from(kind) << 24).wrapping_mul(0x9E37_79B1) as usize >> 20;
        let recent = &mut self.recent[slot & (RECENT - 1)];
        if recent.2 == 0 || recent.0 != node || recent.1 != kind {
            origins.push((node, kind));
            *recent = (node, kind, origins.len() as u32);
        }
        recent.2 - 1
    }
}

impl BlockDecoder {
    /// Reads a block of `file` into `run` (cleared first).
    ///
    /// # Errors
    /// When the block is cut off or damaged.
    pub fn decode(&mut self, file: &File, block: &BlockRef, run: &mut Run) -> Result<(), FormatError> {
        let header = &block.header;
        self.stored.resize(header.stored_len as usize, 0);
        file.read_exact_at(&mut self.stored, block.payload_at).map_err(|_| FormatError::Truncated {
            what: "a block",
            needed: header.stored_len as usize,
            have: 0,
        })?;
        header.open_payload(&self.stored, &mut self.raw, unzstd)?;
        let Self { raw, decoder, numbering, .. } = self;
        numbering.start(run);
        run.items.reserve((header.count as usize).min(raw.len()));
        decoder.decode_each(raw, header.count, header.first_tick, |record| numbering.take(record, run))
    }

    /// Numbers records that are columns already.
    pub fn from_columns(&mut self, columns: &RecordColumns, run: &mut Run) {
        self.numbering.start(run);
        (0..columns.len()).filter_map(|at| columns.get(at)).for_each(|record| self.numbering.take(record, run));
    }
}
