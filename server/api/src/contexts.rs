//! `contexts`: what each request of the program allocated.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Amount, Exactness};

/// Sums by request context, largest first by what is live at the end, then by what was allocated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Contexts {
    /// `heaptrace.contexts/1`.
    pub schema: String,
    /// All contexts that some event belongs to.
    pub contexts: Vec<RequestContext>,
    /// How far the answer can be trusted.
    pub exactness: Exactness,
}

/// One request context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestContext {
    /// Id, as the program gave it to `tracehound_context_set`.
    pub id: u64,
    /// Name, if the program gave one.
    pub name: Option<String>,
    /// Blocks that were allocated in it.
    pub allocations: Amount,
    /// Of these, those that live at the end.
    pub live: Amount,
    /// Of the others, those that were freed outside of it: in another context, or in none.
    pub freed_elsewhere: Amount,
    /// Largest sum of its live bytes.
    pub peak_bytes: u64,
}
