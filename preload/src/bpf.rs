//! Interpreter of seccomp filters: programs of the classic Berkeley Packet Filter over a system call's number,
//! architecture and arguments (seccomp(2), `linux/filter.h`).
//!
//! This file needs nothing else of the crate: a fuzz target compiles it alone.

use core::ffi::c_long;

/// A system call: number and arguments.
#[derive(Clone, Copy, Debug)]
pub struct JudgedCall(pub c_long, pub [u64; 6]);

const ALLOW: u32 = 0x7fff_0000;
const LOG: u32 = 0x7ffc_0000;
const ERRNO: u32 = 0x0005_0000;
const ACTION: u32 = 0xffff_0000;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// An instruction (`struct sock_filter`), at any address: the kernel copies a filter and demands no alignment.
#[repr(C, packed)]
#[derive(Clone, Copy, Debug)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// Instructions to skip where the condition holds.
    pub if_true: u8,
    /// Instructions to skip where it does not.
    pub if_false: u8,
    /// Operand.
    pub k: u32,
}

/// Whether `code` neither kills, traps nor traces the process for `call`; false for what is no filter.
pub fn is_survived(code: &[Instruction], call: JudgedCall) -> bool {
    run(code, call).is_some_and(|verdict| matches!(verdict & ACTION, ALLOW | LOG | ERRNO))
}

/// Runs a filter for a call; `None` if it is none that the kernel takes.
pub fn run(code: &[Instruction], JudgedCall(number, arguments): JudgedCall) -> Option<u32> {
    const WORDS: u32 = 64;
    let data = |at: u32| match at {
        0 => Some(number as u32),
        4 => Some(ARCHITECTURE),
        8 | 12 => Some(0),
        16..64 if at.is_multiple_of(4) => {
            let argument = arguments.get((at as usize - 16) / 8)?;
            Some(if at.is_multiple_of(8) { *argument as u32 } else { (argument >> 32) as u32 })
        }
        _ => None,
    };
    let (mut a, mut x, mut memory, mut at) = (0_u32, 0_u32, [0_u32; 16], 0_usize);
    // Jumps go forwards only: every instruction runs at most once.
    while let Some(&Instruction { code, if_true, if_false, k }) = code.get(at) {
        at += 1;
        let source = if code & 0x08 != 0 { x } else { k };
        match code {
            0x20 => a = data(k)?,
            0x80 => a = WORDS,
            0x81 => x = WORDS,
            0x00 => a = k,
            0x01 => x = k,
            0x60 => a = *memory.get(k as usize)?,
            0x61 => x = *memory.get(k as usize)?,
            0x02 => *memory.get_mut(k as usize)? = a,
            0x03 => *memory.get_mut(k as usize)? = x,
            0x04 | 0x0c => a = a.wrapping_add(source),
            0x14 | 0x1c => a = a.wrapping_sub(source),
            0x24 | 0x2c => a = a.wrapping_mul(source),
            0x34 | 0x3c => a = a.checked_div(source)?,
            0x44 | 0x4c => a |= source,
            0x54 | 0x5c => a &= source,
            0x64 | 0x6c => a = a.checked_shl(source).unwrap_or(0),
            0x74 | 0x7c => a = a.checked_shr(source).unwrap_or(0),
            0x84 => a = a.wrapping_neg(),
            0xa4 | 0xac => a ^= source,
            0x05 => at = at.checked_add(k as usize)?,
            0x15 | 0x1d => at += usize::from(if a == source { if_true } else { if_false }),
            0x25 | 0x2d => at += usize::from(if a > source { if_true } else { if_false }),
            0x35 | 0x3d => at += usize::from(if a >= source { if_true } else { if_false }),
            0x45 | 0x4d => at += usize::from(if a & source != 0 { if_true } else { if_false }),
            0x06 => return Some(k),
            0x16 => return Some(a),
            0x07 => x = a,
            0x87 => a = x,
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn step(code: u16, if_true: u8, if_false: u8, k: u32) -> Instruction {
        Instruction { code, if_true, if_false, k }
    }

    #[test]
    fn filters_say_what_the_kernel_would() {
        let futex = libc::SYS_futex as u32;
        let only_futex = [step(0x20, 0, 0, 0), step(0x15, 0, 1, futex), step(0x06, 0, 0, ALLOW), step(0x06, 0, 0, 0)];
        let call = |number| JudgedCall(number, [0; 6]);
        assert!(is_survived(&only_futex, call(libc::SYS_futex)));
        assert!(!is_survived(&only_futex, call(libc::SYS_getpid)));
        let denies = [step(0x06, 0, 0, ERRNO | 1)];
        assert!(is_survived(&denies, call(libc::SYS_getpid)));
        // Another architecture is killed, ours is let through by a comparison with the accumulator.
        let ours = [
            step(0x20, 0, 0, 4),
            step(0x01, 0, 0, ARCHITECTURE),
            step(0x1d, 1, 0, 0),
            step(0x06, 0, 0, 0x8000_0000),
            step(0x06, 0, 0, ALLOW),
        ];
        assert!(is_survived(&ours, call(libc::SYS_getpid)));
    }

    #[test]
    fn arguments_are_looked_at() {
        // The lower half of the third argument: all but reading is killed.
        let only_reading = [step(0x20, 0, 0, 32), step(0x15, 0, 1, 1), step(0x06, 0, 0, ALLOW), step(0x06, 0, 0, 0)];
        assert!(is_survived(&only_reading, JudgedCall(libc::SYS_mmap, [0, 9, 1, 0, 0, 0])));
        assert!(!is_survived(&only_reading, JudgedCall(libc::SYS_mmap, [0, 9, 3, 0, 0, 0])));
        let upper = [step(0x20, 0, 0, 20), step(0x16, 0, 0, 0)];
        assert_eq!(run(&upper, JudgedCall(0, [7 << 32 | 5, 0, 0, 0, 0, 0])), Some(7));
    }

    #[test]
    fn what_is_no_filter_is_not_trusted() {
        assert_eq!(run(&[], JudgedCall(0, [0; 6])), None);
        assert_eq!(run(&[step(0xff, 0, 0, 0)], JudgedCall(0, [0; 6])), None);
        assert_eq!(run(&[step(0x20, 0, 0, 999)], JudgedCall(0, [0; 6])), None);
        assert_eq!(run(&[step(0x60, 0, 0, 99)], JudgedCall(0, [0; 6])), None);
        assert_eq!(run(&[step(0x05, 0, 0, u32::MAX)], JudgedCall(0, [0; 6])), None);
        assert_eq!(run(&[step(0x34, 0, 0, 0), step(0x06, 0, 0, ALLOW)], JudgedCall(0, [0; 6])), None);
    }
}
