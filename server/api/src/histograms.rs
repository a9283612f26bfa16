//! `GET recordings/{id}/sizes` and `…/lifetimes`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Exactness;

/// Amounts per class of a quantity. Classes are `[lower[i], lower[i + 1])`, the last is open.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Histogram {
    /// Lower bound of each class (bytes, or nanoseconds).
    pub lower: Vec<u64>,
    /// Blocks in the class.
    pub count: Vec<u64>,
    /// Their bytes.
    pub bytes: Vec<u64>,
    /// Blocks in the class that are still live at the end of the recording.
    pub live_count: Vec<u64>,
}

/// Sizes of the blocks allocated in the window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Sizes {
    /// `heaptrace.sizes/1`.
    pub schema: String,
    /// Start of the window.
    pub from_ns: u64,
    /// End of the window.
    pub to_ns: u64,
    /// By powers of two, each split in four.
    pub histogram: Histogram,
    /// The commonest exact sizes: size, blocks, bytes; at most 32.
    pub commonest: Vec<ExactSize>,
    /// How far the figures can be trusted.
    pub exactness: Exactness,
}

/// One exact size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExactSize {
    /// Requested bytes.
    pub size: u64,
    /// Blocks of that size.
    pub count: u64,
}

/// Lifetimes of the blocks allocated in the window, alone and against size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Lifetimes {
    /// `heaptrace.lifetimes/1`.
    pub schema: String,
    /// Start of the window.
    pub from_ns: u64,
    /// End of the window.
    pub to_ns: u64,
    /// By powers of two of nanoseconds, each split in two; blocks still live count until the end of the recording.
    pub histogram: Histogram,
    /// Lower bounds of the heat map's lifetime classes (nanoseconds).
    pub map_lifetime: Vec<u64>,
    /// Lower bounds of the heat map's size classes (bytes).
    pub map_size: Vec<u64>,
    /// Blocks, row by row: `map_count[size * map_lifetime.len() + lifetime]`.
    pub map_count: Vec<u64>,
    /// Bytes, in the same order.
    pub map_bytes: Vec<u64>,
    /// How far the figures can be trusted.
    pub exactness: Exactness,
}
