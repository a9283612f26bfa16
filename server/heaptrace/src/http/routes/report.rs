//! `report`: the page and its answers in one HTML file, as `heaptrace report` writes it.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tracehound_query::{QueryError, parse_size};

use super::shared::{Filters, Window};
use super::{Problems, RecordingId};
use crate::http::answer::{RecordingRequest, Result, internal};
use crate::http::params::{FromText, parameters};
use crate::http::problem::HttpProblem;
use tracehound_exports::ExportError;
use tracehound_exports::report::{self, ReportError};

/// A number of bytes, with a unit.
#[derive(Debug, Clone, Copy)]
pub struct SizeParam(u64);

impl FromText for SizeParam {
    fn from_text(text: &str) -> std::result::Result<Self, String> {
        parse_size(text).map(Self)
    }
}

parameters! {
    /// What the file may be.
    Limits {
        /// The file is at most this large.
        #[param(value_type = Option<String>, example = "16MiB")]
        max_file_size: SizeParam = SizeParam(16 << 20),
        /// Keep only the last part of every path, and of the command line only the program.
        strip_paths: bool = false,
    }
}

/// One HTML file that shows this window and filter offline.
#[utoipa::path(
    get,
    path = "/api/v1/recordings/{id}/report",
    tag = "recordings",
    params(RecordingId, Limits, Window, Filters),
    responses((status = 200, description = "The file.", content_type = "text/html"), Problems)
)]
pub async fn report(asked: RecordingRequest) -> Result<Response> {
    let (limits, times, filters): (Limits, Window, Filters) = asked.query()?;
    let (window, filter) = (times.window()?, filters.filter()?);
    let snapshot = asked.served.ready().await?;
    filter.need_module(snapshot.parts()?.0)?;
    let work = asked.compute_export(snapshot, move |ask| {
        let made = report::make(&report::ReportScope {
            trace: ask.trace,
            symbols: ask.symbolizer,
            cancel: ask.cancel,
            window,
            filter,
            filter_texts: filters.texts(),
            max_bytes: limits.max_file_size.0,
            strip_paths: limits.strip_paths,
        });
        made.map_err(|error| match error {
            ReportError::Export(ExportError::Query(error)) => QueryError::into(error),
            ReportError::Export(ExportError::Output(error)) => internal(error),
            ReportError::TooLarge { .. } => HttpProblem::parameter("max_file_size", error.to_string()),
            ReportError::NoPage => HttpProblem::new(StatusCode::CONFLICT, error.to_string()),
        })
    });
    let mut response = work.await?.html.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let disposition = format!("attachment; filename=\"{}.html\"", asked.served.file_stem());
    if let Ok(disposition) = HeaderValue::from_str(&disposition) {
        headers.insert(header::CONTENT_DISPOSITION, disposition);
    }
    Ok(response)
}
