//! The hooks of the mapping calls: mmap, munmap, mremap, brk, sbrk.

use core::ffi::{c_int, c_void};

use tracehound_record::record::{self, MappingChange};
use tracehound_shared::gate;
use tracehound_shared::heap;
use tracehound_shared::own;
use tracehound_shared::session;
use tracehound_shared::sys;
use tracehound_unwind::Caller;

use crate::entry::{caller, hook};
use crate::loader;
use crate::next;
use crate::start;

type Ptr = *mut c_void;

const FAILED: usize = usize::MAX;

/// Whether such calls are recorded; brings the library up if it is not.
fn wanted() -> bool {
    if !start::is_loaded() || gate::is_internal() || !start::ensure() {
        return false;
    }
    session::current().is_some_and(|session| session.options.mappings)
}

/// Whether the hook was called by code of this library, seen by the return address.
///
/// # Safety
/// As for [`caller`].
unsafe fn is_own(stack: u64) -> bool {
    // SAFETY: `stack` is what a hook has passed: the contract of `is_own`.
    let caller = unsafe { caller(stack, 0) };
    loader::own_code().contains(&caller.pc)
}

fn whole_pages(len: usize) -> usize {
    len.checked_next_multiple_of(sys::page_bytes()).unwrap_or(len)
}

// Six arguments fill the registers: the caller's state goes onto the stack, below an aligned frame.
#[cfg(target_arch = "x86_64")]
macro_rules! hook_six {
    ($name:ident, $body:path) => {
        #[doc = concat!("The hook of `", stringify!($name), "`.")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "endbr64",
                "mov rax, rsp",
                "sub rsp, 8",
                ".cfi_adjust_cfa_offset 8",
                "push rbp",
                ".cfi_adjust_cfa_offset 8",
                "push rax",
                ".cfi_adjust_cfa_offset 8",
                "call {body}",
                "add rsp, 24",
                ".cfi_adjust_cfa_offset -24",
                "ret",
                ".cfi_endproc",
                body = sym $body
            )
        }
    };
}

// Two argument registers are left.
#[cfg(target_arch = "aarch64")]
macro_rules! hook_six {
    ($name:ident, $body:path) => {
        hook!($name, 6, $body);
    };
}

hook_six!(mmap, mmap_body);
hook_six!(mmap64, mmap_body);
hook_six!(mremap, mremap_body);
hook!(munmap, 2, munmap_body);
hook!(brk, 1, brk_body);
hook!(sbrk, 1, sbrk_body);

unsafe extern "C-unwind" fn mmap_body(
    at: Ptr,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
    stack: u64,
    frame: u64,
) -> Ptr {
    // SAFETY: the program's arguments.
    let call = || unsafe {
        match next::mmap() {
            Some(function) => function(at, len, protection, flags, fd, offset),
            None => raw_mmap(at, len, protection, flags, fd, offset),
        }
    };
    if !wanted() {
        let result = call();
        // The bundled allocator asks here for its memory.
        // SAFETY: the hook has passed its stack pointer, and its frame stays while this runs.
        if !unsafe { is_own(stack) } {
            return result;
        }
        if result == libc::MAP_FAILED {
            let pages = if at.is_null() { heap::pages_of_reserve(len) } else { None };
            return pages.map_or(result, |pages| pages.cast());
        }
        own::note(result as usize, whole_pages(len));
        return result;
    }
    let change = |_| Some(MappingChange::Map { len: whole_pages(len), protection, flags, fd });
    // SAFETY: called by the hook alone, with the caller's state.
    unsafe { around(caller(stack, frame), || call() as usize, FAILED, change) as Ptr }
}

/// Before libc's function is known.
unsafe fn raw_mmap(at: Ptr, len: usize, protection: c_int, flags: c_int, fd: c_int, offset: i64) -> Ptr {
    // SAFETY: the program's arguments.
    match unsafe { sys::mmap_for_program(at as usize, len, protection, flags, fd, offset) } {
        Ok(address) => address as Ptr,
        Err(error) => {
            if start::is_loaded() {
                start::set_errno(error.0);
            }
            libc::MAP_FAILED
        }
    }
}

unsafe extern "C-unwind" fn munmap_body(at: Ptr, len: usize, stack: u64, frame: u64) -> c_int {
    // SAFETY: the program's arguments.
    let call = || unsafe {
        match next::munmap() {
            Some(function) => function(at, len),
            None => raw_munmap(at, len),
        }
    };
    if !wanted() {
        let result = call();
        // SAFETY: the hook has passed its stack pointer. What was unmapped is not the stack on which this runs.
        if result == 0 && unsafe { is_own(stack) } {
            own::forget(at as usize, whole_pages(len));
        }
        return result;
    }
    let mut result = -1;
    let change = |_| Some(MappingChange::Unmap { at: at as usize, len: whole_pages(len) });
    let real = || {
        result = call();
        if result == 0 { at as usize } else { FAILED }
    };
    // SAFETY: called by the hook alone, with the caller's state.
    unsafe { around(caller(stack, frame), real, FAILED, change) };
    result
}

unsafe fn raw_munmap(at: Ptr, len: usize) -> c_int {
    // SAFETY: the program's arguments.
    if let Err(error) = unsafe { sys::munmap_for_program(at as usize, len) } {
        if start::is_loaded() {
            start::set_errno(error.0);
        }
        return -1;
    }
    0
}

unsafe extern "C-unwind" fn mremap_body(
    old: Ptr,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    new: Ptr,
    _: usize,
    stack: u64,
    frame: u64,
) -> Ptr {
    // SAFETY: the program's arguments. The fifth one matters with MREMAP_FIXED and MREMAP_DONTUNMAP only, as in libc.
    let call =
        || unsafe { next::mremap().map_or(libc::MAP_FAILED, |function| function(old, old_len, new_len, flags, new)) };
    if !wanted() {
        return call();
    }
    let change = |_| {
        let (old_len, new_len) = (whole_pages(old_len), whole_pages(new_len));
        // The old range stays mapped: of private memory, which is empty now, or of shared memory, which is mapped twice.
        if flags & libc::MREMAP_DONTUNMAP != 0 || old_len == 0 {
            let sharing = if old_len == 0 { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            return Some(MappingChange::Map { len: new_len, protection, flags: sharing | libc::MAP_ANONYMOUS, fd: -1 });
        }
        Some(MappingChange::Remap { old: old as usize, old_len, new_len })
    };
    // SAFETY: called by the hook alone, with the caller's state.
    unsafe { around(caller(stack, frame), || call() as usize, FAILED, change) as Ptr }
}

unsafe extern "C-unwind" fn brk_body(end: Ptr, stack: u64, frame: u64) -> c_int {
    // SAFETY: the program's argument.
    let call = || unsafe { next::brk().map_or(-1, |function| function(end)) };
    if !wanted() {
        return call();
    }
    let before = sys::current_break();
    let mut result = -1;
    let real = || {
        result = call();
        if result == 0 { end as usize } else { FAILED }
    };
    let change = |now: usize| moved(before, now);
    // SAFETY: called by the hook alone, with the caller's state.
    unsafe { around(caller(stack, frame), real, FAILED, change) };
    result
}

unsafe extern "C-unwind" fn sbrk_body(by: isize, stack: u64, frame: u64) -> Ptr {
    // SAFETY: the program's argument.
    let call = || unsafe { next::sbrk().map_or(FAILED as Ptr, |function| function(by)) };
    if by == 0 || !wanted() {
        return call();
    }
    let mut result = FAILED as Ptr;
    let real = || {
        result = call();
        if result as usize == FAILED { FAILED } else { (result as usize).wrapping_add_signed(by) }
    };
    // SAFETY: called by the hook alone, with the caller's state.
    unsafe { around(caller(stack, frame), real, FAILED, |_| Some(MappingChange::Break { by })) };
    result
}

fn moved(before: usize, now: usize) -> Option<MappingChange> {
    let by = now.wrapping_sub(before) as isize;
    (by != 0).then_some(MappingChange::Break { by })
}

/// Records `change` around `real`, whose result is an address, or `failed`.
unsafe fn around(
    caller: Caller,
    real: impl FnOnce() -> usize,
    failed: usize,
    change: impl FnOnce(usize) -> Option<MappingChange>,
) -> usize {
    start::arm();
    let real = || {
        let result = real();
        (result != failed).then_some(result)
    };
    // SAFETY: `caller` is the state of the hooked function's caller, as every caller passes it: the contract of
    // `change`.
    unsafe { record::change(caller, real, change) }.unwrap_or(failed)
}
