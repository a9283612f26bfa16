//! Tracehound's recorder around a Rust program's global allocator.
//!
//! ```ignore
//! #[global_allocator]
//! static ALLOCATOR: tracehound::Allocator = tracehound::Allocator::system();
//! ```
//! Every allocation, resize and release of the program goes to the allocator inside as before, and into a recording with its
//! time, thread and backtrace where one is asked for: by `heaptrace run`, or by a variable such as `TRACEHOUND_OUTPUT`. Else
//! the recorder sleeps. In a program that has `libtracehound.so` preloaded it keeps out: that library sees more.
//!
//! It is for programs that nothing can be preloaded into, such as those built with `-C target-feature=+crt-static`. Calls of
//! `malloc` by C code in the program are not seen.
//!
//! The recorder is `libtracehound.a`, of the same version as this crate: it is searched in `TRACEHOUND_LIB_DIR` when the crate
//! is built, else in `/usr/local/lib` and `/usr/lib`.

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::c_void;
use std::alloc::System;

/// A global allocator that records each call and passes it to the allocator inside.
pub struct Allocator<A = System> {
    inside: A,
}

impl Allocator {
    /// Wraps the system's allocator.
    #[must_use]
    pub const fn system() -> Self {
        Self::new(System)
    }
}

impl<A> Allocator<A> {
    /// Wraps `inside`.
    #[must_use]
    pub const fn new(inside: A) -> Self {
        Self { inside }
    }
}

/// A call passed through the recorder, which reads the fields down to `zeroed` (`preload/src/allocator.rs`).
#[repr(C)]
struct CallOnTheWay {
    /// Makes the call.
    real: unsafe extern "C-unwind" fn(&CallOnTheWay) -> *mut c_void,
    /// The block that is freed or resized.
    block: *mut c_void,
    /// Bytes of the new block.
    size: usize,
    /// Its alignment.
    align: usize,
    /// 1: the new block is to be zeroed.
    zeroed: usize,
    /// The allocator inside.
    inside: *const c_void,
    /// Bytes of the block that is freed or resized.
    old_size: usize,
}

unsafe extern "C-unwind" {
    fn tracehound_global_alloc(call: &CallOnTheWay) -> *mut c_void;
    fn tracehound_global_realloc(call: &CallOnTheWay) -> *mut c_void;
    fn tracehound_global_dealloc(call: &CallOnTheWay);
}

impl CallOnTheWay {
    /// The allocator inside.
    ///
    /// # Safety
    /// The call must have been made by an [`Allocator`] of this type.
    unsafe fn inside<A>(&self) -> &A {
        // SAFETY: an `Allocator<A>` has made the call, by the contract above, and waits for it to return.
        unsafe { &*self.inside.cast::<A>() }
    }

    /// A layout of the call.
    ///
    /// # Safety
    /// The size must be one of the call's.
    unsafe fn layout(&self, size: usize) -> Layout {
        // SAFETY: taken from a layout, with its alignment.
        unsafe { Layout::from_size_align_unchecked(size, self.align) }
    }
}

unsafe extern "C-unwind" fn real_alloc<A: GlobalAlloc>(call: &CallOnTheWay) -> *mut c_void {
    // SAFETY: what the program has asked the global allocator for, with what it has promised.
    unsafe {
        let (inside, layout) = (call.inside::<A>(), call.layout(call.size));
        if call.zeroed == 1 { inside.alloc_zeroed(layout) } else { inside.alloc(layout) }.cast()
    }
}

unsafe extern "C-unwind" fn real_realloc<A: GlobalAlloc>(call: &CallOnTheWay) -> *mut c_void {
    // SAFETY: what the program has asked the global allocator for, with what it has promised.
    unsafe { call.inside::<A>().realloc(call.block.cast(), call.layout(call.old_size), call.size).cast() }
}

unsafe extern "C-unwind" fn real_dealloc<A: GlobalAlloc>(call: &CallOnTheWay) -> *mut c_void {
    // SAFETY: what the program has asked the global allocator for, with what it has promised.
    unsafe { call.inside::<A>().dealloc(call.block.cast(), call.layout(call.old_size)) };
    core::ptr::null_mut()
}

impl<A: GlobalAlloc> Allocator<A> {
    /// A call without a block.
    fn call(&self, align: usize, real: unsafe extern "C-unwind" fn(&CallOnTheWay) -> *mut c_void) -> CallOnTheWay {
        let inside = (&raw const self.inside).cast();
        CallOnTheWay { real, block: core::ptr::null_mut(), size: 0, align, zeroed: 0, inside, old_size: 0 }
    }
}

// SAFETY: every call reaches the allocator inside exactly once, with the program's arguments, and its result comes back.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Allocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let call = CallOnTheWay { size: layout.size(), ..self.call(layout.align(), real_alloc::<A>) };
        // SAFETY: the recorder makes the call once.
        unsafe { tracehound_global_alloc(&call).cast() }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let call = CallOnTheWay { size: layout.size(), zeroed: 1, ..self.call(layout.align(), real_alloc::<A>) };
        // SAFETY: the recorder makes the call once.
        unsafe { tracehound_global_alloc(&call).cast() }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let call = CallOnTheWay {
            block: block.cast(),
            old_size: layout.size(),
            ..self.call(layout.align(), real_dealloc::<A>)
        };
        // SAFETY: the recorder makes the call once.
        unsafe { tracehound_global_dealloc(&call) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let call = CallOnTheWay {
            block: block.cast(),
            size,
            old_size: layout.size(),
            ..self.call(layout.align(), real_realloc::<A>)
        };
        // SAFETY: the recorder makes the call once.
        unsafe { tracehound_global_realloc(&call).cast() }
    }
}
