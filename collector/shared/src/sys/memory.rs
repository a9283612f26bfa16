//! Mappings of ours.

use rustix::mm::{self, Advice, MapFlags, MprotectFlags, ProtFlags};

use super::{Result, borrowed};
#[cfg(loom)]
pub use crate::sync::system::{map_memory, unmap, wipe_in_children};

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Of memory that takes pages only where it is touched. Miri has no such flag.
const UNRESERVED: MapFlags = if cfg!(miri) { MapFlags::PRIVATE } else { MapFlags::PRIVATE.union(MapFlags::NORESERVE) };

/// Maps private anonymous memory, zeroed.
#[cfg(not(loom))]
pub fn map_memory(bytes: usize) -> Result<*mut u8> {
    Ok(ours(map_unlisted(bytes)?, bytes))
}

/// The same for memory that the caller adds to the list of ours itself.
pub fn map_unlisted(bytes: usize) -> Result<*mut u8> {
    // SAFETY: a new mapping where the kernel likes touches nothing that exists.
    Ok(unsafe { mm::mmap_anonymous(core::ptr::null_mut(), bytes, READ_WRITE, UNRESERVED) }?.cast())
}

/// Maps private anonymous memory at `at`, where nothing is.
///
/// # Safety
/// The range must have been ours.
pub unsafe fn map_at_free(at: *mut u8, bytes: usize) -> Result<()> {
    let flags = UNRESERVED.union(MapFlags::FIXED_NOREPLACE);
    // SAFETY: the kernel replaces nothing that exists.
    let found = unsafe { mm::mmap_anonymous(at.cast(), bytes, READ_WRITE, flags) }?.cast::<u8>();
    if !core::ptr::eq(found, at) {
        // Kernels before 4.17 take the address as a hint.
        // SAFETY: a new mapping that nothing else uses.
        unsafe { unmap_unlisted(found, bytes) };
        return Err(super::Errno(libc::EEXIST));
    }
    Ok(())
}

fn ours(at: *mut u8, bytes: usize) -> *mut u8 {
    crate::own::note(at as usize, whole_pages(bytes));
    at
}

fn whole_pages(bytes: usize) -> usize {
    bytes.checked_next_multiple_of(4096).unwrap_or(bytes)
}

/// Maps the first `bytes` of a file, shared.
pub fn map_shared(fd: i32, bytes: usize) -> Result<*mut u8> {
    // SAFETY: a new mapping where the kernel likes touches nothing that exists.
    let at = unsafe { mm::mmap(core::ptr::null_mut(), bytes, READ_WRITE, MapFlags::SHARED, borrowed(fd)?, 0) }?;
    Ok(ours(at.cast(), bytes))
}

/// Maps the first `bytes` of a file, shared, over what is mapped at `at`.
///
/// # Safety
/// The range must be the caller's own, and nobody may use it meanwhile.
pub unsafe fn map_shared_over(at: *mut u8, fd: i32, bytes: usize) -> Result<()> {
    let flags = MapFlags::SHARED.union(MapFlags::FIXED);
    // SAFETY: vouched for by the caller.
    unsafe { mm::mmap(at.cast(), bytes, READ_WRITE, flags, borrowed(fd)?, 0) }?;
    Ok(())
}

/// Takes a mapping away.
///
/// # Safety
/// Nothing may use the range any more.
#[cfg(not(loom))]
pub unsafe fn unmap(at: *mut u8, bytes: usize) {
    // SAFETY: vouched for by the caller.
    unsafe { unmap_unlisted(at, bytes) };
    crate::own::forget(at as usize, whole_pages(bytes));
}

/// Takes a mapping away that is not in the list of ours.
///
/// # Safety
/// Nothing may use the range any more.
pub unsafe fn unmap_unlisted(at: *mut u8, bytes: usize) {
    // SAFETY: vouched for by the caller. A failed call leaves memory behind, no more.
    let _ = unsafe { mm::munmap(at.cast(), bytes) };
}

/// Has the kernel make pages of a shared mapping of ours, so that a full disk is an error here and no signal later.
///
/// # Safety
/// The range must be part of a mapping of ours.
pub unsafe fn populate(at: *mut u8, bytes: usize) -> Result<()> {
    // SAFETY: vouched for by the caller; changes nothing in the range.
    Ok(unsafe { mm::madvise(at.cast(), bytes, Advice::LinuxPopulateWrite) }?)
}

/// Whether the pages from `from` to `to` can all be read; false, too, where the kernel cannot check it (before 5.14).
pub fn are_readable(from: u64, to: u64) -> bool {
    // SAFETY: has the kernel read the pages, if they may be; changes nothing in them.
    unsafe { mm::madvise(from as *mut core::ffi::c_void, (to - from) as usize, Advice::LinuxPopulateRead) }.is_ok()
}

/// Has a range of ours read zero in forked children. Kernels before 4.14 cannot.
///
/// # Safety
/// The range must be a private mapping of ours.
#[cfg(not(loom))]
pub unsafe fn wipe_in_children(at: *mut u8, bytes: usize) {
    // SAFETY: vouched for by the caller; changes nothing for this process.
    let _ = unsafe { mm::madvise(at.cast(), bytes, Advice::LinuxWipeOnFork) };
}

/// Keeps a shared mapping of ours from forked children and core dumps, and from being read ahead.
///
/// # Safety
/// The range must be a mapping of ours.
pub unsafe fn keep_apart(at: *mut u8, bytes: usize) {
    for advice in [Advice::LinuxDontFork, Advice::LinuxDontDump, Advice::Random] {
        // SAFETY: vouched for by the caller; changes nothing for this process.
        let _ = unsafe { mm::madvise(at.cast(), bytes, advice) };
    }
}

/// Makes pages a guard that nobody may touch, or code.
///
/// # Safety
/// The pages must be the caller's own, and not be needed in the way that is denied.
pub unsafe fn protect(at: *mut u8, bytes: usize, as_code: bool) {
    let protection = if as_code { MprotectFlags::READ.union(MprotectFlags::EXEC) } else { MprotectFlags::empty() };
    // SAFETY: vouched for by the caller. A failed call leaves the pages as they are.
    let _ = unsafe { mm::mprotect(at.cast(), bytes, protection) };
}

/// Lets the page of a word be written, or no longer; false if the kernel refuses.
#[must_use = "the page may be as it was"]
pub fn let_write(word: u64, may: bool) -> bool {
    let protection = if may { MprotectFlags::READ.union(MprotectFlags::WRITE) } else { MprotectFlags::READ };
    let page = page_bytes() as u64;
    // SAFETY: nothing is read or written, and what could be read can be read.
    unsafe { mm::mprotect((word & !(page - 1)) as *mut core::ffi::c_void, page as usize, protection) }.is_ok()
}

/// Bytes of a page, a power of two.
pub fn page_bytes() -> usize {
    // SAFETY: getauxval reads the process's own auxiliary vector.
    let bytes = unsafe { libc::getauxval(libc::AT_PAGESZ) } as usize;
    if bytes.is_power_of_two() { bytes } else { 4096 }
}

/// Locks a range of the program's memory, and fills it unless only what is touched is to be locked. What cannot be locked
/// stays as it is.
pub fn lock_memory(range: core::ops::Range<usize>, on_fault: bool) {
    let flags = if on_fault { mm::MlockFlags::ONFAULT } else { mm::MlockFlags::empty() };
    // SAFETY: locking changes no memory.
    let _ = unsafe { mm::mlock_with(range.start as *mut core::ffi::c_void, range.len(), flags) };
}
