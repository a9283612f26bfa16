//! `heaptrace report`: the page with its answers in one HTML file.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use tracehound_query::parse_size;

use super::args::{Filters, WindowArgs};
use super::output::OutputArgs;
use super::{export_error, interrupt, misuse, open, terminal, units};
use tracehound_exports::report::{self, ReportError, ReportScope};

/// Write one HTML file that shows a recording in any browser, offline.
///
/// The file holds the page and its answers: overview, flame graphs, call tree, functions, sites, leaks, lifetimes,
/// threads and what was recorded, for one window and filter. It asks nothing of any server.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heaptrace report memory-app-1.dat -o app.html
  heaptrace report --from 10s --to peak --strip-paths memory-app-1.dat -o app.html
  heaptrace report --max-file-size 2MiB memory-app-1.dat -o small.html")]
pub struct ReportArgs {
    /// A recording: finished, running, cut off or damaged
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where it goes; - is standard output
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// The file is at most this large: detail is left out until it fits
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = parse_size)]
    max_file_size: u64,
    /// Keep only the last part of every path, and of the command line only the program
    #[arg(long)]
    strip_paths: bool,
    #[command(flatten)]
    window: WindowArgs,
    #[command(flatten)]
    filters: Filters,
}

/// Writes the report.
pub fn run(args: &ReportArgs) -> Result<()> {
    let window = args.window.resolve()?;
    let filter = args.filters.filter().map_err(misuse)?;
    let opened = open::open_telling(&args.file)?;
    opened.tell_beyond(window.times());
    opened.tell_missing_modules(&filter);
    let made = report::make(&ReportScope {
        trace: &opened.trace,
        symbols: &opened.symbols,
        cancel: interrupt::flag(),
        window,
        filter,
        filter_texts: args.filters.texts(),
        max_bytes: args.max_file_size,
        strip_paths: args.strip_paths,
    });
    let made = made.map_err(|error| match error {
        ReportError::Export(error) => export_error(error),
        ReportError::TooLarge { .. } => super::Misuse(format!("--max-file-size: {error}")).into(),
        ReportError::NoPage => error.into(),
    })?;
    let mut out = OutputArgs::create(&args.output)?;
    out.write_all(made.html.as_bytes())?;
    out.finish()?;
    for line in &made.left_out {
        crate::tell!("heaptrace: to fit into {}: {line}", units::bytes(args.max_file_size));
    }
    match &made.example {
        Some(path) => crate::tell!(
            "heaptrace: the report contains {} paths of this machine, such as {}, the command line and the names of all \
             functions: check it before you share it, or use --strip-paths",
            units::count(made.paths as u64),
            terminal::clean(path)
        ),
        None => {
            crate::tell!(
                "heaptrace: the report contains the names of all functions and files: check it before you share it"
            )
        }
    }
    Ok(())
}
