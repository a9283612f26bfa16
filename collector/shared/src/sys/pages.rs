//! Which pages are in memory, by the page tables.

use core::ffi::c_void;

use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl};

use super::{Result, borrowed};

/// `PAGEMAP_SCAN`, Linux 6.7.
pub(super) const PAGEMAP_SCAN: Opcode = 0xc060_6610;

/// The page is of a file or of shared memory.
pub const PAGE_FILE: u64 = 1 << 2;
/// The page is in memory.
pub const PAGE_PRESENT: u64 = 1 << 3;
/// The page is swapped out.
pub const PAGE_SWAPPED: u64 = 1 << 4;
/// It is the kernel's page of zeros.
pub const PAGE_ZERO: u64 = 1 << 5;

/// Neighbouring pages of one kind (`struct page_region`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScannedRange {
    /// First address.
    pub start: u64,
    /// Address behind it.
    pub end: u64,
    /// `PAGE_*`.
    pub categories: u64,
}

/// `struct pm_scan_arg`.
#[repr(C)]
struct ScanRequest {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    ranges: u64,
    ranges_len: u64,
    max_pages: u64,
    inverted: u64,
    mask: u64,
    any_of: u64,
    wanted: u64,
}

// SAFETY: the opcode reads and writes the structure, whose `ranges` are valid for `ranges_len` of them.
unsafe impl Ioctl for &mut ScanRequest {
    type Output = usize;

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        PAGEMAP_SCAN
    }

    fn as_ptr(&mut self) -> *mut c_void {
        core::ptr::from_mut::<ScanRequest>(self).cast()
    }

    unsafe fn output_from_ptr(output: IoctlOutput, _: *mut c_void) -> rustix::io::Result<usize> {
        Ok(usize::try_from(output).unwrap_or(0))
    }
}

/// Fills `ranges` with the pages from `start` to `end` that are in memory or swapped out, by the descriptor of a
/// `/proc/PID/pagemap`; at most `max_pages` of them. Tells how many ranges there are: when they are as many as there is
/// room for, or their pages as many as there may be, more may follow behind the last one. (The kernel's own word for where
/// it stopped is not set in every case.)
///
/// # Errors
/// `ENOTTY` where the kernel has no such call.
pub fn scan_pages(pagemap: i32, start: u64, end: u64, max_pages: u64, ranges: &mut [ScannedRange]) -> Result<usize> {
    let mut request = ScanRequest {
        size: size_of::<ScanRequest>() as u64,
        flags: 0,
        start,
        end,
        walk_end: 0,
        ranges: ranges.as_mut_ptr() as u64,
        ranges_len: ranges.len() as u64,
        max_pages,
        inverted: 0,
        mask: 0,
        any_of: PAGE_PRESENT | PAGE_SWAPPED,
        wanted: PAGE_FILE | PAGE_PRESENT | PAGE_SWAPPED | PAGE_ZERO,
    };
    // SAFETY: the request is the structure that the opcode takes; the slice that `ranges` leads to outlives the call.
    Ok(unsafe { ioctl(borrowed(pagemap)?, &mut request) }?.min(ranges.len()))
}
