//! Everything after recording: `ingest` builds the index of a recording, `trace` is the index, `query` answers
//! questions about it, `api` is how answers look on the wire.

pub mod api;
pub mod ingest;
pub mod query;
pub mod trace;
