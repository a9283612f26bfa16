//! `heaptrace server`: the recordings in a browser.

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use anyhow::Result;
use tracehound_format::FormatError;
use tracehound_format::header::FileHeader;

use super::Misuse;
use super::fleet;
use super::leaks::read_suppressions;
use super::terminal::clean;
use crate::http::{self, Config, Token};

/// Show recordings in a browser.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heaptrace server memory-app-1.dat
  heaptrace server --open before.dat after.dat
  HEAPTRACE_TOKEN=$(openssl rand -hex 16) heaptrace server --bind 0.0.0.0 memory-app-1.dat

A recording may still be growing: the page follows it.")]
pub struct ServerArgs {
    /// Recordings: finished, running, cut off or damaged
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Port to listen on [default: 8080, or the next one that is free]
    #[arg(short, long)]
    port: Option<u16>,
    /// Address to listen on; any but a loopback address needs --token
    #[arg(short, long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind: IpAddr,
    /// A secret that every request must carry, of 16 characters or more
    #[arg(long, env = "HEAPTRACE_TOKEN", hide_env_values = true, value_name = "SECRET")]
    token: Option<Token>,
    /// A host name that the server is reached by, besides localhost and its addresses
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// A folder that source files may be shown from, besides the current one
    #[arg(long, value_name = "FOLDER")]
    source: Vec<PathBuf>,
    /// A file of suppressions in LeakSanitizer's format, for all recordings; may be repeated
    #[arg(long, value_name = "FILE")]
    suppressions: Vec<PathBuf>,
    /// Open the page in the default browser
    #[arg(long)]
    open: bool,
}

/// Why there is nothing to see at `path`. A file that has only begun may still become a recording.
fn problem(path: &Path) -> Option<String> {
    let name = path.display();
    let mut start = Vec::new();
    // To open a pipe would wait for somebody who writes into it.
    if path.metadata().is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir()) {
        return Some(format!("cannot read {name}: it is a pipe or a device, and no file"));
    }
    let read = File::open(path).and_then(|file| file.take(FileHeader::LEN as u64).read_to_end(&mut start));
    match read.map(|_| FileHeader::decode(&start)) {
        Err(error) => Some(format!("cannot read {name}: {error}")),
        Ok(Ok(_) | Err(FormatError::Truncated { .. })) => None,
        Ok(Err(error)) => Some(format!("cannot open {name}: {error}")),
    }
}

/// Serves until it is told to stop.
pub fn run(args: ServerArgs) -> Result<()> {
    if !args.bind.is_loopback() && args.token.is_none() {
        let why = format!(
            "everybody who reaches {} could read the recordings: --bind to it needs --token (or HEAPTRACE_TOKEN) as well",
            args.bind
        );
        return Err(Misuse(why).into());
    }
    let mut files = Vec::new();
    for file in args.files {
        if fleet::is_url(&file) { files.extend(fleet::local(&file)?) } else { files.push(file) }
    }
    let problems: Vec<String> = files.iter().filter_map(|path| problem(path)).collect();
    if problems.len() == files.len() {
        anyhow::bail!("{}", problems.join("; "));
    }
    // The other recordings can be opened; the page reports these problems, too.
    for problem in problems {
        crate::tell!("heaptrace: {}", clean(&problem));
    }
    let suppressions = read_suppressions(&args.suppressions)?;
    http::serve(Config {
        recordings: files,
        bind: args.bind,
        port: args.port,
        hosts: args.allow_host,
        token: args.token,
        source_roots: args.source,
        suppressions,
        open: args.open,
    })
}
