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
    /// Suppressions that hit something, and what.
    #[serde(default)]
    pub suppressions: Vec<UsedSuppression>,
    /// The suppressed sites, largest first, if they were asked for; without verdicts.
    #[serde(default)]
    pub suppressed_sites: Vec<SuppressedSite>,
    /// Sites that exist, of which `sites` is a part.
    pub total_sites: u64,
    /// Largest first.
    pub sites: Vec<LeakSite>,
    /// The same by function, largest first, if they were asked for: one row for all sites that a function of the program
    /// allocated at.
    #[serde(default)]
    pub functions: Vec<LeakFunction>,
    /// Functions that exist, of which `functions` is a part; 0 if they were not asked for.
    #[serde(default)]
    pub total_functions: u64,
    /// Sites that kept growing, but whose blocks were freed when the program ended: not leaked, and not in the sums.
    /// Bytes and blocks are those before the end.
    #[serde(default)]
    pub freed_at_exit: Vec<LeakSite>,
    /// Address space that the program mapped piece by piece and never unmapped, largest first: in no sum of blocks. Only in
    /// answers about the whole recording.
    #[serde(default)]
    pub still_mapped: Vec<MappedSite>,
    /// How far the figures can be trusted.
    pub exactness: Exactness,
}

/// A backtrace that mapped address space which was mapped to the end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MappedSite {
    /// Bytes of address space; how many of them are resident is in `memory`.
    pub bytes: u64,
    /// Pieces.
    pub count: u64,
    /// When the first was mapped.
    pub first_ns: u64,
    /// When the last was mapped.
    pub last_ns: u64,
    /// Leaf first, from the caller of the mapping function on.
    pub stack: Vec<Frame>,
}

/// A suppression that hit something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UsedSuppression {
    /// As it was written.
    pub pattern: String,
    /// Where it comes from: a path, `--suppress`, `built in`.
    pub origin: String,
    /// Bytes that it hid; a site counts for the first suppression that fits.
    pub bytes: u64,
    /// Blocks.
    pub count: u64,
    /// Sites.
    pub sites: u64,
}

/// A site that was suppressed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SuppressedSite {
    /// Handle, `s12`.
    pub id: String,
    /// Leaked bytes.
    pub bytes: u64,
    /// Leaked blocks.
    pub count: u64,
    /// The suppression.
    pub pattern: String,
    /// Leaf first, from the caller of the allocating function on.
    pub stack: Vec<Frame>,
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
    /// Allocation of the first leaked block.
    pub first_ns: u64,
    /// Allocation of the last leaked block.
    pub last_ns: u64,
    /// What the history of the site says.
    pub verdict: Verdict,
    /// Leaf first, from the caller of the allocating function on.
    pub stack: Vec<Frame>,
}

/// What one function leaks, at all of its sites.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LeakFunction {
    /// The innermost function of the program on the backtraces, or an address.
    pub function: String,
    /// Its module.
    pub module: Option<String>,
    /// Source file, where there is one.
    pub file: Option<String>,
    /// Line of its largest site.
    pub line: Option<u32>,
    /// No function of the program is on the backtraces: this one is a library's.
    pub library: bool,
    /// Leaked bytes.
    pub bytes: u64,
    /// Leaked blocks.
    pub count: u64,
    /// Allocation of the first leaked block.
    pub first_ns: u64,
    /// Allocation of the last leaked block.
    pub last_ns: u64,
    /// Its sites, suppressed ones not included.
    pub total_sites: u64,
    /// Handles of the largest of them, largest first.
    pub sites: Vec<String>,
    /// Live bytes of these sites at equal steps of the recording, the last at its end.
    pub curve: Vec<i64>,
    /// What the history of all sites together says.
    pub verdict: Verdict,
}

/// A judgement on a site, with its reason.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct Verdict {
    /// The judgement.
    pub kind: VerdictKind,
    /// What the history looks like, which is more than the judgement.
    #[serde(default)]
    pub shape: Shape,
    /// Growth of the site's live bytes, for `growing`.
    pub bytes_per_second: f64,
    /// Lower end of the interval that holds the rate with 95 % confidence, for `growing`.
    #[serde(default)]
    pub bytes_per_second_low: Option<f64>,
    /// Its upper end.
    #[serde(default)]
    pub bytes_per_second_high: Option<f64>,
    /// Where it leads at this rate, for `growing`.
    #[serde(default)]
    pub forecast: Option<Forecast>,
    /// Most of it was freed when the program ended, and not before; the judgement is on the time until then.
    #[serde(default)]
    pub freed_at_exit: bool,
    /// Growth has stopped, but of many blocks that came over a long time none was ever freed: a cache frees.
    #[serde(default)]
    pub never_freed: bool,
    /// 0 to 1.
    pub confidence: f64,
    /// The reason in words, with its numbers.
    pub why: String,
}

/// Live bytes of a site at a later time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Forecast {
    /// How long after the end of the recording.
    pub after_ns: u64,
    /// Live bytes then.
    pub bytes: u64,
}

/// What a site does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VerdictKind {
    /// Live bytes keep growing.
    Growing,
    /// Live bytes grew to a level and stayed there, or swing below one.
    Bounded,
    /// Allocated once, at one moment, and kept.
    OneTime,
    /// Too little to say.
    #[default]
    Unclear,
}

/// What a site's history looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// The same number of live bytes at every moment.
    Constant,
    /// Everything that is left was allocated at one moment.
    OneTime,
    /// Live bytes rose to a level and stayed, or swing below one.
    Bounded,
    /// Live bytes keep growing.
    Growing,
    /// A few jumps, perhaps at marks, and nothing between them.
    Stepwise,
    /// None of these.
    #[default]
    Unclear,
}
