//! `threads`: who allocates, who frees whose.

use axum::response::Response;
use tracehound_api::threads::Threads;
use tracehound_query::threads::{self, ThreadsParams};

use super::shared::{Filters, Window};
use super::{Problems, RecordingId};
use crate::http::answer::{RecordingRequest, Result};

/// Threads with what they did in the window, and who freed whose blocks.
#[utoipa::path(
    get,
    path = "/api/v1/recordings/{id}/threads",
    tag = "threads",
    params(RecordingId, Window, Filters),
    responses((status = 200, body = Threads), Problems)
)]
pub async fn threads(asked: RecordingRequest) -> Result<Response> {
    asked
        .answer(|ask, (times, filters): (Window, Filters)| {
            let params = ThreadsParams { window: times.window()?, filter: filters.filter()? };
            Ok(threads::run(ask.trace, ask.symbols, &params, ask.cancel)?)
        })
        .await
}
