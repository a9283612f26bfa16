//! The parts of unwinding that are specific to aarch64: registers, signal frames and calls.

use core::arch::naked_asm;

use super::cfi::program::register;
use super::lookup::code_at;
use super::rule::Rule;

/// Where a signal frame's registers lie, from the stack pointer that the handler returns with: `struct rt_sigframe` is
/// 128 bytes of `siginfo` and a `ucontext` (`arch/arm64/kernel/signal.c`, `<asm/sigcontext.h>`).
pub mod ucontext {
    /// x0, and behind it x1 to x30, sp and pc.
    pub const REGISTERS: u64 = 128 + 176 + 8;
    pub const RBP: u64 = REGISTERS + 29 * 8;
    pub const RSP: u64 = REGISTERS + 31 * 8;
    pub const RIP: u64 = REGISTERS + 32 * 8;
    pub const BYTES: u64 = REGISTERS + 34 * 8;
}

/// Whether a function gives the register back as it was.
pub fn is_callee_saved(number: u64) -> bool {
    matches!(number, 19..=28 | register::RBP | register::RETURN)
}

/// Whether a handler that returns to `pc` returns to what a signal interrupted: the code there is nothing but the system
/// call `rt_sigreturn`. Where it has unwind information, this names the interrupted function's caller and leaves it out.
pub fn is_sigreturn(pc: u64) -> bool {
    /// `mov x8, #139; svc #0`
    const RETURN: [u8; 8] = [0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4];
    pc & 3 == 0 && code_at::<8>(pc) == Some(RETURN)
}

/// Whether a call precedes `pc`, as it precedes a return address; `None` if nothing can be read there.
pub fn is_call_before(pc: u64) -> Option<bool> {
    let code = code_at::<4>(pc.wrapping_sub(4))?;
    Some(pc & 3 == 0 && is_call(u32::from_le_bytes(code)))
}

/// `bl`, `blr`, and `blr` with authentication.
fn is_call(code: u32) -> bool {
    code >> 26 == 0x25 || code & 0xffff_fc1f == 0xd63f_0000 || code & 0xfeff_f800 == 0xd63f_0800
}

/// The rule that the code at `pc` implies: none on this processor.
pub fn rule_at(_: u64) -> Option<Rule> {
    None
}

/// The callee-saved registers x19 to x28, x29, then sp and pc as they will be when [`current`] has returned.
#[repr(C)]
pub struct HereAarch64 {
    pub saved: [u64; 13],
}

impl HereAarch64 {
    pub const ORDER: [u64; 13] = [19, 20, 21, 22, 23, 24, 25, 26, 27, 28, register::RBP, register::RSP, register::PC];

    pub const fn new() -> HereAarch64 {
        HereAarch64 { saved: [0; 13] }
    }
}

/// # Safety
/// `here` must be valid for writes.
#[unsafe(naked)]
pub unsafe extern "C" fn current(here: *mut HereAarch64) {
    naked_asm!(
        "hint #34",
        "stp x19, x20, [x0]",
        "stp x21, x22, [x0, #16]",
        "stp x23, x24, [x0, #32]",
        "stp x25, x26, [x0, #48]",
        "stp x27, x28, [x0, #64]",
        "mov x1, sp",
        "stp x29, x1, [x0, #80]",
        "str x30, [x0, #96]",
        "ret",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_recognised() {
        assert!(is_call(0x9400_0001), "bl");
        assert!(is_call(0xd63f_0020), "blr x1");
        assert!(is_call(0xd63f_083f), "blraaz x1");
        assert!(is_call(0xd73f_0c22), "blrab x1, x2");
        assert!(!is_call(0x1400_0001), "b");
        assert!(!is_call(0xd61f_0020), "br x1");
        assert!(!is_call(0xd503_201f), "nop");
    }
}
