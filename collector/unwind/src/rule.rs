//! The rule of a PC: how to get from a frame's state (pc, sp, rbp) to its caller's, in 32 bits.
//!
//! ```text
//! bits   | 0..3 kind | 3..20 N/8 | 20..32 M/8 |
//!
//! Sp     CFA = sp + N              Frame  CFA = rbp + N
//!        pc  = [CFA - 8]                  pc  = [CFA - 8]
//!        rbp = M ? [CFA - M] : rbp        rbp = M ? [CFA - M] : rbp
//! Drap   CFA = [rbp - N], pc = [CFA - 8], rbp = [rbp]        (a realigned frame)
//!        CFA = [rbp - N], pc = [rbp + 8], rbp = [rbp]        (with M: a frame of HotSpot's interpreter)
//! Signal sp, pc + 1, rbp from the ucontext at sp             (the frame of rt_sigreturn)
//! End    the outermost frame: it has no return address
//! General  needs more registers than sp and rbp, or an expression
//! General  with N: the frame of Go's that calls C, see `go_switch`; N says which form of it
//! Unknown  no unwind information covers the PC
//! ```
//! On aarch64 `rbp` means x29 here and in the whole crate. There a function keeps its return address anywhere in its
//! frame, with the caller's x29 below it:
//!
//! ```text
//! bits   | 0..3 kind | 3..17 N/8 | 17..31 R/8 | 31 K |
//!
//! Sp     CFA = sp + N              Frame  CFA = x29 + N
//!        pc  = [CFA - R]                  pc  = [CFA - R]
//!        x29 = K ? [CFA - R - 8] : x29    x29 = K ? [CFA - R - 8] : x29
//! General  also where the return address is still in x30, as behind the frame of a signal
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
    /// Go's switch from a goroutine's stack: the return address is the first word there.
    pub const GO_SWITCH: Rule = Rule(RuleKind::General as u32 | 8);
    /// The same where the caller's rbp comes before it.
    pub const GO_SWITCH_WITH_RBP: Rule = Rule(RuleKind::General as u32 | 16);

    /// The same where the stack was the thread's already, and the first word is the stack pointer.
    pub const GO_NO_SWITCH: Rule = Rule(RuleKind::General as u32 | 24);
    /// The same with the caller's rbp.
    pub const GO_NO_SWITCH_WITH_RBP: Rule = Rule(RuleKind::General as u32 | 32);

    /// Whether it is a rule of Go's function that calls C.
    #[inline(always)]
    pub fn is_go_switch(self) -> bool {
        self.kind() == RuleKind::General && self != Rule::GENERAL
    }

    /// The kind: the line of the table.
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

    /// Where the return address of a `Drap` frame lies.
    #[inline(always)]
    pub fn drap_return_slot(self, rbp: u64, cfa: u64) -> u64 {
        if self.m() == 0 { cfa.wrapping_sub(8) } else { rbp.wrapping_add(8) }
    }

    /// The canonical frame address of a frame that is called from one with this stack pointer. Both are equal, except
    /// where a frame was left by its frame pointer, which does not give the frame's size.
    #[inline(always)]
    pub fn cfa(self, rbp: u64, outer_sp: u64) -> u64 {
        if cfg!(target_arch = "aarch64") && self == Rule::FRAME_POINTER { rbp.wrapping_add(self.n()) } else { outer_sp }
    }

    /// Where the return address lies.
    #[inline(always)]
    pub fn return_slot(self, cfa: u64) -> u64 {
        cfa.wrapping_sub(self.r())
    }
}

#[cfg(target_arch = "x86_64")]
impl Rule {
    /// The convention of frame pointers: what is assumed of code without unwind information.
    pub const FRAME_POINTER: Rule = Rule(RuleKind::Frame as u32 | 16 | (16 >> 3) << 20);

    /// A frame of HotSpot's interpreter: the arguments of the call, which belong to it, lie between the caller's stack
    /// pointer and the return address.
    pub const INTERPRETED_JAVA: Rule = Rule(RuleKind::Drap as u32 | 8 | (8 >> 3) << 20);

    /// `General` if an offset is negative, odd or too large to be packed.
    pub fn pack(kind: RuleKind, n: i64, m: i64) -> Rule {
        let fits = |value: i64, bits: u32| value & 7 == 0 && (0..1 << (bits + 3)).contains(&value);
        if !fits(n, 17) || !fits(m, 12) {
            return Rule::GENERAL;
        }
        Rule(kind as u32 | n as u32 | (m as u32 >> 3) << 20)
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

    /// How far below the CFA the return address lies.
    #[inline(always)]
    pub fn r(self) -> u64 {
        8
    }

    /// The same for a frame whose sp is not known: on this processor sp is known after frame pointers alone.
    pub fn from_frame_record(self) -> Rule {
        self
    }
}

#[cfg(target_arch = "aarch64")]
impl Rule {
    /// The convention of frame pointers: x29 points to the caller's x29 and to the return address. The size of the frame
    /// is unknown, see [`from_frame_record`](Self::from_frame_record).
    pub const FRAME_POINTER: Rule = Rule(RuleKind::Frame as u32 | 16 | (8 >> 3) << 17 | 1 << 31);

    /// `General` if an offset is negative, odd or too large to be packed, or the return address lies nowhere in the frame.
    pub fn pack(kind: RuleKind, n: i64, r: i64, keeps_x29: bool) -> Rule {
        let fits = |value: i64| value & 7 == 0 && (0..1 << 17).contains(&value);
        if !fits(n) || !fits(r) || r < 8 {
            return Rule::GENERAL;
        }
        Rule(kind as u32 | n as u32 | (r as u32 >> 3) << 17 | u32::from(keeps_x29) << 31)
    }

    /// `N`, in bytes.
    #[inline(always)]
    pub fn n(self) -> u64 {
        u64::from(self.0 & 0x1_fff8)
    }

    /// How far below the CFA the caller's x29 lies; 0 when it passes through unchanged.
    #[inline(always)]
    pub fn m(self) -> u64 {
        if self.0 >> 31 != 0 { self.r() + 8 } else { 0 }
    }

    /// `R`, in bytes.
    #[inline(always)]
    pub fn r(self) -> u64 {
        u64::from(self.0 >> 17 & 0x3fff) << 3
    }

    /// The same for a frame whose sp is not known, since its callee was left by its frame pointer: a function
    /// that saves x29 and x30 side by side makes x29 point there.
    pub fn from_frame_record(self) -> Rule {
        if self.kind() != RuleKind::Sp || self.m() == 0 {
            return self;
        }
        Rule(self.0 & !0x1_ffff | self.m() as u32 | RuleKind::Frame as u32)
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
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
