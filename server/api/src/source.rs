//! `GET recordings/{id}/source`: a source file with sums per line.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Exactness, Metric, Unit};

/// A source file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Source {
    /// `heaptrace.source/1`.
    pub schema: String,
    /// Path as the debug information has it.
    pub file: String,
    /// What is measured.
    pub metric: Metric,
    /// What is added up.
    pub unit: Unit,
    /// The text; `null` where it cannot be shown.
    pub text: Option<String>,
    /// Why it cannot be shown.
    pub note: Option<String>,
    /// Lines with sums.
    pub lines: Vec<SourceLine>,
    /// How far the figures can be trusted.
    pub exactness: Exactness,
}

/// A line with sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SourceLine {
    /// Line number, from 1.
    pub line: u32,
    /// The line is the innermost of the program: it called the allocator, or a library that did.
    pub flat: i64,
    /// The line was anywhere on the stack.
    pub cum: i64,
}
