//! Frames of Java: rules of code in HotSpot's code cache.
//!
//! That code comes and goes without notice, and other code takes its place. So its rules are in no cache: each is made
//! anew, from the blob that is there now, whenever a stack is walked, and whenever a known stack seems to stand again. A
//! known stack counts only if all its rules are still what they were ([`rules_hold`]): a rule is then a function of the
//! code at its PC, which nobody replaces while the stack stands, as everywhere.

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

/// Looks for HotSpot, now that there is code of no object at `pc`. Whether that is its own.
#[cold]
pub fn is_found_for(pc: u64) -> bool {
    if let Some(range) = hotspot::prepare() {
        // Until now it was code without information.
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

/// Whether `rule`, that of the code cache's code at `state`, leads to a frame: to code that is there, and in an object behind a call. Code
/// may have put more on its stack than its blob says where it calls the garbage collector or saves registers, and a
/// signal may have come before its frame was there.
///
/// # Safety
/// As for [`step`].
pub unsafe fn leads_on(rule: Rule, state: FrameState, readable: &mut Readable, own: &mut OwnStack) -> bool {
    // SAFETY: as the caller promises.
    match unsafe { step(rule, state, readable, own) } {
        StepResult::Out(outer) if covers(outer.pc) => hotspot::frame_at(outer.pc).is_some(),
        // Words of a stack may look like a call, too.
        StepResult::Out(outer) => code::has_object(outer.pc.wrapping_sub(1)) && follows_call(outer.pc),
        _ => false,
    }
}

/// Whether the frame at `state` keeps a frame pointer and has aligned its stack since: it is as large as `rule` says, and
/// one word. HotSpot does so where it replaces a compiled frame by interpreted ones.
#[cold]
pub fn is_aligned(rule: Rule, state: FrameState) -> bool {
    rule.kind() == RuleKind::Sp && state.rbp.wrapping_add(16) == state.sp.wrapping_add(rule.n() + 8)
}

/// Whether the rules by which the chain of `record` was found are those of the code that is there now.
#[cold]
#[inline(never)]
pub fn rules_hold(chains: &VerifiedChains, record: *mut ChainRecord) -> bool {
    let mut at = record;
    // Outside of the outermost frame of Java the flag is not set any more.
    while chains.captured(at).flags & JAVA != 0 {
        let origin = chains.origin(at);
        if covers(origin.pc) {
            let rule = rule_of_code(origin.pc);
            let known = if rule == Rule::UNKNOWN { Rule::FRAME_POINTER } else { rule };
            if known != origin.rule {
                return false;
            }
        }
        at = chains.outer_frame(at, |_| {});
    }
    true
}
