//! What was mapped before recording began: the process's own list, without what is the recorder's.

use core::ops::Range;

use tracehound_format::record::{Kind, Record};

use crate::shared::{own, sys};

/// A line of `/proc/self/maps`.
struct MapsLine<'a> {
    range: Range<usize>,
    path: &'a [u8],
}

/// Records of everything that is mapped now and not ours, stamped with `tick`. Neighbours are one range.
pub fn records(tick: u64) -> Vec<Record> {
    let Ok(text) = sys::read_file(libc::AT_FDCWD, c"/proc/thread-self/maps") else { return Vec::new() };
    let mut own = own::list();
    own.extend(library(&text, records as *const () as usize));
    own.sort_unstable_by_key(|range| range.start);
    let mut found = Vec::new();
    let mut push = |range: Range<usize>| {
        let len = range.len() as u64;
        if len >> 32 != 0 {
            found.push(Record::new(Kind::SizeHigh, tick, len >> 32, 0, 0));
        }
        found.push(Record::new(Kind::MapExisting, tick, range.start as u64, 0, len as u32));
    };
    let mut open: Option<Range<usize>> = None;
    for line in lines(&text).filter(|line| line.path != b"[vsyscall]") {
        own::without(line.range, &own, |piece| match &mut open {
            Some(range) if range.end == piece.start => range.end = piece.end,
            open => {
                if let Some(done) = open.replace(piece) {
                    push(done);
                }
            }
        });
    }
    open.into_iter().for_each(push);
    found
}

fn lines(text: &[u8]) -> impl Iterator<Item = MapsLine<'_>> {
    text.split(|&byte| byte == b'\n').filter_map(parse)
}

/// `start-end perms offset device inode   path`
fn parse(line: &[u8]) -> Option<MapsLine<'_>> {
    let mut words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let mut ends = words
        .next()?
        .split(|&byte| byte == b'-')
        .map(|hex| std::str::from_utf8(hex).ok().and_then(|hex| usize::from_str_radix(hex, 16).ok()));
    let (start, end) = (ends.next()??, ends.next()??);
    let path = words.nth(4).unwrap_or_default();
    (start < end).then_some(MapsLine { range: start..end, path })
}

/// The mappings of the object that `inside` lies in, the memory behind its file included.
fn library(text: &[u8], inside: usize) -> Vec<Range<usize>> {
    let Some(path) = lines(text).find(|line| line.range.contains(&inside)).map(|line| line.path) else {
        return Vec::new();
    };
    let mut ranges: Vec<Range<usize>> =
        lines(text).filter(|line| !path.is_empty() && line.path == path).map(|line| line.range).collect();
    if let (Some(first), Some(last)) = (ranges.first().map(|r| r.start), ranges.last_mut())
        // SAFETY: the first page of our own object is mapped for ever.
        && let Some(end) = unsafe { crate::shared::code::image_end(first as u64) }
    {
        last.end = last.end.max(end as usize);
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood() {
        let line = parse(b"7f0000001000-7f0000003000 r-xp 00001000 08:01 1234       /lib/a b.so").expect("a line");
        assert_eq!((line.range, line.path), (0x7f00_0000_1000..0x7f00_0000_3000, &b"/lib/a"[..]));
        assert!(parse(b"7ffd000-7fff000 rw-p 00000000 00:00 0 ").expect("a line").path.is_empty());
        assert!(parse(b"").is_none() && parse(b"x-y").is_none() && parse(b"20-10 r").is_none());
    }

    #[test]
    fn this_process_is_mapped_but_for_its_own_object() {
        let found = records(7);
        let local = 0_u8;
        let holds = |address: usize| {
            found.iter().any(|r| {
                r.kind == Kind::MapExisting as u8
                    && (r.address..r.address + u64::from(r.size)).contains(&(address as u64))
            })
        };
        assert!(holds(&raw const local as usize), "a stack");
        assert!(holds(libc::getpid as *const () as usize), "a library");
        assert!(!holds(records as *const () as usize), "the object that this code is in");
        static LATER: [u8; 9000] = [0; 9000];
        assert!(!holds(LATER.as_ptr() as usize));
    }
}
