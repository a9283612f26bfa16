//! Opens recordings for commands, with a progress bar while an index is built.

use std::fs::File;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tracehound_api::info::End;
use tracehound_format::FormatError;
use tracehound_index::Trace;
use tracehound_ingest::{IndexProgress, OnProgress, OpenError, OpenOptions, Recording};
use tracehound_query::{Filter, TimeExpr};

use super::{fleet, interrupt, terminal, units};
use tracehound_symbols::Symbolizer;

/// An open recording.
pub struct OpenRecording {
    /// Its index, as it was when it was opened.
    pub trace: Arc<Trace>,
    /// Its names.
    pub symbols: Symbolizer,
    /// Its path, as it was given.
    pub path: String,
}

impl OpenRecording {
    /// Tells on standard error which of the times that were asked for lie behind the end: the end stands for them.
    pub fn tell_beyond<'a>(&self, times: impl IntoIterator<Item = &'a TimeExpr>) {
        let end = self.trace.duration_ns();
        for time in times {
            if let TimeExpr::Ns(ns) = time
                && *ns > end
            {
                crate::tell!(
                    "heaptrace: {}: {} is after the end of the recording; the end is used instead: {}",
                    terminal::clean(&self.path),
                    units::duration(*ns),
                    units::duration(end)
                );
            }
        }
    }

    /// Tells on standard error which modules that were asked for the recording does not have: nothing passes then.
    pub fn tell_missing_modules(&self, filter: &Filter) {
        for why in filter.missing_modules(&self.trace) {
            crate::tell!("heaptrace: {}: {}", terminal::clean(&self.path), terminal::clean(&why));
        }
    }

    /// Whether the program went on when the recording had ended.
    pub fn ended_early(&self) -> bool {
        matches!(self.trace.end(), End::Stopped | End::Detached | End::DiskFull)
    }

    /// Why results about the recording are incomplete, in words; `None` if they are complete.
    pub fn shortfall(&self) -> Option<String> {
        shortfall(&self.trace)
    }
}

fn shortfall(trace: &Trace) -> Option<String> {
    let (facts, end) = (trace.facts(), trace.end());
    let mut missing = Vec::new();
    if facts.damaged_blocks > 0 {
        missing.push(format!("damaged blocks of the file: {}", units::count(facts.damaged_blocks)));
    }
    if facts.lost > 0 {
        missing.push(format!("events known to be missing: {}", units::count(facts.lost)));
    }
    match facts.captures.len() {
        0 | 1 => {}
        2 => missing.push("it was stopped once, and started again".into()),
        more => missing.push(format!("it was stopped {} times, and started again", more - 1)),
    }
    missing.extend(facts.inherited.as_ref().and_then(|inherited| inherited.shortfall.clone()));
    let until = units::duration(facts.watermark_ns);
    match end {
        End::Running => missing.push(format!("the program still runs; answers are about the time up to {until}")),
        End::DiskFull => missing.push(format!("the disk was full at {until}")),
        End::Killed if trace.imported_from().is_some() => {
            missing.push("the program was killed; what heaptrack had not written by then is missing".into());
        }
        End::Killed => missing.push(
            "the program was killed, or ended without its C library (as Go does); all completed events are here".into(),
        ),
        End::Unknown => missing.push("the file has no end, and no side file completes it".into()),
        End::Exit | End::Exec | End::Stopped | End::Detached if facts.cut => missing.push("the file is cut off".into()),
        End::Exit | End::Exec | End::Stopped | End::Detached => {}
    }
    if trace.misses_events() {
        missing.push("blocks whose frees are missing count as live".into());
    }
    // Whoever stops and starts again has what was asked for.
    let head = if trace.is_complete() { "the recording has gaps" } else { "the recording is not complete" };
    (!missing.is_empty()).then(|| format!("{head}: {}", missing.join("; ")))
}

/// Opens a recording as it is now, and notes on standard error if it is not complete: for outputs that have no room for
/// that.
pub fn open_telling(path: &Path) -> Result<OpenRecording> {
    open_telling_among(path, &[])
}

/// The same of a recording among others, see [`open_among`].
pub fn open_telling_among(path: &Path, others: &[PathBuf]) -> Result<OpenRecording> {
    let opened = open_among(path, others)?;
    if let Some(shortfall) = opened.shortfall() {
        crate::tell!("heaptrace: {}: {shortfall}", terminal::clean(&opened.path));
    }
    Ok(opened)
}

/// Opens a recording as it is now.
pub fn open(path: &Path) -> Result<OpenRecording> {
    open_among(path, &[])
}

/// The file of a recording that is named by its path, or by a URL: then what was copied of the store.
pub fn file_of(path: &Path) -> Result<PathBuf> {
    if !fleet::is_url(path) {
        return Ok(path.to_path_buf());
    }
    match <[PathBuf; 1]>::try_from(fleet::local(path)?) {
        Ok([one]) => Ok(one),
        Err(several) => bail!(
            "{} has {} recordings: name one as {0}/raw/ID.dat, or open all by `heaptrace server`",
            path.display(),
            several.len()
        ),
    }
}

/// Opens a recording as it is now; those that were named along with it are at hand: one of them may be its parent's.
pub fn open_among(path: &Path, others: &[PathBuf]) -> Result<OpenRecording> {
    if fleet::is_url(path) {
        return open_local(&file_of(path)?, others);
    }
    let mut note = path.as_os_str().to_owned();
    note.push(".shipped");
    if let Ok(text) = std::fs::read_to_string(&note) {
        let mut lines = text.lines().map(terminal::clean);
        let (store, name) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        bail!("{}: its front was collected and is not here any more; open {store}/{name}", path.display());
    }
    open_local(path, others)
}

fn open_local(path: &Path, others: &[PathBuf]) -> Result<OpenRecording> {
    let bar = std::io::stderr().is_terminal().then(|| Arc::new(Bar::new(path)));
    let progress =
        bar.clone().map(|bar| -> OnProgress { Arc::new(move |progress: &IndexProgress| bar.show(progress)) });
    let (cancel, others) = (interrupt::flag().clone(), others.to_vec());
    let options = OpenOptions { cancel, progress, others, ..OpenOptions::default() };
    let recording = Recording::open(path, options);
    if let Some(bar) = bar {
        bar.clear();
    }
    let trace = recording.map_err(|error| hint(path, error))?.trace();
    let symbols = tracehound_symbols::for_recording(&trace);
    Ok(OpenRecording { trace, symbols, path: path.to_string_lossy().into_owned() })
}

/// The error with a hint, for a file that is not a recording.
fn hint(path: &Path, error: OpenError) -> anyhow::Error {
    let OpenError::Format { error: FormatError::NotARecording, .. } = &error else { return error.into() };
    let mut start = [0; 4];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
    // Its text, gzip, zstd.
    let is_heaptracks =
        start.starts_with(b"v 1") || start.starts_with(&[0x1f, 0x8b]) || start == [0x28, 0xb5, 0x2f, 0xfd];
    if read.is_ok() && is_heaptracks {
        return anyhow::anyhow!("{error}; `heaptrace import` reads recordings of heaptrack");
    }
    error.into()
}

/// The bar; it appears once the work has taken a moment.
struct Bar {
    started: Instant,
    name: String,
    bar: Mutex<Option<ProgressBar>>,
}

const PATIENCE: Duration = Duration::from_millis(300);

impl Bar {
    fn new(path: &Path) -> Self {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        Self { started: Instant::now(), name: terminal::clean(&name).into_owned(), bar: Mutex::new(None) }
    }

    fn show(&self, progress: &IndexProgress) {
        if self.started.elapsed() < PATIENCE {
            return;
        }
        let mut bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        let bar = bar.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(Some(progress.total_bytes), ProgressDrawTarget::stderr());
            let looks = ProgressStyle::with_template("indexing {prefix} [{bar:30}] {percent:>3}%  {msg}");
            bar.set_style(looks.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("█▌ "));
            bar.set_prefix(self.name.clone());
            bar
        });
        let rate = units::count(progress.events_per_second as u64);
        let left = progress
            .seconds_left
            .map_or_else(String::new, |seconds| format!(", {} left", units::duration((seconds.max(1.0) * 1e9) as u64)));
        bar.set_length(progress.total_bytes);
        bar.set_position(progress.done_bytes);
        bar.set_message(format!("{} events, {rate}/s{left}", units::count(progress.events)));
    }

    fn clear(&self) {
        if let Some(bar) = self.bar.lock().unwrap_or_else(PoisonError::into_inner).take() {
            bar.finish_and_clear();
        }
    }
}
