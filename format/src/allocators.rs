//! Allocators that programs carry inside themselves: the functions by which blocks are allocated and freed, known by
//! name.
//!
//! The recorder hooks them where they begin; `heaptrace run` reports beforehand what it will find. A name alone proves
//! little, so each family has names that only it has: without one of them nothing of the family counts.
//!
//! ```text
//! jemalloc   <prefix>malloc …, <prefix>mallocx …       prefix empty, je_, _rjem_, …; proof: mallocx or mallctl
//! mimalloc   mi_[heap_|theap_]malloc …                 proof: functions named _mi_…
//! tcmalloc   tc_malloc …                               proof: tc_malloc and tc_free
//! standard   malloc, free … defined by the program     proof: both, and visible to other objects
//! ```
//! `operator new` and `operator delete` count where one of the last three does: these families define them as well.

mod names;
#[cfg(test)]
mod tests;

use crate::record::Kind;
use names::{
    IN_HEAP, JEMALLOC, JEMALLOC_PREFIXES, JEMALLOC_PROOF, MIMALLOC, MIMALLOC_ON_BEHALF, NameRow, OPERATORS, SANITIZERS,
    STANDARD, TCMALLOC,
};

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

    /// Names of several, for messages.
    #[must_use]
    pub fn list(families: &[Self]) -> String {
        let mut names = String::new();
        for family in families {
            if !names.is_empty() {
                names.push_str(" and ");
            }
            names.push_str(family.name());
        }
        names
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

    /// The families that [`text_inside`](Self::text_inside) identifies.
    pub const WITH_TEXT: [Self; 3] = [Self::Jemalloc, Self::Mimalloc, Self::Tcmalloc];
}

/// What a function does, by the numbers of its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallShape {
    /// Gives a block of as many bytes as the argument says.
    Alloc(u8),
    /// Gives a block; the size is the product of the argument and the next one.
    AllocOfProduct(u8),
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
    Free,
    /// Neither: its allocations and frees are the allocator's own metadata.
    Books,
}

/// A function of an allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocatorFunction {
    /// What it does.
    pub shape: CallShape,
    /// How many arguments it takes.
    pub arguments: u8,
    /// What an allocation or a free through it is recorded as.
    pub kind: Kind,
}

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

fn find(rows: &'static [NameRow], name: &[u8]) -> Option<AllocatorFunction> {
    let &(_, shape, arguments, kind) = rows.iter().find(|row| row.0.as_bytes() == name)?;
    Some(AllocatorFunction { shape, arguments, kind })
}

/// Whether a string of a symbol table may be, or end in, a name that [`Finder::symbol`] uses.
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
pub struct FoundFunction {
    /// Its name.
    pub name: Vec<u8>,
    /// Whose it is.
    pub family: Family,
    /// What it does.
    pub function: AllocatorFunction,
    /// Address in the file.
    pub start: u64,
    /// Address behind it; `start` when the symbol has no size.
    pub end: u64,
}

/// The family of a function that it offers to other objects beside the C library's names: a preloaded library does not
/// hook it.
#[must_use]
pub fn beside_standard(name: &[u8]) -> Option<Family> {
    let any = |rows: &[&'static [NameRow]], name| rows.iter().any(|rows| find(rows, name).is_some());
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
    pub functions: Vec<FoundFunction>,
    /// Address ranges of code from which the allocators call themselves, in order, not overlapping.
    pub inside: Vec<(u64, u64)>,
    /// The program contains a sanitizer: nothing is hooked.
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
    candidates: Vec<(Candidate, Vec<u8>, FoundFunction)>,
    /// Names that prove jemalloc behind a prefix, by kinds of proof.
    proofs: [Vec<Vec<u8>>; 2],
    /// Functions of mimalloc's that are not in the table: start, end.
    mimalloc: Vec<(u64, u64)>,
    mimalloc_proofs: u32,
    sanitizer: bool,
}

impl Finder {
    /// A function of the file: its name, its addresses, and whether other objects may see it.
    pub fn symbol(&mut self, name: &[u8], start: u64, end: u64, global: bool) {
        let found = |family, function| FoundFunction { name: name.to_vec(), family, function, start, end };
        if SANITIZERS.iter().any(|known| known.as_bytes() == name) {
            self.sanitizer = true;
        }
        if let Some(function) = find(STANDARD, name).filter(|_| global) {
            self.candidates.push((Candidate::Standard, Vec::new(), found(Family::Standard, function)));
        }
        if let Some(&(operator, arguments)) = OPERATORS.iter().find(|known| known.0.as_bytes() == name) {
            let is_new = operator.starts_with("_Zn");
            let (shape, kind) =
                if is_new { (CallShape::Alloc(0), Kind::OtherAlloc) } else { (CallShape::Free, Kind::OtherFree) };
            let function = AllocatorFunction { shape, arguments, kind };
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

    fn jemalloc(&mut self, name: &[u8], found: &dyn Fn(Family, AllocatorFunction) -> FoundFunction) {
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

    /// The functions that are proved to be an allocator's.
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
        let mut functions: Vec<FoundFunction> = self
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

fn mimalloc(rest: &[u8]) -> Option<AllocatorFunction> {
    let in_heap = rest.strip_prefix(b"heap_").or_else(|| rest.strip_prefix(b"theap_"));
    let exact = find(MIMALLOC, rest);
    let Some(name) = in_heap.filter(|_| exact.is_none()) else { return exact };
    let function = find(MIMALLOC.get(..IN_HEAP)?, name).filter(|function| function.shape != CallShape::Free)?;
    let shape = match function.shape {
        CallShape::Alloc(at) => CallShape::Alloc(at + 1),
        CallShape::AllocOfProduct(at) => CallShape::AllocOfProduct(at + 1),
        CallShape::Copy(at) => CallShape::Copy(at + 1),
        CallShape::CopyAtMost(at) => CallShape::CopyAtMost(at + 1),
        CallShape::Resize(at) => CallShape::Resize(at + 1),
        CallShape::ResizeToProduct(at) => CallShape::ResizeToProduct(at + 1),
        CallShape::ResizeOrFree(at) => CallShape::ResizeOrFree(at + 1),
        CallShape::PosixMemalign
        | CallShape::ResizeInPlace
        | CallShape::Expand
        | CallShape::Free
        | CallShape::Books => return None,
    };
    Some(AllocatorFunction { shape, arguments: function.arguments + 1, ..function })
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
