//! The chunks of a recording: the free ones, the full ones on their way to the writer, and who waits for one.
//!
//! A chunk has one owner at any moment. It goes pool → thread ([`Pool::take`]) → writer ([`Pool::send`], a bounded
//! crossbeam queue with room for every chunk, so that a push never fails) → pool ([`Pool::give_back`]).
//! Only the writer wipes a chunk, so the writer may read any chunk at any time.

use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crossbeam_queue::ArrayQueue;
use tracehound_format::live::offset;

use super::chunk::{CHUNK_BYTES, Chunk};
use super::lock::Lock;
use super::sys;

/// Chunks that are there from the start.
pub const FIRST_CHUNKS: u32 = 16;

/// See the module's description.
pub struct Pool {
    base: *mut u8,
    header: *mut u8,
    shared: bool,
    max: AtomicU32,
    grown: AtomicU32,
    growing: Lock<()>,
    free: ArrayQueue<u32>,
    full: ArrayQueue<u32>,
    queued: AtomicU32,
    waiting: AtomicU32,
    released: AtomicU32,
    bell: AtomicU32,
    writer_sleeps: AtomicBool,
    /// A thread could not grow the pool by itself: the writer must.
    pub growth_wanted: AtomicBool,
    /// Counts the writer's rounds, so that a waiting thread can see that it is alive.
    pub heartbeat: AtomicU64,
}

// SAFETY: the memory behind the pointers is shared and accessed through atomics only.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    /// A pool over `max` chunks at `base`, the first [`FIRST_CHUNKS`] of which are backed by memory already.
    ///
    /// # Safety
    /// `base` must be the start of `max` chunks, zeroed, page-aligned and mapped for ever; `header` the side file's
    /// header page or null; `shared` tells whether the memory is the side file's.
    pub unsafe fn new(base: *mut u8, header: *mut u8, shared: bool, max: u32) -> Self {
        let max = max.max(1);
        let pool = Self {
            base,
            header,
            shared,
            max: AtomicU32::new(max),
            grown: AtomicU32::new(0),
            growing: Lock::new(()),
            free: ArrayQueue::new(max as usize),
            full: ArrayQueue::new(max as usize),
            queued: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            released: AtomicU32::new(0),
            bell: AtomicU32::new(0),
            writer_sleeps: AtomicBool::new(false),
            growth_wanted: AtomicBool::new(false),
            heartbeat: AtomicU64::new(0),
        };
        pool.add(FIRST_CHUNKS.min(max));
        pool
    }

    /// The chunk with this number; `None` if there is none.
    pub fn chunk(&self, number: u32) -> Option<Chunk> {
        if number >= self.grown.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: the number is below the count of chunks at `base`.
        Some(unsafe { Chunk::at(self.base.add(number as usize * CHUNK_BYTES)) })
    }

    fn add(&self, count: u32) {
        let before = self.grown.load(Ordering::Relaxed);
        self.grown.store(before + count, Ordering::Release);
        if let Some(header) = core::ptr::NonNull::new(self.header) {
            // SAFETY: the header page is mapped for ever; the field is aligned.
            let field = unsafe { &*header.as_ptr().add(offset::CHUNK_COUNT).cast::<AtomicU32>() };
            field.store(before + count, Ordering::Release);
        }
        for number in before..before + count {
            let _ = self.free.push(number);
        }
    }

    /// Backs more chunks with memory; false when there are no more, or when it must be tried again later.
    #[cold]
    pub fn grow(&self) -> bool {
        let Some(_held) = self.growing.try_lock() else { return false };
        let (grown, max) = (self.grown.load(Ordering::Relaxed), self.max.load(Ordering::Relaxed));
        let count = grown.clamp(1, 64).min(max.saturating_sub(grown));
        if count == 0 {
            return false;
        }
        if self.shared {
            // SAFETY: this range of the mapping is ours and used by nobody yet. Populating gives an error where a
            // plain store to a full disk's file would be a SIGBUS.
            let result = unsafe {
                let (from, bytes) = (self.base.add(grown as usize * CHUNK_BYTES), count as usize * CHUNK_BYTES);
                // Many pages at once, unlike those that are there from the start.
                sys::read_ahead(from, bytes);
                sys::populate(from, bytes)
            };
            match result {
                Ok(()) => {}
                Err(sys::Errno(libc::EINVAL)) => {
                    self.growth_wanted.store(true, Ordering::Relaxed);
                    return false;
                }
                Err(_) => {
                    self.max.store(grown, Ordering::Relaxed);
                    return false;
                }
            }
        }
        self.add(count);
        true
    }

    /// Where the next chunks to grow lie, as offset from the first chunk and length in bytes; `None` when all are there.
    pub fn next_growth(&self) -> Option<(u64, u64)> {
        let (grown, max) = (self.grown.load(Ordering::Relaxed), self.max.load(Ordering::Relaxed));
        let count = grown.clamp(1, 64).min(max.saturating_sub(grown));
        (count > 0).then_some((u64::from(grown) * CHUNK_BYTES as u64, u64::from(count) * CHUNK_BYTES as u64))
    }

    /// Adds the chunks of [`next_growth`](Self::next_growth), which the writer has backed; `None`: there will be none.
    pub fn grown_by_writer(&self, bytes: Option<u64>) {
        let _held = self.growing.lock();
        self.growth_wanted.store(false, Ordering::Relaxed);
        match bytes {
            Some(bytes) => self.add((bytes / CHUNK_BYTES as u64) as u32),
            None => self.max.store(self.grown.load(Ordering::Relaxed), Ordering::Relaxed),
        }
    }

    /// A free chunk, zeroed; `None` when all are in use.
    pub fn take(&self) -> Option<(u32, Chunk)> {
        loop {
            if let Some(number) = self.free.pop() {
                return self.chunk(number).map(|chunk| (number, chunk));
            }
            if !self.grow() {
                let number = self.free.pop()?;
                return self.chunk(number).map(|chunk| (number, chunk));
            }
        }
    }

    /// Hands a full chunk to the writer.
    pub fn send(&self, number: u32) {
        // There is room for every chunk that exists: this cannot fail.
        if self.full.push(number).is_ok() {
            let queued = self.queued.fetch_add(1, Ordering::Relaxed) + 1;
            if queued * 4 >= self.grown.load(Ordering::Relaxed) {
                self.ring();
            }
        }
    }

    /// The next full chunk, if there is one; for the writer.
    pub fn receive(&self) -> Option<u32> {
        let number = self.full.pop()?;
        self.queued.fetch_sub(1, Ordering::Relaxed);
        Some(number)
    }

    /// Sets a wiped chunk free; for the writer.
    pub fn give_back(&self, number: u32) {
        let _ = self.free.push(number);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.released.fetch_add(1, Ordering::SeqCst);
            sys::futex_wake(&self.released, i32::MAX);
        }
    }

    /// Chunks that are free now.
    pub fn free_chunks(&self) -> u32 {
        self.free.len() as u32
    }

    /// Chunks that exist.
    pub fn chunks(&self) -> u32 {
        self.grown.load(Ordering::Relaxed)
    }

    /// Bytes of all chunks that there may ever be.
    pub fn most_bytes(&self) -> u64 {
        u64::from(self.max.load(Ordering::Relaxed)) * CHUNK_BYTES as u64
    }

    /// Threads that wait for a chunk.
    pub fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Waits until a chunk may be free, at most `nanos`.
    pub fn wait(&self, nanos: u64) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let seen = self.released.load(Ordering::SeqCst);
        if self.free.is_empty() {
            self.ring();
            sys::futex_wait(&self.released, seen, nanos);
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Wakes the writer.
    pub fn ring(&self) {
        self.bell.store(1, Ordering::SeqCst);
        if self.writer_sleeps.load(Ordering::SeqCst) {
            sys::futex_wake(&self.bell, 1);
        }
    }

    /// The writer's sleep: until the bell rings, at most `nanos`.
    pub fn sleep(&self, nanos: u64) {
        self.writer_sleeps.store(true, Ordering::SeqCst);
        if self.bell.load(Ordering::SeqCst) == 0 {
            sys::futex_wait(&self.bell, 0, nanos);
        }
        self.writer_sleeps.store(false, Ordering::SeqCst);
        self.bell.store(0, Ordering::SeqCst);
    }
}
