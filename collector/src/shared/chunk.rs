//! A chunk where it lies: header and records, in the layout of the side file ([`tracehound_format::live`]).

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tracehound_format::live::{CHUNK_HEADER_BYTES, ChunkState, chunk_offset};
use tracehound_format::record::{RECORD_BYTES, Record};

/// Bytes of a chunk: large enough to make hand-overs rare, small enough to stay in the second-level cache.
pub const CHUNK_BYTES: usize = 64 << 10;
/// Records that fit into a chunk.
pub const RECORDS: u32 = ((CHUNK_BYTES - CHUNK_HEADER_BYTES) / RECORD_BYTES) as u32;

/// Offset of `u32`: records that the chunk holds, known once it is full; after the fields that a reader knows.
const USED: usize = 24;

const _: () = assert!(USED >= chunk_offset::OS_THREAD + 4 && USED + 4 <= CHUNK_HEADER_BYTES);

/// A chunk in mapped memory.
#[derive(Clone, Copy)]
pub struct Chunk(*mut u8);

// SAFETY: a place in shared memory that is accessed through atomics, but for wiping, which its only owner does.
unsafe impl Send for Chunk {}

impl Chunk {
    /// The chunk at `base`.
    ///
    /// # Safety
    /// `base` must be aligned to 64 bytes and stay mapped, [`CHUNK_BYTES`] long.
    pub unsafe fn at(base: *mut u8) -> Self {
        Self(base)
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: inside the header, four-byte aligned, mapped as long as `self` may be used.
        unsafe { &*self.0.add(offset).cast() }
    }

    fn long(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: as above, eight-byte aligned.
        unsafe { &*self.0.add(offset).cast() }
    }

    /// Who owns the chunk.
    pub fn set_state(&self, state: ChunkState) {
        self.word(chunk_offset::STATE).store(state as u32, Ordering::Release);
    }

    /// Recording-wide id of the thread that fills it.
    pub fn thread(&self) -> u32 {
        self.word(chunk_offset::THREAD).load(Ordering::Acquire)
    }

    /// Number of its first record among its thread's.
    pub fn first_record(&self) -> u64 {
        self.long(chunk_offset::FIRST_RECORD).load(Ordering::Relaxed)
    }

    /// Records at the front that are in the file.
    pub fn written(&self) -> u32 {
        self.word(chunk_offset::WRITTEN).load(Ordering::Relaxed)
    }

    /// Moves the front on.
    pub fn set_written(&self, written: u32) {
        self.word(chunk_offset::WRITTEN).store(written, Ordering::Release);
    }

    /// Records that a full chunk holds.
    pub fn used(&self) -> u32 {
        self.word(USED).load(Ordering::Acquire).min(RECORDS)
    }

    /// Makes it a thread's, empty.
    pub fn open(&self, thread: u32, os_thread: u32, first_record: u64) {
        self.word(chunk_offset::WRITTEN).store(0, Ordering::Relaxed);
        self.word(chunk_offset::OS_THREAD).store(os_thread, Ordering::Relaxed);
        self.word(USED).store(0, Ordering::Relaxed);
        self.long(chunk_offset::FIRST_RECORD).store(first_record, Ordering::Relaxed);
        self.word(chunk_offset::THREAD).store(thread, Ordering::Release);
        self.set_state(ChunkState::Active);
    }

    /// Marks it full, with `used` records.
    pub fn close(&self, used: u32) {
        self.word(USED).store(used, Ordering::Release);
        self.set_state(ChunkState::Full);
    }

    /// Zeroes what was used, and sets it free.
    pub fn wipe(&self) {
        let bytes = self.used() as usize * RECORD_BYTES;
        // SAFETY: the records lie directly after the header; `used` is at most what fits.
        unsafe { core::ptr::write_bytes(self.0.add(CHUNK_HEADER_BYTES), 0, bytes) };
        self.set_state(ChunkState::Free);
        self.word(chunk_offset::THREAD).store(0, Ordering::Relaxed);
    }

    /// Address of the first record.
    pub fn first_address(&self) -> u64 {
        self.0 as u64 + CHUNK_HEADER_BYTES as u64
    }

    /// Address after the last record.
    pub fn end_address(&self) -> u64 {
        self.first_address() + u64::from(RECORDS) * RECORD_BYTES as u64
    }

    /// Publishes a record in a chunk that nobody else fills.
    pub fn put(&self, index: u32, record: Record) {
        if index < RECORDS {
            let at = CHUNK_HEADER_BYTES + index as usize * RECORD_BYTES;
            let [first, second, third] = record.to_words();
            self.long(at + 8).store(second, Ordering::Relaxed);
            self.long(at + 16).store(third, Ordering::Relaxed);
            self.long(at).store(first, Ordering::Release);
        }
    }

    /// Records up to the last one that is published. Before it there may be slots of events that an interrupting one
    /// has overtaken.
    pub fn published(&self) -> u32 {
        let written = self.written().min(RECORDS);
        // Events that interrupt each other are few.
        const FAR: u32 = 64;
        let (mut last, mut index) = (written, written);
        while index < RECORDS && index - last < FAR {
            if self.record(index).is_some() {
                last = index + 1;
            }
            index += 1;
        }
        last
    }

    /// Record `index`, if it is published.
    #[inline]
    pub fn record(&self, index: u32) -> Option<Record> {
        if index >= RECORDS {
            return None;
        }
        let at = CHUNK_HEADER_BYTES + index as usize * RECORD_BYTES;
        let first = self.long(at).load(Ordering::Acquire);
        if first == 0 {
            return None;
        }
        Record::from_words([
            first,
            self.long(at + 8).load(Ordering::Relaxed),
            self.long(at + 16).load(Ordering::Relaxed),
        ])
    }
}
