//! Blocks: the unit of writing, compression, damage and resynchronisation.
//!
//! ```text
//!  0  sync             F5 'T' 'H' 'B' 'L' 'K' 0D 0A     a reader that meets damage searches for this
//!  8  kind u8          1 meta, 2 nodes, 3 events, 4 end; unknown kinds are skipped and counted
//!  9  codec u8         0 none, 1 LZ4 block, 2 zstd frame
//! 10  flags u16        zero
//! 12  thread u32       events: whose; else 0
//! 16  block number u32 counts from 0; a gap means that so many blocks are missing
//! 20  first record u64 events: ordinal of the first record among its thread's records; nodes: id of the first node
//! 28  first tick u64   smallest time stamp inside
//! 36  last tick u64    largest time stamp inside
//! 44  count u32        records inside
//! 48  raw length u32   payload bytes after decompression
//! 52  stored length u32 payload bytes in the file, directly after this header
//! 56  CRC-32 of the stored payload
//! 60  CRC-32 of bytes 0..60
//! ```

use crate::{FormatError, Result};

/// Marks the start of a block.
pub const SYNC: [u8; 8] = *b"\xF5THBLK\r\n";
/// No payload is larger than this, before or after decompression; a reader refuses more.
pub const MAX_PAYLOAD: usize = 64 << 20;

/// What a block holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockKind {
    /// [`crate::meta`] records.
    Meta,
    /// Call-tree nodes, see [`crate::nodes`].
    Nodes,
    /// One thread's events, see [`crate::columns`].
    Events,
    /// The last block of a complete file: [`crate::meta::End`] and the block directory.
    End,
    /// Names of functions, files and lines, which `heaptrace bundle` puts behind all other blocks.
    Names,
    /// Something a newer minor version added.
    Unknown(u8),
}

impl BlockKind {
    const fn to_u8(self) -> u8 {
        match self {
            Self::Meta => 1,
            Self::Nodes => 2,
            Self::Events => 3,
            Self::End => 4,
            Self::Names => 5,
            Self::Unknown(kind) => kind,
        }
    }

    const fn from_u8(kind: u8) -> Self {
        match kind {
            1 => Self::Meta,
            2 => Self::Nodes,
            3 => Self::Events,
            4 => Self::End,
            5 => Self::Names,
            other => Self::Unknown(other),
        }
    }
}

/// How a payload is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Codec {
    /// As it is.
    None,
    /// LZ4 block format, without a frame.
    Lz4,
    /// A zstd frame.
    Zstd,
}

impl Codec {
    const fn to_u8(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Lz4 => 1,
            Self::Zstd => 2,
        }
    }

    const fn from_u8(codec: u8) -> Option<Self> {
        match codec {
            0 => Some(Self::None),
            1 => Some(Self::Lz4),
            2 => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// The 64 bytes in front of a payload. Lengths in bytes, times in clock ticks (see [`crate::meta::Clock`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHeader {
    /// What the payload holds.
    pub kind: BlockKind,
    /// How the payload is stored.
    pub codec: Codec,
    /// Recording-wide thread id of an events block, else 0.
    pub thread: u32,
    /// Position of the block in the file, counted from 0.
    pub block_number: u32,
    /// Events: ordinal of the first record among its thread's. Nodes: id of the first node.
    pub first_record: u64,
    /// Smallest time stamp inside.
    pub first_tick: u64,
    /// Largest time stamp inside.
    pub last_tick: u64,
    /// Records inside.
    pub count: u32,
    /// Payload length after decompression.
    pub raw_len: u32,
    /// Payload length in the file.
    pub stored_len: u32,
    /// CRC-32 of the stored payload.
    pub payload_crc: u32,
}

impl BlockHeader {
    /// Encoded length in bytes.
    pub const LEN: usize = 64;

    /// The bytes to put in front of the payload.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[0..8].copy_from_slice(&SYNC);
        out[8] = self.kind.to_u8();
        out[9] = self.codec.to_u8();
        out[12..16].copy_from_slice(&self.thread.to_le_bytes());
        out[16..20].copy_from_slice(&self.block_number.to_le_bytes());
        out[20..28].copy_from_slice(&self.first_record.to_le_bytes());
        out[28..36].copy_from_slice(&self.first_tick.to_le_bytes());
        out[36..44].copy_from_slice(&self.last_tick.to_le_bytes());
        out[44..48].copy_from_slice(&self.count.to_le_bytes());
        out[48..52].copy_from_slice(&self.raw_len.to_le_bytes());
        out[52..56].copy_from_slice(&self.stored_len.to_le_bytes());
        out[56..60].copy_from_slice(&self.payload_crc.to_le_bytes());
        let crc = crc32fast::hash(&out[..60]);
        out[60..64].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a header.
    ///
    /// # Errors
    /// When the bytes are too few, do not start with [`SYNC`], fail their checksum, or name an unknown codec or a
    /// payload over [`MAX_PAYLOAD`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let Some(bytes) = bytes.first_chunk::<{ Self::LEN }>() else {
            return Err(FormatError::Truncated { what: "a block header", needed: Self::LEN, have: bytes.len() });
        };
        if bytes[..8] != SYNC {
            return Err(FormatError::malformed("a block header", "no block starts here"));
        }
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if crc32fast::hash(&bytes[..60]) != u32_at(60) {
            return Err(FormatError::Checksum { what: "a block header" });
        }
        let Some(codec) = Codec::from_u8(bytes[9]) else {
            return Err(FormatError::malformed("a block header", format!("unknown codec {}", bytes[9])));
        };
        let header = Self {
            kind: BlockKind::from_u8(bytes[8]),
            codec,
            thread: u32_at(12),
            block_number: u32_at(16),
            first_record: u64_at(20),
            first_tick: u64_at(28),
            last_tick: u64_at(36),
            count: u32_at(44),
            raw_len: u32_at(48),
            stored_len: u32_at(52),
            payload_crc: u32_at(56),
        };
        if header.raw_len as usize > MAX_PAYLOAD || header.stored_len as usize > MAX_PAYLOAD {
            return Err(FormatError::malformed("a block header", "the payload is larger than any writer makes"));
        }
        Ok(header)
    }

    /// Checks a stored payload against this header and decompresses it into `raw` (cleared first).
    ///
    /// A zstd payload is handed to `zstd`, which gets the stored bytes, the raw length and `raw`; this crate links no
    /// C code.
    ///
    /// # Errors
    /// When the length or the checksum is wrong, or the payload does not decompress to the length it promised.
    pub fn open_payload(
        &self,
        stored: &[u8],
        raw: &mut Vec<u8>,
        zstd: impl FnOnce(&[u8], usize, &mut Vec<u8>) -> core::result::Result<(), String>,
    ) -> Result<()> {
        raw.clear();
        if stored.len() != self.stored_len as usize {
            return Err(FormatError::Truncated {
                what: "a block",
                needed: self.stored_len as usize,
                have: stored.len(),
            });
        }
        if crc32fast::hash(stored) != self.payload_crc {
            return Err(FormatError::Checksum { what: "a block" });
        }
        let len = self.raw_len as usize;
        match self.codec {
            Codec::None => raw.extend_from_slice(stored),
            Codec::Lz4 => {
                raw.resize(len, 0);
                let got = lz4_flex::block::decompress_into(stored, raw)
                    .map_err(|e| FormatError::malformed("a block", format!("LZ4: {e}")))?;
                raw.truncate(got);
            }
            Codec::Zstd => {
                zstd(stored, len, raw).map_err(|e| FormatError::malformed("a block", format!("zstd: {e}")))?;
            }
        }
        if raw.len() == len {
            Ok(())
        } else {
            Err(FormatError::malformed("a block", format!("{} bytes came out where {len} were promised", raw.len())))
        }
    }
}

/// Fields of a block's header that do not follow from its payload and its position in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockLabel {
    /// What is in it.
    pub kind: BlockKind,
    /// Whose events; 0 for other kinds.
    pub thread: u32,
    /// Number of the first record of the thread, or id of the first node.
    pub first_record: u64,
    /// First and last tick of what is in it; `u64::MAX` first where nothing has one.
    pub ticks: (u64, u64),
    /// Records.
    pub count: u32,
}

impl BlockLabel {
    /// Of a kind; everything else 0.
    #[must_use]
    pub const fn of(kind: BlockKind) -> Self {
        Self { kind, thread: 0, first_record: 0, ticks: (0, 0), count: 0 }
    }

    /// The header of the block with this number, whose payload of `raw_len` bytes is stored as `stored`.
    #[must_use]
    pub fn header(self, block_number: u32, codec: Codec, raw_len: usize, stored: &[u8]) -> BlockHeader {
        BlockHeader {
            kind: self.kind,
            codec,
            thread: self.thread,
            block_number,
            first_record: self.first_record,
            first_tick: if self.ticks.0 == u64::MAX { 0 } else { self.ticks.0 },
            last_tick: self.ticks.1,
            count: self.count,
            raw_len: raw_len as u32,
            stored_len: stored.len() as u32,
            payload_crc: crc32fast::hash(stored),
        }
    }
}

/// Compresses `raw` into `out` (cleared first) with LZ4, or stores it as it is when that does not pay.
pub fn compress_lz4(raw: &[u8], out: &mut Vec<u8>) -> Codec {
    out.clear();
    match compress_lz4_into(raw, out) {
        Some(len) => {
            out.truncate(len);
            Codec::Lz4
        }
        None => {
            out.clear();
            out.extend_from_slice(raw);
            Codec::None
        }
    }
}

/// Compresses `raw` with LZ4 to the front of `room`, and gives the number of bytes; `None` when that does not pay. What
/// lies behind them has no meaning: the room is kept as long as it was ever needed, so that it is not zeroed each time.
pub fn compress_lz4_into(raw: &[u8], room: &mut Vec<u8>) -> Option<usize> {
    let most = lz4_flex::block::get_maximum_output_size(raw.len());
    if room.len() < most {
        room.resize(most, 0);
    }
    lz4_flex::block::compress_into(raw, room).ok().filter(|&len| len < raw.len())
}

/// Position of the next possible block start in `bytes`, for a reader that lost its place.
#[must_use]
pub fn find_sync(bytes: &[u8]) -> Option<usize> {
    bytes.windows(SYNC.len()).position(|window| window == SYNC)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header_for(stored: &[u8], raw_len: usize, codec: Codec) -> BlockHeader {
        BlockHeader {
            kind: BlockKind::Events,
            codec,
            thread: 3,
            block_number: 17,
            first_record: 1 << 40,
            first_tick: 5,
            last_tick: 9,
            count: 2,
            raw_len: raw_len as u32,
            stored_len: stored.len() as u32,
            payload_crc: crc32fast::hash(stored),
        }
    }

    fn no_zstd(_: &[u8], _: usize, _: &mut Vec<u8>) -> core::result::Result<(), String> {
        Err("not expected".into())
    }

    #[test]
    fn header_comes_back_and_tells_damage() {
        let header = header_for(b"abc", 3, Codec::None);
        let mut bytes = header.encode();
        assert_eq!(BlockHeader::decode(&bytes), Ok(header));
        for at in 0..BlockHeader::LEN {
            bytes[at] ^= 1;
            assert!(BlockHeader::decode(&bytes).is_err(), "byte {at} changed unnoticed");
            bytes[at] ^= 1;
        }
    }

    #[test]
    fn payload_comes_back_through_lz4() {
        let raw = b"the same again, the same again, the same again, the same again".repeat(9);
        let mut stored = Vec::new();
        let codec = compress_lz4(&raw, &mut stored);
        assert_eq!(codec, Codec::Lz4);
        let mut back = Vec::new();
        header_for(&stored, raw.len(), codec).open_payload(&stored, &mut back, no_zstd).unwrap();
        assert_eq!(back, raw);
    }

    #[test]
    fn a_lying_length_is_an_error() {
        let mut stored = Vec::new();
        let codec = compress_lz4(&[0; 1000], &mut stored);
        for wrong in [0, 999, 1001, 1 << 20] {
            let result = header_for(&stored, wrong, codec).open_payload(&stored, &mut Vec::new(), no_zstd);
            assert!(result.is_err(), "{wrong} passed");
        }
    }

    #[test]
    fn sync_is_found_again() {
        let mut bytes = vec![0xF5; 100];
        bytes.extend_from_slice(&header_for(b"", 0, Codec::None).encode());
        assert_eq!(find_sync(&bytes), Some(100));
        assert_eq!(find_sync(&bytes[..104]), None);
    }
}
