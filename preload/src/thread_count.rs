//! The hooks of `stat(2)` by name: a program that counts its threads there counts its own.
//!
//! A directory of procfs, `/proc/self/task`, has a link for each thread. Chromium's zygote, from which it forks all its
//! processes, looks at that number and aborts if it is not its only thread.

use core::ffi::{CStr, c_char, c_int};

use tracehound_shared::session;
use tracehound_shared::sys;

use crate::next;
use crate::start;

/// Links of a directory without any below it: its name, and the one in itself.
const NO_DIRECTORIES: libc::nlink_t = 2;

/// What the C library's functions of old call the structure that the kernel writes.
const VERSION: c_int = if cfg!(target_arch = "x86_64") { 1 } else { 0 };

/// Looks up what is called, so that no call has to, which may come from a handler of signals.
pub fn resolve() {
    let _ = (next::stat(), next::xstat(), next::fstatat(), next::fxstatat());
}

/// `stat`, as the C library has it: with a filter of system calls one may be allowed that another is not.
unsafe fn by_path(path: *const c_char, status: *mut libc::stat) -> c_int {
    start::ensure();
    // SAFETY: the program's arguments.
    unsafe {
        let result = match (next::stat(), next::xstat()) {
            (Some(function), _) => function(path, status),
            (None, Some(function)) => function(VERSION, path, status),
            (None, None) => not_there(),
        };
        without_ours(result, path, status)
    }
}

/// `fstatat`, the same.
unsafe fn below(directory: c_int, path: *const c_char, status: *mut libc::stat, flags: c_int) -> c_int {
    start::ensure();
    // SAFETY: the program's arguments.
    unsafe {
        let result = match (next::fstatat(), next::fxstatat()) {
            (Some(function), _) => function(directory, path, status, flags),
            (None, Some(function)) => function(VERSION, directory, path, status, flags),
            (None, None) => not_there(),
        };
        without_ours(result, path, status)
    }
}

fn not_there() -> c_int {
    start::set_errno(libc::ENOSYS);
    -1
}

/// Takes the recorder's thread from the number of links, behind the call.
unsafe fn without_ours(result: c_int, path: *const c_char, status: *mut libc::stat) -> c_int {
    if result == 0 && !path.is_null() {
        // SAFETY: the call has read the terminated path and written the structure.
        let (path, status) = unsafe { (CStr::from_ptr(path), &mut *status) };
        if status.st_nlink > NO_DIRECTORIES + 1 && is_own_list(path.to_bytes(), status) {
            status.st_nlink -= 1;
        }
    }
    result
}

/// Whether it is the list of this process's threads, and the recorder's is among them.
fn is_own_list(path: &[u8], status: &libc::stat) -> bool {
    let name = path.strip_suffix(b"/").unwrap_or(path);
    // Directories of other file systems have a size.
    let Some(process) = name.strip_suffix(b"/task").filter(|_| status.st_size == 0 && status.st_blocks == 0) else {
        return false;
    };
    let Some(session) = session::current().filter(|session| session.pid == sys::process_id()) else { return false };
    let process = process.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let number = core::str::from_utf8(process).ok().and_then(|text| text.parse::<u32>().ok());
    (process == b"self" || number == Some(session.pid)) && tracehound_lifecycle::has_writer()
}

macro_rules! hooks {
    ($($(#[$about:meta])* $name:ident($($argument:ident: $kind:ty),*) => $call:expr;)*) => {
        $(
            $(#[$about])*
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($argument: $kind),*) -> c_int {
                // SAFETY: the program's arguments.
                unsafe { $call }
            }
        )*
    };
}

type Path = *const c_char;
/// `struct stat64` is the same.
type Status = *mut libc::stat;

hooks! {
    /// `stat(2)`.
    stat(path: Path, status: Status) => by_path(path, status);
    /// The same.
    stat64(path: Path, status: Status) => by_path(path, status);
    /// `fstatat(2)`.
    fstatat(directory: c_int, path: Path, status: Status, flags: c_int) => below(directory, path, status, flags);
    /// The same.
    fstatat64(directory: c_int, path: Path, status: Status, flags: c_int) => below(directory, path, status, flags);
    /// `stat(2)` of programs that were linked before glibc 2.33.
    __xstat(_version: c_int, path: Path, status: Status) => by_path(path, status);
    /// The same.
    __xstat64(_version: c_int, path: Path, status: Status) => by_path(path, status);
    /// `fstatat(2)` of such programs.
    __fxstatat(_version: c_int, directory: c_int, path: Path, status: Status, flags: c_int) =>
        below(directory, path, status, flags);
    /// The same.
    __fxstatat64(_version: c_int, directory: c_int, path: Path, status: Status, flags: c_int) =>
        below(directory, path, status, flags);
}
