//! `functions`: flat and cumulative sums.

use tracehound_api::functions::{Functions, GroupBy};
use tracehound_query::functions::{self, FunctionSort, FunctionsParams};
use tracehound_query::sorting::SortKeys;

use super::shared::{Filters, Measure, Window, window};
use crate::http::params::{Within, parameters};
use crate::http::route::recording_route;

parameters! {
    /// Which rows, in which order.
    Rows {
        /// What a row adds up.
        #[param(inline, value_type = Option<GroupBy>)]
        by: GroupBy = GroupBy::Function,
        /// Columns of the order, the first decides: `flat`, `cum`, `name`, `other` (flat in the other unit), `module`, `source`; `-` turns one round.
        #[param(value_type = Option<String>, example = "flat,name")]
        sort: SortKeys<FunctionSort> = SortKeys::default(),
        /// All of the order turned round.
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

recording_route! {
    /// Functions (or files, modules, threads, sites) with what they allocated, themselves and below.
    functions at "/api/v1/recordings/{id}/functions", tag "functions", answers Functions:
    |ask, measure: Measure, times: Window, filters: Filters, rows: Rows| {
        let params = FunctionsParams {
            metric: measure.metric,
            unit: measure.unit,
            window: window(&times, &measure)?,
            filter: filters.of(ask.trace)?,
            by: rows.by,
            sort: rows.sort,
            ascending: rows.ascending,
            search: rows.search,
            offset: rows.offset.0 as usize,
            limit: Some(rows.limit.0 as usize),
        };
        Ok(functions::run(ask.trace, ask.symbols, &params, ask.cancel)?)
    }
}
