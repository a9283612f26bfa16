//! From a recording to its index, in one pass, as far as the recording is known; goes on when it grows.
//!
//! ```text
//! scan (headers, metadata, nodes) → merge (decode ahead, k-way by time) → engine (pairs allocations and frees) → seal
//! ```

pub mod calibration;
pub mod checkpoint;
pub mod clock;
pub mod code_versions;
pub mod decode;
pub mod engine;
pub mod event_batch;
pub mod free_ledgers;
mod growth;
pub mod intake;
mod lineage;
pub mod live_map;
pub mod liveness;
pub mod merge;
pub mod recording;
pub mod resume;
pub mod scan;
pub mod seal;
pub mod side_file;
pub mod sizes;
pub mod snapshot;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub use engine::WINDOW_NS;
pub use recording::{IndexPlace, OpenError, OpenOptions, Recording};

use tracehound_index::Cancel;

/// How far indexing is.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct IndexProgress {
    /// Bytes of the recording that were read.
    pub done_bytes: u64,
    /// Bytes of the recording.
    pub total_bytes: u64,
    /// Records so far.
    pub events: u64,
    /// Records a second, in this run.
    pub events_per_second: f64,
    /// Estimate of what is left to wait.
    pub seconds_left: Option<f64>,
}

/// Callback for progress.
pub type OnProgress = Arc<dyn Fn(&IndexProgress) + Send + Sync>;

/// Reports progress and listens for cancellation.
pub struct Control {
    /// Set from outside to stop.
    pub cancel: Cancel,
    report: Option<OnProgress>,
    started: Instant,
    last: Option<Instant>,
    progress: IndexProgress,
    first: Option<(u64, u64)>,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("progress", &self.progress).finish_non_exhaustive()
    }
}

impl Control {
    /// A control that calls `report` a few times a second.
    #[must_use]
    pub fn new(cancel: Cancel, report: Option<OnProgress>) -> Self {
        Self { cancel, report, started: Instant::now(), last: None, progress: IndexProgress::default(), first: None }
    }

    /// The recording has this many bytes now.
    pub fn set_total(&mut self, bytes: u64) {
        self.progress.total_bytes = bytes;
    }

    /// `bytes` more were taken in; `events` were merged in all.
    pub fn advance(&mut self, bytes: u64, events: u64) {
        self.progress.done_bytes = (self.progress.done_bytes + bytes).min(self.progress.total_bytes);
        self.progress.events = events;
        let done = self.progress.done_bytes;
        let (first_bytes, first_events) = *self.first.get_or_insert((done - bytes.min(done), events));
        if self.last.is_none_or(|last| last.elapsed() >= Duration::from_millis(100)) {
            self.last = Some(Instant::now());
            let seconds = self.started.elapsed().as_secs_f64().max(1e-6);
            self.progress.events_per_second = (events - first_events.min(events)) as f64 / seconds;
            let rate = (done - first_bytes.min(done)) as f64 / seconds;
            self.progress.seconds_left =
                (rate > 0.0 && seconds > 0.3).then(|| (self.progress.total_bytes - done) as f64 / rate);
            self.tell();
        }
    }

    /// Reports that everything that is there was indexed.
    pub fn done(&mut self) {
        self.progress.done_bytes = self.progress.total_bytes;
        self.progress.seconds_left = Some(0.0);
        self.tell();
    }

    fn tell(&self) {
        if let Some(report) = &self.report {
            report(&self.progress);
        }
    }
}
