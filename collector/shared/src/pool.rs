//! The chunks of a recording: free chunks, full chunks that are queued for the writer, and the threads that wait for a
//! chunk.
//!
//! A chunk has one owner at any moment. It goes pool → thread ([`Pool::take`]) → writer ([`Pool::send`]) → pool
//! ([`Pool::give_back`]). Only the writer wipes a chunk, so the writer may read any chunk at any time.
//!
//! The memory is a row of slots of 64 KiB. A slot is divided into chunks of one size class, 4 KiB to 64 KiB; one word for
//! each slot holds the class and which chunks are free:
//!
//! ```text
//! word       class << 16 | free chunks, one bit each
//! all free ──take(class)──▶ no bits (one thread divides it) ──▶ the class's other chunks are free
//! ```
//! A slot whose chunks are all free again may be divided anew, so that small chunks become large ones without a pass that
//! collects them. A chunk's number is that of its first 4 KiB.
//!
//! Every thread gets a chunk of some size as long as one is free. When none is, the writer takes chunks from threads that
//! are not recording at the moment: more threads than chunks share them in turns.

use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::{self, order};

use tracehound_format::live::{CHUNK_STEP_BYTES, offset};

use super::chunk::{CLASSES, Chunk, LARGEST, SLOT_BYTES, bytes_of, divide};
use super::sys;

/// Slots that are there from the start.
pub const FIRST_SLOTS: u32 = 16;
/// Slots from which on a thread waits a moment for the writer before the pool grows: where program and writer share the
/// processors, more memory would only be filled, and chunks that are used again sooner are still in the caches.
const ENOUGH_SLOTS: u32 = 128;
/// Steps of 4 KiB in a slot.
const STEPS: u32 = (SLOT_BYTES / CHUNK_STEP_BYTES) as u32;
/// End of the list of full chunks.
const NOTHING: u32 = u32::MAX;
const FREE_BITS: u32 = 0xffff;

/// See the module's description.
pub struct Pool {
    base: *mut u8,
    header: *mut u8,
    shared: bool,
    max: AtomicU32,
    grown: AtomicU32,
    /// Slots that have memory, of those that are grown.
    backed: AtomicU32,
    /// The kernel is too old for threads to back slots with memory: the writer must.
    by_writer: bool,
    /// See the module's description; one for each slot that there may ever be.
    slots: Box<[AtomicU32]>,
    /// For each class, a slot that may have a free chunk of it.
    hints: [AtomicU32; CLASSES as usize],
    /// Free memory, in steps.
    free: AtomicU32,
    /// The chunk that was sent last; the header of each names the one before it.
    full: AtomicU32,
    /// Chunks that the writer has taken off `full`, oldest first, linked in the same way.
    received: AtomicU32,
    /// Steps of chunks that were sent and not received.
    queued: AtomicU32,
    /// Steps of chunks that were sent and not given back.
    in_flight: AtomicU32,
    waiting: AtomicU32,
    /// Threads that dropped an event because they got no chunk, since the writer looked last.
    starved: AtomicU32,
    released: AtomicU32,
    bell: AtomicU32,
    writer_sleeps: AtomicBool,
    /// A thread could not grow the pool by itself: the writer must.
    pub growth_wanted: AtomicBool,
    /// Counts the writer's steps, so that a waiting thread can see that it is alive: a round that looks at ten thousand
    /// threads may take long on a busy machine.
    pub heartbeat: AtomicU64,
    /// When it made the last one, nanoseconds of the monotonic clock.
    pub beat_ns: AtomicU64,
    /// Counts the writer's flushes: how long a chunk has lasted.
    pub flushes: AtomicU32,
}

// SAFETY: the memory behind the pointers is mapped for ever and accessed through atomics, but for wiping, which the chunk's
// only owner does.
unsafe impl Send for Pool {}
// SAFETY: the memory behind the pointers is mapped for ever; see `Send`.
unsafe impl Sync for Pool {}

/// Word of a slot.
const fn word(class: u32, free: u32) -> u32 {
    class << 16 | free
}

/// Bits of all chunks of a slot.
const fn all(class: u32) -> u32 {
    (1 << (STEPS >> class)) - 1
}

const fn class_of(word: u32) -> u32 {
    word >> 16
}

const fn is_whole(word: u32) -> bool {
    word & FREE_BITS == all(class_of(word))
}

impl Pool {
    /// A pool over `max` slots at `base`, the first [`FIRST_SLOTS`] of which are backed by memory already.
    ///
    /// # Safety
    /// `base` must be the start of `max` slots, zeroed, page-aligned and mapped for ever; `header` the side file's
    /// header page or null; `shared`: the memory is the side file's.
    pub unsafe fn new(base: *mut u8, header: *mut u8, shared: bool, max: u32) -> Self {
        let max = max.clamp(1, u32::MAX / STEPS - 1);
        let pool = Self {
            base,
            header,
            shared,
            max: AtomicU32::new(max),
            grown: AtomicU32::new(0),
            backed: AtomicU32::new(0),
            // SAFETY: the first page of the first slot, which has memory: it stays as it is.
            by_writer: shared && unsafe { sys::populate(base, CHUNK_STEP_BYTES) } == Err(sys::Errno(libc::EINVAL)),
            slots: (0..max).map(|_| AtomicU32::new(word(LARGEST, 0))).collect(),
            hints: [const { AtomicU32::new(0) }; CLASSES as usize],
            free: AtomicU32::new(0),
            full: AtomicU32::new(NOTHING),
            received: AtomicU32::new(NOTHING),
            queued: AtomicU32::new(0),
            in_flight: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            starved: AtomicU32::new(0),
            released: AtomicU32::new(0),
            bell: AtomicU32::new(0),
            writer_sleeps: AtomicBool::new(false),
            growth_wanted: AtomicBool::new(false),
            heartbeat: AtomicU64::new(0),
            beat_ns: AtomicU64::new(0),
            flushes: AtomicU32::new(0),
        };
        sync::announce(&*pool.slots);
        if let Some((from, count)) = pool.reserve(FIRST_SLOTS) {
            pool.add(from, count);
        }
        pool
    }

    fn slot(&self, slot: u32) -> *mut u8 {
        // SAFETY: callers pass slots below the count of those at `base`.
        unsafe { self.base.add(slot as usize * SLOT_BYTES) }
    }

    /// The chunk with this number; `None` if there is none.
    pub fn chunk(&self, number: u32) -> Option<Chunk> {
        let slot = number / STEPS;
        if slot >= self.grown.load(Ordering::Acquire) {
            return None;
        }
        // The class of a slot stays while one of its chunks is in use.
        let class = class_of(self.slots.get(slot as usize)?.load(Ordering::Acquire));
        let at = number as usize * CHUNK_STEP_BYTES;
        // SAFETY: the number is below the count of chunks at `base`, and the size is that of the slot's class.
        Some(unsafe { Chunk::at(self.base.add(at), bytes_of(class)) })
    }

    /// Slots that may be added next: reserved for the caller alone, who backs them with memory and [`add`](Self::add)s them.
    /// A reader of the side file may find them from here on, empty.
    fn reserve(&self, most: u32) -> Option<(u32, u32)> {
        let max = self.max.load(Ordering::Relaxed);
        let more = |grown: u32| (grown < max).then(|| grown + most.min(max - grown));
        let from = self.grown.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).ok()?;
        let count = most.min(max.saturating_sub(from));
        if let Some(header) = core::ptr::NonNull::new(self.header) {
            // SAFETY: the header page is mapped for ever; the field is aligned.
            let field = unsafe { &*header.as_ptr().add(offset::CHUNK_COUNT).cast::<AtomicU32>() };
            field.fetch_max(from + count, Ordering::AcqRel);
        }
        Some((from, count))
    }

    /// Sets reserved slots free, which have memory now.
    fn add(&self, from: u32, count: u32) {
        self.backed.fetch_add(count, Ordering::Relaxed);
        self.free.fetch_add(count * STEPS, Ordering::SeqCst);
        for slot in self.slots.iter().skip(from as usize).take(count as usize) {
            slot.store(word(LARGEST, 1), Ordering::SeqCst);
        }
        self.wake(count * STEPS);
    }

    /// Backs more slots with memory; false when there are no more, or when it must be tried again later. Several threads
    /// may do so at once, each for a few slots: none waits for another, which may have lost its processor meanwhile.
    #[cold]
    pub fn grow(&self) -> bool {
        const AT_ONCE: u32 = 4;
        if self.by_writer {
            self.growth_wanted.store(true, Ordering::Relaxed);
            return false;
        }
        let Some((from, count)) = self.reserve(AT_ONCE) else { return false };
        if self.shared {
            // SAFETY: this range of the mapping is ours and used by nobody yet. Populating gives an error where a
            // plain store to a full disk's file would be a SIGBUS.
            let result = unsafe { sys::populate(self.slot(from), count as usize * SLOT_BYTES) };
            if result.is_err() {
                // No room on the disk. What others have reserved behind these they find out themselves.
                self.max.fetch_min(from, Ordering::Relaxed);
                return false;
            }
        }
        self.add(from, count);
        true
    }

    /// For the writer, where threads cannot back slots: reserves some, and says where they lie, as number of the first one,
    /// offset from the first of all and length in bytes; `None` when all are there.
    pub fn next_growth(&self) -> Option<(u32, u64, u64)> {
        const AT_ONCE: u32 = 64;
        let (from, count) = self.reserve(AT_ONCE.min(self.backed.load(Ordering::Relaxed).max(1)))?;
        Some((from, u64::from(from) * SLOT_BYTES as u64, u64::from(count) * SLOT_BYTES as u64))
    }

    /// Adds the slots of [`next_growth`](Self::next_growth), which the writer has backed; `None`: there will be none.
    pub fn grown_by_writer(&self, from: u32, bytes: Option<u64>) {
        self.growth_wanted.store(false, Ordering::Relaxed);
        match bytes {
            Some(bytes) => self.add(from, (bytes / SLOT_BYTES as u64) as u32),
            None => {
                self.max.fetch_min(from, Ordering::Relaxed);
            }
        }
    }

    /// Whether a thread should wait for the writer instead of growing the pool: enough chunks are queued, and the
    /// writer gives them back soon.
    pub fn awaits_writer(&self) -> bool {
        let backed = self.backed.load(Ordering::Relaxed);
        backed >= ENOUGH_SLOTS && self.in_flight.load(Ordering::Relaxed) * 4 >= backed * STEPS
    }

    /// A free chunk, zeroed, of this class if there is one, else of another; `None` when all are in use, and the pool
    /// cannot grow or is not to (`may_grow`).
    pub fn take(&self, class: u32, may_grow: bool) -> Option<(u32, Chunk)> {
        /// Another thread may be about to publish what it divides or gives back.
        const ATTEMPTS: u32 = 100;
        let class = class.min(LARGEST);
        for _ in 0..ATTEMPTS {
            let number = match self.find(class) {
                ClaimedSlot::Chunk(number) => Some(number),
                ClaimedSlot::Other(_) | ClaimedSlot::Nothing if may_grow && self.grow() => None,
                ClaimedSlot::Other(slot) => self.claim(slot, class),
                ClaimedSlot::Nothing if self.free.load(Ordering::SeqCst) == 0 => return None,
                ClaimedSlot::Nothing | ClaimedSlot::Raced => None,
            };
            if let Some(number) = number {
                return self.chunk(number).map(|chunk| (number, chunk));
            }
            sync::pause();
        }
        None
    }

    /// Looks for a free chunk of the class, and for a slot to divide.
    fn find(&self, class: u32) -> ClaimedSlot {
        let grown = self.grown.load(Ordering::Acquire);
        let hint = self.hints.get(class as usize).map_or(0, |hint| hint.load(Ordering::Relaxed)) % grown.max(1);
        let (mut whole, mut other) = (None, None);
        for slot in (hint..grown).chain(0..hint) {
            let Some(state) = self.slots.get(slot as usize).map(|word| word.load(Ordering::Relaxed)) else { continue };
            let found = class_of(state);
            if state & FREE_BITS == 0 {
                continue;
            }
            if found == class {
                return self.claim(slot, class).map_or(ClaimedSlot::Raced, ClaimedSlot::Chunk);
            }
            if is_whole(state) {
                if class == LARGEST {
                    return self.claim(slot, class).map_or(ClaimedSlot::Raced, ClaimedSlot::Chunk);
                }
                whole = whole.or(Some(slot));
            } else if other.is_none_or(|(nearest, _)| found.abs_diff(class) < class.abs_diff(nearest)) {
                other = Some((found, slot));
            }
        }
        match (whole, other) {
            (Some(slot), _) => self.claim(slot, class).map_or(ClaimedSlot::Raced, ClaimedSlot::Chunk),
            (None, Some((_, slot))) => ClaimedSlot::Other(slot),
            (None, None) => ClaimedSlot::Nothing,
        }
    }

    /// Takes a chunk of a slot: one of the wanted class when the slot is whole and may be divided anew, else one of
    /// the slot's class.
    fn claim(&self, slot: u32, class: u32) -> Option<u32> {
        let place = self.slots.get(slot as usize)?;
        let before = place.load(Ordering::Relaxed);
        let free = before & FREE_BITS;
        if free == 0 {
            return None;
        }
        let exchange = |to| place.compare_exchange(before, to, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if let Some(hint) = self.hints.get(class as usize) {
            hint.store(slot, Ordering::Relaxed);
        }
        let was = class_of(before);
        if is_whole(before) && was != class {
            if !exchange(word(was, 0)) {
                return None;
            }
            // Nobody else looks at its chunks now. A reader of the side file finds them all free, before and after.
            // SAFETY: a slot at `base`, all of whose chunks are free, hence zeroed.
            unsafe { divide(self.slot(slot), class) };
            // Taken as a whole, given back but for the first chunk.
            place.store(word(class, all(class) & !1), Ordering::SeqCst);
            self.free.fetch_sub(1 << class, Ordering::SeqCst);
            if class != LARGEST {
                self.wake(STEPS - (1 << class));
            }
            return Some(slot * STEPS);
        }
        let index = free.trailing_zeros();
        if !exchange(word(was, free & !(1 << index))) {
            return None;
        }
        self.free.fetch_sub(1 << was, Ordering::SeqCst);
        Some(slot * STEPS + (index << was))
    }

    /// Sets a wiped chunk free; for the writer.
    pub fn give_back(&self, number: u32) {
        let slot = number / STEPS;
        let Some(place) = self.slots.get(slot as usize) else { return };
        let class = class_of(place.load(Ordering::Acquire));
        self.in_flight.fetch_sub(1 << class, Ordering::Relaxed);
        self.free.fetch_add(1 << class, Ordering::SeqCst);
        let before = place.fetch_or(1 << ((number % STEPS) >> class), Ordering::SeqCst);
        if before & FREE_BITS == 0
            && let Some(hint) = self.hints.get(class as usize)
        {
            hint.store(slot, Ordering::Relaxed);
        }
        self.wake(1 << class);
    }

    /// Wakes threads that wait for a chunk: there are so many steps more.
    fn wake(&self, steps: u32) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.released.fetch_add(1, Ordering::SeqCst);
            sys::futex_wake(&self.released, steps as i32);
        }
    }

    /// The largest class that a thread may use when so many are alive: half of the memory is for all threads' chunks in
    /// use, in equal parts, the other half for those on their way.
    pub fn fair_class(&self, threads: u32) -> u32 {
        let share = self.most_bytes() / 2 / u64::from(threads.max(1));
        (share / CHUNK_STEP_BYTES as u64).checked_ilog2().unwrap_or(0).min(LARGEST)
    }

    /// Hands a full chunk to the writer.
    pub fn send(&self, number: u32) {
        let Some(chunk) = self.chunk(number) else { return };
        let steps = chunk.bytes() / CHUNK_STEP_BYTES as u32;
        // Counted first: the writer subtracts what it receives, and what it gives back.
        self.in_flight.fetch_add(steps, Ordering::Relaxed);
        let queued = self.queued.fetch_add(steps, Ordering::Relaxed) + steps;
        let mut last = self.full.load(Ordering::Relaxed);
        loop {
            chunk.set_next(last);
            // The writer takes the whole list at once, so that no chunk can be back at the head unnoticed.
            let sent = order!("pool-send": AcqRel, not Relaxed);
            match self.full.compare_exchange_weak(last, number, sent, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => last = now,
            }
        }
        if queued * 4 >= self.backed.load(Ordering::Relaxed) * STEPS {
            self.ring();
        }
    }

    /// The next full chunk, if there is one; for the writer.
    pub fn receive(&self) -> Option<u32> {
        if self.received.load(Ordering::Relaxed) == NOTHING {
            let mut newest = self.full.swap(NOTHING, order!("pool-receive": AcqRel, not Relaxed));
            let mut oldest_first = NOTHING;
            while newest != NOTHING {
                let chunk = self.chunk(newest)?;
                let older = chunk.next();
                chunk.set_next(oldest_first);
                oldest_first = newest;
                newest = older;
            }
            self.received.store(oldest_first, Ordering::Relaxed);
        }
        let number = self.received.load(Ordering::Relaxed);
        let chunk = self.chunk(number).filter(|_| number != NOTHING)?;
        self.received.store(chunk.next(), Ordering::Relaxed);
        self.queued.fetch_sub(chunk.bytes() / CHUNK_STEP_BYTES as u32, Ordering::Relaxed);
        Some(number)
    }

    /// Bytes that are free now.
    pub fn free_bytes(&self) -> u64 {
        u64::from(self.free.load(Ordering::SeqCst)) * CHUNK_STEP_BYTES as u64
    }

    /// Bytes of all slots that have memory.
    pub fn bytes(&self) -> u64 {
        u64::from(self.backed.load(Ordering::Relaxed)) * SLOT_BYTES as u64
    }

    /// Bytes of all slots that there may ever be.
    pub fn most_bytes(&self) -> u64 {
        u64::from(self.max.load(Ordering::Relaxed)) * SLOT_BYTES as u64
    }

    /// Number of threads that want a chunk: those that wait, and those that have dropped an event because they got
    /// none since the last [`fed`](Self::fed).
    pub fn wanted(&self) -> u32 {
        self.waiting.load(Ordering::SeqCst) + self.starved.load(Ordering::Relaxed)
    }

    /// Resets the number of starved threads, after the writer has looked for chunks.
    pub fn fed(&self) {
        self.starved.store(0, Ordering::Relaxed);
    }

    /// Counts a thread that got no chunk: the writer then takes one from a thread that does not need it.
    pub fn starve(&self) {
        self.starved.fetch_add(1, Ordering::Relaxed);
        self.ring();
    }

    /// Waits until a chunk may be free, at most `nanos`, or longer when many wait: that each of thousands looks fifty times
    /// a second would keep the processors from the writer.
    pub fn wait(&self, nanos: u64) {
        const EACH_NS: u64 = 500_000;
        const LONGEST_NS: u64 = 1_000_000_000;
        let before = self.waiting.fetch_add(1, Ordering::SeqCst);
        let nanos = nanos.max((u64::from(before) * EACH_NS).min(LONGEST_NS));
        let seen = self.released.load(Ordering::SeqCst);
        if !self.has_free_chunk() {
            self.ring();
            sys::futex_wait(&self.released, seen, nanos);
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether a slot shows a free chunk. [`free`](Self::free_bytes) may count chunks that no slot shows yet, of a thread
    /// that has lost its processor in the middle of giving them back: were thousands to look for these again and again, it
    /// would hardly get one.
    fn has_free_chunk(&self) -> bool {
        let grown = self.grown.load(Ordering::Acquire) as usize;
        self.slots.iter().take(grown).any(|slot| slot.load(Ordering::SeqCst) & FREE_BITS != 0)
    }

    /// Counts a step of the writer.
    pub fn beat(&self) {
        self.heartbeat.fetch_add(1, Ordering::Relaxed);
        self.beat_ns.store(sys::clock(libc::CLOCK_MONOTONIC), Ordering::Relaxed);
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

/// What a pass over the slots has found.
enum ClaimedSlot {
    /// A chunk, now the caller's.
    Chunk(u32),
    /// Another thread was quicker: look again.
    Raced,
    /// Only a slot that has chunks of another class.
    Other(u32),
    /// Nothing is free.
    Nothing,
}

#[cfg(test)]
mod tests;
