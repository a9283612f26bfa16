//! The system calls that rustix does not have, or not in the form that is needed here, with the reason beside each.
//! "Not public" means: it is in rustix's `runtime` module, which is meant for its author's own crates.

use core::ffi::{c_int, c_long};

use super::{Errno, Result};

/// Makes a system call.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn raw(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> isize {
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

/// Makes a system call.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
unsafe fn raw(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> isize {
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

/// Whether the eight bytes at `address`, and so the page around them, can be read. `address` must be a multiple of eight.
///
/// By `rt_sigprocmask` with an invalid `how`: the kernel first copies the set from the address (EFAULT if it cannot), then
/// refuses (EINVAL), and changes nothing. rustix takes references and valid values only.
#[inline]
pub fn is_readable(address: u64) -> bool {
    // SAFETY: changes nothing, whatever `address` is.
    let result = unsafe { raw(libc::SYS_rt_sigprocmask, [usize::MAX, address as usize, 0, 8, 0, 0]) };
    result == -(libc::EINVAL as isize)
}

/// Real, effective and saved user of the calling thread. rustix gives the effective one.
pub(super) fn users() -> Result<[u32; 3]> {
    three(libc::SYS_getresuid)
}

/// Real, effective and saved group of the calling thread.
pub(super) fn groups() -> Result<[u32; 3]> {
    three(libc::SYS_getresgid)
}

fn three(number: c_long) -> Result<[u32; 3]> {
    let mut ids = [0_u32; 3];
    let [first, second, third] = ids.each_mut().map(|id| core::ptr::from_mut(id) as usize);
    // SAFETY: one of the two calls that write three ids, to these places.
    check(unsafe { raw(number, [first, second, third, 0, 0, 0]) })?;
    Ok(ids)
}

/// Changes the users of the calling thread alone. rustix has types that cannot be made of numbers without unsafe code.
pub(super) fn set_users([real, effective, saved]: [u32; 3]) -> Result<()> {
    // SAFETY: touches no memory.
    check(unsafe { raw(libc::SYS_setresuid, [real as usize, effective as usize, saved as usize, 0, 0, 0]) })?;
    Ok(())
}

/// Changes the groups of the calling thread alone.
pub(super) fn set_groups([real, effective, saved]: [u32; 3]) -> Result<()> {
    // SAFETY: touches no memory.
    check(unsafe { raw(libc::SYS_setresgid, [real as usize, effective as usize, saved as usize, 0, 0, 0]) })?;
    Ok(())
}

/// All signals blocked for the calling thread until it is dropped. Not public in rustix; libc leaves its own two open.
pub struct SignalsBlocked(Option<u64>);

impl SignalsBlocked {
    /// Blocks all signals.
    pub fn new() -> Self {
        let (all, mut before) = (u64::MAX, 0_u64);
        Self(set_mask(&all, &raw mut before).then_some(before))
    }

    /// Whether they are blocked: a sandbox may deny it.
    pub fn are_blocked(&self) -> bool {
        self.0.is_some()
    }
}

impl Default for SignalsBlocked {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            set_mask(before, core::ptr::null_mut());
        }
    }
}

fn set_mask(now: &u64, before: *mut u64) -> bool {
    let arguments = [libc::SIG_SETMASK as usize, core::ptr::from_ref(now) as usize, before as usize, 8, 0, 0];
    // SAFETY: both sets have eight bytes, `before` may be null.
    unsafe { raw(libc::SYS_rt_sigprocmask, arguments) == 0 }
}

/// Takes a pending SIGXFSZ away that a system call of ours has raised while signals were `blocked`. Not public in rustix.
pub fn forget_size_signal(blocked: &SignalsBlocked) {
    let set = 1_u64 << (libc::SIGXFSZ - 1);
    if blocked.0.is_none_or(|before| before & set != 0) {
        return;
    }
    let now = [0_i64; 2];
    // SAFETY: set and time are valid for the call.
    unsafe { raw(libc::SYS_rt_sigtimedwait, [&raw const set as usize, 0, now.as_ptr() as usize, 8, 0, 0]) };
}

/// The host's name, that of a container where there is one; empty if the kernel does not say. rustix takes for granted that
/// it does.
pub fn host_name() -> Vec<u8> {
    let mut names = core::mem::MaybeUninit::<libc::utsname>::zeroed();
    // SAFETY: the kernel fills a structure of this layout; zeroes make one, too.
    let names = unsafe {
        raw(libc::SYS_uname, [names.as_mut_ptr() as usize, 0, 0, 0, 0, 0]);
        names.assume_init()
    };
    names.nodename.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0).collect()
}

/// Where the program's break is. Not public in rustix.
pub fn current_break() -> usize {
    // SAFETY: an impossible break changes nothing and gives the current one.
    (unsafe { raw(libc::SYS_brk, [0; 6]) }) as usize
}

/// Ends the process at once, all its threads. Not public in rustix.
pub fn exit_process(status: c_int) -> ! {
    loop {
        // SAFETY: ends the process.
        unsafe { raw(libc::SYS_exit_group, [status as usize, 0, 0, 0, 0, 0]) };
    }
}

/// Whether the thread still exists in this process. rustix has `tkill` alone, which would ask about any process's thread
/// that has got the number in the meantime.
pub fn thread_exists(process: u32, thread: u32) -> bool {
    // SAFETY: signal 0 only asks.
    let result = unsafe { raw(libc::SYS_tgkill, [process as usize, thread as usize, 0, 0, 0, 0]) };
    result != -(libc::ESRCH as isize)
}

#[cfg(loom)]
pub use crate::sync::system::clock;

/// A clock's time in nanoseconds. rustix looks for the vdso's function at its first call, in files of /proc.
#[cfg(not(loom))]
pub fn clock(id: c_int) -> u64 {
    let mut time = [0_i64; 2];
    // SAFETY: the kernel fills two words.
    unsafe { raw(libc::SYS_clock_gettime, [id as usize, time.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    time[0] as u64 * 1_000_000_000 + time[1] as u64
}

/// Name of the calling thread. rustix gives it in an allocated string.
pub fn thread_name() -> [u8; 16] {
    let mut name = [0_u8; 16];
    // SAFETY: the kernel fills up to 16 bytes.
    unsafe { raw(libc::SYS_prctl, [libc::PR_GET_NAME as usize, name.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    name
}

/// Asks whether rdtsc is allowed, on x86.
pub(super) const PR_GET_TSC: c_int = 25;

/// Whether the kernel lets the program read the processor's counter; where it cannot be asked, it does. Not in rustix.
pub fn counter_is_allowed() -> bool {
    const PR_TSC_ENABLE: c_int = 1;
    let mut mode: c_int = 0;
    // SAFETY: `mode` is valid for the int that the call writes.
    let result = unsafe { raw(libc::SYS_prctl, [PR_GET_TSC as usize, &raw mut mode as usize, 0, 0, 0, 0]) };
    result != 0 || mode == PR_TSC_ENABLE
}

/// Which of the pages from `start` on are in memory: a byte each, with the lowest bit. Of private memory without a file the
/// kernel says so by its page tables alone, of files by its cache. Not in rustix.
pub fn resident_pages(start: u64, pages: &mut [u8], page_bytes: u64) -> Result<()> {
    let arguments = [start as usize, pages.len() * page_bytes as usize, pages.as_mut_ptr() as usize, 0, 0, 0];
    // SAFETY: the kernel fills a byte for each page.
    check(unsafe { raw(libc::SYS_mincore, arguments) }).map(|_| ())
}

/// `close_range(2)`. Not in rustix.
///
/// # Safety
/// Nobody may use the descriptors that are closed.
pub unsafe fn close_range(first: u32, last: u32, flags: u32) -> Result<()> {
    // SAFETY: vouched for by the caller.
    check(unsafe { raw(libc::SYS_close_range, [first as usize, last as usize, flags as usize, 0, 0, 0]) }).map(|_| ())
}

/// The program's own `mmap`, before libc's function is known. rustix would refuse flags that it does not know.
///
/// # Safety
/// As for the system call.
pub unsafe fn mmap_for_program(
    at: usize,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> Result<usize> {
    let arguments = [at, bytes, protection as usize, flags as usize, fd as usize, offset as usize];
    // SAFETY: vouched for by the caller.
    check(unsafe { raw(libc::SYS_mmap, arguments) })
}

/// The program's own `munmap`, before libc's function is known.
///
/// # Safety
/// As for the system call.
pub unsafe fn munmap_for_program(at: usize, bytes: usize) -> Result<()> {
    // SAFETY: vouched for by the caller.
    check(unsafe { raw(libc::SYS_munmap, [at, bytes, 0, 0, 0, 0]) }).map(|_| ())
}
