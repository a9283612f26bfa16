//! LEB128 variable-length integers and zig-zag signs (DWARF 5, section 7.6; Protocol Buffers, "Base 128 Varints").

/// Longest encoding of a `u64`, in bytes.
pub const MAX_LEN: usize = 10;

/// Appends `value` to `out`, seven bits a byte, least significant first.
#[inline]
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Maps signed to unsigned so that small magnitudes stay small: 0, -1, 1, -2 … become 0, 1, 2, 3 …
#[inline]
#[must_use]
pub const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Inverse of [`zigzag`].
#[inline]
#[must_use]
pub const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// The low seven bits of each byte, one behind the other.
#[inline]
const fn joined(bytes: u64) -> u64 {
    let pairs = (bytes & 0x007f_007f_007f_007f) | (bytes & 0x7f00_7f00_7f00_7f00) >> 1;
    let fours = (pairs & 0x0000_3fff_0000_3fff) | (pairs & 0x3fff_0000_3fff_0000) >> 2;
    (fours & 0x0fff_ffff) | (fours & 0x0fff_ffff_0000_0000) >> 4
}

/// Reads varints from a slice, front to back.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the front of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Next integer; `None` when the bytes end in the middle of it or it has more than 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> Option<u64> {
        let (&first, rest) = self.bytes.split_first()?;
        if first < 0x80 {
            self.bytes = rest;
            return Some(u64::from(first));
        }
        if let Some(word) = self.bytes.first_chunk() {
            let word = u64::from_le_bytes(*word);
            // The highest bits of the bytes that another one does not follow.
            let ends = !word & 0x8080_8080_8080_8080;
            if ends != 0 {
                let bits = ends.trailing_zeros() + 1;
                self.bytes = self.bytes.split_at((bits / 8) as usize).1;
                return Some(joined(word & (u64::MAX >> (64 - bits))));
            }
        }
        self.next_long(u64::from(first & 0x7f), rest)
    }

    fn next_long(&mut self, mut value: u64, mut rest: &'a [u8]) -> Option<u64> {
        let mut shift = 7;
        loop {
            let (&byte, tail) = rest.split_first()?;
            rest = tail;
            if shift == 63 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                self.bytes = rest;
                return Some(value);
            }
            shift += 7;
            if shift > 63 {
                return None;
            }
        }
    }

    /// Next byte as it is.
    #[inline]
    pub fn next_u8(&mut self) -> Option<u8> {
        let (&first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(first)
    }

    /// Splits off the next `len` bytes.
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.bytes.split_at_checked(len)?;
        self.bytes = tail;
        Some(head)
    }

    /// Whether everything has been read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_integer_comes_back(values in prop::collection::vec((any::<u64>(), 0_u32..64), 0..40)) {
            // Of any number of bytes.
            let values: Vec<u64> = values.into_iter().map(|(value, shift)| value >> shift).collect();
            let mut bytes = Vec::new();
            values.iter().for_each(|&v| put(&mut bytes, v));
            let mut reader = Reader::new(&bytes);
            for &v in &values { prop_assert_eq!(reader.next_u64(), Some(v)); }
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn every_sign_comes_back(value: i64) { prop_assert_eq!(unzigzag(zigzag(value)), value); }

        #[test]
        fn hostile_bytes_never_panic(bytes: Vec<u8>) {
            let mut reader = Reader::new(&bytes);
            while reader.next_u64().is_some() {}
        }
    }

    #[test]
    fn more_than_64_bits_is_refused() {
        assert_eq!(Reader::new(&[0xff; 11]).next_u64(), None);
        assert_eq!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]).next_u64(), Some(u64::MAX));
        assert_eq!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).next_u64(), None);
    }
}
