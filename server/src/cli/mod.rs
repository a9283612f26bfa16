//! The command line: arguments, dispatch, and how errors are said.
//!
//! Exit codes: 0 fine, 1 something failed, 2 misuse. `run` exits as its program does.

mod run;
mod table;
mod terminal;
mod units;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};

/// Opens recordings made with libtracehound.so and shows where the memory is.
#[derive(Debug, Parser)]
#[command(
    name = "heaptrace",
    version,
    arg_required_else_help = true,
    after_help = "Examples:
  heaptrace run -- ./app             record a program
  heaptrace server memory-app-1.dat  look at the recording in a browser
  heaptrace leaks memory-app-1.dat   what was never freed, and who allocated it

`heaptrace help COMMAND` says more about a command."
)]
struct Cli {
    /// Colour: auto (on a terminal, unless NO_COLOR is set), always, never
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    color: terminal::ColorChoice,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::RunArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// The command line or the environment asks for something that makes no sense: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Misuse(pub String);

/// Does what the command line says.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
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
            eprintln!("heaptrace: {}", terminal::clean(&format!("{error:#}")));
            ExitCode::from(if error.is::<Misuse>() { 2 } else { 1 })
        }
    }
}

fn dispatch(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "heaptrace", &mut io::stdout());
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Whoever read our output has had enough (`heaptrace dump x.dat | head`).
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe))
}
