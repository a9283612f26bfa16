//! Calls of allocators that are neither malloc nor free nor realloc: a resize in place whose size is known only
//! afterwards (`xallocx`, `mi_expand`); work on the allocator's metadata; and calls that end by an
//! exception.

use core::ffi::c_void;
use core::sync::atomic::Ordering;

use crate::nested::enter_event;
use crate::publish::{enter, settle};
use crate::record::{REALLOC, publish_realloc, ready};
use tracehound_shared::clock;
use tracehound_shared::gate;
use tracehound_shared::thread::{IDLE, IN_REAL, MODE, STAMPED};
use tracehound_unwind::Caller;

/// Records the new size of `block`, not null, which `real` returns; `None`: its size has not changed.
///
/// # Safety
/// `caller` must be the state of the hooked function's caller.
pub unsafe fn resized(caller: Caller, block: *mut c_void, real: impl FnOnce() -> Option<usize>) {
    // SAFETY: `caller` is the state of the hooked function's caller: the contract of `resized`.
    let Some(entry) = (unsafe { enter_event(caller, STAMPED) }) else {
        real();
        return;
    };
    let before = clock::now_before_free();
    let Some(size) = real() else {
        entry.leave(false);
        return;
    };
    entry.record();
    let tick = clock::now_after_alloc();
    // SAFETY: `caller` is the state of the hooked function's caller: the contract of `resized`.
    if let Some(node) = unsafe { entry.node(caller) } {
        publish_realloc(entry.context, REALLOC, [before, tick], [block, block], node, size, entry.nested);
    }
    entry.leave(true);
}

/// Makes a call in which the allocator calls itself for its own metadata: those allocations and frees are not the
/// program's.
pub fn unrecorded<T>(caller: Caller, real: impl FnOnce() -> T) -> T {
    let Some(context) = ready() else { return real() };
    let state = context.state.load(Ordering::Relaxed);
    context.entry_sp.store(caller.sp, Ordering::Relaxed);
    enter(context, state, IN_REAL);
    let result = real();
    settle(context, state);
    result
}

/// Restores the calling thread's state when an exception ends a call: made before the event begins,
/// [`call`](Self::call)ed inside it.
#[derive(Clone, Copy)]
pub struct Way {
    mode: u64,
    inner: u64,
}

impl Way {
    /// Saves the state of the calling thread.
    #[inline(always)]
    pub fn back() -> Self {
        // SAFETY: contexts stay mapped.
        let context = unsafe { gate::slot().context.get().as_ref() };
        context.map_or(Self { mode: IDLE, inner: IDLE }, |context| Self {
            mode: context.mode(),
            inner: context.inner.load(Ordering::Relaxed),
        })
    }

    /// Runs `real`, which may end by an exception.
    #[inline(always)]
    pub fn call<T>(self, real: impl FnOnce() -> T) -> T {
        struct Unwound(Way);
        impl Drop for Unwound {
            #[cold]
            fn drop(&mut self) {
                // SAFETY: contexts stay mapped.
                if let Some(context) = unsafe { gate::slot().context.get().as_ref() } {
                    let state = context.state.load(Ordering::Relaxed);
                    context.inner.store(self.0.inner, Ordering::Relaxed);
                    settle(context, state & !MODE | self.0.mode);
                }
            }
        }
        let unwound = Unwound(self);
        let result = real();
        core::mem::forget(unwound);
        result
    }
}
