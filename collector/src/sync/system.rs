//! The system of the model: what `shared::sys` has of waits, clocks, barriers and memory, without a kernel.

use core::sync::atomic::AtomicU32 as RealU32;

use super::atomic::{AtomicU32, Ordering, fence};
use super::model;
use crate::shared::sys::Result;

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

/// There is a barrier.
pub fn barrier_register() -> bool {
    true
}

/// The dear side of [`super::light_barrier`].
pub fn barrier() {
    fence(Ordering::SeqCst);
}

/// Memory of the model is used again in the next execution.
///
/// # Safety
/// As for the real one.
pub unsafe fn unmap(_: *mut u8, _: usize) {}
