//! `heaptrace export`: a recording in another tool's format.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::args::{Filters, Measure};
use super::output::OutputArgs;
use super::{export_error, interrupt, misuse, open};
use tracehound_exports::{ExportInput, ExportScope, Format, folded};

/// Write a recording in another tool's format.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heaptrace export --format pprof memory-app-1.dat -o app.pb.gz && go tool pprof -http : app.pb.gz
  heaptrace export --format speedscope memory-app-1.dat -o app.speedscope.json
  heaptrace export --format folded --metric leaked memory-app-1.dat -o - | flamegraph.pl > l.svg
  heaptrace export --format parquet memory-app-1.dat -o app/ && duckdb -c \"from 'app/sites.parquet'\"
  heaptrace export --format massif memory-app-1.dat -o app.massif && ms_print app.massif
  heaptrace export --format json memory-app-1.dat -o everything.json.gz")]
pub struct ExportArgs {
    /// A recording: finished, running, cut off or damaged
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The format
    #[arg(short, long, value_enum)]
    format: Format,
    /// The output file; - is standard output; a name that ends in .gz is compressed
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    #[command(flatten)]
    measure: Measure,
    #[command(flatten)]
    filters: Filters,
}

/// Writes the export.
pub fn run(args: &ExportArgs) -> Result<()> {
    let scope = ExportScope { window: args.measure.window()?, filter: args.filters.filter().map_err(misuse)? };
    let of = folded::Of { metric: args.measure.metric, unit: args.measure.unit() };
    let opened = open::open_telling(&args.file)?;
    opened.tell_beyond(scope.window.times());
    opened.tell_missing_modules(&scope.filter);
    let source = ExportInput { trace: &opened.trace, symbols: &opened.symbols, cancel: interrupt::flag() };
    let one_file = args.output == Path::new("-") || args.output.extension().is_some_and(|end| end == "parquet");
    if args.format == Format::Parquet && !one_file {
        return tracehound_exports::parquet::write_folder(source, &scope, &args.output).map_err(export_error);
    }
    // These are compressed by definition.
    let mut out = match args.format {
        Format::Pprof | Format::Parquet => OutputArgs::create(&args.output)?,
        _ => OutputArgs::create_compressing(&args.output)?,
    };
    tracehound_exports::write(args.format, source, &scope, of, &mut out).map_err(export_error)?;
    out.finish()
}
