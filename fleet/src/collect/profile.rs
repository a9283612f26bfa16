//! `/debug/pprof/heap` and `/debug/pprof/allocs` of a collector: what Go programs show there, of any recording that grows
//! here or is in the store, so that scrapers of profiles (Parca, Grafana Alloy) and `go tool pprof URL` take it as it is.
//!
//! ```text
//! ?recording=ID             the recording with this id
//! ?service=S [&version=V]   the one of this service that began last
//! &seconds=N                only the last seconds
//! ```
//! One profile at a time is made: it needs as much memory as `heaptrace` needs for the recording.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use axum::http::StatusCode;
use serde::Deserialize;
use tokio::sync::Semaphore;
use tracehound_api::Metric;
use tracehound_exports::{ExportInput, ExportScope, pprof};
use tracehound_index::Cancel;
use tracehound_ingest::{IndexPlace, OpenOptions, Recording};
use tracehound_query::{TimeExpr, Window};

use super::status::CollectorStatus;
use crate::labels::Collected;
use crate::sink::ShippingTarget;
use crate::store::{Store, is_id};
use crate::tables::pack::fetch_symbols;

/// Longest time behind `seconds`.
const LONGEST: u64 = 86_400;

/// What is asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileQuery {
    recording: Option<String>,
    service: Option<String>,
    version: Option<String>,
    seconds: Option<u64>,
    /// As in Go, where it collects garbage first: nothing here.
    #[serde(rename = "gc")]
    _gc: Option<String>,
}

/// Why there is no profile.
#[derive(Debug)]
pub struct NoProfile {
    /// What the answer begins with.
    pub status: StatusCode,
    /// In words.
    pub why: String,
}

impl NoProfile {
    fn new(status: StatusCode, why: impl Into<String>) -> Self {
        Self { status, why: why.into() }
    }
}

/// Makes profiles, one at a time.
pub struct Profiles {
    turn: Semaphore,
}

impl Default for Profiles {
    fn default() -> Self {
        Self { turn: Semaphore::new(1) }
    }
}

/// Where a recording is.
enum Place {
    /// A file of this host, which may grow.
    Here(PathBuf),
    /// In the store.
    Stored(String),
}

impl Profiles {
    /// The profile with a name that Go gives it.
    ///
    /// # Errors
    /// When it is not known, or the recording cannot be read.
    pub async fn make(
        &self,
        sink: &ShippingTarget,
        status: &CollectorStatus,
        name: &str,
        asked: &ProfileQuery,
    ) -> Result<Vec<u8>, NoProfile> {
        let metric = match name {
            "heap" => Metric::Live,
            "allocs" => Metric::Allocated,
            other => {
                let why = format!("there is no profile {other:?}; known: heap, allocs");
                return Err(NoProfile::new(StatusCode::NOT_FOUND, why));
            }
        };
        if asked.seconds.is_some_and(|seconds| !(1..=LONGEST).contains(&seconds)) {
            return Err(NoProfile::new(StatusCode::BAD_REQUEST, format!("seconds is a number from 1 to {LONGEST}")));
        }
        let failed = |error: anyhow::Error| {
            NoProfile::new(StatusCode::SERVICE_UNAVAILABLE, format!("the recording cannot be read: {error:#}"))
        };
        let turn = self.turn.acquire().await;
        let _turn = turn.map_err(|_| NoProfile::new(StatusCode::SERVICE_UNAVAILABLE, "the collector ends"))?;
        let store = match sink {
            ShippingTarget::Store(store) => Some(store.clone()),
            ShippingTarget::Remote(_) => None,
        };
        let place = find(store.as_ref(), status, asked).await?;
        let work = tempfile::tempdir().context("cannot make a folder to work in").map_err(failed)?;
        let path = match (place, &store) {
            (Place::Here(path), _) => path,
            (Place::Stored(id), Some(store)) => fetch(store, &id, work.path()).await.map_err(failed)?,
            (Place::Stored(_), None) => return Err(nothing()),
        };
        let (index, seconds) = (work.path().join("index"), asked.seconds);
        let made = tokio::task::spawn_blocking(move || write(store.as_ref(), &path, index, metric, seconds)).await;
        made.context("the profile could not be made").map_err(failed)?.map_err(failed)
    }
}

fn nothing() -> NoProfile {
    NoProfile::new(StatusCode::NOT_FOUND, "there is no such recording here: /v1/status lists those that are known")
}

/// The recording that is asked for.
async fn find(store: Option<&Store>, status: &CollectorStatus, asked: &ProfileQuery) -> Result<Place, NoProfile> {
    let failed = |error: anyhow::Error| {
        NoProfile::new(StatusCode::SERVICE_UNAVAILABLE, format!("the store does not answer: {error:#}"))
    };
    let known = status.known();
    if let Some(id) = &asked.recording {
        if !is_id(id) {
            return Err(NoProfile::new(StatusCode::BAD_REQUEST, "recording is an id of 32 hexadecimal digits"));
        }
        if let Some(path) = known.into_iter().find(|known| known.id == *id).and_then(|known| known.path) {
            return Ok(Place::Here(path));
        }
        let Some(store) = store else { return Err(nothing()) };
        let is_there = store.length(&format!("raw/{id}.dat")).await.map_err(failed)?.is_some();
        return if is_there { Ok(Place::Stored(id.clone())) } else { Err(nothing()) };
    }
    let fits = |service: &str, version: &str| {
        asked.service.as_deref().is_none_or(|wanted| wanted == service)
            && asked.version.as_deref().is_none_or(|wanted| wanted == version)
    };
    // Those that grow come first.
    let mut here: Vec<PathBuf> =
        known.into_iter().filter(|known| fits(&known.service, &known.version)).filter_map(|known| known.path).collect();
    if asked.service.is_some() && !here.is_empty() {
        here.sort_by_key(|path| path.metadata().and_then(|meta| meta.created()).ok());
        return here.pop().map(Place::Here).ok_or_else(nothing);
    }
    let mut stored: Vec<Collected> = match store {
        Some(store) => store.collected().await.map_err(failed)?,
        None => Vec::new(),
    };
    stored.retain(|about| fits(&about.service, &about.version));
    stored.sort_by_key(|about| about.started_unix_ns);
    match (asked.service.is_some(), here.as_slice(), stored.as_slice()) {
        (true, _, [.., last]) => Ok(Place::Stored(last.recording.clone())),
        (false, [one], []) => Ok(Place::Here(one.clone())),
        (false, [], [one]) => Ok(Place::Stored(one.recording.clone())),
        (_, [], []) => Err(nothing()),
        _ => {
            let count = here.len() + stored.len();
            let why = format!("there are {count} recordings: recording=ID or service=NAME chooses one");
            Err(NoProfile::new(StatusCode::BAD_REQUEST, why))
        }
    }
}

/// A recording of the store as a file, with its names.
async fn fetch(store: &Store, id: &str, work: &Path) -> Result<PathBuf> {
    let raw = format!("raw/{id}.dat");
    if let Some(folder) = &store.folder {
        return Ok(folder.join(raw));
    }
    for name in [raw.clone(), format!("{raw}.symbols")] {
        if store.length(&name).await?.is_some() {
            let path = work.join(name.trim_start_matches("raw/"));
            let mut file = std::fs::File::create(&path).context("cannot write a copy of the recording")?;
            store.fetch(&name, &mut file).await?;
        }
    }
    Ok(work.join(format!("{id}.dat")))
}

/// On a thread that may wait.
fn write(store: Option<&Store>, path: &Path, index: PathBuf, metric: Metric, seconds: Option<u64>) -> Result<Vec<u8>> {
    let cancel = Cancel::new();
    let index = IndexPlace::In(index);
    let recording = Recording::open(path, OpenOptions { index, ..OpenOptions::default() })?;
    let trace = recording.trace();
    if let Some(store) = store {
        fetch_symbols(store, &trace)?;
    }
    let symbols = tracehound_symbols::for_recording(&trace);
    let from = seconds.map(|seconds| TimeExpr::Ns(trace.duration_ns().saturating_sub(seconds * 1_000_000_000)));
    let scope = ExportScope { window: Window { from, ..Window::default() }, ..ExportScope::default() };
    let mut profile = Vec::new();
    pprof::write(ExportInput { trace: &trace, symbols: &symbols, cancel: &cancel }, &scope, metric, &mut profile)?;
    Ok(profile)
}
