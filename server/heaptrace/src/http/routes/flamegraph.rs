//! `flamegraph`: a pruned tree of functions; zooming asks again from a row.

use tracehound_api::flamegraph::Flamegraph;
use tracehound_api::pins::PinUnit;
use tracehound_query::QueryError;
use tracehound_query::flamegraph::{self, FlamegraphParams};
use tracehound_query::pruned::Limits;

use super::shared::{Filters, Measure, Window, window};
use crate::http::params::{FromText, Within, parameters};
use crate::http::route::recording_route;

/// A width in pixels.
#[derive(Debug, Clone, Copy)]
pub struct Pixels(f64);

impl FromText for Pixels {
    fn from_text(text: &str) -> std::result::Result<Self, String> {
        let value = text.parse().ok().filter(|value| (0.0..=1000.0).contains(value));
        value.map(Self).ok_or_else(|| "a number from 0 to 1000".into())
    }
}

parameters! {
    /// Which way up.
    Direction {
        /// Allocating functions at the root, callers below them.
        inverted: bool = false,
    }
}

parameters! {
    /// Whose stacks, and what of theirs.
    StackSide {
        /// By the stacks that freed the blocks; for `metric=freed`. Patterns and bounds still choose blocks by their
        /// allocations.
        freeing: bool = false,
        /// Resident pages that only blocks from below a function hold, instead of blocks; for `metric=live` and
        /// `metric=peak`. Pages that a block outside the filter holds, too, do not count.
        pinned: bool = false,
        /// What of these pages is given back as a whole; with `pinned=true`.
        #[param(inline, value_type = Option<PinUnit>)]
        pin_unit: Option<PinUnit> = None,
    }
}

parameters! {
    /// Which part of the tree, how fine.
    Shape {
        /// From this row down: an `id` of an earlier answer to the same question.
        #[param(value_type = Option<u64>)]
        root: Option<Within<0, { u64::MAX }>> = None,
        /// Pixels that the root takes.
        #[param(value_type = Option<u32>, minimum = 100, maximum = 10000)]
        width: Within<100, 10_000> = Within(1400),
        /// Narrower rows are folded into one that says so.
        #[param(value_type = Option<f64>)]
        min_px: Pixels = Pixels(1.0),
        /// Rows at most.
        #[param(value_type = Option<u32>, minimum = 10, maximum = 60000)]
        max_nodes: Within<10, 60_000> = Within(2000),
    }
}

/// The unit of pinned pages, if these are asked for.
pub fn pinned(pinned: bool, unit: Option<PinUnit>) -> tracehound_query::Result<Option<PinUnit>> {
    match unit {
        Some(_) if !pinned => Err(QueryError::bad("pin_unit", "it goes with `pinned=true`")),
        unit => Ok(pinned.then(|| unit.unwrap_or_default())),
    }
}

impl Shape {
    /// What may be seen.
    pub const fn limits(&self) -> Limits {
        Limits { width: self.width.0 as u32, min_px: self.min_px.0, max_nodes: self.max_nodes.0 as usize }
    }
}

recording_route! {
    /// A flame graph, folded to what can be seen.
    flamegraph at "/api/v1/recordings/{id}/flamegraph", tag "functions", answers Flamegraph:
    |ask, measure: Measure, side: StackSide, times: Window, filters: Filters, direction: Direction, shape: Shape| {
        let params = FlamegraphParams {
            metric: measure.metric,
            unit: measure.unit,
            window: window(&times, &measure)?,
            filter: filters.of(ask.trace)?,
            root: shape.root.map(|root| root.0),
            width: shape.limits().width,
            min_px: shape.limits().min_px,
            max_nodes: shape.limits().max_nodes,
            inverted: direction.inverted,
            freeing: side.freeing,
            pinned: pinned(side.pinned, side.pin_unit)?,
        };
        Ok(flamegraph::run(ask.trace, ask.symbols, &params, ask.cancel)?)
    }
}
