//! Seccomp filters that the program installs. If a filter makes the recorder's calls fail, that is handled where they
//! fail. If it would kill the process for them, this is detected here, before the filter is installed, and recording
//! ends instead.
//!
//! The filter is run ([`crate::bpf`]) on every call in the table of `collector/shared/src/sys/calls.rs`.

use core::ffi::{c_int, c_long};

use tracehound_shared::sys;
use tracehound_shared::sys::calls::{CallingThreads, calls_by};

use crate::bpf::{Instruction, JudgedCall, is_survived};
use crate::entry::passes_on;
use crate::exec;
use crate::next;
use crate::process;
use crate::start;
use crate::unfollowed;

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
pub fn is_readable(from: usize, bytes: usize) -> bool {
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

passes_on!(
    /// `syscall(2)`: looked at on the way, for `seccomp(2)` has no function of its own in the C library.
    syscall, look_at_syscall
);

/// Gives the address to jump to.
unsafe extern "C" fn look_at_syscall(number: c_long, operation: usize, flags: usize, argument: usize) -> usize {
    const STRICT: usize = 0;
    const FILTER: usize = 1;
    const ALL_THREADS: usize = 1;
    if number == libc::SYS_seccomp {
        match operation {
            // With flags or an argument the kernel refuses it: that is how libseccomp asks whether there are filters at all.
            STRICT if flags == 0 && argument == 0 => before_strict_mode(),
            // SAFETY: the program's arguments to seccomp(2).
            FILTER => unsafe { before_filter(argument, flags & ALL_THREADS != 0) },
            _ => {}
        }
    }
    if number == libc::SYS_clone && operation & libc::CLONE_VM as usize == 0 {
        unfollowed::child_without_handlers();
    }
    #[cfg(target_arch = "x86_64")]
    if number == libc::SYS_fork {
        unfollowed::child_without_handlers();
    }
    if number == libc::SYS_exit {
        process::thread_exits_by_number();
    }
    match number {
        libc::SYS_execve => execve_by_number as *const () as usize,
        libc::SYS_execveat => execveat_by_number as *const () as usize,
        libc::SYS_exit_group => exit_by_number as *const () as usize,
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

/// `syscall(SYS_execve, …)`.
unsafe extern "C-unwind" fn execve_by_number(
    _: c_long,
    path: exec::Text,
    arguments: exec::List,
    list: exec::List,
) -> c_long {
    // SAFETY: the program's arguments.
    c_long::from(unsafe { exec::execve(path, arguments, list) })
}

/// `syscall(SYS_execveat, …)`.
unsafe extern "C-unwind" fn execveat_by_number(
    _: c_long,
    dir: c_int,
    path: exec::Text,
    arguments: exec::List,
    list: exec::List,
    flags: c_int,
) -> c_long {
    // SAFETY: the program's arguments.
    c_long::from(unsafe { exec::execveat(dir, path, arguments, list, flags) })
}

/// `syscall(SYS_exit_group, …)`.
extern "C" fn exit_by_number(_: c_long, status: c_int) -> ! {
    process::_exit(status)
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
