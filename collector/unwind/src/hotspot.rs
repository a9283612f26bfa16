//! Java frames: rules of the code in HotSpot's code cache.
//!
//! That code is replaced without notice by other code. So its rules are not cached: each is computed from the blob that is
//! there now, whenever a stack is walked, and whenever the words of a known stack are equal. A known stack counts only if
//! all its rules are unchanged ([`rules_hold`]): a rule is then a function of the code at its PC, which HotSpot does not
//! replace while a frame of it is on a stack.

use super::JAVA;
use super::lookup::follows_call;
use super::rule::{Rule, RuleKind};
use super::rule_cache;
use super::stack::{OwnStack, Readable};
use super::step::{FrameState, StepResult, step};
use super::verified_chains::{ChainRecord, VerifiedChains};
use tracehound_shared::code;
use tracehound_shared::hotspot::{self, JavaFrame};

/// Whether `pc` is a return address in HotSpot's code cache.
#[inline(always)]
pub fn covers(pc: u64) -> bool {
    hotspot::covers(pc.wrapping_sub(1))
}

/// Looks for HotSpot, when a backtrace has met code of no object at `pc`. Returns whether that code is HotSpot's.
#[cold]
pub fn is_found_for(pc: u64) -> bool {
    if let Some(range) = hotspot::prepare() {
        // Until now its code counted as code without information.
        code::announce(&range, &mut rule_cache::forget);
    }
    covers(pc)
}

/// The rule of the code in the code cache that is at `pc` now.
#[cfg(target_arch = "x86_64")]
pub fn rule_of_code(pc: u64) -> Rule {
    match hotspot::frame_at(pc) {
        Some(JavaFrame::Compiled(bytes)) => match Rule::pack(RuleKind::Sp, i64::from(bytes), 16) {
            Rule::GENERAL => Rule::UNKNOWN,
            rule => rule,
        },
        Some(JavaFrame::Interpreted) => Rule::INTERPRETED_JAVA,
        Some(JavaFrame::Entry) => Rule::FRAME_POINTER,
        Some(JavaFrame::Other) | None => Rule::UNKNOWN,
    }
}

/// The rule of the code in the code cache that is at `pc` now: there is none for this processor.
#[cfg(not(target_arch = "x86_64"))]
pub fn rule_of_code(_: u64) -> Rule {
    Rule::UNKNOWN
}

/// Whether `rule`, of the code in the code cache at `state`, leads to a caller: into code that is there, and in an object
/// behind a call. Code may have more on its stack than its blob states where it calls the garbage collector or saves
/// registers, and a signal may have come before its frame was complete.
///
/// # Safety
/// As for [`step`].
pub unsafe fn leads_on(rule: Rule, state: FrameState, readable: &mut Readable, own: &mut OwnStack) -> bool {
    // SAFETY: the caller keeps the contract of `step`, which covers this call.
    match unsafe { step(rule, state, readable, own) } {
        StepResult::Out(outer) if covers(outer.pc) => hotspot::frame_at(outer.pc).is_some(),
        // Words of a stack may be mistaken for return addresses.
        StepResult::Out(outer) => code::has_object(outer.pc.wrapping_sub(1)) && follows_call(outer.pc),
        _ => false,
    }
}

/// Whether the frame at `state` keeps a frame pointer and was aligned by one word: it is one word larger than `rule`
/// states. HotSpot does so where it replaces a compiled frame by interpreted ones.
#[cold]
pub fn is_aligned(rule: Rule, state: FrameState) -> bool {
    rule.kind() == RuleKind::Sp && state.rbp.wrapping_add(16) == state.sp.wrapping_add(rule.n() + 8)
}

/// Whether the rules by which the chain of `record` was found are those of the code that is there now.
///
/// # Safety
/// It must be a record of `chains`.
#[cold]
#[inline(never)]
pub unsafe fn rules_hold(chains: &VerifiedChains, record: *mut ChainRecord) -> bool {
    let mut at = record;
    // Frames outside of the outermost Java frame do not have the flag.
    // SAFETY: `record` is one of `chains`, by the contract of `rules_hold`, and `outer_frame` leads to others.
    while unsafe { chains.captured(at) }.flags & JAVA != 0 {
        // SAFETY: its flags were read above.
        let origin = unsafe { chains.origin(at) };
        if covers(origin.pc) {
            let rule = rule_of_code(origin.pc);
            let known = if rule == Rule::UNKNOWN { Rule::FRAME_POINTER } else { rule };
            if known != origin.rule {
                return false;
            }
        }
        // SAFETY: its flags were read above.
        at = unsafe { chains.outer_frame(at, |_| {}) };
    }
    true
}
