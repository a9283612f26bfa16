//! Frame description entry (FDE), with the fields of its common entry (CIE).
//! Layout: LSB core specification 10.6 (`.eh_frame`) and DWARF 5, 6.4.1 (`.debug_frame`).

use super::bytes::{Bytes, OMITTED};

/// Where an entry lies: the two kinds of section differ in how an FDE names its CIE and encodes addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Section {
    /// `.eh_frame`, in memory.
    EhFrame,
    /// `.eh_frame` that the program has registered, with what text-relative and data-relative addresses count from.
    Registered {
        /// `tbase` of `__register_frame_info_bases`.
        text_base: u64,
        /// `dbase` of it.
        data_base: u64,
    },
    /// `.debug_frame`, mapped from the file: CIEs are named by offset from `start`, and `load_bias` is added
    /// to addresses.
    DebugFrame {
        /// Where the section was read to.
        start: u64,
        /// Run-time address minus address in the file.
        load_bias: u64,
    },
}

impl Section {
    /// What text-relative and data-relative addresses count from.
    pub fn bases(self) -> (u64, u64) {
        match self {
            Section::Registered { text_base, data_base } => (text_base, data_base),
            Section::EhFrame | Section::DebugFrame { .. } => (0, 0),
        }
    }
}

/// A parsed FDE.
#[derive(Clone, Copy, Debug)]
pub struct Fde {
    /// First address covered.
    pub begin: u64,
    /// Bytes covered.
    pub length: u64,
    /// Unit of the distances between locations.
    pub code_alignment: u64,
    /// Unit of most offsets.
    pub data_alignment: i64,
    /// Number of the column that holds the return address.
    pub return_register: u64,
    /// The frame of a signal handler's return: its caller was interrupted, it did not call.
    pub signal: bool,
    /// Encoding of the operand of `DW_CFA_set_loc`.
    pub address_encoding: u8,
    /// Where it was found.
    pub section: Section,
    /// Instructions of the common entry.
    pub initial_instructions: Bytes,
    /// Its own instructions.
    pub instructions: Bytes,
}

/// What is at a place in a frame section.
pub enum Parsed {
    /// An FDE.
    Entry(Fde),
    /// A CIE: no code of its own.
    Common,
    /// The zero length that ends `.eh_frame`.
    Terminator,
}

/// Length-delimited body of the record at the cursor, and whether offsets in it have 64 bits.
pub fn record(bytes: &mut Bytes) -> Option<(Bytes, bool)> {
    match bytes.u32()? {
        0xffff_ffff => {
            let length = bytes.u64()?;
            Some((bytes.split(length)?, true))
        }
        length => Some((bytes.split(u64::from(length))?, false)),
    }
}

/// Parses the record at `at`; `window` is the readable memory around it. `None` if it makes no sense.
pub fn parse(window: Bytes, at: u64, section: Section) -> Option<Parsed> {
    let mut cursor = from(window, at)?;
    let (mut body, wide) = record(&mut cursor)?;
    if body.is_empty() {
        return Some(Parsed::Terminator);
    }
    let id_place = body.position();
    let id = if wide { body.u64()? } else { u64::from(body.u32()?) };
    let common_at = match section {
        Section::EhFrame | Section::Registered { .. } => {
            if id == 0 {
                return Some(Parsed::Common);
            }
            id_place.wrapping_sub(id)
        }
        Section::DebugFrame { start, .. } => {
            if id == if wide { u64::MAX } else { 0xffff_ffff } {
                return Some(Parsed::Common);
            }
            start.wrapping_add(id)
        }
    };
    let common = parse_common(from(window, common_at)?, section)?;
    let (begin, length) = match section {
        Section::EhFrame | Section::Registered { .. } => {
            let (text_base, data_base) = section.bases();
            let begin = body.based_pointer(common.address_encoding, text_base, data_base)?;
            (begin, body.pointer(common.address_encoding & 0x0f, 0)?)
        }
        Section::DebugFrame { load_bias, .. } => (body.u64()?.wrapping_add(load_bias), body.u64()?),
    };
    if common.augmented {
        let skipped = body.uleb()?;
        body.split(skipped)?;
    }
    Some(Parsed::Entry(Fde {
        begin,
        length,
        code_alignment: common.code_alignment,
        data_alignment: common.data_alignment,
        return_register: common.return_register,
        signal: common.signal,
        address_encoding: common.address_encoding,
        section,
        initial_instructions: common.instructions,
        instructions: body,
    }))
}

fn from(window: Bytes, at: u64) -> Option<Bytes> {
    let mut cursor = window;
    cursor.split(at.checked_sub(window.position())?)?;
    Some(cursor)
}

struct Common {
    code_alignment: u64,
    data_alignment: i64,
    return_register: u64,
    address_encoding: u8,
    signal: bool,
    augmented: bool,
    instructions: Bytes,
}

fn parse_common(mut cursor: Bytes, section: Section) -> Option<Common> {
    let (mut body, wide) = record(&mut cursor)?;
    let id = if wide { body.u64()? } else { u64::from(body.u32()?) };
    let expected = match section {
        Section::EhFrame | Section::Registered { .. } => 0,
        Section::DebugFrame { .. } if wide => u64::MAX,
        Section::DebugFrame { .. } => 0xffff_ffff,
    };
    if id != expected {
        return None;
    }
    let version = body.u8()?;
    if !matches!(version, 1 | 3 | 4) {
        return None;
    }
    let mut augmentation = body;
    while body.u8()? != 0 {}
    if version == 4 {
        let (address_size, segment_size) = (body.u8()?, body.u8()?);
        if address_size != 8 || segment_size != 0 {
            return None;
        }
    }
    let mut common = Common {
        code_alignment: body.uleb()?,
        data_alignment: body.sleb()?,
        return_register: if version == 1 { u64::from(body.u8()?) } else { body.uleb()? },
        address_encoding: 0,
        signal: false,
        augmented: false,
        instructions: body,
    };
    let mut first = true;
    let mut data = body;
    loop {
        match augmentation.u8()? {
            0 => break,
            b'z' if first => {
                common.augmented = true;
                let length = body.uleb()?;
                data = body.split(length)?;
                common.instructions = body;
            }
            // Without `z` the length of what follows is unknown, and so is where the instructions begin.
            _ if !common.augmented => return None,
            b'R' => common.address_encoding = data.u8()?,
            b'L' => {
                data.u8()?;
            }
            b'P' => {
                let encoding = data.u8()?;
                if encoding & 0x70 == 0x50 && encoding != OMITTED {
                    return None;
                }
                data.skip_pointer(encoding)?;
            }
            b'S' => common.signal = true,
            b'B' | b'G' => {}
            _ => return None,
        }
        first = false;
    }
    Some(common)
}
