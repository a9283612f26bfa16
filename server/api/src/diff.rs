//! `heaptrace diff`, `GET recordings/{id}/diff`: two instants, windows or recordings, by backtrace.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Amount, Exactness, Frame, Unit};

/// What changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Diff {
    /// `heaptrace.diff/1`.
    pub schema: String,
    /// What `bytes` and ordering are about.
    pub unit: Unit,
    /// What the first side was multiplied with so that both have the same total, if that was asked for.
    #[serde(default)]
    pub scaled_by: Option<f64>,
    /// The first side, in words.
    pub before: String,
    /// The second side, in words.
    pub after: String,
    /// Sum of the first side.
    pub total_before: Amount,
    /// Sum of the second side.
    pub total_after: Amount,
    /// Rows that exist, of which `rows` is a part.
    pub total_rows: u64,
    /// Largest change first.
    pub rows: Vec<DiffRow>,
    /// How far the figures can be trusted.
    pub exactness: Exactness,
}

/// One backtrace on both sides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiffRow {
    /// Live on the first side.
    pub before: Amount,
    /// Live on the second side.
    pub after: Amount,
    /// Live on both, the very same blocks (two instants of one recording only).
    pub survived: Option<Amount>,
    /// Leaf first.
    pub stack: Vec<Frame>,
}
