//! A Unix socket that keeps message boundaries, listening in a folder of its own. Nothing here waits.

use core::ffi::CStr;

use rustix::fd::{AsFd, IntoRawFd};
use rustix::fs::{AtFlags, CWD, Mode};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use super::{Result, borrowed};

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// Makes a socket at `path` that its owner alone may connect to, and listens. What is there already is replaced.
#[inline(never)]
pub fn listen_at(path: &CStr) -> Result<i32> {
    let address = SocketAddrUnix::new(path)?;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?;
    let _ = super::files::unlink_at(libc::AT_FDCWD, path);
    net::bind(socket.as_fd(), &address)?;
    // Nobody can connect before it listens.
    rustix::fs::chmodat(CWD, path, Mode::RUSR | Mode::WUSR, AtFlags::empty())?;
    net::listen(socket.as_fd(), 8)?;
    Ok(socket.into_raw_fd())
}

/// The next connection, if there is one.
#[inline(never)]
pub fn accept(listener: i32) -> Option<i32> {
    net::accept_with(borrowed(listener).ok()?, FLAGS).ok().map(IntoRawFd::into_raw_fd)
}

/// User of the process at the other end.
#[inline(never)]
pub fn peer_user(fd: i32) -> Result<u32> {
    Ok(net::sockopt::socket_peercred(borrowed(fd)?)?.uid.as_raw())
}

/// The next message, at most as long as `buffer`; `EAGAIN` when there is none yet, length 0 when the other end is gone.
#[inline(never)]
pub fn receive(fd: i32, buffer: &mut [u8]) -> Result<usize> {
    Ok(net::recv(borrowed(fd)?, buffer, RecvFlags::DONTWAIT)?.0)
}

/// Sends a message, if there is room for it.
#[inline(never)]
pub fn send(fd: i32, message: &[u8]) -> Result<()> {
    net::send(borrowed(fd)?, message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    Ok(())
}
