//! The recordings that are served: opened in the background, followed while their programs run.
//!
//! Each recording has a thread of its own, which is the only one that changes its state; all others read snapshots. A
//! running recording is read again at least four times a second while a client watches it, and not at all otherwise.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use tokio::sync::{Semaphore, watch};
use tracehound_api::info::{FileState, Progress, RecordingSummary, State};
use tracehound_api::live::Live;
use tracehound_index::{Cancel, Trace};
use tracehound_ingest::{OpenError, OpenOptions, Recording};
use tracehound_query::info::rfc3339;
use tracehound_query::leaks;
use tracehound_query::suppress::Suppression;

use super::answer::Ask;
use super::cache::Cache;
use super::opened_file::OpenedFile;
use super::problem::HttpProblem;
use super::routes;
use tracehound_symbols::Symbolizer;

/// Bytes of finished answers that are kept.
const CACHE_BYTES: usize = 64 << 20;
/// Exports at the same time.
const EXPORTS: usize = 4;
/// Questions in SQL at the same time.
const SQL_QUESTIONS: usize = 2;
/// Time between two looks at a recording that somebody watches.
const PERIOD: Duration = Duration::from_millis(200);
/// Time after a query during which its client counts as watching.
const ATTENTION: Duration = Duration::from_secs(3);

/// Everything that requests share.
pub struct App {
    served: Vec<Arc<Served>>,
    /// Finished answers.
    pub cache: Cache,
    /// Questions that may be at work at the same time.
    pub permits: Arc<Semaphore>,
    /// Exports that may be at work: apart from questions, because a slow client holds one for as long as it likes.
    pub export_permits: Arc<Semaphore>,
    /// Questions in SQL that may be at work: apart from the others, because one may use all of its time.
    pub sql_permits: Arc<Semaphore>,
    /// Folders that source files may be shown from.
    pub source_roots: Vec<PathBuf>,
    /// Suppressions of the files that the server was started with.
    pub suppressions: Arc<[Suppression]>,
    /// Tells this run of the server from others, for tags of answers.
    pub started: u64,
    stop: Cancel,
}

impl App {
    /// Starts opening the recordings.
    pub fn start(paths: &[PathBuf], source_roots: Vec<PathBuf>, suppressions: Vec<Suppression>) -> Arc<Self> {
        let stop = Cancel::new();
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        // Indexing is heavy: as many at a time as there are processors.
        let turn = Arc::new(Turns::new(processors));
        let suppressions: Arc<[Suppression]> = suppressions.into();
        let start = |(number, path): (usize, &PathBuf)| Served::start(number, path, paths, &turn, &stop, &suppressions);
        let served = paths.iter().enumerate().map(start).collect();
        let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        Arc::new(Self {
            served,
            cache: Cache::new(CACHE_BYTES),
            permits: Arc::new(Semaphore::new(processors.max(2))),
            export_permits: Arc::new(Semaphore::new(EXPORTS)),
            sql_permits: Arc::new(Semaphore::new(SQL_QUESTIONS)),
            source_roots,
            suppressions,
            started,
            stop,
        })
    }

    /// The recording with an id such as `r1`.
    pub fn find(&self, id: &str) -> Result<Arc<Served>, HttpProblem> {
        let found = self.served.iter().find(|served| served.id == id).cloned();
        found.ok_or_else(|| {
            HttpProblem::not_found(format!("there is no recording {id:?}; /api/v1/recordings lists them"))
        })
    }

    /// All recordings.
    pub fn all(&self) -> &[Arc<Served>] {
        &self.served
    }

    /// The recording with an id; without one the only recording.
    pub fn find_or_only(&self, id: Option<&str>) -> Result<Arc<Served>, HttpProblem> {
        match (id, self.served.as_slice()) {
            (Some(id), _) => self.find(id),
            (None, [one]) => Ok(Arc::clone(one)),
            (None, all) => Err(HttpProblem::parameter(
                "recording",
                format!("there are {} recordings: recording=r1 chooses one", all.len()),
            )),
        }
    }

    /// All recordings, as documents.
    pub fn summaries(&self) -> Vec<RecordingSummary> {
        self.served.iter().map(|served| served.summary()).collect()
    }

    /// Ends all work in the background.
    pub fn stop(&self) {
        self.stop.cancel();
        for served in &self.served {
            served.indexing.lock().unwrap_or_else(PoisonError::into_inner).cancel();
            served.turn.wake();
            served.attention.wake();
            // Watchers of the state see that it is over.
            served.state.send_modify(|snapshot| snapshot.over = true);
        }
    }
}

/// One recording.
pub struct Served {
    /// Its position.
    pub number: usize,
    id: String,
    path: PathBuf,
    name: String,
    /// All recordings of the server: one may be the parent of this one.
    others: Vec<PathBuf>,
    state: watch::Sender<Snapshot>,
    attention: Attention,
    /// Ends the present run of indexing.
    indexing: Mutex<Cancel>,
    /// The file that answers are of, once it was read.
    file: Mutex<Option<OpenedFile>>,
    /// Added to revisions of the data, which begin anew with another file.
    revisions_before: AtomicU64,
    turn: Arc<Turns>,
    /// The server is ending.
    stop: Cancel,
    suppressions: Arc<[Suppression]>,
}

/// A state of a recording.
#[derive(Clone, Default)]
pub struct Snapshot {
    /// What can be asked.
    pub state: Option<State>,
    /// How far indexing is.
    pub progress: Progress,
    /// Why it cannot be opened.
    pub error: Option<String>,
    /// Grows with every change of the data.
    pub revision: u64,
    data: Option<(Arc<Trace>, Arc<Symbolizer>)>,
    taken: Option<Instant>,
    over: bool,
}

impl Snapshot {
    /// The index and its names.
    pub fn parts(&self) -> Result<(&Trace, &Symbolizer), HttpProblem> {
        let (trace, symbols) = self.shared()?;
        Ok((trace, symbols))
    }

    /// The same, for those that keep them.
    pub fn shared(&self) -> Result<(&Arc<Trace>, &Arc<Symbolizer>), HttpProblem> {
        let data = self.data.as_ref().ok_or_else(|| HttpProblem::new(StatusCode::CONFLICT, "it is not open"))?;
        Ok((&data.0, &data.1))
    }

    /// The server is ending.
    pub const fn is_over(&self) -> bool {
        self.over
    }

    /// As a document.
    pub fn live(&self) -> Live {
        let trace = self.data.as_ref().map(|(trace, _)| trace);
        Live {
            schema: "heaptrace.live/1".into(),
            state: self.state.unwrap_or(State::Indexing),
            progress: self.progress,
            watermark_ns: trace.map_or(0, |trace| trace.watermark_ns()),
            live_bytes: trace.map_or(0, |trace| trace.live_bytes()),
            revision: self.revision,
        }
    }
}

impl Served {
    fn start(
        number: usize,
        path: &Path,
        all: &[PathBuf],
        turn: &Arc<Turns>,
        stop: &Cancel,
        suppressions: &Arc<[Suppression]>,
    ) -> Arc<Self> {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let served = Arc::new(Self {
            number,
            id: format!("r{}", number + 1),
            path: path.to_owned(),
            name,
            others: all.to_vec(),
            state: watch::Sender::new(Snapshot { state: Some(State::Indexing), ..Snapshot::default() }),
            attention: Attention::default(),
            indexing: Mutex::default(),
            file: Mutex::default(),
            revisions_before: AtomicU64::new(0),
            turn: Arc::clone(turn),
            stop: stop.clone(),
            suppressions: Arc::clone(suppressions),
        });
        served.index();
        served
    }

    /// Opens it on a thread of its own, and follows it there.
    fn index(self: &Arc<Self>) {
        let cancel = self.indexing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if self.stop.is_cancelled() {
            cancel.cancel();
        }
        let this = Arc::clone(self);
        let spawned = std::thread::Builder::new().name(format!("heaptrace-{}", self.id)).spawn(move || {
            let opened = this.turn.take(&cancel, || this.open(&cancel)).flatten();
            if let Some((mut recording, symbols)) = opened {
                this.follow(&mut recording, &symbols);
                // Computes verdicts on all sites and what the first screen asks for, and caches them beside the index.
                let trace = recording.trace();
                let _ = this.turn.take(&this.stop, || leaks::keep(&trace, &this.stop));
                let ask = Ask {
                    trace: &trace,
                    symbols: &*symbols,
                    symbolizer: &symbols,
                    suppressions: &this.suppressions,
                    cancel: &this.stop,
                };
                let _ = this.turn.take(&this.stop, || routes::leaks::store_for_overview(&ask));
            } else if cancel.is_cancelled() && !this.stop.is_cancelled() {
                this.settle_cancelled();
            }
        });
        if let Err(error) = spawned {
            self.fail(format!("no thread can be started to open it: {error}"));
        }
    }

    /// Ends indexing; false if nothing is being indexed.
    pub fn cancel_indexing(&self) -> bool {
        let mut is_indexing = false;
        // Nothing is published while the state is looked at.
        self.state.send_if_modified(|snapshot| {
            is_indexing = snapshot.state == Some(State::Indexing);
            if is_indexing {
                self.indexing.lock().unwrap_or_else(PoisonError::into_inner).cancel();
            }
            false
        });
        self.turn.wake();
        is_indexing
    }

    /// Starts indexing again after it was cancelled or has failed, or where another file has the place of the one that was
    /// read; false otherwise.
    pub fn start_indexing(self: &Arc<Self>) -> bool {
        let is_changed = self.file_state() == FileState::Changed;
        let starts = self.state.send_if_modified(|snapshot| {
            let starts = match snapshot.state {
                Some(State::Cancelled | State::Failed) => true,
                // While its program runs, its thread follows the file that it has open.
                Some(State::Ready) => is_changed,
                _ => false,
            };
            if starts {
                *self.indexing.lock().unwrap_or_else(PoisonError::into_inner) = Cancel::new();
                let revision = snapshot.revision + 1;
                self.revisions_before.store(revision, Ordering::SeqCst);
                let state = Some(State::Indexing);
                *snapshot = Snapshot { state, revision, over: snapshot.over, ..Snapshot::default() };
            }
            starts
        });
        if starts {
            self.index();
        }
        starts
    }

    /// Whether the file is still the one that was read.
    fn file_state(&self) -> FileState {
        let known = self.file.lock().unwrap_or_else(PoisonError::into_inner).clone();
        known.map_or(FileState::AsRead, |file| file.state(&self.path))
    }

    /// Indexing was cancelled: nothing of it stays.
    fn settle_cancelled(&self) {
        let left = match Recording::discard_unfinished(&self.path) {
            Ok(()) => String::new(),
            Err(error) => format!("; what was written of the index cannot be removed: {error}"),
        };
        self.state.send_modify(|snapshot| {
            snapshot.state = Some(State::Cancelled);
            snapshot.progress = Progress::default();
            snapshot.error = Some(format!("indexing {} was cancelled{left}", self.name));
        });
    }

    /// Nothing if it cannot be opened, or not any more.
    fn open(&self, cancel: &Cancel) -> Option<(Recording, Arc<Symbolizer>)> {
        let state = self.state.clone();
        let options = OpenOptions {
            cancel: cancel.clone(),
            others: self.others.clone(),
            progress: Some(Arc::new(move |progress: &tracehound_ingest::IndexProgress| {
                state.send_modify(|snapshot| snapshot.progress = wire(progress));
            })),
            ..OpenOptions::default()
        };
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = OpenedFile::of(&self.path).ok();
        match Recording::open(&self.path, options) {
            Ok(recording) => {
                let symbols = Arc::new(tracehound_symbols::for_recording(&recording.trace()));
                self.publish(&recording, &symbols, cancel).then_some((recording, symbols))
            }
            Err(OpenError::Cancelled { .. }) => None,
            Err(error) => {
                self.fail(error.to_string());
                None
            }
        }
    }

    fn follow(&self, recording: &mut Recording, symbols: &Arc<Symbolizer>) {
        let going_on = Cancel::new();
        while recording.is_running() && !self.stop.is_cancelled() {
            self.attention.wait();
            if self.stop.is_cancelled() {
                return;
            }
            match recording.refresh() {
                Ok(true) => {
                    self.publish(recording, symbols, &going_on);
                }
                Ok(false) => {
                    // Watchers are not notified, but queries need not wait for a fresher state.
                    self.state.send_if_modified(|snapshot| {
                        snapshot.taken = Some(Instant::now());
                        false
                    });
                }
                Err(error) => {
                    // What was read before can still be asked about.
                    crate::tell!("heaptrace: {error}; the page shows it as it was");
                    return;
                }
            }
        }
    }

    /// False if indexing was cancelled at the last moment.
    fn publish(&self, recording: &Recording, symbols: &Arc<Symbolizer>, cancel: &Cancel) -> bool {
        let trace = recording.trace();
        let state = if recording.is_running() { State::Running } else { State::Ready };
        self.state.send_if_modified(|snapshot| {
            if cancel.is_cancelled() {
                return false;
            }
            snapshot.state = Some(state);
            snapshot.revision = self.revisions_before.load(Ordering::SeqCst) + trace.revision();
            snapshot.data = Some((trace, Arc::clone(symbols)));
            snapshot.taken = Some(Instant::now());
            true
        })
    }

    fn fail(&self, error: String) {
        self.state.send_modify(|snapshot| {
            snapshot.state = Some(State::Failed);
            snapshot.error = Some(error);
        });
    }

    fn summary(&self) -> RecordingSummary {
        let snapshot = self.state.borrow().clone();
        let process = snapshot.data.as_ref().and_then(|(trace, _)| trace.facts().process.as_ref());
        let title = process.map_or_else(
            || self.name.clone(),
            |process| {
                // What the program was called as: one file may be many programs.
                let called = process.arguments.first().filter(|name| !name.is_empty()).unwrap_or(&process.executable);
                let path = String::from_utf8_lossy(called);
                let name = path.rsplit('/').next().unwrap_or(&path);
                // Of what was imported the process is not known.
                if process.pid == 0 { name.to_owned() } else { format!("{name} ({})", process.pid) }
            },
        );
        RecordingSummary {
            id: self.id.clone(),
            name: self.name.clone(),
            title,
            started_at: process
                .filter(|process| process.started_unix_ns > 0)
                .map(|process| rfc3339(process.started_unix_ns)),
            duration_ns: snapshot.data.as_ref().map(|(trace, _)| trace.duration_ns()),
            state: snapshot.state.unwrap_or(State::Indexing),
            progress: snapshot.progress,
            error: snapshot.error,
            file: self.file_state(),
        }
    }

    /// The present state, once there is something to ask; of a running recording one that is fresh.
    pub async fn ready(&self) -> Result<Snapshot, HttpProblem> {
        self.attention.ask();
        let mut states = self.state.subscribe();
        let ready = |snapshot: &Snapshot| snapshot.state != Some(State::Indexing) || snapshot.over;
        let gone = |_| HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, "the server is ending");
        let mut snapshot = states.wait_for(ready).await.map_err(gone)?.clone();
        let stale = |snapshot: &Snapshot| snapshot.taken.is_some_and(|taken| taken.elapsed() > ATTENTION);
        if snapshot.state == Some(State::Running) && stale(&snapshot) {
            // Without a watcher: wait, with a limit, for the refresh that this query has caused.
            let fresh = states.wait_for(|snapshot| snapshot.state != Some(State::Running) || !stale(snapshot));
            if let Ok(Ok(fresh)) = tokio::time::timeout(2 * PERIOD, fresh).await {
                snapshot = fresh.clone();
            }
        }
        match &snapshot.error {
            Some(error) => Err(HttpProblem::new(StatusCode::CONFLICT, error.clone())),
            None if snapshot.over => Err(HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, "the server is ending")),
            None => Ok(snapshot),
        }
    }

    /// Its path, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Name of the recording without its extension, fit for a header.
    pub fn file_stem(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
        self.name.strip_suffix(".dat").unwrap_or(&self.name).chars().map(plain).collect()
    }

    /// States as they come; somebody is watching as long as the guard lives.
    pub fn watch(self: &Arc<Self>) -> (watch::Receiver<Snapshot>, Watching) {
        self.attention.watchers.fetch_add(1, Ordering::SeqCst);
        self.attention.wake();
        (self.state.subscribe(), Watching(Arc::clone(self)))
    }
}

/// Somebody watches.
pub struct Watching(Arc<Served>);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.attention.watchers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Watchers of a recording: whether it is to be refreshed.
#[derive(Default)]
struct Attention {
    watchers: AtomicUsize,
    /// Milliseconds since 1970.
    asked: AtomicU64,
    woken: Mutex<bool>,
    bell: Condvar,
}

impl Attention {
    fn now() -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
    }

    fn ask(&self) {
        let now = Self::now();
        let before = self.asked.swap(now, Ordering::SeqCst);
        if now.saturating_sub(before) >= ATTENTION.as_millis() as u64 {
            self.wake();
        }
    }

    fn wake(&self) {
        *self.woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.bell.notify_all();
    }

    /// Waits for the next time to look: a period if somebody is there, else until somebody comes.
    fn wait(&self) {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut first = true;
        loop {
            if *woken {
                *woken = false;
                return;
            }
            let asked = Self::now().saturating_sub(self.asked.load(Ordering::SeqCst));
            let anybody = self.watchers.load(Ordering::SeqCst) > 0 || asked < ATTENTION.as_millis() as u64;
            if anybody && !first {
                return;
            }
            woken = if anybody {
                first = false;
                self.bell.wait_timeout(woken, PERIOD).unwrap_or_else(PoisonError::into_inner).0
            } else {
                self.bell.wait(woken).unwrap_or_else(PoisonError::into_inner)
            };
        }
    }
}

/// A semaphore for threads.
struct Turns {
    free: Mutex<usize>,
    bell: Condvar,
}

impl Turns {
    const fn new(free: usize) -> Self {
        Self { free: Mutex::new(free), bell: Condvar::new() }
    }

    /// Does the work when there is room; nothing if it was cancelled before.
    fn take<T>(&self, cancel: &Cancel, work: impl FnOnce() -> T) -> Option<T> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = |free: &mut usize| *free == 0 && !cancel.is_cancelled();
        let mut free = self.bell.wait_while(free, waits).unwrap_or_else(PoisonError::into_inner);
        if cancel.is_cancelled() {
            return None;
        }
        *free -= 1;
        drop(free);
        let result = work();
        *self.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        // All: one that was cancelled takes no turn.
        self.bell.notify_all();
        Some(result)
    }

    /// Lets those that wait look whether they were cancelled.
    fn wake(&self) {
        // Under the lock, so that nobody is between looking and waiting.
        let _free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        self.bell.notify_all();
    }
}

fn wire(progress: &tracehound_ingest::IndexProgress) -> Progress {
    Progress {
        done_bytes: progress.done_bytes,
        total_bytes: progress.total_bytes,
        events: progress.events,
        events_per_second: progress.events_per_second,
    }
}
