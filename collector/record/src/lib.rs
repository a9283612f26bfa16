//! Recording of events inside the application's calls of `malloc` and `free`: never allocates, never panics, blocks
//! only for back-pressure.

#![cfg_attr(
    loom,
    allow(dead_code, unused_imports, reason = "a model has stand-ins for what asks the kernel or the processor")
)]

pub mod attach;
pub mod nested;
pub mod other_calls;
pub mod publish;
pub mod record;
pub mod request_context;
