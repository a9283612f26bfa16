//! `GET recordings/{id}/flamegraph`: a pruned tree of functions, as columns.
//!
//! Rows are in pre-order, row 0 is the root that was asked for (with `ancestors` above it).
//! At every row: own value + values of the child rows = value. Children that would be narrower than the asked width
//! are one synthetic child row (`folded` > 0, no frame), so nothing is cut silently.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::pins::PinUnit;
use super::{Exactness, Metric, PeakOf, Unit};

/// A flame graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Flamegraph {
    /// `heaptrace.flamegraph/1`.
    pub schema: String,
    /// What is measured.
    pub metric: Metric,
    /// What is added up.
    pub unit: Unit,
    /// Start of the window.
    pub from_ns: u64,
    /// End of the window.
    pub to_ns: u64,
    /// The instant, for `live` and `peak`.
    pub at_ns: Option<u64>,
    /// Whose peak the instant is, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_of: Option<PeakOf>,
    /// Leaf functions at the root (callers below), or the program's entry.
    pub inverted: bool,
    /// By the backtraces that freed the blocks, instead of those that allocated them.
    #[serde(default)]
    #[schema(required = true)]
    pub freeing: bool,
    /// Resident pages that only blocks from at and below a row hold, instead of blocks: `bytes` are those of the pages, `count`
    /// is their number. Pages whose blocks have no function in common are the root's own.
    #[serde(default)]
    #[schema(required = true)]
    pub pinned: bool,
    /// What is given back as a whole, if `pinned`; of `slab` pages are the resident ones of slabs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin_unit: Option<PinUnit>,
    /// Sum over the whole recording, window and filter, before zooming and folding. `grown` may be negative.
    pub total: i64,
    /// From the tree's root down to the parent of row 0; empty when row 0 is the tree's root.
    pub ancestors: Vec<Ancestor>,
    /// The rows.
    pub rows: Rows,
    /// Frames that rows refer to.
    pub frames: Vec<FlameFrame>,
    /// How far the figures can be trusted.
    pub exactness: Exactness,
}

/// A row above the asked root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ancestor {
    /// Id to ask for.
    pub id: u64,
    /// Index into `frames`; `null` for the tree's root.
    pub frame: Option<u32>,
    /// Its value.
    pub value: i64,
}

/// One array per field; index `i` is one row.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Rows {
    /// Stable id, to be given as `root=`, below 2^53; for a synthetic row the id of its parent.
    pub id: Vec<u64>,
    /// Index of the parent row; row 0 points at itself.
    pub parent: Vec<u32>,
    /// Index into `frames`; `null` for the tree's root and for synthetic rows.
    pub frame: Vec<Option<u32>>,
    /// Own and descendants' sum.
    pub value: Vec<i64>,
    /// Own sum.
    pub own: Vec<i64>,
    /// `value` in the other unit (blocks for bytes, bytes for blocks); `null` for synthetic rows.
    #[serde(default)]
    pub other: Vec<Option<i64>>,
    /// Functions folded into this row; 0 for ordinary rows.
    pub folded: Vec<u32>,
}

/// A function in the flame graph.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
pub struct FlameFrame {
    /// Demangled function, or `0x…` in `module` if there is no symbol.
    pub name: String,
    /// File name of the module.
    pub module: Option<String>,
    /// Source file that the function is declared in; where that is not known, the file of a call in it.
    pub file: Option<String>,
    /// Line of `file`: that of the declaration, or of the call.
    pub line: Option<u32>,
    /// It was inlined into its caller.
    pub inlined: bool,
    /// Of a standard library, or a function that only hands out memory under another name.
    #[serde(default)]
    #[schema(required = true)]
    pub library: bool,
    /// Language: `c`, `c++`, `rust`, `python`, `javascript`, `java`, `go`; absent if nothing tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
}
