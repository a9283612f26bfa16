//! Bodies of the hooks of an allocator inside the program: the real function runs and the event is
//! recorded around it, as for the hooks of the C library's functions.
//!
//! Allocators call themselves: `mi_realloc` calls `mi_malloc`, a thread's end calls `mi_free` for the allocator's own
//! metadata. A call from the allocator's own code is passed through unrecorded. An indirect one, inside a call that is
//! being recorded, is recognised by the thread's state (see `collector/record/src/nested.rs`).

use core::ffi::{c_char, c_int, c_void};
use core::ops::Range;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use tracehound_format::allocators::{AllocatorFunction, CallShape};
use tracehound_format::record::Kind;
use tracehound_record::nested;
use tracehound_record::other_calls::{self, Way};
use tracehound_record::record::{self, REALLOC, REALLOCARRAY, ReallocKinds};
use tracehound_shared::gate;
use tracehound_shared::thread::IDLE;
use tracehound_unwind::Caller;

use super::entry::{EntryTarget, NARROW_ARGUMENTS};
use crate::entry::caller;
use crate::start;

type Ptr = *mut c_void;

/// Ranges of code from which allocators call themselves, sorted.
static INSIDE: AtomicPtr<(u64, u64)> = AtomicPtr::new(core::ptr::null_mut());
static INSIDE_COUNT: AtomicUsize = AtomicUsize::new(0);
/// Where the first of them begins, and how many bytes behind it the last one ends.
static INSIDE_START: AtomicU64 = AtomicU64::new(0);
static INSIDE_SPAN: AtomicU64 = AtomicU64::new(0);

/// This library.
static OWN_START: AtomicU64 = AtomicU64::new(0);
static OWN_SPAN: AtomicU64 = AtomicU64::new(0);

/// Makes calls from these ranges go straight on; `own` is where this library is. The ranges must be sorted and not
/// overlap. May be called once.
pub fn set_inside(ranges: Vec<(u64, u64)>, own: Range<u64>) {
    OWN_START.store(own.start, Ordering::Relaxed);
    OWN_SPAN.store(own.end - own.start, Ordering::Relaxed);
    let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else { return };
    INSIDE_START.store(first.0, Ordering::Relaxed);
    INSIDE_SPAN.store(last.1 - first.0, Ordering::Relaxed);
    INSIDE_COUNT.store(ranges.len(), Ordering::Relaxed);
    INSIDE.store(Box::leak(ranges.into_boxed_slice()).as_mut_ptr(), Ordering::Release);
}

/// Whether the code that a call returns to is an allocator's.
#[inline(always)]
pub fn is_inside(pc: u64) -> bool {
    pc.wrapping_sub(INSIDE_START.load(Ordering::Relaxed)) <= INSIDE_SPAN.load(Ordering::Relaxed) && is_in_a_range(pc)
}

#[cold]
fn is_in_a_range(pc: u64) -> bool {
    let ranges = INSIDE.load(Ordering::Acquire);
    if ranges.is_null() {
        return false;
    }
    // SAFETY: a leaked slice of this length.
    let ranges = unsafe { core::slice::from_raw_parts(ranges, INSIDE_COUNT.load(Ordering::Relaxed)) };
    // A return address may lie right behind a call that ends its function.
    let after = ranges.partition_point(|(start, _)| *start < pc);
    after.checked_sub(1).and_then(|at| ranges.get(at)).is_some_and(|(_, end)| pc <= *end)
}

/// Address of the body for a function; its slot's entry leads there.
pub fn body_of(function: &AllocatorFunction) -> Option<usize> {
    let narrow = function.arguments <= NARROW_ARGUMENTS;
    macro_rules! choose {
        ($narrow:ident, $wide:ident, $at:expr) => {
            match ($at, narrow) {
                (0, true) => $narrow::<0> as *const () as usize,
                (1, true) => $narrow::<1> as *const () as usize,
                (0, false) => $wide::<0> as *const () as usize,
                (1, false) => $wide::<1> as *const () as usize,
                _ => return None,
            }
        };
    }
    Some(match function.shape {
        CallShape::Alloc(at) => choose!(alloc, alloc_wide, at),
        CallShape::AllocOfProduct(at) => choose!(alloc_of_product, alloc_of_product_wide, at),
        CallShape::Copy(at) => choose!(copy, copy_wide, at),
        CallShape::CopyAtMost(at) => choose!(copy_at_most, copy_at_most_wide, at),
        CallShape::PosixMemalign => choose!(posix_memalign, posix_memalign_wide, 0),
        CallShape::Resize(at) => choose!(resize, resize_wide, at),
        CallShape::ResizeToProduct(at) => choose!(resize_to_product, resize_to_product_wide, at),
        CallShape::ResizeOrFree(at) => choose!(resize_or_free, resize_or_free_wide, at),
        CallShape::ResizeInPlace => choose!(resize_in_place, resize_in_place_wide, 0),
        CallShape::Expand => choose!(expand, expand_wide, 0),
        CallShape::Free => choose!(free, free_wide, 0),
        CallShape::Books => choose!(books, books_wide, 0),
    })
}

/// Defines a body for narrow and for wide entries: `AT` is the number of the argument that matters.
macro_rules! body {
    ($narrow:ident, $wide:ident, $work:ident) => {
        unsafe extern "C-unwind" fn $narrow<const AT: usize>(
            a: usize,
            b: usize,
            c: usize,
            slot: &'static EntryTarget,
            stack: u64,
            frame: u64,
        ) -> usize {
            // SAFETY: called by an entry alone, with the caller's state and the program's arguments.
            unsafe { $work::<AT>(slot, caller(stack, frame), [a, b, c, 0, 0, 0]) }
        }

        unsafe extern "C-unwind" fn $wide<const AT: usize>(
            a: usize,
            b: usize,
            c: usize,
            d: usize,
            e: usize,
            f: usize,
            stack: u64,
            frame: u64,
            slot: &'static EntryTarget,
        ) -> usize {
            // SAFETY: called by an entry alone, with the caller's state and the program's arguments.
            unsafe { $work::<AT>(slot, caller(stack, frame), [a, b, c, d, e, f]) }
        }
    };
}

body!(alloc, alloc_wide, do_alloc);
body!(alloc_of_product, alloc_of_product_wide, do_alloc_of_product);
body!(copy, copy_wide, do_copy);
body!(copy_at_most, copy_at_most_wide, do_copy_at_most);
body!(posix_memalign, posix_memalign_wide, do_posix_memalign);
body!(resize, resize_wide, do_resize);
body!(resize_to_product, resize_to_product_wide, do_resize_to_product);
body!(resize_or_free, resize_or_free_wide, do_resize_or_free);
body!(resize_in_place, resize_in_place_wide, do_resize_in_place);
body!(expand, expand_wide, do_expand);
body!(free, free_wide, do_free);
body!(books, books_wide, do_books);

#[inline(always)]
fn argument<const AT: usize>(arguments: &[usize; 6]) -> usize {
    arguments.get(AT).copied().unwrap_or(0)
}

#[inline(always)]
fn argument_behind<const AT: usize, const BY: usize>(arguments: &[usize; 6]) -> usize {
    arguments.get(AT + BY).copied().unwrap_or(0)
}

// The bodies above alone call the `do_` functions.

#[inline(always)]
unsafe fn do_alloc<const AT: usize>(slot: &EntryTarget, caller: Caller, arguments: [usize; 6]) -> usize {
    let size = argument::<AT>(&arguments);
    let way = Way::back();
    let kind = slot.kind();
    let alignment = match kind {
        Kind::AlignedAlloc | Kind::Memalign if AT == 1 => argument::<0>(&arguments),
        _ => 0,
    };
    // SAFETY: the body passes the caller's state; the slot's function gets the program's arguments. `operator new`
    // throws when there is no memory: `way` then restores the thread's state.
    unsafe { allocated_aligned(kind, caller, size, alignment, || way.call(|| slot.call(arguments) as Ptr)) as usize }
}

#[inline(always)]
unsafe fn do_alloc_of_product<const AT: usize>(slot: &EntryTarget, caller: Caller, arguments: [usize; 6]) -> usize {
    // Should the product overflow, the real function fails and nothing is recorded.
    let size = argument::<AT>(&arguments).wrapping_mul(argument_behind::<AT, 1>(&arguments));
    let way = Way::back();
    // SAFETY: the body passes the caller's state; the slot's function gets the program's arguments.
    unsafe { allocated(slot.kind(), caller, size, || way.call(|| slot.call(arguments) as Ptr)) as usize }
}

#[inline(always)]
unsafe fn do_copy<const AT: usize>(slot: &EntryTarget, caller: Caller, arguments: [usize; 6]) -> usize {
    let text = argument::<AT>(&arguments) as *const c_char;
    // SAFETY: the body passes the caller's state; the slot's function gets the program's arguments. The string is
    // terminated: the function itself measures it.
    unsafe {
        let size = if text.is_null() { 0 } else { libc::strlen(text) + 1 };
        allocated(slot.kind(), caller, size, || slot.call(arguments) as Ptr) as usize
    }
}

#[inline(always)]
unsafe fn do_copy_at_most<const AT: usize>(slot: &EntryTarget, caller: Caller, arguments: [usize; 6]) -> usize {
    let text = argument::<AT>(&arguments) as *const c_char;
    // SAFETY: the body passes the caller's state; the slot's function gets the program's arguments. The function itself
    // reads the string up to the same place.
    unsafe {
        let size =
            if text.is_null() { 0 } else { libc::strnlen(text, argument_behind::<AT, 1>(&arguments)).wrapping_add(1) };
        allocated(slot.kind(), caller, size, || slot.call(arguments) as Ptr) as usize
    }
}

#[inline(always)]
unsafe fn do_posix_memalign<const AT: usize>(slot: &EntryTarget, caller: Caller, arguments: [usize; 6]) -> usize {
    let (out, size) = (argument::<0>(&arguments) as *const Ptr, argument::<2>(&arguments));
    let mut result = 0;
    // SAFETY: the body passes the caller's state; the slot's function gets the program's arguments. It has written to
    // `out` when it gives 0.
    unsafe {
        allocated_aligned(slot.kind(), caller, size, argument::<1>(&arguments), || {
            result = slot.call(arguments);
            if result as c_int == 0 && !out.is_null() { *out } else { core::ptr::null_mut() }
        });
    }
    result
}

#[inline(always)]
unsafe fn do_resize<const AT: usize>(slot: &EntryTarget, caller: Caller, arguments: [usize; 6]) -> usize {
    let (old, size) = (argument::<AT>(&arguments) as Ptr, argument_behind::<AT, 1>(&arguments));
    let way = Way::back();
    // SAFETY: the body passes the caller's state; the slot's function gets the program's arguments. `mi_new_realloc`
    // throws when there is no memory: `way` then restores the thread's state.
    unsafe { reallocated(REALLOC, caller, old, size, || way.call(|| slot.call(arguments) as Ptr)) as usize }
}

#[inline(always)]
unsafe fn do_resize_to_product<const AT: usize>(slot: &EntryTarget, caller: Caller, arguments: [usize; 6]) -> usize {
    let old = argument::<AT>(&arguments) as Ptr;
    let size = argument_behind::<AT, 1>(&arguments).wrapping_mul(argument_behind::<AT, 2>(&arguments));
    let way = Way::back();
    // SAFETY: the body passes the caller's state; the slot's function gets the program's arguments.
    unsafe { reallocated(REALLOCARRAY, caller, old, size, || way.call(|| slot.call(arguments) as Ptr)) as usize }
}

#[inline(always)]
unsafe fn do_resize_or_free<const AT: usize>(slot: &EntryTarget, caller: Caller, arguments: [usize; 6]) -> usize {
    let (old, size) = (argument::<AT>(&arguments) as Ptr, argument_behind::<AT, 1>(&arguments));
    // SAFETY: the body passes the caller's state; the slot's function gets the program's arguments.
    let new = unsafe { reallocated(REALLOC, caller, old, size, || slot.call(arguments) as Ptr) };
    if new.is_null() && size != 0 && !old.is_null() {
        // SAFETY: the body passes the caller's state, and nothing is called. There is no memory, and the block is gone
        // already: it cannot be stamped before.
        unsafe { record_free(Kind::Free, caller, old, || ()) };
    }
    new as usize
}

#[inline(always)]
unsafe fn do_resize_in_place<const AT: usize>(slot: &EntryTarget, caller: Caller, arguments: [usize; 6]) -> usize {
    let (block, size, extra) = (argument::<0>(&arguments), argument::<1>(&arguments), argument::<2>(&arguments));
    let mut result = 0;
    // SAFETY: the body passes the caller's state; the slot's function gets the program's arguments.
    unsafe {
        resized(caller, block as Ptr, || {
            result = slot.call(arguments);
            // The block's real size: less than asked means that it could not grow and is what it was.
            (result >= size).then_some(result.min(size.saturating_add(extra)))
        });
    }
    result
}

#[inline(always)]
unsafe fn do_expand<const AT: usize>(slot: &EntryTarget, caller: Caller, arguments: [usize; 6]) -> usize {
    let (block, size) = (argument::<0>(&arguments) as Ptr, argument::<1>(&arguments));
    if block.is_null() {
        // SAFETY: the slot's function gets the program's arguments.
        return unsafe { slot.call(arguments) };
    }
    let mut result = 0;
    // SAFETY: the body passes the caller's state; the slot's function gets the program's arguments.
    unsafe {
        resized(caller, block, || {
            result = slot.call(arguments);
            (result != 0).then_some(size)
        });
    }
    result
}

#[inline(always)]
unsafe fn do_free<const AT: usize>(slot: &EntryTarget, caller: Caller, arguments: [usize; 6]) -> usize {
    let block = argument::<AT>(&arguments) as Ptr;
    // SAFETY: the body passes the caller's state; the slot's function gets the program's arguments.
    unsafe {
        record_free(slot.kind(), caller, block, || {
            slot.call(arguments);
        });
    }
    0
}

#[inline(always)]
unsafe fn do_books<const AT: usize>(slot: &EntryTarget, caller: Caller, arguments: [usize; 6]) -> usize {
    // SAFETY: the slot's function gets the program's arguments.
    other_calls::unrecorded(caller, || unsafe { slot.call(arguments) })
}

#[inline(always)]
unsafe fn allocated(kind: Kind, caller: Caller, size: usize, real: impl FnMut() -> Ptr) -> Ptr {
    // SAFETY: `caller` is the state of the hooked function's caller, as every caller passes it: the contract of
    // `allocated_aligned`.
    unsafe { allocated_aligned(kind, caller, size, 0, real) }
}

#[inline(always)]
unsafe fn allocated_aligned(
    kind: Kind,
    caller: Caller,
    size: usize,
    alignment: usize,
    mut real: impl FnMut() -> Ptr,
) -> Ptr {
    // SAFETY: every caller passes the state of the hooked function's caller; `ready` gives the calling thread's
    // context, in no event.
    unsafe {
        if let Some(context) = record::ready().filter(|_| !is_inside(caller.pc)) {
            return record::alloc_aligned(context, caller, kind, size, alignment, real);
        }
        if passes(caller.pc) { real() } else { slow_alloc(kind, caller, [size, alignment], &mut real) }
    }
}

#[cold]
#[inline(never)]
unsafe fn slow_alloc(kind: Kind, caller: Caller, [size, alignment]: [usize; 2], real: &mut dyn FnMut() -> Ptr) -> Ptr {
    start::arm();
    // SAFETY: `caller` is the state of the hooked function's caller, as every caller passes it: the contract of
    // `alloc_aligned`.
    unsafe { nested::alloc_aligned(caller, kind, size, alignment, real) }
}

#[inline(always)]
unsafe fn reallocated(
    kinds: ReallocKinds,
    caller: Caller,
    old: Ptr,
    size: usize,
    mut real: impl FnMut() -> Ptr,
) -> Ptr {
    // SAFETY: every caller passes the state of the hooked function's caller; `ready` gives the calling thread's
    // context, in no event.
    unsafe {
        if old.is_null() {
            return allocated(kinds.new, caller, size, real);
        }
        if let Some(context) = record::ready().filter(|_| !is_inside(caller.pc)) {
            return record::realloc(context, caller, kinds, old, size, real);
        }
        if passes(caller.pc) { real() } else { slow_realloc(kinds, caller, old, size, &mut real) }
    }
}

#[cold]
#[inline(never)]
unsafe fn slow_realloc(
    kinds: ReallocKinds,
    caller: Caller,
    old: Ptr,
    size: usize,
    real: &mut dyn FnMut() -> Ptr,
) -> Ptr {
    start::arm();
    // SAFETY: `caller` is the state of the hooked function's caller, as every caller passes it: the contract of
    // `realloc`.
    unsafe { nested::realloc(caller, kinds, old, size, real) }
}

#[inline(always)]
unsafe fn record_free(kind: Kind, caller: Caller, block: Ptr, mut real: impl FnMut()) {
    // SAFETY: every caller passes the state of the hooked function's caller; `ready` gives the calling thread's
    // context, in no event.
    unsafe {
        if block.is_null() {
            return real();
        }
        if let Some(context) = record::ready().filter(|_| !is_inside(caller.pc)) {
            return record::free(context, caller, kind, block, real);
        }
        if passes(caller.pc) { real() } else { slow_free(kind, caller, block, &mut real) }
    }
}

#[cold]
#[inline(never)]
unsafe fn slow_free(kind: Kind, caller: Caller, block: Ptr, real: &mut dyn FnMut()) {
    start::arm();
    // SAFETY: `caller` is the state of the hooked function's caller, as every caller passes it: the contract of `free`.
    unsafe { nested::free(caller, kind, block, real) }
}

#[cold]
#[inline(never)]
unsafe fn resized(caller: Caller, block: Ptr, mut real: impl FnMut() -> Option<usize>) {
    if block.is_null() || passes(caller.pc) {
        real();
        return;
    }
    start::arm();
    // SAFETY: `caller` is the state of the hooked function's caller, as every caller passes it: the contract of
    // `resized`.
    unsafe { other_calls::resized(caller, block, real) }
}

/// Whether a call that is not on the fast path goes straight on: it is the allocator's own, or the recorder's.
#[cold]
fn passes(pc: u64) -> bool {
    gate::is_internal() || is_inside(pc) || is_of_a_hook(pc)
}

/// Whether a hook of ours makes the call, in the middle of its own event: the function that the program has called
/// leads on to this one.
fn is_of_a_hook(pc: u64) -> bool {
    // SAFETY: contexts stay mapped.
    let busy = unsafe { gate::slot().context.get().as_ref() }.is_some_and(|context| context.mode() != IDLE);
    busy && pc.wrapping_sub(OWN_START.load(Ordering::Relaxed)) < OWN_SPAN.load(Ordering::Relaxed)
}
