//! A global allocator that counts what passes through it to the system's, with `--cfg linked` through the crate `tracehound`;
//! included by the Rust programs.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

pub struct Counted;

#[cfg(not(linked))]
static INSIDE: System = System;
#[cfg(linked)]
static INSIDE: tracehound::Allocator = tracehound::Allocator::new(System);

static ALLOCS: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
static FREES: AtomicUsize = AtomicUsize::new(0);
static REALLOCS: AtomicUsize = AtomicUsize::new(0);
static LIVE: AtomicUsize = AtomicUsize::new(0);
static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);

fn count_alloc(block: *mut u8, size: usize) -> *mut u8 {
    if !block.is_null() {
        ALLOCS.fetch_add(1, SeqCst);
        BYTES.fetch_add(size, SeqCst);
        LIVE.fetch_add(1, SeqCst);
        LIVE_BYTES.fetch_add(size, SeqCst);
    }
    block
}

unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_alloc(unsafe { INSIDE.alloc(layout) }, layout.size())
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count_alloc(unsafe { INSIDE.alloc_zeroed(layout) }, layout.size())
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        FREES.fetch_add(1, SeqCst);
        LIVE.fetch_sub(1, SeqCst);
        LIVE_BYTES.fetch_sub(layout.size(), SeqCst);
        unsafe { INSIDE.dealloc(block, layout) }
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let new = unsafe { INSIDE.realloc(block, layout, size) };
        if !new.is_null() {
            ALLOCS.fetch_add(1, SeqCst);
            BYTES.fetch_add(size, SeqCst);
            REALLOCS.fetch_add(1, SeqCst);
            LIVE_BYTES.fetch_add(size, SeqCst);
            LIVE_BYTES.fetch_sub(layout.size(), SeqCst);
        }
        new
    }
}

#[global_allocator]
static COUNTED: Counted = Counted;

unsafe extern "C" {
    fn atexit(function: extern "C" fn()) -> i32;
    fn write(fd: i32, from: *const u8, len: usize) -> isize;
}

/// Asks for the ground truth to be printed when even std has cleaned up.
pub fn say_counted_at_exit() {
    assert_eq!(unsafe { atexit(say_counted) }, 0);
}

extern "C" fn say_counted() {
    use std::io::Write;
    let mut line = [0u8; 200];
    let len = {
        let mut rest = &mut line[..];
        let [a, b, f, r, l, lb] = [&ALLOCS, &BYTES, &FREES, &REALLOCS, &LIVE, &LIVE_BYTES].map(|n| n.load(SeqCst));
        let _ = writeln!(rest, "truth counted {a} {b} {f} {r} {l} {lb}");
        200 - rest.len()
    };
    // Past the lock and the buffer of std's output, which would allocate.
    unsafe { write(1, line.as_ptr(), len) };
}
