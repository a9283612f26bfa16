//! Blocks of a whole recording, one after the other, as bytes: encoded, compressed with LZ4, numbered, and listed in the
//! directory at the end. For what writes a recording without a program behind it: imports, tests, benches.

use crate::Result;
use crate::block::{BlockKind, BlockLabel, compress_lz4};
use crate::columns::{Encoder, RecordColumns};
use crate::header::FileHeader;
use crate::meta::{self, Directory, End, EndReason, Meta, Statistics};
use crate::nodes::{self, Node};

/// Encoder of blocks, in the order of the calls. The bytes of the latest block are in [`bytes`](Self::bytes).
#[derive(Debug)]
pub struct BlockSequence {
    length: u64,
    number: u32,
    offsets: Vec<u64>,
    last_offset: u64,
    next_node: u32,
    encoder: Encoder,
    raw: Vec<u8>,
    stored: Vec<u8>,
    bytes: Vec<u8>,
}

impl BlockSequence {
    /// Begins a recording; [`bytes`](Self::bytes) are its file header.
    #[must_use]
    pub fn new(recording_id: [u8; 16]) -> Self {
        Self {
            length: FileHeader::LEN as u64,
            number: 0,
            offsets: Vec::new(),
            last_offset: 0,
            next_node: 1,
            encoder: Encoder::new(),
            raw: Vec::new(),
            stored: Vec::new(),
            bytes: FileHeader::new(recording_id).encode().to_vec(),
        }
    }

    /// The bytes that were made last, to be appended to the file.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes of everything that was made, the file header included.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The id that the next node will have; the first has 1.
    #[must_use]
    pub fn next_node(&self) -> u32 {
        self.next_node
    }

    /// A block of metadata.
    ///
    /// # Errors
    /// When a record is larger than any reader takes. Nothing is made then.
    pub fn meta(&mut self, records: &[Meta]) -> Result<()> {
        self.encode(records)?;
        self.seal(BlockLabel { count: records.len() as u32, ..BlockLabel::of(BlockKind::Meta) });
        Ok(())
    }

    /// A block of call-tree nodes, with the ids from [`next_node`](Self::next_node) on.
    pub fn nodes(&mut self, list: &[Node]) {
        let (first_record, count) = (u64::from(self.next_node), list.len() as u32);
        self.raw.clear();
        nodes::encode(self.next_node, list, &mut self.raw);
        self.next_node += count;
        self.seal(BlockLabel { first_record, count, ..BlockLabel::of(BlockKind::Nodes) });
    }

    /// A block of one thread's events, the first of which has the number `first_record`; false, and nothing made, when
    /// there are none.
    pub fn events(&mut self, thread: u32, first_record: u64, columns: &RecordColumns) -> bool {
        let (Some(&first), Some(&last)) = (columns.ticks.iter().min(), columns.ticks.iter().max()) else {
            return false;
        };
        self.raw.clear();
        self.encoder.encode(columns, first, &mut self.raw);
        let count = columns.len() as u32;
        self.seal(BlockLabel { kind: BlockKind::Events, thread, first_record, ticks: (first, last), count });
        true
    }

    /// The end block: why and when, totals, and where all blocks lie.
    ///
    /// # Errors
    /// When a record is larger than any reader takes. Nothing is made then.
    pub fn end(&mut self, reason: EndReason, statistics: Statistics) -> Result<()> {
        let tick = statistics.tick;
        let mut offsets = self.offsets.clone();
        offsets.push(self.length - self.last_offset);
        let end = End { reason, tick, statistics, error: None };
        self.encode(&[Meta::End(end), Meta::Directory(Directory { offsets })])?;
        self.seal(BlockLabel { ticks: (tick, tick), count: 2, ..BlockLabel::of(BlockKind::End) });
        Ok(())
    }

    fn encode(&mut self, records: &[Meta]) -> Result<()> {
        self.raw.clear();
        records.iter().try_for_each(|record| meta::encode(record, &mut self.raw))
    }

    fn seal(&mut self, label: BlockLabel) {
        let codec = compress_lz4(&self.raw, &mut self.stored);
        let header = label.header(self.number, codec, self.raw.len(), &self.stored);
        self.bytes.clear();
        self.bytes.extend_from_slice(&header.encode());
        self.bytes.extend_from_slice(&self.stored);
        self.offsets.push(self.length - self.last_offset);
        self.last_offset = self.length;
        self.length += self.bytes.len() as u64;
        self.number += 1;
    }
}
