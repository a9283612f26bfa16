//! Finds the entry that covers a PC: by the sorted table of `.eh_frame_hdr`, or by walking `.eh_frame`.
//! Layout: LSB core specification, 10.6.2.

use super::bytes::{Bytes, OMITTED};
use super::entry::{Fde, Parsed, Section, parse, record};

/// `sdata4` relative to the table: what every linker writes, and the only form that can be bisected.
const TABLE_ENCODING: u8 = 0x3b;

/// The entry covering `pc`, from the `.eh_frame_hdr` at `header`, with the readable memory that holds it.
/// `segment` gives the readable segment around an address.
pub fn lookup(header: u64, pc: u64, segment: impl Fn(u64) -> Option<Bytes>) -> Option<(Fde, Bytes)> {
    let window = segment(header)?;
    let mut cursor = starting_at(window, header)?;
    if cursor.u8()? != 1 {
        return None;
    }
    let (frames_encoding, count_encoding, table_encoding) = (cursor.u8()?, cursor.u8()?, cursor.u8()?);
    let frames = cursor.pointer(frames_encoding, header)?;
    if table_encoding != TABLE_ENCODING || count_encoding == OMITTED {
        let window = segment(frames)?;
        return Some((scan(starting_at(window, frames)?, window, pc, Section::EhFrame)?, window));
    }
    let count = cursor.pointer(count_encoding, header)?;
    let table = cursor.split(count.checked_mul(8)?)?;
    let offset = i32::try_from(pc.wrapping_sub(header) as i64).ok()?;
    let row = |index: u64| -> Option<(i32, i32)> {
        let mut row = table;
        row.split(index.checked_mul(8)?)?;
        Some((row.u32()? as i32, row.u32()? as i32))
    };
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if row(middle)?.0 <= offset {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let at = header.wrapping_add(row(low.checked_sub(1)?)?.1 as u64);
    // Header and frames share a segment in all but very old programs.
    let window = if at >= window.position() && at < window.end() { window } else { segment(at)? };
    match parse(window, at, Section::EhFrame)? {
        Parsed::Entry(entry) if covers(&entry, pc) => Some((entry, window)),
        _ => None,
    }
}

/// The entry covering `pc` among those in `frames`, up to the terminator or the end; `window` is the memory
/// their common entries lie in.
pub fn scan(frames: Bytes, window: Bytes, pc: u64, section: Section) -> Option<Fde> {
    let mut cursor = frames;
    while !cursor.is_empty() {
        let at = cursor.position();
        record(&mut cursor)?;
        match parse(window, at, section) {
            Some(Parsed::Entry(entry)) if covers(&entry, pc) => return Some(entry),
            Some(Parsed::Terminator) => return None,
            _ => {}
        }
    }
    None
}

fn covers(entry: &Fde, pc: u64) -> bool {
    pc.wrapping_sub(entry.begin) < entry.length
}

fn starting_at(window: Bytes, at: u64) -> Option<Bytes> {
    let mut cursor = window;
    cursor.split(at.checked_sub(window.position())?)?;
    Some(cursor)
}
