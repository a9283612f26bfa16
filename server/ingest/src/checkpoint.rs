//! Checkpoint of indexing: a later run goes on from it, whether this one was stopped, cancelled or killed.
//!
//! The pairing adds a [`Checkpoint`] behind the events that it covers. The sealer gets it when these events are
//! stored, adds the lengths of the columns, and saves it in the folder of the index by a [`Keeper`].

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::clock::ClockMap;
use super::engine::{PairingThread, Totals};
use super::resume::Resume;
use super::seal::Sealer;
use tracehound_api::info::PeakRss;
use tracehound_index::files::Manifest;
use tracehound_index::folder::Folder;
use tracehound_index::layout::Granularity;

/// The state of the pairing behind some event.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// Totals.
    pub totals: Totals,
    /// Threads, each with the number of its first record that was not taken.
    pub threads: Vec<PairingThread>,
    /// Ticks to nanoseconds.
    pub clock: ClockMap,
    /// Payload offsets of damaged blocks of events.
    pub damaged: BTreeSet<u64>,
}

/// Callback with the folder of the index, whenever a checkpoint was saved there.
#[derive(Clone)]
pub struct OnSaved(pub Arc<dyn Fn(&Path) + Send + Sync>);

impl std::fmt::Debug for OnSaved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnSaved")
    }
}

/// Saves checkpoints in the folder of an index.
#[derive(Debug)]
pub struct Keeper<'a> {
    /// Where.
    pub folder: &'a Folder,
    /// What does not change while events are taken in.
    pub base: Manifest,
    /// How fine the index is.
    pub fine: Granularity,
    /// Largest resident set so far.
    pub peak_rss: Option<PeakRss>,
    /// Time between two checkpoints.
    pub every: Duration,
    /// Callback for saved checkpoints.
    pub saved: Option<OnSaved>,
}

impl Keeper<'_> {
    /// Saves a checkpoint; `sealer` has stored everything before it and nothing behind it.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn save(&self, checkpoint: Checkpoint, sealer: &Sealer) -> io::Result<()> {
        let mut manifest = self.base.clone();
        let facts = &mut manifest.facts;
        facts.lengths = sealer.writers.lengths();
        facts.buckets.clone_from(&sealer.buckets);
        facts.open_bucket = checkpoint.totals.bucket_start.into();
        facts.site_sums = sealer.sites.directory.clone();
        facts.thread_sums = sealer.threads.directory.clone();
        facts.pair_sums = sealer.pairs.directory.clone();
        let Checkpoint { totals, threads, clock, damaged } = checkpoint;
        let (fine, peak_rss) = (self.fine, self.peak_rss);
        self.folder.commit(&manifest, &Resume { totals, threads, clock, damaged, fine, peak_rss })?;
        if let Some(saved) = &self.saved {
            saved.0(&self.folder.path);
        }
        Ok(())
    }
}
