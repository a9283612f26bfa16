//! `sizes`, `lifetimes`: how large blocks are and how long they live.

use axum::response::Response;
use tracehound_api::histograms::{Lifetimes, Sizes};
use tracehound_query::{lifetimes, sizes};

use super::shared::{Filters, Window};
use super::{Problems, RecordingId};
use crate::http::answer::{RecordingRequest, Result};

/// Lifetimes of the blocks allocated in the window, alone and against size.
#[utoipa::path(
    get,
    path = "/api/v1/recordings/{id}/lifetimes",
    tag = "allocations",
    params(RecordingId, Window, Filters),
    responses((status = 200, body = Lifetimes), Problems)
)]
pub async fn lifetimes(asked: RecordingRequest) -> Result<Response> {
    asked
        .answer(|ask, (times, filters): (Window, Filters)| {
            let params = lifetimes::LifetimesParams { window: times.window()?, filter: filters.filter()? };
            Ok(lifetimes::run(ask.trace, ask.symbols, &params, ask.cancel)?)
        })
        .await
}

/// Sizes of the blocks allocated in the window.
#[utoipa::path(
    get,
    path = "/api/v1/recordings/{id}/sizes",
    tag = "allocations",
    params(RecordingId, Window, Filters),
    responses((status = 200, body = Sizes), Problems)
)]
pub async fn sizes(asked: RecordingRequest) -> Result<Response> {
    asked
        .answer(|ask, (times, filters): (Window, Filters)| {
            let params = sizes::SizesParams { window: times.window()?, filter: filters.filter()? };
            Ok(sizes::run(ask.trace, ask.symbols, &params, ask.cancel)?)
        })
        .await
}
