//! Status of a collector: for people (`heaptrace collect status`, the page), for programs (JSON) and for Prometheus.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::clean;
use crate::labels::Collected;
use crate::sink::Remote;

/// Recordings that are listed when they are over.
const MOST_STORED: usize = 1000;
/// Characters of an error that is kept.
const LONGEST: usize = 500;
/// Time after which a repeated message is printed again.
const SAY_AGAIN: Duration = Duration::from_secs(60);
/// Most messages in that time.
const MOST_SAID: usize = 200;

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
    state: RecordingState,
}

/// `heaptrace.collect-status/1`.
#[derive(Debug, Serialize, Deserialize)]
struct StatusDocument {
    schema: String,
    store: String,
    shipped_bytes: u64,
    taken_in_bytes: u64,
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
    has_failed: AtomicBool,
    last_error: Mutex<String>,
    /// When each message was said last.
    said: Mutex<HashMap<String, Instant>>,
    recordings: Mutex<BTreeMap<String, RecordingStatus>>,
}

impl CollectorStatus {
    /// Status of a collector that ships to this store.
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
            has_failed: AtomicBool::new(false),
            last_error: Mutex::default(),
            said: Mutex::default(),
            recordings: Mutex::default(),
        }
    }

    /// Counts bytes of local recordings that were acknowledged.
    pub fn shipped(&self, bytes: u64) {
        self.shipped.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes that came from other collectors.
    pub fn taken_in(&self, bytes: u64) {
        self.taken_in.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes of the spool that became holes.
    pub fn given_back(&self, bytes: u64) {
        self.given_back.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Sets the bytes of the spool on the disk.
    pub fn spool(&self, bytes: u64) {
        self.spool.store(bytes, Ordering::Relaxed);
    }

    /// Notes that the spool is over its quota, and that nothing of it may be deleted.
    pub fn over_quota(&self) {
        self.over_quota.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a file whose symbols are in the store, with the bytes of them that are new.
    pub fn symbols_kept(&self, bytes: u64) {
        if bytes > 0 {
            self.symbol_files.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a recording that was ended for a quota, and prints `why` on standard error.
    pub fn ended_for_quota(&self, why: &str) {
        self.ended.fetch_add(1, Ordering::Relaxed);
        eprintln!("heaptrace: {}", clean(why));
    }

    /// Counts a permanent error, and prints it on standard error, at most once a minute however often it comes again.
    pub fn error(&self, why: &str) {
        self.has_failed.store(true, Ordering::Relaxed);
        self.retried(why);
    }

    /// Counts an error that is retried; it is printed as a permanent one is.
    pub fn retried(&self, why: &str) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        let why: String = clean(why).chars().take(LONGEST).collect();
        (*self.last_error.lock().unwrap_or_else(PoisonError::into_inner)).clone_from(&why);
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.retain(|_, when| when.elapsed() < SAY_AGAIN);
        if said.len() < MOST_SAID && !said.contains_key(&why) {
            eprintln!("heaptrace: {why}");
            said.insert(why, Instant::now());
        }
    }

    /// Whether anything failed for good.
    pub fn failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Sets the state of a recording.
    pub fn recording(&self, about: &Collected, bytes: u64, state: RecordingState) {
        let mut all = self.recordings.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.get(&about.recording).map(|known| known.state);
        let is_over = |state| matches!(state, RecordingState::Stored | RecordingState::Packed);
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
        StatusDocument {
            schema: "heaptrace.collect-status/1".into(),
            store: self.store.clone(),
            shipped_bytes: of(&self.shipped),
            taken_in_bytes: of(&self.taken_in),
            given_back_bytes: of(&self.given_back),
            spool_bytes: of(&self.spool),
            over_quota: of(&self.over_quota),
            ended: of(&self.ended),
            symbol_files: of(&self.symbol_files),
            stored: of(&self.stored),
            packed: of(&self.packed),
            errors: of(&self.errors),
            last_error: self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            recordings: self.recordings.lock().unwrap_or_else(PoisonError::into_inner).clone(),
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
            ("following_recordings", "gauge", "recordings that are shipped as they grow", following as u64),
            ("waiting_recordings", "gauge", "recordings whose last step failed", waiting as u64),
        ];
        for (name, kind, help, value) in rows {
            let _ = writeln!(
                out,
                "# HELP tracehound_collect_{name} {help}\n# TYPE tracehound_collect_{name} {kind}\ntracehound_collect_{name} {value}"
            );
        }
        out
    }

    /// A page of it.
    pub fn page(&self) -> String {
        page_of(&self.document())
    }
}

fn text_of(status: &StatusDocument) -> String {
    let mut out = format!(
        "store {}\nshipped {} bytes, taken in {}, given back {}; spool {} bytes; {} stored, {} with tables, {} errors\n",
        clean(&status.store),
        status.shipped_bytes,
        status.taken_in_bytes,
        status.given_back_bytes,
        status.spool_bytes,
        status.stored,
        status.packed,
        status.errors
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
            "{id}  {:<9}  {:>12}  {} {} on {}  {}",
            state.as_str().unwrap_or_default(),
            known.bytes,
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
    /// Address of the collector
    #[arg(value_name = "ADDRESS", default_value = "127.0.0.1:9900")]
    address: String,
    /// Its secret
    #[arg(long, env = "HEAPTRACE_TOKEN", hide_env_values = true, value_name = "SECRET")]
    token: Option<String>,
    /// Print one JSON document, with a stable schema
    #[arg(long)]
    json: bool,
}

/// Asks a collector.
pub async fn run(args: StatusArgs) -> Result<ExitCode> {
    let remote = Remote::new(&super::send::url_of(&args.address), args.token)?;
    let answer = remote.ask(reqwest::Method::GET, "/v1/status", bytes::Bytes::new()).await?;
    if args.json {
        println!("{}", String::from_utf8_lossy(&answer).trim_end());
    } else {
        print!("{}", text_of(&serde_json::from_slice(&answer)?));
    }
    Ok(ExitCode::SUCCESS)
}
