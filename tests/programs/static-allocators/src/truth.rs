//! Counts what the program asks its allocator for, and prints it at the end; see tests/src/ground_truth.rs.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

static ALLOCS: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
static FREES: AtomicUsize = AtomicUsize::new(0);
static REALLOCS: AtomicUsize = AtomicUsize::new(0);
static LIVE: AtomicUsize = AtomicUsize::new(0);
static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// A block of `size` bytes came to be; a null block did not.
pub fn born<T>(block: *mut T, size: usize) -> *mut T {
    if !block.is_null() {
        ALLOCS.fetch_add(1, SeqCst);
        BYTES.fetch_add(size, SeqCst);
        LIVE.fetch_add(1, SeqCst);
        LIVE_BYTES.fetch_add(size, SeqCst);
    }
    block
}

/// A block of `size` bytes ends now.
pub fn dies(size: usize) {
    FREES.fetch_add(1, SeqCst);
    LIVE.fetch_sub(1, SeqCst);
    LIVE_BYTES.fetch_sub(size, SeqCst);
}

/// A block was resized; a null result means that nothing happened.
pub fn resized<T>(block: *mut T, before: usize, after: usize) -> *mut T {
    if !block.is_null() {
        ALLOCS.fetch_add(1, SeqCst);
        BYTES.fetch_add(after, SeqCst);
        REALLOCS.fetch_add(1, SeqCst);
        LIVE_BYTES.fetch_add(after, SeqCst);
        LIVE_BYTES.fetch_sub(before, SeqCst);
    }
    block
}

/// The allocator, with its books.
pub struct Counted<A>(pub A);

unsafe impl<A: GlobalAlloc> GlobalAlloc for Counted<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        born(unsafe { self.0.alloc(layout) }, layout.size())
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        born(unsafe { self.0.alloc_zeroed(layout) }, layout.size())
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        dies(layout.size());
        unsafe { self.0.dealloc(block, layout) }
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        resized(unsafe { self.0.realloc(block, layout, size) }, layout.size(), size)
    }
}

unsafe extern "C" {
    fn atexit(function: extern "C" fn()) -> i32;
    fn write(fd: i32, from: *const u8, len: usize) -> isize;
}

/// Asks for the ground truth to be printed when even std has cleaned up: blocks by the executable's own calls.
pub fn say_own_at_exit() {
    assert_eq!(unsafe { atexit(say_own) }, 0);
}

extern "C" fn say_own() {
    use std::io::Write;
    let mut line = [0u8; 200];
    let len = {
        let mut rest = &mut line[..];
        let [a, b, f, r, l, lb] = [&ALLOCS, &BYTES, &FREES, &REALLOCS, &LIVE, &LIVE_BYTES].map(|n| n.load(SeqCst));
        let _ = writeln!(rest, "truth own {a} {b} {f} {r} {l} {lb}");
        200 - rest.len()
    };
    // Past the lock and the buffer of std's output, which would allocate.
    unsafe { write(1, line.as_ptr(), len) };
}
