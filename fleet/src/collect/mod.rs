//! `heaptrace collect`: follows the recordings of spool folders, ships them to a store or another collector, and takes in
//! what other collectors ship.
//!
//! ```text
//! mod      the loop over spool folders: follow, ship, finish, give back to the disk
//! quota    what the spool may have: holes, and recordings that are ended
//! listen   HTTP: other collectors' recordings, status, metrics, a page
//! tls      connections by TLS
//! profile  the heap of a recording as a profile, for scrapers
//! status   what a collector does, for people, programs and Prometheus
//! send     one recording to a collector: what `heaptrace run` does with TRACEHOUND_COLLECTOR
//! ```

mod listen;
mod profile;
mod quota;
pub mod send;
pub mod status;
mod tls;

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::task::JoinSet;
use tracehound_format::options::parse_size;

use crate::clean;
use crate::sink::{RemoteArgs, ShippingTarget};
use crate::source::{LocalRecording, Step};
use crate::symbols::SymbolKeeper;
use crate::tables::pack;
use status::{Behind, CollectorStatus, RecordingState};

/// Collect the recordings of many processes in a store, and take in those that other collectors send.
///
/// It watches spool folders, ships whole checked blocks as recordings grow, completes those of killed processes from
/// their side files, and deletes a recording here when the store has all of it, never before.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:
  heaptrace collect --spool /var/spool/heap --store file:///srv/heap
  heaptrace collect --spool /var/spool/heap --store s3://bucket/heap --quota 2G
  heaptrace collect --listen 0.0.0.0:9900 --tls-cert cert.pem --tls-key key.pem --token SECRET --store s3://bucket/heap
  heaptrace collect --spool /var/spool/heap --store https://collector:9900 --token SECRET
  heaptrace collect status 127.0.0.1:9900"
)]
pub struct CollectArgs {
    #[command(subcommand)]
    command: Option<CollectCommand>,
    /// A folder that recordings (*.dat) are written into; may be repeated
    #[arg(long, value_name = "FOLDER")]
    spool: Vec<PathBuf>,
    /// Where they go: file:///FOLDER, a bucket (s3://BUCKET/PREFIX, gs://…, az://…), or another collector (https://HOST:PORT,
    /// http://HOST:PORT)
    #[arg(long, value_name = "URL", required = true)]
    store: Option<String>,
    /// Take in what other collectors and `heaptrace run` send, and show status, metrics and a page, at this address
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    remote: RemoteArgs,
    /// The certificate of --listen (PEM, with the chain to its issuer): clients use https://
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "listen"])]
    tls_cert: Option<PathBuf>,
    /// Its key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Most bytes of the spool's recordings on the disk: what the store has is given back, of the largest first. When
    /// more than that is not in the store, recordings are ended, the greediest first; their programs go on
    #[arg(long, value_name = "SIZE", value_parser = size)]
    quota: Option<u64>,
    /// Most bytes of one recording that are not in the store: it is ended then, its program goes on
    #[arg(long, value_name = "SIZE", value_parser = size)]
    quota_each: Option<u64>,
    /// Leave recordings in the spool when the store has them
    #[arg(long)]
    keep: bool,
    /// Ship what is there, wait for the processes to end, and exit
    #[arg(long)]
    once: bool,
    /// With --once: give a recording up that the store has refused for so many seconds; it stays in the spool
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    patience: u64,
    /// Do not write tables into the store when a recording is complete
    #[arg(long)]
    no_tables: bool,
    /// Write the table of all allocations, too: six bytes a block
    #[arg(long)]
    allocations: bool,
    /// Do not keep symbols of the programs in the store: recordings have the names that can be found later
    #[arg(long)]
    no_symbols: bool,
    /// Milliseconds between two looks at the spool
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    interval: u64,
}

#[derive(Debug, clap::Subcommand)]
enum CollectCommand {
    /// Show what a collector does
    Status(status::StatusArgs),
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text).ok_or_else(|| "a size such as 2G".to_owned())
}

/// Most recordings that are shipped at once: each has one piece in memory.
const AT_ONCE: usize = 8;

/// Collects until it is told to stop.
pub async fn run(args: CollectArgs) -> Result<ExitCode> {
    if let Some(CollectCommand::Status(args)) = args.command {
        return status::run(args).await;
    }
    let store = args.store.clone().unwrap_or_default();
    if args.spool.is_empty() && args.listen.is_none() {
        bail!("there is nothing to collect: --spool FOLDER, or --listen ADDRESS, or both");
    }
    for folder in &args.spool {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make the spool {}", folder.display()))?;
    }
    if let Some(token) = &args.remote.token
        && token.len() < 16
    {
        bail!("--token is too short: 16 characters or more");
    }
    let sink = ShippingTarget::open(&store, &args.remote)?;
    let status = Arc::new(CollectorStatus::new(store.clone()));
    let packing = pack::Options { tables: !args.no_tables, allocations: args.allocations };
    let packer = pack::Packer::start(&sink, packing, Arc::clone(&status));
    if let Some(address) = args.listen {
        let tls = args.tls_cert.as_deref().zip(args.tls_key.as_deref());
        let tls = tls.map(|(certificate, key)| tls::acceptor(certificate, key)).transpose()?;
        let token = args.remote.token.clone();
        listen::start(address, tls, sink.clone(), token, Arc::clone(&status), packer.clone()).await?;
    }
    let mut stop = std::pin::pin!(stopped());
    let keeper = SymbolKeeper::start(&sink, !args.no_symbols, Arc::clone(&status));
    let quota = quota::SpoolQuota::new(args.quota, args.quota_each);
    let (sources, done, refused) = (HashMap::new(), HashSet::new(), HashMap::new());
    let mut spool = Spool { sources, done, refused, sink, status, packer, keeper, store, quota, args };
    loop {
        let busy = tokio::select! {
            busy = spool.look() => busy,
            () = &mut stop => break,
        };
        if spool.args.once && spool.is_over() {
            break;
        }
        // While there is more, there is no rest.
        let pause = if busy { Duration::from_millis(10) } else { Duration::from_millis(spool.args.interval) };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = &mut stop => break,
        }
    }
    // Sources hold it, too.
    spool.sources.clear();
    spool.keeper.finish().await;
    spool.packer.finish().await;
    Ok(if spool.args.once && spool.status.failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Waits for a signal to stop.
pub async fn stopped() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else { return std::future::pending().await };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

struct Spool {
    sources: HashMap<PathBuf, LocalRecording>,
    /// Files that stay (`--keep`), by device, inode and length.
    done: HashSet<(u64, u64)>,
    /// Recordings whose last step failed.
    refused: HashMap<PathBuf, Refused>,
    sink: ShippingTarget,
    status: Arc<CollectorStatus>,
    packer: pack::Packer,
    keeper: SymbolKeeper,
    store: String,
    quota: quota::SpoolQuota,
    args: CollectArgs,
}

/// A recording whose steps fail: it is tried again after a pause, which grows.
struct Refused {
    since: Instant,
    again: Instant,
    pause: Duration,
}

/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

impl Spool {
    /// One look: new recordings are found, all of them make a step. Whether one of them may have more at once.
    async fn look(&mut self) -> bool {
        self.find();
        let now = Instant::now();
        let is_due = |path: &PathBuf| self.refused.get(path).is_none_or(|refused| refused.again <= now);
        let mut waiting: Vec<PathBuf> = self.sources.keys().filter(|path| is_due(path)).cloned().collect();
        waiting.sort();
        let (mut steps, mut busy) = (JoinSet::new(), false);
        loop {
            while steps.len() < AT_ONCE
                && let Some(path) = waiting.pop()
            {
                let Some(mut source) = self.sources.remove(&path) else { continue };
                let sink = self.sink.clone();
                steps.spawn(async move {
                    let step = source.step(&sink).await;
                    (source, step)
                });
            }
            match steps.join_next().await {
                None => break,
                // A task that was lost is found again in the folder.
                Some(Err(_)) => self.status.error("a step panicked"),
                Some(Ok((source, step))) => busy |= self.take(source, step),
            }
        }
        for source in self.sources.values_mut() {
            let behind = source.behind();
            self.status.behind(&source.about.recording, &source.path, behind);
        }
        self.status.sample();
        self.quota.keep(&mut self.sources, &self.store, &self.status);
        busy
    }

    fn find(&mut self) {
        for folder in &self.args.spool {
            let entries = match std::fs::read_dir(folder) {
                Ok(entries) => entries,
                Err(error) => {
                    self.status.error(&format!("cannot read the spool {}: {error}", folder.display()));
                    continue;
                }
            };
            for entry in entries.flatten() {
                let path = entry.path();
                if path.extension().is_none_or(|end| end != "dat") || self.sources.contains_key(&path) {
                    continue;
                }
                if identity(&path).is_none_or(|identity| self.done.contains(&identity)) {
                    continue;
                }
                match LocalRecording::open(&path, &self.keeper) {
                    Ok(Some(source)) => drop(self.sources.insert(path, source)),
                    Ok(None) => {}
                    Err(error) => self.status.error(&format!("{error:#}")),
                }
            }
        }
    }

    /// What a step came to.
    fn take(&mut self, mut source: LocalRecording, step: Result<Step>) -> bool {
        let (id, path) = (source.about.recording.clone(), source.path.clone());
        if step.is_ok() {
            self.refused.remove(&path);
        }
        match step {
            Ok(Step::Finished) => {
                self.status.recording(&source.about, source.shipped, RecordingState::Stored);
                // The last blocks may say what is lost.
                let lost_events = source.behind().lost_events;
                self.status.behind(&id, &path, Behind { lost_events, ..Behind::default() });
                self.packer.pack(source.about.clone());
                if !self.args.keep
                    && let Err(error) = source.remove()
                {
                    self.status.error(&format!("{error:#}"));
                }
                if let Some(identity) = identity(&path) {
                    self.done.insert(identity);
                }
                return false;
            }
            Ok(Step::Shipped(bytes)) => {
                self.status.shipped(bytes);
                self.status.recording(&source.about, source.shipped, RecordingState::Following);
                self.sources.insert(path, source);
                return true;
            }
            Ok(Step::Waiting) => self.status.recording(&source.about, source.shipped, RecordingState::Following),
            Err(error) => {
                self.status.recording(&source.about, source.shipped, RecordingState::Waiting);
                let why = format!("{}: {error:#}", clean(&id));
                // A file that somebody took away is none of ours any more.
                if !path.exists() {
                    self.refused.remove(&path);
                    self.status.lost_recording();
                    self.status.error(&why);
                    return false;
                }
                let since = self.refuse(&path);
                if self.args.once && since >= Duration::from_secs(self.args.patience) {
                    self.status.error(&format!("{why}; given up after {} s, it stays in the spool", since.as_secs()));
                    self.done.extend(identity(&path));
                    return false;
                }
                self.status.retried(&why);
            }
        }
        // A file that somebody took away is none of ours any more.
        if path.exists() {
            self.sources.insert(path, source);
        }
        false
    }

    /// A step has failed: the next one comes after a pause. For how long steps have been failing.
    fn refuse(&mut self, path: &Path) -> Duration {
        let (now, first) = (Instant::now(), Duration::from_millis(self.args.interval));
        let refused = Refused { since: now, again: now, pause: first };
        let refused = self.refused.entry(path.to_owned()).or_insert(refused);
        refused.again = now + refused.pause;
        refused.pause = (2 * refused.pause).min(LONGEST_PAUSE);
        now.duration_since(refused.since)
    }

    fn is_over(&self) -> bool {
        self.sources.is_empty()
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let meta = path.symlink_metadata().ok()?;
    meta.is_file().then(|| (meta.dev(), meta.ino()))
}
