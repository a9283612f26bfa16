//! The hooks of a Rust program's global allocator, which the crate `tracehound` (`bindings/rust`) calls: an event around the
//! allocator inside.

use core::ffi::c_void;

use tracehound_format::record::Kind;
use tracehound_record::nested;
use tracehound_record::record::{self, REALLOC};
use tracehound_shared::gate;

use crate::entry::{caller, hook};
use crate::start;

type Ptr = *mut c_void;

/// A call of the global allocator: the fields that the recorder reads. The crate's own data follows them, and the crate may
/// change all of it while it makes the call. So there is only the crate's pointer to it, and no reference, which would be to
/// these fields alone and would promise that they stay.
#[repr(C)]
pub struct AllocatorCall {
    /// Makes the call.
    real: unsafe extern "C-unwind" fn(*const AllocatorCall) -> Ptr,
    /// The block that is given back or resized.
    block: Ptr,
    /// Bytes of the new block.
    size: usize,
    /// Its alignment.
    align: usize,
    /// 1: the new block is to be zeroed.
    zeroed: usize,
}

/// Makes the call.
///
/// # Safety
/// `call` must be what the crate has passed to the hook that calls this, and this must be the only time.
unsafe fn real(call: *const AllocatorCall) -> Ptr {
    // SAFETY: the crate has given the function for this very call, which it waits for: the contract of `real`.
    unsafe { ((*call).real)(call) }
}

/// What a new block is recorded as.
fn kind(align: usize, zeroed: usize) -> Kind {
    match (align, zeroed) {
        (_, 1) => Kind::Calloc,
        // What malloc gives by itself.
        (..=16, _) => Kind::Malloc,
        _ => Kind::AlignedAlloc,
    }
}

hook!(tracehound_allocator_alloc, 1, alloc_body);
hook!(tracehound_allocator_realloc, 1, realloc_body);
hook!(tracehound_allocator_dealloc, 1, dealloc_body);

/// Whether an event off the fast path may be recorded.
fn is_up() -> bool {
    if record::passes() || gate::is_internal() || !start::ensure() {
        return false;
    }
    start::arm();
    true
}

unsafe extern "C-unwind" fn alloc_body(call: *const AllocatorCall, stack: u64, frame: u64) -> Ptr {
    // SAFETY: called by the hook alone, with the caller's state and the crate's call, whose fields are read before it is made.
    // It is made once, by whichever branch is taken.
    unsafe {
        let AllocatorCall { size, align, zeroed, .. } = *call;
        let (caller, mut real) = (caller(stack, frame), || real(call));
        match record::ready() {
            Some(context) => record::alloc_aligned(context, caller, kind(align, zeroed), size, align, real),
            None if is_up() => nested::alloc_aligned(caller, kind(align, zeroed), size, align, &mut real),
            None => real(),
        }
    }
}

unsafe extern "C-unwind" fn realloc_body(call: *const AllocatorCall, stack: u64, frame: u64) -> Ptr {
    // SAFETY: called by the hook alone, with the caller's state and the crate's call, whose fields are read before it is made.
    // It is made once, by whichever branch is taken.
    unsafe {
        let AllocatorCall { block, size, .. } = *call;
        let (caller, mut real) = (caller(stack, frame), || real(call));
        match record::ready() {
            Some(context) => record::realloc(context, caller, REALLOC, block, size, real),
            None if is_up() => nested::realloc(caller, REALLOC, block, size, &mut real),
            None => real(),
        }
    }
}

unsafe extern "C-unwind" fn dealloc_body(call: *const AllocatorCall, stack: u64, frame: u64) {
    // SAFETY: called by the hook alone, with the caller's state and the crate's call, whose fields are read before it is made.
    // It is made once, by whichever branch is taken.
    unsafe {
        let AllocatorCall { block, .. } = *call;
        let caller = caller(stack, frame);
        let mut real = || {
            real(call);
        };
        match record::ready() {
            Some(context) => record::free(context, caller, Kind::Free, block, real),
            None if is_up() => nested::free(caller, Kind::Free, block, &mut real),
            None => real(),
        }
    }
}
