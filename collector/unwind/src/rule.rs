//! The rule of a PC: how to get from a frame's state (pc, sp, rbp) to its caller's, in 32 bits.
//!
//! ```text
//! bits   | 0..3 kind | 3..20 N/8 | 20..32 M/8 |
//!
//! Sp     CFA = sp + N              Frame  CFA = rbp + N
//!        pc  = [CFA - 8]                  pc  = [CFA - 8]
//!        rbp = M ? [CFA - M] : rbp        rbp = M ? [CFA - M] : rbp
//! Drap   CFA = [rbp - N], pc = [CFA - 8], rbp = [rbp]        (a realigned frame)
//! Signal sp, pc + 1, rbp from the ucontext at sp             (the frame of rt_sigreturn)
//! End    the outermost frame: it has no return address
//! General  needs more registers than sp and rbp, or an expression
//! Unknown  no unwind information covers the PC
//! ```
//!
//! A rule is a pure function of the PC for as long as the code there stays the same. Whatever does not fit
//! is `General`: the fast kinds are a list of what is allowed, not of what is forbidden.

/// What a [`Rule`] computes, see the table above. `Missing` is the empty slot of the cache.
#[allow(missing_docs, reason = "the table above says it once")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum RuleKind {
    Missing = 0,
    Sp = 1,
    Frame = 2,
    Drap = 3,
    Signal = 4,
    End = 5,
    General = 6,
    Unknown = 7,
}

/// A packed rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Rule(pub u32);

impl Rule {
    /// See [`RuleKind::Signal`].
    pub const SIGNAL: Rule = Rule(RuleKind::Signal as u32);
    /// See [`RuleKind::End`].
    pub const END: Rule = Rule(RuleKind::End as u32);
    /// See [`RuleKind::General`].
    pub const GENERAL: Rule = Rule(RuleKind::General as u32);
    /// See [`RuleKind::Unknown`].
    pub const UNKNOWN: Rule = Rule(RuleKind::Unknown as u32);
    /// The convention of frame pointers: what is assumed of code without unwind information.
    pub const FRAME_POINTER: Rule = Rule(RuleKind::Frame as u32 | 16 | (16 >> 3) << 20);

    /// `General` if an offset is negative, odd or too large to be packed.
    pub fn pack(kind: RuleKind, n: i64, m: i64) -> Rule {
        let fits = |value: i64, bits: u32| value & 7 == 0 && (0..1 << (bits + 3)).contains(&value);
        if !fits(n, 17) || !fits(m, 12) {
            return Rule::GENERAL;
        }
        Rule(kind as u32 | n as u32 | (m as u32 >> 3) << 20)
    }

    /// Which line of the table it is.
    #[inline(always)]
    pub fn kind(self) -> RuleKind {
        match self.0 & 7 {
            1 => RuleKind::Sp,
            2 => RuleKind::Frame,
            3 => RuleKind::Drap,
            4 => RuleKind::Signal,
            5 => RuleKind::End,
            6 => RuleKind::General,
            7 => RuleKind::Unknown,
            _ => RuleKind::Missing,
        }
    }

    /// `N`, in bytes.
    #[inline(always)]
    pub fn n(self) -> u64 {
        u64::from(self.0 & 0xf_fff8)
    }

    /// `M`, in bytes; 0 when rbp passes through unchanged.
    #[inline(always)]
    pub fn m(self) -> u64 {
        u64::from(self.0 >> 20) << 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_what_fits_and_refuses_the_rest() {
        let rule = Rule::pack(RuleKind::Sp, 0xf_fff8, 0x7ff8);
        assert_eq!((rule.kind(), rule.n(), rule.m()), (RuleKind::Sp, 0xf_fff8, 0x7ff8));
        for (n, m) in [(-8, 0), (4, 0), (0x10_0000, 0), (8, -16), (8, 12), (8, 0x8000)] {
            assert_eq!(Rule::pack(RuleKind::Frame, n, m), Rule::GENERAL, "{n} {m}");
        }
        assert_eq!(Rule::pack(RuleKind::Frame, 16, 16), Rule::FRAME_POINTER);
    }
}
