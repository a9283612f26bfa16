//! Allocators that programs carry inside themselves: the functions by which blocks are born and die, known by name.
//!
//! The recorder hooks them where they begin; `heaptrace run` says beforehand what it will find. A name alone proves
//! little, so each family has names that only it has: without one of them nothing of the family counts.
//!
//! ```text
//! jemalloc   <prefix>malloc …, <prefix>mallocx …       prefix empty, je_, _rjem_, …; proof: mallocx or mallctl
//! mimalloc   mi_[heap_|theap_]malloc …                 proof: functions named _mi_…
//! tcmalloc   tc_malloc …                               proof: tc_malloc and tc_free
//! standard   malloc, free … defined by the program     proof: both, and visible to other objects
//! ```
//! `operator new` and `operator delete` count where one of the last three does: these families define them as well.

use crate::record::Kind;

/// Whose functions they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// jemalloc, with any prefix.
    Jemalloc,
    /// mimalloc.
    Mimalloc,
    /// tcmalloc of gperftools.
    Tcmalloc,
    /// The C library's names, defined by the program.
    Standard,
}

impl Family {
    /// Name for messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jemalloc => "jemalloc",
            Self::Mimalloc => "mimalloc",
            Self::Tcmalloc => "tcmalloc",
            Self::Standard => "a malloc of the program's own",
        }
    }

    /// Text that the family's object code contains however it was stripped: how its messages begin.
    #[must_use]
    pub const fn text_inside(self) -> Option<&'static str> {
        match self {
            Self::Jemalloc => Some("<jemalloc>: "),
            Self::Mimalloc => Some("mimalloc: "),
            Self::Tcmalloc => Some("tcmalloc: "),
            Self::Standard => None,
        }
    }

    /// The families that [`text_inside`](Self::text_inside) can tell.
    pub const WITH_TEXT: [Self; 3] = [Self::Jemalloc, Self::Mimalloc, Self::Tcmalloc];
}

/// What a function does, by the numbers of its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Gives a block of as many bytes as the argument says.
    Birth(u8),
    /// Gives a block; the size is the product of the argument and the next one.
    BirthOfProduct(u8),
    /// Gives a copy of the string.
    Copy(u8),
    /// Gives a copy of the string, of at most as many characters as the next argument says.
    CopyAtMost(u8),
    /// `posix_memalign`.
    PosixMemalign,
    /// Makes a block of another size from the block in the argument; the size is in the next one.
    Resize(u8),
    /// The same; the size is the product of the next two.
    ResizeToProduct(u8),
    /// As `Resize`; the old block is freed when it fails.
    ResizeOrFree(u8),
    /// `xallocx`: block, size, extra, flags; gives the real size, less than asked if it failed.
    ResizeInPlace,
    /// `mi_expand`: block, size; gives the block, or NULL if it failed.
    Expand,
    /// Ends the block in the first argument.
    Death,
    /// Neither: what it allocates and frees are the allocator's own books.
    Books,
}

/// A function of an allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function {
    /// What it does.
    pub shape: Shape,
    /// How many arguments it takes.
    pub arguments: u8,
    /// What a birth or a death through it is recorded as.
    pub kind: Kind,
}

type Row = (&'static str, Shape, u8, Kind);

/// The C library's names.
const STANDARD: &[Row] = &[
    ("malloc", Shape::Birth(0), 1, Kind::Malloc),
    ("calloc", Shape::BirthOfProduct(0), 2, Kind::Calloc),
    ("realloc", Shape::Resize(0), 2, Kind::ReallocNew),
    ("reallocarray", Shape::ResizeToProduct(0), 3, Kind::ReallocarrayNew),
    ("free", Shape::Death, 1, Kind::Free),
    ("cfree", Shape::Death, 1, Kind::Cfree),
    ("free_sized", Shape::Death, 2, Kind::FreeSized),
    ("free_aligned_sized", Shape::Death, 3, Kind::FreeAlignedSized),
    ("posix_memalign", Shape::PosixMemalign, 3, Kind::PosixMemalign),
    ("aligned_alloc", Shape::Birth(1), 2, Kind::AlignedAlloc),
    ("memalign", Shape::Birth(1), 2, Kind::Memalign),
    ("valloc", Shape::Birth(0), 1, Kind::Valloc),
    ("pvalloc", Shape::Birth(0), 1, Kind::Pvalloc),
];

/// What jemalloc has besides, under the same prefix.
const JEMALLOC: &[Row] = &[
    ("mallocx", Shape::Birth(0), 2, Kind::OtherAlloc),
    ("rallocx", Shape::Resize(0), 3, Kind::ReallocNew),
    ("xallocx", Shape::ResizeInPlace, 4, Kind::ReallocNew),
    ("dallocx", Shape::Death, 2, Kind::OtherFree),
    ("sdallocx", Shape::Death, 3, Kind::OtherFree),
];

/// Names that prove jemalloc behind a prefix: one of the first kind and, unless the prefix is a usual one, one of the
/// second kind. Other allocators have `nallocx` and `sdallocx`, too.
const JEMALLOC_PROOF: [&[&str]; 2] = [
    &["mallocx", "rallocx", "xallocx", "mallctl"],
    &["mallctl", "mallctlnametomib", "mallctlbymib", "malloc_stats_print"],
];
/// Prefixes that jemalloc usually has.
const JEMALLOC_PREFIXES: [&[u8]; 3] = [b"", b"je_", b"_rjem_"];

/// Names behind `mi_`. Those in [`IN_HEAP`] exist with a heap as their first argument, too.
const MIMALLOC: &[Row] = &[
    ("malloc", Shape::Birth(0), 1, Kind::Malloc),
    ("calloc", Shape::BirthOfProduct(0), 2, Kind::Calloc),
    ("realloc", Shape::Resize(0), 2, Kind::ReallocNew),
    ("free", Shape::Death, 1, Kind::Free),
    ("zalloc", Shape::Birth(0), 1, Kind::OtherAlloc),
    ("mallocn", Shape::BirthOfProduct(0), 2, Kind::OtherAlloc),
    ("malloc_small", Shape::Birth(0), 1, Kind::OtherAlloc),
    ("zalloc_small", Shape::Birth(0), 1, Kind::OtherAlloc),
    ("malloc_aligned", Shape::Birth(0), 2, Kind::OtherAlloc),
    ("malloc_aligned_at", Shape::Birth(0), 3, Kind::OtherAlloc),
    ("zalloc_aligned", Shape::Birth(0), 2, Kind::OtherAlloc),
    ("zalloc_aligned_at", Shape::Birth(0), 3, Kind::OtherAlloc),
    ("calloc_aligned", Shape::BirthOfProduct(0), 3, Kind::OtherAlloc),
    ("calloc_aligned_at", Shape::BirthOfProduct(0), 4, Kind::OtherAlloc),
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
    ("alloc_new", Shape::Birth(0), 1, Kind::OtherAlloc),
    ("alloc_new_n", Shape::BirthOfProduct(0), 2, Kind::OtherAlloc),
    ("expand", Shape::Expand, 2, Kind::ReallocNew),
    ("_expand", Shape::Expand, 2, Kind::ReallocNew),
    ("mbsdup", Shape::Copy(0), 1, Kind::OtherAlloc),
    ("free_small", Shape::Death, 1, Kind::OtherFree),
    ("free_size", Shape::Death, 2, Kind::OtherFree),
    ("free_aligned", Shape::Death, 2, Kind::OtherFree),
    ("free_size_aligned", Shape::Death, 3, Kind::OtherFree),
    ("cfree", Shape::Death, 1, Kind::Cfree),
    ("ufree", Shape::Death, 2, Kind::OtherFree),
    ("umalloc", Shape::Birth(0), 2, Kind::OtherAlloc),
    ("umalloc_small", Shape::Birth(0), 2, Kind::OtherAlloc),
    ("uzalloc_small", Shape::Birth(0), 2, Kind::OtherAlloc),
    ("umalloc_aligned", Shape::Birth(0), 3, Kind::OtherAlloc),
    ("uzalloc_aligned", Shape::Birth(0), 3, Kind::OtherAlloc),
    ("ucalloc", Shape::BirthOfProduct(0), 3, Kind::OtherAlloc),
    ("urealloc", Shape::Resize(0), 4, Kind::ReallocNew),
    ("posix_memalign", Shape::PosixMemalign, 3, Kind::PosixMemalign),
    ("memalign", Shape::Birth(1), 2, Kind::Memalign),
    ("aligned_alloc", Shape::Birth(1), 2, Kind::AlignedAlloc),
    ("valloc", Shape::Birth(0), 1, Kind::Valloc),
    ("pvalloc", Shape::Birth(0), 1, Kind::Pvalloc),
    ("reallocarray", Shape::ResizeToProduct(0), 3, Kind::ReallocarrayNew),
    ("aligned_recalloc", Shape::ResizeToProduct(0), 4, Kind::ReallocarrayNew),
    ("aligned_offset_recalloc", Shape::ResizeToProduct(0), 5, Kind::ReallocarrayNew),
    ("new", Shape::Birth(0), 1, Kind::OtherAlloc),
    ("new_aligned", Shape::Birth(0), 2, Kind::OtherAlloc),
    ("new_nothrow", Shape::Birth(0), 1, Kind::OtherAlloc),
    ("new_aligned_nothrow", Shape::Birth(0), 2, Kind::OtherAlloc),
    ("heap_new", Shape::Books, 0, Kind::OtherAlloc),
    ("heap_new_ex", Shape::Books, 3, Kind::OtherAlloc),
    ("heap_new_in_arena", Shape::Books, 1, Kind::OtherAlloc),
    ("heap_delete", Shape::Books, 1, Kind::OtherFree),
    ("heap_destroy", Shape::Books, 1, Kind::OtherFree),
    ("thread_done", Shape::Books, 0, Kind::OtherFree),
    ("new_n", Shape::BirthOfProduct(0), 2, Kind::OtherAlloc),
    ("new_realloc", Shape::Resize(0), 2, Kind::ReallocNew),
    ("new_reallocn", Shape::ResizeToProduct(0), 3, Kind::ReallocarrayNew),
];

/// How many of [`MIMALLOC`] exist as `mi_heap_…`: the first so many, but for `free`.
const IN_HEAP: usize = 28;
const _: () = assert!(matches!(MIMALLOC[IN_HEAP - 1].0.as_bytes(), b"alloc_new_n"));

/// Functions of mimalloc that call its other functions on the program's behalf and are not in [`MIMALLOC`].
const MIMALLOC_ON_BEHALF: &[&str] = &["realpath", "heap_realpath", "wcsdup", "dupenv_s", "wdupenv_s", "reallocarr"];

/// What tcmalloc has besides the standard names, behind `tc_`.
const TCMALLOC: &[Row] = &[
    ("malloc_skip_new_handler", Shape::Birth(0), 1, Kind::Malloc),
    ("new", Shape::Birth(0), 1, Kind::OtherAlloc),
    ("new_nothrow", Shape::Birth(0), 2, Kind::OtherAlloc),
    ("newarray", Shape::Birth(0), 1, Kind::OtherAlloc),
    ("newarray_nothrow", Shape::Birth(0), 2, Kind::OtherAlloc),
    ("new_aligned", Shape::Birth(0), 2, Kind::OtherAlloc),
    ("new_aligned_nothrow", Shape::Birth(0), 3, Kind::OtherAlloc),
    ("newarray_aligned", Shape::Birth(0), 2, Kind::OtherAlloc),
    ("newarray_aligned_nothrow", Shape::Birth(0), 3, Kind::OtherAlloc),
    ("delete", Shape::Death, 1, Kind::OtherFree),
    ("delete_nothrow", Shape::Death, 2, Kind::OtherFree),
    ("delete_sized", Shape::Death, 2, Kind::OtherFree),
    ("delete_aligned", Shape::Death, 2, Kind::OtherFree),
    ("delete_sized_aligned", Shape::Death, 3, Kind::OtherFree),
    ("delete_aligned_nothrow", Shape::Death, 3, Kind::OtherFree),
    ("deletearray", Shape::Death, 1, Kind::OtherFree),
    ("deletearray_nothrow", Shape::Death, 2, Kind::OtherFree),
    ("deletearray_sized", Shape::Death, 2, Kind::OtherFree),
    ("deletearray_aligned", Shape::Death, 2, Kind::OtherFree),
    ("deletearray_sized_aligned", Shape::Death, 3, Kind::OtherFree),
    ("deletearray_aligned_nothrow", Shape::Death, 3, Kind::OtherFree),
];

/// `operator new` and `operator delete`, mangled (Itanium C++ ABI), and their arguments.
const OPERATORS: &[(&str, u8)] = &[
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
const SANITIZERS: &[&str] = &["__asan_init", "__hwasan_init", "__msan_init", "__tsan_init", "__lsan_init"];

/// Allocators that are known, but not hooked when they are inside a program: a name of each that the program calls.
pub const NOT_HOOKED: &[(&str, &str)] = &[
    ("rpmalloc", "rpmalloc"),
    ("sn_rust_alloc", "snmalloc"),
    ("snmalloc_alloc", "snmalloc"),
    ("scalable_malloc", "oneTBB's scalable allocator"),
    ("xxmalloc", "a Heap Layers allocator"),
    ("GC_malloc", "the Boehm collector"),
    ("dlmalloc", "dlmalloc"),
];

/// Longest prefix of jemalloc that is understood.
const LONGEST_PREFIX: usize = 24;

fn find(rows: &'static [Row], name: &[u8]) -> Option<Function> {
    let &(_, shape, arguments, kind) = rows.iter().find(|row| row.0.as_bytes() == name)?;
    Some(Function { shape, arguments, kind })
}

/// Whether a string of a symbol table may be, or end in, a name that [`Finder::symbol`] wants to see.
#[must_use]
pub fn is_interesting(name: &[u8]) -> bool {
    const TAILS: [&[u8]; 9] =
        [b"alloc", b"allocx", b"free", b"_sized", b"memalign", b"array", b"mallctl", b"mib", b"stats_print"];
    TAILS.iter().any(|tail| name.ends_with(tail))
        || name.starts_with(b"_Zn")
        || name.starts_with(b"_Zd")
        || name.ends_with(b"san_init")
        || name.windows(3).any(|window| matches!(window, b"mi_" | b"tc_"))
}

/// A function that is to be hooked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its name.
    pub name: Vec<u8>,
    /// Whose it is.
    pub family: Family,
    /// What it does.
    pub function: Function,
    /// Address in the file.
    pub start: u64,
    /// Address behind it; `start` when the symbol has no size.
    pub end: u64,
}

/// The family that offers this function to other objects beside the C library's names, if one does: a preloaded library
/// does not stand before it.
#[must_use]
pub fn beside_standard(name: &[u8]) -> Option<Family> {
    let any = |rows: &[&'static [Row]], name| rows.iter().any(|rows| find(rows, name).is_some());
    if let Some(rest) = name.strip_prefix(b"mi_") {
        return mimalloc(rest).map(|_| Family::Mimalloc);
    }
    if let Some(rest) = name.strip_prefix(b"tc_") {
        return any(&[STANDARD, TCMALLOC], rest).then_some(Family::Tcmalloc);
    }
    let prefixed = JEMALLOC_PREFIXES.iter().filter(|prefix| !prefix.is_empty());
    let rest = prefixed.filter_map(|prefix| name.strip_prefix(*prefix)).next();
    let is_jemalloc = match rest {
        Some(rest) => any(&[STANDARD, JEMALLOC], rest),
        None => any(&[JEMALLOC], name),
    };
    is_jemalloc.then_some(Family::Jemalloc)
}

/// What [`Finder::finish`] makes of the symbols.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allocators {
    /// The functions to hook, by address, each address once.
    pub functions: Vec<Found>,
    /// Addresses of code from which the allocators call themselves, in order, not overlapping.
    pub inside: Vec<(u64, u64)>,
    /// The program brings a sanitizer: nothing is to be hooked.
    pub sanitizer: bool,
}

impl Allocators {
    /// The families that are there.
    #[must_use]
    pub fn families(&self) -> Vec<Family> {
        let mut list: Vec<Family> = self.functions.iter().map(|found| found.family).collect();
        list.sort_unstable();
        list.dedup();
        list
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Candidate {
    Jemalloc,
    Mimalloc,
    Tcmalloc,
    Standard,
    Operator,
}

/// Looks through the functions that a file defines.
#[derive(Debug, Default)]
pub struct Finder {
    candidates: Vec<(Candidate, Vec<u8>, Found)>,
    /// What speaks for jemalloc behind a prefix, by kinds of proof.
    proofs: [Vec<Vec<u8>>; 2],
    /// Functions of mimalloc's that are not in the table: start, end.
    mimalloc: Vec<(u64, u64)>,
    mimalloc_proofs: u32,
    sanitizer: bool,
}

impl Finder {
    /// A function of the file: its name, its addresses, and whether other objects may see it.
    pub fn symbol(&mut self, name: &[u8], start: u64, end: u64, global: bool) {
        let found = |family, function| Found { name: name.to_vec(), family, function, start, end };
        if SANITIZERS.iter().any(|known| known.as_bytes() == name) {
            self.sanitizer = true;
        }
        if let Some(function) = find(STANDARD, name).filter(|_| global) {
            self.candidates.push((Candidate::Standard, Vec::new(), found(Family::Standard, function)));
        }
        if let Some(&(operator, arguments)) = OPERATORS.iter().find(|known| known.0.as_bytes() == name) {
            let is_new = operator.starts_with("_Zn");
            let (shape, kind) =
                if is_new { (Shape::Birth(0), Kind::OtherAlloc) } else { (Shape::Death, Kind::OtherFree) };
            let function = Function { shape, arguments, kind };
            self.candidates.push((Candidate::Operator, Vec::new(), found(Family::Standard, function)));
            return;
        }
        if name.starts_with(b"_mi_") {
            self.mimalloc_proofs += 1;
            self.mimalloc.push((start, end));
        } else if let Some(rest) = name.strip_prefix(b"mi_") {
            match mimalloc(rest) {
                Some(function) => {
                    self.candidates.push((Candidate::Mimalloc, Vec::new(), found(Family::Mimalloc, function)));
                }
                None if MIMALLOC_ON_BEHALF.iter().any(|known| known.as_bytes() == rest) => {}
                None => self.mimalloc.push((start, end)),
            }
        } else if let Some(rest) = name.strip_prefix(b"tc_") {
            if let Some(function) = find(STANDARD, rest).or_else(|| find(TCMALLOC, rest)) {
                self.candidates.push((Candidate::Tcmalloc, Vec::new(), found(Family::Tcmalloc, function)));
            }
        } else {
            self.jemalloc(name, &found);
        }
    }

    fn jemalloc(&mut self, name: &[u8], found: &dyn Fn(Family, Function) -> Found) {
        let splits = name.iter().take(LONGEST_PREFIX).enumerate().filter(|(_, byte)| **byte == b'_');
        for at in [0].into_iter().chain(splits.map(|(at, _)| at + 1)) {
            let (prefix, rest) = name.split_at(at);
            for (proofs, names) in self.proofs.iter_mut().zip(JEMALLOC_PROOF) {
                if names.iter().any(|known| known.as_bytes() == rest) {
                    proofs.push(prefix.to_vec());
                }
            }
            if let Some(function) = find(JEMALLOC, rest).or_else(|| find(STANDARD, rest)) {
                self.candidates.push((Candidate::Jemalloc, prefix.to_vec(), found(Family::Jemalloc, function)));
            }
        }
    }

    /// What of it counts.
    #[must_use]
    pub fn finish(mut self) -> Allocators {
        /// So many names with `_mi_` are no coincidence.
        const MIMALLOC_PROOFS: u32 = 3;
        let has = |kind, name: &[u8]| {
            self.candidates.iter().any(|(candidate, _, found)| *candidate == kind && found.name == name)
        };
        let mimalloc = self.mimalloc_proofs >= MIMALLOC_PROOFS;
        let tcmalloc = has(Candidate::Tcmalloc, b"tc_malloc") && has(Candidate::Tcmalloc, b"tc_free");
        let standard = has(Candidate::Standard, b"malloc") && has(Candidate::Standard, b"free");
        let operators = standard || tcmalloc || mimalloc && has(Candidate::Mimalloc, b"mi_new");
        let [first, second] = core::mem::take(&mut self.proofs);
        let jemalloc = |prefix: &Vec<u8>| {
            first.contains(prefix) && (JEMALLOC_PREFIXES.contains(&&prefix[..]) || second.contains(prefix))
        };
        let mut functions: Vec<Found> = self
            .candidates
            .into_iter()
            .filter(|(candidate, prefix, _)| match candidate {
                Candidate::Jemalloc => jemalloc(prefix),
                Candidate::Mimalloc => mimalloc,
                Candidate::Tcmalloc => tcmalloc,
                Candidate::Standard => standard,
                Candidate::Operator => operators,
            })
            .map(|(_, _, found)| found)
            .collect();
        // Several names for one function are usual: the family that is known best names it.
        functions.sort_by_key(|found| (found.start, found.family, found.function.kind as u8));
        functions.dedup_by_key(|found| found.start);
        let mut inside: Vec<(u64, u64)> = functions.iter().map(|found| (found.start, found.end)).collect();
        if mimalloc {
            inside.append(&mut self.mimalloc);
        }
        Allocators { functions, inside: merged(inside), sanitizer: self.sanitizer }
    }
}

fn mimalloc(rest: &[u8]) -> Option<Function> {
    let in_heap = rest.strip_prefix(b"heap_").or_else(|| rest.strip_prefix(b"theap_"));
    let exact = find(MIMALLOC, rest);
    let Some(name) = in_heap.filter(|_| exact.is_none()) else { return exact };
    let function = find(MIMALLOC.get(..IN_HEAP)?, name).filter(|function| function.shape != Shape::Death)?;
    let shape = match function.shape {
        Shape::Birth(at) => Shape::Birth(at + 1),
        Shape::BirthOfProduct(at) => Shape::BirthOfProduct(at + 1),
        Shape::Copy(at) => Shape::Copy(at + 1),
        Shape::CopyAtMost(at) => Shape::CopyAtMost(at + 1),
        Shape::Resize(at) => Shape::Resize(at + 1),
        Shape::ResizeToProduct(at) => Shape::ResizeToProduct(at + 1),
        Shape::ResizeOrFree(at) => Shape::ResizeOrFree(at + 1),
        Shape::PosixMemalign | Shape::ResizeInPlace | Shape::Expand | Shape::Death | Shape::Books => return None,
    };
    Some(Function { shape, arguments: function.arguments + 1, ..function })
}

/// Ranges in order; those that touch become one.
fn merged(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    /// Functions begin at multiples of this; what lies between them is padding.
    const ALIGN: u64 = 16;
    ranges.retain(|(start, end)| end > start);
    ranges.sort_unstable();
    let mut out: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match out.last_mut() {
            Some(last) if start <= last.1.saturating_add(ALIGN - 1) => last.1 = last.1.max(end),
            _ => out.push((start, end)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_in(names: &[&str]) -> Allocators {
        let mut finder = Finder::default();
        for (at, name) in names.iter().enumerate() {
            finder.symbol(name.as_bytes(), at as u64 * 64, at as u64 * 64 + 40, true);
        }
        finder.finish()
    }

    fn names(found: &Allocators) -> Vec<&str> {
        found.functions.iter().map(|found| std::str::from_utf8(&found.name).unwrap()).collect()
    }

    #[test]
    fn jemalloc_with_any_prefix_is_found_once_it_is_proved() {
        let found =
            find_in(&["_rjem_malloc", "_rjem_sdallocx", "_rjem_mallctl", "unrelated_malloc", "_rjem_je_arena_new"]);
        assert_eq!(names(&found), ["_rjem_malloc", "_rjem_sdallocx"]);
        assert_eq!(found.families(), [Family::Jemalloc]);
        assert_eq!(names(&find_in(&["my_malloc", "my_free"])), [""; 0]);
        let other = ["a_b_malloc", "a_b_xallocx"];
        assert_eq!(names(&find_in(&other)), [""; 0]);
        assert_eq!(names(&find_in(&[other[0], other[1], "a_b_mallctl"])), other);
        // A wrapper's name, and what tcmalloc has of it.
        assert_eq!(names(&find_in(&["by_mallocx", "by_malloc", "nallocx", "sdallocx"])), [""; 0]);
    }

    #[test]
    fn standard_names_count_when_malloc_and_free_are_both_there_and_visible() {
        assert_eq!(names(&find_in(&["malloc", "free", "strdup", "_Znwm"])), ["malloc", "free", "_Znwm"]);
        assert_eq!(names(&find_in(&["free", "_Znwm", "_ZdlPv"])), [""; 0]);
        let mut finder = Finder::default();
        finder.symbol(b"malloc", 0, 8, false);
        finder.symbol(b"free", 16, 24, false);
        assert_eq!(finder.finish(), Allocators::default());
        // Hidden in the object, but jemalloc's.
        let mut finder = Finder::default();
        finder.symbol(b"malloc", 0, 8, false);
        finder.symbol(b"mallocx", 16, 24, false);
        assert_eq!(finder.finish().functions.len(), 2);
    }

    #[test]
    fn what_is_offered_beside_the_standard_names() {
        for (name, family) in [
            ("mallocx", Family::Jemalloc),
            ("je_malloc", Family::Jemalloc),
            ("_rjem_sdallocx", Family::Jemalloc),
            ("mi_heap_malloc", Family::Mimalloc),
            ("tc_newarray", Family::Tcmalloc),
        ] {
            assert_eq!(beside_standard(name.as_bytes()), Some(family), "{name}");
        }
        for name in ["malloc", "free", "mi_version", "je_tsd_get", "_Znwm", "mallctl"] {
            assert_eq!(beside_standard(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn mimalloc_takes_heaps_and_knows_its_own_code() {
        let mut list =
            vec!["mi_malloc", "mi_heap_malloc_aligned", "mi_free", "mi_thread_init", "mi_strdup", "mi_realpath"];
        assert_eq!(names(&find_in(&list)), [""; 0]);
        list.extend(["_mi_malloc_generic", "_mi_os_alloc", "_mi_page_malloc"]);
        let found = find_in(&list);
        assert_eq!(names(&found), ["mi_malloc", "mi_heap_malloc_aligned", "mi_free", "mi_strdup"]);
        assert_eq!(
            found.functions[1].function,
            Function { shape: Shape::Birth(1), arguments: 3, kind: Kind::OtherAlloc }
        );
        let is_inside = |at: u64| found.inside.iter().any(|range| (range.0..range.1).contains(&at));
        assert!(is_inside(3 * 64) && is_inside(6 * 64) && !is_inside(5 * 64));
    }

    #[test]
    fn one_function_with_two_names_is_hooked_once() {
        let mut finder = Finder::default();
        for name in ["tc_malloc", "malloc", "tc_free", "free", "tc_new", "_Znwm"] {
            let at = if name.ends_with("malloc") {
                16
            } else if name.ends_with("free") {
                32
            } else {
                48
            };
            finder.symbol(name.as_bytes(), at, at + 8, true);
        }
        let found = finder.finish();
        assert_eq!(names(&found), ["tc_malloc", "tc_free", "tc_new"]);
        assert_eq!(found.inside, [(16, 56)]);
    }

    #[test]
    fn a_sanitizer_is_noticed() {
        assert!(find_in(&["malloc", "free", "__asan_init"]).sanitizer);
    }

    #[test]
    fn every_name_is_interesting_also_behind_another_ones_beginning() {
        let rows =
            |prefix: &'static str, rows: &'static [Row]| rows.iter().map(move |row| format!("{prefix}{}", row.0));
        let all = rows("", STANDARD)
            .chain(rows("je_", STANDARD))
            .chain(rows("", JEMALLOC))
            .chain(rows("mi_heap_", MIMALLOC))
            .chain(rows("tc_", TCMALLOC))
            .chain(rows("tc_", STANDARD))
            .chain(JEMALLOC_PROOF.iter().copied().flatten().chain(SANITIZERS).map(|name| (*name).to_owned()));
        for name in all {
            assert!(is_interesting(name.as_bytes()), "{name}");
            assert!(is_interesting(format!("other{name}").as_bytes()), "{name}");
        }
        assert!(OPERATORS.iter().all(|(name, _)| is_interesting(name.as_bytes())));
        assert!(!is_interesting(b"main") && !is_interesting(b"_ZN3std2io5stdio6_print17h"));
    }

    #[test]
    fn arguments_named_by_shapes_exist() {
        for rows in [STANDARD, JEMALLOC, MIMALLOC, TCMALLOC] {
            for (name, shape, arguments, _) in rows {
                let last = match shape {
                    Shape::Birth(at) | Shape::Copy(at) => *at,
                    Shape::BirthOfProduct(at) | Shape::CopyAtMost(at) | Shape::Resize(at) | Shape::ResizeOrFree(at) => {
                        at + 1
                    }
                    Shape::ResizeToProduct(at) => at + 2,
                    Shape::PosixMemalign => 2,
                    Shape::ResizeInPlace => 3,
                    Shape::Expand => 1,
                    Shape::Death => 0,
                    Shape::Books => continue,
                };
                assert!(last < *arguments, "{name}");
            }
        }
    }
}
