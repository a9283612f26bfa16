//! System calls made directly: no libc wrapper, so no errno, no cancellation point, no lock and no allocation.

use core::ffi::CStr;
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
        check(raw($number, $a as usize, $b as usize, $c as usize, $d as usize, $e as usize, $f as usize))
    };
}

/// Maps private anonymous memory, zeroed.
pub fn map_memory(bytes: usize) -> Result<*mut u8> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping where the kernel likes touches nothing that exists.
    unsafe { call!(libc::SYS_mmap, 0, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1_isize, 0) }
        .map(|at| at as *mut u8)
}

/// Maps the first `bytes` of a file, shared.
pub fn map_shared(fd: i32, bytes: usize) -> Result<*mut u8> {
    // SAFETY: as above.
    unsafe { call!(libc::SYS_mmap, 0, bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, fd, 0) }
        .map(|at| at as *mut u8)
}

/// Maps the first `bytes` of a file, shared, over what is mapped at `at`.
///
/// # Safety
/// The range must be the caller's own, and nobody may use it meanwhile.
pub unsafe fn map_shared_over(at: *mut u8, fd: i32, bytes: usize) -> Result<()> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
    // SAFETY: vouched for by the caller.
    unsafe { call!(libc::SYS_mmap, at, bytes, protection, flags, fd, 0) }.map(|_| ())
}

/// Takes a mapping away.
///
/// # Safety
/// Nothing may use the range any more.
pub unsafe fn unmap(at: *mut u8, bytes: usize) {
    // SAFETY: vouched for by the caller.
    let _ = unsafe { call!(libc::SYS_munmap, at, bytes) };
}

/// Advises the kernel about a range of ours.
///
/// # Safety
/// The advice must not destroy what is still needed.
pub unsafe fn advise(at: *mut u8, bytes: usize, advice: i32) -> Result<()> {
    // SAFETY: vouched for by the caller.
    unsafe { call!(libc::SYS_madvise, at, bytes, advice) }.map(|_| ())
}

/// Opens `path` relative to `dir`.
pub fn open_at(dir: i32, path: &CStr, flags: i32, mode: u32) -> Result<i32> {
    // SAFETY: the path is terminated.
    unsafe { call!(libc::SYS_openat, dir, path.as_ptr(), flags | libc::O_CLOEXEC, mode) }.map(|fd| fd as i32)
}

/// Closes a descriptor of ours.
pub fn close(fd: i32) {
    // SAFETY: a number; the caller owns the descriptor.
    let _ = unsafe { call!(libc::SYS_close, fd) };
}

/// Writes all of `bytes` at `offset`; on an error the length that got written comes with it.
pub fn write_all_at(fd: i32, mut bytes: &[u8], mut offset: u64) -> Result<()> {
    while !bytes.is_empty() {
        // SAFETY: the slice is valid for reads.
        match unsafe { call!(libc::SYS_pwrite64, fd, bytes.as_ptr(), bytes.len(), offset) } {
            Ok(0) => return Err(Errno(libc::EIO)),
            Ok(len) => {
                bytes = bytes.get(len..).unwrap_or_default();
                offset += len as u64;
            }
            Err(Errno(libc::EINTR)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes to a stream, once; for messages.
pub fn write_once(fd: i32, bytes: &[u8]) {
    // SAFETY: the slice is valid for reads.
    let _ = unsafe { call!(libc::SYS_write, fd, bytes.as_ptr(), bytes.len()) };
}

/// Reads up to `buffer.len()` bytes at `offset`.
pub fn read_at(fd: i32, buffer: &mut [u8], offset: u64) -> Result<usize> {
    loop {
        // SAFETY: the slice is valid for writes.
        match unsafe { call!(libc::SYS_pread64, fd, buffer.as_mut_ptr(), buffer.len(), offset) } {
            Err(Errno(libc::EINTR)) => {}
            other => return other,
        }
    }
}

/// Reads a whole file of the kernel's, such as `/proc/self/maps`.
pub fn read_file(dir: i32, path: &CStr) -> Result<Vec<u8>> {
    let fd = open_at(dir, path, libc::O_RDONLY, 0)?;
    let mut bytes = Vec::new();
    let mut piece = [0_u8; 4096];
    let result = loop {
        match read_at(fd, &mut piece, bytes.len() as u64) {
            Ok(0) => break Ok(bytes),
            Ok(len) => bytes.extend_from_slice(piece.get(..len).unwrap_or_default()),
            Err(error) => break Err(error),
        }
    };
    close(fd);
    result
}

/// Sets a file's length.
pub fn truncate(fd: i32, len: u64) -> Result<()> {
    // SAFETY: numbers only.
    unsafe { call!(libc::SYS_ftruncate, fd, len) }.map(|_| ())
}

/// Reserves disk space for a range of a file; with `keep_size` the length stays.
pub fn allocate(fd: i32, keep_size: bool, offset: u64, len: u64) -> Result<()> {
    let mode = if keep_size { libc::FALLOC_FL_KEEP_SIZE } else { 0 };
    loop {
        // SAFETY: numbers only.
        match unsafe { call!(libc::SYS_fallocate, fd, mode, offset, len) } {
            Err(Errno(libc::EINTR)) => {}
            other => return other.map(|_| ()),
        }
    }
}

/// Device, inode, length, modification time in seconds and type of an open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileIdentity {
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

/// `fstat`.
pub fn stat(fd: i32) -> Result<libc::stat> {
    let mut stat = core::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the kernel fills a structure of this layout.
    unsafe { call!(libc::SYS_fstat, fd, stat.as_mut_ptr()) }?;
    // SAFETY: filled by the kernel, zeroed before.
    Ok(unsafe { stat.assume_init() })
}

/// Which file a descriptor stands for.
pub fn identity(fd: i32) -> Result<FileIdentity> {
    stat(fd).map(|stat| FileIdentity { device: stat.st_dev, inode: stat.st_ino })
}

/// Removes a name.
pub fn unlink_at(dir: i32, path: &CStr) -> Result<()> {
    // SAFETY: the path is terminated.
    unsafe { call!(libc::SYS_unlinkat, dir, path.as_ptr(), 0) }.map(|_| ())
}

/// Reads a symbolic link.
pub fn read_link(path: &CStr) -> Result<Vec<u8>> {
    let mut buffer = vec![0_u8; 4096];
    // SAFETY: path and buffer are valid.
    let len = unsafe { call!(libc::SYS_readlinkat, libc::AT_FDCWD, path.as_ptr(), buffer.as_mut_ptr(), buffer.len()) }?;
    buffer.truncate(len);
    Ok(buffer)
}

/// The working directory.
pub fn working_directory() -> Result<Vec<u8>> {
    let mut buffer = vec![0_u8; 4096];
    // SAFETY: the buffer is valid.
    let len = unsafe { call!(libc::SYS_getcwd, buffer.as_mut_ptr(), buffer.len()) }?;
    buffer.truncate(len.saturating_sub(1));
    Ok(buffer)
}

/// Moves a descriptor to a number of 256 or more where the limit allows, close-on-exec.
pub fn move_high(fd: i32) -> i32 {
    for least in [256, 128, 64, 32] {
        // SAFETY: numbers only.
        if let Ok(high) = unsafe { call!(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, least) } {
            close(fd);
            return high as i32;
        }
    }
    fd
}

/// Takes the exclusive lock of an open file, without waiting.
pub fn lock_file(fd: i32) -> Result<()> {
    // SAFETY: numbers only.
    unsafe { call!(libc::SYS_flock, fd, libc::LOCK_EX | libc::LOCK_NB) }.map(|_| ())
}

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

/// Waits while `*word == expected`, at most `nanos`.
pub fn futex_wait(word: &core::sync::atomic::AtomicU32, expected: u32, nanos: u64) {
    let timeout = [(nanos / 1_000_000_000) as i64, (nanos % 1_000_000_000) as i64];
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: word and timeout are valid for the call.
    let _ = unsafe { call!(libc::SYS_futex, core::ptr::from_ref(word), operation, expected, timeout.as_ptr()) };
}

/// Wakes up to `count` waiters.
pub fn futex_wake(word: &core::sync::atomic::AtomicU32, count: i32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is valid for the call.
    let _ = unsafe { call!(libc::SYS_futex, core::ptr::from_ref(word), operation, count) };
}

/// Lets other threads run.
pub fn sleep(nanos: u64) {
    let time = [(nanos / 1_000_000_000) as i64, (nanos % 1_000_000_000) as i64];
    // SAFETY: the time is valid for the call.
    let _ = unsafe { call!(libc::SYS_nanosleep, time.as_ptr(), 0) };
}

/// A clock's time in nanoseconds.
pub fn clock(id: i32) -> u64 {
    let mut time = [0_i64; 2];
    // SAFETY: the kernel fills two words.
    let _ = unsafe { call!(libc::SYS_clock_gettime, id, time.as_mut_ptr()) };
    time[0] as u64 * 1_000_000_000 + time[1] as u64
}

/// Fills `bytes` with random ones.
pub fn random(bytes: &mut [u8]) -> Result<()> {
    const NONBLOCK: usize = 1;
    // SAFETY: the slice is valid for writes.
    let len = unsafe { call!(libc::SYS_getrandom, bytes.as_mut_ptr(), bytes.len(), NONBLOCK) }?;
    if len == bytes.len() { Ok(()) } else { Err(Errno(libc::EAGAIN)) }
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

/// Whether the calling thread runs on its alternate signal stack.
pub fn on_signal_stack() -> bool {
    let mut stack = core::mem::MaybeUninit::<libc::stack_t>::zeroed();
    // SAFETY: the kernel fills a structure of this layout.
    if unsafe { call!(libc::SYS_sigaltstack, 0, stack.as_mut_ptr()) }.is_err() {
        return false;
    }
    // SAFETY: filled by the kernel, zeroed before.
    unsafe { stack.assume_init() }.ss_flags & libc::SS_ONSTACK != 0
}

/// Announces that [`barrier`] will be used; false where the kernel has none.
pub fn barrier_register() -> bool {
    const REGISTER_PRIVATE_EXPEDITED: usize = 1 << 4;
    // SAFETY: numbers only.
    unsafe { call!(libc::SYS_membarrier, REGISTER_PRIVATE_EXPEDITED, 0) }.is_ok()
}

/// Makes every running thread of the process pass a full memory barrier.
pub fn barrier() {
    const PRIVATE_EXPEDITED: usize = 1 << 3;
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    // SAFETY: numbers only.
    if unsafe { call!(libc::SYS_membarrier, PRIVATE_EXPEDITED, 0) }.is_err() {
        // Without the system call: a store buffer drains in well under a microsecond.
        sleep(200_000);
    }
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}
