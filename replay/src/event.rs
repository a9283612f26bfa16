//! The file of events.

use std::ffi::CStr;

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// One call. `heaptrace` writes them with these offsets.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PlayedCall {
    /// Recorded time.
    pub t_ns: u64,
    /// Requested bytes.
    pub size: u64,
    /// Place of the block in the table.
    pub slot: u32,
    /// For a realloc: place of the old block.
    pub old: u32,
    /// Thread, from 0, the main thread.
    pub thread: u32,
    /// Pages that are written to.
    pub touched: u32,
    /// See below.
    pub op: u32,
    /// Alignment, as a power of two.
    pub alignment: u32,
}

/// `malloc`.
pub const MALLOC: u32 = 1;
/// `calloc`.
pub const CALLOC: u32 = 2;
/// `posix_memalign`.
pub const ALIGNED: u32 = 3;
/// `realloc`.
pub const REALLOC: u32 = 4;
/// `free`.
pub const FREE: u32 = 5;
/// The thread ends.
pub const THREAD_END: u32 = 6;
/// No call: from here on the recorded program had `size` bytes in memory that were not its allocator's.
pub const OTHER_MEMORY: u32 = 7;
/// `malloc` by the C++ library while it was loaded. An allocator that is written in C++ has made the program load it as well, so
/// that there is one such block here already.
pub const CXX_RESERVE: u32 = 8;

/// All events.
pub struct PlayedCalls {
    /// In their order.
    pub list: &'static [PlayedCall],
    /// Places in the table of blocks.
    pub slots: usize,
    /// Threads.
    pub threads: usize,
}

impl PlayedCalls {
    /// Maps the file.
    pub fn open(path: &CStr) -> Option<Self> {
        // SAFETY: plain calls with valid arguments; the file is written by nobody any more.
        let list = unsafe {
            let fd = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
            if fd < 0 {
                return None;
            }
            let bytes = usize::try_from(libc::lseek(fd, 0, libc::SEEK_END)).ok()?;
            if bytes < size_of::<PlayedCall>() {
                return None;
            }
            let at = libc::mmap(core::ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, fd, 0);
            if at == libc::MAP_FAILED {
                return None;
            }
            core::slice::from_raw_parts(at.cast::<PlayedCall>(), bytes / size_of::<PlayedCall>())
        };
        let most = |of: fn(&PlayedCall) -> u32| list.iter().map(of).max().unwrap_or(0) as usize + 1;
        Some(Self { list, slots: most(|event| event.slot.max(event.old)), threads: most(|event| event.thread) })
    }
}
