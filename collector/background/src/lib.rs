//! The recorder's own thread: the writer, and its looks at the process's memory. All signals are blocked there.

#![cfg_attr(
    loom,
    allow(dead_code, unused_imports, reason = "a model has stand-ins for what asks the kernel or the processor")
)]

mod batch;
pub mod blocks;
pub mod earlier_recordings;
pub mod file;
pub mod initial_mappings;
mod java_methods;
pub mod memory;
pub mod modules;
pub mod output;
pub mod page_looks;
mod python_lines;
pub mod seize;
pub mod writer;
pub mod zstd;
