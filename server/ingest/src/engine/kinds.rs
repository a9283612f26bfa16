//! Kinds of records as the pairing takes them, and the key by which a block is found.

use tracehound_format::record::Kind;

/// What a kind means here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KindClass {
    Alloc,
    Free,
    ReallocFrom,
    ReallocTo,
    Other,
}

const CLASSES: [KindClass; 64] = {
    let mut classes = [KindClass::Other; 64];
    let mut number = 1;
    while number < 64 {
        if let Some(kind) = Kind::from_u8(number) {
            classes[number as usize] = if kind.is_alloc() {
                KindClass::Alloc
            } else if kind.is_free() {
                KindClass::Free
            } else if kind.is_realloc_from() {
                KindClass::ReallocFrom
            } else if kind.is_realloc_to() {
                KindClass::ReallocTo
            } else {
                KindClass::Other
            };
        }
        number += 1;
    }
    classes
};

impl KindClass {
    #[inline]
    pub(super) const fn of(kind: u8) -> Self {
        CLASSES[(kind & 63) as usize]
    }

    /// Whether events of the class allocate a block.
    #[inline]
    pub(super) const fn allocates(self) -> bool {
        matches!(self, Self::Alloc | Self::ReallocTo)
    }

    /// Whether events of the class end a block.
    #[inline]
    pub(super) const fn ends(self) -> bool {
        matches!(self, Self::Free | Self::ReallocFrom)
    }
}

/// Blocks of a pool lie inside blocks of the allocator, often at the very same address: they are told apart.
const POOL: u64 = 1 << 63;

/// Whether a key is that of a block in a pool.
#[inline]
pub(super) const fn is_in_pool(key: u64) -> bool {
    key & POOL != 0
}

/// Key of a block in the live map.
#[inline]
#[must_use]
pub fn key_of(address: u64, kind: u8) -> u64 {
    if kind == Kind::PoolAlloc as u8 || kind == Kind::PoolFree as u8 { address ^ POOL } else { address }
}
