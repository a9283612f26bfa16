//! The text of `/proc/self/maps`.

use core::ops::Range;

/// A line of `/proc/self/maps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapsLine<'a> {
    /// Addresses.
    pub range: Range<usize>,
    /// Like `rw-p`.
    pub permissions: &'a [u8],
    /// There is a file behind it.
    pub has_file: bool,
    /// Path or name; may be empty.
    pub path: &'a [u8],
}

impl MapsLine<'_> {
    /// The path as it is: the kernel writes a line break in it as `\\012`.
    pub fn file_path(&self) -> Vec<u8> {
        const BREAK: &[u8] = b"\\012";
        let (mut path, mut rest) = (Vec::new(), self.path);
        while let Some((&byte, behind)) = rest.split_first() {
            let (byte, behind) = rest.strip_prefix(BREAK).map_or((byte, behind), |behind| (b'\n', behind));
            path.push(byte);
            rest = behind;
        }
        path
    }
}

/// All lines that can be understood, none of which overlaps the one before: Linux locks one mapping after the other since
/// 6.17, and gives one that grows meanwhile twice.
pub fn lines(text: &[u8]) -> impl Iterator<Item = MapsLine<'_>> + Clone {
    let all = text.split(|&byte| byte == b'\n').filter_map(parse);
    all.scan(0, |end, mut line| {
        line.range.start = line.range.start.max(*end);
        *end = line.range.end.max(*end);
        Some((!line.range.is_empty()).then_some(line))
    })
    .flatten()
}

/// `start-end perms offset device inode   path`
fn parse(line: &[u8]) -> Option<MapsLine<'_>> {
    let mut rest = line;
    let mut word = || {
        let start = rest.iter().position(|&byte| byte != b' ')?;
        let text = rest.get(start..)?;
        let len = text.iter().position(|&byte| byte == b' ').unwrap_or(text.len());
        rest = text.get(len..)?;
        text.get(..len)
    };
    let ends = word()?;
    let dash = ends.iter().position(|&byte| byte == b'-')?;
    let (start, end) = (address(ends.get(..dash)?)?, address(ends.get(dash + 1..)?)?);
    let permissions = word()?;
    let inode = word().and_then(|_| word()).and_then(|_| word()).unwrap_or_default();
    let path = rest.iter().position(|&byte| byte != b' ').and_then(|at| rest.get(at..)).unwrap_or_default();
    (start < end).then_some(MapsLine { range: start..end, permissions, has_file: !matches!(inode, b"" | b"0"), path })
}

/// A hexadecimal number: at most sixteen digits.
fn address(text: &[u8]) -> Option<usize> {
    if text.is_empty() || text.len() > 16 {
        return None;
    }
    text.iter().try_fold(0, |value, &byte| Some(value << 4 | (byte as char).to_digit(16)? as usize))
}

/// The mappings of the object that `inside` lies in, the memory behind its file included.
pub fn library<'a>(mut lines: impl Iterator<Item = MapsLine<'a>> + Clone, inside: usize) -> Vec<Range<usize>> {
    let all = lines.clone();
    let Some(path) = lines.find(|line| line.range.contains(&inside)).map(|line| line.path) else {
        return Vec::new();
    };
    let mut ranges: Vec<Range<usize>> =
        all.filter(|line| !path.is_empty() && line.path == path).map(|line| line.range).collect();
    if let (Some(first), Some(last)) = (ranges.first().map(|r| r.start), ranges.last_mut())
        // SAFETY: the first page of our own object is mapped for ever.
        && let Some(end) = unsafe { crate::code::image_end(first as u64) }
    {
        last.end = last.end.max(end as usize);
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_that_was_read_twice_is_there_once() {
        let text = b"1000-5000 rw-p 00000000 00:00 0 \n1000-8000 rw-p 00000000 00:00 0 \n2000-8000 rw-p 00000000 00:00 0 \n9000-a000 r--p 00000000 00:00 0 \n";
        let ranges: Vec<_> = lines(text).map(|line| line.range).collect();
        assert_eq!(ranges, [0x1000..0x5000, 0x5000..0x8000, 0x9000..0xa000]);
    }

    #[test]
    fn lines_are_understood() {
        let line = parse(b"7f0000001000-7f0000003000 r-xp 00001000 08:01 1234       /lib/a b.so").expect("a line");
        assert_eq!((line.range, line.path), (0x7f00_0000_1000..0x7f00_0000_3000, &b"/lib/a b.so"[..]));
        assert!(line.has_file && line.permissions == b"r-xp");
        let line = parse(b"1000-3000 r-xp 00001000 08:01 1234       /a\\012b\\01.so").expect("a line");
        assert_eq!(line.file_path(), b"/a\nb\\01.so");
        let line = parse(b"7ffd000-7fff000 rw-p 00000000 00:00 0 ").expect("a line");
        assert!(line.path.is_empty() && !line.has_file);
        assert_eq!(parse(b"7ffd000-7fff000 rw-p 00000000 00:00 0   [heap]").expect("a line").path, b"[heap]");
        assert!(parse(b"").is_none() && parse(b"x-y").is_none() && parse(b"20-10 r").is_none());
        assert!(
            parse(b"-10 r--p").is_none() && parse(b"10 r--p").is_none() && parse(b"10000000000000000-2 r").is_none()
        );
    }
}
