//! Unwind information that is in objects' files only: `.debug_frame`, as `-fno-asynchronous-unwind-tables -g` leaves it,
//! and `.eh_frame` where no `.eh_frame_hdr` leads to it.
//!
//! ```text
//! FREE ── a PC that nothing else covers ──▶ WANTED ── our own thread reads the file ──▶ READY or NOTHING
//! ```
//!
//! No file is opened here: the unwinding thread leaves a request and continues with heuristics, and the stack is marked
//! as heuristic. Once the information is loaded, everything that was cached for the object is dropped, and later stacks
//! are exact.
//!
//! The sections are copied, not mapped: a file that shrinks under a mapping would kill the program. Copies stay until
//! the process ends, at most [`MAX_OBJECTS`] of them.

use core::ops::Range;
use tracehound_shared::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::cfi::bytes::Bytes;
use super::cfi::entry::{Parsed, Section, parse, record};
use super::lookup::LocatedFde;
use super::memory::Array;
use super::rule_cache;
use tracehound_shared::code::{self, Object};
use tracehound_shared::session;

const MAX_OBJECTS: usize = 256;

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const WANTED: u32 = 2;
const LOADING: u32 = 3;
const READY: u32 = 4;
const NOTHING: u32 = 5;

/// What one object's file had. The tables are written in the state LOADING, by the thread that loads.
struct ObjectSections {
    state: AtomicU32,
    /// [`Module::serial`](tracehound_shared::code::LoadedModule::serial).
    serial: AtomicU64,
    eh_frame: SectionTable,
    debug_frame: SectionTable,
}

/// The copy of a section and the index of its entries.
struct SectionTable {
    section: AtomicU64,
    /// 0: no such section.
    section_bytes: AtomicU64,
    /// Distance from the copy to where pc-relative addresses count from.
    delta: AtomicU64,
    /// Added to the addresses in `.debug_frame`.
    bias: AtomicU64,
    index: AtomicU64,
    index_len: AtomicU64,
}

/// One entry of a section, for bisecting.
#[repr(C)]
#[derive(Clone, Copy)]
struct IndexRow {
    begin: u64,
    length: u32,
    /// Of the entry in the section.
    offset: u32,
}

static SLOTS: [ObjectSections; MAX_OBJECTS] = [const { ObjectSections::free() }; MAX_OBJECTS];
/// Objects for which no slot was free.
static REFUSED: AtomicU32 = AtomicU32::new(0);
/// There are requests.
static WAITING: AtomicU32 = AtomicU32::new(0);

/// The entry of `object`'s file that covers `inside`, if the file has been loaded; else requests the loading.
#[cold]
pub fn locate(object: &Object, inside: u64) -> Option<LocatedFde> {
    let serial = object.serial();
    for slot in &SLOTS {
        match slot.state.load(Ordering::Acquire) {
            FREE => break,
            state if slot.serial.load(Ordering::Relaxed) == serial => {
                return if state == READY { slot.locate(inside) } else { None };
            }
            _ => {}
        }
    }
    want(serial);
    None
}

/// Requests the unwind information from the file of the object with this serial.
#[cold]
pub fn want(serial: u64) {
    if serial == 0 {
        return;
    }
    for slot in &SLOTS {
        let state = slot.state.load(Ordering::Acquire);
        if state != FREE {
            if state != CLAIMED && slot.serial.load(Ordering::Relaxed) == serial {
                return;
            }
            continue;
        }
        if slot.state.compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            slot.serial.store(serial, Ordering::Relaxed);
            slot.state.store(WANTED, Ordering::Release);
            WAITING.store(1, Ordering::Release);
            if let Some(session) = session::current() {
                session.pool.ring();
            }
            return;
        }
    }
    REFUSED.fetch_add(1, Ordering::Relaxed);
}

/// Whether a request waits for [`next_wanted`].
pub fn is_waiting() -> bool {
    WAITING.load(Ordering::Relaxed) != 0
}

/// Requests that found no free slot.
pub fn refused() -> u32 {
    REFUSED.load(Ordering::Relaxed)
}

/// A request that has been taken, to be [fulfilled](Request::fulfil).
pub struct SectionRequest(&'static ObjectSections);

/// The next request. One thread at a time.
pub fn next_wanted() -> Option<SectionRequest> {
    WAITING.store(0, Ordering::SeqCst);
    let slot = SLOTS.iter().find(|slot| slot.state.load(Ordering::Acquire) == WANTED)?;
    WAITING.store(1, Ordering::SeqCst);
    slot.state.store(LOADING, Ordering::Relaxed);
    Some(SectionRequest(slot))
}

/// The copy of a section.
pub struct SectionCopy {
    memory: Array<u8>,
    len: usize,
    /// Where the section lies in memory, or would.
    address: u64,
}

impl SectionCopy {
    /// Room for a section of `len` bytes, of which at least one.
    pub fn new(len: usize, address: u64) -> Option<SectionCopy> {
        (len > 0).then_some(SectionCopy { memory: Array::new(len)?, len, address })
    }

    /// Its bytes, to be filled.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the array has room for this many bytes, zeroed at first, and only its owner has it.
        unsafe { core::slice::from_raw_parts_mut(self.memory.as_ptr(), self.len) }
    }

    /// Gives the memory back.
    pub fn discard(mut self) {
        // SAFETY: only its owner has it, who gives it up here.
        unsafe { self.memory.release() };
    }
}

impl SectionRequest {
    /// [`Module::serial`](tracehound_shared::code::LoadedModule::serial) of the object.
    pub fn serial(&self) -> u64 {
        self.0.serial.load(Ordering::Relaxed)
    }

    /// Stores the sections that the file has for the code in `range`, loaded `bias` above the file's addresses. Later
    /// backtraces use them.
    pub fn fulfil(
        self,
        range: &Range<u64>,
        bias: u64,
        eh_frame: Option<SectionCopy>,
        debug_frame: Option<SectionCopy>,
    ) {
        let slot = self.0;
        let put = |table: &SectionTable, copy: Option<SectionCopy>, is_debug: bool| {
            copy.is_some_and(|copy| table.fill(copy, bias, is_debug).is_some())
        };
        let found = put(&slot.eh_frame, eh_frame, false) | put(&slot.debug_frame, debug_frame, true);
        slot.state.store(if found { READY } else { NOTHING }, Ordering::Release);
        if found {
            // Threads that came while the file was loading have cached that there is no information.
            code::announce(range, &mut rule_cache::forget);
        }
    }
}

/// In a forked child: requests again what the parent's thread was loading.
pub fn after_fork_in_child() {
    for slot in &SLOTS {
        if slot.state.load(Ordering::Relaxed) == LOADING {
            slot.state.store(WANTED, Ordering::Relaxed);
            WAITING.store(1, Ordering::Relaxed);
        }
    }
}

impl ObjectSections {
    const fn free() -> ObjectSections {
        ObjectSections {
            state: AtomicU32::new(FREE),
            serial: AtomicU64::new(0),
            eh_frame: SectionTable::empty(),
            debug_frame: SectionTable::empty(),
        }
    }

    fn locate(&self, inside: u64) -> Option<LocatedFde> {
        self.eh_frame.locate(inside, false).or_else(|| self.debug_frame.locate(inside, true))
    }
}

impl SectionTable {
    const fn empty() -> SectionTable {
        SectionTable {
            section: AtomicU64::new(0),
            section_bytes: AtomicU64::new(0),
            delta: AtomicU64::new(0),
            bias: AtomicU64::new(0),
            index: AtomicU64::new(0),
            index_len: AtomicU64::new(0),
        }
    }

    fn kind(&self, is_debug: bool) -> Section {
        if !is_debug {
            return Section::EhFrame;
        }
        let load_bias = self.bias.load(Ordering::Relaxed);
        Section::DebugFrame { start: self.section.load(Ordering::Relaxed), load_bias }
    }

    fn window(&self) -> Bytes {
        let start = self.section.load(Ordering::Relaxed);
        let end = start + self.section_bytes.load(Ordering::Relaxed);
        // SAFETY: a table's section is readable and is never freed once it is there; an empty one has no bytes.
        unsafe { Bytes::new(start, end, self.delta.load(Ordering::Relaxed)) }
    }

    fn locate(&self, inside: u64, is_debug: bool) -> Option<LocatedFde> {
        if self.section_bytes.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let index = self.index.load(Ordering::Relaxed) as *const IndexRow;
        // SAFETY: a filled table's index holds this many rows and is never freed.
        let rows = unsafe { core::slice::from_raw_parts(index, self.index_len.load(Ordering::Relaxed) as usize) };
        let after = rows.partition_point(|row| row.begin <= inside);
        let row = rows.get(after.checked_sub(1)?)?;
        if inside - row.begin >= u64::from(row.length) {
            return None;
        }
        let window = self.window();
        match parse(window, window.position() + u64::from(row.offset), self.kind(is_debug))? {
            Parsed::Entry(entry) => Some(LocatedFde { entry, window }),
            _ => None,
        }
    }

    fn fill(&self, copy: SectionCopy, bias: u64, is_debug: bool) -> Option<()> {
        let start = copy.memory.as_ptr() as u64;
        self.section.store(start, Ordering::Relaxed);
        self.bias.store(bias, Ordering::Relaxed);
        self.delta.store(if is_debug { 0 } else { copy.address.wrapping_sub(start) }, Ordering::Relaxed);
        self.section_bytes.store(copy.len as u64, Ordering::Relaxed);
        let Some((index, len)) = index(self.window(), self.kind(is_debug)) else {
            self.section_bytes.store(0, Ordering::Relaxed);
            copy.discard();
            return None;
        };
        self.index.store(index.as_ptr() as u64, Ordering::Relaxed);
        self.index_len.store(len as u64, Ordering::Relaxed);
        Some(())
    }
}

/// The section's entries in the order of their addresses.
fn index(window: Bytes, section: Section) -> Option<(Array<IndexRow>, usize)> {
    let start = window.position();
    let each = |found: &mut dyn FnMut(IndexRow)| {
        let mut cursor = window;
        while !cursor.is_empty() {
            let at = cursor.position();
            if record(&mut cursor).is_none() {
                break;
            }
            if let Some(Parsed::Entry(entry)) = parse(window, at, section)
                && let Ok(length) = u32::try_from(entry.length)
                && let Ok(offset) = u32::try_from(at - start)
            {
                found(IndexRow { begin: entry.begin, length, offset });
            }
        }
    };
    let mut len = 0;
    each(&mut |_| len += 1);
    let rows = Array::<IndexRow>::new(len)?;
    let mut at = 0;
    each(&mut |row| {
        if at < len {
            // SAFETY: `at` is below the array's length.
            unsafe { rows.as_ptr().add(at).write(row) };
            at += 1;
        }
    });
    // SAFETY: `at` rows are initialised, and no other reference to them exists.
    unsafe { core::slice::from_raw_parts_mut(rows.as_ptr(), at) }.sort_unstable_by_key(|row| row.begin);
    Some((rows, at))
}
