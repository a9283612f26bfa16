//! `libtracehound.so`: the C ABI shell around the collector. Hooked symbols and the life of the process, nothing else.
//!
//! A hook is a naked function that hands the caller's stack and frame pointers to its body; the body records the call
//! around the next definition in link order.

mod api;
mod arena;
mod attach;
mod bpf;
mod entry;
mod environment;
mod exec;
mod frames;
mod hooks;
mod loader;
mod maps;
mod next;
mod process;
mod pymem;
mod seccomp;
mod start;
#[cfg(target_arch = "x86_64")]
mod statics;

use tracehound_shared::heap::OwnHeap;

#[global_allocator]
static HEAP: OwnHeap = OwnHeap;
