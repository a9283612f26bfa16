//! `modules`: what was loaded, and where its names come from.

use tracehound_api::modules::Modules;

use crate::http::route::recording_route;

recording_route! {
    /// All modules that were ever loaded, with the quality of their symbols on this machine.
    modules at "/api/v1/recordings/{id}/modules", tag "modules", answers Modules:
    |ask| {
        Ok(ask.symbolizer.modules(ask.trace, ask.cancel).map_err(tracehound_query::QueryError::from)?)
    }
}
