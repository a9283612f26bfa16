//! Addresses as the processor has them: their bits, and what else a word of the stack may hold beside an address.

#[cfg(target_arch = "x86_64")]
mod form {
    /// Bits of an address of the program.
    pub const BITS: u32 = 47;

    /// The address that a word of the stack holds.
    #[inline(always)]
    pub fn strip(word: u64) -> u64 {
        word
    }

    /// Whether a word of the stack equals `expected`.
    #[inline(always)]
    pub fn is_same(word: u64, expected: u64) -> bool {
        word == expected
    }

    /// A PC in 47 bits; more bits if the value cannot be a PC.
    #[inline(always)]
    pub fn pack(pc: u64) -> u64 {
        pc
    }

    /// The PC of [`pack`].
    pub fn unpack(packed: u64) -> u64 {
        packed
    }

    /// Alignment of stack pointers: multiples of this power of two.
    pub const STACK_SHIFT: u32 = 3;
}

#[cfg(target_arch = "aarch64")]
mod form {
    /// Bits of an address of the program. Above them are signatures and tags.
    pub const BITS: u32 = 48;

    /// The address that a word of the stack holds, without signature and tag.
    #[inline(always)]
    pub fn strip(word: u64) -> u64 {
        word & ((1 << BITS) - 1)
    }

    /// Whether a word of the stack equals `expected`, signature and tag apart: these follow from address and slot.
    #[inline(always)]
    pub fn is_same(word: u64, expected: u64) -> bool {
        (word ^ expected) << (64 - BITS) == 0
    }

    /// A PC in 47 bits; more bits if the value cannot be a PC. It is a multiple of four, or of an interrupted
    /// instruction plus one.
    #[inline(always)]
    pub fn pack(pc: u64) -> u64 {
        pc >> 2 << 1 | pc & 1 | (pc & 2) << 62
    }

    /// The PC of [`pack`].
    pub fn unpack(packed: u64) -> u64 {
        packed >> 1 << 2 | packed & 1
    }

    /// Alignment of stack pointers: multiples of this power of two.
    pub const STACK_SHIFT: u32 = 4;
}

pub use form::*;

/// Where code of the program can lie.
pub fn is_in_user_space(pc: u64) -> bool {
    (4096..1 << BITS).contains(&pc)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_pc_comes_back_and_none_is_taken_for_another() {
        let last = (1 << BITS) - 4;
        for pc in [4096, 4097, 0x5555_1234_5678, last, last + 1] {
            assert!(pack(pc) >> 47 == 0 && unpack(pack(pc)) == pc, "{pc:#x}");
        }
        assert!(pack(1 << BITS) >> 47 != 0);
        assert!(is_same(strip(0x5555_1234_5678), 0x5555_1234_5678) && !is_same(4096, 4100));
    }

    #[cfg(target_arch = "aarch64")]
    #[test]
    fn signatures_are_no_part_of_an_address() {
        let signed = 0x00ab_ffff_8765_4320;
        assert_eq!(strip(signed), 0xffff_8765_4320);
        assert!(is_same(signed, strip(signed)));
        assert!(pack(strip(signed) + 2) >> 47 != 0);
    }
}
