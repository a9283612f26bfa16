//! `leaks`: what lives at the end, with a verdict on each site.

use axum::response::Response;
use tracehound_server::api::leaks::Leaks;
use tracehound_server::query::leaks::{self, Params};

use super::shared::{Filters, Window};
use super::{Problems, RecordingId};
use crate::http::answer::{Asked, Result};
use crate::http::params::{Within, parameters};

parameters! {
    /// How many.
    Limit {
        /// Sites at most, largest first.
        #[param(value_type = Option<u32>, minimum = 1, maximum = 10000)]
        limit: Within<1, 10_000> = Within(200),
    }
}

/// Blocks born in the window that live at the end, by allocating backtrace.
#[utoipa::path(
    get,
    path = "/api/v1/recordings/{id}/leaks",
    tag = "leaks",
    params(RecordingId, Window, Filters, Limit),
    responses((status = 200, body = Leaks), Problems)
)]
pub async fn leaks(asked: Asked) -> Result<Response> {
    asked
        .answer(|ask, (times, filters, limit): (Window, Filters, Limit)| {
            let params = Params {
                window: times.window()?,
                filter: filters.filter()?,
                limit: Some(limit.limit.0 as usize),
                ..Params::default()
            };
            Ok(leaks::run(ask.trace, ask.symbols, &params, ask.cancel)?)
        })
        .await
}
