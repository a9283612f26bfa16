//! Unwind information that the program registered itself: `__register_frame` and related functions, as JIT compilers
//! call them.
//!
//! A section is copied when it is registered, and only the copy is read: the program may free its own at any time. The
//! copies live in one reservation that is never unmapped.
//!
//! Registering takes a lock, looking up does not: every place in the table has a version, which is odd while the place is
//! written. What a reader has found counts only if the version is still the same afterwards.

use core::ops::Range;
use core::ptr::NonNull;
use tracehound_shared::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use tracehound_shared::sync::order;

use super::cfi::bytes::Bytes;
use super::cfi::entry::{Parsed, Section, parse};
use super::cfi::index;
use super::lookup::LocatedFde;
use super::rule_cache;
use tracehound_shared::clock;
use tracehound_shared::code::{self, Regions};
use tracehound_shared::gate::Internal;
use tracehound_shared::session;
use tracehound_shared::sys::{self, SignalsBlocked, is_readable};

/// Few in a model, of these and of blocks.
const MAX_SECTIONS: usize = if cfg!(loom) { 4 } else { 32 << 10 };
/// Copies take whole blocks.
const BLOCK: usize = 1024;
const BLOCKS: usize = if cfg!(loom) { 64 } else { 64 << 10 };
const MAX_SECTION_BYTES: u64 = 16 << 20;
const PAGE: u64 = 4096;

/// What is registered in one call.
#[derive(Clone, Copy, Debug)]
pub struct Registration {
    /// What the program gave: a section, or a table of pointers to sections that ends with null.
    pub begin: *const u8,
    /// `begin` is such a table.
    pub is_table: bool,
    /// What text-relative addresses count from.
    pub text_base: u64,
    /// What data-relative addresses count from.
    pub data_base: u64,
}

/// Slot for a section. All fields but the version are valid only while the version is even and does not change.
struct SectionSlot {
    version: AtomicU32,
    /// Address by which the program registered it; 0: free.
    key: AtomicU64,
    /// Address and length of the copy, and the distance from the copy to the original.
    copy: AtomicU64,
    bytes: AtomicU64,
    delta: AtomicU64,
    /// First record that belongs to the section; what is before it are common entries it refers to.
    first: AtomicU64,
    text_base: AtomicU64,
    data_base: AtomicU64,
}

/// Code range of a slot: apart from the other fields, because every look-up reads all ranges.
struct Covered {
    start: AtomicU64,
    end: AtomicU64,
}

impl SectionSlot {
    const fn free() -> SectionSlot {
        SectionSlot {
            version: AtomicU32::new(0),
            key: AtomicU64::new(0),
            copy: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            delta: AtomicU64::new(0),
            first: AtomicU64::new(0),
            text_base: AtomicU64::new(0),
            data_base: AtomicU64::new(0),
        }
    }

    /// Changes the slot; the lock must be held.
    fn write(&self, change: impl FnOnce()) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // A reader that sees one of the stores below sees the odd version, too.
        fence(order!("registered-fence": Release, not Acquire));
        change();
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    fn section(&self) -> Section {
        Section::Registered {
            text_base: self.text_base.load(Ordering::Relaxed),
            data_base: self.data_base.load(Ordering::Relaxed),
        }
    }
}

static PLACES: [SectionSlot; MAX_SECTIONS] = [const { SectionSlot::free() }; MAX_SECTIONS];
static COVERED: [Covered; MAX_SECTIONS] =
    [const { Covered { start: AtomicU64::new(0), end: AtomicU64::new(0) } }; MAX_SECTIONS];
static USED: AtomicU32 = AtomicU32::new(0);
/// Regions of all code that was ever registered.
static REGIONS: Regions = Regions::new();
static CHANGING: AtomicBool = AtomicBool::new(false);
static COPIES: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// Index below which no slot is free; and index below which no block is free. Changed under `CHANGING` only.
static FREE_PLACE: AtomicU32 = AtomicU32::new(0);
static FREE_BLOCK: AtomicU32 = AtomicU32::new(0);
/// One bit for each block in use. Changed under `CHANGING` only.
static TAKEN: [AtomicU64; BLOCKS / 64] = [const { AtomicU64::new(0) }; BLOCKS / 64];

fn used() -> usize {
    (USED.load(Ordering::Acquire) as usize).min(MAX_SECTIONS)
}

/// Whether `inside` may be code with registered information: cheap, with few false positives.
pub fn may_cover(inside: u64) -> bool {
    USED.load(Ordering::Relaxed) != 0 && REGIONS.may_hold(&(inside..inside.saturating_add(1)))
}

/// Finds the entry that covers `inside` among registered ones.
pub fn locate(inside: u64) -> Option<LocatedFde> {
    if !may_cover(inside) {
        return None;
    }
    let covered = COVERED.get(..used())?.iter().zip(&PLACES);
    covered.into_iter().find_map(|(covered, place)| {
        // Most slots are for other code and need no further check; the version shows torn ranges.
        let range = covered.start.load(Ordering::Relaxed)..covered.end.load(Ordering::Relaxed);
        if range.contains(&inside) { place.locate(inside) } else { None }
    })
}

impl SectionSlot {
    /// The entry that covers `inside`; `None`, too, while the slot changes: it is then not for the code that runs now.
    fn locate(&self, inside: u64) -> Option<LocatedFde> {
        let version = self.version.load(Ordering::Acquire);
        if version & 1 != 0 {
            return None;
        }
        let copy = self.copy.load(Ordering::Relaxed);
        let end = copy.checked_add(self.bytes.load(Ordering::Relaxed))?;
        let first = self.first.load(Ordering::Relaxed);
        let (delta, section) = (self.delta.load(Ordering::Relaxed), self.section());
        fence(Ordering::Acquire);
        let copies = COPIES.load(Ordering::Relaxed) as u64;
        if self.version.load(Ordering::Relaxed) != version || copy < copies || end > copies + (BLOCK * BLOCKS) as u64 {
            return None;
        }
        // SAFETY: inside the reservation, which is readable for ever.
        let window = unsafe { Bytes::new(copy, end, delta) };
        let mut frames = window;
        frames.split(first.checked_sub(copy)?)?;
        let entry = index::scan(frames, window, inside, section)?;
        fence(Ordering::Acquire);
        // The copy may have been replaced while it was read.
        (self.version.load(Ordering::Relaxed) == version).then_some(LocatedFde { entry, window })
    }
}

/// Copies what the program registers: call it after the real function.
///
/// # Safety
/// It must be what the program gave to `__register_frame` or one of its kin.
pub unsafe fn register(registration: Registration) {
    let begin = registration.begin as u64;
    if begin == 0 {
        return;
    }
    let mut changed = Range { start: u64::MAX, end: 0 };
    let mut refused = 0_u32;
    with_lock(|| {
        let mut section = |at: u64| {
            let Some(outline) = SectionCover::of(at, registration) else { return };
            changed = changed.start.min(outline.range.start)..changed.end.max(outline.range.end);
            // Without a free slot, stacks through this code are heuristic, and marked so.
            refused += u32::from(store(begin, &outline, registration).is_none());
        };
        if registration.is_table {
            each_pointer(begin, &mut section);
        } else {
            section(begin);
        }
    });
    if changed.start < changed.end {
        code::announce(&changed, &mut rule_cache::forget);
    }
    if refused > 0 {
        say_that_it_is_full();
    }
}

/// The pointers of a table that ends with null, as far as it can be read.
fn each_pointer(begin: u64, each: &mut dyn FnMut(u64)) {
    let mut readable = Growing::at(begin);
    let mut at = begin;
    for _ in 0..MAX_SECTIONS {
        match readable.u64(at) {
            None | Some(0) => return,
            Some(section) => each(section),
        }
        at += 8;
    }
}

#[cold]
fn say_that_it_is_full() {
    static SAID: AtomicBool = AtomicBool::new(false);
    if SAID.swap(true, Ordering::Relaxed) {
        return;
    }
    if let Some(session) = session::current() {
        let _internal = Internal::enter();
        let text =
            "more unwind information was registered than there is room for: stacks through that code are heuristic";
        session.remark(clock::now(), "registered-frames", text.into());
    }
}

/// Removes what was registered as `begin`: call it before the real function.
pub fn deregister(begin: *const u8) {
    let key = begin as u64;
    if key == 0 || used() == 0 {
        return;
    }
    let mut changed = Range { start: u64::MAX, end: 0 };
    with_lock(|| {
        for (index, (covered, place)) in COVERED.iter().zip(&PLACES).take(used()).enumerate() {
            if place.key.load(Ordering::Relaxed) != key {
                continue;
            }
            let (start, end) = (covered.start.load(Ordering::Relaxed), covered.end.load(Ordering::Relaxed));
            changed = changed.start.min(start)..changed.end.max(end);
            place.write(|| {
                covered.end.store(0, Ordering::Relaxed);
                place.key.store(0, Ordering::Relaxed);
            });
            give_back(place.copy.load(Ordering::Relaxed), place.bytes.load(Ordering::Relaxed));
            FREE_PLACE.fetch_min(index as u32, Ordering::Relaxed);
        }
    });
    if changed.start < changed.end {
        code::announce(&changed, &mut rule_cache::forget);
    }
}

/// In a forked child: opens the lock that another thread of the parent may have held, and drops its unfinished change.
pub fn after_fork_in_child() {
    if !CHANGING.swap(false, Ordering::Relaxed) {
        return;
    }
    for (covered, place) in COVERED.iter().zip(&PLACES).take(used() + 1) {
        let version = place.version.load(Ordering::Relaxed);
        if version & 1 != 0 {
            covered.end.store(0, Ordering::Relaxed);
            place.key.store(0, Ordering::Relaxed);
            place.version.store(version.wrapping_add(1), Ordering::Relaxed);
        }
    }
}

/// Registering is a call of the program outside of any allocation: it may wait a moment for another thread.
fn with_lock(work: impl FnOnce()) {
    // A signal handler on this thread that registers something would wait for ever.
    let _signals = SignalsBlocked::new();
    const SPINS: u32 = 100;
    let mut spins = 0;
    while CHANGING.swap(true, Ordering::Acquire) {
        // The thread that holds it may have lost its processor.
        if spins == SPINS {
            sys::sleep(20_000);
        } else {
            spins += 1;
            core::hint::spin_loop();
        }
    }
    work();
    CHANGING.store(false, Ordering::Release);
}

/// Extent of a section.
struct SectionCover {
    /// From the first common entry to the terminator.
    memory: Range<u64>,
    /// First record of the section itself.
    first: u64,
    /// The code that it covers.
    range: Range<u64>,
}

impl SectionCover {
    /// Reads a section in the program's memory, page by page after a check that the page is readable, up to its
    /// terminator or to data that is no valid record.
    fn of(begin: u64, registration: Registration) -> Option<SectionCover> {
        let mut readable = Growing::at(begin);
        let mut memory = begin..begin;
        let (mut first, mut last) = (u64::MAX, 0);
        let section = Section::Registered { text_base: registration.text_base, data_base: registration.data_base };
        while let Some(end) = Self::record_end(&mut readable, memory.end, memory.start) {
            let at = memory.end;
            let id = readable.u32(at + 4)?;
            if id != 0 {
                let Some(common) = (at + 4).checked_sub(u64::from(id)) else { break };
                if common < memory.start {
                    if memory.end - common > MAX_SECTION_BYTES || readable.reach_down(common).is_none() {
                        break;
                    }
                    memory.start = common;
                }
                let Some(Parsed::Entry(entry)) = parse(readable.bytes(), at, section) else { break };
                first = first.min(entry.begin);
                last = last.max(entry.begin.saturating_add(entry.length));
            }
            memory.end = end;
        }
        (first < last).then_some(SectionCover { memory, first: begin, range: first..last })
    }

    /// Where the record at `at` ends, all of it readable; `None` at the terminator and where there is no record.
    fn record_end(readable: &mut Growing, at: u64, start: u64) -> Option<u64> {
        let length = readable.u32(at)?;
        if length == 0 || length == 0xffff_ffff {
            return None;
        }
        let end = at.checked_add(4 + u64::from(length))?;
        if end - start > MAX_SECTION_BYTES {
            return None;
        }
        readable.reach(end)?;
        Some(end)
    }
}

/// Memory of the program, known to be readable from `start` to `end`.
struct Growing {
    start: u64,
    end: u64,
}

impl Growing {
    fn at(begin: u64) -> Growing {
        Growing { start: begin & !(PAGE - 1), end: begin & !(PAGE - 1) }
    }

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

    fn u64(&mut self, at: u64) -> Option<u64> {
        self.reach(at.checked_add(8)?)?;
        // SAFETY: the eight bytes were found readable; the program registers them and keeps them meanwhile.
        Some(unsafe { (at as *const u64).read_unaligned() })
    }

    fn bytes(&self) -> Bytes {
        // SAFETY: found readable, and kept by the program while it registers them.
        unsafe { Bytes::new(self.start, self.end, 0) }
    }
}

fn store(key: u64, outline: &SectionCover, registration: Registration) -> Option<()> {
    let copies = reservation()?;
    let bytes = (outline.memory.end - outline.memory.start) as usize;
    let blocks = bytes.div_ceil(BLOCK);
    let used = used();
    let first = FREE_PLACE.load(Ordering::Relaxed) as usize;
    let is_free = |place: &usize| PLACES.get(*place).is_some_and(|place| place.key.load(Ordering::Relaxed) == 0);
    let free = (first..used).find(is_free).unwrap_or(used);
    let (place, covered) = (PLACES.get(free)?, COVERED.get(free)?);
    let block = take(blocks)?;
    // SAFETY: `take` gave blocks inside the reservation to this section alone; the source was found readable.
    let copy = unsafe {
        let copy = copies.as_ptr().add(block * BLOCK);
        core::ptr::copy_nonoverlapping(outline.memory.start as *const u8, copy, bytes);
        copy as u64
    };
    let delta = outline.memory.start.wrapping_sub(copy);
    place.write(|| {
        place.key.store(key, Ordering::Relaxed);
        place.copy.store(copy, Ordering::Relaxed);
        place.bytes.store(bytes as u64, Ordering::Relaxed);
        place.delta.store(delta, Ordering::Relaxed);
        place.first.store(outline.first.wrapping_sub(delta), Ordering::Relaxed);
        place.text_base.store(registration.text_base, Ordering::Relaxed);
        place.data_base.store(registration.data_base, Ordering::Relaxed);
        covered.start.store(outline.range.start, Ordering::Relaxed);
        covered.end.store(outline.range.end, Ordering::Relaxed);
    });
    FREE_PLACE.store(free as u32 + 1, Ordering::Relaxed);
    REGIONS.add_range(&outline.range);
    if free == used {
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
    let first = FREE_BLOCK.load(Ordering::Relaxed) as usize;
    let mut start = first;
    while start + count <= BLOCKS {
        match (start..start + count).rev().find(|block| is_taken(*block)) {
            Some(block) => start = block + 1,
            None => {
                mark(start..start + count, true);
                if start == first {
                    FREE_BLOCK.store((start + count) as u32, Ordering::Relaxed);
                }
                return Some(start);
            }
        }
    }
    None
}

fn give_back(copy: u64, bytes: u64) {
    let first = (copy.wrapping_sub(COPIES.load(Ordering::Relaxed) as u64) as usize) / BLOCK;
    mark(first..first + (bytes as usize).div_ceil(BLOCK), false);
    FREE_BLOCK.fetch_min(first as u32, Ordering::Relaxed);
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
        give_back(first as u64 * BLOCK as u64 + COPIES.load(Ordering::Relaxed) as u64, 3 * BLOCK as u64);
        assert_eq!(take(3), Some(first));
        mark(first..first + 3, false);
        mark(second..second + 70, false);
    }
}
