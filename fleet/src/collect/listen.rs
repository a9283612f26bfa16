//! HTTP: what other collectors send, and what this one does.
//!
//! ```text
//! GET  /v1/recordings/ID                          how much of it is here: {"bytes": …, "sealed": …, "finished": …}
//! PUT  /v1/recordings/ID?at=OFFSET&crc32=C&end=E  bytes behind those that are here; 409 and the length otherwise
//! POST /v1/recordings/ID/finish                   nothing more will come; what is known of it (heaptrace.collected/1)
//! GET  /v1/symbols/BUILD_ID                       whether they are here: {"kept": …}
//! PUT  /v1/symbols/BUILD_ID?crc32=C               symbols, packed
//! GET  /v1/status   GET /metrics   GET /
//! GET  /debug/pprof/heap, /debug/pprof/allocs     a recording as a profile (`profile.rs`)
//! ```
//! Bytes are acknowledged when the store has them. What they are is not looked at: readers of recordings take none of
//! them for granted.

use std::collections::HashMap;
use std::io::{Seek, SeekFrom, Write};
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};

use anyhow::{Context, Result, bail};
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use serde::Deserialize;
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};
use tokio_rustls::TlsAcceptor;

use super::profile::{ProfileQuery, Profiles};
use super::status::{CollectorStatus, RecordingState};
use super::tls::TlsListener;
use crate::clean;
use crate::labels::Collected;
use crate::sink::{KeptSymbols, ShippingTarget};
use crate::store::{Shipped, is_id};
use crate::symbols::object_name;
use crate::tables::pack::Packer;

/// Longest body: the largest block there is, a piece before it, and the header.
const LONGEST_BODY: usize = (64 << 20) + (5 << 20);
/// Bodies that are in memory at once.
const BODIES: usize = 4;
/// Recordings that are taken in at once.
const MOST_OPEN: usize = 100_000;

struct Listener {
    sink: ShippingTarget,
    token: Option<String>,
    status: Arc<CollectorStatus>,
    packer: Packer,
    bodies: Semaphore,
    profiles: Profiles,
    /// One at a time writes a recording; how much of it is known to be there.
    open: std::sync::Mutex<HashMap<String, Arc<Mutex<Option<Shipped>>>>>,
}

/// Listens from now on.
pub async fn start(
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    sink: ShippingTarget,
    token: Option<String>,
    status: Arc<CollectorStatus>,
    packer: Packer,
) -> Result<()> {
    if !address.ip().is_loopback() && token.is_none() {
        bail!(
            "everybody who reaches {address} could write into the store: --listen there needs --token (or HEAPTRACE_TOKEN)"
        );
    }
    let socket = tokio::net::TcpListener::bind(address).await;
    let socket = socket.with_context(|| format!("cannot listen on {address}"))?;
    let address = socket.local_addr()?;
    let bodies = Semaphore::new(BODIES);
    let (profiles, open) = (Profiles::default(), std::sync::Mutex::default());
    let state = Arc::new(Listener { sink, token, status, packer, bodies, profiles, open });
    let router = Router::new()
        .route("/v1/recordings/{id}", get(shipped))
        .route("/v1/recordings/{id}", put(append).layer(DefaultBodyLimit::max(LONGEST_BODY)))
        .route("/v1/recordings/{id}/finish", post(finish).layer(DefaultBodyLimit::max(1 << 16)))
        .route("/v1/symbols/{build_id}", get(kept_symbols))
        .route("/v1/symbols/{build_id}", put(keep_symbols).layer(DefaultBodyLimit::max(LONGEST_BODY)))
        .route("/v1/status", get(status_json))
        .route("/metrics", get(metrics))
        .route("/debug/pprof/{profile}", get(pprof))
        .route("/", get(page))
        .layer(middleware::from_fn_with_state(Arc::clone(&state), guard))
        .with_state(state);
    let scheme = if tls.is_some() { "https" } else { "http" };
    crate::tell!("heaptrace: collecting at {scheme}://{address}");
    if let Some(acceptor) = tls {
        let listener = TlsListener::start(socket, acceptor)?;
        tokio::spawn(async move { axum::serve(listener, router).await });
        return Ok(());
    }
    if !address.ip().is_loopback() {
        crate::tell!("heaptrace: recordings and the token come in the clear: --tls-cert and --tls-key encrypt them");
    }
    tokio::spawn(async move { axum::serve(socket, router).await });
    Ok(())
}

/// Who may ask: whoever has the token; and no page of another site.
async fn guard(State(listener): State<Arc<Listener>>, request: Request, next: Next) -> Response {
    if request.headers().contains_key(header::ORIGIN) {
        return (StatusCode::FORBIDDEN, "web pages may not send requests to a collector\n").into_response();
    }
    if let Some(token) = &listener.token {
        let given = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
        if !is_same(given.as_bytes(), token.as_bytes()) {
            return (StatusCode::UNAUTHORIZED, "the token is missing or wrong\n").into_response();
        }
    }
    next.run(request).await
}

/// In a time that does not say where they differ.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

enum RefusedRequest {
    NoId,
    NoBuildId,
    TooMany,
    Elsewhere(Shipped),
    Damaged,
    Busy(String),
    Wrong(String),
}

impl IntoResponse for RefusedRequest {
    fn into_response(self) -> Response {
        match self {
            Self::NoId => (StatusCode::NOT_FOUND, "an id has 32 hexadecimal digits\n").into_response(),
            Self::NoBuildId => (StatusCode::NOT_FOUND, "a build id has 8 to 128 hexadecimal digits\n").into_response(),
            Self::TooMany => (StatusCode::SERVICE_UNAVAILABLE, "too many recordings at once\n").into_response(),
            Self::Elsewhere(shipped) => (StatusCode::CONFLICT, Json(shipped)).into_response(),
            Self::Damaged => (StatusCode::BAD_REQUEST, "the bytes are not those that were sent\n").into_response(),
            Self::Busy(why) => (StatusCode::SERVICE_UNAVAILABLE, clean(&why)).into_response(),
            Self::Wrong(why) => (StatusCode::BAD_REQUEST, clean(&why)).into_response(),
        }
    }
}

impl Listener {
    /// The bytes of a request whose checksum is `crc32`, and the turn that bounds how many bodies are in memory at once.
    async fn checked_body(&self, request: Request, crc32: u32) -> Result<(Bytes, SemaphorePermit<'_>), RefusedRequest> {
        let turn = self.bodies.acquire().await.map_err(|_| RefusedRequest::TooMany)?;
        let body = axum::body::to_bytes(request.into_body(), LONGEST_BODY).await;
        let body = body.map_err(|error| RefusedRequest::Wrong(format!("{error}\n")))?;
        if crc32fast::hash(&body) != crc32 || body.is_empty() {
            return Err(RefusedRequest::Damaged);
        }
        Ok((body, turn))
    }

    fn recording(&self, id: &str) -> Result<Arc<Mutex<Option<Shipped>>>, RefusedRequest> {
        if !is_id(id) {
            return Err(RefusedRequest::NoId);
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= MOST_OPEN && !open.contains_key(id) {
            // Those that nobody writes are asked of the store again.
            open.retain(|_, known| Arc::strong_count(known) > 1);
            if open.len() >= MOST_OPEN {
                return Err(RefusedRequest::TooMany);
            }
        }
        Ok(Arc::clone(open.entry(id.to_owned()).or_default()))
    }

    async fn known(&self, id: &str, known: &mut Option<Shipped>) -> Result<Shipped, RefusedRequest> {
        if let Some(shipped) = known {
            return Ok(shipped.clone());
        }
        let shipped = self.sink.shipped(id).await.map_err(|error| self.failed(&error))?;
        *known = Some(shipped.clone());
        Ok(shipped)
    }

    fn failed(&self, error: &anyhow::Error) -> RefusedRequest {
        self.status.error(&format!("{error:#}"));
        RefusedRequest::Busy("the store does not answer; try again\n".into())
    }
}

async fn shipped(
    State(listener): State<Arc<Listener>>,
    Path(id): Path<String>,
) -> Result<Json<Shipped>, RefusedRequest> {
    let recording = listener.recording(&id)?;
    let mut known = recording.lock().await;
    Ok(Json(listener.known(&id, &mut known).await?))
}

#[derive(Deserialize)]
struct Append {
    at: u64,
    crc32: u32,
    #[serde(default)]
    end: bool,
}

async fn append(
    State(listener): State<Arc<Listener>>,
    Path(id): Path<String>,
    Query(asked): Query<Append>,
    request: Request,
) -> Result<Json<Shipped>, RefusedRequest> {
    let recording = listener.recording(&id)?;
    let (body, _turn) = listener.checked_body(request, asked.crc32).await?;
    let mut known = recording.lock().await;
    let before = listener.known(&id, &mut known).await?;
    if before.finished || before.sealed || before.bytes != asked.at {
        return Err(RefusedRequest::Elsewhere(before));
    }
    let bytes = body.len() as u64;
    if let Err(error) = listener.sink.append(&id, asked.at, body, asked.end).await {
        // It may have been taken all the same.
        *known = None;
        return Err(listener.failed(&error));
    }
    listener.status.taken_in(bytes);
    let now = Shipped { bytes: asked.at + bytes, sealed: asked.end, finished: false };
    let about = Collected { recording: id.clone(), ..Collected::default() };
    listener.status.recording(&about, now.bytes, RecordingState::Following);
    *known = Some(now.clone());
    Ok(Json(now))
}

async fn finish(
    State(listener): State<Arc<Listener>>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Json<Shipped>, RefusedRequest> {
    let about: Collected =
        serde_json::from_slice(&body).map_err(|error| RefusedRequest::Wrong(format!("{error}\n")))?;
    if about.recording != id {
        return Err(RefusedRequest::Wrong("the description is of another recording\n".into()));
    }
    let recording = listener.recording(&id)?;
    let mut known = recording.lock().await;
    let before = listener.known(&id, &mut known).await?;
    if before.bytes == 0 {
        return Err(RefusedRequest::Wrong("there is nothing of this recording\n".into()));
    }
    listener.sink.finish(&about).await.map_err(|error| listener.failed(&error))?;
    let now = Shipped { bytes: before.bytes, sealed: true, finished: true };
    *known = Some(now.clone());
    listener.status.recording(&about, now.bytes, RecordingState::Stored);
    if !before.finished {
        listener.packer.pack(about);
    }
    Ok(Json(now))
}

async fn kept_symbols(
    State(listener): State<Arc<Listener>>,
    Path(build_id): Path<String>,
) -> Result<Json<KeptSymbols>, RefusedRequest> {
    object_name(&build_id).ok_or(RefusedRequest::NoBuildId)?;
    let kept = listener.sink.has_symbols(&build_id).await.map_err(|error| listener.failed(&error))?;
    Ok(Json(KeptSymbols { kept }))
}

#[derive(Deserialize)]
struct PackedBody {
    crc32: u32,
}

async fn keep_symbols(
    State(listener): State<Arc<Listener>>,
    Path(build_id): Path<String>,
    Query(asked): Query<PackedBody>,
    request: Request,
) -> Result<Json<KeptSymbols>, RefusedRequest> {
    object_name(&build_id).ok_or(RefusedRequest::NoBuildId)?;
    let (body, _turn) = listener.checked_body(request, asked.crc32).await?;
    let put = async {
        let mut file = tempfile::tempfile()?;
        file.write_all(&body)?;
        file.seek(SeekFrom::Start(0))?;
        listener.sink.put_symbols(&build_id, file).await
    };
    put.await.map_err(|error| listener.failed(&error))?;
    listener.status.symbols_kept(body.len() as u64);
    Ok(Json(KeptSymbols { kept: true }))
}

async fn status_json(State(listener): State<Arc<Listener>>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], listener.status.json()).into_response()
}

async fn metrics(State(listener): State<Arc<Listener>>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], listener.status.metrics()).into_response()
}

async fn pprof(
    State(listener): State<Arc<Listener>>,
    Path(name): Path<String>,
    Query(asked): Query<ProfileQuery>,
) -> Response {
    match listener.profiles.make(&listener.sink, &listener.status, &name, &asked).await {
        Ok(profile) => {
            ([(header::CONTENT_TYPE, "application/octet-stream"), (header::CACHE_CONTROL, "no-store")], profile)
                .into_response()
        }
        Err(refused) => (refused.status, clean(&refused.why) + "\n").into_response(),
    }
}

async fn page(State(listener): State<Arc<Listener>>) -> Response {
    let headers =
        [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, "default-src 'none'")];
    (headers, listener.status.page()).into_response()
}
