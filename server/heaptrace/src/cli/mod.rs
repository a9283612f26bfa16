//! The command line: arguments, dispatch, and error messages.
//!
//! Exit codes: 0 fine, 1 something failed, 2 misuse. `run` exits as its program does.

mod args;
mod attach;
mod bundle;
mod carried;
mod check;
mod churn;
mod config;
mod contexts;
mod ctl;
mod diff;
mod dump;
mod export;
mod flamegraph;
mod fleet;
mod heap_map;
mod import;
mod info;
mod interrupt;
mod leaks;
mod libraries;
mod lifetimes;
mod manual;
mod mcp;
mod memory;
mod open;
mod output;
mod pins;
mod replay;
mod report;
mod run;
mod server;
mod sites;
mod sql;
mod stack;
mod summary;
mod table;
mod terminal;
#[cfg(test)]
mod tests;
mod threads;
mod top;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::{FromArgMatches, Parser, Subcommand};
use serde::Serialize;
use serde_json::json;
use tracehound_api::{FramesShown, units};
use tracehound_index::symbols::RecordingSymbols;
use tracehound_index::{Cancel, Trace};
use tracehound_query::{Filter, QueryError, TimeExpr};

use open::OpenRecording;
use tracehound_exports::ExportError;

/// Opens recordings made with libtracehound.so and shows where the memory is.
#[derive(Debug, Parser)]
#[command(
    name = "heaptrace",
    version,
    arg_required_else_help = true,
    after_help = "Examples:
  heaptrace run -- ./app             record a program
  heaptrace server memory-app-1.dat  look at the recording in a browser
  heaptrace leaks memory-app-1.dat   blocks that were never freed, by allocating backtrace

`heaptrace help COMMAND` describes a command; `heaptrace man FOLDER` writes the manual pages.
heaptrace.toml can set defaults for options."
)]
struct Cli {
    /// Colour: auto (on a terminal, unless NO_COLOR is set), always, never
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    color: terminal::ColorChoice,
    /// Frames of stacks: user (without an interpreter's own around the program's functions), all
    #[arg(long, global = true, value_name = "WHICH", default_value = "user", value_parser = args::wire::<FramesShown>(&["user", "all"]), hide_possible_values = true)]
    frames: FramesShown,
    #[command(flatten)]
    symbols: tracehound_symbols::search_paths::SearchPaths,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::RunArgs),
    Server(server::ServerArgs),
    Info(info::InfoArgs),
    Leaks(leaks::LeaksArgs),
    Top(top::TopArgs),
    Summary(summary::SummaryArgs),
    Sites(sites::SitesArgs),
    Threads(threads::ThreadsArgs),
    Churn(churn::ChurnArgs),
    Contexts(contexts::ContextsArgs),
    Lifetimes(lifetimes::LifetimesArgs),
    Memory(memory::MemoryArgs),
    Pins(pins::PinsArgs),
    Map(heap_map::MapArgs),
    Replay(replay::ReplayArgs),
    Diff(diff::DiffArgs),
    Check(check::CheckArgs),
    Flamegraph(flamegraph::FlamegraphArgs),
    Export(export::ExportArgs),
    Report(report::ReportArgs),
    Import(import::ImportArgs),
    Bundle(bundle::BundleArgs),
    Dump(dump::DumpArgs),
    Sql(sql::SqlArgs),
    Mcp(mcp::McpArgs),
    /// Copy the recordings of many processes into a store, and accept recordings from other collectors
    #[command(after_help = "Examples:
  heaptrace collect --spool /var/spool/heap --store file:///srv/heap
  heaptrace collect --listen 0.0.0.0:9900 --store s3://bucket/heap
  heaptrace collect status 127.0.0.1:9900
  heaptrace collect --help

docs/guide/fleet.md has the details.")]
    Collect(fleet::FleetArgs),
    /// Query all recordings of a store: leaks, changes between versions, hosts that differ from the others
    #[command(after_help = "Examples:
  heaptrace fleet leaks file:///srv/heap
  heaptrace fleet regress s3://bucket/heap --service api --before 1.4 --after 1.5
  heaptrace fleet --help

docs/guide/fleet.md has the details.")]
    Fleet(fleet::FleetArgs),
    /// Send the heap profile of recordings to a Parca or Pyroscope server
    #[command(after_help = "Examples:
  heaptrace push parca http://localhost:7070 memory-shop-1.dat
  heaptrace push pyroscope http://localhost:4040 memory-*.dat --label env=live
  heaptrace push --help

docs/guide/fleet.md has the details.")]
    Push(fleet::FleetArgs),
    Attach(attach::AttachArgs),
    Detach(attach::DetachArgs),
    Ctl(ctl::CtlArgs),
    /// Write libtracehound.so, and what static programs are linked with, into a folder
    Libraries(libraries::LibrariesArgs),
    /// Print the description of the HTTP interface (OpenAPI 3.1)
    #[command(after_help = "Example:
  heaptrace openapi > heaptrace.openapi.json")]
    Openapi,
    /// Print a completion script for a shell
    #[command(after_help = "Examples:
  heaptrace completions bash > ~/.local/share/bash-completion/completions/heaptrace
  heaptrace completions zsh > ~/.zfunc/_heaptrace
  heaptrace completions fish > ~/.config/fish/completions/heaptrace.fish")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder
    #[command(after_help = "Example:
  heaptrace man ~/.local/share/man/man1 && man heaptrace-leaks")]
    Man {
        /// The folder; it is created if it does not exist
        #[arg(value_hint = clap::ValueHint::DirPath)]
        folder: std::path::PathBuf,
    },
}

/// Wrong usage, on the command line or in the environment: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Misuse(pub String);

/// Ctrl-C: we end by the signal, so that a shell's loop ends, too.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
struct Interrupted;

/// Does what the command line says.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = match config::with_defaults(manual::command(), arguments.into_iter().collect()) {
        Ok(arguments) => arguments,
        Err(error) => {
            crate::tell!("heaptrace: {}", terminal::clean(&format!("{error:#}")));
            return ExitCode::from(2);
        }
    };
    let parsed = manual::command().try_get_matches_from(arguments);
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come here, too; a closed pipe is no reason to complain.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match dispatch(cli) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            if error.is::<Interrupted>() || interrupt::flag().is_cancelled() {
                run::die_by(libc::SIGINT);
            }
            crate::tell!("heaptrace: {}", terminal::clean(&format!("{error:#}")));
            ExitCode::from(if error.is::<Misuse>() { 2 } else { 1 })
        }
    }
}

fn dispatch(cli: Cli) -> Result<ExitCode> {
    let color = cli.color;
    tracehound_symbols::search_paths::choose(cli.symbols);
    if cli.frames == FramesShown::All {
        tracehound_symbols::show_all_frames();
    }
    match cli.command {
        Command::Run(args) => return run::run(&args),
        Command::Server(args) => server::run(args)?,
        Command::Info(args) => info::run(&args, color)?,
        Command::Leaks(args) => leaks::run(&args, color)?,
        Command::Top(args) => top::run(&args, color)?,
        Command::Summary(args) => summary::run(&args, color)?,
        Command::Sites(args) => sites::run(&args, color)?,
        Command::Threads(args) => threads::run(&args, color)?,
        Command::Churn(args) => churn::run(&args, color)?,
        Command::Contexts(args) => contexts::run(&args, color)?,
        Command::Lifetimes(args) => lifetimes::run(&args, color)?,
        Command::Memory(args) => memory::run(&args, color)?,
        Command::Pins(args) => pins::run(&args, color)?,
        Command::Map(args) => heap_map::run(&args, color)?,
        Command::Replay(args) => replay::run(&args, color)?,
        Command::Diff(args) => diff::run(&args, color)?,
        Command::Check(args) => return check::run(&args, color),
        Command::Flamegraph(args) => flamegraph::run(&args)?,
        Command::Export(args) => export::run(&args)?,
        Command::Report(args) => report::run(&args)?,
        Command::Import(args) => import::run(&args)?,
        Command::Bundle(args) => bundle::run(&args)?,
        Command::Dump(args) => dump::run(&args)?,
        Command::Sql(args) => sql::run(&args, color)?,
        Command::Mcp(args) => mcp::run(&args)?,
        Command::Collect(args) => return fleet::become_fleet("collect", &args),
        Command::Fleet(args) => return fleet::become_fleet("fleet", &args),
        Command::Push(args) => return fleet::become_fleet("push", &args),
        Command::Attach(args) => attach::run(&args)?,
        Command::Detach(args) => attach::detach(&args)?,
        Command::Ctl(args) => ctl::run(&args, color)?,
        Command::Libraries(args) => libraries::run(&args)?,
        Command::Openapi => manual::print(format!("{}\n", crate::http::openapi().to_pretty_json()?).as_bytes())?,
        Command::Completions { shell } => manual::print(&manual::completions(shell))?,
        Command::Man { folder } => manual::write_pages(&folder)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a line below an answer says that the recording is not complete; JSON documents always do.
#[derive(Clone, Copy)]
enum Shortfall {
    /// A line is printed, in this style.
    Tell(terminal::Style),
    /// No line is printed: the answer itself has that information.
    InAnswer,
}

/// Whether the answer about one recording of several begins with the recording's name.
#[derive(Clone, Copy)]
enum FileName {
    /// A line is printed, in this style.
    Tell(terminal::Style),
    /// No line is printed: the answer itself has the name.
    InAnswer,
}

/// Asks every recording, and prints the answers: as they come, or as one JSON document. Several answers are a list.
fn for_each<T: Serialize>(
    files: &args::Files,
    name: FileName,
    shortfall: Shortfall,
    out: &mut dyn Write,
    ask: impl Fn(&OpenRecording) -> Result<T>,
    print: impl Fn(&T, &OpenRecording, &mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    let mut documents = Vec::new();
    let mut unread = Unread::new(files.files.len());
    let mut is_first = true;
    for file in &files.files {
        let Some(opened) = unread.unless(open::open_among(file, &files.files))? else { continue };
        let answer = ask(&opened)?;
        if !files.json {
            if !std::mem::take(&mut is_first) {
                writeln!(out)?;
                out.flush()?;
            }
            if let (FileName::Tell(style), 2..) = (name, files.files.len()) {
                writeln!(out, "{}", style.paint(terminal::TextRole::Strong, terminal::clean(&opened.path)))?;
            }
            print(&answer, &opened, out)?;
            if let (Some(shortfall), Shortfall::Tell(style)) = (opened.shortfall(), shortfall) {
                writeln!(out, "\n{}", style.paint(terminal::TextRole::Hot, shortfall))?;
            }
        } else if files.files.len() == 1 {
            serde_json::to_writer_pretty(&mut *out, &answer).map_err(io::Error::from)?;
            writeln!(out)?;
        } else {
            documents.push(json!({"file": opened.path, "document": answer}));
        }
    }
    if !documents.is_empty() {
        let list = json!({"schema": "heaptrace.list/1", "recordings": documents});
        serde_json::to_writer_pretty(&mut *out, &list).map_err(io::Error::from)?;
        writeln!(out)?;
    }
    out.flush()?;
    unread.into_result()
}

/// Recordings among several that cannot be read: each is said at once, and that there were some is said at the end. One alone is
/// an error as any.
struct Unread {
    of: usize,
    count: usize,
}

impl Unread {
    /// None yet of so many.
    fn new(of: usize) -> Self {
        Self { of, count: 0 }
    }

    /// What was opened; `None` if it is to be left out.
    fn unless(&mut self, opened: Result<OpenRecording>) -> Result<Option<OpenRecording>> {
        match opened {
            Err(error) if self.of > 1 && !interrupt::flag().is_cancelled() => {
                crate::tell!("heaptrace: {}", terminal::clean(&format!("{error:#}")));
                self.count += 1;
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    fn into_result(self) -> Result<()> {
        match self.count {
            0 => Ok(()),
            count => anyhow::bail!("{count} of {} recordings could not be read and are left out", self.of),
        }
    }
}

/// Asks every recording a query, and prints the answers as [`for_each`] does. Which of the `times` that were asked for lie
/// behind a recording's end is said on standard error, and which modules of the `filter` it does not have.
fn answer_each<'t, P, T: Serialize>(
    files: &args::Files,
    color: terminal::ColorChoice,
    params: &P,
    filter: Option<&Filter>,
    times: impl IntoIterator<Item = &'t TimeExpr> + Clone,
    query: impl Fn(&Trace, &dyn RecordingSymbols, &P, &Cancel) -> tracehound_query::Result<T>,
    print: impl Fn(&T, terminal::Style, &mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    let style = terminal::Style::of_stdout(color);
    for_each(
        files,
        FileName::Tell(style),
        Shortfall::Tell(style),
        &mut terminal::stdout(),
        |opened| {
            opened.tell_beyond(times.clone());
            if let Some(filter) = filter {
                opened.tell_missing_modules(filter);
            }
            query(&opened.trace, &opened.symbols, params, interrupt::flag()).map_err(misuse)
        },
        |answer, _, out| print(answer, style, out),
    )
}

/// An error of a query, as an error of usage where its parameters are wrong.
fn misuse(error: QueryError) -> anyhow::Error {
    match error {
        QueryError::BadParameter { parameter, why } => {
            Misuse(format!("--{}: {why}", parameter.replace('_', "-"))).into()
        }
        QueryError::Cancelled => Interrupted.into(),
        other => other.into(),
    }
}

fn export_error(error: ExportError) -> anyhow::Error {
    match error {
        ExportError::Query(error) => misuse(error),
        // It says which output that is.
        ExportError::Output(error) => error.into(),
    }
}

/// Whether the reader of our output has closed the pipe (`heaptrace dump x.dat | head`).
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe))
}
