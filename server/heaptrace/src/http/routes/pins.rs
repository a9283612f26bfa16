//! `pins`: whose blocks hold pages.

use tracehound_api::pins::{PinGroup, PinUnit, Pins};
use tracehound_query::pins::{self, PinsParams};

use crate::http::params::{Within, parameters};
use crate::http::route::recording_route;
use crate::query_params;

parameters! {
    /// Which pins.
    PinsQuery {
        /// One instant: `1.5s`, nanoseconds, `start`, `peak`, `end`, `50%`, or the label of a mark.
        #[param(example = "peak")]
        at: Option<String> = None,
        /// Of the looks at the pages the last one up to the moment, not the one most like it.
        before: bool = false,
        /// What a row is.
        by: PinGroup = PinGroup::Function,
        /// What is given back as a whole.
        unit: PinUnit = PinUnit::Page,
        /// Most rows.
        #[param(value_type = Option<u32>, minimum = 1, maximum = 10000)]
        limit: Within<1, 10_000> = Within(100),
    }
}

recording_route! {
    /// Whose blocks hold pages in memory, and what would be given back if they were elsewhere.
    pins at "/api/v1/recordings/{id}/pins", tag "memory", answers stored Pins:
    |ask, asked: PinsQuery| {
        let at = query_params::window(None, None, asked.at.as_deref())?.at;
        let limit = Some(asked.limit.0 as usize);
        let params = PinsParams { at, before: asked.before, by: asked.by, unit: asked.unit, limit };
        Ok(pins::run(ask.trace, ask.symbols, &params, ask.cancel)?)
    }
}
