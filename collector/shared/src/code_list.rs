//! Append-only lists of the functions that backtraces go through and that no file names: their names, files and line
//! tables, for the writer. There is one for each language.
//!
//! The holder of the language's lock appends; anybody reads what is published.

use crate::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::sys;

const SEGMENT_BYTES: usize = 256 << 10;

/// Part of a list: entries follow it in its mapping.
#[repr(C)]
struct ListSegment {
    next: AtomicPtr<ListSegment>,
    /// Bytes of published entries.
    len: AtomicU32,
    room: u32,
}

/// A list. Its entries never move, change or go away.
pub struct CodeList {
    first: AtomicPtr<ListSegment>,
    /// The segment that is being filled; the lock's holder alone looks here.
    last: AtomicPtr<ListSegment>,
    /// Where the next function's addresses begin.
    next_base: AtomicU64,
}

/// An entry that is being written. It is a multiple of eight bytes long, and its first four bytes are its length.
pub(crate) struct CodeEntry {
    segment: &'static ListSegment,
    start: *mut u8,
    at: *mut u8,
    left: usize,
    bytes: usize,
}

impl CodeList {
    pub(crate) const fn new() -> CodeList {
        CodeList {
            first: AtomicPtr::new(core::ptr::null_mut()),
            last: AtomicPtr::new(core::ptr::null_mut()),
            next_base: AtomicU64::new(0),
        }
    }

    /// So many addresses that no other function of the list gets.
    pub(crate) fn take_addresses(&self, count: u64) -> u64 {
        self.next_base.fetch_add(count, Ordering::Relaxed)
    }

    /// Room for an entry, whose length is filled in.
    pub(crate) fn entry_of(&self, bytes: usize) -> Option<CodeEntry> {
        // SAFETY: segments are never unmapped.
        let last = unsafe { self.last.load(Ordering::Relaxed).as_ref() };
        let fits =
            |segment: &&ListSegment| segment.len.load(Ordering::Relaxed) as usize + bytes <= segment.room as usize;
        let segment = match last.filter(fits) {
            Some(segment) => segment,
            None => self.new_segment(last, bytes)?,
        };
        let start = core::ptr::from_ref(segment).cast::<u8>().cast_mut();
        let offset = size_of::<ListSegment>() + segment.len.load(Ordering::Relaxed) as usize;
        let start = start.wrapping_add(offset);
        let mut entry = CodeEntry { segment, start, at: start, left: bytes, bytes };
        entry.put(&(bytes as u32).to_le_bytes());
        Some(entry)
    }

    fn new_segment(&self, last: Option<&'static ListSegment>, bytes: usize) -> Option<&'static ListSegment> {
        let room = (SEGMENT_BYTES - size_of::<ListSegment>()).max(bytes);
        let memory = sys::map_memory(size_of::<ListSegment>() + room).ok()?.cast::<ListSegment>();
        // SAFETY: a fresh mapping of this size, for ever.
        let segment = unsafe {
            memory.write(ListSegment {
                next: AtomicPtr::new(core::ptr::null_mut()),
                len: AtomicU32::new(0),
                room: room as u32,
            });
            &*memory
        };
        self.last.store(memory, Ordering::Relaxed);
        last.map_or(&self.first, |last| &last.next).store(memory, Ordering::Release);
        Some(segment)
    }

    /// Hands all entries behind `position` to `each`.
    pub(crate) fn each(&self, position: &mut ListPosition, mut each: impl FnMut(&'static [u8])) {
        loop {
            if position.segment.is_null() {
                position.segment = self.first.load(Ordering::Acquire);
            }
            // SAFETY: null, or a segment, which stays.
            let Some(segment) = (unsafe { position.segment.as_ref() }) else { return };
            // Its successor first: behind that, nothing is added to it any more.
            let next = segment.next.load(Ordering::Acquire);
            let len = segment.len.load(Ordering::Acquire);
            let start = position.segment.cast::<u8>().wrapping_add(size_of::<ListSegment>());
            // SAFETY: so many bytes are published.
            let bytes = unsafe { core::slice::from_raw_parts(start, len as usize) };
            while let Some(entry) = bytes.get(position.at as usize..).and_then(first_entry) {
                each(entry);
                position.at += entry.len() as u32;
            }
            if next.is_null() {
                return;
            }
            *position = ListPosition { segment: next, at: 0 };
        }
    }
}

fn first_entry(bytes: &'static [u8]) -> Option<&'static [u8]> {
    let len = u32::from_le_bytes(*bytes.first_chunk()?);
    bytes.get(..len as usize).filter(|entry| !entry.is_empty())
}

impl CodeEntry {
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        let len = bytes.len().min(self.left);
        // SAFETY: inside the room of this entry.
        unsafe { self.at.copy_from_nonoverlapping(bytes.as_ptr(), len) };
        self.at = self.at.wrapping_add(len);
        self.left -= len;
    }

    /// Gives where the entry is.
    pub(crate) fn publish(self) -> *const u8 {
        let len = self.segment.len.load(Ordering::Relaxed);
        self.segment.len.store(len + self.bytes as u32, Ordering::Release);
        self.start
    }
}

/// How far a reader of a list has come.
#[derive(Clone, Copy, Debug)]
pub struct ListPosition {
    segment: *const ListSegment,
    at: u32,
}

// SAFETY: segments are shared, never change once published, and are never unmapped.
unsafe impl Send for ListPosition {}

impl Default for ListPosition {
    fn default() -> Self {
        Self { segment: core::ptr::null(), at: 0 }
    }
}
