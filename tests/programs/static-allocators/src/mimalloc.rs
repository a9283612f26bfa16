//! mimalloc, linked statically: as Rust's global allocator, and by its own functions.

mod counted;
mod work;

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;

use counted::{Books, Counted};
use libmimalloc_sys as mi;

struct Mimalloc;

unsafe impl GlobalAlloc for Mimalloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        unsafe { mi::mi_malloc_aligned(layout.size(), layout.align()).cast() }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        unsafe { mi::mi_zalloc_aligned(layout.size(), layout.align()).cast() }
    }
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        unsafe { mi::mi_free(block.cast()) }
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        unsafe { mi::mi_realloc_aligned(block.cast(), size, layout.align()).cast() }
    }
}

#[global_allocator]
static ALLOCATOR: Counted<Mimalloc> = Counted(Mimalloc);

/// Blocks by mimalloc's own functions.
static DIRECT: Books = Books::new();

type Ptr = *mut c_void;

unsafe extern "C" {
    fn mi_heap_new() -> Ptr;
    fn mi_heap_delete(heap: Ptr);
    fn mi_heap_malloc(heap: Ptr, size: usize) -> Ptr;
    fn mi_heap_calloc(heap: Ptr, count: usize, size: usize) -> Ptr;
    fn mi_heap_realloc_aligned(heap: Ptr, block: Ptr, size: usize, align: usize) -> Ptr;
    fn mi_malloc(size: usize) -> Ptr;
    fn mi_calloc(count: usize, size: usize) -> Ptr;
    fn mi_realloc(block: Ptr, size: usize) -> Ptr;
    fn mi_reallocf(block: Ptr, size: usize) -> Ptr;
    fn mi_recalloc(block: Ptr, count: usize, size: usize) -> Ptr;
    fn mi_expand(block: Ptr, size: usize) -> Ptr;
    fn mi_strdup(text: *const c_char) -> *mut c_char;
    fn mi_strndup(text: *const c_char, len: usize) -> *mut c_char;
    fn mi_posix_memalign(out: *mut Ptr, align: usize, size: usize) -> c_int;
    fn mi_aligned_alloc(align: usize, size: usize) -> Ptr;
    fn mi_zalloc_small(size: usize) -> Ptr;
    fn mi_calloc_aligned_at(count: usize, size: usize, align: usize, offset: usize) -> Ptr;
    fn mi_free_size(block: Ptr, size: usize);
    fn mi_new(size: usize) -> Ptr;
    fn mi_version() -> c_int;
}

#[inline(never)]
unsafe fn by_heap(heap: Ptr, size: usize) -> Ptr {
    DIRECT.count_alloc(std::hint::black_box(unsafe { mi_heap_malloc(heap, size) }), size)
}

#[inline(never)]
unsafe fn api() -> bool {
    unsafe {
        let heap = mi_heap_new();
        let block = by_heap(heap, 41_001);
        let block = DIRECT.resized(mi_heap_realloc_aligned(heap, block, 41_002, 64), 41_001, 41_002);
        let zeroed = DIRECT.count_alloc(mi_heap_calloc(heap, 3, 333), 999);
        DIRECT.count_free(41_002);
        mi::mi_free(block);
        DIRECT.count_free(999);
        mi_free_size(zeroed, 999);
        mi_heap_delete(heap);

        let block = DIRECT.count_alloc(mi_malloc(60_000), 60_000);
        let grown = mi_expand(block, 60_001);
        if !grown.is_null() {
            DIRECT.resized(grown, 60_000, 60_001);
        }
        let size = if grown.is_null() { 60_000 } else { 60_001 };
        assert!(mi_expand(block, 1 << 30).is_null());
        let block = DIRECT.resized(mi_realloc(block, 123_457), size, 123_457);
        assert!(mi_reallocf(block, usize::MAX / 2).is_null());
        // reallocf has freed it.
        DIRECT.count_free(123_457);

        let list = DIRECT.count_alloc(mi_calloc(10, 1000), 10_000);
        let list = DIRECT.resized(mi_recalloc(list, 20, 1000), 10_000, 20_000);
        assert_eq!(*list.cast::<u8>().add(19_999), 0);
        DIRECT.count_free(20_000);
        mi::mi_free(list);

        let text = c"a text of some length, copied";
        let copy = DIRECT.count_alloc(mi_strdup(text.as_ptr()), text.count_bytes() + 1);
        let part = DIRECT.count_alloc(mi_strndup(text.as_ptr(), 6), 7);
        let same = CStr::from_ptr(copy) == text && CStr::from_ptr(part) == c"a text";
        DIRECT.count_free(text.count_bytes() + 1);
        mi::mi_free(copy.cast());
        DIRECT.count_free(7);
        mi::mi_free(part.cast());

        let mut aligned = null_mut();
        assert_eq!(mi_posix_memalign(&mut aligned, 4096, 5005), 0);
        assert!((DIRECT.count_alloc(aligned, 5005) as usize).is_multiple_of(4096));
        let small = DIRECT.count_alloc(mi_zalloc_small(24), 24);
        let offset = DIRECT.count_alloc(mi_calloc_aligned_at(4, 100, 64, 8), 400);
        assert_eq!((offset as usize + 8) % 64, 0);
        let again = DIRECT.count_alloc(mi_aligned_alloc(128, 1280), 1280);
        let new = DIRECT.count_alloc(mi_new(77), 77);
        for (block, size) in [(aligned, 5005), (small, 24), (offset, 400), (again, 1280), (new, 77)] {
            DIRECT.count_free(size);
            mi::mi_free(block);
        }
        mi::mi_free(null_mut());
        same && mi_version() >= 200
    }
}

fn main() {
    counted::say_counted_at_exit();
    println!("as expected: {}", unsafe { api() });
    let (allocs, bytes) = DIRECT.allocs();
    println!("truth function api {allocs} {bytes}");
    println!("truth leaked api 0 0");
    println!("truth frees api {}", DIRECT.frees());
    println!("truth stack 41001 by_heap api");
    println!("truth size 41002 1");
    println!("truth size 5005 1");
    work::work();
    std::process::exit(24);
}
