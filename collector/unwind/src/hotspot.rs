//! Java frames: rules of the code in HotSpot's code cache.
//!
//! That code is replaced without notice by other code. So its rules are not cached: each is computed from the blob that is
//! there now, whenever a stack is walked, and whenever the words of a known stack are equal. A known stack counts only if
//! all its rules are unchanged ([`rules_hold`]): a rule is then a function of the code at its PC, which HotSpot does not
//! replace while a frame of it is on a stack.
//!
//! An interpreted frame has two words more that matter, its method and its bytecode. They are words of the stack like any
//! other; but other methods may take the place of a method that was unloaded. So a known stack counts only if each of its
//! methods is still what it was when the frame got its name ([`chain_holds`]): one that is in a frame is not unloaded.

use super::lookup::follows_call;
use super::rule::{Rule, RuleKind};
use super::rule_cache;
use super::stack::{OwnStack, Readable};
use super::step::{FrameState, StepResult, load, step};
use super::verified_chains::{ChainRecord, VerifiedChains, WalkedFrame};
use super::{FRAME_POINTERS, HEURISTIC, JAVA};
use tracehound_shared::code;
use tracehound_shared::hotspot::{self, BYTECODE_SLOT, JavaFrame, METHOD_SLOT, NamedBytecode};

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

/// Whether the frame at `state`, whose rule leads on, is an interpreted one that says which method it runs.
#[cold]
pub fn has_method(rule: Rule, state: FrameState) -> bool {
    is_interpreted(rule) && hotspot::names_methods() && state.rbp.wrapping_sub(BYTECODE_SLOT) >= state.sp
}

/// Whether `rule` is that of the interpreter's code.
#[cfg(target_arch = "x86_64")]
pub fn is_interpreted(rule: Rule) -> bool {
    rule == Rule::INTERPRETED_JAVA
}

/// Whether `rule` is that of the interpreter's code: there is none for this processor.
#[cfg(not(target_arch = "x86_64"))]
pub fn is_interpreted(_: Rule) -> bool {
    false
}

/// What an interpreted frame says of its method.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InterpretedFrame {
    /// Address of the method.
    pub method: u64,
    /// Address of its bytecode; `None` where the frame has not the one that runs now.
    pub bytecode: Option<u64>,
    /// Its name and the address that stands for its bytecode, if they could be read.
    pub named: Option<NamedBytecode>,
}

/// What `frame` says of its method. If the frames within it were not all found by exact rules (`is_proven`), the kernel is
/// asked about all that its words lead to.
///
/// # Safety
/// It must be a frame of the running thread, whose words can be read.
#[cold]
pub unsafe fn method_of(frame: &WalkedFrame, is_proven: bool) -> Option<InterpretedFrame> {
    if !frame.has_method {
        return None;
    }
    // SAFETY: both words lie in the frame, by `has_method`, and can be read: the contract of `method_of`. Where exact rules lead
    // to it, a frame of the interpreter is there, and its method is live.
    unsafe {
        let method = load(frame.rbp.wrapping_sub(METHOD_SLOT));
        let bytecode = hotspot::has_bytecode(frame.pc).then(|| load(frame.rbp.wrapping_sub(BYTECODE_SLOT)));
        Some(InterpretedFrame { method, bytecode, named: hotspot::name_of(method, bytecode, is_proven) })
    }
}

/// The address that stands for the frames outside of `frame`, which are in the heap: it returns to code that brings them back,
/// without having been called from there. `None`: they are on the stack.
pub fn frames_in_heap(frame: &WalkedFrame) -> Option<u64> {
    let is_possible = frame.rule == Rule::FRAME_POINTER && covers(frame.pc);
    let in_heap = if is_possible { hotspot::frames_in_heap(frame.pc) } else { None };
    in_heap.filter(|_| !follows_call(frame.pc))
}

/// Whether frames with these flags may be no frames: heuristics have led to them.
pub fn is_proven(flags: u8) -> bool {
    flags & (HEURISTIC | FRAME_POINTERS) == 0
}

/// Whether the rules by which the chain of `record` was found are those of the code that is there now. The words of the
/// chain need not have been compared.
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
        if !unsafe { rule_holds(chains, at) } {
            return false;
        }
        // SAFETY: its flags were read above.
        at = unsafe { chains.outer_frame(at, |_| {}) };
    }
    true
}

/// # Safety
/// As for [`rules_hold`].
#[inline(always)]
unsafe fn rule_holds(chains: &VerifiedChains, record: *mut ChainRecord) -> bool {
    // SAFETY: a record of `chains`: the contract of `rule_holds`.
    let origin = unsafe { chains.origin(record) };
    if !covers(origin.pc) {
        return true;
    }
    let rule = rule_of_code(origin.pc);
    let known = if rule == Rule::UNKNOWN { Rule::FRAME_POINTER } else { rule };
    known == origin.rule
}

/// Whether the chain of `record`, whose words have just been compared, is that of the stack as it is now: its rules are those
/// of the code that is there, and its methods are those by which its frames were named. From the innermost frame outwards: a
/// frame is there if all rules within it hold, and only then is its method.
///
/// # Safety
/// It must be a record of `chains`, and all words of its chain be equal on the running thread's stack.
#[cold]
#[inline(never)]
pub unsafe fn chain_holds(chains: &VerifiedChains, record: *mut ChainRecord) -> bool {
    let mut at = record;
    // SAFETY: a record of `chains`: the contract of `chain_holds`.
    let is_proven = is_proven(unsafe { chains.captured(at) }.flags);
    // Before any method is read: what is unloaded later has another count.
    let count = if is_proven { hotspot::unload_count() } else { None }.unwrap_or(0);
    loop {
        // SAFETY: `record` is one of `chains`, by the contract of `chain_holds`, and `outer_frame` leads to others. The words
        // are equal and all rules within hold, so the frame is there, and its method with it.
        unsafe {
            if chains.captured(at).flags & JAVA == 0 {
                return true;
            }
            if !chains.has_method(at) {
                if !rule_holds(chains, at) {
                    return false;
                }
            } else if count == 0 || chains.checked_at(at) != count {
                // The interpreter's own code does not change.
                if !method_holds(chains, at, is_proven) {
                    return false;
                }
                chains.set_checked_at(at, count);
            }
            at = chains.outer_frame(at, |_| {});
        }
    }
}

/// Whether the method of a record is what its name says.
///
/// # Safety
/// As for [`chain_holds`]; all rules within must hold.
#[inline(never)]
unsafe fn method_holds(chains: &VerifiedChains, record: *mut ChainRecord, is_proven: bool) -> bool {
    // SAFETY: a record of `chains`, whose frame is there, if exact rules have led to it: the contract of `method_holds`.
    unsafe {
        match chains.method_of(record) {
            Some(InterpretedFrame { method, bytecode, named: Some(named) }) => {
                hotspot::is_still(named, method, bytecode, is_proven)
            }
            _ => true,
        }
    }
}
