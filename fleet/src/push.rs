//! Profiles of recordings to a server of profiles: Parca or Grafana Pyroscope, by JSON over HTTP.
//!
//! ```text
//! Parca       POST …/api/profiles/writeraw           the gateway of ProfileStoreService.WriteRaw
//! Pyroscope   POST …/push.v1.PusherService/Push      Connect's JSON, which Grafana Alloy takes as well
//! ```
//! Each recording is one profile of pprof at its end, without a duration: what is in use then, and what was allocated until
//! then, as heap profiles of Go have it. With a duration Parca takes what is in use for a rate.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use reqwest::{StatusCode, Url};
use serde_json::{Value, json};
use tracehound_api::Metric;
use tracehound_exports::{ExportInput, ExportScope, pprof};
use tracehound_index::Cancel;
use tracehound_ingest::{OpenOptions, Recording};

use crate::labels;

/// The secret that is given to the server.
const TOKEN: &str = "HEAPTRACE_PUSH_TOKEN";
/// Most bytes of a server's answer in an error message.
const SAID: usize = 300;
/// Before the second attempt; twice as long before each further one.
const PAUSE: Duration = Duration::from_secs(1);
/// What both servers call profiles of the heap.
const PROFILE: &str = "memory";

/// Send the heap profile of recordings to a Parca or Pyroscope server.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heaptrace push parca http://localhost:7070 memory-shop-1.dat
  HEAPTRACE_PUSH_TOKEN=… heaptrace push pyroscope https://profiles.example memory-*.dat --label env=live

HEAPTRACE_PUSH_TOKEN is the server's bearer token. Labels service_name, version and those of TRACEHOUND_LABELS come from the
recording.")]
pub struct PushArgs {
    /// What the server is
    #[arg(value_name = "SERVER")]
    server: ProfileServer,
    /// Where it is; what follows its host is put before the paths that it is asked by
    #[arg(value_name = "URL", value_parser = url)]
    url: Url,
    /// The recordings
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// A label of the profiles, in place of the recording's of that name; without a value there is none; may be repeated
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// Whose profiles they are, where the server has several tenants (X-Scope-OrgID)
    #[arg(long, value_name = "ID")]
    tenant: Option<String>,
    /// How long an attempt may take
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    /// How often it is tried when the server does not answer, is too busy or fails
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=20))]
    attempts: u32,
}

/// A kind of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ProfileServer {
    /// Parca
    Parca,
    /// Grafana Pyroscope, and Grafana Alloy before it
    Pyroscope,
}

/// Where profiles go.
struct ProfileSink {
    client: reqwest::Client,
    server: ProfileServer,
    url: Url,
    /// The URL without what is secret in it.
    shown: String,
    token: Option<String>,
    tenant: Option<String>,
    attempts: u32,
}

/// Why an attempt failed.
enum PushFailure {
    /// Another attempt may do better.
    ForNow(String),
    /// It would not.
    ForGood(String),
}

/// Sends the profiles, one after the other.
pub async fn run(args: PushArgs) -> Result<ExitCode> {
    let sink = ProfileSink::new(&args)?;
    let mut files = Vec::new();
    for file in &args.files {
        match file.to_str().filter(|text| is_store_url(text)) {
            Some(url) => files.extend(crate::fetch::files(url, None).await?),
            None => files.push(file.clone()),
        }
    }
    for path in &files {
        let (given, path) = (args.labels.clone(), path.clone());
        let name = path.display().to_string();
        let made =
            tokio::task::spawn_blocking(move || Ok::<_, anyhow::Error>((profile(&path)?, labels_of(&path, given)?)));
        let (profile, labels) =
            made.await.context("the profile could not be made")?.with_context(|| format!("no profile of {name}"))?;
        let bytes = profile.len();
        let body = serde_json::to_vec(&sink.request(&labels, &profile)).context("the request cannot be written")?;
        sink.send(body.into()).await.with_context(|| format!("{name} was not sent"))?;
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let said = format!("sent {name} to {} ({bytes} bytes; {})", sink.shown, labels.join(", "));
        crate::print(&format!("{}\n", crate::clean(&said)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a text is the URL of a store, or of a recording in one.
fn is_store_url(text: &str) -> bool {
    ["s3://", "gs://", "az://", "file://"].iter().any(|scheme| text.starts_with(scheme))
}

/// The profile of a recording at its end, gzipped.
fn profile(path: &Path) -> Result<Vec<u8>> {
    let cancel = Cancel::new();
    let recording = Recording::open(path, OpenOptions::default())?;
    let trace = recording.trace();
    let symbols = tracehound_symbols::for_recording(&trace);
    let source = ExportInput { trace: &trace, symbols: &symbols, cancel: &cancel };
    let mut profile = Vec::new();
    pprof::write_moment(source, &ExportScope::default(), Metric::Live, &mut profile)?;
    Ok(profile)
}

/// The recording's own labels, with those that were given in their place.
fn labels_of(path: &Path, given: Vec<(String, String)>) -> Result<BTreeMap<String, String>> {
    let file = std::fs::File::open(path)?;
    let about = labels::describe("", path, labels::process_of(&file)?.as_ref().map(|process| (process, None)));
    let mut labels: BTreeMap<String, String> =
        about.labels.iter().map(|(name, value)| (label_name(name), value.clone())).collect();
    // What both servers have services by.
    labels.remove("service");
    labels.insert("service_name".into(), about.service);
    labels.insert("version".into(), about.version);
    labels.extend(given);
    labels.retain(|name, value| !name.starts_with("__") && !value.is_empty());
    Ok(labels)
}

/// A name as Prometheus allows it for labels.
fn label_name(name: &str) -> String {
    let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}

fn label(text: &str) -> Result<(String, String), String> {
    let Some((name, value)) = text.split_once('=') else { return Err("a label is NAME=VALUE".into()) };
    if name.is_empty() || label_name(name) != name {
        return Err(format!("{name:?} is no name of a label: letters, digits and _ are, and no digit at the front"));
    }
    if name.starts_with("__") {
        return Err(format!("{name} is the server's own: names that begin with __ cannot be given"));
    }
    Ok((name.into(), value.into()))
}

fn url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("{error}; it begins with http:// or https://"))?;
    if !["http", "https"].contains(&url.scheme()) || url.host_str().is_none() {
        return Err("the URL of a server begins with http:// or https://".into());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("a URL with ? or # is no place of a server".into());
    }
    Ok(url)
}

impl ProfileSink {
    fn new(args: &PushArgs) -> Result<Self> {
        let client = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(10))
            .timeout(Duration::from_secs(args.timeout))
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .context("cannot make an HTTP client")?;
        let token = match std::env::var(TOKEN) {
            Ok(token) if token.is_empty() => None,
            Ok(token) => Some(token),
            Err(std::env::VarError::NotPresent) => None,
            Err(std::env::VarError::NotUnicode(_)) => bail!("{TOKEN} is not UTF-8"),
        };
        let mut shown = args.url.clone();
        // An address with a password in it is not printed with it.
        let _ = shown.set_username("");
        let _ = shown.set_password(None);
        let path = match args.server {
            ProfileServer::Parca => "api/profiles/writeraw",
            ProfileServer::Pyroscope => "push.v1.PusherService/Push",
        };
        let mut url = args.url.clone();
        url.set_path(&format!("{}/{path}", args.url.path().trim_end_matches('/')));
        let shown = shown.to_string().trim_end_matches('/').to_owned();
        let (server, tenant, attempts) = (args.server, args.tenant.clone(), args.attempts);
        Ok(Self { client, server, url, shown, token, tenant, attempts })
    }

    /// The document that the server takes.
    fn request(&self, labels: &BTreeMap<String, String>, profile: &[u8]) -> Value {
        let pair = |(name, value): (&str, &str)| json!({"name": name, "value": value});
        let own = labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let profile = STANDARD.encode(profile);
        match self.server {
            ProfileServer::Parca => {
                let labels: Vec<Value> = std::iter::once(("__name__", PROFILE)).chain(own).map(pair).collect();
                json!({"series": [{"labels": {"labels": labels}, "samples": [{"rawProfile": profile}]}]})
            }
            ProfileServer::Pyroscope => {
                // It would take the difference to the profile before it.
                let fixed = [("__name__", PROFILE), ("__delta__", "false")];
                let labels: Vec<Value> = fixed.into_iter().chain(own).map(pair).collect();
                json!({"series": [{"labels": labels, "samples": [{"rawProfile": profile}]}]})
            }
        }
    }

    /// Sends a document, again where that may help.
    async fn send(&self, body: Bytes) -> Result<()> {
        let mut pause = PAUSE;
        for attempt in 1.. {
            let why = match self.attempt(body.clone()).await {
                Ok(()) => return Ok(()),
                Err(PushFailure::ForGood(why)) => bail!("{why}"),
                Err(PushFailure::ForNow(why)) => why,
            };
            if attempt >= self.attempts {
                let times = if attempt == 1 { "once".into() } else { format!("{attempt} times") };
                bail!("{why}; tried {times}");
            }
            let seconds = pause.as_secs();
            let again = format!("{why}; trying again in {seconds} s (attempt {} of {})", attempt + 1, self.attempts);
            crate::tell!("heaptrace: {}", crate::clean(&again));
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        Ok(())
    }

    async fn attempt(&self, body: Bytes) -> Result<(), PushFailure> {
        let mut request = self.client.post(self.url.clone()).header("content-type", "application/json").body(body);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(tenant) = &self.tenant {
            request = request.header("x-scope-orgid", tenant);
        }
        let shown = &self.shown;
        let mut answer = request.send().await.map_err(|error| {
            let why = if error.is_timeout() {
                format!("no answer from {shown} in time")
            } else {
                format!("no answer from {shown}: {}", innermost(&error))
            };
            if error.is_builder() { PushFailure::ForGood(why) } else { PushFailure::ForNow(why) }
        })?;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        let mut said = Vec::new();
        while let Ok(Some(piece)) = answer.chunk().await {
            said.extend_from_slice(&piece);
            if said.len() >= SAID {
                break;
            }
        }
        said.truncate(SAID);
        let hint = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => format!(" ({TOKEN} is its token)"),
            StatusCode::NOT_FOUND => format!(" (is there a {:?} server?)", self.server),
            _ => String::new(),
        };
        let why = format!("{shown} says {status}{hint}: {}", String::from_utf8_lossy(&said).trim());
        let is_passing =
            status.is_server_error() || [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT].contains(&status);
        Err(if is_passing { PushFailure::ForNow(why) } else { PushFailure::ForGood(why) })
    }
}

/// The innermost cause of an error, which is the most specific.
fn innermost(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source()).last().map_or_else(String::new, ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_what_servers_allow() {
        assert_eq!(label("env=live"), Ok(("env".into(), "live".into())));
        assert_eq!(label("env=a=b"), Ok(("env".into(), "a=b".into())));
        assert_eq!(label("env="), Ok(("env".into(), String::new())));
        for (text, why) in [("env", "NAME=VALUE"), ("=x", "no name"), ("a-b=x", "no name"), ("1a=x", "no name")] {
            assert!(label(text).is_err_and(|said| said.contains(why)), "{text}");
        }
        assert!(label("__name__=cpu").is_err_and(|said| said.contains("server's own")));
        assert_eq!((label_name("k8s.pod-name"), label_name("1st")), ("k8s_pod_name".into(), "_1st".into()));
    }

    #[test]
    fn urls_are_of_servers() {
        assert!(url("http://localhost:7070").is_ok() && url("https://h/profiles/").is_ok());
        for text in ["localhost:7070", "ftp://h", "h", "http://h/?x=1", "http://h/#x", "http://"] {
            assert!(url(text).is_err(), "{text}");
        }
    }
}
