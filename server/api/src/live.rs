//! `GET recordings/{id}/live`: server-sent events; each `data:` is one [`Live`] document.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::info::{Progress, State};

/// State of a recording: sent at once, then whenever it changes, at most four times a second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Live {
    /// `heaptrace.live/1`.
    pub schema: String,
    /// What can be asked now.
    pub state: State,
    /// How far indexing is.
    pub progress: Progress,
    /// Every event before this time can be asked about.
    pub watermark_ns: u64,
    /// Live bytes at the watermark.
    pub live_bytes: u64,
    /// Grows with every change of the data: part of the key of cached answers.
    pub revision: u64,
}
