//! State of the pairing between two runs: totals, and the unfinished operation of each thread.

use serde::{Deserialize, Serialize};

use super::occupancy::OccupiedRun;
use crate::live_map::LiveBlock;
use tracehound_format::record::RequestDetails;
use tracehound_index::facts::{EventCounts, PeakPosition, TEMPORARY_WITHIN};
use tracehound_index::schema::EventPage;

/// First half of a realloc, waiting for the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HalfRealloc {
    pub(super) address: u64,
    pub(super) origin: u32,
    /// Row of the old block, if it was seen.
    pub(super) row: Option<u64>,
    #[serde(skip)]
    pub(super) live: Option<LiveBlock>,
    /// The old block was freed already, because its address was handed out again.
    pub(super) split: bool,
    /// The old block was there before recording began.
    #[serde(default)]
    pub(super) existing: bool,
    /// Records of a signal handler that may come before the second half.
    #[serde(default)]
    pub(super) between: u32,
}

/// Rows of a thread's last allocations, latest first.
pub(super) type LastAllocs = [u64; TEMPORARY_WITHIN + 1];

/// No allocation.
pub(super) const NO_ROW: u64 = u64::MAX;

/// State of a thread between its records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairingThread {
    /// Recording-wide id.
    pub id: u32,
    /// Number of the next record.
    pub next_record: u64,
    /// Records known to exist from headers of blocks that could not be read.
    pub known_records: u64,
    /// Time of the last record, ticks.
    pub last_tick: u64,
    /// It made an event.
    pub active: bool,
    /// Its request context, see `contexts`.
    pub(super) context: u32,
    pub(super) details: RequestDetails,
    pub(super) map_detail: Option<(u64, u32)>,
    pub(super) half_remap: Option<(u64, u64)>,
    pub(super) half_realloc: Option<HalfRealloc>,
    /// Halves that signal handlers have interrupted, which make reallocs themselves; the innermost is the last.
    #[serde(default)]
    pub(super) outer_halves: Vec<HalfRealloc>,
    pub(super) last_allocs: LastAllocs,
}

impl PairingThread {
    /// All first halves that wait.
    pub(super) fn halves(&mut self) -> impl Iterator<Item = &mut HalfRealloc> {
        self.half_realloc.iter_mut().chain(&mut self.outer_halves)
    }

    /// Takes the first half that is expected next.
    pub(super) fn take_half(&mut self) -> Option<HalfRealloc> {
        let half = self.half_realloc.take();
        self.half_realloc = self.outer_halves.pop();
        half
    }

    pub(super) fn new(id: u32) -> Self {
        Self {
            id,
            next_record: 0,
            known_records: 0,
            last_tick: 0,
            active: false,
            context: 0,
            details: RequestDetails::default(),
            map_detail: None,
            half_remap: None,
            half_realloc: None,
            outer_halves: Vec::new(),
            last_allocs: [NO_ROW; TEMPORARY_WITHIN + 1],
        }
    }
}

/// Totals and positions; everything that a later run needs to go on.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Numbers of events.
    pub counts: EventCounts,
    /// Allocations so far.
    pub allocs: u64,
    /// Frees so far.
    pub frees: u64,
    /// Bytes of all allocations.
    pub allocated: u64,
    /// Live bytes.
    pub live: u64,
    /// Temporary blocks: count, bytes.
    pub temporary: (u64, u64),
    /// The peak.
    pub peak: PeakPosition,
    /// Records known to be missing.
    pub lost: u64,
    /// Time of the last event.
    pub last_ns: u64,
    /// The page that is being filled; `None` before the first event.
    pub page: Option<EventPage>,
    /// Events in it.
    pub page_events: u64,
    /// Pages before it.
    pub pages: u64,
    /// The word of order bits that is being filled.
    pub order_word: u64,
    /// Pages with live blocks among the events of that word.
    pub occupied: OccupiedRun,
    /// Allocations and frees when the open bucket began.
    pub bucket_start: (u64, u64),
    /// Switches of recording: time, on.
    pub switches: Vec<(u64, bool)>,
}
