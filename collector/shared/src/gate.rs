//! The gate that every hooked call passes, and the thread's slot behind it.
//!
//! ```text
//! COLD ──init──▶ RECORDING ◀──start, stop──▶ PASS
//!                │      ▲ ▲ ▲
//!            end │      │ │ └── moved ── MOVING ◀─┐
//!                ▼      │ │                       │ resume, memory moves
//!               HELD ───┘ └────────── ENDED ──────┘
//!                │ gave up  gave up    ▲
//!                └────── written ──────┘
//! ```
//! Who moves it, who waits, and what is recorded when a wait is given up: docs/decisions/0027-quiescence.md.

use crate::sync::atomic::{AtomicU32, Ordering};
use core::cell::Cell;

use super::thread::ThreadContext;

/// Not initialised: the caller must do so first.
pub const COLD: u32 = 0;
/// Calls are recorded.
pub const RECORDING: u32 = 1;
/// Calls go straight to the real function.
pub const PASS: u32 = 2;
/// The recording is about to end: threads that are not exempt wait at their next event, each for at most [`LEASE_NS`].
pub const HELD: u32 = 3;
/// It has ended in an orderly way, and the process is about to be gone: threads wait as before.
pub const ENDED: u32 = 4;
/// It goes on after all, and its memory changes places: threads wait for that, which takes no disk.
pub const MOVING: u32 = 5;

/// How long a thread waits at most at a gate that is held or ended: it may have a lock of the program that others need.
pub const LEASE_NS: u64 = 2_000_000_000;

// The gate is read before the library is relocated, when another object's IFUNC resolver allocates: its address must not
// come from the table that relocation fills in, as that of a Rust static of another crate does.
core::arch::global_asm!(
    ".section .bss.tracehound_gate,\"aw\",@nobits",
    ".hidden tracehound_gate",
    ".globl tracehound_gate",
    ".type tracehound_gate,@object",
    ".size tracehound_gate, 64",
    ".p2align 6",
    "tracehound_gate:",
    ".zero 64",
    ".text",
);

unsafe extern "C" {
    #[link_name = "tracehound_gate"]
    static GATE: AtomicU32;
}

fn gate() -> &'static AtomicU32 {
    // SAFETY: defined above, aligned, and accessed as an atomic only.
    unsafe { &GATE }
}

/// The gate's state. Readable before the library is relocated.
#[cfg(all(target_arch = "x86_64", not(loom)))]
#[inline(always)]
pub fn state() -> u32 {
    let state;
    // SAFETY: an aligned load of the word defined above.
    unsafe {
        core::arch::asm!("mov {0:e}, dword ptr [rip + tracehound_gate]", out(reg) state, options(readonly, nostack, preserves_flags));
    }
    state
}

/// The gate's state. Readable before the library is relocated.
#[cfg(all(target_arch = "aarch64", not(loom)))]
#[inline(always)]
pub fn state() -> u32 {
    let state;
    // SAFETY: an aligned load of the word defined above.
    unsafe {
        core::arch::asm!(
            "adrp {1}, tracehound_gate",
            "ldr {0:w}, [{1}, :lo12:tracehound_gate]",
            out(reg) state,
            out(reg) _,
            options(readonly, nostack, preserves_flags),
        );
    }
    state
}

/// The gate's state.
#[cfg(loom)]
pub fn state() -> u32 {
    gate().load(Ordering::Relaxed)
}

/// Sets the gate's state.
pub fn set(state: u32) {
    gate().store(state, Ordering::SeqCst);
    super::sys::futex_wake(gate(), i32::MAX);
}

/// Changes the gate's state to `to` if it is `from`; returns whether it was.
pub fn change(from: u32, to: u32) -> bool {
    let done = gate().compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok();
    super::sys::futex_wake(gate(), i32::MAX);
    done
}

/// Threads that wait at the gate, or have passed it and are not known to the session yet.
static COMPANY: AtomicU32 = AtomicU32::new(0);

/// Counts the forks above this process: a thread that a signal handler forks is counted in the parent alone.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// A thread that [`has_company`] counts until this value is dropped.
pub struct Company(u32);

impl Company {
    /// Counts the calling thread.
    pub fn join() -> Self {
        // A signal handler that forks between the two lines leaves the child's count one too high. An early end of
        // the recording there waits until its time is over.
        let generation = GENERATION.load(Ordering::SeqCst);
        COMPANY.fetch_add(1, Ordering::SeqCst);
        Self(generation)
    }
}

impl Drop for Company {
    fn drop(&mut self) {
        if GENERATION.load(Ordering::SeqCst) == self.0 {
            COMPANY.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Whether any thread waits at the gate, or has passed it and is not known to the session yet.
pub fn has_company() -> bool {
    COMPANY.load(Ordering::SeqCst) != 0
}

/// In a forked child: resets the count, since the counted threads exist in the parent only.
pub fn forget_company() {
    GENERATION.fetch_add(1, Ordering::SeqCst);
    COMPANY.store(0, Ordering::SeqCst);
}

/// Whether threads that are not exempt wait.
pub fn is_held(state: u32) -> bool {
    matches!(state, HELD | ENDED | MOVING)
}

/// Waits until the gate's state is no longer `state`, at most `nanos`.
pub fn wait(state: u32, nanos: u64) {
    super::sys::futex_wait(gate(), state, nanos);
}

/// Waits while the gate is held. A thread whose lease is over lets recording continue, and the recording reports it:
/// events that complete from then on are recorded.
#[cold]
pub fn wait_while_held() {
    let _company = Company::join();
    let now = || super::sys::clock(libc::CLOCK_MONOTONIC);
    let started = now();
    loop {
        let seen = state();
        if !is_held(seen) {
            return;
        }
        let waited = now().saturating_sub(started);
        if waited < LEASE_NS || seen == MOVING {
            wait(seen, LEASE_NS.saturating_sub(waited).clamp(1_000_000, 100_000_000));
        } else if change(seen, RECORDING)
            && let Some(session) = super::session::current()
        {
            session.give_up("hold", waited, 0, false);
            if seen == ENDED {
                session.go_on();
            }
        }
    }
}

/// What a thread keeps in thread-local storage; all zero in a new thread, but for `magic`.
#[repr(C)]
pub struct ThreadGate {
    /// The thread's context; null before its first event and after its end.
    pub context: Cell<*mut ThreadContext>,
    /// Depth of sections whose allocations are the recorder's own.
    pub internal: Cell<u32>,
    /// This thread passes a held gate: it is the one that ends the recording.
    pub exempt: Cell<u32>,
    /// The pthread destructor has been armed for this thread.
    pub armed: Cell<u32>,
    /// Rounds of pthread destructors seen.
    pub rounds: Cell<u32>,
    /// [`MAGIC`] once the loader has initialised thread-local storage, which it does after relocation.
    magic: u64,
    /// The thread's own stack, as far as it is known to be there; 0: not looked at yet.
    pub stack_low: Cell<u64>,
    /// Its upper end.
    pub stack_high: Cell<u64>,
    /// What is known not to be there below it; 0: unknown.
    pub stack_floor: Cell<u64>,
    /// The thread's alternate signal stack.
    pub signal_stack_low: Cell<u64>,
    /// Its upper end.
    pub signal_stack_high: Cell<u64>,
    /// A stack of the recorder's for the thread; 0: none yet.
    pub stack_of_ours: Cell<u64>,
    /// The tick of the fork that this thread is in the middle of, whose child will be followed; 0: none.
    pub fork_tick: Cell<u64>,
    /// A signal handler forks in the middle of an event of this thread.
    pub fork_in_event: Cell<u32>,
    /// Events of signal handlers in the child of that fork, before it was ready to record them.
    pub fork_missed: Cell<u32>,
    /// The ticks before and after it, in the parent.
    pub forked_ticks: [Cell<u64>; 2],
    /// The thread calls `daemon`, whose fork is to end the recording: see [`fork_ends`].
    pub fork_ends: Cell<u32>,
    /// The block that Python's allocator is about to free or to move, as [`short_address`] has it, with [`PYTHON_FREES`]
    /// where it is freed; 0: none.
    pub freed_by_python: Cell<u32>,
    /// The request context that the thread is in, 0 = none: see [`tracehound_record::request_context`].
    pub request_context: Cell<u64>,
}

/// Beside a [`short_address`]: the block is freed, and not moved. Whatever is allocated in such a call is no part of a block.
pub const PYTHON_FREES: u32 = 1 << 31;

/// An address of a block in 31 bits, never 0: two blocks that lie less than 16 GiB apart have two.
#[must_use]
pub fn short_address(block: usize) -> u32 {
    (block >> 3) as u32 & !PYTHON_FREES | 1
}

/// Values of [`ThreadGate::fork_ends`].
pub mod fork_ends {
    /// It forks as usual.
    pub const NO: u32 = 0;
    /// The recording ends right before the fork.
    pub const WANTED: u32 = 1;
    /// It has ended.
    pub const DONE: u32 = 2;
}

/// See [`ThreadGate::is_initialised`].
const MAGIC: u64 = 0x7472_6163_6568_6e64;

const _: () = assert!(size_of::<ThreadGate>() == 128 && core::mem::offset_of!(ThreadGate, magic) == 24);

impl ThreadGate {
    /// Whether the loader has initialised thread-local storage.
    pub fn is_initialised(&self) -> bool {
        self.magic == MAGIC
    }
}

// Initial-exec storage: an offset from the thread pointer, no call of `__tls_get_addr`, nothing allocated lazily.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".section .tdata,\"awT\",@progbits",
    ".hidden tracehound_thread_slot",
    ".globl tracehound_thread_slot",
    ".type tracehound_thread_slot,@object",
    ".size tracehound_thread_slot, 128",
    ".p2align 6",
    "tracehound_thread_slot:",
    ".zero 24",
    ".quad 0x7472616365686e64",
    ".zero 96",
    ".text",
);

/// The calling thread's slot. The library must be relocated.
#[cfg(all(target_arch = "x86_64", not(loom)))]
#[inline(always)]
pub fn slot() -> &'static ThreadGate {
    let slot: *const ThreadGate;
    // SAFETY: reads the offset that the loader has filled in and adds the thread pointer.
    unsafe {
        core::arch::asm!(
            "mov {0}, qword ptr [rip + tracehound_thread_slot@GOTTPOFF]",
            "add {0}, qword ptr fs:[0]",
            out(reg) slot,
            options(pure, readonly, nostack),
        );
        // The slot lives as long as the thread, and no reference leaves it.
        &*slot
    }
}

// glibc there takes no library with a larger alignment into a process that runs already.
#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".section .tdata,\"awT\",@progbits",
    ".hidden tracehound_thread_slot",
    ".globl tracehound_thread_slot",
    ".type tracehound_thread_slot,@object",
    ".size tracehound_thread_slot, 128",
    ".p2align 5",
    "tracehound_thread_slot:",
    ".zero 24",
    ".quad 0x7472616365686e64",
    ".zero 96",
    ".text",
);

/// The calling thread's slot. The library must be relocated.
#[cfg(all(target_arch = "aarch64", not(loom)))]
#[inline(always)]
pub fn slot() -> &'static ThreadGate {
    let slot: *const ThreadGate;
    // SAFETY: reads the offset that the loader has filled in and adds the thread pointer.
    unsafe {
        core::arch::asm!(
            "mrs {1}, tpidr_el0",
            "adrp {0}, :gottprel:tracehound_thread_slot",
            "ldr {0}, [{0}, :gottprel_lo12:tracehound_thread_slot]",
            "add {0}, {0}, {1}",
            out(reg) slot,
            out(reg) _,
            options(pure, readonly, nostack),
        );
        &*slot
    }
}

/// The calling thread's slot.
#[cfg(loom)]
pub fn slot() -> &'static ThreadGate {
    // SAFETY: cells of numbers and null pointers, for which zeros are valid.
    crate::sync::model::of_thread(|| unsafe { core::mem::zeroed::<ThreadGate>() })
}

/// A section whose allocations are the recorder's own: they are served apart and not recorded.
pub struct Internal {
    before: Option<(&'static ThreadContext, u64)>,
}

impl Internal {
    /// Begins the section on the calling thread.
    pub fn enter() -> Self {
        let slot = slot();
        slot.internal.set(slot.internal.get() + 1);
        // SAFETY: a thread's context stays mapped.
        let context = unsafe { slot.context.get().as_ref() };
        Self { before: context.map(|context| (context, context.enter_internal())) }
    }
}

impl Drop for Internal {
    fn drop(&mut self) {
        let slot = slot();
        if let Some((context, state)) = self.before.take()
            && core::ptr::eq(slot.context.get(), context)
        {
            context.state.store(state, Ordering::Relaxed);
        }
        slot.internal.set(slot.internal.get().saturating_sub(1));
    }
}

/// Whether the calling thread is in a section of the recorder's own.
#[inline]
pub fn is_internal() -> bool {
    slot().internal.get() != 0
}
