//! `memory`: live blocks against pages and mappings.

use axum::response::Response;
use tracehound_api::memory::Memory;
use tracehound_query::memory::{self, MemoryParams};

use super::{Problems, RecordingId};
use crate::http::answer::{RecordingRequest, Result};
use crate::http::params::{Within, parameters};
use crate::query_params;

parameters! {
    /// Which moment.
    Moment {
        /// One instant: `1.5s`, nanoseconds, `start`, `peak`, `end`, `50%`, or the label of a mark.
        #[param(example = "peak")]
        at: Option<String> = None,
        /// Most backtraces that mapped memory.
        #[param(value_type = Option<u32>, minimum = 1, maximum = 10000)]
        limit: Within<1, 10_000> = Within(100),
    }
}

/// Where memory was at one moment: live blocks, the pages that they lie in, and who mapped what.
#[utoipa::path(
    get,
    path = "/api/v1/recordings/{id}/memory",
    tag = "memory",
    params(RecordingId, Moment),
    responses((status = 200, body = Memory), Problems)
)]
pub async fn memory(asked: RecordingRequest) -> Result<Response> {
    asked
        .answer(|ask, asked: Moment| {
            let at = query_params::window(None, None, asked.at.as_deref())?.at;
            let params = MemoryParams { at, limit: Some(asked.limit.0 as usize) };
            Ok(memory::run(ask.trace, ask.symbols, &params, ask.cancel)?)
        })
        .await
}
