//! What runs inside the application's own calls: never allocates, never panics, blocks only for back-pressure.

pub mod attach;
pub mod clock;
pub mod nested;
pub mod other_calls;
mod prefetch;
pub mod publish;
mod python;
pub mod record;
pub mod request_context;
pub mod room;
pub mod unwind;
