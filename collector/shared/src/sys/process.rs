//! The process and its threads: ids, limits, tables of descriptors, signals.

use core::ffi::CStr;

use rustix::process::Resource;
use rustix::thread::UnshareFlags;

use super::borrowed;
use super::files::{close, read_link};
use super::raw::close_range;

/// Gives the calling thread a descriptor table of its own that holds nothing but `keep`.
pub fn own_descriptor_table(keep: &mut [i32]) -> bool {
    keep.sort_unstable();
    const UNSHARE: u32 = 2;
    // SAFETY: closes nothing, and affects the calling thread's table only.
    let unshared = unsafe {
        close_range(u32::MAX, u32::MAX, UNSHARE).is_ok() || rustix::thread::unshare_unsafe(UnshareFlags::FILES).is_ok()
    };
    if !unshared || !has_own_table(keep) {
        return false;
    }
    let mut first = 0_u32;
    for &fd in keep.iter() {
        let fd = fd as u32;
        if fd > first {
            close_all(first, fd - 1);
        }
        first = fd + 1;
    }
    close_all(first, u32::MAX);
    true
}

/// Whether the calling thread's table is not that of the process's first thread. Emulators (valgrind 3.19 is one) say
/// that they have unshared it and have not: closing what the thread does not need would close it for the program.
fn has_own_table(known: &[i32]) -> bool {
    let in_first =
        |fd: i32| std::ffi::CString::new(format!("/proc/self/fd/{fd}")).is_ok_and(|path| read_link(&path).is_ok());
    let Some(&shared) = known.iter().find(|&&fd| in_first(fd)) else { return false };
    // The limit on descriptors may not reach to high ones.
    let Some(probe) = duplicate(shared, 256).or_else(|| duplicate(shared, 0)) else { return false };
    let own = !in_first(probe);
    close(probe);
    own
}

/// Another number for a descriptor, `least` or more, close-on-exec.
#[inline(never)]
pub(super) fn duplicate(fd: i32, least: i32) -> Option<i32> {
    use rustix::fd::IntoRawFd;
    rustix::io::fcntl_dupfd_cloexec(borrowed(fd).ok()?, least).ok().map(IntoRawFd::into_raw_fd)
}

/// Gives the calling thread a root and a working directory of its own, where the kernel lets it: the program may change
/// its own as it likes, and enter namespaces that a shared one forbids.
pub fn own_directory() {
    // SAFETY: affects the calling thread only, which is ours.
    let _ = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) };
}

/// Closes a range of descriptors of the calling thread's own table.
fn close_all(first: u32, last: u32) {
    // SAFETY: called on a table of the calling thread's own, for numbers that it does not need.
    if unsafe { close_range(first, last, 0) }.is_err() {
        let limit = resource_limit(Resource::Nofile).min(1 << 16) as u32;
        for fd in first..=last.min(limit) {
            close(fd as i32);
        }
    }
}

/// Soft limit of a resource.
pub fn resource_limit(resource: Resource) -> u64 {
    rustix::process::getrlimit(resource).current.unwrap_or(u64::MAX)
}

/// Bytes of memory that limits of the process leave: of addresses, and of memory that is its alone and can be written. Without
/// limits, or where /proc does not say what it has, all that there is. Allocates nothing.
pub fn memory_room() -> u64 {
    let limits = [Resource::As, Resource::Data].map(resource_limit);
    if limits == [u64::MAX; 2] {
        return u64::MAX;
    }
    let mut text = [0_u8; 256];
    let Ok(file) = super::open_at(libc::AT_FDCWD, c"/proc/self/statm", libc::O_RDONLY, 0) else { return u64::MAX };
    let read = super::read_at(file, &mut text, 0);
    super::close(file);
    let text = read.ok().and_then(|len| text.get(..len)).and_then(|text| core::str::from_utf8(text).ok());
    let mut pages = text.unwrap_or_default().split_ascii_whitespace().map(|word| word.parse::<u64>().unwrap_or(0));
    // Size, resident, shared, text, library, data.
    let (size, data) = (pages.next().unwrap_or(0), pages.nth(4).unwrap_or(0));
    let page = super::page_bytes() as u64;
    let left = limits.iter().zip([size, data]).map(|(limit, used)| limit.saturating_sub(used.saturating_mul(page)));
    left.min().unwrap_or(u64::MAX)
}

/// Process id, from the kernel; 0 where a sandbox denies it.
pub fn process_id() -> u32 {
    u32::try_from(rustix::process::getpid().as_raw_pid()).unwrap_or(0)
}

/// Parent's process id.
pub fn parent_id() -> u32 {
    rustix::process::getppid().map_or(0, |id| u32::try_from(id.as_raw_pid()).unwrap_or(0))
}

/// The calling thread's id; 0 where a sandbox denies it.
pub fn thread_id() -> u32 {
    u32::try_from(rustix::thread::gettid().as_raw_pid()).unwrap_or(0)
}

/// Whether the process exists.
pub fn process_exists(process: u32) -> bool {
    let id = rustix::process::Pid::from_raw(process as i32);
    id.is_some_and(|id| rustix::process::test_kill_process(id) != Err(rustix::io::Errno::SRCH))
}

/// Names the calling thread.
pub fn set_thread_name(name: &CStr) {
    let _ = rustix::thread::set_name(name);
}

/// Effective user of the calling thread.
pub fn user_id() -> u32 {
    rustix::process::geteuid().as_raw()
}
