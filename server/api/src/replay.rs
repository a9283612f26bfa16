//! `heaptrace replay`: what the recorded calls would have taken of other allocators.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a recording would take with other allocators.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Replay {
    /// `heaptrace.replay/1`.
    pub schema: String,
    /// Recordings of one program that the ranges of the rows hold; 1 unless they were replayed together.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub recordings: u64,
    /// What was recorded; of several recordings, the one with the highest peak.
    pub recorded: RecordedMemory,
    /// The recording's own allocator, replayed: how far replay is off. None where that allocator is not at hand. Of several
    /// recordings, the one that is furthest off.
    pub self_check: Option<SelfCheck>,
    /// One row for each allocator and its settings.
    pub rows: Vec<ReplayRow>,
}

const fn one() -> u64 {
    1
}

// serde gives a reference.
#[expect(clippy::trivially_copy_pass_by_ref)]
const fn is_one(recordings: &u64) -> bool {
    *recordings == 1
}

/// Resident anonymous memory of the recorded process without the recorder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecordedMemory {
    /// Its allocator.
    pub allocator: String,
    /// Most of it.
    pub peak_bytes: u64,
    /// Of it not the allocator's: stacks, data of modules, the program's own mappings. Every row has as much of it as was recorded
    /// at each time.
    pub other_bytes: u64,
}

/// The recording's own allocator, replayed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SelfCheck {
    /// Most that it takes.
    pub peak_bytes: u64,
    /// What it takes at the moment at which the recorder saw most.
    #[serde(default)]
    pub then_bytes: u64,
    /// The difference of that to what was recorded, as a part of what was recorded.
    pub error: f64,
}

/// What was replayed of a recording, as it is kept beside its index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct KeptReplay {
    /// `heaptrace.kept_replay/1`.
    pub schema: String,
    /// All rows, whenever they were made. None: nothing has been replayed yet, which `command` does.
    pub replay: Option<Replay>,
    /// Whether the self-check is near enough for a verdict, and not for figures alone.
    pub checked: bool,
    /// Which row, counted from 0, would hold least at its peak. None where that is not a tenth less than was recorded,
    /// and where the self-check allows no verdict.
    pub smaller: Option<u64>,
    /// How to replay the recording.
    pub command: String,
}

/// What an allocator took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplayRow {
    /// Name and version, as the allocator calls itself.
    pub allocator: String,
    /// Its settings.
    pub settings: BTreeMap<String, String>,
    /// Resident anonymous memory at most: lowest and highest over the orders that were tried, and over all recordings.
    pub peak_bytes: [u64; 2],
    /// The same at the end.
    pub end_bytes: [u64; 2],
    /// Processor time of the calls, that of the replay itself included.
    pub cpu_ns: u64,
    /// How to start the program so. Empty where the recorded allocator is inside the program, which no variable replaces.
    pub command: String,
    /// Why there are no figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}
