//! Mappings from before recording began: the process's list of mappings without those of the recorder.

use core::ops::Range;

use tracehound_format::record::{Kind, Record};

use tracehound_shared::maps_text::{MapsLine, library, lines};
use tracehound_shared::own;
use tracehound_shared::sys;

/// Records of everything that is mapped now and not the recorder's, stamped with `tick`. Adjacent mappings are one range.
pub fn records(tick: u64) -> Vec<Record> {
    let Ok(text) = sys::read_file(libc::AT_FDCWD, c"/proc/thread-self/maps") else { return Vec::new() };
    let lines: Vec<MapsLine<'_>> = lines(&text).collect();
    let mut own = own::list();
    own.extend(library(lines.iter().cloned(), records as *const () as usize));
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
    for line in lines.into_iter().filter(|line| line.path != b"[vsyscall]") {
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

#[cfg(test)]
mod tests {
    use super::*;

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
