//! `flamegraph`: a pruned tree of functions; zooming asks again from a row.

use axum::response::Response;
use tracehound_api::flamegraph::Flamegraph;
use tracehound_query::flamegraph::{self, FlamegraphParams};
use tracehound_query::pruned::Limits;

use super::shared::{Filters, Measure, Window, window};
use super::{Problems, RecordingId};
use crate::http::answer::{RecordingRequest, Result};
use crate::http::params::{FromText, Within, parameters};

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
        #[param(value_type = Option<u32>, minimum = 10, maximum = 20000)]
        max_nodes: Within<10, 20_000> = Within(2000),
    }
}

impl Shape {
    /// What may be seen.
    pub const fn limits(&self) -> Limits {
        Limits { width: self.width.0 as u32, min_px: self.min_px.0, max_nodes: self.max_nodes.0 as usize }
    }
}

type Question = (Measure, Window, Filters, Direction, Shape);

/// A flame graph, folded to what can be seen.
#[utoipa::path(
    get,
    path = "/api/v1/recordings/{id}/flamegraph",
    tag = "functions",
    params(RecordingId, Measure, Window, Filters, Direction, Shape),
    responses((status = 200, body = Flamegraph), Problems)
)]
pub async fn flamegraph(asked: RecordingRequest) -> Result<Response> {
    asked
        .answer(|ask, (measure, times, filters, direction, shape): Question| {
            let params = FlamegraphParams {
                metric: measure.metric,
                unit: measure.unit,
                window: window(&times, &measure)?,
                filter: filters.filter()?,
                root: shape.root.map(|root| root.0),
                width: shape.limits().width,
                min_px: shape.limits().min_px,
                max_nodes: shape.limits().max_nodes,
                inverted: direction.inverted,
            };
            Ok(flamegraph::run(ask.trace, ask.symbols, &params, ask.cancel)?)
        })
        .await
}
