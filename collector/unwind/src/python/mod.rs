//! Python frames in backtraces: the functions of the Python program, between the native frames of the interpreter.
//!
//! ```text
//! capture ─▶ native node, INTERPRETED? ─no─▶ done                     stacks without the evaluation loop: nothing added
//!                │ yes
//!                ▼
//!            recent: what was met last at this innermost frame, frame by frame ─▶ combined node      (nearly every event)
//!                │ other words
//!                ▼
//!            known stacks: a tree of frames ─▶ number of the Python stack ─▶ pairs: (native node, Python stack) ─▶ combined node
//!                                                                            │ new
//!                                                                            ▼
//!                                                             interleave, from the innermost frame outwards
//! ```
//! Frames of Python are words in memory as frames of machine code are: code object and instruction are compared, from
//! the innermost frame outwards, as the frames lead to each other. The caches end with the epoch: when a code object is
//! freed that a backtrace went through.
//!
//! A call of the evaluation loop runs a part of Python's chain, up to the frame that says so. Parts and calls are paired
//! from the inside outwards: calls that are left over belong to another greenlet or interpreter and stay as they are;
//! parts that are left over prove that something is wrong, and the stack is marked.

mod frames;
mod known;
mod last_combined;
mod loop_parts;
mod pair;
mod recent;

use crate::{Captured, HEURISTIC, TRUNCATED};
use known::KnownStacks;
pub use loop_parts::is_evaluation;
use pair::{Combined, Pairs};
use recent::RecentStacks;
use tracehound_shared::call_tree::CallTree;
use tracehound_shared::python::{self, ObjectMemory, PythonInterpreter};
use tracehound_shared::sync::atomic::{Ordering, compiler_fence};

/// What one thread remembers of Python's stacks.
pub struct PythonStacks {
    recent: RecentStacks,
    known: KnownStacks,
    pairs: Pairs,
    /// [`KnownStacks::forgotten`] of what `recent` and `pairs` name.
    forgotten: u32,
    interpreter: Option<PythonInterpreter>,
    epoch: u32,
}

impl PythonStacks {
    /// Nothing remembered, and no memory taken yet.
    pub const fn new() -> PythonStacks {
        PythonStacks {
            recent: RecentStacks::new(),
            known: KnownStacks::new(),
            pairs: Pairs::new(),
            forgotten: 0,
            interpreter: None,
            epoch: 0,
        }
    }

    /// The backtrace `native`, which goes through the evaluation loop, with Python's frames in it.
    ///
    /// # Safety
    /// It must be the calling thread's as it is now.
    #[inline(never)]
    pub unsafe fn complete(&mut self, native: Captured, tree: &CallTree) -> Captured {
        let epoch = python::epoch();
        if epoch != self.epoch {
            self.forget();
            // SAFETY: the backtrace goes through the evaluation loop, so the calling thread is inside a call of it: the
            // contract of `complete`.
            self.interpreter = unsafe { python::interpreter() };
            self.epoch = epoch;
        }
        let Some(interpreter) = self.interpreter else {
            // SAFETY: the calling thread is inside a call of the evaluation loop: the contract of `complete`.
            self.interpreter = unsafe { python::interpreter() };
            return native;
        };
        // SAFETY: the calling thread is inside a call of the evaluation loop: the contract of `complete`.
        let top = unsafe { interpreter.top_frame() };
        if top.frame == 0 {
            // The interpreter begins or ends, or runs in a state that is not this thread's.
            return native;
        }
        // SAFETY: frames of the calling thread, which exist while it is here.
        if let Some(combined) = unsafe { self.recent.find(&self.known, interpreter.layout, native.node, top) } {
            return with(native, combined);
        }
        // SAFETY: `top` is the innermost frame of the calling thread; its frames exist while the thread is here.
        crate::room::with_room(|| unsafe { self.learn(&interpreter, native, top, tree) })
    }

    #[inline(never)]
    unsafe fn learn(
        &mut self,
        interpreter: &PythonInterpreter,
        native: Captured,
        top: python::TopFrameFound,
        tree: &CallTree,
    ) -> Captured {
        let failed = Combined { node: native.node, flags: HEURISTIC };
        // SAFETY: the only caller is `complete`, which passes the innermost frame of the calling thread.
        let stack = unsafe { self.known.learn(interpreter, top.frame) };
        if self.known.forgotten != self.forgotten {
            // Numbers of stacks begin anew: what has them names others.
            self.recent.forget();
            self.pairs.forget();
            self.forgotten = self.known.forgotten;
        }
        let Some(stack) = stack else {
            if ObjectMemory::failed() {
                interpreter.refuse();
            }
            return with(native, failed);
        };
        let known = self.pairs.find(native.node, stack, top.is_certain);
        let combined = known.or_else(|| {
            // SAFETY: the frames have just been read, and exist while the calling thread is here.
            unsafe { self.pairs.combine(interpreter, native, &mut self.known, top.is_certain, tree) }
        });
        let Some(combined) = combined else {
            if ObjectMemory::failed() {
                interpreter.refuse();
            }
            return with(native, failed);
        };
        // What was freed meanwhile may have been named.
        if python::epoch() == self.epoch {
            if known.is_none() {
                self.pairs.keep(native.node, stack, top.is_certain, combined);
            }
            // SAFETY: `top` is the innermost frame of the calling thread, and `stack` has just been learnt.
            unsafe { self.recent.keep(interpreter.layout, native, top, stack, combined) };
        }
        with(native, combined)
    }

    /// Forgets everything, keeps the memory.
    pub fn forget(&mut self) {
        self.recent.forget();
        self.known.forget();
        self.pairs.forget();
        self.forgotten = self.known.forgotten;
    }

    /// After a jump out of a signal handler has left [`complete`](Self::complete) unfinished: forgets everything, and what
    /// is known of the interpreter, whose fields may have been in the middle of being stored.
    pub fn reset(&mut self) {
        self.epoch = 0;
        compiler_fence(Ordering::SeqCst);
        self.interpreter = None;
        python::after_jump();
        self.forget();
    }

    /// Gives the memory back.
    ///
    /// # Safety
    /// Nothing may be used afterwards.
    pub unsafe fn release(&mut self) {
        // SAFETY: the caller uses nothing afterwards: the contract of `release`.
        unsafe {
            self.recent.release();
            self.known.release();
            self.pairs.release();
        }
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.recent.bytes() + self.known.bytes() + self.pairs.bytes()
    }
}

fn with(native: Captured, combined: Combined) -> Captured {
    Captured { node: combined.node, flags: native.flags | combined.flags & (HEURISTIC | TRUNCATED) }
}
