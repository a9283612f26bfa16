//! Status of a collector: for people (`heaptrace collect status`, the page), for programs (JSON) and for Prometheus.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tracehound_api::units::signed_bytes;

use crate::clean;
use crate::labels::Collected;
use crate::sink::{Remote, RemoteArgs};

/// Recordings that are listed when they are over.
const MOST_STORED: usize = 1000;
/// Characters of an error that is kept.
const LONGEST: usize = 500;
/// A message that comes again is said again after so long.
const SAY_AGAIN: Duration = Duration::from_secs(60);
/// The most messages in that time.
const MOST_SAID: usize = 200;
/// Rates are those of this time.
const RATE_TIME: Duration = Duration::from_secs(10);
/// Between two samples for a rate.
const SAMPLE_TIME: Duration = Duration::from_millis(500);

/// Where a recording is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordingState {
    /// It grows, and is shipped.
    Following,
    /// The last step failed; it is tried again.
    Waiting,
    /// The store has all of it.
    Stored,
    /// Its tables are there, too.
    Packed,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct RecordingStatus {
    service: String,
    version: String,
    host: String,
    file: String,
    bytes: u64,
    /// Bytes of it that are here and not in the store.
    #[serde(default)]
    lag_bytes: u64,
    /// How long the oldest of them have been here, within the time between two looks.
    #[serde(default)]
    lag_seconds: f64,
    /// Events that its recorder dropped.
    #[serde(default)]
    lost_events: u64,
    state: RecordingState,
    /// Its file on this host.
    #[serde(skip)]
    path: Option<PathBuf>,
}

/// How far the store is behind a recording of this host, and what is missing in it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Behind {
    /// Bytes that the store lacks.
    pub bytes: u64,
    /// How long the oldest of them have been here.
    pub time: Duration,
    /// Events that its recorder dropped.
    pub lost_events: u64,
}

/// `heaptrace.collect-status/1`.
#[derive(Debug, Serialize, Deserialize)]
struct StatusDocument {
    schema: String,
    store: String,
    #[serde(default)]
    uptime_seconds: f64,
    shipped_bytes: u64,
    /// Of the last ten seconds.
    #[serde(default)]
    shipped_bytes_per_second: f64,
    taken_in_bytes: u64,
    #[serde(default)]
    taken_in_bytes_per_second: f64,
    /// Bytes that are here and not in the store.
    #[serde(default)]
    lag_bytes: u64,
    /// The longest that any of them have been here.
    #[serde(default)]
    lag_seconds: f64,
    /// Events that recorders dropped.
    #[serde(default)]
    lost_events: u64,
    /// Recordings that were taken away before the store had all of them.
    #[serde(default)]
    lost_recordings: u64,
    given_back_bytes: u64,
    spool_bytes: u64,
    over_quota: u64,
    /// Recordings that were ended for a quota.
    #[serde(default)]
    ended: u64,
    /// Files whose symbols were brought into the store.
    #[serde(default)]
    symbol_files: u64,
    stored: u64,
    packed: u64,
    errors: u64,
    last_error: String,
    recordings: BTreeMap<String, RecordingStatus>,
}

/// What a collector does.
#[derive(Debug)]
pub struct CollectorStatus {
    store: String,
    shipped: AtomicU64,
    taken_in: AtomicU64,
    given_back: AtomicU64,
    spool: AtomicU64,
    over_quota: AtomicU64,
    ended: AtomicU64,
    symbol_files: AtomicU64,
    stored: AtomicU64,
    packed: AtomicU64,
    errors: AtomicU64,
    lost_events: AtomicU64,
    lost_recordings: AtomicU64,
    began: Instant,
    /// Bytes that were shipped and taken in, at some moments of the last seconds.
    samples: Mutex<VecDeque<(Instant, u64, u64)>>,
    has_failed: AtomicBool,
    last_error: Mutex<String>,
    /// When each message was said last.
    said: Mutex<HashMap<String, Instant>>,
    recordings: Mutex<BTreeMap<String, RecordingStatus>>,
}

impl CollectorStatus {
    /// Of a collector that ships to this store.
    pub fn new(store: String) -> Self {
        Self {
            store,
            shipped: AtomicU64::new(0),
            taken_in: AtomicU64::new(0),
            given_back: AtomicU64::new(0),
            spool: AtomicU64::new(0),
            over_quota: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            symbol_files: AtomicU64::new(0),
            stored: AtomicU64::new(0),
            packed: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            lost_events: AtomicU64::new(0),
            lost_recordings: AtomicU64::new(0),
            began: Instant::now(),
            samples: Mutex::default(),
            has_failed: AtomicBool::new(false),
            last_error: Mutex::default(),
            said: Mutex::default(),
            recordings: Mutex::default(),
        }
    }

    /// So many bytes of local recordings were acknowledged.
    pub fn shipped(&self, bytes: u64) {
        self.shipped.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many bytes came from other collectors.
    pub fn taken_in(&self, bytes: u64) {
        self.taken_in.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many bytes of the spool are holes now.
    pub fn given_back(&self, bytes: u64) {
        self.given_back.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The spool has so many bytes on the disk.
    pub fn spool(&self, bytes: u64) {
        self.spool.store(bytes, Ordering::Relaxed);
    }

    /// The spool is over its quota, and nothing of it may go.
    pub fn over_quota(&self) {
        self.over_quota.fetch_add(1, Ordering::Relaxed);
    }

    /// A recording was taken away before the store had all of it.
    pub fn lost_recording(&self) {
        self.lost_recordings.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes a sample for rates, if it is time.
    pub fn sample(&self) {
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.back().is_some_and(|(when, ..)| when.elapsed() < SAMPLE_TIME) {
            return;
        }
        samples.push_back((
            Instant::now(),
            self.shipped.load(Ordering::Relaxed),
            self.taken_in.load(Ordering::Relaxed),
        ));
        // One that is older than the time stays: rates are of at least so long.
        while samples.get(1).is_some_and(|(when, ..)| when.elapsed() >= RATE_TIME) {
            samples.pop_front();
        }
    }

    /// Bytes a second that are shipped and taken in.
    fn rates(&self) -> (f64, f64) {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((when, shipped, taken_in)) = samples.front() else { return (0.0, 0.0) };
        let seconds = when.elapsed().as_secs_f64().max(0.001);
        let rate = |now: &AtomicU64, then: u64| now.load(Ordering::Relaxed).saturating_sub(then) as f64 / seconds;
        (rate(&self.shipped, *shipped), rate(&self.taken_in, *taken_in))
    }

    /// How far the store is behind a recording of this host, which lies at a path.
    pub fn behind(&self, id: &str, path: &Path, behind: Behind) {
        let mut all = self.recordings.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = all.get_mut(id) else { return };
        self.add_lost(known, behind.lost_events);
        known.lag_bytes = behind.bytes;
        known.lag_seconds = behind.time.as_secs_f64();
        known.path = (behind.bytes > 0 || !is_over(known.state)).then(|| path.to_owned());
    }

    /// A recording lacks so many events.
    pub fn lost_events(&self, id: &str, lost_events: u64) {
        let mut all = self.recordings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get_mut(id) {
            self.add_lost(known, lost_events);
        }
    }

    fn add_lost(&self, known: &mut RecordingStatus, lost_events: u64) {
        self.lost_events.fetch_add(lost_events.saturating_sub(known.lost_events), Ordering::Relaxed);
        known.lost_events = known.lost_events.max(lost_events);
    }

    /// The recordings that somebody may ask for: id, service, version, and the file of those that are on this host.
    pub fn known(&self) -> Vec<KnownRecording> {
        let all = self.recordings.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |(id, known): (&String, &RecordingStatus)| KnownRecording {
            id: id.clone(),
            service: known.service.clone(),
            version: known.version.clone(),
            path: known.path.clone(),
        };
        all.iter().map(of).collect()
    }

    /// The symbols of a file are in the store: so many bytes of them are new.
    pub fn symbols_kept(&self, bytes: u64) {
        if bytes > 0 {
            self.symbol_files.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A recording is ended for a quota; `why` is said on standard error.
    pub fn ended_for_quota(&self, why: &str) {
        self.ended.fetch_add(1, Ordering::Relaxed);
        crate::tell!("heaptrace: {}", clean(why));
    }

    /// Something failed for good; it is said on standard error, once a minute however often it comes again.
    pub fn error(&self, why: &str) {
        self.has_failed.store(true, Ordering::Relaxed);
        self.retried(why);
    }

    /// Something failed that is tried again; it is said as an error is.
    pub fn retried(&self, why: &str) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        let why: String = clean(why).chars().take(LONGEST).collect();
        (*self.last_error.lock().unwrap_or_else(PoisonError::into_inner)).clone_from(&why);
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.retain(|_, when| when.elapsed() < SAY_AGAIN);
        if said.len() < MOST_SAID && !said.contains_key(&why) {
            crate::tell!("heaptrace: {why}");
            said.insert(why, Instant::now());
        }
    }

    /// Whether anything failed for good.
    pub fn failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// A recording is this far.
    pub fn recording(&self, about: &Collected, bytes: u64, state: RecordingState) {
        let mut all = self.recordings.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.get(&about.recording);
        let before = known.map(|known| known.state);
        if is_over(state) && !before.is_some_and(is_over) {
            self.stored.fetch_add(1, Ordering::Relaxed);
        }
        if state == RecordingState::Packed && before != Some(state) {
            self.packed.fetch_add(1, Ordering::Relaxed);
        }
        let status = RecordingStatus {
            service: about.service.clone(),
            version: about.version.clone(),
            host: about.host.clone(),
            file: about.file.clone(),
            bytes,
            lag_bytes: if is_over(state) { 0 } else { known.map_or(0, |known| known.lag_bytes) },
            lag_seconds: if is_over(state) { 0.0 } else { known.map_or(0.0, |known| known.lag_seconds) },
            lost_events: known.map_or(0, |known| known.lost_events),
            path: if is_over(state) { None } else { known.and_then(|known| known.path.clone()) },
            state,
        };
        all.insert(about.recording.clone(), status);
        while all.len() > MOST_STORED
            && let Some(over) = all.iter().find(|(_, known)| is_over(known.state)).map(|(id, _)| id.clone())
        {
            all.remove(&over);
        }
    }

    fn document(&self) -> StatusDocument {
        let of = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let (shipped_rate, taken_in_rate) = self.rates();
        let recordings = self.recordings.lock().unwrap_or_else(PoisonError::into_inner).clone();
        StatusDocument {
            schema: "heaptrace.collect-status/1".into(),
            store: self.store.clone(),
            uptime_seconds: self.began.elapsed().as_secs_f64(),
            shipped_bytes: of(&self.shipped),
            shipped_bytes_per_second: shipped_rate,
            taken_in_bytes: of(&self.taken_in),
            taken_in_bytes_per_second: taken_in_rate,
            lag_bytes: recordings.values().map(|known| known.lag_bytes).sum(),
            lag_seconds: recordings.values().map(|known| known.lag_seconds).fold(0.0, f64::max),
            lost_events: of(&self.lost_events),
            lost_recordings: of(&self.lost_recordings),
            given_back_bytes: of(&self.given_back),
            spool_bytes: of(&self.spool),
            over_quota: of(&self.over_quota),
            ended: of(&self.ended),
            symbol_files: of(&self.symbol_files),
            stored: of(&self.stored),
            packed: of(&self.packed),
            errors: of(&self.errors),
            last_error: self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            recordings,
        }
    }

    /// As JSON.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(&self.document()).unwrap_or_default()
    }

    /// Prometheus's text format.
    pub fn metrics(&self) -> String {
        let status = self.document();
        let following = status.recordings.values().filter(|known| known.state == RecordingState::Following).count();
        let waiting = status.recordings.values().filter(|known| known.state == RecordingState::Waiting).count();
        let mut out = String::new();
        let rows = [
            (
                "shipped_bytes_total",
                "counter",
                "bytes of local recordings that the store has acknowledged",
                status.shipped_bytes,
            ),
            ("taken_in_bytes_total", "counter", "bytes that came from other collectors", status.taken_in_bytes),
            ("given_back_bytes_total", "counter", "bytes of the spool that are holes now", status.given_back_bytes),
            ("spool_bytes", "gauge", "bytes of the spool on the disk", status.spool_bytes),
            ("over_quota_total", "counter", "looks that found the spool over its quota", status.over_quota),
            ("ended_recordings_total", "counter", "recordings that were ended for a quota", status.ended),
            ("symbol_files_total", "counter", "programs and libraries whose symbols were stored", status.symbol_files),
            ("stored_recordings_total", "counter", "recordings that the store has whole", status.stored),
            ("packed_recordings_total", "counter", "recordings whose tables the store has", status.packed),
            ("errors_total", "counter", "steps that failed, and were or will be tried again", status.errors),
            (
                "lost_events_total",
                "counter",
                "events that recordings lack: that their recorders dropped, or that are damaged",
                status.lost_events,
            ),
            (
                "lost_recordings_total",
                "counter",
                "recordings that were taken away before the store had all of them",
                status.lost_recordings,
            ),
            ("lag_bytes", "gauge", "bytes of the spool that the store has not acknowledged", status.lag_bytes),
            ("following_recordings", "gauge", "recordings that are shipped as they grow", following as u64),
            ("waiting_recordings", "gauge", "recordings whose last step failed", waiting as u64),
        ];
        for (name, kind, help, value) in rows {
            let _ = writeln!(
                out,
                "# HELP tracehound_collect_{name} {help}\n# TYPE tracehound_collect_{name} {kind}\ntracehound_collect_{name} {value}"
            );
        }
        let rows = [
            (
                "lag_seconds",
                "how long the oldest bytes have waited that the store has not acknowledged",
                status.lag_seconds,
            ),
            (
                "shipped_bytes_per_second",
                "bytes of local recordings that the store acknowledges, of the last ten seconds",
                status.shipped_bytes_per_second,
            ),
            (
                "taken_in_bytes_per_second",
                "bytes that come from other collectors, of the last ten seconds",
                status.taken_in_bytes_per_second,
            ),
            ("uptime_seconds", "how long this collector has run", status.uptime_seconds),
        ];
        for (name, help, value) in rows {
            let _ = writeln!(
                out,
                "# HELP tracehound_collect_{name} {help}\n# TYPE tracehound_collect_{name} gauge\ntracehound_collect_{name} {value:.3}"
            );
        }
        out
    }

    /// A page of it.
    pub fn page(&self) -> String {
        page_of(&self.document())
    }
}

fn is_over(state: RecordingState) -> bool {
    matches!(state, RecordingState::Stored | RecordingState::Packed)
}

/// A recording that somebody may ask for.
#[derive(Debug, Clone)]
pub struct KnownRecording {
    /// Its id.
    pub id: String,
    /// Its service.
    pub service: String,
    /// Its version.
    pub version: String,
    /// Its file, if it is on this host.
    pub path: Option<PathBuf>,
}

fn text_of(status: &StatusDocument) -> String {
    let size = |bytes: u64| signed_bytes(i64::try_from(bytes).unwrap_or(i64::MAX));
    let rate = |bytes: f64| signed_bytes(bytes.round() as i64);
    let mut out = format!(
        "store      {}\nshipped    {}, {}/s\ntaken in   {}, {}/s\nspool      {}, given back {}\nlag        {}, {:.1} s\nrecordings {} stored, {} with tables\n",
        clean(&status.store),
        size(status.shipped_bytes),
        rate(status.shipped_bytes_per_second),
        size(status.taken_in_bytes),
        rate(status.taken_in_bytes_per_second),
        size(status.spool_bytes),
        size(status.given_back_bytes),
        size(status.lag_bytes),
        status.lag_seconds,
        status.stored,
        status.packed,
    );
    let _ = writeln!(
        out,
        "lost       {} events, {} recordings; {} errors",
        status.lost_events, status.lost_recordings, status.errors
    );
    if status.over_quota > 0 {
        out.push_str("the spool is over its quota with what the store has not acknowledged\n");
    }
    if status.ended > 0 {
        let _ = writeln!(out, "recordings ended for a quota, whose programs go on: {}", status.ended);
    }
    if !status.last_error.is_empty() {
        let _ = writeln!(out, "last error: {}", clean(&status.last_error));
    }
    for (id, known) in &status.recordings {
        let state = serde_json::to_value(known.state).unwrap_or_default();
        let _ = writeln!(
            out,
            "{id}  {:<9}  {:>10}  lag {:>10} {:>6.1} s  {} {} on {}  {}",
            state.as_str().unwrap_or_default(),
            size(known.bytes),
            size(known.lag_bytes),
            known.lag_seconds,
            clean(&known.service),
            clean(&known.version),
            clean(&known.host),
            clean(&known.file)
        );
    }
    out
}

fn page_of(status: &StatusDocument) -> String {
    let escaped = text_of(status).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"5\">\
         <title>heaptrace collect</title><h1>heaptrace collect</h1><pre>{escaped}</pre></html>\n"
    )
}

/// Options of `heaptrace collect status`.
#[derive(Debug, clap::Args)]
pub struct StatusArgs {
    /// Address of the collector: HOST:PORT, or a URL
    #[arg(value_name = "ADDRESS", default_value = "127.0.0.1:9900")]
    address: String,
    #[command(flatten)]
    remote: RemoteArgs,
    /// Print one JSON document, with a stable schema
    #[arg(long)]
    json: bool,
}

/// Asks a collector.
pub async fn run(args: StatusArgs) -> Result<ExitCode> {
    let remote = Remote::new(&super::send::url_of(&args.address), &args.remote)?;
    let answer = remote.ask(reqwest::Method::GET, "/v1/status", bytes::Bytes::new()).await?;
    if args.json {
        crate::print(&format!("{}\n", String::from_utf8_lossy(&answer).trim_end()))?;
    } else {
        crate::print(&text_of(&serde_json::from_slice(&answer)?))?;
    }
    Ok(ExitCode::SUCCESS)
}
