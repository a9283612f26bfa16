//! Seccomp filters that the program installs. If a filter makes the recorder's calls fail, that is handled where they
//! fail. If it would kill the process for them, this is detected here, before the filter is installed, and recording
//! ends instead.
//!
//! The filter is run ([`crate::bpf`]) on every call in the table of `collector/shared/src/sys/calls.rs`.

use core::ffi::{c_int, c_long};

use tracehound_shared::sys;
use tracehound_shared::sys::calls::{CallingThreads, calls_by};

use crate::bpf::{Instruction, JudgedCall, is_survived};
use crate::next;
use crate::process;
use crate::start;

/// A filter (`struct sock_fprog`).
#[repr(C)]
struct SeccompFilter {
    len: u16,
    code: *const Instruction,
}

/// The calling thread is about to enter strict mode, where all but four system calls kill it.
pub fn before_strict_mode() {
    if start::ensure() {
        tracehound_lifecycle::leave_libunwind();
        tracehound_lifecycle::end_early("the program enters seccomp's strict mode");
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
    // SAFETY: `filter` is what the program passes to the kernel as a `struct sock_fprog`: the contract of `before_filter`.
    let Some(code) = (unsafe { instructions(filter) }) else { return };
    tracehound_lifecycle::leave_libunwind();
    let kills = |by| calls_by(by).any(|call| !is_survived(code, JudgedCall(call.number, call.arguments)));
    if kills(CallingThreads::Program) || (all || !tracehound_lifecycle::has_writer()) && kills(CallingThreads::Writer) {
        return tracehound_lifecycle::end_early(WHY);
    }
    if kills(CallingThreads::Writer) || kills(CallingThreads::Start) {
        tracehound_lifecycle::confine();
    }
    if all {
        tracehound_lifecycle::close_control();
    }
}

/// The instructions of a filter; `None` if the kernel refuses the filter: its memory cannot be read, or it has no
/// instruction or too many.
///
/// # Safety
/// No other thread may unmap the filter's memory meanwhile.
unsafe fn instructions(filter: usize) -> Option<&'static [Instruction]> {
    /// `BPF_MAXINSNS` of the kernel.
    const MOST: u16 = 4096;
    if !is_readable(filter, size_of::<SeccompFilter>()) {
        return None;
    }
    // SAFETY: can be read, as just tested; the program may have put it at any address.
    let SeccompFilter { len, code } = unsafe { (filter as *const SeccompFilter).read_unaligned() };
    if !(1..=MOST).contains(&len) || !is_readable(code.addr(), usize::from(len) * size_of::<Instruction>()) {
        return None;
    }
    // SAFETY: can be read, as just tested; `Instruction` needs no alignment. The slice is used before the call returns.
    Some(unsafe { core::slice::from_raw_parts(code, usize::from(len)) })
}

/// Whether the kernel can read these bytes of the program. True if it cannot be asked, since an earlier filter forbids it.
fn is_readable(from: usize, bytes: usize) -> bool {
    const PAGE: usize = 4096;
    let Some(last) = from.checked_add(bytes - 1) else { return false };
    let probe = |address: usize| sys::is_readable(address as u64 & !7);
    let mark = 0_u64;
    if !probe((&raw const mark).addr()) {
        return true;
    }
    probe(from) && (from / PAGE + 1..=last / PAGE).all(|page| probe(page * PAGE))
}

/// Why a recording ends before the program does.
const WHY: &str = "the program installs a seccomp filter that would kill it for the recorder's system calls";

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
    if number == libc::SYS_clone && operation & libc::CLONE_VM as usize == 0 {
        process::child_by_number();
    }
    #[cfg(target_arch = "x86_64")]
    if number == libc::SYS_fork {
        process::child_by_number();
    }
    match number {
        libc::SYS_unshare => unshare_by_number as *const () as usize,
        libc::SYS_setns => setns_by_number as *const () as usize,
        _ => next::syscall_address(),
    }
}

/// `syscall(SYS_unshare, …)`: the kernel refuses some of it while the recorder's thread runs.
unsafe extern "C-unwind" fn unshare_by_number(_: c_long, flags: c_int) -> c_long {
    // SAFETY: the program's argument.
    c_long::from(unsafe { process::unshare(flags) })
}

/// `syscall(SYS_setns, …)`.
unsafe extern "C-unwind" fn setns_by_number(_: c_long, fd: c_int, kind: c_int) -> c_long {
    // SAFETY: the program's arguments.
    c_long::from(unsafe { process::setns(fd, kind) })
}

/// What `prctl` is about to do: install a filter, or forbid the calling thread to read the clock of events.
///
/// # Safety
/// As for [`before_filter`].
pub unsafe fn before_prctl(option: c_int, mode: usize, filter: usize) {
    const STRICT: usize = 1;
    const FILTER: usize = 2;
    const FORBIDDEN: usize = libc::PR_TSC_SIGSEGV as usize;
    match (option, mode) {
        (libc::PR_SET_SECCOMP, STRICT) => before_strict_mode(),
        // SAFETY: the caller keeps the contract of `before_filter`, which covers this call.
        (libc::PR_SET_SECCOMP, FILTER) => unsafe { before_filter(filter, false) },
        (libc::PR_SET_TSC, FORBIDDEN) if start::ensure() => {
            tracehound_lifecycle::end_early(
                "the program forbids its thread to read the processor's time-stamp counter",
            );
        }
        _ => {}
    }
}
