//! A Unix socket that keeps message boundaries, listening in a folder of its own. Nothing here waits.

use core::ffi::CStr;

use super::{Errno, Result, call, close};

/// Longest path of a socket that the kernel takes, without the terminating zero.
const MAX_PATH: usize = 107;

#[repr(C)]
struct Address {
    family: u16,
    path: [u8; MAX_PATH + 1],
}

/// Makes a socket at `path` that its owner alone may connect to, and listens. What is there already is replaced.
pub fn listen_at(path: &CStr) -> Result<i32> {
    let bytes = path.to_bytes();
    let mut address = Address { family: libc::AF_UNIX as u16, path: [0; MAX_PATH + 1] };
    let place = address.path.get_mut(..bytes.len()).ok_or(Errno(libc::ENAMETOOLONG))?;
    place.copy_from_slice(bytes);
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: numbers only.
    let fd = unsafe { call!(libc::SYS_socket, libc::AF_UNIX, kind, 0) }? as i32;
    let _ = super::unlink_at(libc::AT_FDCWD, path);
    // SAFETY: address and path are valid for the calls.
    let done = unsafe {
        call!(libc::SYS_bind, fd, &raw const address, 2 + bytes.len() + 1)
            // Nobody can connect before it listens.
            .and_then(|_| call!(libc::SYS_fchmodat, libc::AT_FDCWD, path.as_ptr(), 0o600))
            .and_then(|_| call!(libc::SYS_listen, fd, 8))
    };
    if let Err(error) = done {
        close(fd);
        return Err(error);
    }
    Ok(fd)
}

/// The next connection, if there is one.
pub fn accept(listener: i32) -> Option<i32> {
    // SAFETY: numbers only.
    unsafe { call!(libc::SYS_accept4, listener, 0, 0, libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) }
        .ok()
        .map(|fd| fd as i32)
}

/// User of the process at the other end.
pub fn peer_user(fd: i32) -> Result<u32> {
    let mut who = [u32::MAX; 3];
    let mut len = size_of_val(&who) as u32;
    // SAFETY: the kernel fills three words: process, user, group.
    unsafe { call!(libc::SYS_getsockopt, fd, libc::SOL_SOCKET, libc::SO_PEERCRED, who.as_mut_ptr(), &raw mut len) }?;
    Ok(who[1])
}

/// The next message, at most as long as `buffer`; `EAGAIN` when there is none yet, length 0 when the other end is gone.
pub fn receive(fd: i32, buffer: &mut [u8]) -> Result<usize> {
    // SAFETY: the slice is valid for writes.
    unsafe { call!(libc::SYS_recvfrom, fd, buffer.as_mut_ptr(), buffer.len(), libc::MSG_DONTWAIT, 0, 0) }
}

/// Sends a message, if there is room for it.
pub fn send(fd: i32, message: &[u8]) -> Result<()> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the slice is valid for reads.
    unsafe { call!(libc::SYS_sendto, fd, message.as_ptr(), message.len(), flags, 0, 0) }.map(|_| ())
}
