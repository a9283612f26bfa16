//! System calls made directly: no libc wrapper, so no errno, no cancellation point, no lock and no allocation.
//!
//! ```text
//! memory   mappings of ours             process  ids, threads, tables of descriptors, signals
//! files    files and directories        waiting  futexes, clocks, barriers
//! socket   the socket of `heaptrace ctl`
//! ```

mod files;
mod memory;
mod process;
mod socket;
mod waiting;

pub use files::*;
pub use memory::*;
pub use process::*;
pub use socket::*;
pub use waiting::*;

use core::fmt;

/// An error number of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            libc::EACCES => "permission denied",
            libc::ENOENT => "no such directory",
            libc::ENOTDIR => "not a directory",
            libc::EISDIR => "is a directory",
            libc::ENOSPC => "no space left on the device",
            libc::EDQUOT => "disk quota exceeded",
            libc::EROFS => "read-only file system",
            libc::EFBIG => "the file size limit is reached",
            libc::ENAMETOOLONG => "the name is too long",
            libc::EMFILE | libc::ENFILE => "too many open files",
            libc::ENOMEM => "no memory",
            libc::EIO => "input/output error",
            libc::ELOOP => "too many symbolic links",
            libc::EPERM => "not permitted",
            libc::EBADF => "the descriptor was closed",
            other => return write!(f, "error {other}"),
        };
        f.write_str(text)
    }
}

/// What a system call gives.
pub type Result<T> = core::result::Result<T, Errno>;

/// Makes a system call with up to six arguments.
///
/// # Safety
/// As for the system call.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub unsafe fn raw(number: i64, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
    let result: isize;
    // SAFETY: the kernel changes rax, rcx and r11 only, and memory as the caller has vouched for.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Makes a system call with up to six arguments.
///
/// # Safety
/// As for the system call.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub unsafe fn raw(number: i64, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
    let result: isize;
    // SAFETY: the kernel changes x0 only, and memory as the caller has vouched for.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack),
        );
    }
    result
}

fn check(result: isize) -> Result<usize> {
    if (-4095..0).contains(&result) { Err(Errno(-result as i32)) } else { Ok(result as usize) }
}

macro_rules! call {
    ($number:expr) => { call!($number, 0, 0, 0, 0, 0, 0) };
    ($number:expr, $a:expr) => { call!($number, $a, 0, 0, 0, 0, 0) };
    ($number:expr, $a:expr, $b:expr) => { call!($number, $a, $b, 0, 0, 0, 0) };
    ($number:expr, $a:expr, $b:expr, $c:expr) => { call!($number, $a, $b, $c, 0, 0, 0) };
    ($number:expr, $a:expr, $b:expr, $c:expr, $d:expr) => { call!($number, $a, $b, $c, $d, 0, 0) };
    ($number:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr) => { call!($number, $a, $b, $c, $d, $e, 0) };
    ($number:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr) => {
        $crate::shared::sys::check($crate::shared::sys::raw($number, $a as usize, $b as usize, $c as usize, $d as usize, $e as usize, $f as usize))
    };
}
use call;
