//! `heaptrace dump`: every event, one JSON object a line.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;

use super::{export_error, interrupt, open, terminal};
use tracehound_exports::{ExportInput, dump};

/// Print every event in time order, one JSON object a line.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heaptrace dump memory-app-1.dat | head
  heaptrace dump memory-app-1.dat | jq -c 'select(.kind == \"alloc\" and .size > 1000000)'
  heaptrace dump --no-symbols memory-app-1.dat > events.jsonl")]
pub struct DumpArgs {
    /// Recordings: finished, running, cut off or damaged; of several each line names its own (`file`)
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print stacks as lists of addresses, which is much faster
    #[arg(long)]
    no_symbols: bool,
    /// Print what had been mapped before recording began, too, as lines of kind `existing`
    #[arg(long)]
    existing: bool,
    /// Accepted for symmetry: the output is JSON in any case
    #[arg(long, hide = true)]
    json: bool,
}

/// Prints the events.
pub fn run(args: &DumpArgs) -> Result<()> {
    let mut out = terminal::stdout();
    for file in &args.files {
        let opened = open::open_telling_among(file, &args.files)?;
        let source = ExportInput { trace: &opened.trace, symbols: &opened.symbols, cancel: interrupt::flag() };
        let file = (args.files.len() > 1).then_some(opened.path.as_str());
        let options = dump::DumpOptions { file, symbols: !args.no_symbols, existing: args.existing };
        dump::write(source, options, &mut out).map_err(export_error)?;
    }
    out.flush()?;
    Ok(())
}
