//! `breakdown`: live bytes over time, by layer.

use tracehound_api::breakdown::{Breakdown, BreakdownGroup};
use tracehound_query::breakdown::{self, BreakdownParams};

use super::shared::{Filters, Window};
use crate::http::params::{Within, parameters};
use crate::http::route::recording_route;

parameters! {
    /// Which layers, how fine.
    Layers {
        /// What a layer is.
        #[param(inline, value_type = Option<BreakdownGroup>)]
        by: BreakdownGroup = BreakdownGroup::Function,
        /// Layers beside the rest.
        #[param(value_type = Option<u32>, minimum = 1, maximum = 50)]
        top: Within<1, 50> = Within(10),
        /// Moments.
        #[param(value_type = Option<u32>, minimum = 1, maximum = 2000)]
        points: Within<1, { breakdown::MAX_POINTS as u64 }> = Within(300),
    }
}

recording_route! {
    /// Live bytes over time by function, module, thread, site or language: the largest layers and the rest, which add up to the
    /// curve of the heap.
    breakdown at "/api/v1/recordings/{id}/breakdown", tag "time", answers stored Breakdown:
    |ask, layers: Layers, window: Window, filters: Filters| {
        let params = BreakdownParams {
            window: window.window()?,
            filter: filters.of(ask.trace)?,
            by: layers.by,
            points: layers.points.0 as usize,
            top: layers.top.0 as usize,
            max_amounts: breakdown::MAX_AMOUNTS,
        };
        Ok(breakdown::run(ask.trace, ask.symbols, &params, ask.cancel)?)
    }
}
