//! The recording engine that lives inside the traced process. It exports no C symbol: `preload` is its shell.
//!
//! ```text
//! hot/          runs inside the application's malloc: never allocates, never panics, blocks only for back-pressure
//! shared/       everything that two threads can see: gate, thread contexts, chunks, call tree, loaded code
//! background/   runs on our own thread: the writer, the recording's file, modules, memory samples
//! lifecycle     start, fork, exec, stop, end: puts the three together
//! sync          the atomics that all of them use
//! ```
//! `hot` and `background` know `shared` and not each other.

#![cfg_attr(
    loom,
    allow(dead_code, unused_imports, reason = "a model has stand-ins for what asks the kernel or the processor")
)]

pub mod background;
pub mod hot;
pub mod lifecycle;
pub mod shared;
pub mod sync;
