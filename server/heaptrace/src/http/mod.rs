//! The HTTP server: JSON under `/api/v1/`, the page for everything else. docs/http-api.md describes it.
//!
//! ```text
//! security headers ▶ guard (Host, Origin, token, method) ▶ compression ▶ routes ▶ answer (cache, cancel) ▶ query
//!                                                                       └ page (embedded files)
//! ```

mod answer;
mod cache;
mod guard;
mod headers;
mod opened_file;
mod page;
mod params;
mod problem;
mod route;
mod routes;
mod served;
mod stored;

use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use tracehound_query::suppress::Suppression;

pub use guard::Token;
pub use routes::openapi;

use guard::RequestGuard;
use served::App;

/// First port that is tried when none was asked for, and how many.
const PORT: u16 = 8080;
const PORTS: u16 = 100;

/// What the server serves, and where.
#[derive(Debug, Clone)]
pub struct Config {
    /// The recordings.
    pub recordings: Vec<PathBuf>,
    /// Address to listen on.
    pub bind: IpAddr,
    /// Port; without one, 8080 or the next that is free.
    pub port: Option<u16>,
    /// Further names that the server is reached by.
    pub hosts: Vec<String>,
    /// What every request must carry.
    pub token: Option<Token>,
    /// Folders that source files may be shown from, besides those of the programs.
    pub source_roots: Vec<PathBuf>,
    /// Leaks that are added up apart in all recordings.
    pub suppressions: Vec<Suppression>,
    /// Open the page in a browser.
    pub open: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            recordings: Vec::new(),
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: None,
            hosts: Vec::new(),
            token: None,
            source_roots: Vec::new(),
            suppressions: Vec::new(),
            open: false,
        }
    }
}

/// Serves until it is told to stop by SIGINT or SIGTERM.
pub fn serve(config: Config) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("heaptrace-http")
        .enable_all()
        .build()
        .context("cannot start the server's threads")?;
    let result = runtime.block_on(run(config));
    // Queries that are still at work notice that nobody waits for them.
    runtime.shutdown_timeout(Duration::from_millis(500));
    result
}

async fn run(config: Config) -> Result<()> {
    let (listener, address) = listen(config.bind, config.port).await?;
    let guard = RequestGuard::new(config.bind, address.port(), &config.hosts, config.token.clone());
    let mut roots = config.source_roots.clone();
    roots.extend(std::env::current_dir());
    let app = App::start(&config.recordings, roots, config.suppressions.clone());
    let router = router(Arc::clone(&app), guard);

    let url = url(address, config.token.as_ref());
    let what = match config.recordings.as_slice() {
        [one] => one.display().to_string(),
        all => format!("{} recordings", all.len()),
    };
    let mut out = io::stdout();
    // A program that has started us through a pipe reads the URL here; a closed pipe is ignored.
    let _ = writeln!(out, "Serving {what} at {url}  (Ctrl-C ends)").and_then(|()| out.flush());
    if config.open {
        open_browser(&url);
    }

    let mut interrupt = signal(SignalKind::interrupt()).context("cannot handle SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot handle SIGTERM")?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = axum::serve(listener, router).with_graceful_shutdown(async {
        let _ = stopped.await;
    });
    let mut server = tokio::spawn(async move { server.await });
    tokio::select! {
        result = &mut server => return result.context("the server failed")?.context("the server failed"),
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    let _ = stop.send(());
    app.stop();
    // Answers on their way get a moment; a browser that holds a connection open does not keep us.
    let _ = tokio::time::timeout(Duration::from_secs(1), server).await;
    Ok(())
}

/// All routes behind all checks.
fn router(app: Arc<App>, guard: RequestGuard) -> Router {
    routes::router()
        .with_state(app)
        .fallback(page::page)
        .layer(CompressionLayer::new().quality(CompressionLevel::Fastest))
        .layer(from_fn_with_state(Arc::new(guard), guard::guard))
        .layer(from_fn(headers::security))
}

async fn listen(bind: IpAddr, port: Option<u16>) -> Result<(TcpListener, SocketAddr)> {
    let candidates = port.map_or_else(|| (PORT..PORT + PORTS).collect(), |port| vec![port]);
    let mut last = None;
    for port in candidates {
        match TcpListener::bind((bind, port)).await {
            Ok(listener) => {
                let address = listener.local_addr().context("cannot tell the port")?;
                return Ok((listener, address));
            }
            Err(error) if error.kind() == ErrorKind::AddrInUse => last = Some((port, error)),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot listen on {}", SocketAddr::new(bind, port)));
            }
        }
    }
    match (port, last) {
        (Some(port), _) => anyhow::bail!("port {port} is in use by another program; choose another one with --port"),
        (None, Some((last, error))) => Err(error)
            .with_context(|| format!("all ports from {PORT} to {last} are in use; choose another one with --port")),
        (None, None) => anyhow::bail!("there is no port to listen on"),
    }
}

fn url(address: SocketAddr, token: Option<&Token>) -> String {
    let query = token.map(|token| format!("?token={}", token.secret())).unwrap_or_default();
    format!("http://{address}/{query}")
}

fn open_browser(url: &str) {
    let null = std::process::Stdio::null;
    let started = std::process::Command::new("xdg-open").arg(url).stdin(null()).stdout(null()).stderr(null()).spawn();
    if started.is_err() {
        crate::tell!("heaptrace: cannot start a browser (no xdg-open); open the address by hand");
    }
}
