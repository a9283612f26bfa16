//! `churn`: who allocates how often.

use tracehound_api::churn::Churn;
use tracehound_query::churn::{self, ChurnParams, ChurnSort};
use tracehound_query::sorting::SortKeys;

use super::shared::{Filters, Window};
use crate::http::params::{Within, parameters};
use crate::http::route::recording_route;

parameters! {
    /// Which rows.
    ChurnQuery {
        /// Columns of the order, the first decides: `allocations`, `bytes`, `temporary`, `moved`, `chain` (bytes moved by the longest chain), `name`, `source`; `-` turns one round.
        #[param(value_type = Option<String>)]
        sort: SortKeys<ChurnSort> = SortKeys::default(),
        /// Most rows.
        #[param(value_type = Option<u32>, minimum = 1, maximum = 100000)]
        limit: Within<1, 100_000> = Within(200),
    }
}

recording_route! {
    /// Allocations a second by function of the program, and chains of reallocs with what they moved.
    churn at "/api/v1/recordings/{id}/churn", tag "functions", answers stored Churn:
    |ask, times: Window, filters: Filters, asked: ChurnQuery| {
        let params = ChurnParams {
            window: times.window()?,
            filter: filters.of(ask.trace)?,
            sort: asked.sort,
            limit: Some(asked.limit.0 as usize),
        };
        Ok(churn::run(ask.trace, ask.symbols, &params, ask.cancel)?)
    }
}
