//! `sites`, `sites/{site}`: allocating backtraces, as a list and one by one.

use axum::response::Response;
use tracehound_api::sites::{Site, Sites};
use tracehound_query::sites::{self, OneParams, SiteSort, SitesParams};
use tracehound_query::sorting::SortKeys;
use tracehound_query::{QueryError, parse_site};

use super::shared::{Filters, Window};
use super::{Problems, RecordingId};
use crate::http::answer::{RecordingRequest, Result};
use crate::http::params::{Within, parameters};
use crate::http::route::recording_route;

parameters! {
    /// Which sites, in which order.
    Rows {
        /// Columns of the order, the first decides: `live`, `allocated`, `freed`, `leaked`, `at_peak`, `temporary` (bytes), `count` (allocations), `mean` (size), `lifetime` (median), `trend` (live bytes at the end of the window less those at its start), `name`, `source`; `-` turns one round.
        #[param(value_type = Option<String>, example = "live,-name")]
        sort: SortKeys<SiteSort> = SiteSort::Live.into(),
        /// All of the order turned round.
        ascending: bool = false,
        /// Only sites whose innermost frame has a function, file or module that matches this regular expression.
        search: Option<String> = None,
        /// Sites at most.
        #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
        limit: Within<1, 1000> = Within(100),
        /// Sites to skip.
        #[param(value_type = Option<u64>)]
        offset: Within<0, { u32::MAX as u64 }> = Within(0),
    }
}

recording_route! {
    /// Allocating backtraces with what they did in the window.
    sites at "/api/v1/recordings/{id}/sites", tag "sites", answers Sites:
    |ask, times: Window, filters: Filters, rows: Rows| {
        let params = SitesParams {
            window: times.window()?,
            filter: filters.of(ask.trace)?,
            sort: rows.sort,
            ascending: rows.ascending,
            search: rows.search,
            offset: rows.offset.0 as usize,
            limit: Some(rows.limit.0 as usize),
        };
        Ok(sites::run(ask.trace, ask.symbols, &params, ask.cancel)?)
    }
}

parameters! {
    /// How fine the timeline is.
    Points {
        /// Columns of the timeline.
        #[param(value_type = Option<u32>, minimum = 1, maximum = 4000)]
        points: Within<1, 4000> = Within(600),
    }
}

/// Which site.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code, reason = "only its derived description is used")]
pub struct SiteId {
    /// Handle of a site, `s12`.
    #[param(example = "s12")]
    site: String,
}

/// Everything about one site: stack, history, sizes, lifetimes, who frees its blocks.
#[utoipa::path(
    get,
    path = "/api/v1/recordings/{id}/sites/{site}",
    tag = "sites",
    params(RecordingId, SiteId, Window, Filters, Points),
    responses((status = 200, body = Site), Problems)
)]
pub async fn site(asked: RecordingRequest) -> Result<Response> {
    let site = asked.path("site");
    asked
        .answer(move |ask, (times, filters, points): (Window, Filters, Points)| {
            let not_found = |_| QueryError::NotFound { what: format!("site {site:?}") };
            let params = OneParams {
                site: parse_site("site", &site).map_err(not_found)?,
                window: times.window()?,
                filter: filters.of(ask.trace)?,
                points: points.points.0 as usize,
            };
            Ok(sites::one(ask.trace, ask.symbols, &params, ask.cancel)?)
        })
        .await
}
