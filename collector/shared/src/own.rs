//! Ranges of the process's address space that are the recorder's own: they are counted in no figure of the program.
//!
//! A table without locks that grows: segment after segment, each as large as all before it together, so that a range's place
//! is found by its index and never moves. Callable in the middle of the program's malloc and in signal handlers. A range that
//! finds no room, because the kernel has no memory for a segment, is counted ([`unlisted_bytes`]).

use crate::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use core::ops::Range;

use super::sys;

/// Entries of the first segment, which is always there.
const FIRST: usize = 512;
/// Segments: more than the address space has pages for.
const SEGMENTS: usize = 32;

struct OwnRange {
    /// First address; 0: free.
    start: AtomicUsize,
    bytes: AtomicUsize,
}

/// A table of ranges.
struct OwnRanges {
    first: [OwnRange; FIRST],
    /// Segment `n` has `FIRST << n` entries, from index `FIRST << n` on.
    more: [AtomicPtr<OwnRange>; SEGMENTS],
    /// No entry from this index on is used.
    used: AtomicUsize,
    /// Entries below `used` that are free again.
    free: AtomicUsize,
    /// One of them may be here.
    hint: AtomicUsize,
    unlisted: AtomicU64,
}

static TABLE: OwnRanges = OwnRanges::new();
static STACKS: AtomicUsize = AtomicUsize::new(0);

impl OwnRanges {
    const fn new() -> Self {
        Self {
            first: [const { OwnRange { start: AtomicUsize::new(0), bytes: AtomicUsize::new(0) } }; FIRST],
            more: [const { AtomicPtr::new(core::ptr::null_mut()) }; SEGMENTS],
            used: AtomicUsize::new(0),
            free: AtomicUsize::new(0),
            hint: AtomicUsize::new(0),
            unlisted: AtomicU64::new(0),
        }
    }

    /// The entry with an index, if its segment is there.
    fn entry(&self, index: usize) -> Option<&OwnRange> {
        if index < FIRST {
            return self.first.get(index);
        }
        let number = (index / FIRST).checked_ilog2().unwrap_or(0);
        let segment = self.more.get(number as usize)?.load(Ordering::Acquire);
        // SAFETY: a segment has as many entries as there are indices of its number, and is never unmapped.
        (!segment.is_null()).then(|| unsafe { &*segment.add(index - (FIRST << number)) })
    }

    fn entries(&self) -> impl Iterator<Item = (usize, &OwnRange)> {
        (0..self.used.load(Ordering::Acquire)).filter_map(|index| Some((index, self.entry(index)?)))
    }

    fn note(&self, start: usize, bytes: usize) {
        if start == 0 || bytes == 0 {
            return;
        }
        if !self.reuse(start, bytes) && !self.append(start, bytes) {
            self.unlisted.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    /// Puts a range into an entry that is free again.
    fn reuse(&self, start: usize, bytes: usize) -> bool {
        if self.free.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let used = self.used.load(Ordering::Acquire);
        let hint = self.hint.load(Ordering::Relaxed).min(used);
        for index in (hint..used).chain(0..hint) {
            let Some(entry) = self.entry(index) else { continue };
            if entry.start.load(Ordering::Relaxed) == 0
                && entry.start.compare_exchange(0, start, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                entry.bytes.store(bytes, Ordering::Release);
                self.free.fetch_sub(1, Ordering::Relaxed);
                return true;
            }
        }
        false
    }

    fn append(&self, start: usize, bytes: usize) -> bool {
        let index = self.used.fetch_add(1, Ordering::AcqRel);
        if index >= FIRST && !self.make_segment((index / FIRST).checked_ilog2().unwrap_or(0)) {
            return false;
        }
        let Some(entry) = self.entry(index) else { return false };
        // Somebody who looks for a free entry may have found it first.
        if entry.start.compare_exchange(0, start, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            self.free.fetch_add(1, Ordering::Relaxed);
            return self.append(start, bytes);
        }
        entry.bytes.store(bytes, Ordering::Release);
        true
    }

    /// Maps a segment unless it is there.
    #[cold]
    fn make_segment(&self, number: u32) -> bool {
        let Some(place) = self.more.get(number as usize) else { return false };
        if !place.load(Ordering::Acquire).is_null() {
            return true;
        }
        let bytes = (size_of::<OwnRange>() * FIRST) << number;
        let Ok(memory) = sys::map_unlisted(bytes) else { return false };
        let segment = memory.cast::<OwnRange>();
        if place.compare_exchange(core::ptr::null_mut(), segment, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: nobody has seen this one.
            unsafe { sys::unmap_unlisted(memory, bytes) };
        } else {
            self.note(memory as usize, bytes);
        }
        true
    }

    /// Takes `range` out of all entries.
    fn forget(&self, range: Range<usize>) {
        for (index, entry) in self.entries() {
            let (at, len) = (entry.start.load(Ordering::Acquire), entry.bytes.load(Ordering::Relaxed));
            let end = at.saturating_add(len);
            if at == 0 || len == 0 || end <= range.start || at >= range.end {
                continue;
            }
            if end > range.end {
                self.note(range.end, end - range.end);
            }
            if at < range.start {
                entry.bytes.store(range.start - at, Ordering::Release);
            } else {
                entry.bytes.store(0, Ordering::Relaxed);
                entry.start.store(0, Ordering::Release);
                self.hint.store(index, Ordering::Relaxed);
                self.free.fetch_add(1, Ordering::Relaxed);
            }
            if at <= range.start && end >= range.end {
                // Ranges do not overlap: no other has a part of this one.
                return;
            }
        }
    }

    fn list(&self) -> Vec<Range<usize>> {
        let range = |(_, entry): (usize, &OwnRange)| {
            let start = entry.start.load(Ordering::Acquire);
            start..start.saturating_add(entry.bytes.load(Ordering::Acquire))
        };
        let mut all: Vec<_> = self.entries().map(range).filter(|range| range.start != 0 && !range.is_empty()).collect();
        all.sort_unstable_by_key(|range| range.start);
        all
    }
}

/// Adds a range to the recorder's own.
pub fn note(start: usize, bytes: usize) {
    TABLE.note(start, bytes);
}

/// Removes a range, or a part of one or of several, from the recorder's own.
pub fn forget(start: usize, bytes: usize) {
    TABLE.forget(start..start.saturating_add(bytes));
}

/// All ranges of the recorder, by address.
pub fn list() -> Vec<Range<usize>> {
    TABLE.list()
}

/// Bytes of all ranges of the recorder, reserved address space among them.
pub fn bytes() -> u64 {
    let bytes = |(_, entry): (usize, &OwnRange)| match entry.start.load(Ordering::Acquire) {
        0 => 0,
        _ => entry.bytes.load(Ordering::Acquire) as u64,
    };
    TABLE.entries().map(bytes).sum::<u64>() + unlisted_bytes()
}

/// Bytes of ranges that found no room in the table, and are taken for the program's.
pub fn unlisted_bytes() -> u64 {
    TABLE.unlisted.load(Ordering::Relaxed)
}

/// Calls `each` for the parts of `range` that are not the recorder's, in order. `own` must be by address, as [`list`]
/// gives it.
pub fn without(range: Range<usize>, own: &[Range<usize>], mut each: impl FnMut(Range<usize>)) {
    let mut at = range.start;
    let first = own.partition_point(|ours| ours.end <= range.start);
    for ours in own.iter().skip(first).take_while(|ours| ours.start < range.end) {
        if ours.end <= at {
            continue;
        }
        if at < ours.start {
            each(at..ours.start);
        }
        at = at.max(ours.end);
    }
    if at < range.end {
        each(at..range.end);
    }
}

/// Notes that an unwinder's memory has changed from `before` to `now` bytes.
pub fn stacks_changed(before: usize, now: usize) {
    if now >= before {
        STACKS.fetch_add(now - before, Ordering::Relaxed);
    } else {
        STACKS.fetch_sub(before - now, Ordering::Relaxed);
    }
}

/// Bytes of all unwinders of the process.
pub fn stack_bytes() -> u64 {
    STACKS.load(Ordering::Relaxed) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_range() {
        let own = [10..20, 30..40];
        let left = |range| {
            let mut pieces = Vec::new();
            without(range, &own, |piece| pieces.push(piece));
            pieces
        };
        assert_eq!(left(0..50), [0..10, 20..30, 40..50]);
        assert_eq!(left(12..18), []);
        assert_eq!(left(15..35), vec![own[0].end..own[1].start]);
        assert_eq!(left(20..30), left(15..35));
    }

    #[test]
    fn ranges_come_shrink_split_and_go() {
        let table = Box::new(OwnRanges::new());
        table.note(0x10000, 0x3000);
        table.note(0x18000, 0x1000);
        table.forget(0x12000..0x13000);
        assert_eq!(table.list(), [0x10000..0x12000, 0x18000..0x19000]);
        table.note(0x12000, 0x6000);
        table.forget(0x14000..0x15000);
        assert_eq!(table.list(), [0x10000..0x12000, 0x12000..0x14000, 0x15000..0x18000, 0x18000..0x19000]);
        table.forget(0x11000..0x18800);
        assert_eq!(table.list(), [0x10000..0x11000, 0x18800..0x19000]);
        table.forget(0..usize::MAX);
        assert_eq!((table.list(), table.unlisted.load(Ordering::Relaxed)), (Vec::new(), 0));
    }

    /// Ranges of the table, but for the segments that it has mapped itself.
    fn listed(table: &OwnRanges, base: usize) -> Vec<Range<usize>> {
        table.list().into_iter().filter(|range| (base..base << 1).contains(&range.start)).collect()
    }

    #[test]
    fn there_is_room_for_tens_of_thousands() {
        const COUNT: usize = 40_000;
        const BASE: usize = 1 << 44;
        let table = Box::new(OwnRanges::new());
        let range = |i: usize| BASE + i * 0x4000..BASE + i * 0x4000 + 0x2000;
        (0..COUNT).for_each(|i| table.note(range(i).start, 0x2000));
        assert!(listed(&table, BASE).into_iter().eq((0..COUNT).map(range)));
        (0..COUNT).step_by(2).for_each(|i| table.forget(range(i)));
        assert!(listed(&table, BASE).into_iter().eq((1..COUNT).step_by(2).map(range)));
        let used = table.used.load(Ordering::Relaxed);
        (0..COUNT).step_by(2).for_each(|i| table.note(range(i).start, 0x2000));
        assert!(listed(&table, BASE).into_iter().eq((0..COUNT).map(range)));
        assert_eq!(table.used.load(Ordering::Relaxed), used, "places are used again");
    }

    #[test]
    fn threads_note_and_forget_at_once() {
        const THREADS: usize = 4;
        const EACH: usize = 3000;
        const BASE: usize = 1 << 44;
        let table = Box::new(OwnRanges::new());
        let start = |thread: usize, i: usize| BASE + (i * THREADS + thread) * 0x2000;
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let table = &table;
                scope.spawn(move || {
                    for i in 0..EACH {
                        table.note(start(thread, i), 0x1000);
                        if i % 3 == 0 {
                            table.forget(start(thread, i)..start(thread, i) + 0x1000);
                        }
                    }
                });
            }
        });
        let kept = (0..EACH).filter(|i| i % 3 != 0);
        let expected = kept.flat_map(|i| (0..THREADS).map(move |thread| start(thread, i)..start(thread, i) + 0x1000));
        assert!(listed(&table, BASE).into_iter().eq(expected));
    }
}
