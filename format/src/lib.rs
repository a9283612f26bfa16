//! Formats that cross a process boundary: the recording (`memory-*.dat`), its side file (`.live`) and the launch
//! options; and the tables that both sides share: the allocators that can be inside a program.
//!
//! This crate does no I/O and has no unsafe code.
//! docs/FORMAT.md is the specification; every example in it is decoded by a test here.
//!
//! ```text
//! recording = FileHeader block*
//! block     = BlockHeader payload             (kinds: meta, nodes, events, end)
//! .live     = LiveHeader chunk* node-slots    (fixed layout, shared memory of the traced process)
//! ```
#![forbid(unsafe_code)]

pub mod allocators;
pub mod attach;
pub mod block;
pub mod block_sequence;
pub mod columns;
pub mod control;
pub mod header;
pub mod linked;
pub mod live;
pub mod look;
pub mod meta;
mod meta_codec;
pub mod nodes;
pub mod options;
pub mod record;
pub mod varint;
mod wire;

/// What can be wrong with bytes that claim to be part of a recording.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The bytes end before the structure does.
    #[error("{what} is cut off: {needed} bytes are needed, {have} are there")]
    Truncated {
        /// The structure being read.
        what: &'static str,
        /// Bytes that the structure needs.
        needed: usize,
        /// Bytes that are there.
        have: usize,
    },
    /// The file does not start with the recording's magic number.
    #[error("this is not a Tracehound recording (wrong magic number)")]
    NotARecording,
    /// Written by a newer, incompatible version.
    #[error("format version {found} is newer than this program understands ({supported})")]
    Version {
        /// Major version found in the file.
        found: u16,
        /// Highest major version that this build reads.
        supported: u16,
    },
    /// A checksum does not match its bytes.
    #[error("{what} is damaged: its checksum does not match")]
    Checksum {
        /// The structure whose checksum failed.
        what: &'static str,
    },
    /// A field holds a value that no writer produces.
    #[error("{what} is malformed: {why}")]
    Malformed {
        /// The structure being read.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
}

impl FormatError {
    pub(crate) fn malformed(what: &'static str, why: impl Into<String>) -> Self {
        Self::Malformed { what, why: why.into() }
    }
}

/// Shorthand for results of this crate.
pub type Result<T> = core::result::Result<T, FormatError>;
