//! The parts of CPython's evaluation loop. Compilers put code that they think is seldom run apart from its function, with an
//! entry of unwind information of its own: of some builds that is nearly the whole loop. Stripped programs have no symbol
//! for it, but the function jumps into it, and nothing else jumps into the middle of another function's code.

use core::ops::Range;

use crate::lookup;
use tracehound_shared::python;

/// So many jumps into the middle of the same code prove that it is a part.
const JUMPS: u32 = 2;
/// Pieces of code that are counted.
const CANDIDATES: usize = 8;

/// Whether a frame whose return address is `pc` is a call of the evaluation loop.
#[inline]
pub fn is_evaluation(pc: u64) -> bool {
    if let Some(function) = python::loop_without_parts() {
        find_part(function);
    }
    python::is_evaluation(pc)
}

/// Finds the part. Threads that come here at the same time find the same.
#[cold]
fn find_part(function: Range<u64>) {
    let code_of = |target| {
        let entry = lookup::locate(target)?.entry;
        Some(entry.begin..entry.begin.checked_add(entry.length)?)
    };
    // SAFETY: `loop_without_parts` alone gives the function: the interpreter's evaluation loop, which stays loaded.
    python::set_loop_part(unsafe { part_of(function, code_of) });
}

/// The code that `function` jumps into the middle of most often; empty: none. `code_of` gives the piece of code around an
/// address.
///
/// # Safety
/// All of the function must be readable.
unsafe fn part_of(function: Range<u64>, code_of: impl Fn(u64) -> Option<Range<u64>>) -> Range<u64> {
    const NONE: (u64, u64, u32) = (0, 0, 0);
    let mut candidates = [NONE; CANDIDATES];
    for at in function.start..function.end.saturating_sub(5) {
        // SAFETY: from `at` to the end of the function, all of which is readable: the contract of `part_of`.
        let Some(target) = (unsafe { jump_target(at, function.end) }) else { continue };
        if function.contains(&target) {
            continue;
        }
        let known = candidates.iter_mut().find(|(start, end, _)| (*start..*end).contains(&target));
        if let Some((start, _, jumps)) = known {
            *jumps += u32::from(*start != target);
            continue;
        }
        let Some(code) = code_of(target).filter(|code| code.start != target && !function.contains(&code.start)) else {
            continue;
        };
        if let Some(free) = candidates.iter_mut().find(|(.., jumps)| *jumps == 0) {
            *free = (code.start, code.end, 1);
        }
    }
    let best = candidates.into_iter().max_by_key(|(.., jumps)| *jumps).filter(|(.., jumps)| *jumps >= JUMPS);
    best.map_or(0..0, |(start, end, _)| start..end)
}

/// Where the bytes at `at` jump to, if they are a direct jump of x86-64 with 32 bits of distance.
///
/// # Safety
/// `at` to `end` must be readable.
unsafe fn jump_target(at: u64, end: u64) -> Option<u64> {
    // SAFETY: `at` to `end` is readable: the contract of `jump_target`. Nothing is read from `end` on.
    let byte = |at: u64| (at < end).then(|| unsafe { (at as *const u8).read_volatile() });
    let operand = match byte(at)? {
        0xe9 => at + 1,
        0x0f if (0x80..0x90).contains(&byte(at + 1)?) => at + 2,
        _ => return None,
    };
    byte(operand + 3)?;
    // SAFETY: the byte at `operand + 3` is below `end`, so all four bytes are readable.
    let distance = unsafe { (operand as *const i32).read_unaligned() };
    Some((operand + 4).wrapping_add_signed(i64::from(distance)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes `code` a function of nothing but jumps to these addresses: `jmp` and `jne` in turn. The addresses are near
    /// this memory, so it is not allocated anew, which may be in another heap, more than 2 GiB away.
    fn write_jumps(code: &mut Vec<u8>, targets: &[u64]) {
        code.clear();
        let base = code.as_ptr() as u64;
        for (number, target) in targets.iter().enumerate() {
            let opcode: &[u8] = if number % 2 == 0 { &[0xe9] } else { &[0x0f, 0x85] };
            code.extend_from_slice(opcode);
            let next = base + code.len() as u64 + 4;
            code.extend_from_slice(&(target.wrapping_sub(next) as u32).to_le_bytes());
        }
        code.extend_from_slice(&[0x90; 8]);
        assert_eq!(code.as_ptr() as u64, base);
    }

    #[test]
    fn the_part_is_what_is_jumped_into() {
        let mut code = Vec::with_capacity(64);
        let near = code.as_ptr() as u64 & !0xf_ffff;
        let (apart, other) = (near + 0x40_0000..near + 0x41_0000, near + 0x50_0000..near + 0x50_1000);
        let code_of = |target| [&apart, &other].into_iter().find(|code| code.contains(&target)).cloned();
        let mut part = |targets: &[u64]| {
            write_jumps(&mut code, targets);
            let start = code.as_ptr() as u64;
            // SAFETY: all of the code.
            unsafe { part_of(start..start + code.len() as u64, code_of) }
        };
        let (a, b) = (apart.start + 0x100, apart.start + 0xff00);
        assert_eq!(part(&[other.start, a, other.start, b]), apart);
        assert_eq!(part(&[b, other.start + 1, a, a]), apart);
        assert_eq!(part(&[a]), 0..0, "one jump may be none: bytes of something else");
        assert_eq!(part(&[other.start; 6]), 0..0, "other functions are called at their start");
        assert_eq!(part(&[near + 0x60_0000, near + 0x60_0000]), 0..0, "no code is known there");
        assert_eq!(part(&[]), 0..0);
    }
}
