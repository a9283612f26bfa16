//! Indexing of one recording while it grows: reads the new blocks, makes snapshots, and finishes the index when the
//! recording has ended.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tracehound_api::info::PeakRss;
use tracehound_format::nodes::Node;

use super::checkpoint::{Keeper, OnSaved};
use super::code_versions::CodeVersions;
use super::engine::PairingEngine;
use super::free_ledgers::FreeLedgers;
use super::intake::Intake;
use super::lineage::{self, Kin};
use super::live_map::LiveMap;
use super::merge::{Merger, Pending, RunSource};
use super::recording::{OpenError, OpenOptions, modified_ns};
use super::resume::{self, Resume};
use super::scan::Scan;
use super::seal::{Sealer, write_occupied};
use super::side_file::SideFile;
use super::sizes::SizeCodes;
use super::snapshot::{IndexEnding, NodeStore, facts, store_samples};
use super::{Control, decode};
use tracehound_index::facts::{Inherited, RecordingFacts};
use tracehound_index::files::{LAYOUT, Ledgers, Manifest};
use tracehound_index::folder::Folder;
use tracehound_index::layout::Granularity;
use tracehound_index::schema::{Columns, EventPage, TableRow, Writers};
use tracehound_index::{Parts, Tail, Trace};

/// State of following one recording.
#[derive(Debug)]
pub(super) struct Growth {
    path: PathBuf,
    file: File,
    recording_id: [u8; 16],
    folder: Arc<Folder>,
    scan: Scan,
    intake: Intake,
    nodes: NodeStore,
    merger: Merger,
    /// Made when the first blocks are known.
    parts: Option<(PairingEngine, Sealer)>,
    budget_bytes: u64,
    fine: Granularity,
    control: Control,
    peak_rss: Option<PeakRss>,
    skip_samples: u64,
    revision: u64,
    seen_bytes: u64,
    save_every: Duration,
    saved: Option<OnSaved>,
    kin: Kin,
    /// Which generated code was at which addresses, after a block with such records was read.
    versions: Option<Arc<CodeVersions>>,
    /// What the process has inherited, once that is in the index.
    inherited: Option<Inherited>,
}

impl Growth {
    pub(super) fn start(
        path: &Path,
        file: File,
        recording_id: [u8; 16],
        folder: Folder,
        kin: Kin,
        options: OpenOptions,
    ) -> io::Result<Self> {
        let mut growth = Self {
            path: path.to_path_buf(),
            recording_id,
            scan: Scan::default(),
            intake: Intake::default(),
            nodes: NodeStore::default(),
            merger: Merger::default(),
            parts: None,
            budget_bytes: options.live_bytes,
            fine: options.fine,
            control: Control::new(options.cancel, options.progress),
            peak_rss: None,
            skip_samples: 0,
            revision: 0,
            seen_bytes: 0,
            save_every: options.save_every,
            saved: options.saved,
            kin,
            versions: None,
            inherited: None,
            file,
            folder: Arc::new(folder),
        };
        let len = growth.file.metadata()?.len();
        if !options.rebuild
            && let Some((manifest, resume)) = resume::find(&growth.folder.path, recording_id, len)
            && manifest.facts.inherited.as_ref().is_none_or(|inherited| growth.kin.is_current(inherited))
            && let Ok(parts) = growth.take_up(&manifest, &resume)
        {
            growth.parts = Some(parts);
            growth.merger.damaged = resume.damaged;
            growth.fine = resume.fine;
            growth.peak_rss = resume.peak_rss;
            growth.skip_samples = manifest.facts.lengths.samples;
            growth.inherited = manifest.facts.inherited;
        } else {
            growth.folder.invalidate()?;
        }
        Ok(growth)
    }

    fn take_up(&mut self, manifest: &Manifest, resume: &Resume) -> io::Result<(PairingEngine, Sealer)> {
        if manifest.facts.inherited.is_some() {
            self.keep_nodes(&manifest.facts)?;
        }
        // The metadata is read again from the start; its columns begin anew.
        let mut facts = manifest.facts.clone();
        facts.lengths.nodes = 0;
        facts.lengths.locations = 0;
        facts.lengths.code_bytes = 0;
        resume::take_up(&self.folder.path, &facts, resume, self.budget_bytes)
    }

    /// Nodes that came from the parent's recording are in the index alone.
    fn keep_nodes(&mut self, facts: &RecordingFacts) -> io::Result<()> {
        let columns = Columns::open(&self.folder.path, &facts.lengths)?;
        for (id, (&parent, &location)) in (0..).zip(columns.node_parent.iter().zip(columns.node_location.iter())) {
            let at = location as usize;
            if let (Some(&pc), Some(&generation)) = (columns.location_pc.get(at), columns.location_generation.get(at)) {
                self.intake.node(id, Node { parent, pc, generation });
            }
        }
        Ok(())
    }

    /// Whether the file has grown or the process has ended since the last time.
    pub(super) fn has_news(&self) -> bool {
        let len = self.file.metadata().map_or(0, |m| m.len());
        len != self.seen_bytes
            || !SideFile::open(&self.path, self.recording_id).is_some_and(|side| side.is_recording(&self.file))
    }

    pub(super) fn advance(&mut self) -> Result<Trace, OpenError> {
        let cancelled = self.control.cancel.is_cancelled();
        let result = if cancelled { Ok(None) } else { self.take_in() };
        match result {
            Ok(Some(trace)) => Ok(trace),
            Ok(None) => {
                let _ = self.save();
                Err(OpenError::Cancelled { path: self.path.clone() })
            }
            Err(error) => Err(OpenError::Index { path: self.path.clone(), error }),
        }
    }

    /// Indexes what is in the file now; `None` when cancelled.
    fn take_in(&mut self) -> io::Result<Option<Trace>> {
        // First the process, then the file: everything that an ended process wrote is in the file now.
        let side = SideFile::open(&self.path, self.recording_id);
        let alive = side.as_ref().is_some_and(|side| side.is_recording(&self.file));
        let len = self.file.metadata()?.len();
        self.seen_bytes = len;
        self.control.set_total(len);
        self.scan.run(&self.file, len, !alive, &mut self.intake)?;
        let running = alive && self.intake.end.is_none();
        let mut killed = !alive && self.intake.end.is_none() && side.is_some();
        if let (true, Some(side)) = (killed, &side) {
            self.merge_side_file(side)?;
            killed = !self.intake.ended_without_disk(side.header.ending);
        }
        if self.has_late_versions() {
            self.begin_anew()?;
            return self.take_in();
        }
        self.find_versions();
        if self.parts.is_none() {
            self.parts = Some(self.make_parts()?);
        }
        let Some((engine, sealer)) = &mut self.parts else { return Ok(None) };
        if engine.totals.counts.total == 0 {
            // The record of the process may have come after the first look at the file.
            engine.clock = self.intake.clock_map();
            self.intake.clock_samples.iter().for_each(|sample| engine.clock.sample(sample));
        } else {
            self.intake.clock_samples.drain(..).for_each(|sample| engine.clock.sample(&sample));
        }
        if self.inherited.is_none()
            && let Some(fork) = self.intake.forked_from.clone()
        {
            let (mut inherited, parent) = self.kin.inherit(&fork);
            if let Some(parent) = &parent {
                let done = lineage::begin_with(
                    parent,
                    &fork,
                    &mut inherited,
                    &mut self.intake,
                    engine,
                    sealer,
                    &self.control.cancel,
                );
                if !matches!(done, Ok(true)) {
                    // A batch that was stored in part: the index cannot be continued.
                    self.parts = None;
                    return done.map(|_| None);
                }
            }
            self.inherited = Some(inherited);
        }
        for pending in self.intake.blocks.drain(..) {
            let thread = engine.thread(pending.thread);
            let done = engine.threads.get(thread as usize).map_or(0, |t| t.next_record);
            let end = pending.first_record.saturating_add(pending.count);
            if matches!(&pending.source, RunSource::Blocks(blocks) if blocks.is_empty()) {
                // It is a part of one before.
                continue;
            }
            if end > done || pending.count == 0 {
                // What an earlier run had of it was no part of a longer one.
                let parts = if pending.first_record < done { pending.split() } else { vec![pending] };
                parts.into_iter().for_each(|part| self.merger.add(part));
            } else {
                self.control.advance(pending.bytes, engine.totals.counts.total);
            }
        }
        let limit = running.then_some(self.intake.watermark);
        self.merger.cut_after(self.intake.stopped());
        let base = facts(
            self.recording_id,
            self.seen_bytes,
            &self.scan,
            &self.intake,
            engine,
            &self.merger,
            sealer,
            self.peak_rss,
            self.inherited.as_ref(),
            &self.nodes,
            UNFINISHED,
        );
        let keeper = Keeper {
            folder: &self.folder,
            base: unfinished(base, self.seen_bytes),
            fine: self.fine,
            peak_rss: self.peak_rss,
            every: self.save_every,
            saved: self.saved.clone(),
        };
        let versions = self.versions.clone();
        self.merger.run(limit, &self.file, versions, engine, sealer, &keeper, &mut self.control)?;
        self.merger.note_ticks(engine);
        self.nodes.store(&self.intake, sealer, !running)?;
        self.nodes.store_codes(&mut self.intake, sealer)?;
        store_samples(&mut self.intake, engine, sealer, &mut self.peak_rss, &mut self.skip_samples)?;
        if self.control.cancel.is_cancelled() {
            return Ok(None);
        }
        self.revision += 1;
        let limit = limit.map(|limit| limit.saturating_sub(engine.window()));
        let ending = IndexEnding { running, killed, limit };
        if running { self.snapshot(ending).map(Some) } else { self.finish(ending).map(Some) }
    }

    /// Whether events were merged before the records were read that split their nodes.
    fn has_late_versions(&self) -> bool {
        let has_events = self.parts.as_ref().is_some_and(|(engine, _)| engine.totals.counts.total > 0);
        has_events && self.versions.is_none() && !self.intake.generated.is_empty()
    }

    /// Discards everything that was read, so that the recording is read from its start.
    fn begin_anew(&mut self) -> io::Result<()> {
        self.parts = None;
        self.folder.invalidate()?;
        (self.scan, self.intake, self.nodes) = (Scan::default(), Intake::default(), NodeStore::default());
        (self.merger, self.peak_rss, self.skip_samples) = (Merger::default(), None, 0);
        self.inherited = None;
        Ok(())
    }

    fn find_versions(&mut self) {
        let intake = &mut self.intake;
        if self.versions.is_some() || intake.generated.is_empty() {
            return;
        }
        let pieces = std::mem::take(&mut intake.generated);
        let found = CodeVersions::find(&pieces, &intake.clock_points, &intake.nodes, &self.file, &intake.blocks);
        let (versions, new) = found.unwrap_or_default();
        let first = intake.nodes.len().max(1);
        new.nodes.into_iter().zip(first as u32..).for_each(|(node, id)| intake.node(id, node));
        intake.codes.extend(new.codes);
        self.versions = Some(Arc::new(versions));
    }

    fn merge_side_file(&mut self, side: &SideFile) -> io::Result<()> {
        let known = self.intake.nodes.len().max(1) as u32;
        let first_hole = self.intake.nodes.iter().skip(1).position(Option::is_none).map_or(known, |at| at as u32 + 1);
        let intake = &mut self.intake;
        side.nodes(first_hole, |id, node| intake.node(id, node))?;
        let mut decoder = decode::BlockDecoder::default();
        for rest in side.rest()? {
            let first_tick = rest.columns.ticks.iter().copied().min().unwrap_or(0);
            intake.last_tick = intake.last_tick.max(rest.columns.ticks.iter().copied().max().unwrap_or(0));
            let (count, mut run) = (rest.columns.len() as u64, decode::Run::default());
            decoder.from_columns(&rest.columns, &mut run);
            let source = RunSource::Ready(run);
            let first_record = rest.first_record;
            intake.pend(
                first_tick,
                Pending { key: 0, thread: rest.thread, first_record, count, bytes: 0, newest: 0, source },
            );
        }
        Ok(())
    }

    fn make_parts(&mut self) -> io::Result<(PairingEngine, Sealer)> {
        let folder = &self.folder.path;
        let live = LiveMap::new(folder.clone(), self.budget_bytes)?;
        let ledgers = FreeLedgers::create(folder, self.fine)?;
        let engine = PairingEngine::new(live, self.intake.clock_map(), self.fine);
        let sizes = SizeCodes::new(self.fine.table_sizes, &[]);
        Ok((engine, Sealer::new(Writers::create(folder)?, ledgers, sizes)))
    }

    fn facts(&self, engine: &PairingEngine, sealer: &Sealer, ending: IndexEnding) -> RecordingFacts {
        facts(
            self.recording_id,
            self.seen_bytes,
            &self.scan,
            &self.intake,
            engine,
            &self.merger,
            sealer,
            self.peak_rss,
            self.inherited.as_ref(),
            &self.nodes,
            ending,
        )
    }

    fn snapshot(&self, ending: IndexEnding) -> io::Result<Trace> {
        let Some((engine, sealer)) = &self.parts else { return Err(io::Error::other("nothing was taken in")) };
        let (allocs, frees) = (sealer.writers.alloc_time.len(), sealer.writers.free_time.len());
        let totals = &engine.totals;
        Ok(Trace::assemble(Parts {
            path: self.path.clone(),
            folder: self.folder.path.clone(),
            facts: self.facts(engine, sealer, ending),
            columns: sealer.writers.view()?,
            ledgers: sealer.ledgers.view(allocs, frees)?,
            tail: Tail { page: totals.page, order_word: totals.order_word, occupied: totals.occupied.parts() },
            revision: self.revision,
            keep: Some(Arc::clone(&self.folder) as _),
        }))
    }

    /// Finishes the index when nothing more will come: stores open pages and buckets, frames the files, writes the
    /// manifest.
    fn finish(&mut self, ending: IndexEnding) -> io::Result<Trace> {
        let Some((engine, mut sealer)) = self.parts.take() else {
            return Err(io::Error::other("nothing was taken in"));
        };
        let totals = &engine.totals;
        let events = totals.allocs + totals.frees;
        if let Some(page) = &totals.page {
            EventPage::append(std::slice::from_ref(page), &mut sealer.writers)?;
        }
        if !events.is_multiple_of(64) {
            sealer.writers.order.write_at(events / 64, &[totals.order_word])?;
            write_occupied(&mut sealer.writers, events / 64, &[totals.occupied])?;
        }
        sealer.append_new_pairs()?;
        let facts = self.facts(&engine, &sealer, ending);
        let (allocs, frees) = (totals.allocs, totals.frees);
        sealer.writers.finish()?;
        sealer.ledgers.finish(allocs, frees, facts.lengths.far > 0)?;
        let manifest = Manifest {
            layout: LAYOUT,
            file_bytes: self.seen_bytes,
            modified_ns: modified_ns(&self.file),
            digest: self.scan.digest,
            is_final: true,
            facts: facts.clone(),
        };
        self.folder.commit(&manifest, &())?;
        self.control.done();
        let folder = &self.folder.path;
        Ok(Trace::assemble(Parts {
            path: self.path.clone(),
            folder: folder.clone(),
            columns: Columns::open(folder, &facts.lengths)?,
            ledgers: Ledgers::open(folder, &facts)?,
            facts,
            tail: Tail::default(),
            revision: self.revision,
            keep: Some(Arc::clone(&self.folder) as _),
        }))
    }

    /// Leaves behind what a later run needs to go on.
    pub(super) fn save(&self) -> io::Result<()> {
        let Some((engine, sealer)) = &self.parts else { return Ok(()) };
        // Where a later run could not go on from here, it goes on from the checkpoint before.
        let Some(checkpoint) = self.merger.resting_checkpoint(engine) else { return Ok(()) };
        self.keeper(engine, sealer).save(checkpoint, sealer)
    }

    fn keeper(&self, engine: &PairingEngine, sealer: &Sealer) -> Keeper<'_> {
        Keeper {
            folder: &self.folder,
            base: unfinished(self.facts(engine, sealer, UNFINISHED), self.seen_bytes),
            fine: self.fine,
            peak_rss: self.peak_rss,
            every: self.save_every,
            saved: self.saved.clone(),
        }
    }
}

/// More will come, or would have.
const UNFINISHED: IndexEnding = IndexEnding { running: true, killed: false, limit: None };

fn unfinished(facts: RecordingFacts, file_bytes: u64) -> Manifest {
    Manifest { layout: LAYOUT, file_bytes, modified_ns: 0, digest: 0, is_final: false, facts }
}
