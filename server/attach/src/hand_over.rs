//! Descriptors that are handed to the process, by a pair of sockets of its own: paths, users and namespaces of the process do not
//! matter.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::borrow::BorrowedThread;
use crate::memory::{ProcessMemory, living_thread};
use crate::refusal::{During, Result, refuse};

/// A file in memory that has no name, to be handed to the process.
pub fn memory_file() -> Result<File> {
    // glibc has a function of that name since 2.27, and `heaptrace` runs with 2.17.
    // SAFETY: a terminated name; the descriptor is ours.
    let fd = unsafe { libc::syscall(libc::SYS_memfd_create, c"tracehound".as_ptr(), libc::MFD_CLOEXEC) } as i32;
    if fd == -1 {
        return Err(std::io::Error::last_os_error()).during("a file in memory");
    }
    // SAFETY: a new descriptor that nobody else has.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Gives the process descriptors of ours: their numbers there.
pub fn hand_over(pid: u32, memory: &ProcessMemory, thread: &mut BorrowedThread<'_>, given: &[i32]) -> Result<Vec<i32>> {
    const CONTROL: u64 = 256;
    let data = thread.data();
    let kind = (libc::SOCK_DGRAM | libc::SOCK_CLOEXEC) as u64;
    thread.system_call(libc::SYS_socketpair, [libc::AF_UNIX as u64, kind, 0, data, 0, 0])?;
    let ends = [memory.half(data).unwrap_or(0), memory.half(data + 4).unwrap_or(0)];
    let received = (|| {
        send(pid, ends[0], given)?;
        // struct msghdr with one byte and room for the descriptors.
        let words = [0, 0, data + 128, 1, data + CONTROL, 128, 0];
        let bytes: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
        memory.write(data + 128, &[(data + 200).to_le_bytes(), 1_u64.to_le_bytes()].concat())?;
        memory.write(data + 16, &bytes)?;
        let flags = (libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT) as u64;
        thread.system_call(libc::SYS_recvmsg, [u64::from(ends[1]), data + 16, flags, 0, 0, 0])?;
        let control = memory.bytes(data + CONTROL, 16 + given.len() * 4).unwrap_or_default();
        let len = control.get(..8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes);
        if len != 16 + given.len() as u64 * 4 {
            return refuse("the process did not get the recording's files: it may have no descriptor left");
        }
        let numbers = control.get(16..).unwrap_or_default().chunks_exact(4);
        Ok(numbers.filter_map(|word| word.try_into().ok()).map(i32::from_le_bytes).collect())
    })();
    for end in ends {
        thread.system_call(libc::SYS_close, [u64::from(end), 0, 0, 0, 0, 0])?;
    }
    received
}

/// Sends descriptors through the end `end` of a socket pair of the process.
fn send(pid: u32, end: u32, given: &[i32]) -> Result<()> {
    // SAFETY: plain system calls with numbers.
    let own = unsafe {
        // Where the first thread has ended, another one's table is meant: Linux 6.9 knows how.
        const ONE_THREAD: libc::c_int = libc::O_EXCL;
        let thread = living_thread(pid);
        let process = libc::syscall(libc::SYS_pidfd_open, thread, if thread == pid { 0 } else { ONE_THREAD });
        let own = libc::syscall(libc::SYS_pidfd_getfd, process, end, 0);
        let error = std::io::Error::last_os_error();
        libc::close(process as i32);
        if own < 0 {
            return Err(error).during("the process's socket (pidfd_getfd, which Linux has from 5.6 on)");
        }
        OwnedFd::from_raw_fd(own as i32)
    };
    let mut byte = [0_u8];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let mut control = [0_u64; 16];
    let bytes = size_of_val(given);
    // SAFETY: the message's parts live until it is sent; the control buffer is aligned and has room for the header and the
    // descriptors, at most eight.
    let sent = unsafe {
        let mut message: libc::msghdr = core::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(bytes as u32) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(bytes as u32) as _;
        core::ptr::copy_nonoverlapping(given.as_ptr().cast(), libc::CMSG_DATA(header), bytes);
        libc::sendmsg(own.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    if sent == 1 { Ok(()) } else { Err(std::io::Error::last_os_error()).during("the files cannot be sent") }
}
