//! Backtraces: from a caller's registers to a node of the call tree, exact and for a few nanoseconds a frame.
//!
//! ```text
//! capture ─▶ paths: seen before and still standing?  ─▶ node             (every event)
//!               │ no
//!               ▼
//!            walk: rule by rule, join the forest, plant the rest there   (new stacks)
//!               │ rule not in the cache           │ rule too complicated
//!               ▼                                 ▼
//!            cfi: parse, compile                general unwinder         (new code; odd code)
//! ```
//!
//! One [`Unwinder`] belongs to one thread. Rules are shared by all of them and die with the code epoch.

mod budget;
pub mod cfi;
mod debug_frame;
mod epilogue;
mod forest;
mod general;
mod known;
mod libunwind;
mod lookup;
mod memory;
mod nested;
mod paths;
mod registered;
pub mod rule;
mod rule_cache;
mod stack;
mod step;
mod walk;

use core::ffi::c_void;
use core::ptr::NonNull;

use crate::hot::clock;
use crate::hot::room::with_room;
use crate::shared::call_tree::{CallTree, NodeId};
use crate::shared::code;
use forest::Frame;
use known::Known;
use memory::Array;
use stack::OwnStack;
use step::State;
use walk::Rules;

pub use budget::limit as memory_limit;
pub use stack::top_of_own_stack;

/// The backtrace ends before the outermost frame.
pub const TRUNCATED: u8 = 1;
/// Some frame was found by its frame pointer alone, or by libunwind's heuristics.
pub const GUESSED: u8 = 2;
/// Taken by the general unwinder.
pub const SLOW: u8 = 4;

/// State of the caller of the hooked function, at the entry of the hook: `([rsp], rsp + 8, rbp)`.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// Return address of the hooked function.
    pub pc: u64,
    /// Stack pointer after the hooked function will have returned.
    pub sp: u64,
    /// Frame pointer register.
    pub fp: u64,
}

/// A captured backtrace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Captured {
    /// Innermost node of the backtrace.
    pub node: NodeId,
    /// [`TRUNCATED`], [`GUESSED`] and [`SLOW`].
    pub flags: u8,
}

impl Captured {
    const NOTHING: Captured = Captured { node: NodeId::ROOT, flags: 0 };
    const FAILED: Captured = Captured { node: NodeId::ROOT, flags: TRUNCATED };
}

/// How backtraces are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// Verified chains over cached rules; frame pointers where there is no unwind information.
    Cached,
    /// `libunwind.so.8`, found at run time; [`Cached`](Engine::Cached) where there is none.
    LibUnwind,
    /// Frame pointers alone.
    FramePointer,
}

/// Counters of one unwinder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnwindStats {
    /// Captures that took the long way, because their stack was new or had changed.
    pub learned: u64,
    /// Captures that were [`TRUNCATED`].
    pub truncated: u64,
    /// Captures that were [`GUESSED`].
    pub guessed: u64,
    /// Captures that were [`SLOW`].
    pub slow: u64,
    /// Times that all records were dropped because memory for them ran out.
    pub forgotten: u64,
    /// Records in use.
    pub records: u64,
    /// Bytes of memory held.
    pub bytes: u64,
}

/// The unwinder of one thread.
pub struct Unwinder {
    known: Known,
    own_stack: OwnStack,
    scratch: Array<Frame>,
    /// What libunwind fills; made when it is used first.
    addresses: Option<Array<*mut c_void>>,
    tree: &'static CallTree,
    engine: Engine,
    stats: UnwindStats,
}

const FIRST_FRAMES: usize = 256;

impl Unwinder {
    /// An unwinder for the calling thread, in memory of its own. Null when there is no memory.
    ///
    /// # Safety
    /// `caller` must be the state of a caller on the calling thread's stack.
    pub unsafe fn create(engine: Engine, tree: &'static CallTree, caller: Caller) -> *mut Unwinder {
        init();
        let parts = || {
            let place = Array::<Unwinder>::new(1)?;
            Some((place, Known::new()?, Array::new(FIRST_FRAMES)?))
        };
        let Some((place, known, scratch)) = parts() else { return core::ptr::null_mut() };
        let own_stack = OwnStack::of_this_thread(caller.sp);
        let unwinder =
            Unwinder { known, own_stack, scratch, addresses: None, tree, engine, stats: UnwindStats::default() };
        let this = place.as_ptr();
        // SAFETY: the array has room for one unwinder.
        unsafe { this.write(unwinder) };
        this
    }

    /// Hands the unwinder of a thread that has ended to the calling thread. It keeps its memory and forgets the rest.
    ///
    /// # Safety
    /// As for [`create`](Self::create); the thread that it was made for must not use it any more.
    pub unsafe fn adopt(&mut self, caller: Caller) {
        self.known.forget();
        self.own_stack = OwnStack::of_this_thread(caller.sp);
        self.stats = UnwindStats::default();
    }

    /// Frees an unwinder and all it remembers.
    ///
    /// # Safety
    /// `this` must come from [`create`](Self::create) and must not be used afterwards.
    pub unsafe fn destroy(this: *mut Unwinder) {
        let Some(place) = NonNull::new(this) else { return };
        // SAFETY: by the contract above; the arrays are released once, then the place they are named in.
        unsafe {
            (*this).known.release();
            (*this).scratch.release();
            if let Some(addresses) = &mut (*this).addresses {
                addresses.release();
            }
            Array::from_raw(place, 1).release();
        }
    }

    /// The backtrace of `caller`.
    ///
    /// # Safety
    /// `caller` must be the state of a function that has not returned, on the thread this unwinder belongs
    /// to. Must not be re-entered, see [`reset`](Self::reset) and [`capture_nested`].
    #[inline(always)]
    pub unsafe fn capture(&mut self, caller: Caller) -> Captured {
        // SAFETY: as the caller promises.
        let captured = unsafe {
            match self.known.recall(State::from(caller)) {
                Some(captured) => captured,
                None => self.learn(caller),
            }
        };
        if captured.flags != 0 {
            self.count(captured.flags);
        }
        captured
    }

    /// Fetches what [`capture`](Self::capture) will look at first.
    #[inline(always)]
    pub fn foresee(&self, caller: Caller) {
        self.known.paths.foresee(caller.pc, caller.sp);
    }

    #[cold]
    fn count(&mut self, flags: u8) {
        self.stats.truncated += u64::from(flags & TRUNCATED != 0);
        self.stats.guessed += u64::from(flags & GUESSED != 0);
        self.stats.slow += u64::from(flags & SLOW != 0);
    }

    #[cold]
    #[inline(never)]
    unsafe fn learn(&mut self, caller: Caller) -> Captured {
        // SAFETY: passed on.
        with_room(|| unsafe { self.learn_here(caller) })
    }

    unsafe fn learn_here(&mut self, caller: Caller) -> Captured {
        self.stats.learned += 1;
        // SAFETY: as the caller of `capture` promises.
        unsafe {
            match self.engine {
                Engine::Cached => self.learn_by_rules(caller),
                Engine::FramePointer => self.walk(caller, Rules::FramePointers),
                Engine::LibUnwind => match self.ask_libunwind(caller) {
                    Some((captured, _)) => captured,
                    None => self.walk(caller, Rules::UnwindInformation),
                },
            }
        }
    }

    unsafe fn walk(&mut self, caller: Caller, rules: Rules) -> Captured {
        let Unwinder { known, own_stack, scratch, tree, .. } = self;
        // SAFETY: as the caller of `capture` promises.
        unsafe { walk::learn(known, own_stack, scratch, tree, caller, rules) }
    }

    unsafe fn learn_by_rules(&mut self, caller: Caller) -> Captured {
        // SAFETY: as the caller of `capture` promises.
        unsafe {
            let captured = self.walk(caller, Rules::UnwindInformation);
            if captured.flags & TRUNCATED == 0 {
                return captured;
            }
            self.rescue(caller, captured)
        }
    }

    /// Asks libunwind for the rest of a stack that was cut, unless it has failed at the same place before.
    #[cold]
    unsafe fn rescue(&mut self, caller: Caller, cut: Captured) -> Captured {
        libunwind::want();
        let (depth, outermost) = depth_of(self.tree, cut.node);
        if !libunwind::is_ready() || libunwind::has_failed_at(outermost) {
            return cut;
        }
        // SAFETY: as the caller of `capture` promises.
        match unsafe { self.ask_libunwind(caller) } {
            Some((captured, found)) if found > depth => {
                // The chain must not answer for this state: it ends too early.
                self.known.paths.disown(caller.pc, caller.sp);
                Captured { flags: captured.flags | SLOW | GUESSED, ..captured }
            }
            _ => {
                libunwind::failed_at(outermost);
                cut
            }
        }
    }

    unsafe fn ask_libunwind(&mut self, caller: Caller) -> Option<(Captured, usize)> {
        if self.addresses.is_none() {
            self.addresses = Array::new(FIRST_FRAMES);
        }
        // SAFETY: as the caller of `capture` promises.
        unsafe { libunwind::capture(self.addresses.as_mut()?, self.tree, caller) }
    }

    /// After a capture that was left by a jump out of a signal handler: makes the unwinder whole again.
    pub fn reset(&mut self) {
        self.known.forget();
    }

    /// What has been counted so far.
    pub fn stats(&self) -> UnwindStats {
        UnwindStats {
            forgotten: self.known.forest.forgotten + self.known.paths.forgotten,
            records: self.known.forest.records() as u64,
            bytes: (self.known.bytes() + self.scratch.bytes()) as u64,
            ..self.stats
        }
    }
}

/// Finds out once what the unwinder must know of the process. Call it when the library starts, after
/// [`clock::init`]; [`Unwinder::create`] does so if it has not happened.
pub fn init() {
    code::init(clock::now_before_free());
}

/// Tells that code may have come or gone: call it after dlopen and dlclose. Cheap when nothing changed. What glibc
/// loads and unloads on its own is noticed without it, by the loader's own calls of malloc and free.
pub fn code_changed() {
    code::changed(clock::now_before_free(), &mut rule_cache::forget);
}

/// Opens libunwind, for [`Engine::LibUnwind`] and for stacks that are cut otherwise. Answers whether it is there.
/// It allocates and takes the loader's locks: call it when the library starts or from a thread of ours, never from
/// a hook.
pub fn prepare_libunwind() -> bool {
    let ready = libunwind::prepare();
    if ready {
        // Chains that end too early may be continued now.
        code::announce(&(0..u64::MAX), &mut |_| {});
    }
    ready
}

/// Whether some stack was cut so far, and [`prepare_libunwind`] may help.
pub fn wants_libunwind() -> bool {
    libunwind::is_wanted()
}

/// The program has called `__register_frame(begin)` (or `__register_frame_info`): call it after the real one.
///
/// # Safety
/// `begin` must be what the program gave.
pub unsafe fn frames_registered(begin: *const u8) {
    // SAFETY: as the caller promises.
    unsafe { registered::register(begin) };
}

/// The program calls `__deregister_frame(begin)` (or `__deregister_frame_info`): call it before the real one.
pub fn frames_deregistered(begin: *const u8) {
    registered::deregister(begin);
}

/// In a forked child, before anything else here: opens what other threads of the parent may have held.
pub fn after_fork_in_child() {
    code::after_fork_in_child();
    registered::after_fork_in_child();
}

/// A backtrace without an unwinder, for a signal handler that allocates in the middle of a capture on the same
/// thread. Slower, and keeps nothing.
///
/// # Safety
/// `caller` must be the state of a function that has not returned, on the calling thread.
pub unsafe fn capture_nested(tree: &CallTree, caller: Caller) -> Captured {
    // SAFETY: as the caller promises.
    unsafe { nested::capture(tree, caller) }
}

/// What `judge` says of the first frame, from `caller` outwards, of which it says anything. Keeps nothing.
///
/// # Safety
/// As for [`capture_nested`].
pub unsafe fn first_answer<T>(caller: Caller, judge: impl FnMut(u64) -> Option<T>) -> Option<T> {
    // SAFETY: as the caller promises.
    unsafe { nested::first_answer(caller, judge) }
}

/// Frames of a backtrace, and the outermost one's pc.
fn depth_of(tree: &CallTree, node: NodeId) -> (usize, u64) {
    let (mut depth, mut outermost) = (0, 0);
    let mut id = node.0;
    while let Some(node) = tree.get(id) {
        (depth, outermost) = (depth + 1, node.pc);
        id = node.parent;
    }
    (depth, outermost)
}
