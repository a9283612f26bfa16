//! The names: which functions each family of allocators has, and what they do by the numbers of their arguments.

use super::Shape;
use crate::record::Kind;

pub(super) type Row = (&'static str, Shape, u8, Kind);

/// The C library's names.
pub(super) const STANDARD: &[Row] = &[
    ("malloc", Shape::Alloc(0), 1, Kind::Malloc),
    ("calloc", Shape::AllocOfProduct(0), 2, Kind::Calloc),
    ("realloc", Shape::Resize(0), 2, Kind::ReallocNew),
    ("reallocarray", Shape::ResizeToProduct(0), 3, Kind::ReallocarrayNew),
    ("free", Shape::Free, 1, Kind::Free),
    ("cfree", Shape::Free, 1, Kind::Cfree),
    ("free_sized", Shape::Free, 2, Kind::FreeSized),
    ("free_aligned_sized", Shape::Free, 3, Kind::FreeAlignedSized),
    ("posix_memalign", Shape::PosixMemalign, 3, Kind::PosixMemalign),
    ("aligned_alloc", Shape::Alloc(1), 2, Kind::AlignedAlloc),
    ("memalign", Shape::Alloc(1), 2, Kind::Memalign),
    ("valloc", Shape::Alloc(0), 1, Kind::Valloc),
    ("pvalloc", Shape::Alloc(0), 1, Kind::Pvalloc),
];

/// What jemalloc has besides, under the same prefix.
pub(super) const JEMALLOC: &[Row] = &[
    ("mallocx", Shape::Alloc(0), 2, Kind::OtherAlloc),
    ("rallocx", Shape::Resize(0), 3, Kind::ReallocNew),
    ("xallocx", Shape::ResizeInPlace, 4, Kind::ReallocNew),
    ("dallocx", Shape::Free, 2, Kind::OtherFree),
    ("sdallocx", Shape::Free, 3, Kind::OtherFree),
];

/// Names that prove jemalloc behind a prefix: one of the first kind and, unless the prefix is a usual one, one of the
/// second kind. Other allocators have `nallocx` and `sdallocx`, too.
pub(super) const JEMALLOC_PROOF: [&[&str]; 2] = [
    &["mallocx", "rallocx", "xallocx", "mallctl"],
    &["mallctl", "mallctlnametomib", "mallctlbymib", "malloc_stats_print"],
];
/// Prefixes that jemalloc usually has.
pub(super) const JEMALLOC_PREFIXES: [&[u8]; 3] = [b"", b"je_", b"_rjem_"];

/// Names behind `mi_`. Those in [`IN_HEAP`] exist with a heap as their first argument, too.
pub(super) const MIMALLOC: &[Row] = &[
    ("malloc", Shape::Alloc(0), 1, Kind::Malloc),
    ("calloc", Shape::AllocOfProduct(0), 2, Kind::Calloc),
    ("realloc", Shape::Resize(0), 2, Kind::ReallocNew),
    ("free", Shape::Free, 1, Kind::Free),
    ("zalloc", Shape::Alloc(0), 1, Kind::OtherAlloc),
    ("mallocn", Shape::AllocOfProduct(0), 2, Kind::OtherAlloc),
    ("malloc_small", Shape::Alloc(0), 1, Kind::OtherAlloc),
    ("zalloc_small", Shape::Alloc(0), 1, Kind::OtherAlloc),
    ("malloc_aligned", Shape::Alloc(0), 2, Kind::OtherAlloc),
    ("malloc_aligned_at", Shape::Alloc(0), 3, Kind::OtherAlloc),
    ("zalloc_aligned", Shape::Alloc(0), 2, Kind::OtherAlloc),
    ("zalloc_aligned_at", Shape::Alloc(0), 3, Kind::OtherAlloc),
    ("calloc_aligned", Shape::AllocOfProduct(0), 3, Kind::OtherAlloc),
    ("calloc_aligned_at", Shape::AllocOfProduct(0), 4, Kind::OtherAlloc),
    ("reallocn", Shape::ResizeToProduct(0), 3, Kind::ReallocarrayNew),
    ("reallocf", Shape::ResizeOrFree(0), 2, Kind::ReallocNew),
    ("rezalloc", Shape::Resize(0), 2, Kind::ReallocNew),
    ("recalloc", Shape::ResizeToProduct(0), 3, Kind::ReallocarrayNew),
    ("realloc_aligned", Shape::Resize(0), 3, Kind::ReallocNew),
    ("realloc_aligned_at", Shape::Resize(0), 4, Kind::ReallocNew),
    ("rezalloc_aligned", Shape::Resize(0), 3, Kind::ReallocNew),
    ("rezalloc_aligned_at", Shape::Resize(0), 4, Kind::ReallocNew),
    ("recalloc_aligned", Shape::ResizeToProduct(0), 4, Kind::ReallocarrayNew),
    ("recalloc_aligned_at", Shape::ResizeToProduct(0), 5, Kind::ReallocarrayNew),
    ("strdup", Shape::Copy(0), 1, Kind::OtherAlloc),
    ("strndup", Shape::CopyAtMost(0), 2, Kind::OtherAlloc),
    ("alloc_new", Shape::Alloc(0), 1, Kind::OtherAlloc),
    ("alloc_new_n", Shape::AllocOfProduct(0), 2, Kind::OtherAlloc),
    ("expand", Shape::Expand, 2, Kind::ReallocNew),
    ("_expand", Shape::Expand, 2, Kind::ReallocNew),
    ("mbsdup", Shape::Copy(0), 1, Kind::OtherAlloc),
    ("free_small", Shape::Free, 1, Kind::OtherFree),
    ("free_size", Shape::Free, 2, Kind::OtherFree),
    ("free_aligned", Shape::Free, 2, Kind::OtherFree),
    ("free_size_aligned", Shape::Free, 3, Kind::OtherFree),
    ("cfree", Shape::Free, 1, Kind::Cfree),
    ("ufree", Shape::Free, 2, Kind::OtherFree),
    ("umalloc", Shape::Alloc(0), 2, Kind::OtherAlloc),
    ("umalloc_small", Shape::Alloc(0), 2, Kind::OtherAlloc),
    ("uzalloc_small", Shape::Alloc(0), 2, Kind::OtherAlloc),
    ("umalloc_aligned", Shape::Alloc(0), 3, Kind::OtherAlloc),
    ("uzalloc_aligned", Shape::Alloc(0), 3, Kind::OtherAlloc),
    ("ucalloc", Shape::AllocOfProduct(0), 3, Kind::OtherAlloc),
    ("urealloc", Shape::Resize(0), 4, Kind::ReallocNew),
    ("posix_memalign", Shape::PosixMemalign, 3, Kind::PosixMemalign),
    ("memalign", Shape::Alloc(1), 2, Kind::Memalign),
    ("aligned_alloc", Shape::Alloc(1), 2, Kind::AlignedAlloc),
    ("valloc", Shape::Alloc(0), 1, Kind::Valloc),
    ("pvalloc", Shape::Alloc(0), 1, Kind::Pvalloc),
    ("reallocarray", Shape::ResizeToProduct(0), 3, Kind::ReallocarrayNew),
    ("aligned_recalloc", Shape::ResizeToProduct(0), 4, Kind::ReallocarrayNew),
    ("aligned_offset_recalloc", Shape::ResizeToProduct(0), 5, Kind::ReallocarrayNew),
    ("new", Shape::Alloc(0), 1, Kind::OtherAlloc),
    ("new_aligned", Shape::Alloc(0), 2, Kind::OtherAlloc),
    ("new_nothrow", Shape::Alloc(0), 1, Kind::OtherAlloc),
    ("new_aligned_nothrow", Shape::Alloc(0), 2, Kind::OtherAlloc),
    ("heap_new", Shape::Books, 0, Kind::OtherAlloc),
    ("heap_new_ex", Shape::Books, 3, Kind::OtherAlloc),
    ("heap_new_in_arena", Shape::Books, 1, Kind::OtherAlloc),
    ("heap_delete", Shape::Books, 1, Kind::OtherFree),
    ("heap_destroy", Shape::Books, 1, Kind::OtherFree),
    ("thread_done", Shape::Books, 0, Kind::OtherFree),
    ("new_n", Shape::AllocOfProduct(0), 2, Kind::OtherAlloc),
    ("new_realloc", Shape::Resize(0), 2, Kind::ReallocNew),
    ("new_reallocn", Shape::ResizeToProduct(0), 3, Kind::ReallocarrayNew),
];

/// How many of [`MIMALLOC`] exist as `mi_heap_…`: the first so many, but for `free`.
pub(super) const IN_HEAP: usize = 28;
const _: () = assert!(matches!(MIMALLOC[IN_HEAP - 1].0.as_bytes(), b"alloc_new_n"));

/// Functions of mimalloc that call its other functions on the program's behalf and are not in [`MIMALLOC`].
pub(super) const MIMALLOC_ON_BEHALF: &[&str] =
    &["realpath", "heap_realpath", "wcsdup", "dupenv_s", "wdupenv_s", "reallocarr"];

/// What tcmalloc has besides the standard names, behind `tc_`.
pub(super) const TCMALLOC: &[Row] = &[
    ("malloc_skip_new_handler", Shape::Alloc(0), 1, Kind::Malloc),
    ("new", Shape::Alloc(0), 1, Kind::OtherAlloc),
    ("new_nothrow", Shape::Alloc(0), 2, Kind::OtherAlloc),
    ("newarray", Shape::Alloc(0), 1, Kind::OtherAlloc),
    ("newarray_nothrow", Shape::Alloc(0), 2, Kind::OtherAlloc),
    ("new_aligned", Shape::Alloc(0), 2, Kind::OtherAlloc),
    ("new_aligned_nothrow", Shape::Alloc(0), 3, Kind::OtherAlloc),
    ("newarray_aligned", Shape::Alloc(0), 2, Kind::OtherAlloc),
    ("newarray_aligned_nothrow", Shape::Alloc(0), 3, Kind::OtherAlloc),
    ("delete", Shape::Free, 1, Kind::OtherFree),
    ("delete_nothrow", Shape::Free, 2, Kind::OtherFree),
    ("delete_sized", Shape::Free, 2, Kind::OtherFree),
    ("delete_aligned", Shape::Free, 2, Kind::OtherFree),
    ("delete_sized_aligned", Shape::Free, 3, Kind::OtherFree),
    ("delete_aligned_nothrow", Shape::Free, 3, Kind::OtherFree),
    ("deletearray", Shape::Free, 1, Kind::OtherFree),
    ("deletearray_nothrow", Shape::Free, 2, Kind::OtherFree),
    ("deletearray_sized", Shape::Free, 2, Kind::OtherFree),
    ("deletearray_aligned", Shape::Free, 2, Kind::OtherFree),
    ("deletearray_sized_aligned", Shape::Free, 3, Kind::OtherFree),
    ("deletearray_aligned_nothrow", Shape::Free, 3, Kind::OtherFree),
];

/// `operator new` and `operator delete`, mangled (Itanium C++ ABI), and their arguments.
pub(super) const OPERATORS: &[(&str, u8)] = &[
    ("_Znwm", 1),
    ("_Znam", 1),
    ("_ZnwmRKSt9nothrow_t", 2),
    ("_ZnamRKSt9nothrow_t", 2),
    ("_ZnwmSt11align_val_t", 2),
    ("_ZnamSt11align_val_t", 2),
    ("_ZnwmSt11align_val_tRKSt9nothrow_t", 3),
    ("_ZnamSt11align_val_tRKSt9nothrow_t", 3),
    ("_ZdlPv", 1),
    ("_ZdaPv", 1),
    ("_ZdlPvRKSt9nothrow_t", 2),
    ("_ZdaPvRKSt9nothrow_t", 2),
    ("_ZdlPvm", 2),
    ("_ZdaPvm", 2),
    ("_ZdlPvSt11align_val_t", 2),
    ("_ZdaPvSt11align_val_t", 2),
    ("_ZdlPvmSt11align_val_t", 3),
    ("_ZdaPvmSt11align_val_t", 3),
    ("_ZdlPvSt11align_val_tRKSt9nothrow_t", 3),
    ("_ZdaPvSt11align_val_tRKSt9nothrow_t", 3),
];

/// Names that only a sanitizer's run-time library has: it keeps its own books of every block.
pub(super) const SANITIZERS: &[&str] = &["__asan_init", "__hwasan_init", "__msan_init", "__tsan_init", "__lsan_init"];
