//! Which stretches of the process's address space are the recorder's own: they are in nobody's numbers.
//!
//! A table of fixed size without locks. Stretches that find no room in it are counted, and then taken for the program's.

use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

const ROOM: usize = 2048;

struct Entry {
    /// First address; 0: free.
    start: AtomicUsize,
    bytes: AtomicUsize,
}

static TABLE: [Entry; ROOM] = [const { Entry { start: AtomicUsize::new(0), bytes: AtomicUsize::new(0) } }; ROOM];
/// No entry behind this one is used.
static USED: AtomicUsize = AtomicUsize::new(0);
static STACKS: AtomicUsize = AtomicUsize::new(0);

/// A stretch is ours from now on.
pub fn note(start: usize, bytes: usize) {
    for (index, entry) in TABLE.iter().enumerate() {
        if entry.start.load(Ordering::Relaxed) == 0
            && entry.start.compare_exchange(0, start, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            entry.bytes.store(bytes, Ordering::Release);
            USED.fetch_max(index + 1, Ordering::AcqRel);
            return;
        }
    }
}

/// A stretch, or the end of one, is not ours any more.
pub fn forget(start: usize, bytes: usize) {
    let used = USED.load(Ordering::Acquire);
    for entry in TABLE.iter().take(used) {
        let (at, len) = (entry.start.load(Ordering::Acquire), entry.bytes.load(Ordering::Relaxed));
        if at == start && len <= bytes {
            entry.bytes.store(0, Ordering::Relaxed);
            entry.start.store(0, Ordering::Release);
            return;
        }
        if at != 0 && at < start && start < at + len && at + len <= start + bytes {
            entry.bytes.store(start - at, Ordering::Release);
            return;
        }
    }
}

/// What of `range` is not ours, in order. Sorts `own`, which [`list`] gave.
pub fn without(range: Range<usize>, own: &[Range<usize>], mut each: impl FnMut(Range<usize>)) {
    let mut at = range.start;
    for ours in own {
        if ours.end <= at || ours.start >= range.end {
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

/// All stretches that are ours, by address.
pub fn list() -> Vec<Range<usize>> {
    let used = USED.load(Ordering::Acquire);
    let ranges = TABLE.iter().take(used).map(|entry| {
        let start = entry.start.load(Ordering::Acquire);
        start..start + entry.bytes.load(Ordering::Acquire)
    });
    let mut all: Vec<Range<usize>> = ranges.filter(|range| range.start != 0 && !range.is_empty()).collect();
    all.sort_unstable_by_key(|range| range.start);
    all
}

/// Unwinders have taken so many bytes more, or given so many back.
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
    fn stretches_come_shrink_and_go() {
        // Addresses that no other test uses.
        let base = 0x10_0000_0000;
        let mine = || list().into_iter().filter(|range| range.start >> 32 == base >> 32).collect::<Vec<_>>();
        note(base, 0x3000);
        note(base + 0x8000, 0x1000);
        forget(base + 0x2000, 0x1000);
        assert_eq!(mine(), [base..base + 0x2000, base + 0x8000..base + 0x9000]);
        forget(base, 0x2000);
        forget(base + 0x8000, 0x1000);
        assert_eq!(mine(), []);
    }
}
