//! One event as it lies in a chunk: three 64-bit words, published by storing word 0 last.
//!
//! ```text
//! word 0   kind (6 bits)  | tick (58 bits) << 6       0 = nothing published here yet
//! word 1   address
//! word 2   node (32 bits) | size (32 bits) << 32
//! ```
//! Allocations are stamped after the allocator returned, frees before it is called, so that at equal addresses the
//! order by tick is the true order across threads.
//!
//! One event is one record, but for
//! - realloc: [`Kind::is_realloc_from`] (old address, stamped before) directly followed by the matching
//!   [`Kind::is_realloc_to`] (new address and size, stamped after);
//! - mremap: [`Kind::MremapFrom`] (old address, old length) followed by [`Kind::MremapTo`] (new address, new length);
//! - sizes of 4 GiB and more, and blocks whose alignment the program asked for: preceded by [`Kind::SizeHigh`], whose
//!   address word is a [`RequestDetails`];
//! - mmap: preceded by [`Kind::MapDetail`], address word = `prot | flags << 32`, size = file descriptor or `u32::MAX`.
//!
//! [`Kind::Context`] is no event: it names the request context of the thread's records behind it.

/// Bytes of a record.
pub const RECORD_BYTES: usize = 24;

/// Bits of word 0 that hold the kind.
pub const KIND_BITS: u32 = 6;

/// What happened, and through which function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// `malloc`.
    Malloc = 1,
    /// `calloc`.
    Calloc = 2,
    /// `realloc(NULL, n)`: an allocation without a predecessor.
    ReallocNew = 3,
    /// `reallocarray(NULL, n, m)`.
    ReallocarrayNew = 4,
    /// `posix_memalign`.
    PosixMemalign = 5,
    /// `aligned_alloc`.
    AlignedAlloc = 6,
    /// `memalign`.
    Memalign = 7,
    /// `valloc`.
    Valloc = 8,
    /// `pvalloc`.
    Pvalloc = 9,
    /// `tracehound_pool_alloc`.
    PoolAlloc = 10,
    /// An allocation in an allocator hooked inside the executable (`mallocx` and the like).
    OtherAlloc = 11,
    /// A block that a forked child inherited, recorded at the start of its recording.
    Inherited = 12,

    /// `free`.
    Free = 16,
    /// `cfree`.
    Cfree = 17,
    /// `free_sized`.
    FreeSized = 18,
    /// `free_aligned_sized`.
    FreeAlignedSized = 19,
    /// `realloc(p, 0)` that freed the block and returned NULL.
    ReallocFree = 20,
    /// `tracehound_pool_free`.
    PoolFree = 21,
    /// A free in an allocator hooked inside the executable.
    OtherFree = 22,

    /// `realloc`: the old block.
    ReallocFrom = 24,
    /// `realloc`: the new block.
    ReallocTo = 25,
    /// `reallocarray`: the old block.
    ReallocarrayFrom = 26,
    /// `reallocarray`: the new block.
    ReallocarrayTo = 27,

    /// `mmap`.
    Mmap = 32,
    /// `munmap`.
    Munmap = 33,
    /// `mremap`: the old range.
    MremapFrom = 34,
    /// `mremap`: the new range.
    MremapTo = 35,
    /// `brk` or `sbrk`: address = new break, size = bytes moved (two's complement over 32 bits, high half in
    /// [`Kind::SizeHigh`]).
    Brk = 36,
    /// Memory that was already mapped when recording began; of no thread, and without what is the recorder's.
    MapExisting = 37,
    /// A block that the allocator had handed out before recording began, found in its heap; of no thread. The size is
    /// what it holds, which is what was asked for or a little more.
    ExistingBlock = 38,

    /// `tracehound_mark`: address word = ordinal of the label in the metadata.
    Mark = 40,
    /// The process forked here: size = pid of the child.
    Fork = 41,
    /// Events of this thread are missing here (address = how many); the first record after the gap.
    Lost = 42,
    /// Recording was switched on.
    CaptureStart = 43,
    /// Recording was switched off.
    CaptureStop = 44,
    /// The thread's records from here on belong to this request context: address word = its id, 0 = none. Stamped as the
    /// record that follows.
    Context = 45,

    /// What the next record has no room for: the upper 32 bits of its size, and its alignment. Address word:
    /// [`RequestDetails`].
    SizeHigh = 48,
    /// Details of the [`Kind::Mmap`] that follows.
    MapDetail = 49,
}

/// Details of a request that its record has no room for: the address word of [`Kind::SizeHigh`]. Bits 0 to 31 are the
/// upper half of the
/// size, bits 32 to 39 the power of two that the alignment is, 0 where none was asked for beyond what every block has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct RequestDetails(u64);

impl RequestDetails {
    /// Every block has this alignment.
    const EVERY_ALIGNMENT: u64 = 16;

    /// Of a request for `size` bytes at a multiple of `alignment`. Allocators take the next power of two where it is none.
    #[inline]
    #[must_use]
    pub const fn of(size: u64, alignment: u64) -> Self {
        let is_usual = alignment <= Self::EVERY_ALIGNMENT;
        let power = if is_usual { 0 } else { (u64::BITS - (alignment - 1).leading_zeros()) as u64 };
        Self(size >> 32 | power << 32)
    }

    /// From a record's address word; bits without a meaning are dropped.
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        Self(word & 0xff_ffff_ffff)
    }

    /// The record's address word.
    #[inline]
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// Whether there are no details beyond the record.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The upper half of the size.
    #[must_use]
    pub const fn size_high(self) -> u64 {
        self.0 & 0xffff_ffff
    }

    /// The alignment, as a power of two; 0: none was asked for.
    #[must_use]
    pub const fn alignment(self) -> u8 {
        (self.0 >> 32) as u8
    }
}

const KINDS: [Option<Kind>; 64] = {
    use Kind::*;
    let list = [
        Malloc,
        Calloc,
        ReallocNew,
        ReallocarrayNew,
        PosixMemalign,
        AlignedAlloc,
        Memalign,
        Valloc,
        Pvalloc,
        PoolAlloc,
        OtherAlloc,
        Inherited,
        Free,
        Cfree,
        FreeSized,
        FreeAlignedSized,
        ReallocFree,
        PoolFree,
        OtherFree,
        ReallocFrom,
        ReallocTo,
        ReallocarrayFrom,
        ReallocarrayTo,
        Mmap,
        Munmap,
        MremapFrom,
        MremapTo,
        Brk,
        MapExisting,
        ExistingBlock,
        Mark,
        Fork,
        Lost,
        CaptureStart,
        CaptureStop,
        Context,
        SizeHigh,
        MapDetail,
    ];
    let mut table = [None; 64];
    let mut i = 0;
    while i < list.len() {
        table[list[i] as usize] = Some(list[i]);
        i += 1;
    }
    table
};

impl Kind {
    /// The kind with this number, if this version knows it.
    #[inline]
    #[must_use]
    pub const fn from_u8(kind: u8) -> Option<Self> {
        if kind < 64 { KINDS[kind as usize] } else { None }
    }

    /// A block is allocated, without a predecessor.
    #[inline]
    #[must_use]
    pub const fn is_alloc(self) -> bool {
        (self as u8) < 16
    }

    /// A block is freed, without a successor.
    #[inline]
    #[must_use]
    pub const fn is_free(self) -> bool {
        self as u8 >= 16 && (self as u8) < 24
    }

    /// First half of a realloc.
    #[inline]
    #[must_use]
    pub const fn is_realloc_from(self) -> bool {
        matches!(self, Self::ReallocFrom | Self::ReallocarrayFrom)
    }

    /// Second half of a realloc.
    #[inline]
    #[must_use]
    pub const fn is_realloc_to(self) -> bool {
        matches!(self, Self::ReallocTo | Self::ReallocarrayTo)
    }

    /// The record's address word is an address of the program.
    #[inline]
    #[must_use]
    pub const fn has_address(self) -> bool {
        (self as u8) < 40
    }

    /// Name of the function behind the kind, as in `dump`'s `"function"`.
    #[must_use]
    pub const fn function(self) -> &'static str {
        match self {
            Self::Malloc => "malloc",
            Self::Calloc => "calloc",
            Self::ReallocNew | Self::ReallocFree | Self::ReallocFrom | Self::ReallocTo => "realloc",
            Self::ReallocarrayNew | Self::ReallocarrayFrom | Self::ReallocarrayTo => "reallocarray",
            Self::PosixMemalign => "posix_memalign",
            Self::AlignedAlloc => "aligned_alloc",
            Self::Memalign => "memalign",
            Self::Valloc => "valloc",
            Self::Pvalloc => "pvalloc",
            Self::PoolAlloc => "tracehound_pool_alloc",
            Self::OtherAlloc => "other_alloc",
            Self::Inherited => "inherited",
            Self::Free => "free",
            Self::Cfree => "cfree",
            Self::FreeSized => "free_sized",
            Self::FreeAlignedSized => "free_aligned_sized",
            Self::PoolFree => "tracehound_pool_free",
            Self::OtherFree => "other_free",
            Self::Mmap => "mmap",
            Self::Munmap => "munmap",
            Self::MremapFrom | Self::MremapTo => "mremap",
            Self::Brk => "brk",
            Self::MapExisting | Self::ExistingBlock => "existing",
            Self::Mark => "tracehound_mark",
            Self::Fork => "fork",
            Self::Lost => "lost",
            Self::CaptureStart => "capture_start",
            Self::CaptureStop => "capture_stop",
            Self::Context => "context",
            Self::SizeHigh => "size_high",
            Self::MapDetail => "map_detail",
        }
    }
}

/// One record, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Kind number, see [`Kind::from_u8`].
    pub kind: u8,
    /// Clock ticks.
    pub tick: u64,
    /// Address word.
    pub address: u64,
    /// Call-tree node of the caller; 0 = no stack.
    pub node: u32,
    /// Size in bytes, modulo 2^32.
    pub size: u32,
}

impl Record {
    /// A record of `kind`; `size` over 32 bits needs a [`Kind::SizeHigh`] before it.
    #[must_use]
    pub const fn new(kind: Kind, tick: u64, address: u64, node: u32, size: u32) -> Self {
        Self { kind: kind as u8, tick, address, node, size }
    }

    /// The three words; the first is to be stored last.
    #[inline]
    #[must_use]
    pub const fn to_words(self) -> [u64; 3] {
        [self.tick << KIND_BITS | self.kind as u64, self.address, self.node as u64 | (self.size as u64) << 32]
    }

    /// Takes three words apart; `None` where nothing has been published.
    #[inline]
    #[must_use]
    pub const fn from_words(words: [u64; 3]) -> Option<Self> {
        if words[0] == 0 {
            return None;
        }
        Some(Self {
            kind: (words[0] & 63) as u8,
            tick: words[0] >> KIND_BITS,
            address: words[1],
            node: words[2] as u32,
            size: (words[2] >> 32) as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_come_back() {
        let mut known = 0;
        for number in 0..=255 {
            if let Some(kind) = Kind::from_u8(number) {
                assert_eq!(kind as u8, number);
                known += 1;
            }
        }
        assert_eq!(known, 38);
    }

    #[test]
    fn details_of_a_request_come_back() {
        let details = |size, alignment| RequestDetails::from_word(RequestDetails::of(size, alignment).word());
        assert!(details(1, 16).is_empty() && details(u64::from(u32::MAX), 0).is_empty());
        let parts = |size, alignment| (details(size, alignment).size_high(), details(size, alignment).alignment());
        assert_eq!(parts(5 << 32, 8), (5, 0));
        assert_eq!(parts(1, 17), (0, 5));
        assert_eq!(parts(u64::MAX, 4096), (u64::from(u32::MAX), 12));
        assert_eq!(parts(0, u64::MAX), (0, 64));
        assert_eq!(RequestDetails::from_word(u64::MAX), RequestDetails(0xff_ffff_ffff));
    }

    #[test]
    fn records_come_back() {
        let record = Record::new(Kind::ReallocTo, (1 << 58) - 1, 0x7fff_ffff_fff0, u32::MAX, 12);
        assert_eq!(Record::from_words(record.to_words()), Some(record));
        assert_eq!(Record::from_words([0, 1, 2]), None);
    }
}
