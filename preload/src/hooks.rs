//! The hooks of the malloc family: `malloc`, `free`, `realloc` and the others.

use core::ffi::{c_int, c_void};

use tracehound_format::record::Kind;
use tracehound_record::nested;
use tracehound_record::record::{self, REALLOC, REALLOCARRAY, ReallocKinds};
use tracehound_shared::gate;
use tracehound_shared::thread::ThreadContext;
use tracehound_unwind::Caller;

use crate::arena;
use crate::entry::{caller, hook};
use crate::next;
use crate::start;

type Ptr = *mut c_void;

hook!(gated malloc, 1, malloc_body, malloc_off);
hook!(gated calloc, 2, calloc_body, calloc_off);
hook!(gated realloc, 2, realloc_body, realloc_off);
hook!(reallocarray, 3, reallocarray_body);
hook!(gated free, 1, free_body, free_off);
hook!(cfree, 1, cfree_body);
hook!(free_sized, 2, free_sized_body);
hook!(free_aligned_sized, 3, free_aligned_sized_body);
hook!(posix_memalign, 3, posix_memalign_body);
hook!(aligned_alloc, 2, aligned_alloc_body);
hook!(memalign, 2, memalign_body);
hook!(valloc, 1, valloc_body);
hook!(pvalloc, 1, pvalloc_body);

// The four that are called all the time have a body each for when nothing is recorded. It jumps on, so that a call which
// passes through saves no register and takes no stack.

unsafe extern "C-unwind" fn malloc_body(size: usize, stack: u64, frame: u64) -> Ptr {
    // SAFETY: the hook alone calls this, with the caller's state and the program's arguments. The gate was found open,
    // by the hook or by `is_off`.
    unsafe {
        #[cfg(not(target_arch = "x86_64"))]
        if record::is_off() {
            return malloc_off(size, stack, frame);
        }
        let caller = caller(stack, frame);
        if let Some(context) = record::ready_behind_gate() {
            return record::alloc(context, caller, Kind::Malloc, size, || real_malloc(size));
        }
        slow_alloc(caller, Kind::Malloc, size, 16, || real_malloc(size))
    }
}

#[cold]
#[inline(never)]
unsafe extern "C-unwind" fn malloc_off(size: usize, stack: u64, frame: u64) -> Ptr {
    // SAFETY: the hook or `malloc_body` alone calls this, with the caller's state and the program's arguments.
    unsafe { if record::passes() { real_malloc(size) } else { malloc_slowly(size, stack, frame) } }
}

#[cold]
#[inline(never)]
unsafe extern "C-unwind" fn malloc_slowly(size: usize, stack: u64, frame: u64) -> Ptr {
    // SAFETY: `malloc_off` alone calls this, with the caller's state and the program's arguments.
    unsafe { slow_alloc(caller(stack, frame), Kind::Malloc, size, 16, || real_malloc(size)) }
}

unsafe extern "C-unwind" fn calloc_body(count: usize, size: usize, stack: u64, frame: u64) -> Ptr {
    // SAFETY: the hook alone calls this, with the caller's state and the program's arguments. The gate was found open,
    // by the hook or by `is_off`. Should the product overflow, the real function fails and nothing is recorded.
    unsafe {
        #[cfg(not(target_arch = "x86_64"))]
        if record::is_off() {
            return calloc_off(count, size, stack, frame);
        }
        let caller = caller(stack, frame);
        let real = || real_calloc(count, size);
        if let Some(context) = record::ready_behind_gate() {
            return record::alloc(context, caller, Kind::Calloc, count.wrapping_mul(size), real);
        }
        slow_calloc(caller, count, size)
    }
}

#[cold]
#[inline(never)]
unsafe extern "C-unwind" fn calloc_off(count: usize, size: usize, stack: u64, frame: u64) -> Ptr {
    // SAFETY: the hook or `calloc_body` alone calls this, with the caller's state and the program's arguments.
    unsafe { if record::passes() { real_calloc(count, size) } else { calloc_slowly(count, size, stack, frame) } }
}

#[cold]
#[inline(never)]
unsafe extern "C-unwind" fn calloc_slowly(count: usize, size: usize, stack: u64, frame: u64) -> Ptr {
    // SAFETY: `calloc_off` alone calls this, with the caller's state and the program's arguments.
    unsafe { slow_calloc(caller(stack, frame), count, size) }
}

#[cold]
#[inline(never)]
unsafe fn slow_calloc(caller: Caller, count: usize, size: usize) -> Ptr {
    // SAFETY: both callers pass the state of the hooked function's caller, and the program's arguments.
    unsafe {
        let (bytes, real) = (count.wrapping_mul(size), || real_calloc(count, size));
        let arena_bytes = count.saturating_mul(size);
        if arena_bytes == usize::MAX {
            slow_alloc(caller, Kind::Calloc, arena_bytes, 16, real)
        } else {
            slow_alloc(caller, Kind::Calloc, bytes, 16, real)
        }
    }
}

unsafe extern "C-unwind" fn aligned_alloc_body(align: usize, size: usize, stack: u64, frame: u64) -> Ptr {
    // SAFETY: the hook alone calls this, with the caller's state and the program's arguments; `ready` gives the calling
    // thread's context, in no event.
    unsafe {
        let caller = caller(stack, frame);
        let real = || next::aligned_alloc().map_or(core::ptr::null_mut(), |function| function(align, size));
        if let Some(context) = record::ready() {
            return record::alloc_aligned(context, caller, Kind::AlignedAlloc, size, align, real);
        }
        slow_alloc(caller, Kind::AlignedAlloc, size, align, real)
    }
}

unsafe extern "C-unwind" fn memalign_body(align: usize, size: usize, stack: u64, frame: u64) -> Ptr {
    // SAFETY: the hook alone calls this, with the caller's state and the program's arguments; `ready` gives the calling
    // thread's context, in no event.
    unsafe {
        let caller = caller(stack, frame);
        let real = || next::memalign().map_or(core::ptr::null_mut(), |function| function(align, size));
        if let Some(context) = record::ready() {
            return record::alloc_aligned(context, caller, Kind::Memalign, size, align, real);
        }
        slow_alloc(caller, Kind::Memalign, size, align, real)
    }
}

unsafe extern "C-unwind" fn valloc_body(size: usize, stack: u64, frame: u64) -> Ptr {
    // SAFETY: the hook alone calls this, with the caller's state and the program's arguments; `ready` gives the calling
    // thread's context, in no event.
    unsafe {
        let caller = caller(stack, frame);
        let real = || next::valloc().map_or(core::ptr::null_mut(), |function| function(size));
        if let Some(context) = record::ready() {
            return record::alloc_aligned(context, caller, Kind::Valloc, size, 4096, real);
        }
        slow_alloc(caller, Kind::Valloc, size, 4096, real)
    }
}

unsafe extern "C-unwind" fn pvalloc_body(size: usize, stack: u64, frame: u64) -> Ptr {
    // SAFETY: the hook alone calls this, with the caller's state and the program's arguments; `ready` gives the calling
    // thread's context, in no event.
    unsafe {
        let caller = caller(stack, frame);
        let real = || next::pvalloc().map_or(core::ptr::null_mut(), |function| function(size));
        if let Some(context) = record::ready() {
            return record::alloc_aligned(context, caller, Kind::Pvalloc, size, 4096, real);
        }
        slow_alloc(caller, Kind::Pvalloc, size, 4096, real)
    }
}

unsafe extern "C-unwind" fn posix_memalign_body(
    out: *mut Ptr,
    align: usize,
    size: usize,
    stack: u64,
    frame: u64,
) -> c_int {
    let mut result = libc::ENOMEM;
    // SAFETY: the hook alone calls this, with the caller's state and the program's arguments; `ready` gives the calling
    // thread's context, in no event. `out` is written only on success, where the real function would write too.
    unsafe {
        let caller = caller(stack, frame);
        let real = || {
            let Some(function) = next::posix_memalign() else { return core::ptr::null_mut() };
            let mut block = core::ptr::null_mut();
            result = function(&raw mut block, align, size);
            if result == 0 { block } else { core::ptr::null_mut() }
        };
        let block = match record::ready() {
            Some(context) => record::alloc_aligned(context, caller, Kind::PosixMemalign, size, align, real),
            None => slow_alloc(caller, Kind::PosixMemalign, size, align, real),
        };
        if arena::holds(block) {
            result = 0;
        }
        if result == 0 {
            *out = block;
        }
    }
    result
}

unsafe extern "C-unwind" fn realloc_body(old: Ptr, size: usize, stack: u64, frame: u64) -> Ptr {
    // SAFETY: the hook alone calls this, with the caller's state and the program's arguments. The gate was found open,
    // by the hook or by `is_off`.
    unsafe {
        #[cfg(not(target_arch = "x86_64"))]
        if record::is_off() {
            return realloc_off(old, size, stack, frame);
        }
        resize(|| record::ready_behind_gate(), caller(stack, frame), REALLOC, old, size, || real_realloc(old, size))
    }
}

#[cold]
#[inline(never)]
unsafe extern "C-unwind" fn realloc_off(old: Ptr, size: usize, stack: u64, frame: u64) -> Ptr {
    // SAFETY: the hook or `realloc_body` alone calls this, with the caller's state and the program's arguments; no
    // block of the arena goes to the real function.
    unsafe {
        let passes = record::passes() && !arena::holds(old);
        if passes { real_realloc(old, size) } else { realloc_slowly(old, size, stack, frame) }
    }
}

#[cold]
#[inline(never)]
unsafe extern "C-unwind" fn realloc_slowly(old: Ptr, size: usize, stack: u64, frame: u64) -> Ptr {
    // SAFETY: `realloc_off` alone calls this, with the caller's state and the program's arguments.
    unsafe { resize(|| None, caller(stack, frame), REALLOC, old, size, || real_realloc(old, size)) }
}

unsafe extern "C-unwind" fn reallocarray_body(old: Ptr, count: usize, size: usize, stack: u64, frame: u64) -> Ptr {
    // SAFETY: the hook alone calls this, with the caller's state and the program's arguments.
    unsafe {
        let caller = caller(stack, frame);
        let Some(bytes) = count.checked_mul(size) else {
            start::set_errno(libc::ENOMEM);
            return core::ptr::null_mut();
        };
        let real = || match (next::reallocarray(), next::realloc()) {
            (Some(function), _) => function(old, count, size),
            (None, Some(function)) => function(old, bytes),
            (None, None) => core::ptr::null_mut(),
        };
        resize(record::ready, caller, REALLOCARRAY, old, bytes, real)
    }
}

#[inline(always)]
unsafe fn resize(
    ready: impl FnOnce() -> Option<&'static ThreadContext>,
    caller: Caller,
    kinds: ReallocKinds,
    old: Ptr,
    size: usize,
    mut real: impl FnMut() -> Ptr,
) -> Ptr {
    // SAFETY: every caller passes the state of the hooked function's caller; `ready` gives the calling thread's
    // context, in no event.
    unsafe {
        if let Some(context) = ready().filter(|_| !arena::holds(old)) {
            if old.is_null() {
                return record::alloc(context, caller, kinds.new, size, real);
            }
            return record::realloc(context, caller, kinds, old, size, real);
        }
        if old.is_null() {
            return slow_alloc(caller, kinds.new, size, 16, real);
        }
        slow_resize(caller, kinds, old, size, &mut real)
    }
}

unsafe extern "C-unwind" fn free_body(block: Ptr, stack: u64, frame: u64) {
    // SAFETY: the hook alone calls this, with the caller's state and the program's arguments. The gate was found open,
    // by the hook or by `is_off`.
    unsafe {
        #[cfg(not(target_arch = "x86_64"))]
        if record::is_off() {
            return free_off(block, stack, frame);
        }
        release(|| record::ready_behind_gate(), caller(stack, frame), Kind::Free, block, || real_free(block))
    }
}

#[cold]
#[inline(never)]
unsafe extern "C-unwind" fn free_off(block: Ptr, stack: u64, frame: u64) {
    // SAFETY: the hook or `free_body` alone calls this, with the caller's state and the program's arguments; no block
    // of the arena goes to the real function.
    unsafe {
        let passes = record::passes() && !arena::holds(block);
        if passes { real_free(block) } else { free_slowly(block, stack, frame) }
    }
}

#[cold]
#[inline(never)]
unsafe extern "C-unwind" fn free_slowly(block: Ptr, stack: u64, frame: u64) {
    // SAFETY: `free_off` alone calls this, with the caller's state and the program's arguments.
    unsafe { release(|| None, caller(stack, frame), Kind::Free, block, || real_free(block)) }
}

unsafe extern "C-unwind" fn cfree_body(block: Ptr, stack: u64, frame: u64) {
    // SAFETY: the hook alone calls this, with the caller's state and the program's arguments. libc's own `cfree` was
    // `free`, and is gone.
    unsafe { release(record::ready, caller(stack, frame), Kind::Cfree, block, || real_free(block)) }
}

unsafe extern "C-unwind" fn free_sized_body(block: Ptr, _: usize, stack: u64, frame: u64) {
    // SAFETY: the hook alone calls this, with the caller's state and the program's arguments. C23: equivalent to
    // `free(block)`.
    unsafe { release(record::ready, caller(stack, frame), Kind::FreeSized, block, || real_free(block)) }
}

unsafe extern "C-unwind" fn free_aligned_sized_body(block: Ptr, _: usize, _: usize, stack: u64, frame: u64) {
    // SAFETY: the hook alone calls this, with the caller's state and the program's arguments. C23: equivalent to
    // `free(block)`.
    unsafe { release(record::ready, caller(stack, frame), Kind::FreeAlignedSized, block, || real_free(block)) }
}

#[inline(always)]
unsafe fn release(
    ready: impl FnOnce() -> Option<&'static ThreadContext>,
    caller: Caller,
    kind: Kind,
    block: Ptr,
    mut real: impl FnMut(),
) {
    if block.is_null() {
        return;
    }
    // SAFETY: every caller passes the state of the hooked function's caller; `ready` gives the calling thread's
    // context, in no event.
    unsafe {
        if let Some(context) = ready().filter(|_| !arena::holds(block)) {
            return record::free(context, caller, kind, block, real);
        }
        slow_release(caller, kind, block, &mut real);
    }
}

/// How many bytes a block has room for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn malloc_usable_size(block: *mut c_void) -> usize {
    if arena::holds(block) {
        // SAFETY: a block of the arena.
        return unsafe { arena::describe(block) }.0;
    }
    if start::is_loaded() && !gate::is_internal() {
        start::ensure();
    }
    // SAFETY: the program's argument.
    unsafe { next::malloc_usable_size().map_or(0, |function| function(block)) }
}

#[inline(always)]
unsafe fn real_malloc(size: usize) -> Ptr {
    // SAFETY: the program's argument.
    unsafe { next::malloc().map_or(core::ptr::null_mut(), |function| function(size)) }
}

#[inline(always)]
unsafe fn real_calloc(count: usize, size: usize) -> Ptr {
    // SAFETY: the program's arguments.
    unsafe { next::calloc().map_or(core::ptr::null_mut(), |function| function(count, size)) }
}

#[inline(always)]
unsafe fn real_realloc(old: Ptr, size: usize) -> Ptr {
    // SAFETY: the program's arguments.
    unsafe { next::realloc().map_or(core::ptr::null_mut(), |function| function(old, size)) }
}

#[inline(always)]
unsafe fn real_free(block: Ptr) {
    if let Some(function) = next::free() {
        // SAFETY: the program's argument.
        unsafe { function(block) }
    }
}

/// An allocation off the fast path: before the library is up, on the recorder's behalf, a thread's first, or nested.
#[cold]
#[inline(never)]
unsafe fn slow_alloc(caller: Caller, kind: Kind, size: usize, align: usize, mut real: impl FnMut() -> Ptr) -> Ptr {
    #[cfg(linked)]
    if start::is_too_early() {
        return real();
    }
    if record::passes() {
        return real();
    }
    if !start::is_loaded() {
        return arena::take(size, align, arena::PROGRAM);
    }
    if gate::is_internal() {
        // What libc takes for us in a process that runs already, it may free when the hooks are gone.
        let block = if start::is_late() { real() } else { arena::take(size, align, arena::OWN) };
        // A full arena is no reason to fail.
        return if block.is_null() && !start::is_late() && next::malloc().is_some() { real() } else { block };
    }
    if !start::ensure() {
        return arena::take(size, align, arena::PROGRAM);
    }
    start::record_early_blocks();
    start::arm();
    // SAFETY: `caller` is the state of the hooked function's caller, as every caller passes it: the contract of
    // `alloc_aligned`.
    unsafe { nested::alloc_aligned(caller, kind, size, align, &mut real) }
}

#[cold]
#[inline(never)]
unsafe fn slow_resize(
    caller: Caller,
    kinds: ReallocKinds,
    old: Ptr,
    size: usize,
    real: &mut dyn FnMut() -> Ptr,
) -> Ptr {
    if record::passes() && !arena::holds(old) {
        return real();
    }
    if arena::holds(old) {
        // SAFETY: a block of the arena.
        let (old_size, owner) = unsafe { arena::describe(old) };
        let mut moved = || {
            let block = if !start::is_loaded() || gate::is_internal() || next::malloc().is_none() {
                arena::take(size, 16, owner)
            } else {
                // SAFETY: the program's argument.
                unsafe { real_malloc(size) }
            };
            if !block.is_null() {
                // SAFETY: both blocks have at least this many bytes.
                unsafe { core::ptr::copy_nonoverlapping(old.cast::<u8>(), block.cast::<u8>(), old_size.min(size)) };
            }
            block
        };
        if owner == arena::OWN || !start::is_loaded() || gate::is_internal() || !start::ensure() {
            return moved();
        }
        if size == 0 {
            // SAFETY: `caller` is the state of the hooked function's caller, as every caller passes it: the contract of
            // `free`.
            unsafe { nested::free(caller, Kind::ReallocFree, old, &mut || {}) };
            return core::ptr::null_mut();
        }
        start::record_early_blocks();
        // SAFETY: `caller` is the state of the hooked function's caller, as every caller passes it: the contract of
        // `realloc`.
        return unsafe { nested::realloc(caller, kinds, old, size, &mut moved) };
    }
    if start::is_loaded() && !gate::is_internal() && start::ensure() {
        start::arm();
        // SAFETY: `caller` is the state of the hooked function's caller, as every caller passes it: the contract of
        // `realloc`.
        return unsafe { nested::realloc(caller, kinds, old, size, real) };
    }
    real()
}

#[cold]
#[inline(never)]
unsafe fn slow_release(caller: Caller, kind: Kind, block: Ptr, real: &mut dyn FnMut()) {
    let in_arena = arena::holds(block);
    if record::passes() && !in_arena {
        return real();
    }
    if !start::is_loaded() || gate::is_internal() || !start::ensure() {
        if !in_arena {
            real();
        }
        return;
    }
    if in_arena {
        // SAFETY: a block of the arena.
        if unsafe { arena::describe(block) }.1 == arena::PROGRAM {
            start::record_early_blocks();
            // SAFETY: `caller` is the state of the hooked function's caller, as every caller passes it: the contract of
            // `free`.
            unsafe { nested::free(caller, kind, block, &mut || {}) };
        }
        return;
    }
    start::arm();
    // SAFETY: `caller` is the state of the hooked function's caller, as every caller passes it: the contract of `free`.
    unsafe { nested::free(caller, kind, block, real) }
}
