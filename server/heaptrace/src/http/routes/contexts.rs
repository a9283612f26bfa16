//! `contexts`: what each request of the program allocated.

use tracehound_api::contexts::Contexts;
use tracehound_query::contexts;

use crate::http::route::recording_route;

recording_route! {
    /// Request contexts with what they allocated, what lives on, and what was freed elsewhere.
    contexts at "/api/v1/recordings/{id}/contexts", tag "contexts", answers Contexts:
    |ask| { Ok(contexts::run(ask.trace, ask.cancel)?) }
}
