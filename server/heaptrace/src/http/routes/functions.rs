//! `functions`: flat and cumulative sums.

use axum::response::Response;
use tracehound_api::functions::{Functions, GroupBy};
use tracehound_query::functions::{self, FunctionSort, FunctionsParams};

use super::shared::{Filters, Measure, Window, window};
use super::{Problems, RecordingId};
use crate::http::answer::{RecordingRequest, Result};
use crate::http::params::{FromText, Within, parameters};

impl FromText for FunctionSort {
    fn from_text(text: &str) -> std::result::Result<Self, String> {
        match text {
            "flat" => Ok(Self::Flat),
            "cum" => Ok(Self::Cum),
            "name" => Ok(Self::Name),
            _ => Err("flat, cum, name".into()),
        }
    }
}

parameters! {
    /// Which rows, in which order.
    Rows {
        /// What a row adds up.
        #[param(inline, value_type = Option<GroupBy>)]
        by: GroupBy = GroupBy::Function,
        /// Order: `flat`, `cum`, `name`.
        #[param(value_type = Option<String>, example = "flat")]
        sort: FunctionSort = FunctionSort::Flat,
        /// Smallest first.
        ascending: bool = false,
        /// Only rows whose name matches this regular expression.
        search: Option<String> = None,
        /// Rows at most.
        #[param(value_type = Option<u32>, minimum = 1, maximum = 10000)]
        limit: Within<1, 10_000> = Within(200),
        /// Rows to skip.
        #[param(value_type = Option<u64>)]
        offset: Within<0, { u32::MAX as u64 }> = Within(0),
    }
}

/// Functions (or files, modules, threads, sites) with what they allocated, themselves and below.
#[utoipa::path(
    get,
    path = "/api/v1/recordings/{id}/functions",
    tag = "functions",
    params(RecordingId, Measure, Window, Filters, Rows),
    responses((status = 200, body = Functions), Problems)
)]
pub async fn functions(asked: RecordingRequest) -> Result<Response> {
    asked
        .answer(|ask, (measure, times, filters, rows): (Measure, Window, Filters, Rows)| {
            let params = FunctionsParams {
                metric: measure.metric,
                unit: measure.unit,
                window: window(&times, &measure)?,
                filter: filters.filter()?,
                by: rows.by,
                sort: rows.sort,
                ascending: rows.ascending,
                search: rows.search,
                offset: rows.offset.0 as usize,
                limit: Some(rows.limit.0 as usize),
            };
            Ok(functions::run(ask.trace, ask.symbols, &params, ask.cancel)?)
        })
        .await
}
