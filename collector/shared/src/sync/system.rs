//! The system of the model: what `shared::sys` has of waits, clocks, barriers and memory, without a kernel.

use core::sync::atomic::AtomicU32 as RealU32;

use super::atomic::{AtomicU32, Ordering, fence};
use super::model;
use crate::sys::Result;

/// Zeroed memory to the end of the execution.
///
/// # Errors
/// None.
pub fn map_memory(bytes: usize) -> Result<*mut u8> {
    Ok(model::memory(bytes))
}

/// A word that somebody waits for.
pub trait Word {
    /// Its value.
    fn value(&self) -> u32;
}

impl Word for AtomicU32 {
    fn value(&self) -> u32 {
        self.load(Ordering::Relaxed)
    }
}

impl Word for RealU32 {
    fn value(&self) -> u32 {
        self.load(Ordering::Relaxed)
    }
}

/// Waits while `*word == expected`; ends whenever it likes, as a futex may.
pub fn futex_wait(word: &impl Word, expected: u32, _: u64) {
    if word.value() == expected {
        model::pause();
    }
}

/// Waits of the model need no waking.
pub fn futex_wake(_: &impl Word, _: i32) {}

/// Lets other threads run.
pub fn sleep(_: u64) {
    model::pause();
}

/// Time of day does not pass.
pub fn clock(_: core::ffi::c_int) -> u64 {
    1
}

/// A time stamp that has not waited for the loads before it: of [`may_run_ahead`], if that was called since the last.
pub fn early_tick() -> u64 {
    match EARLY.with(|early| early.replace(0)) {
        0 => tick(),
        early => early,
    }
}

/// Time stamps: every one is later than those before it, and orders no access to memory.
pub fn tick() -> u64 {
    static TICK: super::atomic::AtomicU64 = super::atomic::AtomicU64::new(0);
    let early = EARLY.with(|early| early.replace(0));
    if early != 0 && model::is_mutant("stamp-ordered") {
        return early;
    }
    // What is stamped later than the stamp behind a barrier has passed that barrier.
    let order = if BEHIND_BARRIER.with(|behind| behind.replace(false)) { Ordering::AcqRel } else { Ordering::Acquire };
    TICK.fetch_add(1, order) + 1
}

loom::thread_local! {
    static EARLY: core::cell::Cell<u64> = core::cell::Cell::new(0);
    static BEHIND_BARRIER: core::cell::Cell<bool> = core::cell::Cell::new(false);
}

/// Before a load that other threads' stores decide: the calling thread's next stamp would be of now, did it not wait for
/// the load.
pub fn may_run_ahead() {
    let now = tick();
    EARLY.with(|early| early.set(now));
}

/// Forked children of the model get no memory but what is copied for them.
///
/// # Safety
/// As for the real one.
pub unsafe fn wipe_in_children(_: *mut u8, _: usize) {}

/// There is a barrier.
pub fn barrier_register() -> bool {
    true
}

/// The dear side of [`super::light_barrier`].
pub fn barrier() {
    fence(Ordering::SeqCst);
    BEHIND_BARRIER.with(|behind| behind.set(true));
}

/// Memory of the model is used again in the next execution.
///
/// # Safety
/// As for the real one.
pub unsafe fn unmap(_: *mut u8, _: usize) {}
