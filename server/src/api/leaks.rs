//! `heaptrace leaks --json`, `GET recordings/{id}/leaks`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Amount, Exactness, Frame};

/// Blocks that were live at the end, by allocating backtrace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Leaks {
    /// `heaptrace.leaks/1`.
    pub schema: String,
    /// Sum over all sites, suppressed ones not included.
    pub leaked: Amount,
    /// Sum over suppressed sites.
    pub suppressed: Amount,
    /// Sites that exist, of which `sites` is a part.
    pub total_sites: u64,
    /// Largest first.
    pub sites: Vec<LeakSite>,
    /// How far the figures can be trusted.
    pub exactness: Exactness,
}

/// One leaking backtrace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LeakSite {
    /// Handle, `s12`.
    pub id: String,
    /// Leaked bytes.
    pub bytes: u64,
    /// Leaked blocks.
    pub count: u64,
    /// Birth of the first leaked block.
    pub first_ns: u64,
    /// Birth of the last leaked block.
    pub last_ns: u64,
    /// What the history of the site says.
    pub verdict: Verdict,
    /// Leaf first, from the caller of the allocating function on.
    pub stack: Vec<Frame>,
}

/// A judgement on a site, with its reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Verdict {
    /// The judgement.
    pub kind: VerdictKind,
    /// Growth of the site's live bytes, for `growing`.
    pub bytes_per_second: f64,
    /// 0 to 1.
    pub confidence: f64,
    /// The reason in words, with its numbers.
    pub why: String,
}

/// What a site does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VerdictKind {
    /// Live bytes keep growing.
    Growing,
    /// Live bytes grew to a level and stayed there.
    Bounded,
    /// Allocated once, at one moment, and kept.
    OneTime,
    /// Too little to say.
    Unclear,
}
