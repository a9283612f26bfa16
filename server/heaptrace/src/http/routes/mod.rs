//! The routes, one file a feature, named as in `query` and `api`.

mod allocations;
mod breakdown;
mod churn;
mod contexts;
mod diff;
mod diff_flamegraph;
mod export;
mod flamegraph;
mod functions;
mod heap_map;
mod histograms;
pub mod leaks;
mod live;
mod memory;
mod modules;
mod pins;
mod pprof;
mod recordings;
mod replay;
mod report;
mod shared;
mod sites;
mod source;
mod sql;
mod threads;
mod timeline;

use std::sync::Arc;

use axum::Router;
use axum::http::header;
use axum::routing::get;
use tracehound_api::problem::Problem as ProblemDocument;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::served::App;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "heaptrace",
        description = "Questions about heap recordings. Times are nanoseconds since the start of a recording, sizes are bytes.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    servers((url = "/")),
    components(schemas(ProblemDocument))
)]
struct Description;

/// Errors that every route may answer with, for the OpenAPI document.
#[derive(utoipa::IntoResponses)]
#[allow(dead_code, reason = "only its derived description is used")]
pub enum Problems {
    /// A parameter is unknown, repeated, or cannot be understood.
    #[response(status = 400, content_type = "application/problem+json")]
    BadRequest(ProblemDocument),
    /// The token is missing or wrong.
    #[response(status = 401, content_type = "application/problem+json")]
    Unauthorized(ProblemDocument),
    /// The request comes from another site, or names another host.
    #[response(status = 403, content_type = "application/problem+json")]
    Forbidden(ProblemDocument),
    /// There is no such recording, site, or row.
    #[response(status = 404, content_type = "application/problem+json")]
    NotFound(ProblemDocument),
    /// The recording cannot be opened.
    #[response(status = 409, content_type = "application/problem+json")]
    Conflict(ProblemDocument),
    /// The server failed, which is a bug.
    #[response(status = 500, content_type = "application/problem+json")]
    Internal(ProblemDocument),
}

/// Which recording.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code, reason = "only its derived description is used")]
pub struct RecordingId {
    /// Id of a recording in the list, `r1`.
    #[param(example = "r1")]
    id: String,
}

fn described() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(recordings::recordings))
        .routes(routes!(recordings::recording))
        .routes(routes!(recordings::cancel_indexing))
        .routes(routes!(recordings::start_indexing))
        .routes(routes!(timeline::timeline))
        .routes(routes!(flamegraph::flamegraph))
        .routes(routes!(functions::functions))
        .routes(routes!(sites::sites))
        .routes(routes!(sites::site))
        .routes(routes!(allocations::allocations))
        .routes(routes!(leaks::leaks))
        .routes(routes!(histograms::lifetimes))
        .routes(routes!(histograms::sizes))
        .routes(routes!(threads::threads))
        .routes(routes!(churn::churn))
        .routes(routes!(contexts::contexts))
        .routes(routes!(memory::memory))
        .routes(routes!(memory::memory_history))
        .routes(routes!(breakdown::breakdown))
        .routes(routes!(pins::pins))
        .routes(routes!(heap_map::heap_map))
        .routes(routes!(replay::replay))
        .routes(routes!(modules::modules))
        .routes(routes!(source::source))
        .routes(routes!(diff::diff))
        .routes(routes!(diff_flamegraph::diff_flamegraph))
        .routes(routes!(export::export))
        .routes(routes!(report::report))
        .routes(routes!(live::live))
        .routes(routes!(sql::sql))
        .routes(routes!(sql::schema))
}

/// The description of the interface.
pub fn openapi() -> utoipa::openapi::OpenApi {
    described().into_openapi()
}

/// All routes of the interface.
pub fn router() -> Router<Arc<App>> {
    let (router, description) = described().split_for_parts();
    // Strings, numbers and maps always serialise.
    let description = description.to_json().unwrap_or_default();
    let answer = move || {
        let description = description.clone();
        async move { ([(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-cache")], description) }
    };
    router.route("/api/v1/openapi.json", get(answer)).route("/debug/pprof/{profile}", get(pprof::profile))
}
