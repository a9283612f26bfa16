//! `heaptrace bundle`: the names that a recording needs, put beside it, for a machine that has none of the programs.

use std::path::PathBuf;

use anyhow::{Context, Result};
use tracehound_server::api::info::End;

use super::{Interrupted, Misuse, interrupt, open};
use crate::symbolize;

/// Put the names that a recording needs beside it, so that it can be read on another machine.
///
/// FILE.symbols holds functions, files, lines and inlined callers of every backtrace; take it along with the recording.
/// Source texts are not in it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heaptrace bundle memory-app-1.dat && scp memory-app-1.dat memory-app-1.dat.symbols desk:
  heaptrace bundle memory-app-1.dat -o /tmp/for-you.dat
  heaptrace --debug-dir /mnt/debug bundle memory-app-1.dat")]
pub struct BundleArgs {
    /// A recording
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Copy the recording there, and put the names beside the copy
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
}

/// Writes the bundle.
pub fn run(args: &BundleArgs) -> Result<()> {
    let opened = open::open(&args.file)?;
    if opened.trace.end() == End::Running && args.output.is_some() {
        return Err(Misuse("the program runs: a copy of its recording would be cut off".into()).into());
    }
    let bundle = opened.symbols.bundle(&opened.trace, interrupt::flag()).map_err(|_| Interrupted)?;
    let recording = args.output.as_ref().unwrap_or(&args.file);
    if let Some(output) = &args.output {
        std::fs::copy(&args.file, output).with_context(|| format!("cannot write {}", output.display()))?;
    }
    let path = symbolize::bundle_path(recording);
    bundle.write(&path).with_context(|| format!("cannot write {}", path.display()))?;
    let (named, all) = bundle.counts();
    eprintln!("heaptrace: {}: names for {named} of {all} places in the code", path.display());
    Ok(())
}
