//! The one door to the kernel: every system call that the recorder makes in the traced process, over rustix's raw backend.
//! No libc wrapper, so no errno, no cancellation point, no lock and no allocation.
//!
//! ```text
//! calls    the table: what leaves this module, by which system call, on which threads    ─▶ the seccomp judge
//! memory   mappings of ours             process  ids, threads, tables of descriptors, signals
//! files    files and directories        waiting  futexes, clocks, barriers
//! pages    which pages are in memory        socket   the socket of `heaptrace ctl`
//! credentials  of a thread                  raw      what rustix lacks
//! ```
//!
//! The functions of these files are private to this module. A function that is used outside must be in the table of
//! [`calls`], which is also the list that seccomp filters are checked against: there is no second list to maintain.

pub mod calls;
mod credentials;
mod files;
mod memory;
mod pages;
mod process;
mod raw;
mod socket;
#[cfg(not(loom))]
mod waiting;

#[cfg(loom)]
use crate::sync::system as waiting;
pub use calls::*;
pub use credentials::ThreadCredentials;
pub use files::FileIdentity;
pub use memory::page_bytes;
pub use pages::{PAGE_FILE, PAGE_PRESENT, PAGE_SWAPPED, PAGE_ZERO, ScannedRange};
pub use rustix::process::Resource;

use core::fmt;

use rustix::fd::BorrowedFd;

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
            libc::ENOTSUP => "this kind of file cannot be used",
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
            libc::ESRCH => "no such process",
            libc::EINTR => "interrupted by a signal",
            libc::EAGAIN => "not available at the moment",
            libc::EFAULT => "not an address of the process",
            libc::EBUSY => "in use",
            libc::EEXIST => "exists already",
            libc::EINVAL => "an argument that the kernel does not know",
            libc::ENODEV | libc::ENXIO => "no such device",
            libc::EPIPE => "nobody reads the other end",
            libc::ENOSYS => "a system call that the kernel does not have",
            libc::ETIMEDOUT => "the time for it is over",
            libc::ECONNREFUSED => "the connection was refused",
            libc::ESTALE => "the file is gone from its server",
            libc::ETXTBSY => "the file is being executed",
            libc::EUSERS => "too many users",
            other => return write!(f, "error {other}"),
        };
        f.write_str(text)
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Self {
        Self(error.raw_os_error())
    }
}

/// What a system call gives.
pub type Result<T> = core::result::Result<T, Errno>;

/// A descriptor as rustix wants it. Numbers are checked by the kernel; -1 alone must not be one here.
fn borrowed(fd: i32) -> Result<BorrowedFd<'static>> {
    if fd == -1 {
        return Err(Errno(libc::EBADF));
    }
    // SAFETY: not -1. The kernel checks the number: every call fails if no file is behind it.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}
