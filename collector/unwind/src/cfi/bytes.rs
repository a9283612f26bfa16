//! A cursor over unwind information in memory: every read is checked against the window it may touch.

/// Reads little-endian values between `at` and `end`; `None` past the end.
#[derive(Clone, Copy, Debug)]
pub struct Bytes {
    at: u64,
    end: u64,
    /// Added to the address of a value to get the address that pc-relative encodings count from: not zero
    /// where the bytes are a copy.
    delta: u64,
}

const ABSOLUTE: u8 = 0x00;
const PC_RELATIVE: u8 = 0x10;
const TEXT_RELATIVE: u8 = 0x20;
const DATA_RELATIVE: u8 = 0x30;
/// The encoding that stands for "no value".
pub const OMITTED: u8 = 0xff;

impl Bytes {
    /// # Safety
    /// All of `start..end` must be readable while the cursor and its copies are in use. Other threads may
    /// write there (the result is then garbage, but no fault).
    pub unsafe fn new(start: u64, end: u64, delta: u64) -> Bytes {
        Bytes { at: start, end: end.max(start), delta }
    }

    /// Address of the next byte.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// Address after the last byte.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Whether no byte is left.
    pub fn is_empty(&self) -> bool {
        self.at >= self.end
    }

    /// The next `count` bytes as a cursor of their own, skipped here.
    pub fn split(&mut self, count: u64) -> Option<Bytes> {
        if count > self.end - self.at {
            return None;
        }
        let part = Bytes { at: self.at, end: self.at + count, delta: self.delta };
        self.at += count;
        Some(part)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        if self.end - self.at < N as u64 {
            return None;
        }
        // SAFETY: the N bytes lie in the window, readable by the contract of `new`; any bytes are a [u8; N], which needs no
        // alignment. Volatile: others may write there, and a value must not be loaded again after it was checked.
        let bytes = unsafe { (self.at as *const [u8; N]).read_volatile() };
        self.at += N as u64;
        Some(bytes)
    }

    /// The next byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|bytes| bytes[0])
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Bits past the 64th are dropped.
    pub fn uleb(&mut self) -> Option<u64> {
        let (mut value, mut shift) = (0u64, 0u32);
        loop {
            let byte = self.u8()?;
            if shift < 64 {
                value |= u64::from(byte & 0x7f) << shift;
            }
            shift = shift.saturating_add(7);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
    }

    /// Bits past the 64th are dropped.
    pub fn sleb(&mut self) -> Option<i64> {
        let (mut value, mut shift) = (0u64, 0u32);
        loop {
            let byte = self.u8()?;
            if shift < 64 {
                value |= u64::from(byte & 0x7f) << shift;
            }
            shift = shift.saturating_add(7);
            if byte & 0x80 == 0 {
                if shift < 64 && byte & 0x40 != 0 {
                    value |= u64::MAX << shift;
                }
                return Some(value as i64);
            }
        }
    }

    /// A pointer in one of the `DW_EH_PE` encodings (LSB core specification, 10.5); `data_base` is what
    /// data-relative ones count from. Indirect and aligned pointers are refused: no linker writes them where
    /// this is used.
    pub fn pointer(&mut self, encoding: u8, data_base: u64) -> Option<u64> {
        self.based_pointer(encoding, 0, data_base)
    }

    /// [`pointer`](Self::pointer), where text-relative ones count from `text_base`.
    pub fn based_pointer(&mut self, encoding: u8, text_base: u64, data_base: u64) -> Option<u64> {
        let place = self.at.wrapping_add(self.delta);
        let value = match encoding & 0x0f {
            0x00 | 0x04 | 0x0c => self.u64()?,
            0x01 => self.uleb()?,
            0x02 => u64::from(self.u16()?),
            0x03 => u64::from(self.u32()?),
            0x09 => self.sleb()? as u64,
            0x0a => self.u16()? as i16 as u64,
            0x0b => self.u32()? as i32 as u64,
            _ => return None,
        };
        match encoding & 0xf0 {
            ABSOLUTE => Some(value),
            PC_RELATIVE => Some(value.wrapping_add(place)),
            TEXT_RELATIVE => Some(value.wrapping_add(text_base)),
            DATA_RELATIVE => Some(value.wrapping_add(data_base)),
            _ => None,
        }
    }

    /// Skips a pointer of any encoding, as found before the fields that matter.
    pub fn skip_pointer(&mut self, encoding: u8) -> Option<()> {
        if encoding != OMITTED {
            self.pointer(encoding & 0x0f, 0)?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(bytes: &[u8]) -> Bytes {
        let start = bytes.as_ptr() as u64;
        // SAFETY: a borrowed slice that outlives the cursor in each test.
        unsafe { Bytes::new(start, start + bytes.len() as u64, 0) }
    }

    #[test]
    fn leb_examples_of_the_dwarf_standard() {
        assert_eq!(over(&[0x80, 0x7f]).sleb(), Some(-128));
        assert_eq!(over(&[0xff, 0x7e]).sleb(), Some(-129));
        assert_eq!(over(&[0x81, 0x01]).uleb(), Some(129));
        assert_eq!(over(&[0xb9, 0x64]).uleb(), Some(12857));
        assert_eq!(over(&[0xff; 12]).uleb(), None, "never ends");
        assert_eq!(over(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]).sleb(), Some(-1));
    }

    #[test]
    fn nothing_is_read_past_the_end() {
        let mut bytes = over(&[1, 2, 3]);
        assert_eq!(bytes.u32(), None);
        assert!(bytes.split(4).is_none());
        assert_eq!(bytes.u16(), Some(0x0201));
        assert_eq!(bytes.split(1).and_then(|mut part| part.u8()), Some(3));
        assert_eq!(bytes.u8(), None);
    }

    #[test]
    fn pointers_are_relative_to_their_place() {
        let data = (-4i32).to_le_bytes();
        let at = data.as_ptr() as u64;
        assert_eq!(over(&data).pointer(0x1b, 0), Some(at - 4));
        assert_eq!(over(&data).pointer(0x3b, 0x1000), Some(0xffc));
        assert_eq!(over(&data).pointer(0x9b, 0), None, "indirect");
    }
}
