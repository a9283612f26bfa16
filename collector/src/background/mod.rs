//! What runs on the recorder's own thread: the writer and what it looks at. All signals are blocked there.

mod batch;
pub mod blocks;
pub mod earlier_recordings;
pub mod file;
pub mod initial_mappings;
pub mod maps_text;
pub mod memory;
pub mod modules;
pub mod output;
pub mod page_looks;
mod python_lines;
pub mod seize;
pub mod writer;
pub mod zstd;
