//! `diff/flamegraph`: two instants or windows of a recording, or two recordings, as one flame graph.

use axum::response::Response;
use tracehound_api::diff_flamegraph::{DiffFlamegraph, DiffWidth};
use tracehound_api::pins::PinUnit;
use tracehound_query::diff_flamegraph::{self, DiffFlamegraphParams};

use super::diff::{Sides, need_module, other_side};
use super::flamegraph::{Direction, Shape, pinned};
use super::shared::Filters;
use super::{Problems, RecordingId};
use crate::http::answer::{RecordingRequest, Result};
use crate::http::params::parameters;

parameters! {
    /// What rows are as wide as, and what is added up.
    Widths {
        /// `larger`: the larger side; `change`: the change alone.
        #[param(inline, value_type = Option<DiffWidth>)]
        width_of: DiffWidth = DiffWidth::Larger,
        /// Resident pages that only blocks from below a function hold, instead of blocks; for `metric=live` and
        /// `metric=peak`.
        pinned: bool = false,
        /// What of these pages is given back as a whole; with `pinned=true`.
        #[param(inline, value_type = Option<PinUnit>)]
        pin_unit: Option<PinUnit> = None,
    }
}

/// What changed, as a flame graph with both sides at every function.
#[utoipa::path(
    get,
    path = "/api/v1/recordings/{id}/diff/flamegraph",
    tag = "functions",
    params(RecordingId, Sides, Widths, Filters, Direction, Shape),
    responses((status = 200, body = DiffFlamegraph), Problems)
)]
pub async fn diff_flamegraph(asked: RecordingRequest) -> Result<Response> {
    type Question = (Sides, Widths, Filters, Direction, Shape);
    let (sides, ..): Question = asked.query()?;
    let other = other_side(&asked, &sides).await?;
    let revision = other.as_ref().map_or(0, |other| other.revision);
    asked
        .answer_with(revision, move |ask, (sides, widths, filters, direction, shape): Question| {
            let params = DiffFlamegraphParams {
                metric: sides.metric,
                unit: sides.unit,
                filter: filters.filter()?,
                width_of: widths.width_of,
                pinned: pinned(widths.pinned, widths.pin_unit)?,
                root: shape.root.map(|root| root.0),
                limits: shape.limits(),
                inverted: direction.inverted,
                normalize: sides.normalize,
            };
            need_module(ask, other.as_ref(), &params.filter)?;
            sides.compare(ask, other.as_ref(), |before, after| diff_flamegraph::run(before, after, &params, ask.cancel))
        })
        .await
}
