//! Whole, checked blocks of a recording that may still grow: what is shipped is cut at their borders, because the
//! recorder may take an incomplete tail back.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use tracehound_format::block::{BlockHeader, BlockKind, SYNC};
use tracehound_format::header::FileHeader;

/// Bytes that are read and shipped at once; a single block may be larger.
pub const PIECE: usize = 4 << 20;

/// A block, by its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Offset of its header.
    pub at: u64,
    /// Its number.
    pub number: u32,
    /// Its largest tick.
    pub last_tick: u64,
    /// Its kind.
    pub kind: BlockKind,
}

/// Bytes to be shipped.
#[derive(Debug, Default)]
pub struct Piece {
    /// They begin where they were asked for.
    pub bytes: Vec<u8>,
    /// The last whole block among them.
    pub last: Option<Placed>,
}

/// Whole blocks from `at` on, about [`PIECE`] bytes of them; nothing if the next block is not complete. Damaged bytes
/// belong to a piece once a sound block lies behind them; with `is_final`, so does what lies behind the last one.
///
/// # Errors
/// When the file cannot be read.
pub fn next(file: &File, at: u64, is_final: bool) -> io::Result<Piece> {
    let len = file.metadata()?.len();
    let mut piece = Piece::default();
    let mut position = at;
    if at == 0 {
        if len < FileHeader::LEN as u64 {
            return Ok(piece);
        }
        append(file, 0, FileHeader::LEN, &mut piece.bytes)?;
        position = FileHeader::LEN as u64;
    }
    while piece.bytes.len() < PIECE && position < len {
        match block_at(file, position, len, &mut piece.bytes)? {
            Found::Whole(placed, size) => {
                piece.last = Some(placed);
                position += size;
            }
            Found::Incomplete if !is_final => break,
            Found::Incomplete | Found::Damaged => {
                let Some(sound) = sound_block_after(file, position, len)? else {
                    if is_final {
                        let rest = (len - position).min(PIECE as u64);
                        append(file, position, rest as usize, &mut piece.bytes)?;
                        position += rest;
                        continue;
                    }
                    break;
                };
                while position < sound {
                    let part = (sound - position).min(PIECE as u64);
                    append(file, position, part as usize, &mut piece.bytes)?;
                    position += part;
                }
            }
        }
    }
    Ok(piece)
}

enum Found {
    Whole(Placed, u64),
    Incomplete,
    Damaged,
}

/// Appends the block at `position` if it is whole and sound; else leaves `out` as it was.
fn block_at(file: &File, position: u64, len: u64, out: &mut Vec<u8>) -> io::Result<Found> {
    let mut head = [0; BlockHeader::LEN];
    if position + head.len() as u64 > len {
        return Ok(Found::Incomplete);
    }
    file.read_exact_at(&mut head, position)?;
    let Ok(header) = BlockHeader::decode(&head) else { return Ok(Found::Damaged) };
    let size = head.len() as u64 + u64::from(header.stored_len);
    if position + size > len {
        return Ok(Found::Incomplete);
    }
    let start = out.len();
    out.extend_from_slice(&head);
    append(file, position + head.len() as u64, header.stored_len as usize, out)?;
    if crc32fast::hash(&out[start + head.len()..]) != header.payload_crc {
        out.truncate(start);
        return Ok(Found::Damaged);
    }
    Ok(Found::Whole(placed(&header, position), size))
}

fn placed(header: &BlockHeader, at: u64) -> Placed {
    Placed { at, number: header.block_number, last_tick: header.last_tick, kind: header.kind }
}

fn append(file: &File, at: u64, len: usize, out: &mut Vec<u8>) -> io::Result<()> {
    let start = out.len();
    out.resize(start + len, 0);
    file.read_exact_at(&mut out[start..], at)
}

/// Where the next sound block begins behind `position`.
fn sound_block_after(file: &File, position: u64, len: u64) -> io::Result<Option<u64>> {
    const WINDOW: u64 = 1 << 20;
    let mut from = position + 1;
    let mut scratch = Vec::new();
    while from < len {
        let take = WINDOW.min(len - from);
        let mut window = vec![0; take as usize];
        file.read_exact_at(&mut window, from)?;
        for (at, _) in window.windows(SYNC.len()).enumerate().filter(|(_, bytes)| *bytes == SYNC) {
            scratch.clear();
            if let Found::Whole(..) = block_at(file, from + at as u64, len, &mut scratch)? {
                return Ok(Some(from + at as u64));
            }
        }
        // A mark may lie across the border.
        from += if take < WINDOW { take } else { take - SYNC.len() as u64 };
    }
    Ok(None)
}

/// The block that ends at `end`, searched for backwards; `None` if there is none within the last 65 MiB.
///
/// # Errors
/// When the file cannot be read.
pub fn ending_at(file: &File, end: u64) -> io::Result<Option<Placed>> {
    const WINDOW: u64 = 1 << 20;
    let least = end.saturating_sub(65 << 20);
    let mut to = end;
    while to > least {
        let from = to.saturating_sub(WINDOW).max(least);
        let mut window = vec![0; (to - from) as usize + BlockHeader::LEN];
        let have = (end - from).min(window.len() as u64) as usize;
        window.truncate(have);
        file.read_exact_at(&mut window, from)?;
        for (at, bytes) in window.windows(BlockHeader::LEN).enumerate().rev() {
            if bytes.starts_with(&SYNC)
                && let Ok(header) = BlockHeader::decode(bytes)
            {
                let at = from + at as u64;
                if at + BlockHeader::LEN as u64 + u64::from(header.stored_len) == end {
                    return Ok(Some(placed(&header, at)));
                }
            }
        }
        to = from;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use tracehound_format::block::Codec;

    fn block(number: u32, payload: &[u8]) -> Vec<u8> {
        let header = BlockHeader {
            kind: BlockKind::Meta,
            codec: Codec::None,
            thread: 0,
            block_number: number,
            first_record: 0,
            first_tick: 0,
            last_tick: 7,
            count: 1,
            raw_len: payload.len() as u32,
            stored_len: payload.len() as u32,
            payload_crc: crc32fast::hash(payload),
        };
        [&header.encode()[..], payload].concat()
    }

    fn file_of(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn only_whole_blocks_are_shipped() {
        let head = FileHeader::new([1; 16]).encode();
        let whole = [&head[..], &block(0, b"one"), &block(1, b"two")].concat();
        for cut in 0..whole.len() {
            let piece = next(&file_of(&whole[..cut]), 0, false).unwrap();
            let borders = [0, 64, 64 + 67, whole.len()];
            let expected = borders.into_iter().rfind(|&border| border <= cut).unwrap();
            assert_eq!(piece.bytes.len(), expected, "of {cut} bytes");
            // Behind the end of the process nothing is held back.
            let rest = next(&file_of(&whole[..cut]), 0, true).unwrap();
            assert_eq!(rest.bytes.len(), if cut < 64 { 0 } else { cut });
        }
    }

    #[test]
    fn damage_is_shipped_once_it_is_over() {
        let head = FileHeader::new([1; 16]).encode();
        let mut bytes = [&head[..], &block(0, b"one"), &block(1, b"two"), &block(2, b"three")].concat();
        bytes[64 + 67 + 65] ^= 1;
        let third = 64 + 67 * 2;
        assert_eq!(next(&file_of(&bytes[..third]), 0, false).unwrap().bytes.len(), 64 + 67, "it may be being written");
        let piece = next(&file_of(&bytes), 0, false).unwrap();
        assert_eq!(piece.bytes, bytes);
        assert_eq!(piece.last.unwrap().number, 2);
    }

    #[test]
    fn the_last_block_is_found_backwards() {
        let head = FileHeader::new([1; 16]).encode();
        let bytes = [&head[..], &block(0, &vec![1; 3 << 20]), &block(1, &vec![2; 70_000])].concat();
        let file = file_of(&bytes);
        let second = 64 + 64 + (3 << 20);
        let found = ending_at(&file, bytes.len() as u64).unwrap().unwrap();
        assert_eq!((found.at, found.number, found.last_tick), (second, 1, 7));
        assert_eq!(ending_at(&file, second).unwrap().unwrap().number, 0);
        assert_eq!(ending_at(&file, second + 1).unwrap(), None);
    }
}
