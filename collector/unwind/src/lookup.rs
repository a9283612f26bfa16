//! Finds the unwind information of a PC: in a loaded object, a registered section, or a section that was read from a
//! file.

#[cfg(target_arch = "aarch64")]
use super::aarch64::is_call_before;
#[cfg(target_arch = "aarch64")]
pub use super::aarch64::is_sigreturn;
use super::address::is_in_user_space;
use super::cfi::bytes::Bytes;
use super::cfi::entry::Fde;
use super::cfi::index;
use super::{file_sections, go_switch, registered};
#[cfg(target_arch = "x86_64")]
use memchr::memrchr_iter;
use tracehound_shared::code;
#[cfg(target_arch = "x86_64")]
use tracehound_shared::code::DynamicSymbols;
use tracehound_shared::sys::is_readable;

/// An entry and the readable memory its expressions lie in.
#[derive(Clone, Copy, Debug)]
pub struct LocatedFde {
    /// The entry that covers the PC.
    pub entry: Fde,
    /// Readable memory around it.
    pub window: Bytes,
}

/// The entry that covers `inside`, an address in the calling or interrupted instruction.
pub fn locate(inside: u64) -> Option<LocatedFde> {
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
        return Some(LocatedFde { entry, window });
    }
    registered::locate(inside).or_else(|| {
        // What Go's file says of its switch between stacks holds for one of them.
        let is_switch = go_switch::rule_at(inside.wrapping_add(1)).is_some();
        if is_switch { None } else { file_sections::locate(&object, inside) }
    })
}

/// Whether the rule of the code at `inside` comes from what the program registered.
#[inline(always)]
pub fn is_registered(inside: u64) -> bool {
    registered::may_cover(inside) && is_registered_for_certain(inside)
}

#[cold]
fn is_registered_for_certain(inside: u64) -> bool {
    code::object_at(inside).is_none_or(|object| object.frame_header == 0) && registered::locate(inside).is_some()
}

/// Whether a handler that returns to `pc` returns to what a signal interrupted: the code there is nothing but
/// the system call `rt_sigreturn`. For C libraries that give it no unwind information.
#[cfg(target_arch = "x86_64")]
pub fn is_sigreturn(pc: u64) -> bool {
    /// `mov rax, 15; syscall`, with the 7-byte and with the 5-byte form of the first.
    const LONG: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05];
    const SHORT: [u8; 7] = [0xb8, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05];
    code_at::<{ LONG.len() }>(pc).is_some_and(|code| code == LONG || code.starts_with(&SHORT))
}

/// Whether `pc` is the first address of a function, and no call is before it: a return address that somebody put
/// under the outermost frame of a stack, as makecontext does.
pub fn is_synthetic_return_address(pc: u64) -> bool {
    let is_first = locate(pc).is_some_and(|located| located.entry.begin == pc);
    is_first && is_call_before(pc) == Some(false)
}

/// Whether what returns to `pc` returns to the outermost function of a stack: its result goes to `exit` or `pthread_exit`
/// of the same library, which do not return. For C libraries without unwind information, such as musl.
#[cfg(target_arch = "x86_64")]
pub fn passes_result_to_exit(pc: u64) -> bool {
    const MOVE: [u8; 2] = [0x89, 0xc7];
    /// `mov rdi, rax` and `movsxd rdi, eax`.
    const LONG_MOVES: [[u8; 3]; 2] = [[0x48, 0x89, 0xc7], [0x48, 0x63, 0xf8]];
    const CALL: u8 = 0xe8;
    let Some(code) = code_at::<8>(pc) else { return false };
    let moved = match code {
        _ if code.starts_with(&MOVE) => MOVE.len(),
        _ if LONG_MOVES.iter().any(|long| code.starts_with(long)) => LONG_MOVES[0].len(),
        _ => return false,
    };
    let Some(&[CALL, a, b, c, d, ..]) = code.get(moved..) else { return false };
    let distance = i32::from_le_bytes([a, b, c, d]);
    let target = pc.wrapping_add(moved as u64 + 5).wrapping_add_signed(i64::from(distance));
    // SAFETY: the object holds code that the thread will return to, which keeps it loaded.
    let symbols = code::object_at(pc.wrapping_sub(1)).and_then(|object| unsafe { DynamicSymbols::of(object.start) });
    symbols.is_some_and(|symbols| {
        [&b"exit"[..], b"pthread_exit"].iter().any(|name| symbols.find(name).is_some_and(|at| at.address == target))
    })
}

/// The same: not known here.
#[cfg(not(target_arch = "x86_64"))]
pub fn passes_result_to_exit(_: u64) -> bool {
    false
}

/// Whether a call may stand before `pc`, as it does before a return address.
pub fn follows_call(pc: u64) -> bool {
    is_call_before(pc) == Some(true)
}

/// The same; `None` if nothing can be read there.
#[cfg(target_arch = "x86_64")]
fn is_call_before(pc: u64) -> Option<bool> {
    code_at::<7>(pc.wrapping_sub(7)).map(|code| ends_in_call(&code))
}

/// Whether the last bytes of `code` may be a call: `e8 rel32`, or `ff /2` with its operand.
#[cfg(target_arch = "x86_64")]
fn ends_in_call(code: &[u8; 7]) -> bool {
    let indirect = |length: usize| code[7 - length] == 0xff && code[8 - length] >> 3 & 7 == 2;
    code[2] == 0xe8 || [2, 3, 4, 6, 7].into_iter().any(indirect)
}

/// Whether the function around `pc`, which has no unwind information, seems to begin as those that keep frame pointers
/// do: the next such beginning before it has no unwind information either.
#[cfg(target_arch = "x86_64")]
pub fn begins_frames(pc: u64) -> bool {
    const REACH: u64 = 32 << 10;
    let Some(object) = code::object_at(pc.wrapping_sub(1)) else { return false };
    let Some((start, _)) = object.segment(pc.wrapping_sub(1)) else { return false };
    let start = start.max(pc.saturating_sub(REACH));
    // SAFETY: a readable segment of an object that holds code which the thread will return to.
    let code = unsafe { core::slice::from_raw_parts(start as *const u8, (pc - start) as usize) };
    last_beginning(code).is_some_and(|at| locate(start + at as u64).is_none())
}

/// Where in `code` the last function begins that keeps frame pointers: `push rbp; mov rbp, rsp`, in either form.
#[cfg(target_arch = "x86_64")]
fn last_beginning(code: &[u8]) -> Option<usize> {
    const MOVES: [[u8; 3]; 2] = [[0x48, 0x89, 0xe5], [0x48, 0x8b, 0xec]];
    let begins = |&at: &usize| {
        let behind = code.get(at.wrapping_add(1)..).unwrap_or_default();
        MOVES.iter().any(|moves| behind.starts_with(moves))
    };
    memrchr_iter(0x55, code).find(begins)
}

/// Whether the function around `pc` seems to begin as those that keep frame pointers do: not known here.
#[cfg(not(target_arch = "x86_64"))]
pub fn begins_frames(_: u64) -> bool {
    false
}

/// The bytes at `pc`, where the thread will return to.
pub fn code_at<const N: usize>(pc: u64) -> Option<[u8; N]> {
    let last = pc.checked_add(N as u64 - 1)?;
    let (first_page, last_page) = (pc & !4095, last & !4095);
    let readable =
        is_in_user_space(pc) && is_readable(first_page) && (last_page == first_page || is_readable(last_page));
    // SAFETY: both pages are readable, and code that the thread will return to stays; bytes need no alignment. Volatile: a
    // JIT compiler may write there.
    readable.then(|| unsafe { (pc as *const [u8; N]).read_volatile() })
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn the_last_beginning_of_a_function_is_found() {
        assert_eq!(last_beginning(&[0x90, 0x55, 0x48, 0x89, 0xe5, 0x55, 0x48, 0x8b, 0xec, 0x55, 0x90]), Some(5));
        assert_eq!(last_beginning(&[0x55, 0x48, 0x89, 0xe5]), Some(0));
        assert_eq!(last_beginning(&[0x55, 0x48, 0x89]), None, "cut off");
        assert_eq!(last_beginning(&[0x55; 9]), None, "pushes alone");
        assert_eq!(last_beginning(&[]), None);
    }

    #[test]
    fn calls_are_recognised_from_behind() {
        assert!(ends_in_call(&[0x90, 0x90, 0xe8, 1, 2, 3, 4]), "call rel32");
        assert!(ends_in_call(&[0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xd0]), "call rax");
        assert!(ends_in_call(&[0x90, 0xff, 0x15, 1, 2, 3, 4]), "call [rip + disp32]");
        assert!(ends_in_call(&[0xff, 0x94, 0x24, 1, 2, 3, 4]), "call [rsp + disp32]");
        assert!(!ends_in_call(&[0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0]), "padding");
        assert!(!ends_in_call(&[0xcc; 7]), "padding");
        assert!(!ends_in_call(&[0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xe0]), "jmp rax");
    }
}
