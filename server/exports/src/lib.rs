//! Exports: recordings in the formats of other tools, pictures, and reports that need no heaptrace.
//!
//! Every exporter writes as it goes; none holds a recording's events in memory.

pub mod dhat;
mod digits;
pub mod dump;
pub mod events;
pub mod firefox;
pub mod folded;
pub mod heaptrack;
pub mod json;
pub mod markup;
pub mod massif;
pub mod otlp;
pub mod parquet;
pub mod pprof;
mod protobuf;
pub mod report;
pub mod samples;
pub mod speedscope;
pub mod svg;

use std::io;

use tracehound_index::symbols::RecordingSymbols;
use tracehound_index::{Cancel, Cancelled, Trace};
use tracehound_query::{Filter, QueryError, Window};

/// Input of an exporter.
#[derive(Clone, Copy)]
pub struct ExportInput<'a> {
    /// The recording.
    pub trace: &'a Trace,
    /// Its names.
    pub symbols: &'a dyn RecordingSymbols,
    /// Stops from outside.
    pub cancel: &'a Cancel,
}

/// Which part of a recording is exported.
#[derive(Debug, Clone, Default)]
pub struct ExportScope {
    /// Window of time.
    pub window: Window,
    /// Which blocks count.
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
    /// OpenTelemetry profiles, v1development: what an OTLP collector takes
    Otlp,
    /// heaptrack's text format: for heaptrack_print and the heaptrack GUI
    Heaptrack,
    /// DHAT's JSON: for valgrind's dh_view.html
    Dhat,
    /// massif's text format: for ms_print and massif-visualizer
    Massif,
    /// Firefox Profiler's processed format: for profiler.firefox.com
    Firefox,
    /// Parquet tables: a folder of them, or the allocations alone if OUT ends in .parquet or is -
    Parquet,
}

impl Format {
    /// Its name, as in `--format`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Folded => "folded",
            Self::Speedscope => "speedscope",
            Self::Pprof => "pprof",
            Self::Otlp => "otlp",
            Self::Heaptrack => "heaptrack",
            Self::Dhat => "dhat",
            Self::Massif => "massif",
            Self::Firefox => "firefox",
            Self::Parquet => "parquet",
        }
    }

    /// What a file of this format is called after the last dot.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Folded => "folded.txt",
            Self::Speedscope => "speedscope.json",
            Self::Pprof => "pb.gz",
            Self::Otlp => "otlp-v1development.pb",
            Self::Heaptrack => "heaptrack",
            Self::Dhat => "dhat.json",
            Self::Massif => "massif.out",
            Self::Firefox => "firefox.json",
            Self::Parquet => "parquet",
        }
    }

    /// Whether it can have what was live at one instant. The others are of a window.
    pub const fn has_instants(self) -> bool {
        matches!(self, Self::Folded | Self::Pprof | Self::Otlp | Self::Firefox)
    }

    /// Its media type.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json | Self::Speedscope | Self::Dhat | Self::Firefox => "application/json",
            Self::Folded | Self::Heaptrack | Self::Massif => "text/plain; charset=utf-8",
            Self::Pprof => "application/octet-stream",
            Self::Otlp => "application/x-protobuf",
            Self::Parquet => "application/vnd.apache.parquet",
        }
    }
}

/// Writes a recording in a format. `metric` is for formats with one value a stack.
///
/// # Errors
/// When the scope does not fit the recording, the output refuses, or cancelled.
pub fn write(
    format: Format,
    source: ExportInput<'_>,
    scope: &ExportScope,
    of: folded::Of,
    out: &mut dyn io::Write,
) -> Result<()> {
    if format == Format::Json && !scope.filter.is_empty() {
        // Blocks name one another by their number among all.
        return Err(
            QueryError::bad("format", "json has every block of the window; filters are for other formats").into()
        );
    }
    if scope.window.at.is_some() && !format.has_instants() {
        let reason = format!("{} is of a window; one instant is for folded, pprof, otlp and firefox", format.name());
        return Err(QueryError::bad("at", reason).into());
    }
    match format {
        Format::Json => json::write(source, scope, out),
        Format::Folded => folded::write(source, scope, of, out),
        Format::Speedscope => speedscope::write(source, scope, out),
        Format::Pprof => pprof::write(source, scope, of.metric, out),
        Format::Otlp => otlp::write(source, scope, of.metric, out),
        Format::Heaptrack => heaptrack::write(source, scope, out),
        Format::Dhat => dhat::write(source, scope, out),
        Format::Massif => massif::write(source, scope, out),
        Format::Firefox => firefox::write(source, scope, out),
        Format::Parquet => parquet::write(source, scope, out),
    }
}
