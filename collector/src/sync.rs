//! Synchronisation primitives of everything that threads share: core's atomics. One place, so that a model checker's can
//! stand in for them.

/// Atomics and fences.
pub mod atomic {
    pub use core::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence,
    };
}

/// The cheap side of an asymmetric barrier: [`crate::shared::sys::barrier`] on another thread makes it a full one.
#[inline(always)]
pub fn light_barrier() {
    atomic::compiler_fence(atomic::Ordering::SeqCst);
}
