//! Extents of blocks: the bytes that a block occupies in its allocator's memory, by the allocator's rules.

use std::ops::Range;

use super::Trace;

/// An allocator whose rules are known, or one whose are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocatorModel {
    /// The C library's: chunks with a word of header, in steps of 16 bytes, 32 at least.
    Glibc,
    /// jemalloc: four classes to each doubling.
    Jemalloc,
    /// Another allocator: a block counts with its requested bytes.
    Other,
}

/// glibc: bytes of a chunk for a request.
const GLIBC_LEAST: u64 = 32;
const GLIBC_STEP: u64 = 16;
/// glibc: a block that has a mapping of its own begins so far behind its start.
const GLIBC_MAPPED_HEADER: u64 = 16;
/// glibc: no block of fewer bytes has a mapping of its own.
const GLIBC_MAPPED_LEAST: u64 = 128 << 10;
const PAGE: u64 = 4096;

impl AllocatorModel {
    /// The model of the allocator that most of the recording's blocks are from.
    #[must_use]
    pub fn of(trace: &Trace) -> Self {
        let facts = trace.facts();
        let bundled = |option: &String| option == "TRACEHOUND_ALLOCATOR=jemalloc";
        if facts.process.as_ref().is_some_and(|process| process.options.iter().any(bundled)) {
            return Self::Jemalloc;
        }
        if facts.remarks.iter().any(|remark| remark.topic == "static-allocator") {
            return Self::Other;
        }
        let names: Vec<String> = trace.modules().iter().map(super::facts::ModuleFacts::name).collect();
        let has = |prefix: &str| names.iter().any(|name| name.starts_with(prefix));
        if has("libjemalloc") {
            Self::Jemalloc
        } else if ["libtcmalloc", "libmimalloc", "libsnmalloc", "libtbbmalloc", "libhoard", "librpmalloc", "libmesh"]
            .iter()
            .any(|prefix| has(prefix))
        {
            Self::Other
        } else if has("libc.so.6") || has("libc-2.") {
            Self::Glibc
        } else {
            Self::Other
        }
    }

    /// Its name, for sentences.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Glibc => "glibc",
            Self::Jemalloc => "jemalloc",
            Self::Other => "the allocator",
        }
    }

    /// The addresses that the allocator uses for a block: for instance the word before it, which holds its size.
    #[must_use]
    pub fn extent(self, address: u64, size: u64) -> Range<u64> {
        let end = |from: u64, len: u64| from..from.saturating_add(len.max(1));
        match self {
            Self::Glibc if is_glibc_mapping(address, size) => {
                let start = address - GLIBC_MAPPED_HEADER;
                end(start, size.saturating_add(GLIBC_MAPPED_HEADER).next_multiple_of(PAGE))
            }
            Self::Glibc => {
                let chunk =
                    size.saturating_add(8).checked_next_multiple_of(GLIBC_STEP).unwrap_or(size).max(GLIBC_LEAST);
                end(address.saturating_sub(8), chunk)
            }
            Self::Jemalloc => end(address, jemalloc_class(size)),
            Self::Other => end(address, size),
        }
    }
}

/// Whether glibc has given the block a mapping of its own, judged by its address.
#[must_use]
pub const fn is_glibc_mapping(address: u64, size: u64) -> bool {
    size >= GLIBC_MAPPED_LEAST && address % PAGE == GLIBC_MAPPED_HEADER
}

fn jemalloc_class(size: u64) -> u64 {
    match size {
        0..=8 => 8,
        9..=128 => size.next_multiple_of(16),
        _ => {
            let doubling = 63 - (size - 1).leading_zeros();
            size.checked_next_multiple_of(1 << (doubling - 2)).unwrap_or(size)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_glibc() {
        let model = AllocatorModel::Glibc;
        assert_eq!(model.extent(0x1010, 0), 0x1008..0x1028);
        assert_eq!(model.extent(0x1010, 24), 0x1008..0x1028);
        assert_eq!(model.extent(0x1010, 25), 0x1008..0x1038);
        assert_eq!(model.extent(0x7000_0010, 1 << 20), 0x7000_0000..0x7010_1000);
        assert_eq!(model.extent(u64::MAX - 8, u64::MAX).end, u64::MAX);
    }

    #[test]
    fn classes_of_jemalloc() {
        for (size, class) in [
            (1, 8),
            (9, 16),
            (100, 112),
            (128, 128),
            (129, 160),
            (257, 320),
            (1025, 1280),
            (14337, 16384),
            (16385, 20480),
            (1 << 20, 1 << 20),
        ] {
            assert_eq!(jemalloc_class(size), class, "{size}");
        }
    }
}
