//! Walk: unwinds frame by frame where no verified chain matches, and inserts the result as a chain.

use super::flags_inside;
use super::general::{self, GeneralFrame};
use super::go_switch;
use super::hotspot;
use super::lookup::{follows_call, is_registered};
use super::memory::Array;
use super::rule::{Rule, RuleKind};
use super::rule_cache::rule_of;
use super::stack::{OwnStack, Readable};
use super::stack_cache::StackCache;
use super::step::{FrameState, SAYS_SIZE, StepResult, heuristic, heuristic_rule, kind_of_heuristic, load};
use super::step::{rule_behind_frame_pointer, step};
use super::verified_chains::{self, ChainRecord, VerifiedChains, WalkedFrame, ucontext};
use super::{Caller, Captured, FRAME_POINTERS, HEURISTIC, INTERPRETED, JAVA, REGISTERED, SLOW, SWITCHES, TRUNCATED};
use crate::python::is_evaluation;
use tracehound_shared::call_tree::CallTree;
use tracehound_shared::code;
use tracehound_shared::hotspot::makes_frames;
use tracehound_shared::python;
use tracehound_shared::sys;

/// Rules that a walk uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rules {
    /// Unwind information, and frame pointers where there is none.
    UnwindInformation,
    /// Frame pointers alone.
    FramePointers,
}

/// Way in which a backtrace was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Means {
    /// It joined a verified chain.
    Chain,
    /// Rules, to its end.
    Rules,
    /// Frame pointers alone, to its end.
    FramePointers,
    /// The general unwinder.
    General,
}

/// Source of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RuleSource {
    Information,
    /// The convention of frame pointers, which the program keeps by the user's option.
    Convention,
    /// The epilogue of the code, or else the same convention.
    Heuristic,
}

impl Rules {
    #[inline(always)]
    fn of(self, pc: u64) -> (Rule, RuleSource) {
        if pc == 0 {
            return (Rule::END, RuleSource::Information);
        }
        if self == Rules::FramePointers {
            return (Rule::FRAME_POINTER, RuleSource::Convention);
        }
        let rule = rule_of(pc);
        match rule.kind() {
            RuleKind::Unknown if code::begins_process(pc) => (Rule::END, RuleSource::Information),
            RuleKind::Unknown => (Rule::FRAME_POINTER, RuleSource::Heuristic),
            _ => (rule, RuleSource::Information),
        }
    }
}

/// Result of a walk; its frames are in the scratch array.
struct WalkResult {
    frames: usize,
    /// For how many frames there must be room, as the table counts.
    room: usize,
    end: WalkEnd,
    /// Whether the frames depend on nothing but the top state and the words that their checks name.
    pure: bool,
}

enum WalkEnd {
    /// Called from the frame of this record, whose chain holds.
    Joined(*mut ChainRecord),
    /// At the end of the stack, or where it was truncated.
    Outermost,
    /// In a frame that needs the general unwinder.
    General,
}

/// Captures a new stack: unwinds, joins a verified chain, inserts the rest.
///
/// # Safety
/// As for [`Unwinder::capture`](super::Unwinder::capture).
pub unsafe fn learn(
    known: &mut StackCache,
    own: &mut OwnStack,
    scratch: &mut Array<WalkedFrame>,
    tree: &CallTree,
    caller: Caller,
    rules: Rules,
) -> (Captured, Means) {
    let loader = code::in_loader(caller.pc);
    if loader {
        super::code_changed();
    }
    known.catch_up();
    // SAFETY: the caller keeps the contract of `capture`, which covers this call.
    let mut found = unsafe { walk(&known.chains, own, scratch, caller, rules) };
    if found.pure && found.room > known.chains.room() && known.make_room(found.room, tree) {
        // Records have moved or were dropped: the record joined is stale.
        // SAFETY: the caller keeps the contract of `learn`, which covers this call.
        found = unsafe { walk(&known.chains, own, scratch, caller, rules) };
    }
    let chains = &mut known.chains;
    let (outer, means) = match found.end {
        WalkEnd::Joined(record) => (record, Means::Chain),
        WalkEnd::Outermost if rules == Rules::FramePointers => (chains.root(), Means::FramePointers),
        WalkEnd::Outermost => (chains.root(), Means::Rules),
        // SAFETY: the caller keeps the contract of `capture`, which covers this call.
        WalkEnd::General => return (unsafe { generally(scratch, found.frames, tree, caller) }, Means::General),
    };
    if !found.pure || found.room > chains.room() {
        // SAFETY: the walk has joined this record, or it is the root, and no record was made since.
        let outer = unsafe { chains.captured(outer) };
        // SAFETY: the walk has found these frames on the running thread's stack.
        return (unsafe { intern(outer, tree, scratch, found.frames) }, means);
    }
    let mut at = outer;
    let is_proven = found.room == found.frames || are_proven(scratch, found.frames);
    for index in (0..found.frames).rev() {
        // SAFETY: the walk filled this many frames; each was called from the one of `at`, which the walk has joined, or which
        // was inserted last. There is room, so that records do not move. The frames are on the stack of the running thread.
        unsafe {
            let frame = &*scratch.as_ptr().add(index);
            let method = if frame.has_method { hotspot::method_of(frame, is_proven) } else { None };
            at = chains.insert(at, frame, method, tree);
        }
    }
    // SAFETY: the record that was joined or inserted last.
    let captured = unsafe { chains.captured(at) };
    // The loader's calls must not be answered by the cache: each of them checks whether objects were loaded.
    if !loader {
        // SAFETY: the same record, of the table in `known`.
        unsafe { known.keep(at, FrameState::from(caller), own, tree) };
    }
    (captured, means)
}

/// The backtrace by the general unwinder. If it fails, the backtrace is the first `frames` frames, which the rules found.
///
/// # Safety
/// As for [`learn`].
#[cold]
unsafe fn generally(scratch: &mut Array<WalkedFrame>, frames: usize, tree: &CallTree, caller: Caller) -> Captured {
    let mut list = WalkedFrames { scratch, count: 0, methods: 0 };
    let push = |frame: GeneralFrame| {
        let GeneralFrame { pc, flags } = frame;
        list.push(WalkedFrame { pc, sp: 0, rbp: 0, rule: Rule::GENERAL, flags, has_method: false })
    };
    // SAFETY: the caller keeps the contract of `learn`, which covers this call.
    let (count, flags) = match unsafe { general::unwind(caller, push) } {
        Some(flags) => (list.count, flags),
        None => (frames, SLOW | TRUNCATED),
    };
    // SAFETY: the frames are those of a walk on the running thread's stack, or say nothing of methods.
    let captured = unsafe { intern(Captured::NOTHING, tree, scratch, count) };
    Captured { node: captured.node, flags: captured.flags | flags }
}

/// Whether exact rules alone have led to the first `frames` frames.
#[cold]
fn are_proven(scratch: &Array<WalkedFrame>, frames: usize) -> bool {
    // SAFETY: the walk filled this many frames.
    (0..frames).all(|index| hotspot::is_proven(unsafe { &*scratch.as_ptr().add(index) }.flags))
}

/// The node of frames called from `outer`'s, found without the verified-chain table.
///
/// # Safety
/// The frames must be those of a walk on the running thread's stack.
unsafe fn intern(outer: Captured, tree: &CallTree, scratch: &Array<WalkedFrame>, frames: usize) -> Captured {
    let mut captured = outer;
    for index in (0..frames).rev() {
        // SAFETY: the walk filled this many frames.
        let frame = unsafe { &*scratch.as_ptr().add(index) };
        // SAFETY: a frame of the running thread: the contract of `intern`.
        let method = if frame.has_method { unsafe { hotspot::method_of(frame, false) } } else { None };
        let named = method.and_then(|method| method.named).map(|named| named.pc);
        captured.node = match named.or_else(|| hotspot::frames_in_heap(frame)) {
            Some(pc) => tree.intern(captured.node, pc, 0),
            None => tree.intern(captured.node, frame.pc, code::generation_of(frame.pc)),
        };
        captured.flags = flags_inside(captured.flags, frame.flags);
    }
    captured
}

struct WalkedFrames<'a> {
    scratch: &'a mut Array<WalkedFrame>,
    count: usize,
    /// Those that say which method they run.
    methods: usize,
}

impl WalkedFrames<'_> {
    /// False when there is no memory for more frames.
    #[inline(always)]
    fn push(&mut self, mut frame: WalkedFrame) -> bool {
        if is_evaluation(frame.pc) {
            frame.flags |= INTERPRETED;
        } else if python::switches_stacks(frame.pc) {
            frame.flags |= SWITCHES;
        }
        if self.count == self.scratch.len() && !self.grow() {
            return false;
        }
        // SAFETY: `count` is below the length.
        unsafe { self.scratch.as_ptr().add(self.count).write(frame) };
        self.count += 1;
        self.methods += usize::from(frame.has_method);
        true
    }

    #[cold]
    fn grow(&mut self) -> bool {
        let _undisturbed = sys::SignalsBlocked::new();
        // SAFETY: no pointer into the array is held across a push.
        unsafe { self.scratch.grow(self.scratch.len() * 2) }.is_some()
    }

    /// See [`FramesInTheMaking`], for the frame outside of the one pushed last.
    #[cold]
    fn in_the_making(&self) -> FramesInTheMaking {
        let frame = |index: usize| {
            // SAFETY: the indices below `count` were written by `push`.
            unsafe { &*self.scratch.as_ptr().add(index) }
        };
        let mut making = FramesInTheMaking::default();
        if let Some(last) = (0..self.count).rev().map(frame).find(|frame| !hotspot::is_interpreted(frame.rule)) {
            making.pass(hotspot::covers(last.pc), last.rule, last.pc);
        }
        making
    }

    /// Adds flags to the frame pushed last.
    fn mark(&mut self, flags: u8) {
        if let Some(last) = self.count.checked_sub(1) {
            // SAFETY: `last` was written by `push`.
            unsafe { (*self.scratch.as_ptr().add(last)).flags |= flags };
        }
    }
}

/// Whether the next frame outwards may be one that HotSpot is making: it then replaces a compiled frame by interpreted ones,
/// which have their place and nothing in it. They are next to the code that does it.
#[derive(Default)]
struct FramesInTheMaking {
    /// Where the last frame of Java that is not interpreted is returned to, while only interpreted ones follow.
    inner: Option<u64>,
    /// What is known of that frame.
    are_made: bool,
}

impl FramesInTheMaking {
    /// Notes a frame; the next one is outside of it.
    #[inline(always)]
    fn pass(&mut self, is_java: bool, rule: Rule, pc: u64) {
        if !is_java {
            *self = FramesInTheMaking::default();
        } else if !hotspot::is_interpreted(rule) {
            *self = FramesInTheMaking { inner: Some(pc), are_made: false };
        }
    }

    #[inline(always)]
    fn are_next(&mut self) -> bool {
        if let Some(inner) = self.inner.take() {
            self.are_made = makes_frames(inner);
        }
        self.are_made
    }
}

/// # Safety
/// As for [`learn`].
unsafe fn walk(
    chains: &VerifiedChains,
    own: &mut OwnStack,
    scratch: &mut Array<WalkedFrame>,
    caller: Caller,
    rules: Rules,
) -> WalkResult {
    let mut frames = WalkedFrames { scratch, count: 0, methods: 0 };
    let mut state = FrameState::from(caller);
    let mut readable = Readable::from(own, state.sp);
    let mut pure = true;
    let mut candidate = chains.previous();
    // SAFETY: the table has just given this record, and a walk makes none.
    unsafe {
        if chains.captured(candidate).flags & JAVA != 0 && !hotspot::rules_hold(chains, candidate) {
            candidate = chains.root();
        }
    }
    // Where frame pointers do not give the size of a frame, the sp outside of it is only a lower bound.
    let mut sp_is_known = true;
    let mut is_interrupted = false;
    let mut making = FramesInTheMaking::default();
    let mut on_goroutine = false;
    // Where the thread's stack was left for a goroutine's: must be further out each time, so that the walk ends.
    let mut left_at = 0;
    let end = loop {
        // Frames further in than this state cannot match. On another stack this may skip too many: then nothing is
        // joined, and the walk continues to the end.
        // SAFETY: the candidate is the previous record, or one that it leads to; the root, at the end, has the largest sp.
        let is_at = unsafe {
            while chains.origin(candidate).sp < state.sp {
                candidate = chains.outer(candidate);
            }
            sp_is_known && is_at(chains, candidate, state) && !making.are_next()
        };
        if is_at {
            // SAFETY: the candidate is a record of `chains`, and the walk has reached the state that its chain begins with.
            unsafe {
                if verified_chains::verify_chain(candidate) {
                    if chains.captured(candidate).flags & JAVA == 0 || hotspot::chain_holds(chains, candidate) {
                        break WalkEnd::Joined(candidate);
                    }
                    // A method has taken the place of another one.
                    candidate = chains.root();
                    continue;
                }
                (candidate, state) = follow(chains, candidate, state, &mut frames);
            }
            making = frames.in_the_making();
            if !readable.range().contains(&state.sp) {
                match Readable::at(own, state.sp, readable.budget()) {
                    Some(there) => readable = there,
                    None => {
                        frames.push(WalkedFrame {
                            pc: state.pc,
                            sp: state.sp,
                            rbp: state.rbp,
                            rule: Rule::UNKNOWN,
                            flags: TRUNCATED,
                            has_method: false,
                        });
                        pure = false;
                        break WalkEnd::Outermost;
                    }
                }
            }
        }
        pure &= verified_chains::is_insertable(state.pc, state.sp);
        let (mut rule, mut ground) = rules.of(state.pc);
        if !sp_is_known && ground == RuleSource::Information {
            pure = false;
            (rule, ground) = match rule_behind_frame_pointer(rule) {
                Some(rule) => (rule, ground),
                None => (Rule::FRAME_POINTER, RuleSource::Heuristic),
            };
        }
        if on_goroutine && ground == RuleSource::Heuristic {
            ground = RuleSource::Convention;
        }
        if rule.is_go_switch() {
            // At the next event the goroutine may have another stack.
            pure = false;
            if state.sp > left_at {
                (on_goroutine, left_at) = (true, state.sp);
            } else {
                // Frame pointers have led in a circle.
                (rule, ground) = (Rule::FRAME_POINTER, RuleSource::Heuristic);
            }
        }
        let is_java = rules == Rules::UnwindInformation && hotspot::covers(state.pc);
        let mut by_rbp_alone = false;
        if is_java && ground == RuleSource::Information {
            // SAFETY: `readable` begins at or below the state's sp.
            let leads_on = unsafe { hotspot::leads_on(rule, state, &mut readable, own) };
            if !leads_on {
                by_rbp_alone = !hotspot::is_aligned(rule, state);
                (rule, ground) = (Rule::FRAME_POINTER, RuleSource::Heuristic);
                // This depends on words of the stack that no check compares.
                pure = false;
            }
        }
        if ground == RuleSource::Heuristic && sp_is_known {
            // SAFETY: `readable` begins at or below the state's sp.
            let chosen = unsafe { heuristic_rule(state, &mut readable, own) };
            rule = chosen.rule;
            pure &= chosen.pure;
        }
        let flags = match ground {
            RuleSource::Convention => FRAME_POINTERS,
            RuleSource::Information if is_registered(state.pc.wrapping_sub(1)) => REGISTERED,
            RuleSource::Information | RuleSource::Heuristic => 0,
        };
        let flags = match ground {
            // Where a signal came, the frame of compiled code may not be complete.
            RuleSource::Information if is_java && is_interrupted => flags | JAVA | HEURISTIC,
            _ if is_java => flags | JAVA,
            _ => flags,
        };
        let mut has_method = false;
        if is_java && ground == RuleSource::Information && !is_interrupted && hotspot::has_method(rule, state) {
            has_method = !making.are_next();
            // Once it is made, it has one.
            pure &= has_method;
        }
        making.pass(is_java, rule, state.pc);
        let frame = WalkedFrame { pc: state.pc, sp: state.sp, rbp: state.rbp, rule, flags, has_method };
        if !frames.push(frame) {
            frames.mark(TRUNCATED);
            pure = false;
            break WalkEnd::Outermost;
        }
        // SAFETY: `readable` begins at or below the state's sp.
        let next = unsafe {
            if ground == RuleSource::Information {
                step(rule, state, &mut readable, own)
            } else {
                heuristic(rule, state, &mut readable, own)
            }
        };
        let next = match next {
            StepResult::Cut { .. } if on_goroutine => {
                // SAFETY: `readable` begins at or below the state's sp.
                let back = unsafe { go_switch::step_back(state, left_at, &mut readable, own) };
                on_goroutine = back.is_none();
                back.unwrap_or(next)
            }
            _ => next,
        };
        if ground == RuleSource::Heuristic {
            // Java returns to such an address without having been called from there: HotSpot has replaced another frame.
            let is_in_between = is_java && !follows_call(state.pc);
            frames.mark(if by_rbp_alone || is_in_between {
                HEURISTIC
            } else {
                kind_of_heuristic(rule, state.pc, &next)
            });
        }
        match next {
            StepResult::Out(outer) => {
                // A convention may be used again from the cache only where its words are sure to be readable then: on
                // the own stack, or in the page of a frame that is known to exist.
                pure &= ground == RuleSource::Information || readable.is_own() || same_page(state.sp - 1, outer.sp - 1);
                sp_is_known = SAYS_SIZE || ground == RuleSource::Information || rules == Rules::FramePointers;
                is_interrupted = rule.kind() == RuleKind::Signal;
                state = outer;
            }
            StepResult::End => break WalkEnd::Outermost,
            StepResult::General => break WalkEnd::General,
            StepResult::Cut { lasting } => {
                frames.mark(TRUNCATED);
                pure &= lasting;
                break WalkEnd::Outermost;
            }
        }
    };
    WalkResult { frames: frames.count, room: frames.count + frames.methods, end, pure }
}

fn same_page(a: u64, b: u64) -> bool {
    a >> 12 == b >> 12
}

/// Whether `state` is the state that `record` was made for. It is never a later part of a frame, whose chain would be
/// shorter: candidates are the first records of their frames, and of one sp the first comes first.
///
/// # Safety
/// It must be a record of `chains`.
#[inline(always)]
unsafe fn is_at(chains: &VerifiedChains, record: *mut ChainRecord, state: FrameState) -> bool {
    // SAFETY: a record of `chains`: the contract of `is_at`.
    let (origin, needs_rbp) = unsafe { (chains.origin(record), chains.needs_rbp(record)) };
    origin.sp == state.sp && origin.pc == state.pc && (!needs_rbp || origin.rbp == state.rbp)
}

/// The chain of `record` begins at `state` but does not hold to its end: takes over the frames whose checks hold,
/// up to the one whose caller changed. Returns the record outside of that one, and its state.
///
/// # Safety
/// It must be a record of `chains`, and the running thread in a state reached from `state`.
unsafe fn follow(
    chains: &VerifiedChains,
    record: *mut ChainRecord,
    state: FrameState,
    frames: &mut WalkedFrames,
) -> (*mut ChainRecord, FrameState) {
    // SAFETY: a record of `chains`, and the running thread is in a state reached from `state`: the contract of `follow`.
    let failing = unsafe { verified_chains::first_failing(chains, record) };
    let mut at = record;
    let mut rbp = state.rbp;
    loop {
        let mut own_fails = false;
        // SAFETY: `record` is one of `chains`, by the contract of `follow`, and `outer_frame` leads to others.
        let (origin, outer, inherited, outer_sp, has_method) = unsafe {
            let outer = chains.outer_frame(at, |part| own_fails |= part == failing);
            let inherited = chains.captured(at).flags & !chains.captured(outer).flags;
            (*chains.origin(at), outer, inherited, chains.origin(outer).sp, chains.has_method(at))
        };
        let state = FrameState { pc: origin.pc, sp: origin.sp, rbp };
        let frame = WalkedFrame { pc: state.pc, sp: state.sp, rbp, rule: origin.rule, flags: inherited, has_method };
        if own_fails || outer == chains.root() || !frames.push(frame) {
            return (outer, state);
        }
        // The recorded rbp is the real one only if the old chain depends on it; the new chain may depend on it.
        let slot = match origin.rule.kind() {
            RuleKind::Sp | RuleKind::Frame if origin.rule.m() != 0 => origin.rule.cfa(rbp, outer_sp) - origin.rule.m(),
            RuleKind::Drap => rbp,
            RuleKind::Signal => origin.sp + ucontext::RBP,
            _ => 0,
        };
        if slot != 0 {
            // SAFETY: the slot lies in a frame that the checks before have shown to stand.
            rbp = unsafe { load(slot) };
        }
        at = outer;
    }
}
