//! The names: which functions each family of allocators has, and what they do by the numbers of their arguments.

use super::CallShape;
use crate::record::Kind;

pub(super) type NameRow = (&'static str, CallShape, u8, Kind);

/// The C library's names.
pub(super) const STANDARD: &[NameRow] = &[
    ("malloc", CallShape::Alloc(0), 1, Kind::Malloc),
    ("calloc", CallShape::AllocOfProduct(0), 2, Kind::Calloc),
    ("realloc", CallShape::Resize(0), 2, Kind::ReallocNew),
    ("reallocarray", CallShape::ResizeToProduct(0), 3, Kind::ReallocarrayNew),
    ("free", CallShape::Free, 1, Kind::Free),
    ("cfree", CallShape::Free, 1, Kind::Cfree),
    ("free_sized", CallShape::Free, 2, Kind::FreeSized),
    ("free_aligned_sized", CallShape::Free, 3, Kind::FreeAlignedSized),
    ("posix_memalign", CallShape::PosixMemalign, 3, Kind::PosixMemalign),
    ("aligned_alloc", CallShape::Alloc(1), 2, Kind::AlignedAlloc),
    ("memalign", CallShape::Alloc(1), 2, Kind::Memalign),
    ("valloc", CallShape::Alloc(0), 1, Kind::Valloc),
    ("pvalloc", CallShape::Alloc(0), 1, Kind::Pvalloc),
];

/// What jemalloc has besides, under the same prefix.
pub(super) const JEMALLOC: &[NameRow] = &[
    ("mallocx", CallShape::Alloc(0), 2, Kind::OtherAlloc),
    ("rallocx", CallShape::Resize(0), 3, Kind::ReallocNew),
    ("xallocx", CallShape::ResizeInPlace, 4, Kind::ReallocNew),
    ("dallocx", CallShape::Free, 2, Kind::OtherFree),
    ("sdallocx", CallShape::Free, 3, Kind::OtherFree),
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
pub(super) const MIMALLOC: &[NameRow] = &[
    ("malloc", CallShape::Alloc(0), 1, Kind::Malloc),
    ("calloc", CallShape::AllocOfProduct(0), 2, Kind::Calloc),
    ("realloc", CallShape::Resize(0), 2, Kind::ReallocNew),
    ("free", CallShape::Free, 1, Kind::Free),
    ("zalloc", CallShape::Alloc(0), 1, Kind::OtherAlloc),
    ("mallocn", CallShape::AllocOfProduct(0), 2, Kind::OtherAlloc),
    ("malloc_small", CallShape::Alloc(0), 1, Kind::OtherAlloc),
    ("zalloc_small", CallShape::Alloc(0), 1, Kind::OtherAlloc),
    ("malloc_aligned", CallShape::Alloc(0), 2, Kind::OtherAlloc),
    ("malloc_aligned_at", CallShape::Alloc(0), 3, Kind::OtherAlloc),
    ("zalloc_aligned", CallShape::Alloc(0), 2, Kind::OtherAlloc),
    ("zalloc_aligned_at", CallShape::Alloc(0), 3, Kind::OtherAlloc),
    ("calloc_aligned", CallShape::AllocOfProduct(0), 3, Kind::OtherAlloc),
    ("calloc_aligned_at", CallShape::AllocOfProduct(0), 4, Kind::OtherAlloc),
    ("reallocn", CallShape::ResizeToProduct(0), 3, Kind::ReallocarrayNew),
    ("reallocf", CallShape::ResizeOrFree(0), 2, Kind::ReallocNew),
    ("rezalloc", CallShape::Resize(0), 2, Kind::ReallocNew),
    ("recalloc", CallShape::ResizeToProduct(0), 3, Kind::ReallocarrayNew),
    ("realloc_aligned", CallShape::Resize(0), 3, Kind::ReallocNew),
    ("realloc_aligned_at", CallShape::Resize(0), 4, Kind::ReallocNew),
    ("rezalloc_aligned", CallShape::Resize(0), 3, Kind::ReallocNew),
    ("rezalloc_aligned_at", CallShape::Resize(0), 4, Kind::ReallocNew),
    ("recalloc_aligned", CallShape::ResizeToProduct(0), 4, Kind::ReallocarrayNew),
    ("recalloc_aligned_at", CallShape::ResizeToProduct(0), 5, Kind::ReallocarrayNew),
    ("strdup", CallShape::Copy(0), 1, Kind::OtherAlloc),
    ("strndup", CallShape::CopyAtMost(0), 2, Kind::OtherAlloc),
    ("alloc_new", CallShape::Alloc(0), 1, Kind::OtherAlloc),
    ("alloc_new_n", CallShape::AllocOfProduct(0), 2, Kind::OtherAlloc),
    ("expand", CallShape::Expand, 2, Kind::ReallocNew),
    ("_expand", CallShape::Expand, 2, Kind::ReallocNew),
    ("mbsdup", CallShape::Copy(0), 1, Kind::OtherAlloc),
    ("free_small", CallShape::Free, 1, Kind::OtherFree),
    ("free_size", CallShape::Free, 2, Kind::OtherFree),
    ("free_aligned", CallShape::Free, 2, Kind::OtherFree),
    ("free_size_aligned", CallShape::Free, 3, Kind::OtherFree),
    ("cfree", CallShape::Free, 1, Kind::Cfree),
    ("ufree", CallShape::Free, 2, Kind::OtherFree),
    ("umalloc", CallShape::Alloc(0), 2, Kind::OtherAlloc),
    ("umalloc_small", CallShape::Alloc(0), 2, Kind::OtherAlloc),
    ("uzalloc_small", CallShape::Alloc(0), 2, Kind::OtherAlloc),
    ("umalloc_aligned", CallShape::Alloc(0), 3, Kind::OtherAlloc),
    ("uzalloc_aligned", CallShape::Alloc(0), 3, Kind::OtherAlloc),
    ("ucalloc", CallShape::AllocOfProduct(0), 3, Kind::OtherAlloc),
    ("urealloc", CallShape::Resize(0), 4, Kind::ReallocNew),
    ("posix_memalign", CallShape::PosixMemalign, 3, Kind::PosixMemalign),
    ("memalign", CallShape::Alloc(1), 2, Kind::Memalign),
    ("aligned_alloc", CallShape::Alloc(1), 2, Kind::AlignedAlloc),
    ("valloc", CallShape::Alloc(0), 1, Kind::Valloc),
    ("pvalloc", CallShape::Alloc(0), 1, Kind::Pvalloc),
    ("reallocarray", CallShape::ResizeToProduct(0), 3, Kind::ReallocarrayNew),
    ("aligned_recalloc", CallShape::ResizeToProduct(0), 4, Kind::ReallocarrayNew),
    ("aligned_offset_recalloc", CallShape::ResizeToProduct(0), 5, Kind::ReallocarrayNew),
    ("new", CallShape::Alloc(0), 1, Kind::OtherAlloc),
    ("new_aligned", CallShape::Alloc(0), 2, Kind::OtherAlloc),
    ("new_nothrow", CallShape::Alloc(0), 1, Kind::OtherAlloc),
    ("new_aligned_nothrow", CallShape::Alloc(0), 2, Kind::OtherAlloc),
    ("heap_new", CallShape::Books, 0, Kind::OtherAlloc),
    ("heap_new_ex", CallShape::Books, 3, Kind::OtherAlloc),
    ("heap_new_in_arena", CallShape::Books, 1, Kind::OtherAlloc),
    ("heap_delete", CallShape::Books, 1, Kind::OtherFree),
    ("heap_destroy", CallShape::Books, 1, Kind::OtherFree),
    ("thread_done", CallShape::Books, 0, Kind::OtherFree),
    ("new_n", CallShape::AllocOfProduct(0), 2, Kind::OtherAlloc),
    ("new_realloc", CallShape::Resize(0), 2, Kind::ReallocNew),
    ("new_reallocn", CallShape::ResizeToProduct(0), 3, Kind::ReallocarrayNew),
];

/// How many of [`MIMALLOC`] exist as `mi_heap_…`: the first so many, but for `free`.
pub(super) const IN_HEAP: usize = 28;
const _: () = assert!(matches!(MIMALLOC[IN_HEAP - 1].0.as_bytes(), b"alloc_new_n"));

/// Functions of mimalloc that call its other functions on the program's behalf and are not in [`MIMALLOC`].
pub(super) const MIMALLOC_ON_BEHALF: &[&str] =
    &["realpath", "heap_realpath", "wcsdup", "dupenv_s", "wdupenv_s", "reallocarr"];

/// What tcmalloc has besides the standard names, behind `tc_`.
pub(super) const TCMALLOC: &[NameRow] = &[
    ("malloc_skip_new_handler", CallShape::Alloc(0), 1, Kind::Malloc),
    ("new", CallShape::Alloc(0), 1, Kind::OtherAlloc),
    ("new_nothrow", CallShape::Alloc(0), 2, Kind::OtherAlloc),
    ("newarray", CallShape::Alloc(0), 1, Kind::OtherAlloc),
    ("newarray_nothrow", CallShape::Alloc(0), 2, Kind::OtherAlloc),
    ("new_aligned", CallShape::Alloc(0), 2, Kind::OtherAlloc),
    ("new_aligned_nothrow", CallShape::Alloc(0), 3, Kind::OtherAlloc),
    ("newarray_aligned", CallShape::Alloc(0), 2, Kind::OtherAlloc),
    ("newarray_aligned_nothrow", CallShape::Alloc(0), 3, Kind::OtherAlloc),
    ("delete", CallShape::Free, 1, Kind::OtherFree),
    ("delete_nothrow", CallShape::Free, 2, Kind::OtherFree),
    ("delete_sized", CallShape::Free, 2, Kind::OtherFree),
    ("delete_aligned", CallShape::Free, 2, Kind::OtherFree),
    ("delete_sized_aligned", CallShape::Free, 3, Kind::OtherFree),
    ("delete_aligned_nothrow", CallShape::Free, 3, Kind::OtherFree),
    ("deletearray", CallShape::Free, 1, Kind::OtherFree),
    ("deletearray_nothrow", CallShape::Free, 2, Kind::OtherFree),
    ("deletearray_sized", CallShape::Free, 2, Kind::OtherFree),
    ("deletearray_aligned", CallShape::Free, 2, Kind::OtherFree),
    ("deletearray_sized_aligned", CallShape::Free, 3, Kind::OtherFree),
    ("deletearray_aligned_nothrow", CallShape::Free, 3, Kind::OtherFree),
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
