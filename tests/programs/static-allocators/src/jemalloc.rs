//! jemalloc, linked statically: as Rust's global allocator, and by its own functions.

mod counted;
mod work;

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use counted::{Books, Counted};
use tikv_jemalloc_sys as je;

#[global_allocator]
static ALLOCATOR: Counted<tikv_jemallocator::Jemalloc> = Counted(tikv_jemallocator::Jemalloc);

/// Blocks by jemalloc's own functions.
static DIRECT: Books = Books::new();

const ZERO: c_int = 0x40;

const fn align(log: c_int) -> c_int {
    log
}

#[inline(never)]
unsafe fn by_mallocx(size: usize) -> *mut c_void {
    DIRECT.count_alloc(std::hint::black_box(unsafe { je::mallocx(size, align(6) | ZERO) }), size)
}

#[inline(never)]
unsafe fn by_malloc(size: usize) -> *mut c_void {
    DIRECT.count_alloc(std::hint::black_box(unsafe { je::malloc(size) }), size)
}

#[inline(never)]
unsafe fn api() -> (Option<i32>, i32, u32) {
    unsafe {
        let block = by_mallocx(41_001);
        assert!((block as usize).is_multiple_of(64) && *block.cast::<u8>() == 0);
        let block = DIRECT.resized(je::rallocx(block, 41_002, align(6)), 41_001, 41_002);
        // In place: large classes can shrink where they are.
        let large = DIRECT.count_alloc(je::mallocx(4 << 20, 0), 4 << 20);
        let real = je::xallocx(large, 2 << 20, 0, 0);
        assert!(real >= 2 << 20);
        DIRECT.resized(large, 4 << 20, 2 << 20);
        // A small block cannot become a large one where it is.
        let small = by_malloc(7168);
        assert!(je::xallocx(small, 1 << 20, 0, 0) < 1 << 20);
        assert!(je::nallocx(100, 0) >= 100 && je::sallocx(small, 0) == 7168);
        DIRECT.count_free(2 << 20);
        je::sdallocx(large, 2 << 20, 0);
        DIRECT.count_free(41_002);
        je::dallocx(block, 0);
        DIRECT.count_free(7168);
        je::free(small);

        let block = DIRECT.count_alloc(je::calloc(7, 1001), 7 * 1001);
        let block = DIRECT.resized(je::realloc(block, 50_003), 7 * 1001, 50_003);
        let mut aligned = null_mut();
        assert_eq!(je::posix_memalign(&mut aligned, 4096, 5005), 0);
        assert!((DIRECT.count_alloc(aligned, 5005) as usize).is_multiple_of(4096));
        let again = DIRECT.count_alloc(je::aligned_alloc(128, 1280), 1280);
        DIRECT.count_free(50_003);
        je::free(block);
        DIRECT.count_free(5005);
        je::free(aligned);
        DIRECT.count_free(1280);
        je::free(again);
        je::free(null_mut());

        let too_much = std::hint::black_box(je::malloc(usize::MAX / 2));
        assert!(too_much.is_null());
        let error = std::io::Error::last_os_error().raw_os_error();
        let (mut narenas, mut len) = (0_u32, size_of::<u32>());
        let result = je::mallctl(c"opt.narenas".as_ptr(), (&raw mut narenas).cast(), &mut len, null_mut(), 0);
        (error, result, narenas)
    }
}

fn main() {
    counted::say_counted_at_exit();
    let (error, result, narenas) = unsafe { api() };
    println!("without memory: {error:?}; mallctl: {result}, some arenas: {}", narenas > 0);
    let (allocs, bytes) = DIRECT.allocs();
    println!("truth function api {allocs} {bytes}");
    println!("truth leaked api 0 0");
    println!("truth frees api {}", DIRECT.frees());
    println!("truth stack 41001 by_mallocx api");
    println!("truth stack 7168 by_malloc api");
    println!("truth size 41002 1");
    println!("truth size 5005 1");
    work::work();
    std::process::exit(23);
}
