//! `heaptrace-fleet`: the part of `heaptrace` that works on many recordings; `heaptrace collect`, `heaptrace fleet`,
//! `heaptrace push` and `heaptrace server s3://…` start it. A program of its own, so that clients of object stores and of HTTP are neither
//! compiled nor linked into what records and shows.
//!
//! ```text
//! blocks     whole, checked blocks of a recording that grows
//! ending     the end of a recording whose process was killed, made from its side file
//! source     one local recording: what was shipped of it, what may be given back to the disk
//! collect/   the loop over spool folders, and the collector that listens for others
//! otel       what a process publishes of itself (OTEL_CTX)
//! push       profiles of recordings to servers of profiles
//! sink       where recordings go: a store, or another collector
//! store      what lies where in a store
//! describe   its commands and options, for completions and manual pages
//! buckets    stores of Amazon, Google and Azure, by their URLs
//! symbols    symbols of the programs, once for each build id, while their files can be read
//! tables/    the data set: tables of a recording into the store, and sums over all of them
//! ask/       questions over a store: top, regress, leaks, outliers, budget
//! ```

/// Writes a line to standard error, as `eprintln!` does. A standard error that nobody reads, or that is full, ends no
/// collector.
macro_rules! tell {
    ($($text:tt)*) => {{
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{}\n", format_args!($($text)*)));
    }};
}
pub(crate) use tell;

mod ask;
mod blocks;
mod buckets;
mod collect;
mod describe;
mod ending;
mod fetch;
mod labels;
mod otel;
mod push;
mod refusals;
mod sink;
mod source;
mod store;
mod symbols;
mod tables;

use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, Parser, Subcommand};

/// Collects the recordings of many processes in a store, and asks all of them.
#[derive(Debug, Parser)]
#[command(name = "heaptrace", bin_name = "heaptrace", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Collect(collect::CollectArgs),
    Fleet(ask::QuestionArgs),
    Push(push::PushArgs),
    /// Print these commands and their options as JSON
    #[command(hide = true)]
    Describe,
    #[command(hide = true)]
    Fetch(fetch::FetchArgs),
    #[command(hide = true)]
    Send(collect::send::SendArgs),
}

/// Where the program is static: musl's own allocator has one lock, behind which threads queue.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.into()),
    };
    // An error means that one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let done = runtime.block_on(async {
        match cli.command {
            Command::Describe => {
                let mut command = Cli::command();
                command.build();
                print(&format!("{}\n", serde_json::to_string(&describe::describe(&command))?))?;
                Ok(ExitCode::SUCCESS)
            }
            Command::Collect(args) => collect::run(args).await,
            Command::Fleet(args) => ask::run(args).await,
            Command::Push(args) => push::run(args).await,
            Command::Fetch(args) => fetch::run(args).await,
            Command::Send(args) => collect::send::run(args).await,
        }
    });
    // Blocking work that was given up does not hold the exit.
    runtime.shutdown_background();
    match done {
        Ok(code) => code,
        Err(error) => fail(&error),
    }
}

fn fail(error: &anyhow::Error) -> ExitCode {
    tell!("heaptrace: {}", clean(&format!("{error:#}")));
    ExitCode::FAILURE
}

/// Prints an answer. A closed pipe is no error: its reader has what it wanted.
fn print(text: &str) -> anyhow::Result<()> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write standard output"),
    }
}

/// Text without control characters: names come from recordings.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
