//! Code of HotSpot's interpreter behind a call: whether it relies on what the frame says of the bytecode that runs.
//!
//! The interpreter has the address of the bytecode in a register, and writes it into its frame where somebody may look for
//! it: before it calls Java, and before it calls functions that may walk the stack. Other functions of the virtual machine
//! are called without that, and the frame then has the address from some time before. What the code does after the call
//! shows which it was:
//!
//! ```text
//! into the virtual machine    movq $0, anchor(%r15)         the thread's stack cannot be walked any more
//! into Java                   mov/lea …, %rsp; movq $0, -16(%rbp); mov -64(%rbp), %r13
//! others that have written it mov -64(%rbp), %r13           the register comes from the frame
//! ```
//! Where the stack had to be aligned for the call, `add $8, %rsp; jmp` comes first.

const UNALIGN: &[u8] = &[0x48, 0x83, 0xc4, 0x08];
const SHORT_JUMP: u8 = 0xeb;
const LONG_JUMP: u8 = 0xe9;
/// `movq $0, disp32(%r15)` without its last eight bytes.
const CLEAR_IN_THREAD: &[u8] = &[0x49, 0xc7, 0x87];
const STACK_POINTER: [&[u8]; 2] = [&[0x48, 0x8b, 0x65, 0xf0], &[0x48, 0x8b, 0x4d, 0xf0, 0x48, 0x8d, 0x64, 0xcd, 0x00]];
const CLEAR_IN_FRAME: &[u8] = &[0x48, 0xc7, 0x45, 0xf0, 0, 0, 0, 0];
const BYTECODE_FROM_FRAME: &[u8] = &[0x4c, 0x8b, 0x6d, 0xc0];

/// Whether `code`, the interpreter's from a return address on, shows that the frame has the address of its bytecode.
/// `anchor` is where a thread has the stack pointer of its last frame of Java.
pub fn relies_on_frame(code: &[u8], anchor: u32) -> bool {
    let Some(code) = behind_alignment(code) else { return false };
    if let Some(rest) = code.strip_prefix(CLEAR_IN_THREAD) {
        return rest.strip_prefix(&anchor.to_le_bytes()).is_some_and(|rest| rest.starts_with(&[0; 4]));
    }
    let code = STACK_POINTER.iter().find_map(|load| code.strip_prefix(*load)).unwrap_or(code);
    let code = code.strip_prefix(CLEAR_IN_FRAME).unwrap_or(code);
    code.starts_with(BYTECODE_FROM_FRAME)
}

fn behind_alignment(code: &[u8]) -> Option<&[u8]> {
    let Some(jump) = code.strip_prefix(UNALIGN) else { return Some(code) };
    let (by, rest) = match jump.split_first()? {
        (&SHORT_JUMP, rest) => {
            let (by, rest) = rest.split_first()?;
            (u32::from(*by), rest)
        }
        (&LONG_JUMP, rest) => {
            let (by, rest) = rest.split_first_chunk()?;
            (u32::from_le_bytes(*by), rest)
        }
        _ => return None,
    };
    // Forwards: negative distances are beyond the end.
    rest.get(by as usize..)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAR: [u8; 11] = [0x49, 0xc7, 0x87, 0x90, 2, 0, 0, 0, 0, 0, 0];

    #[test]
    fn calls_that_wrote_the_bytecode_are_known_by_what_follows() {
        assert!(relies_on_frame(&CLEAR, 0x290));
        assert!(!relies_on_frame(&CLEAR, 0x298), "another field of the thread");
        assert!(relies_on_frame(BYTECODE_FROM_FRAME, 0x290));
        for load in [STACK_POINTER[0], STACK_POINTER[1], &[]] {
            assert!(relies_on_frame(&[load, CLEAR_IN_FRAME, BYTECODE_FROM_FRAME].concat(), 0x290));
        }
        let jumps: [&[u8]; 2] = [&[SHORT_JUMP, 5], &[LONG_JUMP, 5, 0, 0, 0]];
        for jump in jumps {
            let code = [UNALIGN, jump, &[0xe8, 1, 2, 3, 4], &CLEAR].concat();
            assert!(relies_on_frame(&code, 0x290), "{jump:x?}");
        }
    }

    #[test]
    fn other_calls_are_not() {
        let next_bytecode = [0x41, 0x0f, 0xb6, 0x5d, 0x01, 0x49, 0xff, 0xc5];
        let back = [UNALIGN, &[SHORT_JUMP, 0xf0], BYTECODE_FROM_FRAME].concat();
        let cut: [&[u8]; 4] = [&[], &CLEAR[..9], UNALIGN, &BYTECODE_FROM_FRAME[..3]];
        assert!(!relies_on_frame(&next_bytecode, 0x290));
        assert!(!relies_on_frame(&back, 0x290));
        assert!(cut.into_iter().all(|code| !relies_on_frame(code, 0x290)));
    }
}
