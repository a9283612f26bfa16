//! `/debug/pprof/heap` and `/debug/pprof/allocs`: what Go programs show there, so that scrapers of profiles (Parca,
//! Grafana Alloy) and `go tool pprof URL` take recordings as they are.

use axum::response::Response;
use tracehound_api::{Metric, Unit};
use tracehound_index::Cancel;
use tracehound_query::filter::Selection;
use tracehound_query::{TimeExpr, Window};

use super::export::stream_of;
use crate::http::answer::{RecordingRequest, Result};
use crate::http::params::{Within, parameters};
use crate::http::problem::HttpProblem;
use tracehound_exports::{ExportScope, Format, folded};

parameters! {
    /// What scrapers ask for.
    #[allow(dead_code, reason = "`recording` is read before, by the request; `gc` asks for nothing here")]
    Scrape {
        /// Which recording; may be left out if there is one only.
        recording: Option<String> = None,
        /// Only the last seconds.
        #[param(value_type = Option<u32>, minimum = 1, maximum = 86400)]
        seconds: Option<Within<1, 86_400>> = None,
        /// As in Go, where it collects garbage first: nothing here.
        gc: Option<String> = None,
    }
}

/// The profile.
pub async fn profile(asked: RecordingRequest) -> Result<Response> {
    let metric = match asked.path("profile").as_str() {
        "heap" => Metric::Live,
        "allocs" => Metric::Allocated,
        other => return Err(HttpProblem::not_found(format!("there is no profile {other:?}; known: heap, allocs"))),
    };
    let scrape: Scrape = asked.query()?;
    let snapshot = asked.served.ready().await?;
    let (trace, _) = snapshot.parts()?;
    let from = scrape.seconds.map(|Within(seconds)| trace.duration_ns().saturating_sub(seconds * 1_000_000_000));
    let window = Window { from: from.map(TimeExpr::Ns), ..Window::default() };
    window.resolve(trace, &Selection::all(), &Cancel::new())?;
    let scope = ExportScope { window, ..ExportScope::default() };
    stream_of(asked, snapshot, Format::Pprof, scope, folded::Of { metric, unit: Unit::Bytes }).await
}
