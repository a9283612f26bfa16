//! Parts that several fuzz targets use, and a module of the preload, compiled here by its path: what is built as a C
//! library cannot be depended on.

#[path = "../../preload/src/bpf.rs"]
pub mod bpf;

pub mod recordings;

/// A file in memory that holds `bytes`; its path is `/proc/self/fd/…`.
///
/// # Panics
/// When the kernel has no memory for it.
#[must_use]
pub fn memory_file(bytes: &[u8]) -> (std::fs::File, std::ffi::CString) {
    use std::io::Write;
    use std::os::fd::{AsRawFd, FromRawFd};
    // SAFETY: the name is a terminated string; the descriptor is new and nobody else's.
    let mut file = unsafe {
        let fd = libc::memfd_create(c"fuzz".as_ptr(), libc::MFD_CLOEXEC);
        assert!(fd >= 0, "memfd_create failed");
        std::fs::File::from_raw_fd(fd)
    };
    file.write_all(bytes).expect("a file in memory takes bytes");
    let path = std::ffi::CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("no zero in a number");
    (file, path)
}
