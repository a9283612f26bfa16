//! `GET recordings/{id}/threads`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Amount, Exactness};

/// Who allocates, who frees whose, in the window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Threads {
    /// `heaptrace.threads/1`.
    pub schema: String,
    /// Start of the window.
    pub from_ns: u64,
    /// End of the window.
    pub to_ns: u64,
    /// All threads that made an event, by id.
    pub threads: Vec<Thread>,
    /// Frees in the window by (allocating thread, freeing thread).
    pub pairs: Vec<ThreadPair>,
    /// How far the figures can be trusted.
    pub exactness: Exactness,
}

/// One thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Thread {
    /// Recording-wide id, from 1.
    pub id: u32,
    /// The kernel's id.
    pub os_thread: u32,
    /// Last known name.
    pub name: String,
    /// First event.
    pub started_ns: u64,
    /// End, if it was seen.
    pub ended_ns: Option<u64>,
    /// Allocated in the window.
    pub allocated: Amount,
    /// Freed by this thread in the window.
    pub freed: Amount,
    /// Allocated by this thread and live at the end of the window.
    pub live: Amount,
    /// Allocated in the window and live at the end of the recording.
    pub leaked: Amount,
    /// Allocated in the window and temporary.
    pub temporary: Amount,
}

/// One cell of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ThreadPair {
    /// Thread that allocated the blocks.
    pub allocated_by: u32,
    /// Thread that freed them.
    pub freed_by: u32,
    /// How much.
    pub amount: Amount,
}
