//! Everything that two threads of the traced process can see.

pub mod call_tree;
pub mod chunk;
pub mod code;
pub mod elf_file;
pub mod gate;
pub mod heap;
pub mod lock;
pub mod log;
pub mod own;
pub mod pool;
pub mod python;
pub mod session;
pub mod side_file;
pub mod stack_counters;
pub mod symbols;
pub mod sys;
pub mod thread;
pub mod threads;
