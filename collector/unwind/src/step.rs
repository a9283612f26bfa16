//! One step outwards: from the state of a frame and its rule to the state of its caller.

#[cfg(target_arch = "aarch64")]
use super::aarch64 as epilogue;
use super::address::{is_in_user_space, strip};
#[cfg(target_arch = "x86_64")]
use super::epilogue;
use super::go_switch;
use super::hotspot;
use super::lookup::{begins_frames, follows_call};
use super::rule::{Rule, RuleKind};
use super::stack::{OwnStack, Readable};
use super::verified_chains::ucontext;
use super::{Caller, FRAME_POINTERS, HEURISTIC};
use tracehound_shared::code;
use tracehound_shared::sys::is_readable;

/// A frame's state: all that the fast rules depend on. On aarch64 `rbp` is x29.
#[derive(Clone, Copy, Debug)]
pub struct FrameState {
    pub pc: u64,
    pub sp: u64,
    pub rbp: u64,
}

impl From<Caller> for FrameState {
    fn from(caller: Caller) -> FrameState {
        FrameState { pc: caller.pc, sp: caller.sp, rbp: caller.fp }
    }
}

/// Result of one step.
pub enum StepResult {
    Out(FrameState),
    /// The frame was the outermost one.
    End,
    /// The rule needs the general unwinder.
    General,
    /// The rule leads to no frame. `lasting`: this may be cached, because it does not depend on words
    /// of the stack.
    Cut {
        lasting: bool,
    },
}

/// # Safety
/// The word must be readable.
pub unsafe fn load(address: u64) -> u64 {
    // SAFETY: the word is readable: the contract of `load`.
    unsafe { (address as *const u64).read_volatile() }
}

/// One step outwards from `state` by `rule`. Changes `readable` when the step leads to another stack.
///
/// # Safety
/// `readable` must hold what may be read from the frame on, and the frame must be one of the running thread.
#[inline(always)]
pub unsafe fn step(rule: Rule, state: FrameState, readable: &mut Readable, own: &mut OwnStack) -> StepResult {
    let FrameState { sp, rbp, .. } = state;
    let base = match rule.kind() {
        RuleKind::Sp => sp,
        RuleKind::Frame => rbp,
        // SAFETY: `readable` holds what may be read from the frame on, and the frame is one of the running thread:
        // the contract of `step`.
        _ => return unsafe { step_special(rule, state, readable, own) },
    };
    let cfa = base.wrapping_add(rule.n());
    if cfa & 7 != 0 || cfa < sp.wrapping_add(rule.r()) || !readable.holds(sp, cfa) {
        return StepResult::Cut { lasting: true };
    }
    if !readable.reads(rule.return_slot(cfa)) {
        return StepResult::Cut { lasting: false };
    }
    let saved = rule.m();
    if (saved > cfa - sp || !readable.reads(cfa - saved)) && !is_in_red_zone(cfa - saved, sp) {
        return StepResult::Cut { lasting: true };
    }
    // SAFETY: both words lie in `sp..cfa`, where `reads` has checked them, or, for rbp, in the red zone.
    unsafe {
        let rbp = if saved != 0 { load(cfa - saved) } else { rbp };
        StepResult::Out(FrameState { pc: strip(load(rule.return_slot(cfa))), sp: cfa, rbp })
    }
}

/// Whether `slot` has been popped by an interrupted function already: an epilogue's unwind information still names it, and
/// the red zone keeps its value.
#[cold]
fn is_in_red_zone(slot: u64, sp: u64) -> bool {
    const RED_ZONE: u64 = if cfg!(target_arch = "x86_64") { 128 } else { 0 };
    slot < sp && sp - slot <= RED_ZONE && is_readable(slot & !4095)
}

/// Realigned and signal frames, and the ends.
///
/// # Safety
/// As for [`step`].
#[cold]
unsafe fn step_special(rule: Rule, state: FrameState, readable: &mut Readable, own: &mut OwnStack) -> StepResult {
    let FrameState { sp, rbp, .. } = state;
    match rule.kind() {
        RuleKind::Drap => {
            let slot = rbp.wrapping_sub(rule.n());
            if rbp & 7 != 0
                || slot < sp
                || slot > rbp
                || !readable.holds(sp, rbp.wrapping_add(8))
                || !readable.reads(slot)
            {
                return StepResult::Cut { lasting: false };
            }
            // SAFETY: `sp..rbp + 8` is readable and holds both words.
            let (cfa, outer_rbp) = unsafe { (load(slot), load(rbp)) };
            let return_slot = rule.drap_return_slot(rbp, cfa);
            // The interpreter may overwrite its last argument in the caller's stack with the return address.
            let end = cfa.max(return_slot.wrapping_add(8));
            if cfa & 7 != 0
                || cfa < sp.wrapping_add(8)
                || cfa < return_slot
                || !readable.holds(sp, end)
                || !readable.reads(return_slot)
            {
                return StepResult::Cut { lasting: false };
            }
            // SAFETY: `sp..end` is readable and holds the slot, which is above `rbp` or just below `cfa`.
            StepResult::Out(FrameState { pc: unsafe { load(return_slot) }, sp: cfa, rbp: outer_rbp })
        }
        RuleKind::Signal => {
            if sp & 7 != 0 || !readable.holds(sp, sp.wrapping_add(ucontext::BYTES)) || !readable.reads(sp) {
                return StepResult::Cut { lasting: false };
            }
            // SAFETY: the ucontext is readable.
            let (pc, outer_sp, rbp) =
                unsafe { (load(sp + ucontext::RIP), load(sp + ucontext::RSP), load(sp + ucontext::RBP)) };
            let Some(there) = Readable::at(own, outer_sp, readable.budget()) else {
                return StepResult::Cut { lasting: false };
            };
            *readable = there;
            // Plus one, so that a look-up at pc - 1 finds the interrupted instruction.
            StepResult::Out(FrameState { pc: pc.wrapping_add(1), sp: outer_sp, rbp })
        }
        RuleKind::End => StepResult::End,
        // SAFETY: the caller keeps the contract of `step`, which covers this call.
        RuleKind::General if rule.is_go_switch() => unsafe { go_switch::step(rule, state, readable, own) },
        RuleKind::General => StepResult::General,
        _ => StepResult::Cut { lasting: false },
    }
}

/// The rule of a frame with unwind information, whose stack pointer is not known because its callee was left by its
/// frame pointer: a function that saves x29 and x30 makes x29 point there. `None` if this one does not.
#[cold]
pub fn rule_behind_frame_pointer(rule: Rule) -> Option<Rule> {
    let rule = rule.from_frame_record();
    (rule.kind() != RuleKind::Sp).then_some(rule)
}

/// Whether a frame pointer gives the size of its frame, and thus the caller's sp: not where functions keep it anywhere in
/// their frames.
pub const SAYS_SIZE: bool = cfg!(target_arch = "x86_64");

/// Heuristic rule for code without unwind information.
pub struct HeuristicRule {
    /// The rule of its epilogue, or else the convention of frame pointers.
    pub rule: Rule,
    /// Whether this choice depends on no word of the stack but those that the rule reads.
    pub pure: bool,
}

/// The heuristic rule for code without unwind information.
///
/// # Safety
/// As for [`step`].
#[cold]
pub unsafe fn heuristic_rule(state: FrameState, readable: &mut Readable, own: &mut OwnStack) -> HeuristicRule {
    // Where HotSpot has no rule for its own code, the instructions there give none either.
    let by_epilogue = if hotspot::covers(state.pc) { None } else { epilogue::rule_at(state.pc) };
    let Some(rule) = by_epilogue else {
        return HeuristicRule { rule: Rule::FRAME_POINTER, pure: true };
    };
    // SAFETY: the caller keeps the contract of `step`, which covers this call.
    match unsafe { step(rule, state, readable, own) } {
        StepResult::Out(outer) if follows_call(outer.pc) => HeuristicRule { rule, pure: true },
        _ => HeuristicRule { rule: Rule::FRAME_POINTER, pure: false },
    }
}

/// The flag of a step from `pc` to `next` without unwind information.
#[cold]
pub fn kind_of_heuristic(rule: Rule, pc: u64, next: &StepResult) -> u8 {
    let outer = match next {
        StepResult::Out(outer) => Some(outer.pc),
        StepResult::End => None,
        StepResult::General | StepResult::Cut { .. } => return HEURISTIC,
    };
    if rule == Rule::FRAME_POINTER && keeps_frame_pointers(pc, outer) { FRAME_POINTERS } else { HEURISTIC }
}

/// Whether the code at `pc`, which has no unwind information, keeps frame pointers by convention, if its own has led to
/// `outer`, or to the end of the stack. Code of no object is a JIT compiler's, which keeps them; such compilers also put
/// code into objects, where its functions begin as such functions do. Its caller must be other such code, or a call must
/// precede `outer`.
#[cold]
pub fn keeps_frame_pointers(pc: u64, outer: Option<u64>) -> bool {
    let is_outside = |pc: u64| !code::has_object(pc.wrapping_sub(1));
    outer.is_none_or(|outer| is_outside(outer) || follows_call(outer)) && (is_outside(pc) || begins_frames(pc))
}

/// One step by a [heuristic rule](heuristic_rule).
///
/// # Safety
/// As for [`step`].
pub unsafe fn heuristic(rule: Rule, state: FrameState, readable: &mut Readable, own: &mut OwnStack) -> StepResult {
    // SAFETY: the caller keeps the contract of `step`, which covers this call.
    unsafe {
        if rule == Rule::FRAME_POINTER { heuristic_by_rbp(state, readable) } else { step(rule, state, readable, own) }
    }
}

/// The step of code without unwind information, as if it kept frame pointers.
///
/// # Safety
/// As for [`step`].
unsafe fn heuristic_by_rbp(state: FrameState, readable: &mut Readable) -> StepResult {
    let FrameState { sp, rbp, .. } = state;
    if rbp == 0 {
        return StepResult::End;
    }
    if rbp & 7 != 0 || rbp < sp || !readable.holds(sp, rbp.wrapping_add(16)) || !readable.reads(rbp) {
        return StepResult::Cut { lasting: true };
    }
    // SAFETY: `sp..rbp + 16` is readable.
    let (pc, outer_rbp) = unsafe { (strip(load(rbp + 8)), load(rbp)) };
    if !is_in_user_space(pc) {
        return StepResult::Cut { lasting: false };
    }
    StepResult::Out(FrameState { pc, sp: rbp + 16, rbp: outer_rbp })
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};

    /// A page that cannot be read below one that can: what a stack that has overflowed looks like.
    fn overflowed() -> u64 {
        // SAFETY: a fresh mapping, whose first page nobody uses.
        unsafe {
            let pages =
                mmap_anonymous(core::ptr::null_mut(), 8192, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
                    .unwrap();
            mprotect(pages, 4096, MprotectFlags::empty()).unwrap();
            pages as u64 + 4096
        }
    }

    fn is_cut(rule: Rule, sp: u64) -> bool {
        let mut own = OwnStack::none();
        let mut readable = Readable::at(&mut own, sp, 16).unwrap();
        // SAFETY: `readable` holds what may be read; no frame of a function is needed for that.
        let result = unsafe { step(rule, FrameState { pc: 0x1000, sp, rbp: 0 }, &mut readable, &mut own) };
        matches!(result, StepResult::Cut { .. })
    }

    #[test]
    fn a_step_reads_nothing_below_a_stack_that_has_overflowed() {
        let stack = overflowed();
        assert!(is_cut(Rule::pack(RuleKind::Sp, 32, 0), stack - 64), "the return address lies below");
        assert!(is_cut(Rule::pack(RuleKind::Sp, 32, 0), stack - 32), "it alone lies below");
        assert!(is_cut(Rule::pack(RuleKind::Sp, 64, 56), stack - 32), "the saved rbp does");
        assert!(!is_cut(Rule::pack(RuleKind::Sp, 64, 16), stack - 32), "both lie within the stack");
    }

    #[test]
    fn a_step_never_leads_inwards() {
        let stack = overflowed() + 1024;
        assert!(is_cut(Rule::pack(RuleKind::Sp, 0, 0), stack));
        assert!(!is_cut(Rule::pack(RuleKind::Sp, 8, 0), stack));
        assert!(is_cut(Rule::pack(RuleKind::Sp, 16, 160), stack), "rbp is saved further in than the frame");
    }
}
