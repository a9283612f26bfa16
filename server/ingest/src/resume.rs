//! Resumes an index that an earlier run left unfinished: it was cancelled, or its recording was still growing.
//!
//! The earlier run's columns are cut to the lengths of its manifest, frees that were stored after it are taken back,
//! and the live blocks are found again among the allocations.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::clock::ClockMap;
use super::engine::{PairingEngine, PairingThread, Totals};
use super::free_ledgers::FreeLedgers;
use super::live_map::{LiveBlock, LiveMap};
use super::seal::Sealer;
use super::sizes::SizeCodes;
use tracehound_api::info::PeakRss;
use tracehound_index::facts::RecordingFacts;
use tracehound_index::files::{Ledgers, Manifest, read_manifest};
use tracehound_index::folder::RESUME;
use tracehound_index::layout::{Granularity, NO_SITE, TEMPORARY_BIT};
use tracehound_index::schema::{Columns, EventOrigin, Writers};
use tracehound_index::{Tail, Trace};

/// State that is neither in the columns nor in the facts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Resume {
    /// Totals.
    pub totals: Totals,
    /// Threads.
    pub threads: Vec<PairingThread>,
    /// Ticks to nanoseconds.
    pub clock: ClockMap,
    /// Payload offsets of damaged blocks of events.
    pub damaged: BTreeSet<u64>,
    /// How fine the index is.
    pub fine: Granularity,
    /// Largest resident set so far.
    pub peak_rss: Option<PeakRss>,
}

/// An unfinished index of the recording with this id that lies in `folder`.
#[must_use]
pub fn find(folder: &Path, recording_id: [u8; 16], file_bytes: u64) -> Option<(Manifest, Resume)> {
    let manifest = read_manifest(folder)?;
    let same = manifest.facts.recording_id == recording_id && manifest.file_bytes <= file_bytes;
    if !same || manifest.is_final {
        return None;
    }
    let resume: Resume = serde_json::from_slice(&std::fs::read(folder.join(RESUME)).ok()?).ok()?;
    // Both are replaced one after the other: a run that was killed in between leaves two that do not belong together.
    let (totals, lengths) = (&resume.totals, &manifest.facts.lengths);
    ((totals.allocs, totals.frees) == (lengths.allocs, lengths.frees)).then_some((manifest, resume))
}

/// Takes up the index in `folder`.
///
/// # Errors
/// When its columns cannot be opened or do not fit together.
pub fn take_up(
    folder: &Path,
    facts: &RecordingFacts,
    resume: &Resume,
    budget_bytes: u64,
) -> io::Result<(PairingEngine, Sealer)> {
    let lengths = &facts.lengths;
    let (allocs, frees) = (lengths.allocs, lengths.frees);
    let mut ledgers = FreeLedgers::reopen(folder, resume.fine, lengths)?;
    let writers = Writers::reopen(folder, lengths)?;
    let trace = Trace::assemble(tracehound_index::Parts {
        path: folder.to_path_buf(),
        folder: folder.to_path_buf(),
        facts: facts.clone(),
        columns: Columns::open(folder, lengths)?,
        ledgers: Ledgers::open(folder, facts)?,
        tail: Tail {
            page: resume.totals.page,
            order_word: resume.totals.order_word,
            occupied: resume.totals.occupied.parts(),
        },
        revision: 0,
        keep: None,
    });
    ledgers.recount(frees, |ordinal| trace.row_of_free(ordinal));
    let origins: Vec<EventOrigin> = (0..trace.origin_count()).map(|id| trace.origin(id)).collect();
    let live = LiveMap::new(folder.to_path_buf(), budget_bytes)?;
    let mut engine = PairingEngine::new(live, resume.clock.clone(), resume.fine);
    for &origin in &origins {
        engine.origins.restore(origin);
    }
    // Sites are numbered by first appearance, which restoring the origins in order repeats.
    debug_assert!(origins.iter().filter(|o| o.site != NO_SITE).all(|o| o.site < trace.site_count()));
    let pool = |row: u64| trace.origin(trace.columns().alloc_origin[row as usize]).kind;
    let blocks = (0..allocs).filter(|&row| trace.free_of(row).is_none()).map(|row| {
        let key = super::engine::key_of(trace.address_of(row), pool(row));
        let origin = trace.columns().alloc_origin[row as usize];
        (key, LiveBlock { born_ns: trace.born_ns(row), size: trace.size_of(row), row, origin })
    });
    engine.contexts.restore(&trace.columns().context_id);
    engine.existing.restore(trace.columns());
    engine.restore(resume.totals.clone(), resume.threads.clone(), blocks)?;

    let columns = trace.columns();
    let pairs: Vec<_> = columns.pair_bearer.iter().copied().zip(columns.pair_freer.iter().copied()).collect();
    let mut sealer = Sealer::resume(
        writers,
        ledgers,
        facts.site_sums.clone(),
        facts.thread_sums.clone(),
        facts.pair_sums.clone(),
        facts.buckets.clone(),
        &origins,
        &pairs,
        SizeCodes::new(resume.fine.table_sizes, &columns.size_table),
    );
    let open = trace.open_bucket();
    sealer.reopen_bucket(open.allocs, open.frees);
    for row in open.allocs..allocs {
        let origin = columns.alloc_origin[row as usize];
        let size = trace.size_of(row);
        sealer.add_alloc(origin, size);
        if trace.free_of(row).is_some() && trace.ledgers().lifetime_class.get(row as usize) & TEMPORARY_BIT != 0 {
            sealer.add_temporary(origin, size);
        }
    }
    for ordinal in open.frees..frees {
        let row = trace.row_of_free(ordinal);
        let alloc_origin = columns.alloc_origin.get(row as usize).copied().unwrap_or(u32::MAX);
        sealer.add_free(alloc_origin, columns.free_origin[ordinal as usize], trace.size_of_free(ordinal));
    }
    Ok((engine, sealer))
}
