//! `diff`: two instants or windows of a recording, or two recordings, by backtrace.

use axum::response::Response;
use tracehound_api::diff::Diff;
use tracehound_api::{Metric, Unit};
use tracehound_index::Trace;
use tracehound_query::diff::{self, DiffParams, Side};
use tracehound_query::{Filter, TimeExpr, Window};

use super::shared::Filters;
use super::{Problems, RecordingId};
use crate::http::answer::{Ask, RecordingRequest, Result};
use crate::http::params::{Within, parameters};
use crate::http::problem::HttpProblem;
use crate::http::served::Snapshot;
use crate::query_params;

parameters! {
    /// The two sides.
    Sides {
        /// The first instant [default: start].
        from: Option<String> = None,
        /// The second instant [default: end].
        to: Option<String> = None,
        /// Id of another recording, which is then the second side.
        other: Option<String> = None,
        /// The instant of this recording, with `other` [default: end].
        at: Option<String> = None,
        /// The instant of the other one [default: end].
        other_at: Option<String> = None,
        /// The first window of two of this recording, such as `10s..20s`; a missing end is that of the recording.
        before: Option<String> = None,
        /// The second window.
        after: Option<String> = None,
        /// Scale the first side so that both have the same total: what is left is a change of shares.
        normalize: bool = false,
        /// What is compared; anything but `live` needs `other`, or `before` and `after`.
        #[param(inline, value_type = Option<Metric>)]
        metric: Metric = Metric::Live,
        /// What the order is about.
        #[param(inline, value_type = Option<Unit>)]
        unit: Unit = Unit::Bytes,
    }
}

parameters! {
    /// Which rows.
    Rows {
        /// Rows at most.
        #[param(value_type = Option<u32>, minimum = 1, maximum = 10000)]
        limit: Within<1, 10_000> = Within(200),
        /// Rows to skip.
        #[param(value_type = Option<u64>)]
        offset: Within<0, { u32::MAX as u64 }> = Within(0),
    }
}

/// What changed between the two sides, largest change first.
#[utoipa::path(
    get,
    path = "/api/v1/recordings/{id}/diff",
    tag = "functions",
    params(RecordingId, Sides, Rows, Filters),
    responses((status = 200, body = Diff), Problems)
)]
pub async fn diff(asked: RecordingRequest) -> Result<Response> {
    let (sides, _, _): (Sides, Rows, Filters) = asked.query()?;
    let other = other_side(&asked, &sides).await?;
    let revision = other.as_ref().map_or(0, |other| other.revision);
    asked
        .answer_with(revision, move |ask, (sides, rows, filters): (Sides, Rows, Filters)| {
            let params = DiffParams {
                metric: sides.metric,
                unit: sides.unit,
                filter: filters.filter()?,
                offset: rows.offset.0 as usize,
                limit: Some(rows.limit.0 as usize),
                normalize: sides.normalize,
            };
            need_module(ask, other.as_ref(), &params.filter)?;
            sides.compare(ask, other.as_ref(), |before, after| diff::run(before, after, &params, ask.cancel))
        })
        .await
}

/// Checks the sides against one another, and opens the other recording, if there is one.
pub async fn other_side(asked: &RecordingRequest, sides: &Sides) -> Result<Option<Snapshot>> {
    for (name, wrong) in [
        ("from", sides.other.is_some() && sides.from.is_some()),
        ("to", sides.other.is_some() && sides.to.is_some()),
        ("at", sides.other.is_none() && sides.at.is_some()),
        ("other_at", sides.other.is_none() && sides.other_at.is_some()),
    ] {
        if wrong {
            return Err(HttpProblem::parameter(
                name,
                "two instants of a recording are from and to; with other they are at and other_at",
            ));
        }
    }
    let has_windows = sides.before.is_some() && sides.after.is_some();
    for (name, wrong) in [
        ("before", sides.before.is_some() && !has_windows),
        ("after", sides.after.is_some() && !has_windows),
        ("before", has_windows && (sides.other.is_some() || sides.from.is_some() || sides.to.is_some())),
    ] {
        if wrong {
            return Err(HttpProblem::parameter(
                name,
                "before and after are two windows of one recording, without from, to and other",
            ));
        }
    }
    let of_instants = sides.at.is_some() || sides.other_at.is_some() || sides.other.is_none() && !has_windows;
    if sides.metric != Metric::Live && of_instants {
        return Err(HttpProblem::parameter("metric", "two instants are compared by what is live"));
    }
    match &sides.other {
        Some(id) => Ok(Some(asked.other(id)?.ready().await?)),
        None => Ok(None),
    }
}

/// Refuses a filter by a module that neither side has; what one side alone has, has come or gone.
pub fn need_module(ask: &Ask<'_>, other: Option<&Snapshot>, filter: &Filter) -> Result<()> {
    let is_there = |other: &Snapshot| Ok::<_, HttpProblem>(filter.need_module(other.parts()?.0).is_ok());
    match filter.need_module(ask.trace) {
        Err(error) if !other.map_or(Ok(false), is_there)? => Err(error.into()),
        _ => Ok(()),
    }
}

impl Sides {
    /// Asks a question about both sides.
    pub fn compare<T>(
        &self,
        ask: &Ask<'_>,
        other: Option<&Snapshot>,
        run: impl FnOnce(Side<'_>, Side<'_>) -> tracehound_query::Result<T>,
    ) -> Result<T> {
        let instant = |name: &str, text: &Option<String>, default| {
            if self.metric != Metric::Live {
                return Ok(Window::default());
            }
            let at = text.as_deref().map(|text| query_params::parse(name, text)).transpose()?;
            Ok::<_, HttpProblem>(Window { at: Some(at.unwrap_or(default)), ..Window::default() })
        };
        let words = |text: &Option<String>, default: &str| text.clone().unwrap_or_else(|| default.to_owned());
        let here = |window, label| Side { trace: ask.trace, symbols: ask.symbols, window, label };
        if let (Some(before), Some(after)) = (&self.before, &self.after) {
            let first = query_params::window_between("before", before)?;
            let second = query_params::window_between("after", after)?;
            return Ok(run(here(&first, before), here(&second, after))?);
        }
        let Some(other) = other else {
            let before = instant("from", &self.from, TimeExpr::Start)?;
            let after = instant("to", &self.to, TimeExpr::End)?;
            let labels = (words(&self.from, "start"), words(&self.to, "end"));
            return Ok(run(here(&before, &labels.0), here(&after, &labels.1))?);
        };
        let (trace, symbols) = other.parts()?;
        let before = instant("at", &self.at, TimeExpr::End)?;
        let after = instant("other_at", &self.other_at, TimeExpr::End)?;
        let label = |trace: &Trace, at: String| {
            let name = trace.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
            if self.metric == Metric::Live { format!("{name} at {at}") } else { name }
        };
        let labels = (label(ask.trace, words(&self.at, "end")), label(trace, words(&self.other_at, "end")));
        let there = Side { trace, symbols, window: &after, label: &labels.1 };
        Ok(run(here(&before, &labels.0), there)?)
    }
}
