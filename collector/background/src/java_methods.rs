//! Methods of Java as a recording has them: names as Java's tools print them, and runs of lines.

use tracehound_format::varint::{put, zigzag};
use tracehound_shared::hotspot::{LineTable, NextPair};

/// `java.util.List.of(int, java.lang.Object[])`, as a perf map of HotSpot's has it without the result. The class has slashes,
/// the descriptor is `(I[Ljava/lang/Object;)V`. Without a class it is no method, and is called `name`.
pub fn name(class: &[u8], name: &[u8], descriptor: &[u8]) -> Vec<u8> {
    if class.is_empty() {
        return name.to_vec();
    }
    let mut text = class_name(&text(class));
    text.push('.');
    text.push_str(&self::text(name));
    text.push('(');
    for (index, parameter) in parameters(&self::text(descriptor)).iter().enumerate() {
        text.push_str(if index > 0 { ", " } else { "" });
        text.push_str(parameter);
    }
    text.push(')');
    text.into_bytes()
}

/// The source file in the folder of its package, as compilers want it; empty if it is not known.
pub fn file(class: &[u8], file: &[u8]) -> Vec<u8> {
    if file.is_empty() {
        return Vec::new();
    }
    let class = text(class);
    let package = class.rfind('/').and_then(|at| class.get(..=at)).unwrap_or_default();
    format!("{package}{}", text(file)).into_bytes()
}

/// Java's form of UTF-8 as UTF-8: it writes the halves of characters beyond 16 bits apart, and 0 as two bytes.
fn text(bytes: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.to_owned();
    }
    let mut units = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    loop {
        let (unit, len) = match *rest {
            [] => break,
            [a, b, ..] if a & 0xe0 == 0xc0 && b & 0xc0 == 0x80 => (u16::from(a & 0x1f) << 6 | u16::from(b & 0x3f), 2),
            [a, b, c, ..] if a & 0xf0 == 0xe0 && b & 0xc0 == 0x80 && c & 0xc0 == 0x80 => {
                (u16::from(a & 0xf) << 12 | u16::from(b & 0x3f) << 6 | u16::from(c & 0x3f), 3)
            }
            [a, ..] if a < 0x80 => (u16::from(a), 1),
            // No form of UTF-8.
            [..] => (0xfffd, 1),
        };
        units.push(unit);
        rest = rest.get(len..).unwrap_or_default();
    }
    String::from_utf16_lossy(&units)
}

/// A class with dots. Of a hidden one HotSpot shows where it is behind a slash.
fn class_name(class: &str) -> String {
    let is_place = |place: &str| {
        let digits = place.strip_prefix("+0x").unwrap_or_default();
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let place_at = class.rfind('+').filter(|&at| class.get(at..).is_some_and(is_place));
    let is_mark = |index: usize| place_at == Some(index);
    let shown = |(index, letter): (usize, char)| match letter {
        '/' => '.',
        _ if is_mark(index) => '/',
        _ => letter,
    };
    class.char_indices().map(shown).collect()
}

fn parameters(descriptor: &str) -> Vec<String> {
    let mut rest = descriptor.strip_prefix('(').unwrap_or_default();
    let mut types = Vec::new();
    while let Some((name, behind)) = first_type(rest) {
        types.push(name);
        rest = behind;
    }
    types
}

/// The type that a text begins with, and what is behind it; `None` at the end of the parameters.
fn first_type(text: &str) -> Option<(String, &str)> {
    let element = text.trim_start_matches('[');
    let dimensions = text.len() - element.len();
    let mut chars = element.chars();
    let mut name = match chars.next()? {
        'B' => "byte".to_owned(),
        'C' => "char".to_owned(),
        'D' => "double".to_owned(),
        'F' => "float".to_owned(),
        'I' => "int".to_owned(),
        'J' => "long".to_owned(),
        'S' => "short".to_owned(),
        'Z' => "boolean".to_owned(),
        'L' => {
            let (class, behind) = chars.as_str().split_once(';')?;
            chars = behind.chars();
            class_name(class)
        }
        _ => return None,
    };
    (0..dimensions).for_each(|_| name.push_str("[]"));
    Some((name, chars.as_str()))
}

/// The first line, and the runs of lines from there on: pairs of varints, places since the pair before and the zig-zag
/// difference to its line. Place 0 stands for a bytecode that is not known, and has no line; place `n` for the one at `n - 1`.
/// A line is that of the last entry of the table at or before the bytecode, or of the first one exactly there.
pub fn runs(table: &[u8], version: u32, code_bytes: u32) -> (u32, Vec<u8>) {
    // By index of a bytecode: the first and the last line that the table has there. Tables need not be in order.
    let mut entries: Vec<Option<(i64, i64)>> = vec![None; code_bytes as usize];
    let mut table = LineTable::new(table, version);
    while let NextPair::Pair((index, line)) = table.next_pair() {
        let entry = usize::try_from(index).ok().and_then(|index| entries.get_mut(index));
        if let Some(entry) = entry {
            let line = i64::from(line.max(0));
            *entry = Some((entry.map_or(line, |(first, _)| first), line));
        }
    }
    let first_line = entries.iter().flatten().next().map_or(0, |&(line, _)| line);
    let mut out = Vec::new();
    let (mut place, mut line) = (0, first_line);
    let mut from = |at: u64, now: i64| {
        if now != line {
            put(&mut out, at - place);
            put(&mut out, zigzag(now - line));
            (place, line) = (at, now);
        }
    };
    from(0, 0);
    for (index, entry) in (0..).zip(&entries) {
        let Some((first, last)) = *entry else { continue };
        from(index + 1, first);
        if index + 1 < u64::from(code_bytes) {
            from(index + 2, last);
        }
    }
    (u32::try_from(first_line).unwrap_or(0), out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracehound_format::varint::{Reader, unzigzag};

    fn named(class: &str, method: &str, descriptor: &str) -> String {
        String::from_utf8(name(class.as_bytes(), method.as_bytes(), descriptor.as_bytes())).unwrap()
    }

    #[test]
    fn names_are_those_of_perf_maps() {
        assert_eq!(name(b"", b"[no method]", b""), b"[no method]");
        for (class, method, descriptor, expected) in [
            ("java/lang/String", "hashCode", "()I", "java.lang.String.hashCode()"),
            ("D", "<init>", "(IJ[BLjava/lang/Object;)V", "D.<init>(int, long, byte[], java.lang.Object)"),
            ("a/B$C", "d", "([[Lx/Y;ZCSFD)[I", "a.B$C.d(x.Y[][], boolean, char, short, float, double)"),
            ("S$$Lambda$14+0x00000008000c", "run", "()V", "S$$Lambda$14/0x00000008000c.run()"),
            ("a+b", "c", "()V", "a+b.c()"),
            ("D", "odd", "(Q", "D.odd()"),
            ("D", "odd", "(Lnever", "D.odd()"),
        ] {
            assert_eq!(named(class, method, descriptor), expected);
        }
    }

    #[test]
    fn texts_are_utf_8() {
        // U+1F600 as two halves of three bytes.
        assert_eq!(text(&[b'a', 0xed, 0xa0, 0xbd, 0xed, 0xb8, 0x80, b'z']), "a\u{1F600}z");
        assert_eq!(text(&[0xc0, 0x80, b'b']), "\0b");
        assert_eq!(text("gr\u{f6}\u{df}e".as_bytes()), "gr\u{f6}\u{df}e");
        assert_eq!(text(&[0xff, b'x']), "\u{fffd}x");
        assert_eq!(text(&[0xed, 0xa0]), "\u{fffd}\u{fffd}");
    }

    #[test]
    fn files_are_in_the_folders_of_packages() {
        assert_eq!(file(b"java/util/List", b"List.java"), b"java/util/List.java");
        assert_eq!(file(b"D", b"D.java"), b"D.java");
        assert_eq!(file(b"a/D", b""), b"");
    }

    fn lines(table: &[u8], code_bytes: u32) -> Vec<i64> {
        let (first, runs) = runs(table, 17, code_bytes);
        let mut pairs = Reader::new(&runs);
        let mut line = i64::from(first);
        let mut lines = Vec::new();
        let mut at = 0;
        while let (Some(places), Some(change)) = (pairs.next_u64(), pairs.next_u64()) {
            at += places;
            lines.resize(at as usize, line);
            line += unzigzag(change);
        }
        lines.resize(code_bytes as usize + 1, line);
        lines
    }

    #[test]
    fn lines_are_those_of_stack_traces() {
        // Line 21 at 0, 23 at 2.
        assert_eq!(lines(&[0xff, 0, 42, 2 << 3 | 2, 0], 4), [0, 21, 21, 23, 23]);
        // Line 5 from 1 on: none before.
        assert_eq!(lines(&[1 << 3 | 5, 0], 3), [0, 0, 5, 5]);
        // Two lines at 1: the first there, the last behind it.
        assert_eq!(lines(&[7, 1 << 3 | 1, 3, 0], 4), [0, 7, 8, 11, 11]);
        // Not in order.
        assert_eq!(lines(&[2 << 3 | 4, 0xff, 3, 0, 0], 4), [0, 4, 4, 4, 4]);
        assert_eq!(lines(&[2 << 3 | 4, 0xff, 3, 4, 0], 4), [0, 6, 6, 4, 4]);
        // Beyond the code.
        assert_eq!(lines(&[7, 9 << 3 | 1, 0], 2), [0, 7, 7]);
        assert_eq!(lines(&[], 2), [0, 0, 0]);
    }
}
