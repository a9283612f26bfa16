//! Append-only list of the code objects that backtraces go through: their names, files and line tables, for the writer.
//!
//! The holder of the lock of `codes` appends; anybody reads what is published.

use crate::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::sys;

const SEGMENT_BYTES: usize = 256 << 10;
/// Bytes of an entry before its texts.
pub(super) const HEADER_BYTES: usize = 8 + 4 * 8;

/// Part of the list: entries follow it in its mapping.
#[repr(C)]
struct ListSegment {
    next: AtomicPtr<ListSegment>,
    /// Bytes of published entries.
    len: AtomicU32,
    room: u32,
}

static FIRST: AtomicPtr<ListSegment> = AtomicPtr::new(core::ptr::null_mut());
/// The segment that is being filled; the lock's holder alone looks here.
static LAST: AtomicPtr<ListSegment> = AtomicPtr::new(core::ptr::null_mut());

/// An entry that is being written.
pub(super) struct CodeEntry {
    segment: &'static ListSegment,
    at: *mut u8,
    left: usize,
    bytes: usize,
}

impl CodeEntry {
    /// Room for an entry.
    pub(super) fn of(bytes: usize) -> Option<CodeEntry> {
        // SAFETY: segments are never unmapped.
        let last = unsafe { LAST.load(Ordering::Relaxed).as_ref() };
        let fits =
            |segment: &&ListSegment| segment.len.load(Ordering::Relaxed) as usize + bytes <= segment.room as usize;
        let segment = match last.filter(fits) {
            Some(segment) => segment,
            None => Self::new_segment(last, bytes)?,
        };
        let start = core::ptr::from_ref(segment).cast::<u8>().cast_mut();
        let offset = size_of::<ListSegment>() + segment.len.load(Ordering::Relaxed) as usize;
        Some(CodeEntry { segment, at: start.wrapping_add(offset), left: bytes, bytes })
    }

    fn new_segment(last: Option<&'static ListSegment>, bytes: usize) -> Option<&'static ListSegment> {
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
        LAST.store(memory, Ordering::Relaxed);
        last.map_or(&FIRST, |last| &last.next).store(memory, Ordering::Release);
        Some(segment)
    }

    pub(super) fn put(&mut self, bytes: &[u8]) {
        let len = bytes.len().min(self.left);
        // SAFETY: inside the room of this entry.
        unsafe { self.at.copy_from_nonoverlapping(bytes.as_ptr(), len) };
        self.at = self.at.wrapping_add(len);
        self.left -= len;
    }

    pub(super) fn publish(self) {
        let len = self.segment.len.load(Ordering::Relaxed);
        self.segment.len.store(len + self.bytes as u32, Ordering::Release);
    }
}

/// A code object as the list has it.
#[derive(Clone, Copy, Debug)]
pub struct CodeText {
    /// First address behind [`CODE_ADDRESSES`](super::CODE_ADDRESSES).
    pub base: u64,
    /// Instructions.
    pub units: u32,
    /// Line of its definition.
    pub first_line: u32,
    /// Minor version of the interpreter, whose line tables these are.
    pub minor: u32,
    /// Qualified name, UTF-8.
    pub name: &'static [u8],
    /// Source file, UTF-8.
    pub file: &'static [u8],
    /// Line table, as the version has it.
    pub lines: &'static [u8],
}

/// How far a reader of the list has come.
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

/// Hands all code objects behind `position` to `each`.
pub fn code_texts(position: &mut ListPosition, mut each: impl FnMut(CodeText)) {
    loop {
        if position.segment.is_null() {
            position.segment = FIRST.load(Ordering::Acquire);
        }
        // SAFETY: null, or a segment, which stays.
        let Some(segment) = (unsafe { position.segment.as_ref() }) else { return };
        // Its successor first: behind that, nothing is added to it any more.
        let next = segment.next.load(Ordering::Acquire);
        let len = segment.len.load(Ordering::Acquire);
        let start = position.segment.cast::<u8>().wrapping_add(size_of::<ListSegment>());
        // SAFETY: so many bytes are published.
        let bytes = unsafe { core::slice::from_raw_parts(start, len as usize) };
        while let Some((text, used)) = bytes.get(position.at as usize..).and_then(entry) {
            each(text);
            position.at += used;
        }
        if next.is_null() {
            return;
        }
        *position = ListPosition { segment: next, at: 0 };
    }
}

fn entry(bytes: &'static [u8]) -> Option<(CodeText, u32)> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let base = u64::from(word(0)?) | u64::from(word(4)?) << 32;
    let [used, units, first_line, minor] = [word(8)?, word(12)?, word(16)?, word(20)?];
    let [name, file, lines] = [word(24)?, word(28)?, word(32)?].map(|len| len as usize);
    let rest = bytes.get(HEADER_BYTES..)?;
    let text = CodeText {
        base,
        units,
        first_line,
        minor,
        name: rest.get(..name)?,
        file: rest.get(name..name + file)?,
        lines: rest.get(name + file..name + file + lines)?,
    };
    Some((text, used))
}
