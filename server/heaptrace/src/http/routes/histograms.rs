//! `sizes`, `lifetimes`: how large blocks are and how long they live.

use tracehound_api::histograms::{Lifetimes, Sizes};
use tracehound_query::{lifetimes, sizes};

use super::shared::{Filters, Window};
use crate::http::route::recording_route;

recording_route! {
    /// Lifetimes of the blocks allocated in the window, alone and against size.
    lifetimes at "/api/v1/recordings/{id}/lifetimes", tag "allocations", answers Lifetimes:
    |ask, times: Window, filters: Filters| {
        let params = lifetimes::LifetimesParams { window: times.window()?, filter: filters.of(ask.trace)? };
        Ok(lifetimes::run(ask.trace, ask.symbols, &params, ask.cancel)?)
    }
}

recording_route! {
    /// Sizes of the blocks allocated in the window.
    sizes at "/api/v1/recordings/{id}/sizes", tag "allocations", answers Sizes:
    |ask, times: Window, filters: Filters| {
        let params = sizes::SizesParams { window: times.window()?, filter: filters.of(ask.trace)? };
        Ok(sizes::run(ask.trace, ask.symbols, &params, ask.cancel)?)
    }
}
