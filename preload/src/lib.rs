//! The C ABI shell around the collector. Hooked symbols and the life of the process, nothing else.
//!
//! One source, two shapes: `libtracehound.so`, which is preloaded, and what `libtracehound.a` is made of, which is linked into
//! a program (`linked`, see `preload/linked`).
//!
//! A hook is a naked function that hands the caller's stack and frame pointers to its body; the body records the call
//! around the next definition in link order.

#[cfg(linked)]
mod allocator;
mod api;
mod arena;
mod attach;
mod bpf;
mod credentials;
mod entry;
mod environment;
mod exec;
mod frames;
mod hooks;
mod limits;
#[cfg_attr(linked, path = "linked.rs")]
mod loader;
mod maps;
mod next;
#[cfg(unwinder_inside)]
mod panics;
mod process;
mod pymem;
mod seccomp;
mod start;
#[cfg(all(target_arch = "x86_64", not(linked)))]
mod statics;
#[cfg(not(linked))]
mod thread_count;
mod unfollowed;

use tracehound_shared::heap::OwnHeap;

#[global_allocator]
static HEAP: OwnHeap = OwnHeap;
