//! Recordings of this host to a collector elsewhere, until it has them: what `heaptrace run` does with
//! `TRACEHOUND_COLLECTOR`. The files stay.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::status::CollectorStatus;
use crate::sink::{RemoteArgs, ShippingTarget};
use crate::source::{LocalRecording, Step};
use crate::symbols::SymbolKeeper;

/// Options of `send`.
#[derive(Debug, clap::Args)]
pub struct SendArgs {
    /// The collector: HOST:PORT, or a URL
    #[arg(long, value_name = "ADDRESS")]
    to: String,
    #[command(flatten)]
    remote: RemoteArgs,
    /// Give up when nothing was sent for so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    patience: u64,
    /// The recordings
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// `HOST:PORT` as a URL.
pub fn url_of(address: &str) -> String {
    if address.contains("://") { address.to_owned() } else { format!("http://{address}") }
}

/// Sends them.
pub async fn run(args: SendArgs) -> Result<ExitCode> {
    let sink = ShippingTarget::open(&url_of(&args.to), &args.remote)?;
    let status = Arc::new(CollectorStatus::new(args.to.clone()));
    let keeper = SymbolKeeper::start(&sink, true, status);
    for path in &args.files {
        let Some(mut source) = LocalRecording::open(path, &keeper)? else {
            bail!("{} is no recording", path.display())
        };
        let mut since = Instant::now();
        let mut is_reported = false;
        loop {
            match source.step(&sink).await {
                Ok(Step::Finished) => break,
                Ok(Step::Shipped(_)) => since = Instant::now(),
                Ok(Step::Waiting) => tokio::time::sleep(Duration::from_millis(50)).await,
                Err(error) if since.elapsed().as_secs() >= args.patience => {
                    return Err(error)
                        .with_context(|| format!("{} was not sent, and stays where it is", path.display()));
                }
                Err(error) => {
                    if !is_reported {
                        is_reported = true;
                        let why = crate::clean(&format!("{error:#}"));
                        crate::tell!("heaptrace: {why}; trying again for {} s", args.patience);
                    }
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
