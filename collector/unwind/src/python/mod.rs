//! Python's frames in backtraces: what the program's author wrote, between the interpreter's own frames.
//!
//! ```text
//! capture ─▶ native node, INTERPRETED? ─no─▶ done                     stacks without the evaluation loop: nothing added
//!                │ yes
//!                ▼
//!            known stacks: innermost frame, then word for word ─▶ number of the Python stack
//!                │ new                                             │
//!                ▼                                                 ▼
//!            walk, learn                              pairs: (native node, Python stack) ─▶ combined node
//!                                                                  │ new
//!                                                                  ▼
//!                                                     interleave, from the innermost frame outwards
//! ```
//! Frames of Python are words in memory as frames of machine code are. `previous` of one frame is compared before the next
//! one is looked at, so that each is proved to stand. What is remembered ends with the epoch: when a code object is
//! freed that a backtrace went through.
//!
//! A call of the evaluation loop runs a part of Python's chain, up to the frame that says so. Parts and calls are paired
//! from the inside outwards: calls that are left over belong to another greenlet or interpreter and stay as they are;
//! parts that are left over prove that something is wrong, and the stack is marked.

mod frames;
mod known;
mod pair;

use crate::{Captured, HEURISTIC, TRUNCATED};
use frames::FrameWord;
use known::KnownStacks;
use pair::{Combined, Pairs};
use tracehound_shared::call_tree::CallTree;
use tracehound_shared::python::{self, ObjectMemory, PythonInterpreter};

/// What one thread remembers of Python's stacks.
pub struct PythonStacks {
    known: KnownStacks,
    pairs: Pairs,
    interpreter: Option<PythonInterpreter>,
    epoch: u32,
}

impl PythonStacks {
    /// Nothing remembered, and no memory taken yet.
    pub const fn new() -> PythonStacks {
        PythonStacks { known: KnownStacks::new(), pairs: Pairs::new(), interpreter: None, epoch: 0 }
    }

    /// The backtrace `native`, which goes through the evaluation loop, with Python's frames in it.
    ///
    /// # Safety
    /// It must be the calling thread's as it stands.
    #[inline(never)]
    pub unsafe fn complete(&mut self, native: Captured, tree: &CallTree) -> Captured {
        let epoch = python::epoch();
        if epoch != self.epoch {
            self.forget();
            // SAFETY: passed on.
            self.interpreter = unsafe { python::interpreter() };
            self.epoch = epoch;
        }
        let Some(interpreter) = self.interpreter else {
            // SAFETY: passed on.
            self.interpreter = unsafe { python::interpreter() };
            return native;
        };
        // SAFETY: passed on.
        let top = unsafe { interpreter.top_frame() };
        if top.frame == 0 {
            // The interpreter begins or ends, or runs in a state that is not this thread's.
            return native;
        }
        // SAFETY: frames of the calling thread, which stand while it is here.
        let known = unsafe { self.known.recall(interpreter.layout, top.frame) };
        if let Some(stack) = known
            && let Some(combined) = self.pairs.find(native.node, stack, top.is_certain)
        {
            return with(native, combined);
        }
        // SAFETY: as above.
        crate::room::with_room(|| unsafe { self.learn(&interpreter, native, known, top, tree) })
    }

    #[cold]
    unsafe fn learn(
        &mut self,
        interpreter: &PythonInterpreter,
        native: Captured,
        known: Option<u32>,
        top: python::TopFrameFound,
        tree: &CallTree,
    ) -> Captured {
        let failed = Combined { node: native.node, flags: HEURISTIC };
        let stack = match known {
            Some(stack) => stack,
            // SAFETY: passed on.
            None => match unsafe { self.known.learn(interpreter, top.frame) } {
                Some(stack) => stack,
                None => {
                    if ObjectMemory::failed() {
                        interpreter.refuse();
                    }
                    return with(native, failed);
                }
            },
        };
        // SAFETY: passed on: the frames that have just been compared or read.
        let frames: &[FrameWord] = unsafe { self.known.frames(stack) };
        // SAFETY: as above.
        let combined = unsafe { self.pairs.combine(interpreter, native, frames, top.is_certain, tree) };
        match combined {
            Some(combined) => {
                // What was freed meanwhile may have been named.
                if python::epoch() == self.epoch {
                    self.pairs.keep(native.node, stack, top.is_certain, combined);
                }
                with(native, combined)
            }
            None => {
                if ObjectMemory::failed() {
                    interpreter.refuse();
                }
                with(native, failed)
            }
        }
    }

    /// Forgets everything, keeps the memory.
    pub fn forget(&mut self) {
        self.known.forget();
        self.pairs.forget();
    }

    /// Gives the memory back.
    ///
    /// # Safety
    /// Nothing may be used afterwards.
    pub unsafe fn release(&mut self) {
        // SAFETY: passed on.
        unsafe {
            self.known.release();
            self.pairs.release();
        }
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.known.bytes() + self.pairs.bytes()
    }
}

fn with(native: Captured, combined: Combined) -> Captured {
    Captured { node: combined.node, flags: native.flags | combined.flags & (HEURISTIC | TRUNCATED) }
}
