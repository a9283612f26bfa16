//! `contexts`: what each request of the program allocated.

use axum::response::Response;
use tracehound_api::contexts::Contexts;
use tracehound_query::contexts;

use super::{Problems, RecordingId};
use crate::http::answer::{RecordingRequest, Result};

/// Request contexts with what they allocated, what lives on, and what was freed elsewhere.
#[utoipa::path(
    get,
    path = "/api/v1/recordings/{id}/contexts",
    tag = "contexts",
    params(RecordingId),
    responses((status = 200, body = Contexts), Problems)
)]
pub async fn contexts(asked: RecordingRequest) -> Result<Response> {
    asked.answer(|ask, (): ()| Ok(contexts::run(ask.trace, ask.cancel)?)).await
}
