//! The recorder's own heap: the bundled, prefixed jemalloc. The recorder never allocates from the program's allocator.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tikv_jemalloc_sys as jemalloc;

// jemalloc's settings: one arena, for large blocks too, no threads of its own, dirty pages given back soon. Hidden, so that
// another copy of the prefixed jemalloc in the process does not take them for its own.
core::arch::global_asm!(
    ".section .rodata.tracehound_malloc_conf,\"a\",@progbits",
    "tracehound_malloc_conf_text:",
    ".asciz \"narenas:1,oversize_threshold:0,background_thread:false,dirty_decay_ms:1000,muzzy_decay_ms:0\"",
    ".section .data.rel.ro.tracehound_malloc_conf,\"aw\",@progbits",
    ".hidden _rjem_malloc_conf",
    ".globl _rjem_malloc_conf",
    ".p2align 3",
    "_rjem_malloc_conf:",
    ".quad tracehound_malloc_conf_text",
    ".text",
);

/// To be made the `#[global_allocator]` of the preloaded library.
pub struct OwnHeap;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

/// Memory for the time when the kernel gives no more. Its blocks are not used again after they are freed. The program may
/// free memory before the reserve is used up; else recording ends early enough, see [`is_short`].
#[repr(C, align(4096))]
struct Reserve(UnsafeCell<[u8; RESERVE_BYTES]>);

// SAFETY: pieces of it are handed out once each.
unsafe impl Sync for Reserve {}

const RESERVE_BYTES: usize = 8 << 20;
static RESERVE: Reserve = Reserve(UnsafeCell::new([0; RESERVE_BYTES]));
static RESERVE_USED: AtomicUsize = AtomicUsize::new(0);

/// Whether so much of the reserve is used that recording must end while there is enough for its end.
pub fn is_short() -> bool {
    RESERVE_USED.load(Ordering::Relaxed) > RESERVE_BYTES / 2
}

fn is_reserve(block: *mut u8) -> bool {
    (block as usize).wrapping_sub(RESERVE.0.get() as usize) < RESERVE_BYTES
}

/// A zeroed block of the reserve; null when it is used up.
#[cold]
fn from_reserve(layout: Layout) -> *mut u8 {
    let base = RESERVE.0.get() as usize;
    let place = |used: usize| (base + used).checked_next_multiple_of(layout.align()).map(|at| at - base);
    let end = |used: usize| place(used)?.checked_add(layout.size()).filter(|&end| end <= RESERVE_BYTES);
    match RESERVE_USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, end) {
        Ok(used) => place(used).map_or(core::ptr::null_mut(), |at| (base + at) as *mut u8),
        Err(_) => core::ptr::null_mut(),
    }
}

/// Addresses for when the kernel gives no more mappings, as where a program has as many as it may have: none of it is touched
/// before. Where the next pages are, and the end.
static PAGES: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Reserves them, once.
pub fn reserve_pages() {
    const BYTES: usize = 64 << 20;
    let [next, end] = &PAGES;
    if end.load(Ordering::Relaxed) == 0
        && let Ok(pages) = super::sys::map_memory(BYTES)
    {
        next.store(pages.addr(), Ordering::Relaxed);
        end.store(pages.addr() + BYTES, Ordering::Relaxed);
    }
}

/// Pages for the bundled jemalloc itself where the kernel has none: without its first tables it ends the process. Aligned as
/// its extents want it.
#[cold]
pub fn pages_of_reserve(bytes: usize) -> Option<*mut u8> {
    const PAGE: usize = 4096;
    const EXTENT: usize = 2 << 20;
    let align = if bytes.is_multiple_of(EXTENT) { EXTENT } else { PAGE };
    let layout = Layout::from_size_align(bytes.checked_next_multiple_of(PAGE)?, align).ok()?;
    let [next, end] = &PAGES;
    let end = end.load(Ordering::Relaxed);
    let place = |at: usize| at.checked_next_multiple_of(align).filter(|at| *at != 0 && at + layout.size() <= end);
    let taken = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |at| Some(place(at)? + layout.size()));
    let pages = match taken {
        Ok(at) => place(at)? as *mut u8,
        Err(_) => from_reserve(layout),
    };
    (!pages.is_null()).then_some(pages)
}

/// Nothing will be recorded: what is left of the reserve goes back to the kernel, whose limits count it.
pub fn give_reserve_back() {
    const PAGE: usize = 4096;
    let used = RESERVE_USED.swap(RESERVE_BYTES, Ordering::Relaxed).next_multiple_of(PAGE);
    if used < RESERVE_BYTES {
        let rest = (RESERVE.0.get() as usize + used) as *mut u8;
        // SAFETY: whole pages of ours that were never handed out, and never will be.
        unsafe { super::sys::unmap_unlisted(rest, RESERVE_BYTES - used) };
    }
}

/// `block`; or a block of the reserve where it is null.
#[inline]
fn or_reserve(block: *mut u8, layout: Layout) -> *mut u8 {
    if block.is_null() { from_reserve(layout) } else { block }
}

/// Counts a block, if there is one.
fn counted(block: *mut u8, bytes: usize) -> *mut u8 {
    if !block.is_null() {
        ALLOCATED.fetch_add(bytes, Ordering::Relaxed);
    }
    block
}

const fn flags(layout: Layout) -> c_int {
    layout.align().trailing_zeros() as c_int
}

// SAFETY: jemalloc's mallocx family honours the sizes and alignments it is given.
unsafe impl GlobalAlloc for OwnHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the size is not zero, as `GlobalAlloc` promises.
        let block = unsafe { jemalloc::mallocx(layout.size(), flags(layout)).cast() };
        counted(or_reserve(block, layout), layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        const ZERO: c_int = 0x40;
        // SAFETY: the size is not zero, as `GlobalAlloc` promises.
        let block = unsafe { jemalloc::mallocx(layout.size(), flags(layout) | ZERO).cast() };
        counted(or_reserve(block, layout), layout.size())
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        if is_reserve(block) {
            return;
        }
        // SAFETY: the block came from `alloc` with this layout.
        unsafe { jemalloc::sdallocx(block.cast::<c_void>(), layout.size(), flags(layout)) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let mut moved = core::ptr::null_mut::<u8>();
        if !is_reserve(block) {
            // SAFETY: the block came from `alloc` with this layout; the new size is not zero.
            moved = unsafe { jemalloc::rallocx(block.cast::<c_void>(), new_size, flags(layout)) }.cast();
        }
        if moved.is_null() {
            // SAFETY: the caller vouches for size and alignment; both blocks hold the bytes that are copied.
            unsafe {
                moved = self.alloc(Layout::from_size_align_unchecked(new_size, layout.align()));
                if !moved.is_null() {
                    core::ptr::copy_nonoverlapping(block, moved, layout.size().min(new_size));
                    self.dealloc(block, layout);
                }
            }
            return moved;
        }
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        counted(moved, new_size)
    }
}

/// Gives the memory of freed blocks back to the kernel, as far as it can be.
pub fn give_back() {
    // SAFETY: a control of jemalloc's without arguments; arena 0 is the only one, see above.
    unsafe {
        let (none, purge) = (core::ptr::null_mut(), c"arena.0.purge".as_ptr());
        jemalloc::mallctl(purge, none, core::ptr::null_mut(), none, 0);
    }
}

/// Takes `bytes` of addresses in one piece, once in a process, and gives their memory back. jemalloc keeps addresses, and
/// takes more of them when a recording happens to need more than any before: with these, recordings one after another leave
/// the process's mappings as they were. Without them, where the kernel has none, it grows as before.
pub fn take_addresses(bytes: usize) {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: a block of our own heap, which nobody else has seen when it is freed.
    unsafe {
        let block = jemalloc::mallocx(bytes, 0);
        if !block.is_null() {
            jemalloc::sdallocx(block, bytes, 0);
        }
    }
    give_back();
}

/// Bytes that our heap may hold of the process's memory: what is allocated, a quarter more for jemalloc's size classes,
/// and what it keeps for itself. Its own statistics would cost a lock and a pass over its arenas.
pub fn estimated_bytes() -> u64 {
    const OF_ITS_OWN: usize = 2 << 20;
    let allocated = ALLOCATED.load(Ordering::Relaxed);
    (allocated + allocated / 4 + OF_ITS_OWN) as u64
}

/// The bundled jemalloc as an allocator for the program, with the C functions' own rules.
pub mod program {
    use core::ffi::{c_int, c_void};

    use tikv_jemalloc_sys as jemalloc;

    type Ptr = *mut c_void;

    fn fail(error: c_int) -> Ptr {
        // SAFETY: libc's own place for the calling thread.
        unsafe { *libc::__errno_location() = error };
        core::ptr::null_mut()
    }

    /// `malloc(3)`.
    ///
    /// # Safety
    /// As for the C function; so for all of these.
    pub unsafe extern "C-unwind" fn malloc(size: usize) -> Ptr {
        // SAFETY: the caller keeps the contract of the C function, and jemalloc's has the same.
        unsafe { jemalloc::malloc(size) }
    }

    /// `calloc(3)`.
    ///
    /// # Safety
    /// See [`malloc`].
    pub unsafe extern "C-unwind" fn calloc(count: usize, size: usize) -> Ptr {
        // SAFETY: the caller keeps the contract of the C function, and jemalloc's has the same.
        unsafe { jemalloc::calloc(count, size) }
    }

    /// `realloc(3)`; of a block to nothing it frees the block and gives NULL, as glibc's does.
    ///
    /// # Safety
    /// See [`malloc`].
    pub unsafe extern "C-unwind" fn realloc(block: Ptr, size: usize) -> Ptr {
        // SAFETY: the caller keeps the contract of the C function, and jemalloc's has the same.
        unsafe {
            if size == 0 && !block.is_null() {
                jemalloc::free(block);
                return core::ptr::null_mut();
            }
            jemalloc::realloc(block, size)
        }
    }

    /// `free(3)`.
    ///
    /// # Safety
    /// See [`malloc`].
    pub unsafe extern "C-unwind" fn free(block: Ptr) {
        // SAFETY: the caller keeps the contract of the C function, and jemalloc's has the same.
        unsafe { jemalloc::free(block) }
    }

    /// `posix_memalign(3)`.
    ///
    /// # Safety
    /// See [`malloc`].
    pub unsafe extern "C-unwind" fn posix_memalign(out: *mut Ptr, align: usize, size: usize) -> c_int {
        // SAFETY: the caller keeps the contract of the C function, and jemalloc's has the same.
        unsafe { jemalloc::posix_memalign(out, align, size) }
    }

    /// `aligned_alloc(3)`.
    ///
    /// # Safety
    /// See [`malloc`].
    pub unsafe extern "C-unwind" fn aligned_alloc(align: usize, size: usize) -> Ptr {
        if !align.is_power_of_two() {
            return fail(libc::EINVAL);
        }
        // SAFETY: the caller keeps the contract of the C function, and jemalloc's has the same.
        unsafe { jemalloc::aligned_alloc(align, size) }
    }

    /// `memalign(3)`: an alignment that is no power of two becomes the next one.
    ///
    /// # Safety
    /// See [`malloc`].
    pub unsafe extern "C-unwind" fn memalign(align: usize, size: usize) -> Ptr {
        let Some(align) = align.max(16).checked_next_power_of_two() else { return fail(libc::EINVAL) };
        // SAFETY: the alignment was made valid above.
        unsafe { jemalloc::aligned_alloc(align, size) }
    }

    /// `valloc(3)`.
    ///
    /// # Safety
    /// See [`malloc`].
    pub unsafe extern "C-unwind" fn valloc(size: usize) -> Ptr {
        // SAFETY: the page size is a valid alignment.
        unsafe { jemalloc::aligned_alloc(crate::sys::page_bytes(), size) }
    }

    /// `pvalloc(3)`.
    ///
    /// # Safety
    /// See [`malloc`].
    pub unsafe extern "C-unwind" fn pvalloc(size: usize) -> Ptr {
        let page = crate::sys::page_bytes();
        let Some(size) = size.checked_next_multiple_of(page) else { return fail(libc::ENOMEM) };
        // SAFETY: the page size is a valid alignment.
        unsafe { jemalloc::aligned_alloc(page, size.max(page)) }
    }

    /// `malloc_usable_size(3)`.
    ///
    /// # Safety
    /// See [`malloc`].
    pub unsafe extern "C-unwind" fn malloc_usable_size(block: Ptr) -> usize {
        // SAFETY: the caller keeps the contract of the C function, and jemalloc's has the same.
        unsafe { jemalloc::malloc_usable_size(block) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_gives_grows_and_ends() {
        let layout = |bytes, align| Layout::from_size_align(bytes, align).expect("a layout");
        let odd = from_reserve(layout(3, 1));
        let block = from_reserve(layout(100, 64));
        assert!(is_reserve(odd) && is_reserve(block) && block.addr().is_multiple_of(64));
        // SAFETY: blocks of this heap, used within their sizes.
        unsafe {
            block.write_bytes(7, 100);
            let grown = OwnHeap.realloc(block, layout(100, 64), 5000);
            assert!(!grown.is_null() && !is_reserve(grown) && *grown == 7 && *grown.add(99) == 7);
            OwnHeap.dealloc(grown, layout(5000, 64));
            OwnHeap.dealloc(odd, layout(3, 1));
        }
        assert!(!is_short());
        assert!(from_reserve(layout(RESERVE_BYTES, 1)).is_null());
        assert!(!from_reserve(layout(RESERVE_BYTES - 1000, 1)).is_null() && is_short());
    }
}
