//! Backtraces: from a caller's registers to a node of the call tree, exact and for a few nanoseconds a frame.
//!
//! ```text
//! capture ─▶ forest: seen before and still standing?  ─▶ node            (every event)
//!               │ no
//!               ▼
//!            walk: rule by rule, join what is known, plant the rest      (new stacks)
//!               │ rule not in the cache           │ rule too complicated
//!               ▼                                 ▼
//!            cfi: parse, compile                general unwinder         (new code; odd code)
//! ```
//!
//! One [`Unwinder`] belongs to one thread. Rules are shared by all of them and die with the code epoch.

mod budget;
pub mod cfi;
mod forest;
mod memory;
pub mod rule;
pub mod rule_cache;
mod stack;
mod walk;

use core::ptr::NonNull;

use crate::shared::call_tree::{CallTree, NodeId};
pub use crate::shared::code::{code_changed, init};
use forest::{Forest, Frame};
use memory::Array;
use stack::OwnStack;

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
    /// Captures of the long way that were [`TRUNCATED`]. Every single event says so in its own flags.
    pub truncated: u64,
    /// Captures of the long way that were [`GUESSED`].
    pub guessed: u64,
    /// Captures by the general unwinder.
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
    forest: Forest,
    own_stack: OwnStack,
    scratch: Array<Frame>,
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
            Some((place, Forest::new()?, Array::new(FIRST_FRAMES)?))
        };
        let Some((place, forest, scratch)) = parts() else { return core::ptr::null_mut() };
        let own_stack = OwnStack::of_this_thread(caller.sp);
        let unwinder = Unwinder { forest, own_stack, scratch, tree, engine, stats: UnwindStats::default() };
        let this = place.as_ptr();
        // SAFETY: the array has room for one unwinder.
        unsafe { this.write(unwinder) };
        this
    }

    /// Frees an unwinder and all it remembers.
    ///
    /// # Safety
    /// `this` must come from [`create`](Self::create) and must not be used afterwards.
    pub unsafe fn destroy(this: *mut Unwinder) {
        let Some(place) = NonNull::new(this) else { return };
        // SAFETY: by the contract above; the arrays are released once, then the place they are named in.
        unsafe {
            (*this).forest.release();
            (*this).scratch.release();
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
        unsafe {
            match self.forest.recall(caller.pc, caller.sp, caller.fp) {
                Some(captured) => captured,
                None => self.learn(caller),
            }
        }
    }

    #[cold]
    #[inline(never)]
    unsafe fn learn(&mut self, caller: Caller) -> Captured {
        // SAFETY: as the caller of `capture` promises.
        let captured =
            unsafe { walk::learn(&mut self.forest, &mut self.own_stack, &mut self.scratch, self.tree, caller) };
        self.stats.learned += 1;
        self.stats.truncated += u64::from(captured.flags & TRUNCATED != 0);
        self.stats.guessed += u64::from(captured.flags & GUESSED != 0);
        self.stats.slow += u64::from(captured.flags & SLOW != 0);
        captured
    }

    /// After a capture that was left by a jump out of a signal handler: makes the unwinder whole again.
    pub fn reset(&mut self) {
        self.forest.forget();
    }

    /// What has been counted so far.
    pub fn stats(&self) -> UnwindStats {
        UnwindStats {
            forgotten: self.forest.forgotten,
            records: self.forest.records() as u64,
            bytes: (self.forest.bytes() + self.scratch.bytes()) as u64,
            ..self.stats
        }
    }
}

/// A backtrace without an unwinder, for a signal handler that allocates in the middle of a capture on the same
/// thread. Slower, and keeps nothing.
///
/// # Safety
/// `caller` must be the state of a function that has not returned, on the calling thread.
pub unsafe fn capture_nested(tree: &CallTree, caller: Caller) -> Captured {
    // SAFETY: as the caller promises.
    unsafe { walk::capture_nested(tree, caller) }
}
