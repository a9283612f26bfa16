//! Blocks that are served before the real allocator is known, and blocks that libc takes on the recorder's behalf.
//!
//! A bump allocator over static memory; usable before the library is relocated, hence no pointers in statics and no
//! calls of libc. Its blocks can be freed (which does nothing) and reallocated at any time.
//!
//! ```text
//! block   | size: u64 | owner: u64 | bytes …        aligned to 16 or more; OWN or PROGRAM
//! ```

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering};

const BYTES: usize = 512 << 10;
const HEADER: usize = 16;

/// The block was taken on the recorder's behalf.
pub const OWN: u64 = 0;
/// The program asked for the block.
pub const PROGRAM: u64 = 1;

#[repr(C, align(4096))]
struct ArenaMemory(UnsafeCell<[u8; BYTES]>);

// SAFETY: pieces of it are handed out once each.
unsafe impl Sync for ArenaMemory {}

static MEMORY: ArenaMemory = ArenaMemory(UnsafeCell::new([0; BYTES]));
static USED: AtomicUsize = AtomicUsize::new(0);

#[inline(always)]
fn base() -> usize {
    MEMORY.0.get() as usize
}

/// Whether the block is one of ours.
#[inline(always)]
pub fn holds(block: *mut c_void) -> bool {
    (block as usize).wrapping_sub(base()) < BYTES
}

/// A zeroed block; null when the arena is used up.
pub fn take(size: usize, align: usize, owner: u64) -> *mut c_void {
    if size > BYTES || align > BYTES || !align.is_power_of_two() {
        return core::ptr::null_mut();
    }
    let align = if align < 16 { 16 } else { align };
    let mut used = USED.load(Ordering::Relaxed);
    loop {
        let at = (base() + used + HEADER).wrapping_add(align - 1) & !(align - 1);
        let end = at - base() + ((size + 15) & !15);
        if end > BYTES {
            return core::ptr::null_mut();
        }
        match USED.compare_exchange(used, end, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                let header = (at - HEADER) as *mut u64;
                // SAFETY: inside the piece that has just been taken.
                unsafe {
                    header.write(size as u64);
                    header.add(1).write(owner);
                }
                return at as *mut c_void;
            }
            Err(now) => used = now,
        }
    }
}

/// Size and owner of a block.
///
/// # Safety
/// The block must be one that [`take`] gave.
pub unsafe fn describe(block: *mut c_void) -> (usize, u64) {
    let header = (block as usize - HEADER) as *const u64;
    // SAFETY: every block has a header in front.
    unsafe { (header.read() as usize, header.add(1).read()) }
}

/// Calls `each` for every block that the program took, in order: address and size.
pub fn program_blocks(mut each: impl FnMut(*mut c_void, usize)) {
    let end = USED.load(Ordering::Relaxed);
    let mut at = 0;
    while at + HEADER < end {
        // Blocks with a larger alignment leave a gap of zeros in front of their header; no header begins with zeros
        // but that of an empty block of ours, which is of no interest.
        let header = (base() + at) as *const u64;
        // SAFETY: inside the memory, aligned to 16.
        let (size, owner) = unsafe { (header.read() as usize, header.add(1).read()) };
        if size == 0 && owner == OWN {
            at += HEADER;
            continue;
        }
        if owner == PROGRAM {
            each((base() + at + HEADER) as *mut c_void, size);
        }
        at += HEADER + ((size + 15) & !15);
    }
}
