//! Chunk in memory: header and records, in the layout of the side file ([`tracehound_format::live`]).

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tracehound_format::live::{CHUNK_HEADER_BYTES, CHUNK_STEP_BYTES, ChunkState, chunk_offset};
use tracehound_format::record::{RECORD_BYTES, Record};

/// Bytes of a slot, which is divided into chunks of one class: the largest chunk is large enough to make hand-overs rare,
/// small enough to stay in the second-level cache.
pub const SLOT_BYTES: usize = 64 << 10;
/// Size classes: class 0 is 4 KiB, each next one twice the one before.
pub const CLASSES: u32 = 5;
/// The class of a chunk that fills a slot.
pub const LARGEST: u32 = CLASSES - 1;
/// Records that fit into the largest chunk.
pub const MOST_RECORDS: u32 = records_in(SLOT_BYTES as u32);

/// Offset of `u32`: the next chunk in the list of full ones; after the fields that a reader knows.
const NEXT: usize = 32;

const _: () = assert!(NEXT >= chunk_offset::BYTES + 4 && NEXT + 4 <= CHUNK_HEADER_BYTES);
const _: () = assert!(bytes_of(LARGEST) as usize == SLOT_BYTES);

/// Bytes of a chunk of this class.
pub const fn bytes_of(class: u32) -> u32 {
    (CHUNK_STEP_BYTES as u32) << class
}

const fn records_in(bytes: u32) -> u32 {
    (bytes - CHUNK_HEADER_BYTES as u32) / RECORD_BYTES as u32
}

/// Divides a slot into chunks of a class, for readers of the side file: its first chunk says how large each is.
///
/// # Safety
/// `slot` must be the start of a slot in mapped memory, of which nobody uses a chunk.
pub unsafe fn divide(slot: *mut u8, class: u32) {
    // SAFETY: `slot` is mapped and aligned, and nobody uses its chunks: the contract of this function.
    let first = unsafe { Chunk::at(slot, bytes_of(class)) };
    first.word(chunk_offset::BYTES).store(bytes_of(class), Ordering::Release);
}

/// A chunk in mapped memory.
#[derive(Clone, Copy)]
pub struct Chunk {
    base: *mut u8,
    bytes: u32,
    /// Records that fit. Stored, because every record needs it and computing it takes a division.
    room: u32,
}

// SAFETY: the memory is accessed by atomics, except for wiping, which only the chunk's owner does.
unsafe impl Send for Chunk {}

impl Chunk {
    /// The chunk at `base`.
    ///
    /// # Safety
    /// `base` must be aligned to 64 bytes and stay mapped, `bytes` long, which must be the size of a class.
    pub unsafe fn at(base: *mut u8, bytes: u32) -> Self {
        Self { base, bytes, room: records_in(bytes) }
    }

    /// Bytes, header included.
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Records that fit.
    pub fn room(&self) -> u32 {
        self.room
    }

    /// The next chunk in the list of full ones.
    pub fn next(&self) -> u32 {
        self.word(NEXT).load(Ordering::Relaxed)
    }

    /// Links it into the list of full ones.
    pub fn set_next(&self, number: u32) {
        self.word(NEXT).store(number, Ordering::Relaxed);
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: inside the header, four-byte aligned, mapped as long as `self` may be used.
        unsafe { &*self.base.add(offset).cast() }
    }

    fn long(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: inside the header, eight-byte aligned, mapped as long as `self` may be used.
        unsafe { &*self.base.add(offset).cast() }
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

    /// Sets how many records at the front are in the file.
    pub fn set_written(&self, written: u32) {
        self.word(chunk_offset::WRITTEN).store(written, Ordering::Release);
    }

    /// Records that a full chunk holds.
    pub fn used(&self) -> u32 {
        self.word(chunk_offset::USED).load(Ordering::Acquire).min(self.room())
    }

    /// Makes it a thread's, empty.
    pub fn open(&self, thread: u32, os_thread: u32, first_record: u64) {
        self.word(chunk_offset::WRITTEN).store(0, Ordering::Relaxed);
        self.word(chunk_offset::OS_THREAD).store(os_thread, Ordering::Relaxed);
        self.word(chunk_offset::USED).store(0, Ordering::Relaxed);
        self.long(chunk_offset::FIRST_RECORD).store(first_record, Ordering::Relaxed);
        self.word(chunk_offset::THREAD).store(thread, Ordering::Release);
        self.set_state(ChunkState::Active);
    }

    /// Marks it full, with `used` records.
    pub fn close(&self, used: u32) {
        self.word(chunk_offset::USED).store(used, Ordering::Release);
        self.set_state(ChunkState::Full);
    }

    /// Zeroes the used part, and marks the chunk free.
    pub fn wipe(&self) {
        let bytes = self.used() as usize * RECORD_BYTES;
        #[cfg(not(loom))]
        // SAFETY: the records lie directly after the header; `used` is at most what fits.
        unsafe {
            core::ptr::write_bytes(self.base.add(CHUNK_HEADER_BYTES), 0, bytes);
        }
        #[cfg(loom)]
        (0..bytes).step_by(8).for_each(|at| self.long(CHUNK_HEADER_BYTES + at).store(0, Ordering::Relaxed));
        self.set_state(ChunkState::Free);
        // Clears the header except for the size of the slot's chunks: a larger chunk may have records here next.
        for field in [chunk_offset::THREAD, chunk_offset::WRITTEN, chunk_offset::OS_THREAD, chunk_offset::USED, NEXT] {
            self.word(field).store(0, Ordering::Relaxed);
        }
        self.long(chunk_offset::FIRST_RECORD).store(0, Ordering::Relaxed);
    }

    /// Address of the first record.
    pub fn first_address(&self) -> u64 {
        self.base as u64 + CHUNK_HEADER_BYTES as u64
    }

    /// Address after the last record.
    pub fn end_address(&self) -> u64 {
        self.first_address() + u64::from(self.room()) * RECORD_BYTES as u64
    }

    /// Publishes a record in a chunk that nobody else fills.
    pub fn put(&self, index: u32, record: Record) {
        if index < self.room() {
            let at = CHUNK_HEADER_BYTES + index as usize * RECORD_BYTES;
            let [first, second, third] = record.to_words();
            self.long(at + 8).store(second, Ordering::Relaxed);
            self.long(at + 16).store(third, Ordering::Relaxed);
            self.long(at).store(first, Ordering::Release);
        }
    }

    /// Number of records up to the last published one. Slots before it may be unpublished: their events were
    /// interrupted by later ones.
    pub fn published(&self) -> u32 {
        let written = self.written().min(self.room());
        // Slots searched beyond an unpublished one: few events interrupt each other.
        const FAR: u32 = 64;
        let (mut last, mut index) = (written, written);
        while index < self.room() && index - last < FAR {
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
        if index >= self.room() {
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
