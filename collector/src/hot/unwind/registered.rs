//! Unwind information that the program registered itself: `__register_frame`, as JIT compilers call it.
//!
//! A section is copied when it is registered, and only the copy is read: the program may free its own at any
//! time. The copies live in one reservation that is never unmapped; a copy read while it is being replaced gives
//! a wrong rule for code that is being thrown away, and no fault.

use crate::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use core::ops::Range;
use core::ptr::NonNull;

use super::cfi::bytes::Bytes;
use super::cfi::entry::{Parsed, Section, parse};
use super::cfi::index;
use super::lookup::Located;
use super::rule_cache;
use crate::shared::sys::is_readable;
use crate::shared::{code, sys};

const MAX_SECTIONS: usize = 8192;
/// Copies take whole blocks.
const BLOCK: usize = 1024;
const BLOCKS: usize = 64 << 10;
const MAX_SECTION_BYTES: u64 = 16 << 20;
const PAGE: u64 = 4096;

struct Registered {
    /// What the program calls it by; 0: free.
    key: AtomicU64,
    start: AtomicU64,
    end: AtomicU64,
    /// Address and length of the copy, and the distance from the copy to the original.
    copy: AtomicU64,
    bytes: AtomicU64,
    delta: AtomicU64,
    /// First record that belongs to the section; what is before it are common entries it refers to.
    first: AtomicU64,
}

impl Registered {
    const fn free() -> Registered {
        Registered {
            key: AtomicU64::new(0),
            start: AtomicU64::new(0),
            end: AtomicU64::new(0),
            copy: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            delta: AtomicU64::new(0),
            first: AtomicU64::new(0),
        }
    }

    fn range(&self) -> Range<u64> {
        self.start.load(Ordering::Relaxed)..self.end.load(Ordering::Acquire)
    }
}

static SECTIONS: [Registered; MAX_SECTIONS] = [const { Registered::free() }; MAX_SECTIONS];
static USED: AtomicU32 = AtomicU32::new(0);
static CHANGING: AtomicBool = AtomicBool::new(false);
static COPIES: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// One bit for each block in use. Changed under `CHANGING` only.
static TAKEN: [AtomicU64; BLOCKS / 64] = [const { AtomicU64::new(0) }; BLOCKS / 64];

/// Finds the entry that covers `inside` among registered ones.
pub fn locate(inside: u64) -> Option<Located> {
    let used = (USED.load(Ordering::Acquire) as usize).min(MAX_SECTIONS);
    let section = SECTIONS.get(..used)?.iter().find(|section| section.range().contains(&inside))?;
    let copy = section.copy.load(Ordering::Relaxed);
    let end = copy.checked_add(section.bytes.load(Ordering::Relaxed))?;
    let copies = COPIES.load(Ordering::Relaxed) as u64;
    if copy < copies || end > copies + (BLOCK * BLOCKS) as u64 {
        return None;
    }
    // SAFETY: inside the reservation, which is readable for ever.
    let window = unsafe { Bytes::new(copy, end, section.delta.load(Ordering::Relaxed)) };
    let mut frames = window;
    frames.split(section.first.load(Ordering::Relaxed).checked_sub(copy)?)?;
    Some(Located { entry: index::scan(frames, window, inside)?, window })
}

/// Takes in the section at `begin`: entries up to a zero length.
///
/// # Safety
/// `begin` must be what the program gave to `__register_frame`.
pub unsafe fn register(begin: *const u8) {
    let key = begin as u64;
    if key == 0 || !key.is_multiple_of(4) {
        return;
    }
    let mut changed = None;
    with_lock(|| {
        let Some(outline) = Outline::of(key) else { return };
        changed = Some(outline.range.clone());
        // Without room its code is code without unwind information: guessed about, and marked.
        let _ = store(key, &outline);
    });
    if let Some(range) = changed {
        code::announce(&range, &mut rule_cache::forget);
    }
}

/// Drops the section at `begin`.
pub fn deregister(begin: *const u8) {
    let key = begin as u64;
    let mut changed = None;
    with_lock(|| {
        let used = (USED.load(Ordering::Relaxed) as usize).min(MAX_SECTIONS);
        let sections = SECTIONS.get(..used).unwrap_or(&[]);
        if let Some(section) = sections.iter().find(|section| key != 0 && section.key.load(Ordering::Relaxed) == key) {
            changed = Some(section.range());
            section.end.store(0, Ordering::Release);
            give_back(section.copy.load(Ordering::Relaxed), section.bytes.load(Ordering::Relaxed));
            section.key.store(0, Ordering::Relaxed);
        }
    });
    if let Some(range) = changed {
        code::announce(&range, &mut rule_cache::forget);
    }
}

/// In a forked child: opens the lock that another thread of the parent may have held.
pub fn after_fork_in_child() {
    CHANGING.store(false, Ordering::Relaxed);
}

/// Registering is the program's own call, far from any allocation: it may wait a moment for another thread's.
fn with_lock(work: impl FnOnce()) {
    while CHANGING.swap(true, Ordering::Acquire) {
        core::hint::spin_loop();
    }
    work();
    CHANGING.store(false, Ordering::Release);
}

/// What a section covers.
struct Outline {
    /// From the first common entry to the terminator.
    memory: Range<u64>,
    /// First record of the section itself.
    first: u64,
    /// The code it is about.
    range: Range<u64>,
}

impl Outline {
    /// Reads a section in the program's memory, page by page as it turns out to be readable.
    fn of(begin: u64) -> Option<Outline> {
        let mut readable = Growing { start: begin & !(PAGE - 1), end: begin & !(PAGE - 1) };
        let mut at = begin;
        let mut memory = begin..begin;
        let (mut first, mut last) = (u64::MAX, 0);
        loop {
            let length = readable.u32(at)?;
            if length == 0 || length == 0xffff_ffff {
                break;
            }
            let end = at.checked_add(4 + u64::from(length))?;
            if end - memory.start > MAX_SECTION_BYTES {
                return None;
            }
            readable.reach(end)?;
            let id = readable.u32(at + 4)?;
            if id != 0 {
                let common = (at + 4).checked_sub(u64::from(id))?;
                if common < memory.start && memory.end - common <= MAX_SECTION_BYTES {
                    readable.reach_down(common)?;
                    memory.start = common;
                }
                if let Some(Parsed::Entry(entry)) = parse(readable.bytes(), at, Section::EhFrame) {
                    first = first.min(entry.begin);
                    last = last.max(entry.begin.saturating_add(entry.length));
                }
            }
            memory.end = end;
            at = end;
        }
        (first < last).then_some(Outline { memory, first: begin, range: first..last })
    }
}

/// Memory of the program, known to be readable from `start` to `end`.
struct Growing {
    start: u64,
    end: u64,
}

impl Growing {
    fn reach(&mut self, end: u64) -> Option<()> {
        while self.end < end {
            is_readable(self.end).then_some(())?;
            self.end += PAGE;
        }
        Some(())
    }

    fn reach_down(&mut self, start: u64) -> Option<()> {
        while self.start > start {
            is_readable(self.start.checked_sub(PAGE)?).then_some(())?;
            self.start -= PAGE;
        }
        Some(())
    }

    fn u32(&mut self, at: u64) -> Option<u32> {
        self.reach(at.checked_add(4)?)?;
        // SAFETY: the four bytes were found readable; the program registers them and keeps them meanwhile.
        Some(unsafe { (at as *const u32).read_unaligned() })
    }

    fn bytes(&self) -> Bytes {
        // SAFETY: found readable, and kept by the program while it registers them.
        unsafe { Bytes::new(self.start, self.end, 0) }
    }
}

fn store(key: u64, outline: &Outline) -> Option<()> {
    let copies = reservation()?;
    let bytes = (outline.memory.end - outline.memory.start) as usize;
    let blocks = bytes.div_ceil(BLOCK);
    let place = take(blocks)?;
    // SAFETY: `take` gave blocks inside the reservation to this section alone; the source was found readable.
    let copy = unsafe {
        let copy = copies.as_ptr().add(place * BLOCK);
        core::ptr::copy_nonoverlapping(outline.memory.start as *const u8, copy, bytes);
        copy as u64
    };
    let used = (USED.load(Ordering::Relaxed) as usize).min(MAX_SECTIONS);
    let free = SECTIONS.get(..used)?.iter().find(|section| section.key.load(Ordering::Relaxed) == 0);
    let Some(section) = free.or_else(|| SECTIONS.get(used)) else {
        give_back(copy, bytes as u64);
        return None;
    };
    let delta = outline.memory.start.wrapping_sub(copy);
    section.key.store(key, Ordering::Relaxed);
    section.copy.store(copy, Ordering::Relaxed);
    section.bytes.store(bytes as u64, Ordering::Relaxed);
    section.delta.store(delta, Ordering::Relaxed);
    section.first.store(outline.first.wrapping_sub(delta), Ordering::Relaxed);
    section.start.store(outline.range.start, Ordering::Relaxed);
    section.end.store(outline.range.end, Ordering::Release);
    if free.is_none() {
        USED.store(used as u32 + 1, Ordering::Release);
    }
    Some(())
}

fn reservation() -> Option<NonNull<u8>> {
    if let Some(copies) = NonNull::new(COPIES.load(Ordering::Relaxed)) {
        return Some(copies);
    }
    let copies = sys::map_memory(BLOCK * BLOCKS).ok()?;
    COPIES.store(copies.cast(), Ordering::Relaxed);
    NonNull::new(copies.cast())
}

fn is_taken(block: usize) -> bool {
    TAKEN.get(block / 64).is_none_or(|word| word.load(Ordering::Relaxed) >> (block % 64) & 1 != 0)
}

fn mark(blocks: Range<usize>, taken: bool) {
    for block in blocks {
        if let Some(word) = TAKEN.get(block / 64) {
            let mask = 1 << (block % 64);
            let value = word.load(Ordering::Relaxed);
            word.store(if taken { value | mask } else { value & !mask }, Ordering::Relaxed);
        }
    }
}

/// First of `count` free blocks in a row, now taken.
fn take(count: usize) -> Option<usize> {
    let mut start = 0;
    while start + count <= BLOCKS {
        match (start..start + count).rev().find(|block| is_taken(*block)) {
            Some(block) => start = block + 1,
            None => {
                mark(start..start + count, true);
                return Some(start);
            }
        }
    }
    None
}

fn give_back(copy: u64, bytes: u64) {
    let first = (copy.wrapping_sub(COPIES.load(Ordering::Relaxed) as u64) as usize) / BLOCK;
    mark(first..first + (bytes as usize).div_ceil(BLOCK), false);
}

const _: () = assert!(BLOCKS.is_multiple_of(64));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_taken_once() {
        let first = take(3).unwrap();
        let second = take(70).unwrap();
        assert!(second >= first + 3 || second + 70 <= first);
        mark(first..first + 3, false);
        assert_eq!(take(3), Some(first));
        mark(first..first + 3, false);
        mark(second..second + 70, false);
    }
}
