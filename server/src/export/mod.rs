//! Other formats: what heaptrace knows, for other tools and for people without heaptrace.
//!
//! Every exporter writes as it goes; none holds a recording's events in memory.

pub mod dump;
pub mod folded;
pub mod heaptrack;
pub mod json;
pub mod pprof;
pub mod samples;
pub mod speedscope;
pub mod svg;

use std::io;

use tracehound_server::query::{Filter, QueryError, Window};
use tracehound_server::trace::symbols::Symbols;
use tracehound_server::trace::{Cancel, Cancelled, Trace};

/// What an exporter works on.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// The recording.
    pub trace: &'a Trace,
    /// Its names.
    pub symbols: &'a dyn Symbols,
    /// Stops from outside.
    pub cancel: &'a Cancel,
}

/// Which part of a recording is exported.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// When.
    pub window: Window,
    /// What.
    pub filter: Filter,
}

/// Why an export ended early.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The question cannot be answered.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The output cannot be written.
    #[error("the output cannot be written: {0}")]
    Output(#[from] io::Error),
}

impl From<Cancelled> for ExportError {
    fn from(cancelled: Cancelled) -> Self {
        Self::Query(cancelled.into())
    }
}

/// Shorthand for results of exporters.
pub type Result<T> = std::result::Result<T, ExportError>;

/// A format that `heaptrace export` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Everything, as one JSON document
    Json,
    /// Folded stacks, one line a backtrace: flamegraph.pl and many others read it
    Folded,
    /// speedscope's JSON
    Speedscope,
    /// pprof's profile.proto, compressed
    Pprof,
    /// heaptrack's text format: for heaptrack_print and the heaptrack GUI
    Heaptrack,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Json, Self::Folded, Self::Speedscope, Self::Pprof, Self::Heaptrack];

    /// Its name, as in `--format`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Folded => "folded",
            Self::Speedscope => "speedscope",
            Self::Pprof => "pprof",
            Self::Heaptrack => "heaptrack",
        }
    }

    /// What a file of this format is called after the last dot.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Folded => "folded.txt",
            Self::Speedscope => "speedscope.json",
            Self::Pprof => "pb.gz",
            Self::Heaptrack => "heaptrack",
        }
    }

    /// Its media type.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json | Self::Speedscope => "application/json",
            Self::Folded | Self::Heaptrack => "text/plain; charset=utf-8",
            Self::Pprof => "application/octet-stream",
        }
    }
}

/// Writes a recording in a format. `metric` is for formats with one value a stack.
///
/// # Errors
/// When the scope does not fit the recording, the output refuses, or cancelled.
pub fn write(format: Format, source: Source<'_>, scope: &Scope, of: folded::Of, out: &mut dyn io::Write) -> Result<()> {
    match format {
        Format::Json => json::write(source, scope, out),
        Format::Folded => folded::write(source, scope, of, out),
        Format::Speedscope => speedscope::write(source, scope, out),
        Format::Pprof => pprof::write(source, scope, out),
        Format::Heaptrack => heaptrack::write(source, scope, out),
    }
}
