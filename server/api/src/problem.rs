//! Errors over HTTP: RFC 9457 problem documents, `application/problem+json`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// `about:blank`, or a stable name of the kind of problem.
    #[serde(rename = "type")]
    pub kind: String,
    /// Short summary.
    pub title: String,
    /// HTTP status code.
    pub status: u16,
    /// What happened here and what to do.
    pub detail: String,
    /// The parameter at fault, if one is.
    pub parameter: Option<String>,
}
