//! Files and directories.

use core::ffi::CStr;

use super::{Errno, Result, call};

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

/// Fills `bytes` with random ones.
pub fn random(bytes: &mut [u8]) -> Result<()> {
    const NONBLOCK: usize = 1;
    // SAFETY: the slice is valid for writes.
    let len = unsafe { call!(libc::SYS_getrandom, bytes.as_mut_ptr(), bytes.len(), NONBLOCK) }?;
    if len == bytes.len() { Ok(()) } else { Err(Errno(libc::EAGAIN)) }
}

/// Calls `each` with the names in a folder, the first few thousand of them.
pub fn names_in(path: &CStr, each: &mut dyn FnMut(&CStr)) -> Result<()> {
    // struct linux_dirent64: inode, offset, length u16, type u8, name.
    const LENGTH_AT: usize = 16;
    const NAME_AT: usize = 19;
    const ROUNDS: u32 = 32;
    let fd = open_at(libc::AT_FDCWD, path, libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
    let mut buffer = vec![0_u8; 8192];
    for _ in 0..ROUNDS {
        // SAFETY: the slice is valid for writes.
        let filled = unsafe { call!(libc::SYS_getdents64, fd, buffer.as_mut_ptr(), buffer.len()) }.unwrap_or(0);
        let mut rest = buffer.get(..filled).unwrap_or_default();
        if rest.is_empty() {
            break;
        }
        while let Some(&[low, high]) = rest.get(LENGTH_AT..LENGTH_AT + 2) {
            let length = usize::from(u16::from_le_bytes([low, high]));
            let name = rest.get(NAME_AT..length).unwrap_or_default();
            if let Ok(name) = CStr::from_bytes_until_nul(name) {
                each(name);
            }
            rest = rest.get(length.max(1)..).unwrap_or_default();
        }
    }
    close(fd);
    Ok(())
}

/// Makes sure of a folder for its owner alone, made if it is not there. Refuses what is a link, another user's, or open to others.
pub fn private_folder(path: &CStr, user: u32) -> Result<()> {
    // SAFETY: the path is terminated.
    let _ = unsafe { call!(libc::SYS_mkdirat, libc::AT_FDCWD, path.as_ptr(), 0o700) };
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let fd = open_at(libc::AT_FDCWD, path, flags, 0)?;
    let found = stat(fd);
    close(fd);
    let found = found?;
    if found.st_uid == user && found.st_mode & 0o077 == 0 { Ok(()) } else { Err(Errno(libc::EACCES)) }
}
