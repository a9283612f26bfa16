//! `modules`: what was loaded, and where its names come from.

use axum::response::Response;
use tracehound_api::modules::Modules;

use super::{Problems, RecordingId};
use crate::http::answer::{RecordingRequest, Result};

/// All modules that were ever loaded, with the quality of their symbols on this machine.
#[utoipa::path(
    get,
    path = "/api/v1/recordings/{id}/modules",
    tag = "modules",
    params(RecordingId),
    responses((status = 200, body = Modules), Problems)
)]
pub async fn modules(asked: RecordingRequest) -> Result<Response> {
    asked
        .answer(|ask, (): ()| {
            Ok(ask.symbolizer.modules(ask.trace, ask.cancel).map_err(tracehound_query::QueryError::from)?)
        })
        .await
}
