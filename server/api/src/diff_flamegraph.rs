//! `GET recordings/{id}/diff/flamegraph`: two instants or two recordings as one pruned tree of functions, as columns.
//!
//! Rows are as in `flamegraph`: pre-order, row 0 is the root that was asked for, what is too narrow is one synthetic
//! child. At every row: the widths of the child rows and its own make its width. The same holds for `before` and `after`
//! where the width is the larger side; where it is the change, what did not change is not there.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::flamegraph::FlameFrame;
use super::pins::PinUnit;
use super::{Exactness, Metric, Unit};

/// What a row of a difference is as wide as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiffWidth {
    /// The larger side, summed over backtraces: shows what changed beside what did not.
    #[default]
    Larger,
    /// The change without its sign, summed over backtraces: only what changed is there.
    Change,
}

/// A flame graph of a difference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DiffFlamegraph {
    /// `heaptrace.diff_flamegraph/1`.
    pub schema: String,
    /// What is measured on both sides.
    pub metric: Metric,
    /// What is added up.
    pub unit: Unit,
    /// What rows are as wide as.
    pub width_of: DiffWidth,
    /// Resident pages that only blocks from at and below a row hold, instead of blocks.
    #[serde(default)]
    #[schema(required = true)]
    pub pinned: bool,
    /// What is given back as a whole, if `pinned`; of `slab` pages are the resident ones of slabs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin_unit: Option<PinUnit>,
    /// Callers below callees.
    pub inverted: bool,
    /// What the first side was multiplied with so that both have the same total, if that was asked for.
    #[serde(default)]
    pub scaled_by: Option<f64>,
    /// The first side, in words.
    pub before: String,
    /// The second side, in words.
    pub after: String,
    /// Sum of the first side, before zooming and folding.
    pub total_before: u64,
    /// Sum of the second side.
    pub total_after: u64,
    /// From the tree's root down to the parent of row 0; empty when row 0 is the tree's root.
    pub ancestors: Vec<DiffAncestor>,
    /// The rows.
    pub rows: DiffRows,
    /// Frames that rows refer to.
    pub frames: Vec<FlameFrame>,
    /// How far the figures can be trusted.
    pub exactness: Exactness,
}

/// A row above the asked root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiffAncestor {
    /// Id to ask for.
    pub id: u64,
    /// Index into `frames`; `null` for the tree's root.
    pub frame: Option<u32>,
    /// Sum of the first side.
    pub before: u64,
    /// Sum of the second side.
    pub after: u64,
}

/// One array per field; index `i` is one row.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct DiffRows {
    /// Stable id, to be given as `root=`, below 2^53; for a synthetic row the id of its parent.
    pub id: Vec<u64>,
    /// Index of the parent row; row 0 points at itself.
    pub parent: Vec<u32>,
    /// Index into `frames`; `null` for the tree's root and for synthetic rows.
    pub frame: Vec<Option<u32>>,
    /// Own and descendants' sum of the first side.
    pub before: Vec<u64>,
    /// Own and descendants' sum of the second side.
    pub after: Vec<u64>,
    /// Own sum of the first side.
    pub own_before: Vec<u64>,
    /// Own sum of the second side.
    pub own_after: Vec<u64>,
    /// Own and descendants' width.
    pub width: Vec<u64>,
    /// Functions folded into this row; 0 for ordinary rows.
    pub folded: Vec<u32>,
}
