//! Line tables of CPython's code objects, version by version, as the runs of lines that a recording has.

use tracehound_format::varint::{put, zigzag};

/// Which line each place of a code object is on. Place 0 is before the first instruction, place `n` the instruction
/// before which there are `n - 1`. The result is pairs of varints: places since the pair before, and the zig-zag
/// difference to its line; the first pair counts from place 0 and the first line.
pub fn runs(minor: u32, first_line: u32, table: &[u8]) -> Vec<u8> {
    let mut runs = LineRuns { out: Vec::new(), place: 0, line: i64::from(first_line) };
    match minor {
        9 => byte_pairs_ahead(table, &mut runs),
        10 => byte_pairs(table, &mut runs),
        _ => locations(table, &mut runs),
    }
    runs.out
}

struct LineRuns {
    out: Vec<u8>,
    /// Where the last run begins, and its line.
    place: u64,
    line: i64,
}

impl LineRuns {
    /// From instruction `unit` on, it is `line`.
    fn from(&mut self, unit: u64, line: i64) {
        let place = unit + 1;
        if line != self.line && place > self.place {
            put(&mut self.out, place - self.place);
            put(&mut self.out, zigzag(line - self.line));
            (self.place, self.line) = (place, line);
        }
    }
}

/// 3.9, `co_lnotab`: bytes of code, then what the line changes by behind them (CPython, `lnotab_notes.txt`).
fn byte_pairs_ahead(table: &[u8], runs: &mut LineRuns) {
    let (mut bytes, mut line) = (0, runs.line);
    let mut pairs = table.chunks_exact(2).peekable();
    while let Some(&[by, change]) = pairs.next() {
        bytes += u64::from(by);
        line += i64::from(change as i8);
        // Large changes are several pairs at one place.
        if pairs.peek().is_none_or(|next| next.first() != Some(&0)) {
            runs.from(bytes / 2, line);
        }
    }
}

/// 3.10, `co_linetable`: bytes of code that are on a line, and what that changes by before them; -128: on none.
fn byte_pairs(table: &[u8], runs: &mut LineRuns) {
    let (mut bytes, mut line) = (0, runs.line);
    for pair in table.chunks_exact(2) {
        let &[len, change] = pair else { continue };
        if change as i8 != -128 {
            line += i64::from(change as i8);
            if len != 0 {
                runs.from(bytes / 2, line);
            }
        }
        bytes += u64::from(len);
    }
}

/// 3.11 and later, `co_linetable`: entries of one byte and what it announces (CPython, `locations.md`).
fn locations(table: &[u8], runs: &mut LineRuns) {
    let (mut unit, mut line) = (0, runs.line);
    let mut rest = table.iter().copied().peekable();
    while let Some(first) = rest.next() {
        let (code, len) = (first >> 3 & 15, u64::from(first & 7) + 1);
        match code {
            10..=12 => line += i64::from(code) - 10,
            13 | 14 => {
                let change = varint(&mut rest);
                line += if change & 1 == 0 { (change >> 1) as i64 } else { -((change >> 1) as i64) };
            }
            _ => {}
        }
        // 15: on no line; the one before stands for it.
        if code != 15 {
            runs.from(unit, line);
        }
        unit += len;
        while rest.next_if(|byte| byte & 0x80 == 0).is_some() {}
    }
}

/// Six bits a byte, least significant first, the bit above them set on all but the last.
fn varint(bytes: &mut core::iter::Peekable<impl Iterator<Item = u8>>) -> u64 {
    let (mut value, mut shift) = (0, 0);
    while let Some(byte) = bytes.next_if(|byte| byte & 0x80 == 0) {
        value |= u64::from(byte & 63) << shift;
        shift = (shift + 6).min(58);
        if byte & 64 == 0 {
            break;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracehound_format::varint::{Reader, unzigzag};

    /// Places and lines where runs begin.
    fn lines(minor: u32, first_line: u32, table: &[u8]) -> Vec<(u64, i64)> {
        let bytes = runs(minor, first_line, table);
        let mut reader = Reader::new(&bytes);
        let (mut place, mut line) = (0, i64::from(first_line));
        std::iter::from_fn(|| {
            place += reader.next_u64()?;
            line += unzigzag(reader.next_u64()?);
            Some((place, line))
        })
        .collect()
    }

    #[test]
    fn each_version_has_its_own_table() {
        // def f(a):            # line 1
        //     b = a + 1        # line 2
        //     return [         # line 3
        //         b,           # line 4
        //     ]
        // as the versions compile it.
        let lnotab = [0, 1, 8, 2, 2, 255];
        assert_eq!(lines(9, 1, &lnotab), [(1, 2), (5, 4), (6, 3)]);
        let table_10 = [8, 1, 2, 2, 4, 255];
        assert_eq!(lines(10, 1, &table_10), [(1, 2), (5, 4), (6, 3)]);
        let table_11 = [128, 0, 216, 8, 9, 136, 65, 137, 5, 128, 65, 224, 8, 9, 240, 3, 2, 12, 6, 240, 0, 2, 5, 6];
        assert_eq!(lines(11, 1, &table_11), [(2, 2), (7, 4), (8, 3)]);
    }
}
