//! Counts what the program asks its allocator for, and prints it at the end; see tests/src/truth.rs.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Books of some blocks.
pub struct Books {
    allocs: AtomicUsize,
    bytes: AtomicUsize,
    frees: AtomicUsize,
    reallocs: AtomicUsize,
    live: AtomicUsize,
    live_bytes: AtomicUsize,
}

impl Books {
    pub const fn new() -> Self {
        let [allocs, bytes, frees, reallocs, live, live_bytes] = [const { AtomicUsize::new(0) }; 6];
        Self { allocs, bytes, frees, reallocs, live, live_bytes }
    }

    /// Counts a block of `size` bytes that was allocated; a null block is not counted.
    pub fn count_alloc<T>(&self, block: *mut T, size: usize) -> *mut T {
        if !block.is_null() {
            self.allocs.fetch_add(1, SeqCst);
            self.bytes.fetch_add(size, SeqCst);
            self.live.fetch_add(1, SeqCst);
            self.live_bytes.fetch_add(size, SeqCst);
        }
        block
    }

    /// Counts a block of `size` bytes that is freed now.
    pub fn count_free(&self, size: usize) {
        self.frees.fetch_add(1, SeqCst);
        self.live.fetch_sub(1, SeqCst);
        self.live_bytes.fetch_sub(size, SeqCst);
    }

    /// A block was resized; a null result means that nothing happened.
    pub fn resized<T>(&self, block: *mut T, before: usize, after: usize) -> *mut T {
        if !block.is_null() {
            self.allocs.fetch_add(1, SeqCst);
            self.bytes.fetch_add(after, SeqCst);
            self.reallocs.fetch_add(1, SeqCst);
            self.live_bytes.fetch_add(after, SeqCst);
            self.live_bytes.fetch_sub(before, SeqCst);
        }
        block
    }

    /// Allocations and their bytes.
    pub fn allocs(&self) -> (usize, usize) {
        (self.allocs.load(SeqCst), self.bytes.load(SeqCst))
    }

    /// Frees.
    pub fn frees(&self) -> usize {
        self.frees.load(SeqCst)
    }
}

static GLOBAL: Books = Books::new();

/// The allocator, with its books.
pub struct Counted<A>(pub A);

unsafe impl<A: GlobalAlloc> GlobalAlloc for Counted<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        GLOBAL.count_alloc(unsafe { self.0.alloc(layout) }, layout.size())
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        GLOBAL.count_alloc(unsafe { self.0.alloc_zeroed(layout) }, layout.size())
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        GLOBAL.count_free(layout.size());
        unsafe { self.0.dealloc(block, layout) }
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        GLOBAL.resized(unsafe { self.0.realloc(block, layout, size) }, layout.size(), size)
    }
}

unsafe extern "C" {
    fn atexit(function: extern "C" fn()) -> i32;
    fn write(fd: i32, from: *const u8, len: usize) -> isize;
}

/// Asks for the ground truth to be printed when even std has cleaned up: blocks that passed through [`Counted`].
pub fn say_counted_at_exit() {
    assert_eq!(unsafe { atexit(say_counted) }, 0);
}

extern "C" fn say_counted() {
    use std::io::Write;
    let mut line = [0u8; 200];
    let len = {
        let mut rest = &mut line[..];
        let Books { allocs, bytes, frees, reallocs, live, live_bytes } = &GLOBAL;
        let [a, b, f, r, l, lb] = [allocs, bytes, frees, reallocs, live, live_bytes].map(|n| n.load(SeqCst));
        let _ = writeln!(rest, "truth counted {a} {b} {f} {r} {l} {lb}");
        200 - rest.len()
    };
    // Past the lock and the buffer of std's output, which would allocate.
    unsafe { write(1, line.as_ptr(), len) };
}
