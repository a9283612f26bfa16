//! Block writer of the recorder: encodes, compresses, checksums and numbers blocks, and appends them to the file.
//!
//! Blocks gather in a buffer until [`BlockWriter::commit`]; the caller may drop the data of a block only after that.

use tracehound_format::block::{BlockHeader, BlockKind, BlockLabel, Codec, compress_lz4_into};
use tracehound_format::columns::Encoder;
use tracehound_format::header::FileHeader;
use tracehound_format::meta::{self, Meta};
use tracehound_format::nodes::{self, Node};

use super::batch::Batch;
use super::file::RecordingFile;
use super::zstd::Zstd;
use tracehound_shared::sys;

/// See the module's description. Reuses its buffers.
pub struct BlockWriter {
    file: RecordingFile,
    codec: Codec,
    zstd: Option<Zstd>,
    encoder: Encoder,
    raw: Vec<u8>,
    stored: Vec<u8>,
    metas: Vec<u8>,
    meta_count: u32,
    meta_ticks: (u64, u64),
    number: u32,
    offsets: Vec<u64>,
    last_offset: u64,
    /// Whole blocks that are not in the file yet, and where each of them ends.
    buffer: Vec<u8>,
    ends: Vec<usize>,
}

/// Bytes that may gather before they must be committed.
const ENOUGH: usize = 512 << 10;
/// Blocks that the directory at the end has room for: where there are more, the file has none, and is scanned.
const DIRECTORY: usize = 128 << 10;

impl BlockWriter {
    /// Bytes of the buffers, the directory of blocks is counted apart.
    pub fn memory(&self) -> (u64, u64) {
        let words = self.offsets.capacity() * size_of::<u64>();
        let buffers = [&self.raw, &self.stored, &self.metas, &self.buffer].map(|buffer| buffer.capacity());
        let sum = buffers.iter().sum::<usize>() + self.ends.capacity() * size_of::<usize>() + self.encoder.memory();
        (sum as u64, words as u64)
    }

    /// The most that [`memory`](Self::memory) is when blocks have `records` records: what the longest encoding of each
    /// takes, in a buffer that may have doubled, as columns, raw, compressed, and waiting for its commit; and the table
    /// of allocations, 24 bytes each.
    pub fn memory_limit(records: u64) -> (u64, u64) {
        const LONGEST: u64 = 40 + 24 / 4;
        (2 * (4 * LONGEST * records + ENOUGH as u64) + (2 << 20), 2 * 8 * DIRECTORY as u64)
    }

    /// Starts the file.
    ///
    /// # Errors
    /// When its header cannot be written.
    pub fn new(mut file: RecordingFile, recording_id: [u8; 16], codec: Codec) -> sys::Result<Self> {
        file.append(&[&FileHeader::new(recording_id).encode()])?;
        Ok(Self {
            file,
            codec,
            zstd: if codec == Codec::Zstd { Zstd::new() } else { None },
            encoder: Encoder::new(),
            raw: Vec::new(),
            stored: Vec::new(),
            metas: Vec::new(),
            meta_count: 0,
            meta_ticks: (u64::MAX, 0),
            number: 0,
            offsets: Vec::new(),
            last_offset: 0,
            buffer: Vec::new(),
            ends: Vec::new(),
        })
    }

    /// The file.
    pub fn file(&mut self) -> &mut RecordingFile {
        &mut self.file
    }

    /// Adds a record to the next meta block.
    pub fn meta(&mut self, tick: u64, meta: &Meta) {
        // A record that cannot be encoded is larger than readers accept: it is left out whole.
        if meta::encode(meta, &mut self.metas).is_ok() {
            self.meta_count += 1;
            self.meta_ticks = (self.meta_ticks.0.min(tick), self.meta_ticks.1.max(tick));
        }
    }

    /// Forgets records that were to go into the next meta block.
    pub fn drop_metas(&mut self) {
        self.metas.clear();
        self.meta_count = 0;
        self.meta_ticks = (u64::MAX, 0);
    }

    /// Makes the meta block, if there is something in it.
    pub fn flush_metas(&mut self) {
        if self.meta_count == 0 {
            return;
        }
        self.raw.clear();
        core::mem::swap(&mut self.raw, &mut self.metas);
        let place = BlockLabel { ticks: self.meta_ticks, count: self.meta_count, ..BlockLabel::of(BlockKind::Meta) };
        self.meta_count = 0;
        self.meta_ticks = (u64::MAX, 0);
        self.put(place);
    }

    /// Makes a block of nodes with ids from `first_id` on.
    pub fn nodes(&mut self, first_id: u32, nodes: &[Node]) {
        self.raw.clear();
        nodes::encode(first_id, nodes, &mut self.raw);
        let first_record = u64::from(first_id);
        self.put(BlockLabel { first_record, count: nodes.len() as u32, ..BlockLabel::of(BlockKind::Nodes) });
    }

    /// Makes a block of records of `thread`, the first of which has the number `first_record`.
    pub fn events(&mut self, thread: u32, first_record: u64, batch: &Batch) {
        self.raw.clear();
        self.encoder.begin(batch.address_bits, batch.ticks.0);
        for records in batch.spans() {
            self.encoder.add(records);
        }
        self.encoder.add(batch.loose());
        self.encoder.finish(&mut self.raw);
        let (ticks, count) = (batch.ticks, batch.count);
        self.put(BlockLabel { thread, first_record, ticks, count, ..BlockLabel::of(BlockKind::Events) });
    }

    /// Whether so much has gathered that it should be committed.
    pub fn wants_commit(&self) -> bool {
        self.buffer.len() >= ENOUGH
    }

    /// Puts what has gathered into the file.
    ///
    /// # Errors
    /// Of the write; as many whole blocks as found room are in the file then.
    pub fn commit(&mut self) -> sys::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let before = self.file.length();
        let mut result = self.file.append(&[&self.buffer]);
        if result.is_err() {
            let mut start = 0;
            for &end in &self.ends {
                result = self.file.append(&[self.buffer.get(start..end).unwrap_or_default()]);
                if result.is_err() {
                    break;
                }
                start = end;
            }
            let kept = self.file.length() - before;
            // The numbers of blocks that found no room are free again.
            for _ in self.ends.iter().filter(|&&end| end as u64 > kept) {
                self.number -= 1;
                if self.number < DIRECTORY as u32 {
                    self.last_offset -= self.offsets.pop().unwrap_or(0);
                }
            }
        }
        self.buffer.clear();
        self.ends.clear();
        result
    }

    /// Writes the end block: the record given, and the directory.
    ///
    /// # Errors
    /// Of the write.
    pub fn end(&mut self, tick: u64, end: &Meta) -> sys::Result<()> {
        self.commit()?;
        // Where not even the directory finds room, an end without one is better than none.
        let mut result = Ok(());
        let complete = self.number as usize <= DIRECTORY;
        let offsets = if complete { self.offsets.clone() } else { Vec::new() };
        for offsets in [offsets, Vec::new()] {
            self.raw.clear();
            let _ = meta::encode(end, &mut self.raw);
            let _ = meta::encode(&Meta::Directory(meta::Directory { offsets }), &mut self.raw);
            let place = BlockLabel { ticks: (tick, tick), count: 2, ..BlockLabel::of(BlockKind::End) };
            let (header, len) = self.pack(place);
            let stored = if header.codec == Codec::None { &self.raw } else { &self.stored };
            result = self.file.append_last(&[&header.encode(), stored.get(..len).unwrap_or_default()]);
            if result.is_ok() {
                break;
            }
        }
        self.file.trim();
        result
    }

    /// The position in the file, to return to with [`rewind`](Self::rewind). Everything must be committed.
    pub fn position(&self) -> u64 {
        self.file.length()
    }

    /// Removes an end block again.
    pub fn rewind(&mut self, position: u64) {
        self.file.cut(position);
    }

    fn put(&mut self, place: BlockLabel) {
        let (header, len) = self.pack(place);
        let at = self.file.length() + self.buffer.len() as u64;
        let stored = if header.codec == Codec::None { &self.raw } else { &self.stored };
        self.buffer.extend_from_slice(&header.encode());
        self.buffer.extend_from_slice(stored.get(..len).unwrap_or_default());
        self.ends.push(self.buffer.len());
        self.number += 1;
        if self.number as usize <= DIRECTORY {
            self.offsets.push(at - self.last_offset);
            self.last_offset = at;
        }
    }

    /// Compresses `raw` to the front of `stored`, if that pays, and makes the header; returns how many bytes are stored.
    fn pack(&mut self, place: BlockLabel) -> (BlockHeader, usize) {
        let zstd = self.zstd.as_mut().filter(|_| self.codec == Codec::Zstd);
        let compressed = match (self.codec, zstd) {
            (Codec::None, _) => None,
            (_, Some(zstd)) => zstd.compress(&self.raw, &mut self.stored).then_some((Codec::Zstd, self.stored.len())),
            (_, None) => compress_lz4_into(&self.raw, &mut self.stored).map(|len| (Codec::Lz4, len)),
        };
        let (codec, len) = compressed.unwrap_or((Codec::None, self.raw.len()));
        let stored = if codec == Codec::None { &self.raw } else { &self.stored };
        let stored = stored.get(..len).unwrap_or_default();
        let header = place.header(self.number, codec, self.raw.len(), stored);
        (header, len)
    }
}
