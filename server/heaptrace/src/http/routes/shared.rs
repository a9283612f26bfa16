//! Parameters that many routes share.

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error;
use tracehound_api::breakdown::BreakdownGroup;
use tracehound_api::diff_flamegraph::DiffWidth;
use tracehound_api::functions::GroupBy;
use tracehound_api::pins::{PinGroup, PinUnit};
use tracehound_api::{FramesShown, Metric, Unit};
use tracehound_index::Trace;
use tracehound_query::Filter;
use tracehound_query::allocations::AllocationSort;
use tracehound_query::churn::ChurnSort;
use tracehound_query::functions::FunctionSort;
use tracehound_query::sites::SiteSort;

use crate::http::params::{FromText, parameters};
use crate::query_params::{self, filter_texts};

parameters! {
    /// The half-open window of time `[from, to)`.
    Window {
        /// Start of the window: `1.5s`, `200ms`, nanoseconds, `start`, `peak`, `end`, `50%`, or the label of a mark.
        #[param(example = "1.5s")]
        from: Option<String> = None,
        /// End of the window.
        #[param(example = "end")]
        to: Option<String> = None,
    }
}

parameters! {
    /// What is measured.
    Measure {
        /// What is measured.
        #[param(inline, value_type = Option<Metric>)]
        metric: Metric = Metric::default(),
        /// What is added up.
        #[param(inline, value_type = Option<Unit>)]
        unit: Unit = Unit::default(),
        /// One instant, in place of a window; for `metric=live`.
        #[param(example = "peak")]
        at: Option<String> = None,
    }
}

parameters! {
    /// Which blocks count, and which frames of their stacks are shown.
    Filters {
        /// Only blocks whose stack has a function or source file that matches this regular expression; of several, one a
        /// line, each must. One with an `@` is also tried on `name@file:line@module`, here and in the others.
        focus: Option<String> = None,
        /// Only blocks whose stack has none that matches.
        ignore: Option<String> = None,
        /// Matching functions disappear from the stacks.
        hide: Option<String> = None,
        /// Only matching functions stay in the stacks.
        show: Option<String> = None,
        /// What is above the outermost match (towards `main`) disappears; blocks without a match do not count.
        show_from: Option<String> = None,
        /// Transforms of the stacks, one a line, applied in this order behind the filters above:
        /// `merge-function:NAME`, `merge-node:ROW`, `drop-function:NAME`, `collapse-function:NAME`, `collapse-module:NAME`,
        /// `collapse-recursion[:NAME]`, `collapse-direct-recursion[:NAME]`, `focus-function:NAME`,
        /// `focus-inverted:NAME`, `focus-subtree:ROW`. A name is exact: a function's, `name@file@module`, or a module's.
        #[param(example = "merge-function:operator new(unsigned long)")]
        transform: Option<String> = None,
        /// Only blocks whose stack has a frame in a module that matches.
        module: Option<String> = None,
        /// Only blocks allocated by the thread with this id or name.
        thread: Option<String> = None,
        /// Only blocks allocated in the request context with this id, or in those whose name matches.
        context: Option<String> = None,
        /// Only blocks whose freeing stack has a matching function or source file.
        freed_by: Option<String> = None,
        /// Only blocks of at least this size.
        #[param(example = "64k")]
        min_size: Option<String> = None,
        /// Only blocks of at most this size.
        #[param(example = "1MiB")]
        max_size: Option<String> = None,
        /// Only blocks that lived at least this long.
        #[param(example = "10ms")]
        min_lifetime: Option<String> = None,
        /// Only blocks that lived at most this long.
        #[param(example = "1s")]
        max_lifetime: Option<String> = None,
        /// `leaked`, `temporary` or `freed`.
        lifetime: Option<String> = None,
        /// Only blocks that reach into these addresses, hexadecimal, the end not included.
        #[param(example = "0x7f0012340000..0x7f0012350000")]
        address: Option<String> = None,
        /// `user` leaves out an interpreter's own frames around the program's functions, `all` does not.
        #[param(inline, value_type = Option<FramesShown>)]
        #[allow(dead_code, reason = "it is checked here; which names a query gets is decided before it reads parameters")]
        frames: FramesShown = FramesShown::User,
    }
}

filter_texts!(Filters, texts);

impl Filters {
    /// The filter, of a recording that has what it is about.
    pub fn of(&self, trace: &Trace) -> tracehound_query::Result<Filter> {
        let filter = self.filter()?;
        filter.need_module(trace)?;
        Ok(filter)
    }
}

impl Window {
    /// What the queries take.
    pub fn window(&self) -> tracehound_query::Result<tracehound_query::Window> {
        query_params::window(self.from.as_deref(), self.to.as_deref(), None)
    }
}

/// The window, or the instant.
pub fn window(times: &Window, measure: &Measure) -> tracehound_query::Result<tracehound_query::Window> {
    let window = query_params::window(times.from.as_deref(), times.to.as_deref(), measure.at.as_deref())?;
    query_params::instant_is_for(measure.metric, &window)?;
    Ok(window)
}

/// Reads an enumeration by its names on the wire.
pub fn wire<T: for<'de> Deserialize<'de>>(text: &str) -> Result<T, String> {
    T::deserialize(text.into_deserializer()).map_err(|error: Error| {
        let message = error.to_string();
        // serde says "unknown variant `x`, expected one of `a`, `b`".
        message.split_once("expected ").map_or_else(|| message.clone(), |(_, accepted)| accepted.to_owned())
    })
}

macro_rules! on_the_wire {
    ($($type:ty),+) => {$(
        impl FromText for $type {
            fn from_text(text: &str) -> Result<Self, String> {
                wire(text)
            }
        }
    )+};
}
on_the_wire!(Metric, Unit, GroupBy, PinGroup, PinUnit, BreakdownGroup, DiffWidth, FramesShown);
on_the_wire!(AllocationSort, ChurnSort, FunctionSort, SiteSort);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_has_its_row_in_the_document() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/http-api.md");
        let document = std::fs::read_to_string(path).unwrap();
        let table = document.split("**Filters**").nth(1).unwrap().split("Transforms, with").next().unwrap();
        for parameter in <Filters as utoipa::IntoParams>::into_params(|| None) {
            let name = format!("`{}`", parameter.name);
            let is_first = |line: &str| line.split('|').nth(1).is_some_and(|cell| cell.contains(&name));
            assert!(table.lines().any(is_first), "docs/http-api.md has no row for {name}");
        }
    }

    #[test]
    fn enumerations_go_by_their_wire_names() {
        assert_eq!(Metric::from_text("temporary"), Ok(Metric::Temporary));
        assert!(Metric::from_text("Live").unwrap_err().contains("`live`, `peak`"));
    }
}
