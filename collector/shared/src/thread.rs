//! Thread context, one for each recorded thread: its state, its chunk, its unwinder.
//!
//! The owner alone writes it, but for `limit` and `active`, which the writer may take away under `chunk_lock` from a
//! thread that is not recording (see [`crate::pool`]). A context lives in memory that a forked child finds
//! zeroed: there `limit` is 0, so that no child ever writes into its parent's chunks.
//!
//! ```text
//! state = mode (2 bits) | number of events << 2
//! IDLE ─▶ IN_REAL ─▶ RECORDING ─▶ IDLE        allocation: stamped after the real call
//! IDLE ─▶ RECORDING ─▶ IN_REAL ─▶ IDLE        free: stamped and published before it
//! IDLE ─▶ STAMPED ─▶ RECORDING ─▶ IDLE        realloc, munmap: stamped before, published after the real call
//! ```
//!
//! An event may interrupt another one: a signal handler's, or a call that the real function makes through the hooks. Then
//! `state` is what other threads must respect, RECORDING if any of the events is, else STAMPED if any is; and `inner` is
//! what the innermost event does. Each event restores both on its way out.

use crate::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::stack_counters::StackCounters;
use crate::sync::{order, pause};

/// The thread is in the program's own code.
pub const IDLE: u64 = 0;
/// In the real function, without a time stamp taken.
pub const IN_REAL: u64 = 1;
/// Stamping, unwinding or publishing: the only mode in which a chunk is written.
pub const RECORDING: u64 = 2;
/// In the real function, with a time stamp taken.
pub const STAMPED: u64 = 3;
/// Bits of the mode.
pub const MODE: u64 = 3;
/// One more event.
pub const EVENT: u64 = 4;

/// [`ThreadContext::limit`] after a change of the request context.
pub const CONTEXT_CHANGED: u64 = 1;
/// No chunk.
pub const NO_CHUNK: u32 = u32::MAX;
/// Chunks that a signal handler may fill up while the event that it interrupted is unfinished.
pub const PINNED: usize = 16;

const UNLOCKED: u32 = 0;
const LOCKED: u32 = 1;
const WAITED_FOR: u32 = 2;

/// Life of a context.
pub mod life {
    /// In the list, waiting for a thread.
    pub const FREE: u32 = 0;
    /// A thread is recorded in it.
    pub const LIVE: u32 = 1;
    /// Its thread has run its last destructor that we see; libc or a later one may still allocate.
    pub const ENDING: u32 = 2;
    /// Its thread has ended and handed everything over.
    pub const ENDED: u32 = 3;
}

/// See the module's description. Whole cache lines: two threads never write to one.
#[repr(C, align(64))]
#[derive(Default)]
pub struct ThreadContext {
    /// Mode and number of events.
    pub state: AtomicU64,
    /// Stack pointer at the outermost hooked call in progress.
    pub entry_sp: AtomicU64,
    /// Address of the next record.
    pub cursor: AtomicU64,
    /// Address after the chunk's last record; 0 when there is no chunk, [`CONTEXT_CHANGED`] when a record of the new
    /// request context comes first.
    pub limit: AtomicU64,
    /// The unwinder for events that allocate; null: none.
    pub alloc_unwinder: AtomicPtr<()>,
    /// The unwinder for events that free; null: none.
    pub free_unwinder: AtomicPtr<()>,
    /// Recording-wide id; 0 in a forked child.
    pub id: AtomicU32,
    /// The thread waits for a chunk or at a held gate, in the middle of an event.
    pub parked: AtomicU32,

    /// Mode of the innermost event while that has interrupted another one; [`IDLE`] otherwise.
    pub inner: AtomicU64,
    /// The unwinder of the context's former thread.
    pub kept_unwinder: AtomicPtr<()>,
    /// The stack of the recorder's that its thread or a former one has; 0: none.
    pub kept_stack: AtomicU64,
    /// See [`life`].
    pub life: AtomicU32,
    /// The kernel's thread id.
    pub os_thread: AtomicU32,
    /// Tick of its first event.
    pub started_tick: AtomicU64,
    /// Tick of its end.
    pub ended_tick: AtomicU64,
    /// Name, zero-padded.
    pub name: [AtomicU64; 2],
    /// Counts changes of the name.
    pub name_changes: AtomicU32,
    /// Held while chunks or the unwinder change hands.
    pub chunk_lock: AtomicU32,
    /// The chunk being filled, or [`NO_CHUNK`].
    pub active: AtomicU32,
    /// Chunks in `pinned`.
    pub pinned_len: AtomicU32,
    /// Size class of the thread's next chunk; the writer sets it back when it takes an idle chunk.
    pub class: AtomicU32,
    /// The writer's flushes when the chunk was taken.
    pub taken_at: AtomicU32,
    /// Full chunks that an interrupted event may still write to, oldest first.
    pub pinned: [AtomicU32; PINNED],
    /// Number of the next chunk's first record.
    pub next_record: AtomicU64,
    /// Events dropped since the last `Lost` record.
    pub lost_unreported: AtomicU64,
    /// Events dropped.
    pub lost: AtomicU64,
    /// Times that it waited for a chunk.
    pub waits: AtomicU64,
    /// Nanoseconds that it waited for chunks.
    pub wait_ns: AtomicU64,
    /// The request context of its latest records: see [`tracehound_record::request_context`].
    pub request_context: AtomicU64,
    /// A nested call that was made by the real function itself, not after a jump, as a number of 64 bits: see `nested`.
    pub inner_call: AtomicU64,
    /// How its backtraces were found.
    pub stacks: StackCounters,
}

const _: () = assert!(size_of::<ThreadContext>() <= 384);
const _: () = assert!(core::mem::offset_of!(ThreadContext, parked) == 52);

impl ThreadContext {
    /// Whether a thread may write here.
    pub fn is_in_use(&self) -> bool {
        matches!(self.life.load(Ordering::Acquire), life::LIVE | life::ENDING)
    }

    /// Events of its thread so far, those aside that interrupted another.
    pub fn events(&self) -> u64 {
        // It begins with one.
        (self.state.load(Ordering::Relaxed) / EVENT).saturating_sub(1)
    }

    /// The mode.
    #[inline(always)]
    pub fn mode(&self) -> u64 {
        self.state.load(Ordering::Relaxed) & MODE
    }

    /// The mode, for another thread, which then sees what the owner did before it entered the mode: where its chunk ends, for
    /// one thing.
    pub fn mode_seen(&self) -> u64 {
        self.state.load(order!("mode-seen": Acquire, not Relaxed)) & MODE
    }

    /// Marks the thread busy for a section of the recorder's own; gives the state to restore.
    pub fn enter_internal(&self) -> u64 {
        let state = self.state.load(Ordering::Relaxed);
        if state & MODE == IDLE {
            self.state.store(state | IN_REAL, Ordering::Relaxed);
        }
        state
    }

    /// Locks the chunk fields. The writer holds them of many threads at once for a moment: who waits sleeps, since
    /// thousands that look again and again would keep the processors from the writer.
    pub fn lock_chunks(&self) -> ChunkGuard<'_> {
        const SPINS: u32 = if cfg!(loom) { 1 } else { 64 };
        const WAIT_NS: u64 = 100_000_000;
        let lock = &self.chunk_lock;
        let open = || lock.compare_exchange(UNLOCKED, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok();
        let spin = |_| {
            pause();
            open()
        };
        if !open() && !(0..SPINS).any(spin) {
            while lock.swap(WAITED_FOR, Ordering::Acquire) != UNLOCKED {
                super::sys::futex_wait(lock, WAITED_FOR, WAIT_NS);
            }
        }
        ChunkGuard(self)
    }

    /// Locks the chunk fields, if nobody has them.
    pub fn lock_chunks_if_free(&self) -> Option<ChunkGuard<'_>> {
        let free = self.chunk_lock.compare_exchange(UNLOCKED, LOCKED, Ordering::Acquire, Ordering::Relaxed);
        free.is_ok().then(|| ChunkGuard(self))
    }

    /// Locks the chunk fields, unless somebody has them for more than a few milliseconds.
    pub fn try_lock_chunks(&self) -> Option<ChunkGuard<'_>> {
        for _ in 0..100 {
            if self.chunk_lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return Some(ChunkGuard(self));
            }
            super::sys::sleep(20_000);
        }
        None
    }

    /// Stores a name.
    pub fn set_name(&self, name: [u8; 16]) {
        let (head, tail) = name.split_at(8);
        for (word, bytes) in self.name.iter().zip([head, tail]) {
            let mut value = [0; 8];
            value.copy_from_slice(bytes);
            word.store(u64::from_le_bytes(value), Ordering::Relaxed);
        }
        self.name_changes.fetch_add(1, Ordering::Release);
    }

    /// The name, without padding.
    pub fn get_name(&self) -> Vec<u8> {
        let mut name: Vec<u8> = self.name.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        let len = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        name.truncate(len);
        name
    }
}

/// The chunk fields, locked.
pub struct ChunkGuard<'a>(&'a ThreadContext);

impl Drop for ChunkGuard<'_> {
    fn drop(&mut self) {
        if self.0.chunk_lock.swap(UNLOCKED, Ordering::Release) == WAITED_FOR {
            super::sys::futex_wake(&self.0.chunk_lock, 1);
        }
    }
}
