//! Backtrace without any state: for a signal handler that allocates in the middle of a capture.

use super::general;
use super::lookup::is_registered;
use super::rule::{Rule, RuleKind};
use super::rule_cache::rule_of;
use super::stack::{OwnStack, Readable};
use super::step::{FrameState, SAYS_SIZE, StepResult, heuristic, heuristic_rule, kind_of_heuristic};
use super::step::{rule_behind_frame_pointer, step};
use super::{Caller, Captured, REGISTERED, SLOW, TRUNCATED};
use tracehound_shared::call_tree::{CallTree, NodeId};
use tracehound_shared::code;

/// Frames taken in one pass.
const WINDOW: usize = 64;
/// Passes over one stack at most: deeper stacks lose their outer frames and are flagged as truncated.
const MAX_PASSES: usize = 256;

/// Nodes are made from the outermost frame inwards, and frames are found from the innermost outwards: each pass takes the
/// [`WINDOW`] outermost frames that have no node yet.
///
/// # Safety
/// As for [`super::capture_nested`].
pub unsafe fn capture(tree: &CallTree, caller: Caller) -> Captured {
    let mut window = [0u64; WINDOW];
    let mut how = How::ByRules;
    // SAFETY: the caller keeps the contract of `capture_nested`, which covers this call.
    let mut found = unsafe { take(how, caller, usize::MAX, &mut window) };
    if found.is_none() {
        how = How::Generally;
        // SAFETY: the caller keeps the contract of `capture_nested`, which covers this call.
        found = unsafe { take(how, caller, usize::MAX, &mut window) };
    }
    let Some((depth, mut flags)) = found else { return Captured::FAILED };
    let mut left = depth;
    if left > WINDOW * MAX_PASSES {
        flags |= TRUNCATED;
        left = WINDOW * MAX_PASSES;
    }
    let mut node = NodeId::ROOT;
    while left > 0 {
        if depth > WINDOW {
            // SAFETY: the caller keeps the contract of `capture_nested`, which covers this call.
            unsafe { take(how, caller, left, &mut window) };
        }
        let first = left.saturating_sub(WINDOW);
        for index in (first..left).rev() {
            let pc = window.get(index % WINDOW).copied().unwrap_or(0);
            node = tree.intern(node, pc, code::generation_of(pc));
        }
        left = first;
    }
    Captured { node, flags }
}

#[derive(Clone, Copy)]
enum How {
    ByRules,
    Generally,
}

/// See [`super::first_answer`].
///
/// # Safety
/// As for [`super::capture_nested`].
pub unsafe fn first_answer<T>(caller: Caller, mut judge: impl FnMut(u64) -> Option<T>) -> Option<T> {
    let mut answer = None;
    let mut each = |pc| {
        answer = judge(pc);
        answer.is_none()
    };
    // SAFETY: the caller keeps the contract of `capture_nested`, which covers this call.
    unsafe {
        if pass(How::ByRules, caller, &mut each).is_none() {
            pass(How::Generally, caller, &mut each);
        }
    }
    answer
}

/// See [`super::leads_past`].
///
/// # Safety
/// As for [`super::capture_nested`].
pub unsafe fn leads_past(caller: Caller, sp: u64, mut is_sought: impl FnMut(u64) -> bool) -> bool {
    let mut own = OwnStack::of_this_thread(caller.sp);
    let mut state = FrameState::from(caller);
    let mut readable = Readable::from(&mut own, state.sp);
    while state.pc != 0 {
        if is_sought(state.pc) {
            return false;
        }
        let rule = rule_of(state.pc);
        if rule.kind() == RuleKind::Unknown {
            break;
        }
        // SAFETY: `readable` begins at or below the state's sp.
        match unsafe { step(rule, state, &mut readable, &mut own) } {
            StepResult::Out(outer) if outer.sp > state.sp => state = outer,
            _ => break,
        }
    }
    state.sp > sp
}

/// Walks up to `limit` frames and stores the PC of frame `i` in `window[i % WINDOW]`. Returns how many frames
/// there are, and their flags; `None` if this way of unwinding fails.
///
/// # Safety
/// As for [`super::capture_nested`].
unsafe fn take(how: How, caller: Caller, limit: usize, window: &mut [u64; WINDOW]) -> Option<(usize, u8)> {
    let mut depth = 0;
    let mut each = |pc: u64| {
        if let Some(slot) = window.get_mut(depth % WINDOW) {
            *slot = pc;
        }
        depth += 1;
        depth < limit
    };
    // SAFETY: the caller keeps the contract of `capture_nested`, which covers this call.
    let flags = unsafe { pass(how, caller, &mut each) }?;
    Some((depth, flags))
}

/// Passes the PCs of the frames to `take`, innermost first, until it returns false. Returns their flags; `None` if this
/// way of unwinding fails.
///
/// # Safety
/// As for [`super::capture_nested`].
unsafe fn pass(how: How, caller: Caller, take: &mut dyn FnMut(u64) -> bool) -> Option<u8> {
    let mut flags = 0;
    if let How::Generally = how {
        let each = |frame: general::GeneralFrame| {
            flags |= frame.flags;
            take(frame.pc)
        };
        // SAFETY: the caller keeps the contract of `capture_nested`, which covers this call.
        let end = unsafe { general::unwind(caller, each) }?;
        return Some(flags | end);
    }
    let mut own = OwnStack::of_this_thread(caller.sp);
    let mut state = FrameState::from(caller);
    let mut readable = Readable::from(&mut own, state.sp);
    let mut sp_is_known = true;
    while state.pc != 0 && take(state.pc) {
        let mut rule = rule_of(state.pc);
        if !sp_is_known && rule.kind() != RuleKind::Unknown {
            rule = rule_behind_frame_pointer(rule).unwrap_or(Rule::UNKNOWN);
        }
        // SAFETY: `readable` begins at or below the state's sp.
        let next = unsafe {
            if rule.kind() == RuleKind::Unknown {
                let chosen = heuristic_rule(state, &mut readable, &mut own);
                let next = heuristic(chosen.rule, state, &mut readable, &mut own);
                flags |= kind_of_heuristic(chosen.rule, state.pc, &next);
                sp_is_known = SAYS_SIZE;
                next
            } else {
                if is_registered(state.pc.wrapping_sub(1)) {
                    flags |= REGISTERED;
                }
                sp_is_known = true;
                step(rule, state, &mut readable, &mut own)
            }
        };
        match next {
            StepResult::Out(outer) => state = outer,
            StepResult::End => break,
            StepResult::General => return None,
            StepResult::Cut { .. } => {
                flags |= TRUNCATED;
                break;
            }
        }
    }
    Some(flags & !SLOW)
}
