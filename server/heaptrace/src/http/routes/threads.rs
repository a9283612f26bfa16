//! `threads`: who allocates, who frees whose.

use tracehound_api::threads::Threads;
use tracehound_query::threads::{self, ThreadsParams};

use super::shared::{Filters, Window};
use crate::http::route::recording_route;

recording_route! {
    /// Threads with what they did in the window, and who freed whose blocks.
    threads at "/api/v1/recordings/{id}/threads", tag "threads", answers Threads:
    |ask, times: Window, filters: Filters| {
        let params = ThreadsParams { window: times.window()?, filter: filters.of(ask.trace)? };
        Ok(threads::run(ask.trace, ask.symbols, &params, ask.cancel)?)
    }
}
