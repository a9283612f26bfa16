//! `map`: the heap by address and time.

use tracehound_api::heap_map::HeapMap;
use tracehound_query::heap_map::{self, HeapMapParams, MAX_COLUMNS, MAX_ROWS};

use super::shared::{Filters, Window};
use crate::http::params::{Within, parameters};
use crate::http::route::recording_route;

parameters! {
    /// How fine.
    MapCellsAsked {
        /// Most rows: ranges of addresses.
        #[param(value_type = Option<u32>, minimum = 2, maximum = 512)]
        rows: Within<2, { MAX_ROWS as u64 }> = Within(128),
        /// Moments.
        #[param(value_type = Option<u32>, minimum = 1, maximum = 400)]
        columns: Within<1, { MAX_COLUMNS as u64 }> = Within(200),
    }
}

recording_route! {
    /// What of the address space was occupied when, by which site, and what of it was in memory. `address` zooms in.
    heap_map at "/api/v1/recordings/{id}/map", tag "memory", answers stored HeapMap:
    |ask, times: Window, filters: Filters, asked: MapCellsAsked| {
        let params = HeapMapParams {
            window: times.window()?,
            filter: filters.of(ask.trace)?,
            rows: asked.rows.0 as usize,
            columns: asked.columns.0 as usize,
        };
        Ok(heap_map::run(ask.trace, ask.symbols, &params, ask.cancel)?)
    }
}
