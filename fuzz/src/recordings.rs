//! Recordings with their checksums put right, so that a fuzzer's changes get past them.

use std::path::{Path, PathBuf};

use tracehound_format::block::{BlockHeader, SYNC};
use tracehound_format::header::FileHeader;

/// Offsets in a block header: see `tracehound_format::block`.
const STORED_LEN: usize = 52;
const PAYLOAD_CRC: usize = 56;
const HEADER_CRC: usize = 60;

/// Puts the checksums of the file header and of every block right. A block keeps its lengths, but for one that ends
/// behind the file.
pub fn repair(bytes: &mut [u8]) {
    seal(bytes.get_mut(..FileHeader::LEN));
    let mut at = FileHeader::LEN;
    while let Some((header, rest)) = bytes.get_mut(at..).and_then(|b| b.split_at_mut_checked(BlockHeader::LEN)) {
        if header[..SYNC.len()] != SYNC {
            return;
        }
        let len = u32::from_le_bytes([
            header[STORED_LEN],
            header[STORED_LEN + 1],
            header[STORED_LEN + 2],
            header[STORED_LEN + 3],
        ]);
        let len = (len as usize).min(rest.len());
        let crc = crc32fast::hash(&rest[..len]);
        header[PAYLOAD_CRC..HEADER_CRC].copy_from_slice(&crc.to_le_bytes());
        seal(Some(header));
        at += BlockHeader::LEN + len;
    }
}

/// The checksum of a header is its last four bytes.
fn seal(header: Option<&mut [u8]>) {
    if let Some(header) = header
        && let Some((body, crc)) = header.split_last_chunk_mut::<4>()
    {
        *crc = crc32fast::hash(body).to_le_bytes();
    }
}

/// A folder for one run of a target, in memory where the system has such a place; removed at its end.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn folder() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    let parent = if shm.is_dir() { PathBuf::from(shm) } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("tracehound-fuzz-").tempdir_in(parent).expect("a temporary folder")
}
