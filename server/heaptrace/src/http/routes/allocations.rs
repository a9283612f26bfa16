//! `allocations`: every block, in pages.

use axum::response::Response;
use tracehound_api::allocations::Allocations;
use tracehound_query::allocations::{self, AllocationSort, AllocationsParams};
use tracehound_query::parse_site;

use super::shared::{Filters, Window};
use super::{Problems, RecordingId};
use crate::http::answer::{RecordingRequest, Result};
use crate::http::params::{FromText, Within, parameters};
use crate::query_params;

impl FromText for AllocationSort {
    fn from_text(text: &str) -> std::result::Result<Self, String> {
        match text {
            "born" => Ok(Self::Allocated),
            "died" => Ok(Self::Freed),
            "size" => Ok(Self::Size),
            "lifetime" => Ok(Self::Lifetime),
            _ => Err("allocated, freed, size, lifetime".into()),
        }
    }
}

parameters! {
    /// Which blocks, in which order.
    Rows {
        /// Blocks that live at this instant, in place of blocks allocated in a window.
        at: Option<String> = None,
        /// Only blocks of this site, `s12`.
        site: Option<String> = None,
        /// Order: `born`, `died`, `size`, `lifetime`.
        #[param(value_type = Option<String>, example = "size")]
        sort: AllocationSort = AllocationSort::Allocated,
        /// Largest or latest first.
        descending: bool = false,
        /// Blocks at most.
        #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
        limit: Within<1, 1000> = Within(100),
        /// `next_cursor` of the page before.
        cursor: Option<String> = None,
    }
}

/// Blocks with their lives and both backtraces.
#[utoipa::path(
    get,
    path = "/api/v1/recordings/{id}/allocations",
    tag = "allocations",
    params(RecordingId, Window, Filters, Rows),
    responses((status = 200, body = Allocations), Problems)
)]
pub async fn allocations(asked: RecordingRequest) -> Result<Response> {
    asked
        .answer(|ask, (times, filters, rows): (Window, Filters, Rows)| {
            let params = AllocationsParams {
                window: query_params::window(times.from.as_deref(), times.to.as_deref(), rows.at.as_deref())?,
                filter: filters.filter()?,
                site: rows.site.map(|site| parse_site("site", &site)).transpose()?,
                sort: rows.sort,
                descending: rows.descending,
                cursor: rows.cursor,
                limit: rows.limit.0 as usize,
            };
            Ok(allocations::run(ask.trace, ask.symbols, &params, ask.cancel)?)
        })
        .await
}
