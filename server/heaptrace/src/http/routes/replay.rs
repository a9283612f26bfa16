//! `replay`: what `heaptrace replay` found for a recording.

use axum::response::Response;
use tracehound_api::replay::KeptReplay;
use tracehound_query::replays;

use super::{Problems, RecordingId};
use crate::http::answer::{RecordingRequest, Result};

/// What other allocators would have taken, as far as `heaptrace replay` was run on the recording; `replay` is null where
/// it was not.
#[utoipa::path(
    get,
    path = "/api/v1/recordings/{id}/replay",
    tag = "memory",
    params(RecordingId),
    responses((status = 200, body = KeptReplay), Problems)
)]
pub async fn replay(asked: RecordingRequest) -> Result<Response> {
    // The command runs in another process, and changes nothing of the recording.
    asked.answer_fresh(|ask, (): ()| Ok(replays::kept(ask.trace))).await
}
