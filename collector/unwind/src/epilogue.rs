//! The rule of code without unwind information, read from the code itself: what comes after the call, up to the return.
//!
//! ```text
//! call f ; pop rcx ; ret                         CFA = sp + 16
//! call f ; add rsp, 24 ; pop rbx ; pop rbp ; ret CFA = sp + 48, rbp = [CFA - 16]
//! call f ; mov eax, ebx ; leave ; ret            as for frame pointers
//! ```
//! Only instructions that are known to have no other effect are skipped, so most functions have no such rule; but some
//! compilers leave just the smallest ones without information. It is a heuristic: a call that never returns may be
//! followed by another function's code. So it is used only where the return address that it leads to is preceded by a
//! call.

use super::lookup::code_at;
use super::rule::{Rule, RuleKind};

/// Bytes of code that are looked at.
const BYTES: usize = 48;

/// Numbers of registers in instructions.
const RSP: u8 = 4;
const RBP: u8 = 5;

/// The rule for a frame whose `pc` is a return address, if the code there is such an epilogue of x86-64.
pub fn rule_at(pc: u64) -> Option<Rule> {
    if cfg!(not(target_arch = "x86_64")) {
        return None;
    }
    rule_of(&code_at::<BYTES>(pc)?)
}

fn rule_of(code: &[u8]) -> Option<Rule> {
    let mut code = code;
    // Bytes that the function has taken off the stack so far, and the depth at which it restored rbp.
    let (mut depth, mut rbp) = (0_i64, None);
    loop {
        code = match *code {
            // ret, repz ret
            [0xc3, ..] | [0xf3, 0xc3, ..] => {
                let n = depth + 8;
                return Some(Rule::pack(RuleKind::Sp, n, rbp.map_or(0, |at| n - at)))
                    .filter(|rule| *rule != Rule::GENERAL);
            }
            // leave, ret
            [0xc9, 0xc3, ..] if rbp.is_none() => return Some(Rule::FRAME_POINTER),
            // pop
            [0x58..=0x5f, ref rest @ ..] if code[0] & 7 != RSP => {
                if code[0] & 7 == RBP {
                    rbp = Some(depth);
                }
                depth += 8;
                rest
            }
            // pop r8 to r15
            [0x41, 0x58..=0x5f, ref rest @ ..] => {
                depth += 8;
                rest
            }
            // add rsp
            [0x48, 0x83, 0xc4, by, ref rest @ ..] => {
                depth += i64::from(by as i8);
                rest
            }
            [0x48, 0x81, 0xc4, a, b, c, d, ref rest @ ..] => {
                depth += i64::from(i32::from_le_bytes([a, b, c, d]));
                rest
            }
            // mov of a word of the stack to a register: [rsp] and [rsp + n]
            [0x48 | 0x4c, 0x8b, operands, 0x24, ref rest @ ..] if matches!(operands & 0xc7, 0x04 | 0x44) => {
                let (at, rest) = match (operands >> 6, rest) {
                    (0, rest) => (0, rest),
                    (_, [at, rest @ ..]) => (i64::from(*at as i8), rest),
                    _ => return None,
                };
                match (code[0], operands >> 3 & 7) {
                    (0x48, RSP) => return None,
                    (0x48, RBP) => rbp = Some(depth + at),
                    _ => {}
                }
                rest
            }
            // mov to a register, a number
            [0xb8..=0xbf, _, _, _, _, ref rest @ ..] if is_free(code[0] & 7) => rest,
            // mov and xor of registers, with and without REX.W
            [0x48, ref rest @ ..] => after_move(rest)?,
            _ => after_move(code)?,
        };
        if depth < 0 {
            return None;
        }
    }
}

/// What follows `mov` or `xor` of two of the first eight registers, if the result is in neither rsp nor rbp.
fn after_move(code: &[u8]) -> Option<&[u8]> {
    let (target, rest) = match code {
        [0x89 | 0x31, operands @ 0xc0..=0xff, rest @ ..] => (operands & 7, rest),
        [0x8b | 0x33, operands @ 0xc0..=0xff, rest @ ..] => (operands >> 3 & 7, rest),
        _ => return None,
    };
    is_free(target).then_some(rest)
}

fn is_free(register: u8) -> bool {
    register != RSP && register != RBP
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sp(n: i64, m: i64) -> Option<Rule> {
        Some(Rule::pack(RuleKind::Sp, n, m))
    }

    #[test]
    fn what_an_epilogue_takes_off_the_stack_is_the_frame() {
        assert_eq!(rule_of(&[0xc3]), sp(8, 0), "ret");
        assert_eq!(rule_of(&[0x59, 0xc3]), sp(16, 0), "pop rcx, ret");
        assert_eq!(rule_of(&[0x5b, 0x5d, 0x41, 0x5c, 0xf3, 0xc3]), sp(32, 24), "pop rbx, rbp, r12, repz ret");
        assert_eq!(rule_of(&[0x48, 0x83, 0xc4, 24, 0x5d, 0xc3]), sp(40, 16), "add rsp, 24, pop rbp, ret");
        assert_eq!(rule_of(&[0x48, 0x81, 0xc4, 0, 1, 0, 0, 0xc3]), sp(264, 0), "add rsp, 256, ret");
        assert_eq!(rule_of(&[0xb8, 1, 0, 0, 0, 0x59, 0xc3]), sp(16, 0), "mov eax, 1, pop rcx, ret");
        assert_eq!(rule_of(&[0x48, 0x89, 0xd8, 0x5b, 0xc3]), sp(16, 0), "mov rax, rbx, pop rbx, ret");
        assert_eq!(rule_of(&[0x31, 0xc0, 0x5a, 0xc3]), sp(16, 0), "xor eax, eax, pop rdx, ret");
        assert_eq!(rule_of(&[0x8b, 0xc3, 0xc9, 0xc3]), Some(Rule::FRAME_POINTER), "mov eax, ebx, leave, ret");
        let loads =
            [0x48, 0x8b, 0x1c, 0x24, 0x4c, 0x8b, 0x64, 0x24, 8, 0x48, 0x8b, 0x6c, 0x24, 16, 0x48, 0x83, 0xc4, 24, 0xc3];
        assert_eq!(rule_of(&loads), sp(32, 16), "mov rbx, [rsp], r12, [rsp + 8], rbp, [rsp + 16], add rsp, 24, ret");
    }

    #[test]
    fn anything_else_is_no_epilogue() {
        for code in [
            &[0x5c, 0xc3][..],               // pop rsp
            &[0x48, 0x89, 0xec, 0x5d, 0xc3], // mov rsp, rbp
            &[0x89, 0xc5, 0xc3],             // mov ebp, eax
            &[0x8b, 0xe8, 0xc3],             // mov ebp, eax, the other way round
            &[0xbd, 0, 0, 0, 0, 0xc3],       // mov ebp, 0
            &[0x48, 0x83, 0xc4, 0xf8, 0xc3], // add rsp, -8
            &[0x48, 0x83, 0xc4, 4, 0xc3],    // add rsp, 4
            &[0x48, 0x8b, 0x24, 0x24, 0xc3], // mov rsp, [rsp]
            &[0x48, 0x8b, 0x44, 0x24],       // mov rax, [rsp + …
            &[0x48, 0x8b, 0x45, 0x08, 0xc3], // mov rax, [rbp + 8]
            &[0x89, 0x45, 0xf8, 0xc3],       // mov [rbp - 8], eax
            &[0x5d, 0xc9, 0xc3],             // pop rbp, leave
            &[0xe8, 0, 0, 0, 0, 0xc3],       // call
            &[0x0f, 0x0b],                   // ud2
            &[0x59],                         // the end of what was read
            &[],
        ] {
            assert_eq!(rule_of(code), None, "{code:x?}");
        }
    }
}
