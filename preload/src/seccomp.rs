//! Filters of system calls that the program puts on itself. A filter that fails our calls is met when they fail; one that
//! would kill the process for them is seen here, before it is in place, and recording ends instead.
//!
//! Such a filter is a program of the classic Berkeley Packet Filter over a call's number, architecture and arguments
//! (seccomp(2), `linux/filter.h`); it is run here for the calls that the recorder makes, with the arguments that matter to
//! filters: operations, flags and protections. Addresses, lengths and descriptors are zero, or whatever they are.

use core::ffi::{c_int, c_long};

use tracehound_collector::lifecycle;

use crate::next;
use crate::start;

/// Calls that a thread of the program makes for the recorder.
const OF_THREADS: [Call; 14] = [
    Call(libc::SYS_rt_sigprocmask, [SETMASK, 0, 0, 8, 0, 0]),
    Call(libc::SYS_futex, [0, FUTEX_WAIT, 0, 0, 0, 0]),
    Call(libc::SYS_futex, [0, FUTEX_WAKE, ALL_WAITERS, 0, 0, 0]),
    Call(libc::SYS_clock_gettime, [libc::CLOCK_MONOTONIC as u64, 0, 0, 0, 0, 0]),
    Call(libc::SYS_gettid, [0; 6]),
    Call(libc::SYS_getpid, [0; 6]),
    Call(libc::SYS_tgkill, [0; 6]),
    Call(libc::SYS_membarrier, [MEMBARRIER_EXPEDITED, 0, 0, 0, 0, 0]),
    Call(libc::SYS_nanosleep, [0; 6]),
    Call(libc::SYS_mmap, [0, 4096, READ_WRITE, PRIVATE, u64::MAX, 0]),
    Call(libc::SYS_munmap, [0, 4096, 0, 0, 0, 0]),
    Call(libc::SYS_mremap, [0, 4096, 8192, libc::MREMAP_MAYMOVE as u64, 0, 0]),
    Call(libc::SYS_madvise, [0, 4096, libc::MADV_POPULATE_WRITE as u64, 0, 0, 0]),
    Call(libc::SYS_prctl, [libc::PR_GET_NAME as u64, 0, 0, 0, 0, 0]),
];
/// Calls that the writer's thread makes besides.
const OF_WRITER: [Call; 9] = [
    Call(libc::SYS_pwrite64, [0; 6]),
    Call(libc::SYS_pread64, [0; 6]),
    Call(libc::SYS_openat, [libc::AT_FDCWD as u64, 0, (libc::O_RDONLY | libc::O_CLOEXEC) as u64, 0, 0, 0]),
    Call(libc::SYS_close, [0; 6]),
    Call(libc::SYS_fstat, [0; 6]),
    Call(libc::SYS_fallocate, [0; 6]),
    Call(libc::SYS_fallocate, [0, libc::FALLOC_FL_KEEP_SIZE as u64, 0, 0, 0, 0]),
    Call(libc::SYS_ftruncate, [0; 6]),
    Call(libc::SYS_unlinkat, [0; 6]),
];

/// A system call: number and arguments.
#[derive(Clone, Copy, Debug)]
struct Call(c_long, [u64; 6]);

const SETMASK: u64 = libc::SIG_SETMASK as u64;
const FUTEX_WAIT: u64 = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as u64;
const FUTEX_WAKE: u64 = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as u64;
const ALL_WAITERS: u64 = i32::MAX as u64;
const MEMBARRIER_EXPEDITED: u64 = 1 << 3;
const READ_WRITE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;
const PRIVATE: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;

const ALLOW: u32 = 0x7fff_0000;
const LOG: u32 = 0x7ffc_0000;
const ERRNO: u32 = 0x0005_0000;
const ACTION: u32 = 0xffff_0000;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// An instruction (`struct sock_filter`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    k: u32,
}

/// A filter (`struct sock_fprog`).
#[repr(C)]
struct Filter {
    len: u16,
    code: *const Instruction,
}

/// The calling thread is about to enter strict mode, where all but four system calls kill it.
pub fn before_strict_mode() {
    if start::ensure() {
        lifecycle::end_early("the program enters seccomp's strict mode");
    }
}

/// The calling thread, or with `all` every thread, is about to put this filter on itself.
///
/// # Safety
/// `filter` must be null or what the program passes to the kernel as a `struct sock_fprog`.
pub unsafe fn before_filter(filter: usize, all: bool) {
    if filter == 0 || !start::ensure() {
        return;
    }
    // SAFETY: as the caller promises; a filter that the kernel could not read would crash the program here, where the
    // call would have failed: programs do not pass such.
    let code = unsafe {
        let filter = &*(filter as *const Filter);
        if filter.code.is_null() || filter.len == 0 {
            return;
        }
        core::slice::from_raw_parts(filter.code, usize::from(filter.len))
    };
    let kills = |calls: &[Call]| calls.iter().any(|&call| !is_survived(code, call));
    if kills(&OF_THREADS) || all && kills(&OF_WRITER) {
        lifecycle::end_early("the program forbids itself system calls by a seccomp filter that would kill it for ours");
    } else if all {
        lifecycle::close_control();
    }
}

fn is_survived(code: &[Instruction], call: Call) -> bool {
    run(code, call).is_some_and(|verdict| matches!(verdict & ACTION, ALLOW | LOG | ERRNO))
}

/// Runs a filter for a call; `None` if it is none that the kernel takes.
fn run(code: &[Instruction], Call(number, arguments): Call) -> Option<u32> {
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

/// `syscall(2)`: looked at on the way, for `seccomp(2)` has no function of its own in the C library.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn syscall() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "push rcx",
        ".cfi_adjust_cfa_offset 8",
        "push r8",
        ".cfi_adjust_cfa_offset 8",
        "push r9",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {look}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop r9",
        ".cfi_adjust_cfa_offset -8",
        "pop r8",
        ".cfi_adjust_cfa_offset -8",
        "pop rcx",
        ".cfi_adjust_cfa_offset -8",
        "pop rdx",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        ".cfi_endproc",
        look = sym look_at_syscall
    )
}

/// `syscall(2)`, as above.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn syscall() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "hint #34",
        "stp x29, x30, [sp, #-80]!",
        ".cfi_def_cfa_offset 80",
        ".cfi_offset x29, -80",
        ".cfi_offset x30, -72",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "stp x2, x3, [sp, #32]",
        "stp x4, x5, [sp, #48]",
        "stp x6, x7, [sp, #64]",
        "bl {look}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x2, x3, [sp, #32]",
        "ldp x4, x5, [sp, #48]",
        "ldp x6, x7, [sp, #64]",
        "ldp x29, x30, [sp], #80",
        ".cfi_def_cfa_offset 0",
        "br x16",
        ".cfi_endproc",
        look = sym look_at_syscall
    )
}

/// Gives the address to jump to.
unsafe extern "C" fn look_at_syscall(number: c_long, operation: usize, flags: usize, argument: usize) -> usize {
    const STRICT: usize = 0;
    const FILTER: usize = 1;
    const ALL_THREADS: usize = 1;
    if number == libc::SYS_seccomp {
        match operation {
            STRICT => before_strict_mode(),
            // SAFETY: the program's arguments to seccomp(2).
            FILTER => unsafe { before_filter(argument, flags & ALL_THREADS != 0) },
            _ => {}
        }
    }
    next::syscall_address()
}

/// What `prctl(PR_SET_SECCOMP)` is about to do.
///
/// # Safety
/// As for [`before_filter`].
pub unsafe fn before_prctl(option: c_int, mode: usize, filter: usize) {
    const STRICT: usize = 1;
    const FILTER: usize = 2;
    match (option, mode) {
        (libc::PR_SET_SECCOMP, STRICT) => before_strict_mode(),
        // SAFETY: passed on.
        (libc::PR_SET_SECCOMP, FILTER) => unsafe { before_filter(filter, false) },
        _ => {}
    }
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
        let call = |number| Call(number, [0; 6]);
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
        assert!(is_survived(&only_reading, Call(libc::SYS_mmap, [0, 9, 1, 0, 0, 0])));
        assert!(!is_survived(&only_reading, Call(libc::SYS_mmap, [0, 9, READ_WRITE, 0, 0, 0])));
        let upper = [step(0x20, 0, 0, 20), step(0x16, 0, 0, 0)];
        assert_eq!(run(&upper, Call(0, [7 << 32 | 5, 0, 0, 0, 0, 0])), Some(7));
    }

    #[test]
    fn what_is_no_filter_is_not_trusted() {
        assert_eq!(run(&[], Call(0, [0; 6])), None);
        assert_eq!(run(&[step(0xff, 0, 0, 0)], Call(0, [0; 6])), None);
        assert_eq!(run(&[step(0x20, 0, 0, 999)], Call(0, [0; 6])), None);
        assert_eq!(run(&[step(0x60, 0, 0, 99)], Call(0, [0; 6])), None);
        assert_eq!(run(&[step(0x05, 0, 0, u32::MAX)], Call(0, [0; 6])), None);
        assert_eq!(run(&[step(0x34, 0, 0, 0), step(0x06, 0, 0, ALLOW)], Call(0, [0; 6])), None);
    }
}
