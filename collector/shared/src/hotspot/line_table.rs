//! HotSpot's compressed tables of lines: pairs of a bytecode's index and its line, each as the difference to the one before.
//!
//! ```text
//! 0                            the end
//! 255, number, number          both differences, with their signs
//! any other byte               index: the upper five bits, line: the lower three
//! ```
//! A number has one to five bytes: a byte that is below a limit is the last one, and one above it has six bits. From JDK 20
//! on no byte of a number is 0.

/// A table, read from its beginning.
#[derive(Clone, Debug)]
pub struct LineTable<'a> {
    bytes: &'a [u8],
    /// How far it has been read.
    at: usize,
    /// What every byte of a number is larger by.
    excess: u32,
    index: i32,
    line: i32,
}

/// A bytecode's index, and the line from there on.
pub type LinePair = (i32, i32);

/// The next pair of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextPair {
    /// There is one.
    Pair(LinePair),
    /// There is none: here is the end.
    End,
    /// The bytes are no table, or more of them are needed.
    Broken,
}

const BITS: u32 = 6;
const LONGEST: u32 = 5;
const ESCAPE: u8 = 0xff;

impl<'a> LineTable<'a> {
    /// The table that `bytes` begin with, by HotSpot of this major version.
    #[must_use]
    pub fn new(bytes: &'a [u8], version: u32) -> Self {
        Self { bytes, at: 0, excess: u32::from(version >= 20), index: 0, line: 0 }
    }

    /// Bytes of the table with its end; `None` if it has none within the bytes.
    #[must_use]
    pub fn byte_count(mut self) -> Option<usize> {
        loop {
            match self.next_pair() {
                NextPair::Pair(_) => {}
                NextPair::End => return Some(self.at),
                NextPair::Broken => return None,
            }
        }
    }

    /// The next pair.
    pub fn next_pair(&mut self) -> NextPair {
        let (index, line) = match self.byte() {
            None => return NextPair::Broken,
            Some(0) => return NextPair::End,
            Some(ESCAPE) => match (self.signed(), self.signed()) {
                (Some(index), Some(line)) => (index, line),
                _ => return NextPair::Broken,
            },
            Some(byte) => (i32::from(byte >> 3), i32::from(byte & 7)),
        };
        self.index = self.index.wrapping_add(index);
        self.line = self.line.wrapping_add(line);
        NextPair::Pair((self.index, self.line))
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn signed(&mut self) -> Option<i32> {
        let limit = 256 - (1 << BITS);
        let mut sum = 0_u32;
        for place in 0..LONGEST {
            let byte = u32::from(self.byte()?);
            sum = sum.wrapping_add(byte.checked_sub(self.excess)? << (place * BITS));
            if byte < limit {
                break;
            }
        }
        Some((sum >> 1) as i32 ^ -((sum & 1) as i32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(bytes: &[u8], version: u32) -> Vec<LinePair> {
        let mut table = LineTable::new(bytes, version);
        core::iter::from_fn(|| match table.next_pair() {
            NextPair::Pair(pair) => Some(pair),
            NextPair::End | NextPair::Broken => None,
        })
        .collect()
    }

    #[test]
    fn short_and_long_pairs() {
        // Line 21 at 0; 5 further, 2 lines down; 3 further, 1 line back.
        let old = [0xff, 0, 42, 5 << 3 | 2, 0xff, 6, 1, 0, 77];
        assert_eq!(pairs(&old, 17), [(0, 21), (5, 23), (8, 22)]);
        assert_eq!(LineTable::new(&old, 17).byte_count(), Some(8));
        let new = [0xff, 1, 43, 5 << 3 | 2, 0xff, 7, 2, 0, 77];
        assert_eq!(pairs(&new, 21), [(0, 21), (5, 23), (8, 22)]);
        assert_eq!(LineTable::new(&new, 21).byte_count(), Some(8));
    }

    #[test]
    fn numbers_of_several_bytes() {
        // 2,000 is 4,000 without a sign: 224 + 59 * 64, and 225 + 59 * 64 as the lower bits are 4,000 - 59 * 64.
        assert_eq!(pairs(&[0xff, 0, 224, 59, 0], 17), [(0, 2000)]);
        assert_eq!(pairs(&[0xff, 1, 225, 60, 0], 25), [(0, 2000)]);
        // The limit itself has more bytes: 192 + 0 * 64 is 192.
        assert_eq!(pairs(&[0xff, 0, 192, 0, 0], 17), [(0, 96)]);
        assert_eq!(pairs(&[0xff, 1, 192, 1, 0], 21), [(0, -96)]);
    }

    #[test]
    fn a_table_without_an_end_is_none() {
        for bytes in [&[][..], &[8], &[0xff], &[0xff, 3], &[0xff, 3, 200], &[0xff, 3, 255, 255, 255, 255]] {
            assert_eq!(LineTable::new(bytes, 17).byte_count(), None, "{bytes:?}");
        }
        // A 0 within a number.
        assert_eq!(LineTable::new(&[0xff, 0, 3, 0], 21).byte_count(), None);
    }
}
