//! The 64 bytes at the front of a recording.
//!
//! ```text
//!  0  magic            89 54 48 4F 55 4E 44 0A      "\x89THOUND\n"
//!  8  major u16, minor u16                          a reader refuses a newer major, skips what a newer minor adds
//! 12  header length u32                             64
//! 16  recording id                                  16 random bytes; the side file carries the same
//! 32  reserved, zero
//! 60  CRC-32 of bytes 0..60
//! ```
//! All integers of the format are little-endian.

use crate::{FormatError, Result};

/// First eight bytes of every recording.
pub const MAGIC: [u8; 8] = *b"\x89THOUND\n";
/// Major version that this build writes, and the highest that it reads. A version is never reused.
pub const MAJOR: u16 = 1;
/// Minor version that this build writes.
pub const MINOR: u16 = 1;

/// Identity and version of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileHeader {
    /// Incompatible revision.
    pub major: u16,
    /// Compatible revision.
    pub minor: u16,
    /// Random identity, shared with the side file.
    pub recording_id: [u8; 16],
}

impl FileHeader {
    /// Encoded length in bytes.
    pub const LEN: usize = 64;

    /// A header of the present version.
    #[must_use]
    pub const fn new(recording_id: [u8; 16]) -> Self {
        Self { major: MAJOR, minor: MINOR, recording_id }
    }

    /// The bytes to put at the front of the file.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[0..8].copy_from_slice(&MAGIC);
        out[8..10].copy_from_slice(&self.major.to_le_bytes());
        out[10..12].copy_from_slice(&self.minor.to_le_bytes());
        out[12..16].copy_from_slice(&(Self::LEN as u32).to_le_bytes());
        out[16..32].copy_from_slice(&self.recording_id);
        let crc = crc32fast::hash(&out[..60]);
        out[60..64].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads the front of a file.
    ///
    /// # Errors
    /// When the bytes are too few, foreign, damaged, or of a newer major version.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let known = bytes.len().min(8);
        if bytes[..known] != MAGIC[..known] {
            return Err(FormatError::NotARecording);
        }
        let Some(bytes) = bytes.first_chunk::<{ Self::LEN }>() else {
            return Err(FormatError::Truncated { what: "the file header", needed: Self::LEN, have: bytes.len() });
        };
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if crc32fast::hash(&bytes[..60]) != u32_at(60) {
            return Err(FormatError::Checksum { what: "the file header" });
        }
        let (major, minor) = (u16_at(8), u16_at(10));
        if major > MAJOR {
            return Err(FormatError::Version { found: major, supported: MAJOR });
        }
        let mut recording_id = [0; 16];
        recording_id.copy_from_slice(&bytes[16..32]);
        Ok(Self { major, minor, recording_id })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_back_and_tells_damage() {
        let header = FileHeader::new([7; 16]);
        let mut bytes = header.encode();
        assert_eq!(FileHeader::decode(&bytes), Ok(header));
        for at in 0..FileHeader::LEN {
            bytes[at] ^= 0x40;
            assert!(FileHeader::decode(&bytes).is_err(), "byte {at} changed unnoticed");
            bytes[at] ^= 0x40;
        }
        for len in 0..FileHeader::LEN {
            assert!(matches!(FileHeader::decode(&bytes[..len]), Err(FormatError::Truncated { .. })));
        }
    }

    #[test]
    fn a_newer_major_is_refused_by_name() {
        let bytes = FileHeader { major: 9, ..FileHeader::new([0; 16]) }.encode();
        assert_eq!(FileHeader::decode(&bytes), Err(FormatError::Version { found: 9, supported: 1 }));
    }
}
