//! `heaptrace import`: another tool's recording, written again as ours.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::output::{self, OutputArgs};
use super::units;
use tracehound_format::meta::EndReason;
use tracehound_imports::heaptrack;

/// Convert a recording of heaptrack, so that all commands and the page can open it.
///
/// Versions 1 to 3 of its format, compressed or not, with the names of functions.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heaptrace import heaptrack.app.4711.zst -o app.dat && heaptrace server app.dat
  heaptrace import heaptrack.app.4711.gz -o app.dat && heaptrace leaks app.dat")]
pub struct ImportArgs {
    /// A recording of heaptrack (.gz, .zst, or plain); - is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The converted recording; nothing that is a recording is replaced
    #[arg(short, long, value_name = "OUT.dat")]
    output: PathBuf,
}

/// Writes the recording and its names.
pub fn run(args: &ImportArgs) -> Result<()> {
    let name = args.file.display();
    output::spare_recording(&args.output)?;
    output::spare_source(&args.output, &args.file)?;
    let input: Box<dyn Read> = if args.file.as_os_str() == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(File::open(&args.file).with_context(|| format!("cannot read {name}"))?)
    };
    let mut out = OutputArgs::create_recording(&args.output)?;
    let (done, bundle) = heaptrack::import(input, &mut out).with_context(|| format!("cannot import {name}"))?;
    bundle.append(done.bytes, &mut out).with_context(|| format!("cannot write {}", args.output.display()))?;
    out.finish()?;
    let mut text = format!("{} blocks, {} frees", units::count(done.allocs), units::count(done.frees));
    if done.unmatched > 0 {
        text.push_str(&format!(", {} frees of blocks that were never allocated", units::count(done.unmatched)));
    }
    if done.skipped > 0 {
        text.push_str(&format!("; {} lines were not understood", units::count(done.skipped)));
    }
    match done.end {
        None => text.push_str("; the file is cut, its last lines are missing"),
        Some(EndReason::Killed) => text.push_str("; the program was killed, its last events are missing"),
        Some(_) => {}
    }
    crate::tell!("heaptrace: {}: {text}", args.output.display());
    Ok(())
}
