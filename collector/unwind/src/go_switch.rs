//! Unwinding from C code that Go has called, back to the stack of the goroutine.
//!
//! Go calls C on the thread's stack, and `runtime.asmcgocall` switches to it. That function saves two words, the goroutine
//! and the depth of its stack, and switches back by them, since a stack may be moved meanwhile. A backtrace does what the
//! code after the call does:
//!
//! ```text
//! call f                             words of the thread's stack: depth, goroutine
//! mov rdi, [rsp + 8]                 goroutine; its stack ends at [goroutine + 8]
//! mov rsi, [rdi + 8] ; sub rsi, [rsp]
//! …                                  it is the thread's goroutine again
//! mov rsp, rsi ; … ; pop rbp ; ret   or without pop rbp
//! ```
//! So no symbols are needed. Functions of Go keep frame pointers. Such backtraces are not cached: a goroutine may have
//! another stack at the next event, and run on another thread.

use super::lookup::{code_at, follows_call};
use super::rule::Rule;
use super::stack::{OwnStack, Readable};
use super::step::{FrameState, StepResult, load};
use tracehound_shared::code::has_object;
use tracehound_shared::sync::atomic::{AtomicU64, Ordering};
use tracehound_shared::sys::is_readable;

/// `mov rcx, [rip + n]` and `mov rcx, n`, without `n`: offset of thread variables in a position-independent program.
const FIND_VARIABLES: [[u8; 3]; 2] = [[0x48, 0x8b, 0x0d], [0x48, 0xc7, 0xc1]];
/// `mov rdi, [rsp + 8]; mov rsi, [rdi + 8]; sub rsi, [rsp]`.
const FIND_STACK: [u8; 13] = [0x48, 0x8b, 0x7c, 0x24, 0x08, 0x48, 0x8b, 0x77, 0x08, 0x48, 0x2b, 0x34, 0x24];
/// `mov rsi, [rsp]`: where the call came from the thread's own stack.
const FIND_SAVED: [u8; 4] = [0x48, 0x8b, 0x34, 0x24];
/// `mov rsp, rsi`.
const SWITCH: [u8; 3] = [0x48, 0x89, 0xf4];
/// `mov [rsp + n], eax`, without `n`.
const RESULT: [u8; 3] = [0x89, 0x44, 0x24];
/// `pop rbp`, `ret`.
const POP_RBP: u8 = 0x5d;
const RET: u8 = 0xc3;
/// Bytes of code that are looked at.
const BYTES: usize = 56;
/// Stacks of goroutines are not larger, unless the program says so.
const LARGEST_STACK: u64 = 1 << 30;

/// The rule for a return address in the function that switches stacks, recognised by its code.
pub fn rule_at(pc: u64) -> Option<Rule> {
    if cfg!(not(target_arch = "x86_64")) {
        return None;
    }
    rule_of(&code_at::<BYTES>(pc)?)
}

fn rule_of(code: &[u8]) -> Option<Rule> {
    if let Some(end) = code.strip_prefix(&FIND_SAVED) {
        return match has_rbp(end)? {
            false => Some(Rule::GO_NO_SWITCH),
            true => Some(Rule::GO_NO_SWITCH_WITH_RBP),
        };
    }
    let first = FIND_VARIABLES.iter().find_map(|find| code.strip_prefix(find)?.get(4..)).unwrap_or(code);
    let behind = first.strip_prefix(&FIND_STACK)?;
    let at = behind.windows(SWITCH.len()).position(|some| some == SWITCH)?;
    match has_rbp(behind.get(at..)?)? {
        false => Some(Rule::GO_SWITCH),
        true => Some(Rule::GO_SWITCH_WITH_RBP),
    }
}

/// Whether the function restores rbp after the switch, before it returns; `None` if it does something else.
fn has_rbp(code: &[u8]) -> Option<bool> {
    let end = code.strip_prefix(&SWITCH)?;
    let end = match end.strip_prefix(&RESULT) {
        Some(operand) => operand.get(1..)?,
        None => end,
    };
    match *end {
        [RET, ..] => Some(false),
        [POP_RBP, RET, ..] => Some(true),
        _ => None,
    }
}

/// The goroutine's stack at the moment when the thread's stack was switched to.
struct GoroutineStack {
    /// The stack pointer before the switch.
    sp: u64,
    /// Its end.
    end: u64,
}

/// The goroutine's stack by the words at `sp`. `read` returns a word of memory, or `None` where there is none.
fn outer_stack(rule: Rule, sp: u64, mut read: impl FnMut(u64) -> Option<u64>) -> Option<GoroutineStack> {
    if rule == Rule::GO_SWITCH || rule == Rule::GO_SWITCH_WITH_RBP {
        return goroutine_stack(sp, read);
    }
    /// Bytes that the function puts on the stack before the call, aligned.
    const MOST: u64 = 32;
    let saved = read(sp)?;
    (saved & 7 == 0 && saved.wrapping_sub(sp) <= MOST).then_some(GoroutineStack { sp: saved, end: u64::MAX })
}

/// The goroutine's stack by the two words at `sp`, which name the goroutine and the depth.
fn goroutine_stack(sp: u64, mut read: impl FnMut(u64) -> Option<u64>) -> Option<GoroutineStack> {
    let (depth, goroutine) = (read(sp)?, read(sp.wrapping_add(8))?);
    // The first two words of a goroutine: where its stack begins and ends.
    let (begin, end) = (read(goroutine)?, read(goroutine.wrapping_add(8))?);
    let size = end.checked_sub(begin)?;
    let fits = size <= LARGEST_STACK && (16..=size).contains(&depth) && (end | depth | goroutine) & 7 == 0;
    fits.then_some(GoroutineStack { sp: end - depth, end })
}

/// The state of the caller on the goroutine's stack.
fn caller(
    rule: Rule,
    rbp: u64,
    stack: &GoroutineStack,
    mut read: impl FnMut(u64) -> Option<u64>,
) -> Option<FrameState> {
    let has_rbp = rule == Rule::GO_SWITCH_WITH_RBP || rule == Rule::GO_NO_SWITCH_WITH_RBP;
    let sp = stack.sp.checked_add(if has_rbp { 16 } else { 8 })?;
    if sp > stack.end {
        return None;
    }
    let rbp = if has_rbp { read(stack.sp)? } else { rbp };
    let pc = read(sp - 8)?;
    has_object(pc.wrapping_sub(1)).then_some(FrameState { pc, sp, rbp })
}

/// One step by such a rule.
///
/// # Safety
/// As for [`step`](super::step::step).
#[cold]
pub unsafe fn step(rule: Rule, state: FrameState, readable: &mut Readable, own: &mut OwnStack) -> StepResult {
    let sp = state.sp;
    if sp & 7 != 0 || !readable.holds(sp, sp.wrapping_add(16)) || !readable.reads(sp) {
        return StepResult::Cut { lasting: false };
    }
    let read = |address: u64| {
        // What is found in the stack may be no goroutine: its address may be odd, or between the two words here.
        let is_there = address & 7 == 0 && (address.wrapping_sub(sp) < 16 || is_goroutine_readable(address));
        // SAFETY: an aligned word that is readable: of this stack, or of the goroutine that runs on it.
        is_there.then(|| unsafe { load(address) })
    };
    let Some(stack) = outer_stack(rule, sp, read) else { return StepResult::Cut { lasting: false } };
    let Some(mut there) = Readable::at(own, stack.sp, readable.budget()) else {
        return StepResult::Cut { lasting: false };
    };
    let read = |address: u64| {
        let is_there = there.holds(address, address.wrapping_add(8)) && there.reads(address);
        // SAFETY: an aligned word that is readable, of the stack on which the thread's goroutine goes on.
        is_there.then(|| unsafe { load(address) })
    };
    match caller(rule, state.rbp, &stack, read) {
        Some(outer) => {
            *readable = there;
            StepResult::Out(outer)
        }
        None => StepResult::Cut { lasting: false },
    }
}

/// One step from a goroutine's stack back to the thread's, where C code has called Go: by the frame pointer, which must
/// lead further out than `left_at`, where that stack was left. Any other value could lead in circles.
///
/// # Safety
/// As for [`step`](super::step::step).
#[cold]
pub unsafe fn step_back(
    state: FrameState,
    left_at: u64,
    readable: &mut Readable,
    own: &mut OwnStack,
) -> Option<StepResult> {
    let rbp = state.rbp;
    if readable.is_own() || rbp & 7 != 0 || rbp <= left_at || !own.contains(rbp) {
        return None;
    }
    let mut there = Readable::at(own, rbp, readable.budget())?;
    if !there.holds(rbp, rbp.wrapping_add(16)) || !there.reads(rbp) {
        return None;
    }
    // SAFETY: both words are of the thread's own stack.
    let (outer_rbp, pc) = unsafe { (load(rbp), load(rbp + 8)) };
    if !has_object(pc.wrapping_sub(1)) || !follows_call(pc) {
        return None;
    }
    *readable = there;
    Some(StepResult::Out(FrameState { pc, sp: rbp + 16, rbp: outer_rbp }))
}

/// Whether a word of a goroutine can be read. Go never unmaps goroutines' memory, so each page is checked once.
fn is_goroutine_readable(address: u64) -> bool {
    /// The page that was checked last.
    static KNOWN: AtomicU64 = AtomicU64::new(1);
    let page = address & !4095;
    if KNOWN.load(Ordering::Relaxed) == page {
        return true;
    }
    let is_there = is_readable(page);
    if is_there {
        KNOWN.store(page, Ordering::Relaxed);
    }
    is_there
}

/// The same for the general unwinder, which checks each word itself: pc, sp and rbp of the caller.
pub fn caller_of(rule: Rule, sp: u64, rbp: u64, mut read: impl FnMut(u64) -> Option<u64>) -> Option<(u64, u64, u64)> {
    let stack = outer_stack(rule, sp, &mut read)?;
    caller(rule, rbp, &stack, read).map(|outer| (outer.pc, outer.sp, outer.rbp))
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// Go 1.26's.
    const CODE: [u8; 31] = [
        0x48, 0x8b, 0x7c, 0x24, 0x08, 0x48, 0x8b, 0x77, 0x08, 0x48, 0x2b, 0x34, 0x24, 0x64, 0x48, 0x89, 0x3c, 0x25,
        0xf8, 0xff, 0xff, 0xff, 0x48, 0x89, 0xf4, 0x89, 0x44, 0x24, 0x20, 0x5d, 0xc3,
    ];

    #[test]
    fn the_switch_is_known_by_its_code() {
        assert_eq!(rule_of(&CODE), Some(Rule::GO_SWITCH_WITH_RBP));
        let mut older = CODE.to_vec();
        older.remove(29);
        assert_eq!(rule_of(&older), Some(Rule::GO_SWITCH));
        let anywhere = [&[0x48, 0x8b, 0x0d, 1, 2, 3, 0], &CODE[..13], &[0x64, 0x48, 0x89, 0x39], &CODE[22..]].concat();
        assert_eq!(rule_of(&anywhere), Some(Rule::GO_SWITCH_WITH_RBP));
        let on_threads_stack = [&[0x48, 0x8b, 0x34, 0x24], &CODE[22..]].concat();
        assert_eq!(rule_of(&on_threads_stack), Some(Rule::GO_NO_SWITCH_WITH_RBP));
        for at in [0, 4, 12, 22, 29] {
            let mut other = CODE;
            other[at] ^= 1;
            assert_eq!(rule_of(&other), None, "byte {at}");
        }
        assert_eq!(rule_of(&CODE[..28]), None);
    }

    #[test]
    fn what_cannot_be_a_stack_is_none() {
        let stack = |depth, begin: u64, end| {
            let words = [depth, 0x5000];
            let of = [begin, end];
            goroutine_stack(0x1000, |address| match address {
                0x1000 | 0x1008 => Some(words[(address as usize & 15) / 8]),
                0x5000 | 0x5008 => Some(of[(address as usize & 15) / 8]),
                _ => None,
            })
            .map(|stack| stack.sp)
        };
        assert_eq!(stack(0x100, 0xc000_0000, 0xc000_2000), Some(0xc000_1f00));
        assert_eq!(stack(0x104, 0xc000_0000, 0xc000_2000), None, "not aligned");
        assert_eq!(stack(0x2008, 0xc000_0000, 0xc000_2000), None, "deeper than the stack");
        assert_eq!(stack(8, 0xc000_0000, 0xc000_2000), None, "without room for the frame");
        assert_eq!(stack(0x100, 0xc000_2000, 0xc000_0000), None, "ends before it begins");
        assert_eq!(stack(0x100, 0, 0xc000_2000), None, "too large");
    }
}
