//! The process and its threads: ids, names, limits, tables of descriptors, signals.

use core::ffi::CStr;

use super::{Errno, call, close, read_link};

/// Gives the calling thread a descriptor table of its own that holds nothing but `keep`.
pub fn own_descriptor_table(keep: &mut [i32]) -> bool {
    keep.sort_unstable();
    const UNSHARE: u32 = 2;
    // SAFETY: this affects the calling thread's table only, once it is unshared.
    let unshared = unsafe {
        call!(libc::SYS_close_range, u32::MAX, u32::MAX, UNSHARE)
            .or_else(|_| call!(libc::SYS_unshare, libc::CLONE_FILES))
            .is_ok()
    };
    if !unshared || !has_own_table(keep) {
        return false;
    }
    let mut first = 0_u32;
    for &fd in keep.iter() {
        let fd = fd as u32;
        if fd > first {
            close_range(first, fd - 1);
        }
        first = fd + 1;
    }
    close_range(first, u32::MAX);
    true
}

/// Whether the calling thread's table is not that of the process's first thread. Emulators (valgrind 3.19 is one) say
/// that they have unshared it and have not: closing what the thread does not need would close it for the program.
fn has_own_table(known: &[i32]) -> bool {
    let in_first =
        |fd: i32| std::ffi::CString::new(format!("/proc/self/fd/{fd}")).is_ok_and(|path| read_link(&path).is_ok());
    let Some(&shared) = known.iter().find(|&&fd| in_first(fd)) else { return false };
    // SAFETY: numbers only. The limit on descriptors may not reach to high ones.
    let duplicate = |least: i32| unsafe { call!(libc::SYS_fcntl, shared, libc::F_DUPFD_CLOEXEC, least) };
    let Ok(probe) = duplicate(256).or_else(|_| duplicate(0)) else { return false };
    let own = !in_first(probe as i32);
    close(probe as i32);
    own
}

/// Gives the calling thread a root and a working directory of its own, where the kernel lets it: the program may change
/// its own as it likes, and enter namespaces that a shared one forbids.
pub fn own_directory() {
    // SAFETY: affects the calling thread only.
    let _ = unsafe { call!(libc::SYS_unshare, libc::CLONE_FS) };
}

fn close_range(first: u32, last: u32) {
    // SAFETY: called on a table of the calling thread's own.
    if unsafe { call!(libc::SYS_close_range, first, last, 0) }.is_err() {
        let limit = resource_limit(libc::RLIMIT_NOFILE).min(1 << 16) as u32;
        for fd in first..=last.min(limit) {
            close(fd as i32);
        }
    }
}

/// Soft limit of a resource.
pub fn resource_limit(resource: u32) -> u64 {
    let mut limit = [u64::MAX; 2];
    // SAFETY: the kernel fills two words.
    let _ = unsafe { call!(libc::SYS_prlimit64, 0, resource, 0, limit.as_mut_ptr()) };
    limit[0]
}

/// Process id, from the kernel.
pub fn process_id() -> u32 {
    // SAFETY: no arguments.
    unsafe { call!(libc::SYS_getpid) }.unwrap_or(0) as u32
}

/// The host's name, that of a container where there is one; empty if the kernel does not say.
pub fn host_name() -> Vec<u8> {
    let mut names = core::mem::MaybeUninit::<libc::utsname>::zeroed();
    // SAFETY: the kernel fills a structure of this layout.
    if unsafe { call!(libc::SYS_uname, names.as_mut_ptr()) }.is_err() {
        return Vec::new();
    }
    // SAFETY: filled by the kernel, zeroed before.
    let names = unsafe { names.assume_init() };
    names.nodename.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0).collect()
}

/// Parent's process id.
pub fn parent_id() -> u32 {
    // SAFETY: no arguments.
    unsafe { call!(libc::SYS_getppid) }.unwrap_or(0) as u32
}

/// The calling thread's id.
pub fn thread_id() -> u32 {
    // SAFETY: no arguments.
    unsafe { call!(libc::SYS_gettid) }.unwrap_or(0) as u32
}

/// Whether the process exists.
pub fn process_exists(process: u32) -> bool {
    // SAFETY: signal 0 only asks.
    (unsafe { call!(libc::SYS_kill, process, 0) }) != Err(Errno(libc::ESRCH))
}

/// Whether the thread still exists in this process.
pub fn thread_exists(process: u32, thread: u32) -> bool {
    // SAFETY: signal 0 only asks.
    (unsafe { call!(libc::SYS_tgkill, process, thread, 0) }) != Err(Errno(libc::ESRCH))
}

/// Name of the calling thread.
pub fn thread_name() -> [u8; 16] {
    let mut name = [0_u8; 16];
    // SAFETY: the kernel fills up to 16 bytes.
    let _ = unsafe { call!(libc::SYS_prctl, libc::PR_GET_NAME, name.as_mut_ptr()) };
    name
}

/// Names the calling thread.
pub fn set_thread_name(name: &CStr) {
    // SAFETY: the name is terminated.
    let _ = unsafe { call!(libc::SYS_prctl, libc::PR_SET_NAME, name.as_ptr()) };
}

/// All signals blocked for the calling thread until it is dropped.
pub struct SignalsBlocked(u64);

impl SignalsBlocked {
    /// Blocks all signals.
    pub fn new() -> Self {
        let (all, mut before) = (u64::MAX, 0_u64);
        // SAFETY: both masks are eight bytes.
        let _ = unsafe { call!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const all, &raw mut before, 8) };
        Self(before)
    }

    /// Takes a pending SIGXFSZ away that a system call of ours has raised.
    pub fn forget_size_signal(&self) {
        if self.0 >> (libc::SIGXFSZ - 1) & 1 == 1 {
            return;
        }
        let (set, now) = (1_u64 << (libc::SIGXFSZ - 1), [0_i64; 2]);
        // SAFETY: set and time are valid for the call.
        let _ = unsafe { call!(libc::SYS_rt_sigtimedwait, &raw const set, 0, now.as_ptr(), 8) };
    }
}

impl Default for SignalsBlocked {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        let before = self.0;
        // SAFETY: the mask is eight bytes.
        let _ = unsafe { call!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const before, 0, 8) };
    }
}

/// Effective user of the calling thread.
pub fn user_id() -> u32 {
    // SAFETY: no arguments.
    unsafe { call!(libc::SYS_geteuid) }.unwrap_or(0) as u32
}
