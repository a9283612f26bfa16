//! `memory`: live blocks against pages and mappings.

use tracehound_api::ledger::MemoryHistory;
use tracehound_api::memory::Memory;
use tracehound_query::memory::{self, MemoryParams};

use super::shared::Window;
use crate::http::params::{Within, parameters};
use crate::http::route::recording_route;
use crate::query_params;

parameters! {
    /// Which moment.
    Moment {
        /// One instant: `1.5s`, nanoseconds, `start`, `peak`, `end`, `50%`, or the label of a mark.
        #[param(example = "peak")]
        at: Option<String> = None,
        /// Of the looks at the pages the last one up to the moment, not the one most like it.
        before: bool = false,
        /// Most backtraces that mapped memory.
        #[param(value_type = Option<u32>, minimum = 1, maximum = 10000)]
        limit: Within<1, 10_000> = Within(100),
    }
}

recording_route! {
    /// Where memory was at one moment: live blocks, the pages that they lie in, and who mapped what.
    memory at "/api/v1/recordings/{id}/memory", tag "memory", answers Memory:
    |ask, asked: Moment| {
        let at = query_params::window(None, None, asked.at.as_deref())?.at;
        let params = MemoryParams { at, before: asked.before, limit: Some(asked.limit.0 as usize) };
        Ok(memory::run(ask.trace, ask.symbols, &params, ask.cancel)?)
    }
}

parameters! {
    /// How fine.
    Looks {
        /// Most looks.
        #[param(value_type = Option<u32>, minimum = 1, maximum = 200)]
        points: Within<1, { memory::MAX_LOOKS as u64 }> = Within(40),
    }
}

recording_route! {
    /// What resident memory was made of over time: the ledger at several of the recorder's looks at the page tables.
    memory_history at "/api/v1/recordings/{id}/memory_history", tag "memory", answers MemoryHistory:
    |ask, window: Window, looks: Looks| {
        let (window, points) = (window.window()?, looks.points.0 as usize);
        Ok(memory::history(ask.trace, ask.symbols, &window, points, ask.cancel)?)
    }
}
