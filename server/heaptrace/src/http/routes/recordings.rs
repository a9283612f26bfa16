//! `recordings`, `recordings/{id}`: what is served, and each on one page.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use tracehound_api::info::{Info, Recordings};

use super::{Problems, RecordingId};
use crate::http::answer::{RecordingRequest, Result};
use crate::http::params;
use crate::http::problem::HttpProblem;
use crate::http::served::App;

/// What this server serves, in the order of its command line.
#[utoipa::path(get, path = "/api/v1/recordings", tag = "recordings", responses((status = 200, body = Recordings), Problems))]
pub async fn recordings(State(app): State<Arc<App>>, uri: Uri) -> Result<Response> {
    params::read::<()>(uri.query())?;
    let document = Recordings { schema: "heaptrace.recordings/1".into(), recordings: app.summaries() };
    Ok(([("cache-control", "no-store")], Json(document)).into_response())
}

/// Ends indexing of a recording. What was written of its index is removed; `start_indexing` begins anew.
#[utoipa::path(
    post,
    path = "/api/v1/recordings/{id}/cancel_indexing",
    tag = "recordings",
    params(RecordingId),
    responses((status = 202, description = "The recording becomes `cancelled` soon."), Problems)
)]
pub async fn cancel_indexing(asked: RecordingRequest) -> Result<Response> {
    asked.query::<()>()?;
    accepted(asked.served.cancel_indexing(), "it is not being indexed")
}

/// Starts indexing a recording again whose indexing was cancelled or has failed, or whose file has changed.
#[utoipa::path(
    post,
    path = "/api/v1/recordings/{id}/start_indexing",
    tag = "recordings",
    params(RecordingId),
    responses((status = 202, description = "The recording is `indexing` now."), Problems)
)]
pub async fn start_indexing(asked: RecordingRequest) -> Result<Response> {
    asked.query::<()>()?;
    accepted(asked.served.start_indexing(), "its indexing was not cancelled, and its file has not changed")
}

fn accepted(is_done: bool, why_not: &str) -> Result<Response> {
    if is_done {
        Ok(StatusCode::ACCEPTED.into_response())
    } else {
        Err(HttpProblem::new(StatusCode::CONFLICT, why_not))
    }
}

/// A recording in one document: process, counts, peak, leaks, and how far it can be trusted.
#[utoipa::path(
    get,
    path = "/api/v1/recordings/{id}",
    tag = "recordings",
    params(RecordingId),
    responses((status = 200, body = Info), Problems)
)]
pub async fn recording(asked: RecordingRequest) -> Result<Response> {
    asked.answer(|ask, (): ()| Ok(tracehound_audit::info(ask.trace, ask.symbols))).await
}
