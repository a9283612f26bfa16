//! Destination of recordings: a store, or another collector over HTTP.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;

use crate::labels::Collected;
use crate::store::{Shipped, Store};

/// What another collector asks of us, and we of it.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct RemoteArgs {
    /// A secret of 16 characters or more that collectors must send
    #[arg(long, env = "HEAPTRACE_TOKEN", hide_env_values = true, value_name = "SECRET")]
    pub token: Option<String>,
    /// Certificates (PEM) that collectors at https:// are trusted by, besides those of this machine
    #[arg(long, env = "HEAPTRACE_CA", value_name = "FILE")]
    pub ca: Option<PathBuf>,
}

/// Where recordings go.
#[derive(Debug, Clone)]
pub enum ShippingTarget {
    /// A store.
    Store(Store),
    /// Another collector.
    Remote(Remote),
}

/// Another collector.
#[derive(Debug, Clone)]
pub struct Remote {
    client: reqwest::Client,
    url: String,
    token: Option<String>,
}

impl ShippingTarget {
    /// `http://HOST:PORT` or `https://…` is another collector, everything else a store.
    ///
    /// # Errors
    /// When it is neither.
    pub fn open(url: &str, remote: &RemoteArgs) -> Result<Self> {
        if url.starts_with("http://") || url.starts_with("https://") {
            return Ok(Self::Remote(Remote::new(url, remote)?));
        }
        Ok(Self::Store(Store::open(url)?))
    }

    /// How much of a recording is there.
    ///
    /// # Errors
    /// When nobody answers.
    pub async fn shipped(&self, id: &str) -> Result<Shipped> {
        match self {
            Self::Store(store) => store.shipped(id).await,
            Self::Remote(remote) => remote.shipped(id).await,
        }
    }

    /// Puts bytes behind those that are there; `is_end`: they are the recording's end. They are durable when this returns.
    ///
    /// # Errors
    /// When they are not taken.
    pub async fn append(&self, id: &str, at: u64, bytes: Bytes, is_end: bool) -> Result<()> {
        match self {
            Self::Store(store) => store.append(id, at, bytes, is_end).await,
            Self::Remote(remote) => remote.append(id, at, bytes, is_end).await,
        }
    }

    /// Whether the symbols of a build id are there.
    ///
    /// # Errors
    /// When nobody answers.
    pub async fn has_symbols(&self, build_id: &str) -> Result<bool> {
        match self {
            Self::Store(store) => store.has_symbols(build_id).await,
            Self::Remote(remote) => remote.has_symbols(build_id).await,
        }
    }

    /// Puts the packed symbols of a build id there.
    ///
    /// # Errors
    /// When they are not taken.
    pub async fn put_symbols(&self, build_id: &str, packed: File) -> Result<()> {
        match self {
            Self::Store(store) => store.put_symbols(build_id, packed).await,
            Self::Remote(remote) => remote.put_symbols(build_id, packed).await,
        }
    }

    /// Finishes a recording: nothing more will come.
    ///
    /// # Errors
    /// When that is not taken.
    pub async fn finish(&self, about: &Collected) -> Result<()> {
        match self {
            Self::Store(store) => store.finish(about).await,
            Self::Remote(remote) => remote.finish(about).await,
        }
    }
}

impl Remote {
    /// A collector at `url`.
    ///
    /// # Errors
    /// When no client can be made.
    pub fn new(url: &str, args: &RemoteArgs) -> Result<Self> {
        let mut builder = reqwest::Client::builder();
        if let Some(path) = &args.ca {
            let read = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
            let found = reqwest::Certificate::from_pem_bundle(&read);
            let found = found.ok().filter(|found| !found.is_empty());
            let found = found.with_context(|| format!("{} has no certificates (PEM)", path.display()))?;
            builder = builder.tls_certs_merge(found);
        }
        let client = builder
            .connect_timeout(Duration::from_secs(5))
            .timeout(Duration::from_secs(120))
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .context("cannot make an HTTP client")?;
        Ok(Self { client, url: url.trim_end_matches('/').to_owned(), token: args.token.clone() })
    }

    /// Sends a request; returns the body of a successful answer.
    ///
    /// # Errors
    /// When nobody answers, or the answer is no.
    pub async fn ask(&self, method: reqwest::Method, path: &str, body: Bytes) -> Result<Bytes> {
        let mut request = self.client.request(method, format!("{}{path}", self.url)).body(body);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let answer = request.send().await.map_err(|error| anyhow!(innermost(&error)));
        let answer = answer.with_context(|| format!("no answer from the collector at {}", self.url))?;
        let status = answer.status();
        let bytes = answer.bytes().await.with_context(|| format!("no answer from the collector at {}", self.url))?;
        if !status.is_success() {
            let why = String::from_utf8_lossy(bytes.get(..bytes.len().min(300)).unwrap_or_default()).into_owned();
            bail!("the collector at {} says {status}: {}", self.url, why.trim());
        }
        Ok(bytes)
    }

    async fn shipped(&self, id: &str) -> Result<Shipped> {
        let answer = self.ask(reqwest::Method::GET, &format!("/v1/recordings/{id}"), Bytes::new()).await?;
        serde_json::from_slice(&answer).context("the answer of the collector cannot be parsed")
    }

    async fn append(&self, id: &str, at: u64, bytes: Bytes, is_end: bool) -> Result<()> {
        let crc = crc32fast::hash(&bytes);
        let path = format!("/v1/recordings/{id}?at={at}&crc32={crc}&end={is_end}");
        self.ask(reqwest::Method::PUT, &path, bytes).await.map(drop)
    }

    async fn finish(&self, about: &Collected) -> Result<()> {
        let path = format!("/v1/recordings/{}/finish", about.recording);
        self.ask(reqwest::Method::POST, &path, serde_json::to_vec(about)?.into()).await.map(drop)
    }

    async fn has_symbols(&self, build_id: &str) -> Result<bool> {
        let answer = self.ask(reqwest::Method::GET, &format!("/v1/symbols/{build_id}"), Bytes::new()).await?;
        let answer: KeptSymbols =
            serde_json::from_slice(&answer).context("the answer of the collector cannot be parsed")?;
        Ok(answer.kept)
    }

    async fn put_symbols(&self, build_id: &str, mut packed: File) -> Result<()> {
        let len = packed.metadata()?.len();
        if len > MOST_SYMBOLS {
            bail!("{len} bytes of symbols are more than a collector takes in one request");
        }
        let mut body = Vec::with_capacity(len as usize);
        packed.read_to_end(&mut body)?;
        let path = format!("/v1/symbols/{build_id}?crc32={}", crc32fast::hash(&body));
        self.ask(reqwest::Method::PUT, &path, body.into()).await.map(drop)
    }
}

/// The reason at the bottom of an error of the HTTP client, whose own words repeat the URL.
pub fn innermost(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// Most bytes of packed symbols that are sent to another collector.
pub const MOST_SYMBOLS: u64 = 64 << 20;

/// Whether symbols are there.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub struct KeptSymbols {
    /// They are.
    pub kept: bool,
}
