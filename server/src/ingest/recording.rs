//! A recording that may still grow: its index is built or taken up, and follows the file.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracehound_format::FormatError;
use tracehound_format::header::FileHeader;

use super::engine::Engine;
use super::folder::{Folder, candidates};
use super::intake::Intake;
use super::live_map::LiveMap;
use super::merge::{Merger, Pending, Source};
use super::resume::{self, Resume};
use super::scan::Scan;
use super::seal::{Dying, Sealer, append_pages};
use super::side_file::SideFile;
use super::snapshot::{Ending, NodeStore, facts, store_samples};
use super::{Control, OnProgress, decode};
use crate::trace::column::Ledger;
use crate::trace::files::{Columns, LAYOUT, Ledgers, Manifest, Writers, path, read_manifest};
use crate::trace::layout::Granularity;
use crate::trace::{Cancel, Parts, Tail, Trace};

/// Where the index is to lie.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum IndexPlace {
    /// Beside the recording (`….idx`), else in the user's cache folder.
    #[default]
    Auto,
    /// In this folder.
    In(PathBuf),
}

/// How to open a recording.
#[derive(Clone)]
pub struct OpenOptions {
    /// Where the index is to lie.
    pub index: IndexPlace,
    /// Stops indexing; what was done is kept and taken up the next time.
    pub cancel: Cancel,
    /// Called a few times a second while the index is built.
    pub progress: Option<OnProgress>,
    /// Build the index anew even if there is one.
    pub rebuild: bool,
    /// Bytes of memory for the table of live blocks; a larger one moves to disk.
    pub live_bytes: u64,
    /// How fine the index is; an index that is there is taken as it is.
    pub fine: Granularity,
}

impl Default for OpenOptions {
    fn default() -> Self {
        let cancel = Cancel::new();
        Self {
            index: IndexPlace::Auto,
            cancel,
            progress: None,
            rebuild: false,
            live_bytes: 256 << 20,
            fine: Granularity::default(),
        }
    }
}

impl std::fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenOptions")
            .field("index", &self.index)
            .field("rebuild", &self.rebuild)
            .finish_non_exhaustive()
    }
}

/// Why a recording cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file cannot be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// The recording.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The file is no recording, or one that this version does not understand.
    #[error("cannot open {path}: {error}")]
    Format {
        /// The recording.
        path: PathBuf,
        /// What is wrong.
        error: FormatError,
    },
    /// The index cannot be built.
    #[error("cannot index {path}: {error}")]
    Index {
        /// The recording.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Stopped from outside.
    #[error("indexing {path} was stopped; it goes on from there the next time")]
    Cancelled {
        /// The recording.
        path: PathBuf,
    },
}

/// A recording and its index, following the file while the process runs.
#[derive(Debug)]
pub struct Recording {
    trace: Arc<Trace>,
    /// `None` once nothing more will come.
    ingest: Option<Box<Ingest>>,
}

impl Recording {
    /// Opens a recording as it is now; builds its index first where there is none, or takes it up.
    ///
    /// # Errors
    /// When it cannot be read or is no recording, when the index cannot be written anywhere, or when cancelled.
    pub fn open(path: &Path, options: OpenOptions) -> Result<Self, OpenError> {
        let read = |error| OpenError::Read { path: path.to_path_buf(), error };
        let index = |error| OpenError::Index { path: path.to_path_buf(), error };
        let file = File::open(path).map_err(read)?;
        let metadata = file.metadata().map_err(read)?;
        if metadata.is_dir() {
            return Err(read(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        let mut header = vec![0; (FileHeader::LEN as u64).min(metadata.len()) as usize];
        file.read_exact_at(&mut header, 0).map_err(read)?;
        let header =
            FileHeader::decode(&header).map_err(|error| OpenError::Format { path: path.to_path_buf(), error })?;
        let places = match &options.index {
            IndexPlace::Auto => candidates(path, header.recording_id),
            IndexPlace::In(folder) => vec![folder.clone()],
        };
        if !options.rebuild {
            for place in &places {
                if let Some(trace) = open_finished(path, &file, place, header.recording_id).map_err(index)? {
                    return Ok(Self { trace: Arc::new(trace), ingest: None });
                }
            }
        }
        let folder = Folder::claim(&places).map_err(index)?;
        let mut ingest = Ingest::start(path, file, header.recording_id, folder, options).map_err(index)?;
        let trace = ingest.advance()?;
        let more = trace.facts().running;
        Ok(Self { trace: Arc::new(trace), ingest: more.then(|| Box::new(ingest)) })
    }

    /// The latest snapshot.
    #[must_use]
    pub fn trace(&self) -> Arc<Trace> {
        Arc::clone(&self.trace)
    }

    /// The process runs, and more may come.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.ingest.is_some()
    }

    /// Takes in what was added since; tells whether there is a new snapshot.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn refresh(&mut self) -> Result<bool, OpenError> {
        let Some(ingest) = &mut self.ingest else { return Ok(false) };
        if !ingest.has_news() {
            return Ok(false);
        }
        let trace = ingest.advance()?;
        if !trace.facts().running {
            self.ingest = None;
        }
        self.trace = Arc::new(trace);
        Ok(true)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Some(ingest) = &self.ingest {
            // Saves the next opening some work; without it the index is built anew.
            let _ = ingest.save();
        }
    }
}

fn modified_ns(file: &File) -> u64 {
    let ns = file.metadata().map(|m| i128::from(m.mtime()) * 1_000_000_000 + i128::from(m.mtime_nsec()));
    ns.ok().and_then(|ns| u64::try_from(ns).ok()).unwrap_or(0)
}

/// Opens the index in `folder` if it stands for the present content of the recording.
fn open_finished(path: &Path, file: &File, folder: &Path, id: [u8; 16]) -> io::Result<Option<Trace>> {
    let Some(manifest) = read_manifest(folder) else { return Ok(None) };
    let len = file.metadata()?.len();
    if !manifest.is_final || manifest.facts.recording_id != id || manifest.file_bytes != len {
        return Ok(None);
    }
    if manifest.modified_ns != modified_ns(file) && !super::scan::has_digest(file, len, manifest.digest)? {
        return Ok(None);
    }
    let facts = manifest.facts;
    let (Ok(columns), Ok(ledgers)) =
        (Columns::open(folder, &facts.lengths), Ledgers::open(folder, facts.lengths.births))
    else {
        return Ok(None);
    };
    let parts =
        Parts { path: path.to_path_buf(), facts, columns, ledgers, tail: Tail::default(), revision: 1, keep: None };
    Ok(Some(Trace::assemble(parts)))
}

/// Everything that follows one recording.
#[derive(Debug)]
struct Ingest {
    path: PathBuf,
    file: File,
    recording_id: [u8; 16],
    folder: Arc<Folder>,
    scan: Scan,
    intake: Intake,
    nodes: NodeStore,
    merger: Merger,
    /// Made when the first blocks are known.
    parts: Option<(Engine, Sealer)>,
    budget_bytes: u64,
    fine: Granularity,
    control: Control,
    peak_rss: Option<(u64, u64, u64)>,
    skip_samples: u64,
    revision: u64,
    seen_bytes: u64,
}

impl Ingest {
    fn start(
        path: &Path,
        file: File,
        recording_id: [u8; 16],
        folder: Folder,
        options: OpenOptions,
    ) -> io::Result<Self> {
        let mut ingest = Self {
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
            file,
            folder: Arc::new(folder),
        };
        let len = ingest.file.metadata()?.len();
        if !options.rebuild
            && let Some((manifest, resume)) = resume::find(&ingest.folder.path, recording_id, len)
            && let Ok(parts) = ingest.take_up(&manifest, &resume)
        {
            ingest.parts = Some(parts);
            ingest.merger.damaged = resume.damaged;
            ingest.fine = resume.fine;
            ingest.peak_rss = resume.peak_rss;
            ingest.skip_samples = manifest.facts.lengths.samples;
        } else {
            ingest.folder.invalidate()?;
        }
        Ok(ingest)
    }

    fn take_up(&self, manifest: &Manifest, resume: &Resume) -> io::Result<(Engine, Sealer)> {
        // The metadata is read again from the start; its columns begin anew.
        let mut facts = manifest.facts.clone();
        facts.lengths.nodes = 0;
        facts.lengths.locations = 0;
        resume::take_up(&self.folder.path, &facts, resume, self.budget_bytes)
    }

    /// Whether the file has grown or the process has ended since the last time.
    fn has_news(&self) -> bool {
        let len = self.file.metadata().map_or(0, |m| m.len());
        len != self.seen_bytes
            || !SideFile::open(&self.path, self.recording_id).is_some_and(|side| side.is_process_alive())
    }

    fn advance(&mut self) -> Result<Trace, OpenError> {
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

    /// Takes in what is there; `None` when cancelled.
    fn take_in(&mut self) -> io::Result<Option<Trace>> {
        // First the process, then the file: what a process wrote before it was gone is in the file now.
        let side = SideFile::open(&self.path, self.recording_id);
        let alive = side.as_ref().is_some_and(SideFile::is_process_alive);
        let len = self.file.metadata()?.len();
        self.seen_bytes = len;
        self.control.set_total(len);
        self.scan.run(&self.file, len, !alive, &mut self.intake)?;
        let running = alive && self.intake.end.is_none();
        let killed = !alive && self.intake.end.is_none() && side.is_some();
        if let (true, Some(side)) = (killed, &side) {
            self.merge_side_file(side)?;
        }
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
        for pending in self.intake.blocks.drain(..) {
            let thread = engine.thread(pending.thread);
            let done = engine.threads.get(thread as usize).map_or(0, |t| t.next_record);
            let end = pending.first_record.saturating_add(u64::from(pending.count));
            if end > done || pending.count == 0 {
                self.merger.add(pending);
            } else {
                self.control.advance(pending.bytes, engine.totals.counts.total);
            }
        }
        let limit = running.then_some(self.intake.watermark);
        self.merger.run(limit, &self.file, engine, sealer, &mut self.control)?;
        self.merger.note_ticks(engine);
        self.nodes.store(&self.intake, sealer, !running)?;
        store_samples(&mut self.intake, engine, sealer, &mut self.peak_rss, &mut self.skip_samples)?;
        if self.control.cancel.is_cancelled() {
            return Ok(None);
        }
        self.revision += 1;
        let ending = Ending { running, killed, limit };
        if running { self.snapshot(ending).map(Some) } else { self.finish(ending).map(Some) }
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
            let (count, mut run) = (rest.columns.len() as u32, decode::Run::default());
            decoder.from_columns(rest.columns, &mut run);
            let source = Source::Ready(run);
            let first_record = rest.first_record;
            intake.pend(first_tick, Pending { key: 0, thread: rest.thread, first_record, count, bytes: 0, source });
        }
        Ok(())
    }

    fn make_parts(&mut self) -> io::Result<(Engine, Sealer)> {
        let folder = &self.folder.path;
        let live = LiveMap::new(folder.clone(), self.budget_bytes)?;
        let ledgers = Dying {
            death: Ledger::create(&path(folder, "birth_death"))?,
            fate: Ledger::create(&path(folder, "birth_fate"))?,
        };
        let engine = Engine::new(live, self.intake.clock_map(), self.fine);
        Ok((engine, Sealer::new(Writers::create(folder)?, ledgers)))
    }

    fn facts(&self, engine: &Engine, sealer: &Sealer, ending: Ending) -> crate::trace::facts::Facts {
        facts(
            self.recording_id,
            self.seen_bytes,
            &self.scan,
            &self.intake,
            engine,
            &self.merger,
            sealer,
            self.peak_rss,
            ending,
        )
    }

    fn snapshot(&self, ending: Ending) -> io::Result<Trace> {
        let Some((engine, sealer)) = &self.parts else { return Err(io::Error::other("nothing was taken in")) };
        let Dying { death, fate } = &sealer.ledgers;
        let births = sealer.writers.birth_time.len();
        let totals = &engine.totals;
        Ok(Trace::assemble(Parts {
            path: self.path.clone(),
            facts: self.facts(engine, sealer, ending),
            columns: sealer.writers.view()?,
            ledgers: Ledgers { death: death.view(births)?, fate: fate.view(births)? },
            tail: Tail { page: totals.page, order_word: totals.order_word },
            revision: self.revision,
            keep: Some(Arc::clone(&self.folder) as _),
        }))
    }

    /// Nothing more will come: the open ends are written, the files framed, the manifest put in place.
    fn finish(&mut self, ending: Ending) -> io::Result<Trace> {
        let Some((engine, mut sealer)) = self.parts.take() else {
            return Err(io::Error::other("nothing was taken in"));
        };
        let totals = &engine.totals;
        let events = totals.births + totals.deaths;
        if let Some(page) = &totals.page {
            append_pages(&mut sealer.writers, std::slice::from_ref(page))?;
        }
        if !events.is_multiple_of(64) {
            sealer.writers.order.write_at(events / 64, &[totals.order_word])?;
        }
        sealer.append_new_pairs()?;
        let facts = self.facts(&engine, &sealer, ending);
        let births = totals.births;
        sealer.writers.finish()?;
        let Dying { death, fate } = sealer.ledgers;
        death.finish(births)?;
        fate.finish(births)?;
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
            columns: Columns::open(folder, &facts.lengths)?,
            ledgers: Ledgers::open(folder, births)?,
            facts,
            tail: Tail::default(),
            revision: self.revision,
            keep: Some(Arc::clone(&self.folder) as _),
        }))
    }

    /// Leaves behind what a later run needs to go on.
    fn save(&self) -> io::Result<()> {
        let Some((engine, sealer)) = &self.parts else { return Ok(()) };
        let mut threads = engine.threads.clone();
        let remaining = self.merger.remaining();
        for thread in &mut threads {
            thread.next_record -= remaining.get(&thread.id).copied().unwrap_or(0).min(thread.next_record);
        }
        let resume = Resume {
            totals: engine.totals.clone(),
            threads,
            clock: engine.clock.clone(),
            damaged: self.merger.damaged.clone(),
            fine: self.fine,
            peak_rss: self.peak_rss,
        };
        let ending = Ending { running: true, killed: false, limit: None };
        let manifest = Manifest {
            layout: LAYOUT,
            file_bytes: self.seen_bytes,
            modified_ns: 0,
            digest: 0,
            is_final: false,
            facts: self.facts(engine, sealer, ending),
        };
        self.folder.commit(&manifest, &resume)
    }
}

impl Trace {
    /// Opens a recording as it is now; see [`Recording::open`].
    ///
    /// # Errors
    /// Those of [`Recording::open`].
    pub fn open(path: &Path, options: OpenOptions) -> Result<Arc<Self>, OpenError> {
        Ok(Recording::open(path, options)?.trace())
    }
}
