//! Wire types: every JSON document that the server and the command line give out, one file per feature.
//!
//! Conventions: every document names its `schema`; times are nanoseconds since the start of the recording (`*_ns`);
//! sizes are bytes; a missing symbol is `null`, never an empty string; big lists are columns (one array per field).

pub mod allocations;
pub mod breakdown;
pub mod churn;
pub mod command_line;
pub mod contexts;
pub mod diff;
pub mod diff_flamegraph;
pub mod flamegraph;
pub mod functions;
pub mod heap_map;
pub mod histograms;
pub mod info;
pub mod leaks;
pub mod ledger;
pub mod live;
pub mod memory;
pub mod modules;
pub mod pins;
pub mod problem;
pub mod replay;
pub mod sites;
pub mod source;
pub mod sql;
pub mod threads;
pub mod timeline;
pub mod units;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How far an answer can be trusted; part of every answer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Exactness {
    /// Events that the answer is based on: all of the recording up to the watermark.
    pub events: u64,
    /// Events known to be missing: dropped by choice, or in damaged blocks.
    pub lost_events: u64,
    /// Damaged or missing blocks.
    pub damaged_blocks: u64,
    /// Every event before this time is in the answer.
    pub watermark_ns: u64,
    /// The recording has ended and nothing is known to be missing.
    pub complete: bool,
}

/// Whose peak an instant is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PeakOf {
    /// That of all live bytes.
    Heap,
    /// That of what passes the filter: the first moment at which most of its own bytes were live.
    Filter,
}

/// One frame of a stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
pub struct Frame {
    /// Demangled function name; `null` if there is no symbol.
    pub function: Option<String>,
    /// Source file as the debug information has it.
    pub file: Option<String>,
    /// Line of the call.
    pub line: Option<u32>,
    /// File name of the module, e.g. `libc.so.6`.
    pub module: Option<String>,
    /// The function was inlined into the next frame.
    pub inlined: bool,
    /// Language: `c`, `c++`, `rust`, `python`, `javascript`, `java`, `go`; `null` if nothing tells.
    #[serde(default)]
    pub language: Option<String>,
    /// Return address, `0x…`; inlined frames repeat their caller's.
    pub address: String,
    /// Of a frame without a function: where it is in the file of its module, `0x…`, as flame graphs and tables call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<String>,
    /// Not the program's own code, or code between the program's function and the allocator. So the first frame of a
    /// stack without it is the program's function; if all frames have it, the first one stands for it.
    #[serde(default)]
    #[schema(required = true)]
    pub library: bool,
}

/// Which frames a stack shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FramesShown {
    /// Without an interpreter's own frames around the functions of the program's language.
    #[default]
    User,
    /// All.
    All,
}

/// What is measured. Windows are `[from, to)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Blocks live at the end of the window (`at`, if given).
    #[default]
    Live,
    /// Blocks live when live bytes were highest inside the window.
    Peak,
    /// Blocks allocated in the window that are live at the end of the recording.
    Leaked,
    /// Blocks allocated in the window.
    Allocated,
    /// Blocks that were freed in the window, by the stack that allocated them.
    Freed,
    /// Blocks allocated in the window and live at its end, minus blocks live at its start that were freed in it.
    Grown,
    /// Blocks allocated in the window that were temporary (see [`info::Temporary`]).
    Temporary,
}

/// What is added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Requested bytes.
    #[default]
    Bytes,
    /// Number of blocks.
    Count,
}

/// Bytes and number of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Amount {
    /// Requested bytes.
    pub bytes: u64,
    /// Number of blocks.
    pub count: u64,
}
