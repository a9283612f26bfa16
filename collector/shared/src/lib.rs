//! Everything that two threads of the traced process can see, and the floor below it: system calls, private memory,
//! clock, atomics. The other crates of the recorder depend on this one; it depends on none of them.

#![cfg_attr(
    loom,
    allow(dead_code, unused_imports, reason = "a model has stand-ins for what asks the kernel or the processor")
)]

pub mod call_tree;
pub mod chunk;
pub mod clock;
pub mod code;
pub mod code_list;
pub mod elf_file;
pub mod gate;
pub mod heap;
pub mod hotspot;
pub mod libc_version;
pub mod loader;
pub mod lock;
pub mod log;
pub mod maps_text;
pub mod own;
pub mod pool;
pub mod prefetch;
pub mod python;
pub mod session;
pub mod side_file;
pub mod stack_counters;
pub mod symbols;
pub mod sync;
pub mod sys;
pub mod thread;
pub mod threads;
