//! `heaptrace fleet serve`: the fleet page, and for each recording that is opened a `heaptrace server` with all views.
//!
//! ```text
//! GET /?service=S&version=V&host=H   tables of what is below
//! GET /open?recording=ID             to the views of a recording, whose server is started if there is none
//! ```

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use axum::Router;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use serde::Deserialize;
use tokio::runtime::Handle;
use tokio::sync::Mutex;

use super::leaks::{FleetLeaks, growing};
use super::page::{STYLE, Shown, escaped, page};
use crate::store::{Store, is_id};
use crate::tables::read::{DataSet, RecordingRow, Scope};

/// Servers that are kept: the one that was used longest ago makes room.
const SERVERS: usize = 8;
/// How long what was read of the store is shown again.
const FRESH: Duration = Duration::from_secs(10);
/// Rows of stacks that grow.
const STACKS: usize = 20;

/// Options of `fleet serve`.
#[derive(Debug, clap::Args)]
pub struct FleetPageArgs {
    /// The store: file:///FOLDER or a bucket (s3://, gs://, az://)
    #[arg(value_name = "STORE")]
    store: String,
    /// Port to listen on, at 127.0.0.1
    #[arg(short, long, default_value_t = 8090)]
    port: u16,
}

struct FleetPage {
    url: String,
    store: Store,
    recordings: Mutex<Option<(Instant, Arc<Vec<RecordingRow>>)>>,
    servers: Mutex<Vec<RecordingServer>>,
}

/// `heaptrace server` of one recording; it ends with this.
struct RecordingServer {
    recording: String,
    address: String,
    child: Child,
}

impl Drop for RecordingServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves until it is told to stop.
pub async fn run(args: FleetPageArgs) -> Result<()> {
    let store = Store::open_existing(&args.store)?;
    let state = Arc::new(FleetPage {
        url: args.store.trim_end_matches('/').to_owned(),
        store,
        recordings: Mutex::default(),
        servers: Mutex::default(),
    });
    // A store that does not answer is said here rather than in a page.
    let recordings = state.recordings().await?.len();
    let socket = tokio::net::TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, args.port))).await;
    let socket = socket.with_context(|| format!("cannot listen on port {}", args.port))?;
    let router = Router::new()
        .route("/", get(show))
        .route("/open", get(open))
        .route("/style.css", get(|| async { ([(header::CONTENT_TYPE, "text/css")], STYLE) }))
        .layer(middleware::from_fn(guard))
        .with_state(Arc::clone(&state));
    crate::print(&format!("{recordings} recordings at http://{}\n", socket.local_addr()?))?;
    tokio::select! {
        done = axum::serve(socket, router) => done?,
        () = crate::collect::stopped() => {}
    }
    state.servers.lock().await.clear();
    Ok(())
}

/// Nothing is answered to pages of other sites, nor under a name that somebody else gave this address.
async fn guard(request: Request, next: Next) -> Response {
    if !is_own(request.headers()) {
        return (StatusCode::FORBIDDEN, "this page is for 127.0.0.1 and localhost alone\n").into_response();
    }
    let mut response = next.run(request).await;
    let policy = "default-src 'none'; style-src 'self'; frame-ancestors 'none'";
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, header::HeaderValue::from_static(policy));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    headers.insert(header::REFERRER_POLICY, header::HeaderValue::from_static("no-referrer"));
    response
}

fn is_own(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text("host").map(|host| host.rsplit_once(':').map_or(host, |(host, _)| host));
    let is_other_site = text("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none");
    matches!(host, Some("127.0.0.1" | "localhost")) && !is_other_site && !headers.contains_key(header::ORIGIN)
}

impl FleetPage {
    async fn recordings(&self) -> Result<Arc<Vec<RecordingRow>>> {
        let mut kept = self.recordings.lock().await;
        if let Some((when, rows)) = &*kept
            && when.elapsed() < FRESH
        {
            return Ok(Arc::clone(rows));
        }
        let store = self.store.clone();
        let rows = apart(move |runtime| {
            runtime.block_on(async { Ok(DataSet::open(&store, Scope::default()).await?.recordings) })
        });
        let rows = Arc::new(rows.await?);
        *kept = Some((Instant::now(), Arc::clone(&rows)));
        Ok(rows)
    }

    async fn growing(&self, shown: &Shown) -> Result<Option<FleetLeaks>> {
        // Of a host the verdicts are in the views of its recordings.
        if shown.host.is_some() {
            return Ok(None);
        }
        let scope = Scope { service: shown.service.clone(), version: shown.version.clone(), ..Scope::default() };
        let store = self.store.clone();
        let answer = apart(move |runtime| {
            runtime.block_on(async { growing(&DataSet::open(&store, scope).await?, STACKS).await })
        });
        answer.await.map(Some)
    }

    /// Where the views of a recording are.
    async fn address_of(&self, recording: &str) -> Result<String> {
        let mut servers = self.servers.lock().await;
        servers.retain_mut(|server| matches!(server.child.try_wait(), Ok(None)));
        let known = servers.iter().position(|server| server.recording == recording);
        let server = match known {
            Some(at) => servers.remove(at),
            None => {
                let (url, id) = (format!("{}/raw/{recording}.dat", self.url), recording.to_owned());
                tokio::task::spawn_blocking(move || start(&url, id)).await.context("no server could be started")??
            }
        };
        let address = server.address.clone();
        servers.push(server);
        let most = servers.len().saturating_sub(SERVERS);
        servers.drain(..most);
        Ok(address)
    }
}

/// Answers a question on a thread of its own: what adds tables up stays on one.
async fn apart<T: Send + 'static>(answer: impl FnOnce(Handle) -> Result<T> + Send + 'static) -> Result<T> {
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || answer(runtime)).await.context("the question could not be answered")?
}

/// Starts a server; on a thread that may wait.
fn start(url: &str, recording: String) -> Result<RecordingServer> {
    let program = std::env::current_exe().context("cannot tell where heaptrace is")?.with_file_name("heaptrace");
    let mut command = Command::new(&program);
    command.args(["server", "--port", "0", url]).env_remove("HEAPTRACE_TOKEN");
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let child = child.with_context(|| format!("cannot start {}", program.display()))?;
    let mut server = RecordingServer { recording, address: String::new(), child };
    let mut line = String::new();
    if let Some(out) = server.child.stdout.as_mut() {
        BufReader::new(out).read_line(&mut line)?;
    }
    match line.split_whitespace().find(|word| word.starts_with("http://")) {
        Some(address) => server.address = address.to_owned(),
        None => bail!("the recording cannot be opened: `heaptrace server {url}` says why"),
    }
    Ok(server)
}

fn failed(error: &anyhow::Error) -> Response {
    let why = format!("<!doctype html><meta charset=utf-8><p>{}", escaped(&format!("{error:#}")));
    (StatusCode::SERVICE_UNAVAILABLE, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], why).into_response()
}

async fn show(State(state): State<Arc<FleetPage>>, Query(shown): Query<Shown>) -> Response {
    let rows = match state.recordings().await {
        Ok(rows) => rows,
        Err(error) => return failed(&error),
    };
    let growing = match state.growing(&shown).await {
        Ok(growing) => growing,
        Err(error) => return failed(&error),
    };
    let text = page(&state.url, &rows, &shown, growing.as_ref());
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], text).into_response()
}

#[derive(Deserialize)]
struct Open {
    recording: String,
}

async fn open(State(state): State<Arc<FleetPage>>, Query(asked): Query<Open>) -> Response {
    if !is_id(&asked.recording) {
        return (StatusCode::BAD_REQUEST, "a recording is an id of 32 hexadecimal digits\n").into_response();
    }
    match state.address_of(&asked.recording).await {
        Ok(address) => Redirect::to(&address).into_response(),
        Err(error) => failed(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_sites_are_refused() {
        let of = |pairs: &[(&'static str, &'static str)]| {
            pairs.iter().map(|&(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect::<HeaderMap>()
        };
        for own in [&[("host", "localhost:8090")][..], &[("host", "127.0.0.1:1"), ("sec-fetch-site", "same-origin")]] {
            assert!(is_own(&of(own)), "{own:?}");
        }
        for other in [
            &[("host", "evil.example")][..],
            &[("host", "127.0.0.1"), ("sec-fetch-site", "cross-site")],
            &[("host", "localhost"), ("origin", "http://evil.example")],
            &[],
        ] {
            assert!(!is_own(&of(other)), "{other:?}");
        }
    }
}
