//! Finds the unwind information of a PC, wherever it lies.

use super::cfi::bytes::Bytes;
use super::cfi::entry::Entry;
use super::cfi::index;
use super::stack::readable_page;
use super::{debug_frame, registered};
use crate::shared::code;

/// An entry and the readable memory its expressions lie in.
#[derive(Clone, Copy, Debug)]
pub struct Located {
    /// The entry that covers the PC.
    pub entry: Entry,
    /// Readable memory around it.
    pub window: Bytes,
}

/// The entry that covers `inside`, an address in the calling or interrupted instruction.
pub fn locate(inside: u64) -> Option<Located> {
    let Some(object) = code::object_at(inside) else { return registered::locate(inside) };
    let segment = |address: u64| {
        let (start, end) = object.segment(address)?;
        // SAFETY: a readable segment of a loaded object; the code at `inside` is being executed, which keeps
        // it loaded.
        Some(unsafe { Bytes::new(start, end, 0) })
    };
    if object.frame_header != 0
        && let Some((entry, window)) = index::lookup(object.frame_header, inside, segment)
    {
        return Some(Located { entry, window });
    }
    registered::locate(inside).or_else(|| debug_frame::locate(&object, inside))
}

/// Whether a handler that returns to `pc` returns to what a signal interrupted: the code there is nothing but
/// the system call `rt_sigreturn`. For C libraries that give it no unwind information.
#[cfg(target_arch = "x86_64")]
pub fn is_sigreturn(pc: u64) -> bool {
    /// `mov rax, 15; syscall`, with the 7-byte and with the 5-byte form of the first.
    const LONG: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05];
    const SHORT: [u8; 7] = [0xb8, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05];
    let last = pc.wrapping_add(LONG.len() as u64 - 1);
    if pc < 4096 || pc >> 47 != 0 || !readable_page(pc & !4095) || !readable_page(last & !4095) {
        return false;
    }
    // SAFETY: the bytes' pages are readable, and the thread will return to them.
    let code = unsafe { (pc as *const [u8; LONG.len()]).read_unaligned() };
    code == LONG || code.starts_with(&SHORT)
}
