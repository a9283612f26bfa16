//! Files and directories. What makes a descriptor is not inlined: rustix has an assertion there, which is never met, and
//! the check of the library's machine code knows it by the name of this module.

use core::ffi::CStr;
use core::mem::MaybeUninit;

use rustix::fd::IntoRawFd;
use rustix::fs::{self, AtFlags, FallocateFlags, FlockOperation, Mode, OFlags, RawDir};
use rustix::io::retry_on_intr;

use super::process::duplicate;
use super::{Errno, Result, borrowed};

/// Opens `path` relative to `dir`.
#[inline(never)]
pub fn open_at(dir: i32, path: &CStr, flags: i32, mode: u32) -> Result<i32> {
    let flags = OFlags::from_bits_retain(flags as u32).union(OFlags::CLOEXEC);
    Ok(fs::openat(borrowed(dir)?, path, flags, Mode::from_raw_mode(mode))?.into_raw_fd())
}

/// Closes a descriptor of ours.
pub fn close(fd: i32) {
    if fd != -1 {
        // SAFETY: the caller owns the descriptor.
        unsafe { rustix::io::close(fd) }
    }
}

/// Writes all of `bytes` at `offset`; on an error the length that got written comes with it.
pub fn write_all_at(fd: i32, mut bytes: &[u8], mut offset: u64) -> Result<()> {
    let fd = borrowed(fd)?;
    while !bytes.is_empty() {
        match retry_on_intr(|| rustix::io::pwrite(fd, bytes, offset))? {
            0 => return Err(Errno(libc::EIO)),
            len => {
                bytes = bytes.get(len..).unwrap_or_default();
                offset += len as u64;
            }
        }
    }
    Ok(())
}

/// Writes to a stream, once; for messages.
pub fn write_once(fd: i32, bytes: &[u8]) {
    let _ = borrowed(fd).map(|fd| rustix::io::write(fd, bytes));
}

/// Reads up to `buffer.len()` bytes at `offset`.
pub fn read_at(fd: i32, buffer: &mut [u8], offset: u64) -> Result<usize> {
    let fd = borrowed(fd)?;
    Ok(retry_on_intr(|| rustix::io::pread(fd, &mut *buffer, offset))?)
}

/// Reads a whole file of the kernel's, such as `/proc/self/maps`.
pub fn read_file(dir: i32, path: &CStr) -> Result<Vec<u8>> {
    let fd = open_at(dir, path, libc::O_RDONLY, 0)?;
    let mut bytes = Vec::new();
    let result = read_on(fd, &mut bytes, || true);
    close(fd);
    result.map(|_| bytes)
}

/// Adds what a file of the kernel's has from offset `bytes.len()` on, as long as `goes_on` says so before each piece; false
/// where it was given up.
pub fn read_on(fd: i32, bytes: &mut Vec<u8>, mut goes_on: impl FnMut() -> bool) -> Result<bool> {
    let mut piece = [0_u8; 4096];
    while goes_on() {
        match read_at(fd, &mut piece, bytes.len() as u64)? {
            0 => return Ok(true),
            len => bytes.extend_from_slice(piece.get(..len).unwrap_or_default()),
        }
    }
    Ok(false)
}

/// Sets a file's length.
pub fn truncate(fd: i32, len: u64) -> Result<()> {
    Ok(fs::ftruncate(borrowed(fd)?, len)?)
}

/// Reserves disk space for a range of a file; with `keep_size` the length stays.
pub fn allocate(fd: i32, keep_size: bool, offset: u64, len: u64) -> Result<()> {
    let mode = if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
    let fd = borrowed(fd)?;
    Ok(retry_on_intr(|| fs::fallocate(fd, mode, offset, len))?)
}

/// Device and inode of an open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileIdentity {
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

/// `fstat`.
pub fn stat(fd: i32) -> Result<fs::Stat> {
    Ok(fs::fstat(borrowed(fd)?)?)
}

/// Identity of the file behind a descriptor.
pub fn identity(fd: i32) -> Result<FileIdentity> {
    stat(fd).map(|stat| FileIdentity { device: stat.st_dev, inode: stat.st_ino })
}

/// Whether the process may run a file.
#[inline(never)]
pub fn is_executable(path: &CStr) -> bool {
    fs::accessat(fs::CWD, path, fs::Access::EXEC_OK, AtFlags::empty()).is_ok()
}

/// Removes a name.
pub fn unlink_at(dir: i32, path: &CStr) -> Result<()> {
    Ok(fs::unlinkat(borrowed(dir)?, path, AtFlags::empty())?)
}

/// Reads a symbolic link.
pub fn read_link(path: &CStr) -> Result<Vec<u8>> {
    let mut buffer = vec![0_u8; 4096];
    let len = fs::readlinkat_raw(fs::CWD, path, buffer.as_mut_slice())?;
    buffer.truncate(len);
    Ok(buffer)
}

/// The working directory.
pub fn working_directory() -> Result<Vec<u8>> {
    Ok(rustix::process::getcwd(Vec::new())?.into_bytes())
}

/// Moves a descriptor to a number of 256 or more where the limit allows, close-on-exec.
#[inline(never)]
pub fn move_high(fd: i32) -> i32 {
    match [256, 128, 64, 32].into_iter().find_map(|least| duplicate(fd, least)) {
        Some(high) => {
            close(fd);
            high
        }
        None => fd,
    }
}

/// Takes the exclusive lock of an open file, without waiting.
pub fn lock_file(fd: i32) -> Result<()> {
    Ok(fs::flock(borrowed(fd)?, FlockOperation::NonBlockingLockExclusive)?)
}

/// Fills `bytes` with random ones.
pub fn random(bytes: &mut [u8]) -> Result<()> {
    let wanted = bytes.len();
    let len = rustix::rand::getrandom(bytes, rustix::rand::GetRandomFlags::NONBLOCK)?;
    if len == wanted { Ok(()) } else { Err(Errno(libc::EAGAIN)) }
}

/// Calls `each` with the names in a folder, the first few thousand of them.
pub fn names_in(path: &CStr, each: &mut dyn FnMut(&CStr)) -> Result<()> {
    const MAX_NAMES: u32 = 1 << 13;
    let fd = open_at(libc::AT_FDCWD, path, libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
    let mut buffer = [MaybeUninit::uninit(); 8192];
    let mut names = RawDir::new(borrowed(fd)?, &mut buffer);
    for _ in 0..MAX_NAMES {
        let Some(Ok(name)) = names.next() else { break };
        each(name.file_name());
    }
    close(fd);
    Ok(())
}

/// Makes sure of a folder for its owner alone, made if it is not there. Refuses what is a link, another user's, or open to others.
pub fn private_folder(path: &CStr, user: u32) -> Result<()> {
    let _ = fs::mkdirat(fs::CWD, path, Mode::RWXU);
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let fd = open_at(libc::AT_FDCWD, path, flags, 0)?;
    let found = stat(fd);
    close(fd);
    let found = found?;
    if found.st_uid == user && found.st_mode & 0o077 == 0 { Ok(()) } else { Err(Errno(libc::EACCES)) }
}

/// The first bytes of a file, as many as there is room for: how many; `None` where there is no such file.
pub fn read_start(path: &CStr, buffer: &mut [u8]) -> Option<usize> {
    let fd = open_at(libc::AT_FDCWD, path, libc::O_RDONLY, 0).ok()?;
    let len = read_at(fd, buffer, 0).unwrap_or(0);
    close(fd);
    Some(len)
}
