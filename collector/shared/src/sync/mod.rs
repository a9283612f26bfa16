//! Synchronisation primitives of everything that threads share: core's atomics, or under `--cfg loom` those of the model
//! checker loom, so that the models of `tests/models.rs` run this very code. See docs/proving.md.

#[cfg(loom)]
pub mod model;
#[cfg(loom)]
pub mod system;

/// Atomics and fences.
#[cfg(not(loom))]
pub mod atomic {
    pub use core::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence,
    };
}

/// Atomics and fences of the model.
#[cfg(loom)]
pub mod atomic {
    pub use super::model::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
    pub use core::sync::atomic::{Ordering, compiler_fence};
    pub use loom::sync::atomic::fence;
}

/// The cheap side of an asymmetric barrier: [`crate::sys::barrier`] on another thread makes it a full one. The
/// model has no such barrier; there both sides are full fences.
#[inline(always)]
pub fn light_barrier() {
    #[cfg(not(loom))]
    atomic::compiler_fence(atomic::Ordering::SeqCst);
    #[cfg(loom)]
    if !model::is_mutant("light-barrier") {
        atomic::fence(atomic::Ordering::SeqCst);
    }
}

/// A pause in a short wait for another thread.
#[inline(always)]
pub fn pause() {
    #[cfg(not(loom))]
    core::hint::spin_loop();
    #[cfg(loom)]
    model::pause();
}

/// Tells the model of memory that threads will share.
pub fn announce<T: ?Sized>(memory: &T) {
    #[cfg(loom)]
    model::region(memory);
    let _ = memory;
}

/// Keeps a value for ever; in the model to the end of the execution.
pub fn keep<T>(value: T) -> &'static T {
    #[cfg(not(loom))]
    return Box::leak(Box::new(value));
    #[cfg(loom)]
    return model::shared(value);
}

/// Tells the model that the calling thread alone uses the memory at `at` now, as if it wrote there.
#[inline(always)]
pub fn assert_exclusive<T>(at: *const T) {
    #[cfg(loom)]
    model::exclusive(at as usize);
    let _ = at;
}

/// Tells the model that the calling thread reads the memory at `at` now, without atomics.
#[inline(always)]
pub fn assert_unwritten<T>(at: *const T) {
    #[cfg(loom)]
    model::read(at as usize);
    let _ = at;
}

/// An ordering that a model proves to be needed: in the model a test may weaken it by its name, and expects a failure.
#[macro_export]
macro_rules! order {
    ($name:literal: $order:ident, not $weak:ident) => {{
        #[cfg(loom)]
        let order = $crate::sync::model::order(
            $name,
            $crate::sync::atomic::Ordering::$order,
            $crate::sync::atomic::Ordering::$weak,
        );
        #[cfg(not(loom))]
        let order = $crate::sync::atomic::Ordering::$order;
        order
    }};
}
pub use crate::order;
