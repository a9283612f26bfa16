//! From a request to an answer: find the recording, read the parameters, ask on a thread that may block, keep the
//! answer for the next time. A client that goes away ends the computation.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use axum::body::Bytes;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::sync::Semaphore;
use tracehound_index::{Cancel, Trace};
use tracehound_query::QueryError;
use tracehound_query::suppress::Suppression;

use super::cache::CacheKey;
use super::params::{self, Query};
use super::problem::HttpProblem;
use super::served::{App, Served, Snapshot};
use super::stored::{self, StoredAnswer};
use tracehound_index::symbols::{AllFrames, RecordingSymbols};
use tracehound_symbols::Symbolizer;

/// Shorthand for what routes return.
pub type Result<T> = std::result::Result<T, HttpProblem>;

/// What a query works on.
pub struct Ask<'a> {
    /// The recording.
    pub trace: &'a Trace,
    /// Its names, and which frames are shown.
    pub symbols: &'a dyn RecordingSymbols,
    /// Where the names come from.
    pub symbolizer: &'a Symbolizer,
    /// Suppressions of the files that the server was started with.
    pub suppressions: &'a [Suppression],
    /// Set when the client has gone.
    pub cancel: &'a Cancel,
}

/// A request about a recording.
pub struct RecordingRequest {
    app: Arc<App>,
    /// The recording.
    pub served: Arc<Served>,
    path: Vec<(String, String)>,
    uri: Uri,
    headers: HeaderMap,
}

impl FromRequestParts<Arc<App>> for RecordingRequest {
    type Rejection = HttpProblem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self> {
        let Path(path): Path<Vec<(String, String)>> = Path::from_request_parts(parts, app)
            .await
            .map_err(|_| HttpProblem::new(StatusCode::BAD_REQUEST, "the path is not UTF-8"))?;
        let served = match path.iter().find(|(name, _)| name == "id") {
            Some((_, id)) => app.find(id)?,
            // Where tools choose the path, a parameter does.
            None => app.find_or_only(params::first(parts.uri.query(), "recording").as_deref())?,
        };
        Ok(Self { app: Arc::clone(app), served, path, uri: parts.uri.clone(), headers: parts.headers.clone() })
    }
}

impl RecordingRequest {
    /// Reads the parameters and answers with the JSON of what `run` returns.
    pub async fn answer<Q, T>(self, run: impl FnOnce(&Ask<'_>, Q) -> Result<T> + Send + 'static) -> Result<Response>
    where
        Q: Query + Send + 'static,
        T: Serialize,
    {
        self.answer_with(0, run).await
    }

    /// As [`Self::answer`], for an answer that depends on another recording's revision as well.
    pub async fn answer_with<Q, T>(
        self,
        other_revision: u64,
        run: impl FnOnce(&Ask<'_>, Q) -> Result<T> + Send + 'static,
    ) -> Result<Response>
    where
        Q: Query + Send + 'static,
        T: Serialize,
    {
        let query: Q = self.query()?;
        let snapshot = self.served.ready().await?;
        let question = self.cache_key(&snapshot, other_revision);
        let work = move |ask: &Ask<'_>| serde_json::to_vec(&run(ask, query)?).map_err(internal);
        once(&self.app, &self.headers, question, self.compute(snapshot, work)).await
    }

    /// As [`Self::answer`], for an answer that takes long and says the same in the next run of the server, which finds it
    /// beside the index: no ids of this run are in it. The header `Server-Timing` says where it came from.
    pub async fn answer_stored<Q, T>(
        self,
        run: impl FnOnce(&Ask<'_>, Q) -> Result<T> + Send + 'static,
    ) -> Result<Response>
    where
        Q: Query + Send + 'static,
        T: Serialize,
    {
        let query: Q = self.query()?;
        let snapshot = self.served.ready().await?;
        let question = self.cache_key(&snapshot, 0);
        let text = stored::question(&self.uri);
        let origin = Arc::new(OnceLock::new());
        let found = Arc::clone(&origin);
        let work = move |ask: &Ask<'_>| {
            let stored = StoredAnswer::of(ask, &text);
            if let Some(bytes) = stored.read(ask) {
                let _ = found.set("file");
                return Ok(bytes);
            }
            let bytes = serde_json::to_vec(&run(ask, query)?).map_err(internal)?;
            let _ = found.set("computed");
            stored.write(ask, &bytes);
            Ok(bytes)
        };
        let mut response = once(&self.app, &self.headers, question, self.compute(snapshot, work)).await?;
        let from = origin.get().copied().unwrap_or("memory");
        response.headers_mut().insert("server-timing", HeaderValue::from_static(from));
        Ok(response)
    }

    fn cache_key(&self, snapshot: &Snapshot, other_revision: u64) -> CacheKey {
        CacheKey {
            recording: self.served.number,
            revision: (snapshot.revision, other_revision),
            text: self.uri.path_and_query().map_or_else(String::new, ToString::to_string),
        }
    }

    /// As [`Self::answer`], for data that may change while the recording does not: computed each time, never cached.
    pub async fn answer_fresh<Q, T>(
        self,
        run: impl FnOnce(&Ask<'_>, Q) -> Result<T> + Send + 'static,
    ) -> Result<Response>
    where
        Q: Query + Send + 'static,
        T: Serialize,
    {
        let query: Q = self.query()?;
        let snapshot = self.served.ready().await?;
        let work = move |ask: &Ask<'_>| serde_json::to_vec(&run(ask, query)?).map_err(internal);
        let bytes = self.compute(snapshot, work).await?;
        let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
        Ok((headers, bytes).into_response())
    }

    /// A part of the path, by its name in the route.
    pub fn path(&self, name: &str) -> String {
        let part = self.path.iter().find(|(known, _)| known == name);
        part.map_or_else(String::new, |(_, text)| text.clone())
    }

    /// Another recording that the request names.
    pub fn other(&self, id: &str) -> Result<Arc<Served>> {
        self.app.find(id)
    }

    /// Folders that source files may be shown from.
    pub fn source_roots(&self) -> &[PathBuf] {
        &self.app.source_roots
    }

    /// The parameters of the request.
    pub fn query<Q: Query>(&self) -> Result<Q> {
        params::read(self.uri.query())
    }

    /// Whether `frames=all` is asked for; routes that show stacks read and check the parameter.
    fn wants_all_frames(&self) -> bool {
        let query = self.uri.query().unwrap_or_default();
        form_urlencoded::parse(query.as_bytes()).any(|(name, value)| name == "frames" && value == "all")
    }

    /// Runs `work` on a thread that may block, as many at a time as there are processors.
    async fn compute<T: Send + 'static>(
        &self,
        snapshot: Snapshot,
        work: impl FnOnce(&Ask<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.compute_among(&self.app.permits, snapshot, work).await
    }

    /// As `compute`, for work that goes at the client's speed.
    pub async fn compute_export<T: Send + 'static>(
        &self,
        snapshot: Snapshot,
        work: impl FnOnce(&Ask<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.compute_among(&self.app.export_permits, snapshot, work).await
    }

    async fn compute_among<T: Send + 'static>(
        &self,
        permits: &Arc<Semaphore>,
        snapshot: Snapshot,
        work: impl FnOnce(&Ask<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (all_frames, suppressions) = (self.wants_all_frames(), Arc::clone(&self.app.suppressions));
        blocking(Arc::clone(permits), move |cancel| {
            let (trace, symbols) = snapshot.parts()?;
            let all = AllFrames(symbols);
            let shown: &dyn RecordingSymbols = if all_frames { &all } else { symbols };
            work(&Ask { trace, symbols: shown, symbolizer: symbols, suppressions: &suppressions, cancel })
        })
        .await
    }
}

/// A request in SQL, which is about several recordings.
pub struct SqlRequest {
    app: Arc<App>,
    uri: Uri,
    headers: HeaderMap,
}

impl FromRequestParts<Arc<App>> for SqlRequest {
    type Rejection = HttpProblem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self> {
        Ok(Self { app: Arc::clone(app), uri: parts.uri.clone(), headers: parts.headers.clone() })
    }
}

impl SqlRequest {
    /// The parameters of the request.
    pub fn query<Q: Query>(&self) -> Result<Q> {
        params::read(self.uri.query())
    }

    /// The recordings with these ids; without any all that are served.
    pub fn recordings(&self, ids: &[String]) -> Result<Vec<Arc<Served>>> {
        if ids.is_empty() {
            return Ok(self.app.all().to_vec());
        }
        ids.iter().map(|id| self.app.find(id)).collect()
    }

    /// Answers with the JSON document that `run` makes of recordings.
    pub async fn answer(
        self,
        recordings: Vec<Arc<Served>>,
        run: impl FnOnce(Vec<(Arc<Served>, Snapshot)>, &Cancel) -> Result<Vec<u8>> + Send + 'static,
    ) -> Result<Response> {
        let mut chosen = Vec::with_capacity(recordings.len());
        let mut revisions = DefaultHasher::new();
        for served in recordings {
            let snapshot = served.ready().await?;
            snapshot.revision.hash(&mut revisions);
            chosen.push((served, snapshot));
        }
        let question = CacheKey {
            recording: chosen.first().map_or(0, |(served, _)| served.number),
            revision: (chosen.first().map_or(0, |(_, snapshot)| snapshot.revision), revisions.finish()),
            text: self.uri.path_and_query().map_or_else(String::new, ToString::to_string),
        };
        let permits = Arc::clone(&self.app.sql_permits);
        once(&self.app, &self.headers, question, blocking(permits, move |cancel| run(chosen, cancel))).await
    }
}

/// Nothing if the client's copy has this tag, else the cached answer, else the result of `make`, which is cached.
async fn once(
    app: &App,
    headers: &HeaderMap,
    question: CacheKey,
    make: impl Future<Output = Result<Vec<u8>>>,
) -> Result<Response> {
    let mut hasher = DefaultHasher::new();
    question.hash(&mut hasher);
    let tag = format!("W/\"{:x}-{:x}-{:x}\"", app.started, question.revision.0, hasher.finish());
    if has_tag(headers, &tag) {
        return Ok(with_tag(StatusCode::NOT_MODIFIED.into_response(), &tag));
    }
    let bytes = match app.cache.get(&question) {
        Some(bytes) => bytes,
        None => {
            let bytes = Bytes::from(make.await?);
            app.cache.put(question, bytes.clone());
            bytes
        }
    };
    Ok(with_tag(([(header::CONTENT_TYPE, "application/json")], bytes).into_response(), &tag))
}

/// Runs `work` on a thread that may block, as soon as it is permitted; a client that goes away cancels it.
async fn blocking<T: Send + 'static>(
    permits: Arc<Semaphore>,
    work: impl FnOnce(&Cancel) -> Result<T> + Send + 'static,
) -> Result<T> {
    let permit = permits.acquire_owned().await.map_err(|_| internal("shutting down"))?;
    let cancel = Cancel::new();
    // Dropped with this future: when the client closes the connection, or at the end, when it does no harm.
    let _cancel_on_drop = CancelOnDrop(cancel.clone());
    let task = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        work(&cancel)
    });
    task.await.map_err(|_| internal("the query failed; the server's standard error says why"))?
}

struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Whether the client has the answer with this tag.
fn has_tag(headers: &HeaderMap, tag: &str) -> bool {
    let values = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|known| known.trim() == tag)
}

fn with_tag(mut response: Response, tag: &str) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(tag) = HeaderValue::from_str(tag) {
        headers.insert(header::ETAG, tag);
    }
    response
}

/// An internal error.
pub fn internal(error: impl std::fmt::Display) -> HttpProblem {
    HttpProblem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

impl From<QueryError> for HttpProblem {
    fn from(error: QueryError) -> Self {
        match error {
            QueryError::BadParameter { parameter, why } => Self::parameter(parameter, why),
            QueryError::NotFound { .. } => Self::not_found(error.to_string()),
            QueryError::Scratch { .. } => internal(error),
            // The client is gone.
            QueryError::Cancelled => Self::new(StatusCode::SERVICE_UNAVAILABLE, "the query was cancelled"),
        }
    }
}
