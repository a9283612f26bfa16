//! The pass over the blocks of a recording, in file order: checks headers, resynchronises after damage, and passes on
//! metadata, call-tree nodes, and the offsets of the events. Payloads of events are read later, see [`super::decode`].

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};
use tracehound_format::FormatError;
use tracehound_format::block::{BlockHeader, BlockKind, SYNC, find_sync};
use tracehound_format::header::FileHeader;
use tracehound_format::meta::{Frames, Meta, PageLook, decode_body};
use tracehound_format::nodes::{self, Node};
use tracehound_index::payload::unzstd;

/// An events block that has not been read yet.
#[derive(Debug, Clone, Copy)]
pub struct BlockRef {
    /// File offset of the payload.
    pub payload_at: u64,
    /// Its header.
    pub header: BlockHeader,
}

/// Receiver of what the pass finds.
pub trait ScanSink {
    /// A metadata record.
    fn meta(&mut self, meta: Meta);
    /// A look at the page tables, or a part of one, in the block that begins at `block_at`.
    fn look(&mut self, look: &PageLook, block_at: u64);
    /// Nodes with consecutive ids.
    fn nodes(&mut self, first: u32, nodes: &[Node]);
    /// An events block, in file order.
    fn events(&mut self, block: BlockRef);
}

/// Position of the pass, and what it had to skip.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scan {
    /// Everything before this offset is done.
    pub at: u64,
    /// Number that the next block should have.
    pub next_number: u32,
    /// Blocks that are damaged or missing.
    pub damaged_blocks: u64,
    /// Bytes that belong to no readable block.
    pub skipped_bytes: u64,
    /// Records and blocks of kinds that this version does not know.
    pub unknown: u64,
    /// The file ends in the middle of a block.
    pub cut: bool,
    /// CRC-32 over all headers, and over markers for damaged parts: distinguishes contents of the file.
    pub digest: u32,
}

impl Default for Scan {
    fn default() -> Self {
        Self {
            at: FileHeader::LEN as u64,
            next_number: 0,
            damaged_blocks: 0,
            skipped_bytes: 0,
            unknown: 0,
            cut: false,
            digest: 0,
        }
    }
}

/// Bytes looked at in one go when searching for the next block.
const WINDOW: usize = 1 << 20;

impl Scan {
    /// Goes on from where it is to the end of `file`, which has `len` bytes now. With `last`, nothing will be added
    /// to the file any more, so an incomplete block at its end is lost; otherwise it is left for the next time.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn run(&mut self, file: &File, len: u64, last: bool, sink: &mut dyn ScanSink) -> io::Result<()> {
        let (mut stored, mut raw) = (Vec::new(), Vec::new());
        let mut bytes = [0; BlockHeader::LEN];
        while self.at < len {
            if len - self.at < BlockHeader::LEN as u64 {
                if last {
                    self.cut_here(len);
                }
                return Ok(());
            }
            file.read_exact_at(&mut bytes, self.at)?;
            let Ok(header) = BlockHeader::decode(&bytes) else {
                let Some((at, number)) = self.find_next(file, len)? else {
                    if last {
                        self.cut_here(len);
                    }
                    return Ok(());
                };
                self.skip_to(at, number);
                continue;
            };
            let payload_at = self.at + BlockHeader::LEN as u64;
            let end = payload_at + u64::from(header.stored_len);
            if end > len {
                // Cut off, or a length that damage made up and that passed its checksum by chance.
                if last {
                    if header.kind == BlockKind::Events {
                        sink.events(BlockRef { payload_at, header });
                    }
                    self.cut_here(len);
                }
                return Ok(());
            }
            if header.kind != BlockKind::Names {
                self.count_missing(header.block_number);
            }
            self.digest = crc32fast_of(self.digest, &bytes);
            match header.kind {
                BlockKind::Events => sink.events(BlockRef { payload_at, header }),
                // Names are read by `symbols`.
                BlockKind::Names => {}
                BlockKind::Unknown(_) => self.unknown += 1,
                BlockKind::Meta | BlockKind::Nodes | BlockKind::End => {
                    stored.resize(header.stored_len as usize, 0);
                    file.read_exact_at(&mut stored, payload_at)?;
                    let opened =
                        header.open_payload(&stored, &mut raw, unzstd).and_then(|()| self.hand_on(&header, &raw, sink));
                    if opened.is_err() {
                        self.damaged_blocks += 1;
                    }
                }
            }
            self.at = end;
        }
        Ok(())
    }

    fn hand_on(&mut self, header: &BlockHeader, raw: &[u8], sink: &mut dyn ScanSink) -> Result<(), FormatError> {
        if header.kind == BlockKind::Nodes {
            let first = u32::try_from(header.first_record)
                .map_err(|_| FormatError::Checksum { what: "a block of call-tree nodes" })?;
            sink.nodes(first, &nodes::decode(first, header.count, raw)?);
            return Ok(());
        }
        for frame in Frames::new(raw) {
            let (tag, body) = frame?;
            match decode_body(tag, body)? {
                Some(Meta::PageLook(look)) => sink.look(&look, self.at),
                Some(meta) => sink.meta(meta),
                None => self.unknown += 1,
            }
        }
        Ok(())
    }

    /// Where the next block that can be read starts, and its number.
    fn find_next(&self, file: &File, len: u64) -> io::Result<Option<(u64, u32)>> {
        let mut window = vec![0; WINDOW];
        let mut header = [0; BlockHeader::LEN];
        let mut at = self.at + 1;
        while at + BlockHeader::LEN as u64 <= len {
            let take = usize::try_from(len - at).unwrap_or(WINDOW).min(WINDOW);
            let window = &mut window[..take];
            file.read_exact_at(window, at)?;
            let mut from = 0;
            while let Some(found) = window.get(from..).and_then(find_sync) {
                let candidate = at + (from + found) as u64;
                if candidate + BlockHeader::LEN as u64 <= len {
                    file.read_exact_at(&mut header, candidate)?;
                    if let Ok(header) = BlockHeader::decode(&header) {
                        return Ok(Some((candidate, header.block_number)));
                    }
                }
                from += found + 1;
            }
            // A mark may lie across two windows.
            at += (take - (SYNC.len() - 1).min(take - 1)) as u64;
        }
        Ok(None)
    }

    fn skip_to(&mut self, at: u64, number: u32) {
        // The jump in the numbers counts what is missing; damage that hit no number still cost something.
        if number <= self.next_number {
            self.damaged_blocks += 1;
        }
        self.digest = crc32fast_of(self.digest, &at.to_le_bytes());
        self.skipped_bytes += at - self.at;
        self.at = at;
    }

    fn count_missing(&mut self, number: u32) {
        self.damaged_blocks += u64::from(number.saturating_sub(self.next_number));
        self.next_number = number.max(self.next_number).saturating_add(1);
    }

    fn cut_here(&mut self, len: u64) {
        self.cut = true;
        self.damaged_blocks += 1;
        self.skipped_bytes += len - self.at;
        self.at = len;
    }
}

fn crc32fast_of(state: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(state);
    hasher.update(bytes);
    hasher.finalize()
}

/// Whether the blocks of `file` still have the headers that gave `digest`, and all of them payloads that fit.
///
/// # Errors
/// When the file cannot be read.
pub fn has_digest(file: &File, len: u64, digest: u32) -> io::Result<bool> {
    struct Payloads {
        blocks: Vec<BlockRef>,
    }
    impl ScanSink for Payloads {
        fn meta(&mut self, _: Meta) {}
        fn look(&mut self, _: &PageLook, _: u64) {}
        fn nodes(&mut self, _: u32, _: &[Node]) {}
        fn events(&mut self, block: BlockRef) {
            self.blocks.push(block);
        }
    }
    let mut scan = Scan::default();
    let mut payloads = Payloads { blocks: Vec::new() };
    scan.run(file, len, true, &mut payloads)?;
    if scan.digest != digest || scan.damaged_blocks > 0 {
        return Ok(false);
    }
    use rayon::prelude::*;
    let intact = payloads.blocks.par_iter().all(|block| {
        let mut stored = vec![0; block.header.stored_len as usize];
        file.read_exact_at(&mut stored, block.payload_at).is_ok()
            && crc32fast::hash(&stored) == block.header.payload_crc
    });
    Ok(intact)
}
