//! Recordings of other tools, written again as ours, so that everything here works on them.

pub mod heaptrack;
mod writer;

use std::io;

use tracehound_format::meta::EndReason;

/// Why an import failed.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file is no recording of that tool, or one that cannot be read.
    #[error("{0}")]
    Format(String),
    /// A line that makes no sense.
    #[error("line {line}: {why}")]
    Line {
        /// From 1.
        line: u64,
        /// What is wrong.
        why: &'static str,
    },
    /// It cannot be read, or the output refuses.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What was imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Imported {
    /// Blocks allocated.
    pub allocs: u64,
    /// Blocks freed.
    pub frees: u64,
    /// Frees of blocks that were never allocated.
    pub unmatched: u64,
    /// Lines of kinds that mean nothing to us.
    pub skipped: u64,
    /// Bytes of the recording that was written.
    pub bytes: u64,
    /// How the program ended; `None`: the file is cut.
    pub end: Option<EndReason>,
}
