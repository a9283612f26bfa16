//! Mappings of ours.

use super::{Result, call};

/// Maps private anonymous memory, zeroed.
pub fn map_memory(bytes: usize) -> Result<*mut u8> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping where the kernel likes touches nothing that exists.
    unsafe { call!(libc::SYS_mmap, 0, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1_isize, 0) }
        .map(|at| ours(at, bytes))
}

fn ours(at: usize, bytes: usize) -> *mut u8 {
    crate::shared::own::note(at, whole_pages(bytes));
    at as *mut u8
}

fn whole_pages(bytes: usize) -> usize {
    bytes.checked_next_multiple_of(4096).unwrap_or(bytes)
}

/// Maps the first `bytes` of a file, shared.
pub fn map_shared(fd: i32, bytes: usize) -> Result<*mut u8> {
    // SAFETY: as above.
    unsafe { call!(libc::SYS_mmap, 0, bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, fd, 0) }
        .map(|at| ours(at, bytes))
}

/// Maps the first `bytes` of a file, shared, over what is mapped at `at`.
///
/// # Safety
/// The range must be the caller's own, and nobody may use it meanwhile.
pub unsafe fn map_shared_over(at: *mut u8, fd: i32, bytes: usize) -> Result<()> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
    // SAFETY: vouched for by the caller.
    unsafe { call!(libc::SYS_mmap, at, bytes, protection, flags, fd, 0) }.map(|_| ())
}

/// Takes a mapping away.
///
/// # Safety
/// Nothing may use the range any more.
pub unsafe fn unmap(at: *mut u8, bytes: usize) {
    // SAFETY: vouched for by the caller.
    let _ = unsafe { call!(libc::SYS_munmap, at, bytes) };
    crate::shared::own::forget(at as usize, whole_pages(bytes));
}

/// Advises the kernel about a range of ours.
///
/// # Safety
/// The advice must not destroy what is still needed.
pub unsafe fn advise(at: *mut u8, bytes: usize, advice: i32) -> Result<()> {
    // SAFETY: vouched for by the caller.
    unsafe { call!(libc::SYS_madvise, at, bytes, advice) }.map(|_| ())
}
