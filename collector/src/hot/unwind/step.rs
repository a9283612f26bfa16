//! One step outwards: from the state of a frame and its rule to the state of its caller.

use super::Caller;
use super::forest::ucontext;
use super::rule::{Kind, Rule};
use super::stack::{OwnStack, Readable, readable_page};

/// A frame's state: all that the fast rules depend on.
#[derive(Clone, Copy, Debug)]
pub struct State {
    pub pc: u64,
    pub sp: u64,
    pub rbp: u64,
}

impl From<Caller> for State {
    fn from(caller: Caller) -> State {
        State { pc: caller.pc, sp: caller.sp, rbp: caller.fp }
    }
}

/// Where one step leads.
pub enum Step {
    Out(State),
    /// The frame was the outermost one.
    End,
    /// The rule needs the general unwinder.
    General,
    /// What the rule leads to cannot be a frame. `lasting`: it may be taken for granted from now on, because words
    /// of the stack had no part in it.
    Cut {
        lasting: bool,
    },
}

/// # Safety
/// The word must be readable.
pub unsafe fn load(address: u64) -> u64 {
    // SAFETY: by the caller.
    unsafe { (address as *const u64).read_volatile() }
}

/// One step outwards from `state` by `rule`. Changes `readable` when the step leads to another stack.
///
/// # Safety
/// `readable` must hold what may be read from the frame on, and the frame must be one of the running thread.
#[inline(always)]
pub unsafe fn step(rule: Rule, state: State, readable: &mut Readable, own: &mut OwnStack) -> Step {
    let State { sp, rbp, .. } = state;
    let base = match rule.kind() {
        Kind::Sp => sp,
        Kind::Frame => rbp,
        // SAFETY: as the caller promises.
        _ => return unsafe { step_oddly(rule, state, readable, own) },
    };
    let cfa = base.wrapping_add(rule.n());
    if cfa & 7 != 0 || cfa < sp.wrapping_add(8) || !readable.holds(sp, cfa) {
        return Step::Cut { lasting: true };
    }
    if !readable.reads(cfa - 8) {
        return Step::Cut { lasting: false };
    }
    let saved = rule.m();
    if (saved > cfa - sp || !readable.reads(cfa - saved)) && !is_in_red_zone(cfa - saved, sp) {
        return Step::Cut { lasting: true };
    }
    // SAFETY: `sp..cfa` is readable where `reads` says so; both words lie in it or, for rbp, in the red zone.
    unsafe {
        let rbp = if saved != 0 { load(cfa - saved) } else { rbp };
        Step::Out(State { pc: load(cfa - 8), sp: cfa, rbp })
    }
}

/// Whether `slot` is one that an interrupted function has popped already: an epilogue's unwind information still names
/// it, and the red zone keeps its value.
#[cold]
fn is_in_red_zone(slot: u64, sp: u64) -> bool {
    const RED_ZONE: u64 = 128;
    slot < sp && sp - slot <= RED_ZONE && readable_page(slot & !4095)
}

/// Realigned and signal frames, and the ends.
///
/// # Safety
/// As for [`step`].
#[cold]
unsafe fn step_oddly(rule: Rule, state: State, readable: &mut Readable, own: &mut OwnStack) -> Step {
    let State { sp, rbp, .. } = state;
    match rule.kind() {
        Kind::Drap => {
            let slot = rbp.wrapping_sub(rule.n());
            if rbp & 7 != 0
                || slot < sp
                || slot > rbp
                || !readable.holds(sp, rbp.wrapping_add(8))
                || !readable.reads(slot)
            {
                return Step::Cut { lasting: false };
            }
            // SAFETY: `sp..rbp + 8` is readable and holds both words.
            let (cfa, outer_rbp) = unsafe { (load(slot), load(rbp)) };
            if cfa & 7 != 0 || cfa < sp.wrapping_add(8) || !readable.holds(sp, cfa) || !readable.reads(cfa - 8) {
                return Step::Cut { lasting: false };
            }
            // SAFETY: `sp..cfa` is readable.
            Step::Out(State { pc: unsafe { load(cfa - 8) }, sp: cfa, rbp: outer_rbp })
        }
        Kind::Signal => {
            if sp & 7 != 0 || !readable.holds(sp, sp.wrapping_add(ucontext::BYTES)) || !readable.reads(sp) {
                return Step::Cut { lasting: false };
            }
            // SAFETY: the ucontext is readable.
            let (pc, outer_sp, rbp) =
                unsafe { (load(sp + ucontext::RIP), load(sp + ucontext::RSP), load(sp + ucontext::RBP)) };
            let Some(there) = Readable::at(own, outer_sp, readable.budget()) else {
                return Step::Cut { lasting: false };
            };
            *readable = there;
            // Plus one, so that a look-up at pc - 1 finds the interrupted instruction.
            Step::Out(State { pc: pc.wrapping_add(1), sp: outer_sp, rbp })
        }
        Kind::End => Step::End,
        Kind::General => Step::General,
        _ => Step::Cut { lasting: false },
    }
}

/// The step of code without unwind information, as if it kept frame pointers.
///
/// # Safety
/// As for [`step`].
pub unsafe fn guess(state: State, readable: &mut Readable) -> Step {
    let State { sp, rbp, .. } = state;
    if rbp == 0 {
        return Step::End;
    }
    if rbp & 7 != 0 || rbp < sp || !readable.holds(sp, rbp.wrapping_add(16)) || !readable.reads(rbp) {
        return Step::Cut { lasting: true };
    }
    // SAFETY: `sp..rbp + 16` is readable.
    let (pc, outer_rbp) = unsafe { (load(rbp + 8), load(rbp)) };
    if !(4096..1 << 47).contains(&pc) {
        return Step::Cut { lasting: false };
    }
    Step::Out(State { pc, sp: rbp + 16, rbp: outer_rbp })
}
