//! `heaptrace server`: the recordings in a browser.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use anyhow::Result;

use super::Misuse;
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
    /// Open the page in the default browser
    #[arg(long)]
    open: bool,
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
    http::serve(Config {
        recordings: args.files,
        bind: args.bind,
        port: args.port,
        hosts: args.allow_host,
        token: args.token,
        source_roots: args.source,
        open: args.open,
    })
}
