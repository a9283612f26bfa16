//! jemalloc under the C library's names, linked statically: `malloc` is then the program's own, and Rust's global
//! allocator goes by `mallocx` and `sdallocx` as that of tikv-jemallocator does. Built by rustc alone, with Debian's
//! archive.

mod counted;
mod work;

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

use counted::{Books, Counted};

type Ptr = *mut c_void;

unsafe extern "C" {
    fn mallocx(size: usize, flags: c_int) -> Ptr;
    fn rallocx(block: Ptr, size: usize, flags: c_int) -> Ptr;
    fn xallocx(block: Ptr, size: usize, extra: usize, flags: c_int) -> usize;
    fn sdallocx(block: Ptr, size: usize, flags: c_int);
    fn dallocx(block: Ptr, flags: c_int);
    fn mallctl(name: *const c_char, old: Ptr, old_len: *mut usize, new: Ptr, new_len: usize) -> c_int;
}

struct Jemalloc;

const ZERO: c_int = 0x40;

fn flags(layout: Layout) -> c_int {
    layout.align().trailing_zeros().cast_signed()
}

// SAFETY: jemalloc's functions do what the trait asks for; layouts of no bytes do not come here.
unsafe impl GlobalAlloc for Jemalloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: plain forwarding, here and below.
        unsafe { mallocx(layout.size(), flags(layout)).cast() }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: see above.
        unsafe { mallocx(layout.size(), flags(layout) | ZERO).cast() }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: see above.
        unsafe { sdallocx(block.cast(), layout.size(), flags(layout)) }
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: see above.
        unsafe { rallocx(block.cast(), size, flags(layout)).cast() }
    }
}

#[global_allocator]
static ALLOCATOR: Counted<Jemalloc> = Counted(Jemalloc);

/// Blocks by jemalloc's own functions.
static DIRECT: Books = Books::new();

#[inline(never)]
fn by_mallocx(size: usize) -> Ptr {
    // SAFETY: a size that is not zero.
    DIRECT.count_alloc(std::hint::black_box(unsafe { mallocx(size, 6 | ZERO) }), size)
}

#[inline(never)]
fn api() -> (c_int, u32) {
    let block = by_mallocx(41_001);
    assert!((block as usize).is_multiple_of(64));
    // SAFETY: blocks from these functions, given back once.
    unsafe {
        let block = DIRECT.resized(rallocx(block, 41_002, 6), 41_001, 41_002);
        let large = DIRECT.count_alloc(mallocx(4 << 20, 0), 4 << 20);
        assert!(xallocx(large, 2 << 20, 0, 0) >= 2 << 20);
        DIRECT.resized(large, 4 << 20, 2 << 20);
        DIRECT.count_free(2 << 20);
        sdallocx(large, 2 << 20, 0);
        DIRECT.count_free(41_002);
        dallocx(block, 0);
        let (mut arenas, mut len) = (0_u32, size_of::<u32>());
        let result = mallctl(c"opt.narenas".as_ptr(), (&raw mut arenas).cast(), &mut len, null_mut(), 0);
        (result, arenas)
    }
}

fn main() {
    counted::say_counted_at_exit();
    let (result, arenas) = api();
    println!("mallctl: {result}, some arenas: {}", arenas > 0);
    let (allocs, bytes) = DIRECT.allocs();
    println!("truth function api {allocs} {bytes}");
    println!("truth leaked api 0 0");
    println!("truth frees api {}", DIRECT.frees());
    println!("truth stack 41001 by_mallocx api");
    println!("truth size 41002 1");
    work::work();
    std::process::exit(25);
}
