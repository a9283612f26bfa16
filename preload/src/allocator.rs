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

/// A call of the global allocator: the fields that the recorder reads. The crate's own data follows them.
#[repr(C)]
pub struct AllocatorCall {
    /// Makes the call.
    real: unsafe extern "C-unwind" fn(&AllocatorCall) -> Ptr,
    /// The block that is given back or resized.
    block: Ptr,
    /// Bytes of the new block.
    size: usize,
    /// Its alignment.
    align: usize,
    /// 1: the new block is to be zeroed.
    zeroed: usize,
}

impl AllocatorCall {
    /// Makes the call.
    unsafe fn real(&self) -> Ptr {
        // SAFETY: the function that the crate has given for this very call.
        unsafe { (self.real)(self) }
    }

    /// What a new block is recorded as.
    fn kind(&self) -> Kind {
        match self {
            Self { zeroed: 1, .. } => Kind::Calloc,
            // What malloc gives by itself.
            Self { align: ..=16, .. } => Kind::Malloc,
            _ => Kind::AlignedAlloc,
        }
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

unsafe extern "C-unwind" fn alloc_body(call: &AllocatorCall, stack: u64, frame: u64) -> Ptr {
    // SAFETY: called by the hook alone, with the caller's state; the allocator inside gets the program's arguments.
    unsafe {
        let (caller, mut real) = (caller(stack, frame), || call.real());
        match record::ready() {
            Some(context) => record::alloc_aligned(context, caller, call.kind(), call.size, call.align, real),
            None if is_up() => nested::alloc_aligned(caller, call.kind(), call.size, call.align, &mut real),
            None => real(),
        }
    }
}

unsafe extern "C-unwind" fn realloc_body(call: &AllocatorCall, stack: u64, frame: u64) -> Ptr {
    // SAFETY: called by the hook alone, with the caller's state; the allocator inside gets the program's arguments.
    unsafe {
        let (caller, mut real) = (caller(stack, frame), || call.real());
        match record::ready() {
            Some(context) => record::realloc(context, caller, REALLOC, call.block, call.size, real),
            None if is_up() => nested::realloc(caller, REALLOC, call.block, call.size, &mut real),
            None => real(),
        }
    }
}

unsafe extern "C-unwind" fn dealloc_body(call: &AllocatorCall, stack: u64, frame: u64) {
    // SAFETY: called by the hook alone, with the caller's state; the allocator inside gets the program's arguments.
    unsafe {
        let caller = caller(stack, frame);
        let mut real = || {
            call.real();
        };
        match record::ready() {
            Some(context) => record::free(context, caller, Kind::Free, call.block, real),
            None if is_up() => nested::free(caller, Kind::Free, call.block, &mut real),
            None => real(),
        }
    }
}
