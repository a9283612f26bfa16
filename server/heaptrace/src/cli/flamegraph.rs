//! `heaptrace flamegraph`: a picture in one SVG file.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Result;
use tracehound_api::Unit;
use tracehound_api::pins::PinUnit;
use tracehound_query::flamegraph::{self, FlamegraphParams};

use super::args::{Filters, Measure, PIN_UNITS, wire};
use super::output::OutputArgs;
use super::{interrupt, misuse, open, top, units};
use tracehound_exports::svg;

/// Draw a flame graph as an SVG file that zooms and searches in every browser.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heaptrace flamegraph memory-app-1.dat -o live.svg
  heaptrace flamegraph --metric peak memory-app-1.dat -o peak.svg
  heaptrace flamegraph --metric leaked --inverted memory-app-1.dat -o leaked.svg
  heaptrace flamegraph --metric freed --freeing memory-app-1.dat -o freed-by.svg
  heaptrace flamegraph --pinned --at end memory-app-1.dat -o pinned.svg")]
pub struct FlamegraphArgs {
    /// A recording: finished, running, cut off or damaged
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The output file; - is standard output
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// Allocating functions at the root, their callers above them
    #[arg(long)]
    inverted: bool,
    /// By the stacks that freed the blocks, with --metric freed
    #[arg(long)]
    freeing: bool,
    /// Size of a function: the resident pages whose blocks were all allocated below it; with --metric live or peak
    #[arg(long, conflicts_with = "freeing")]
    pinned: bool,
    /// What of these pages is given back as a whole: 4k pages, 2M (huge pages), slab (what the allocator gives back)
    #[arg(long, value_name = "UNIT", requires = "pinned", value_parser = wire::<PinUnit>(PIN_UNITS), hide_possible_values = true)]
    pin_unit: Option<PinUnit>,
    /// Draw at most this many functions; narrower ones are folded into marked rows
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    max_nodes: u32,
    /// Print the tree that would be drawn, as one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    measure: Measure,
    #[command(flatten)]
    filters: Filters,
}

/// Draws the picture.
pub fn run(args: &FlamegraphArgs) -> Result<()> {
    let unit = args.measure.unit();
    let params = FlamegraphParams {
        metric: args.measure.metric,
        unit,
        window: args.measure.window()?,
        filter: args.filters.filter().map_err(misuse)?,
        width: 1200,
        min_px: 0.3,
        max_nodes: args.max_nodes as usize,
        inverted: args.inverted,
        freeing: args.freeing,
        pinned: args.pinned.then(|| args.pin_unit.unwrap_or_default()),
        ..FlamegraphParams::default()
    };
    let opened = open::open_telling(&args.file)?;
    opened.tell_beyond(params.window.times());
    opened.tell_missing_modules(&params.filter);
    let graph = flamegraph::run(&opened.trace, &opened.symbols, &params, interrupt::flag()).map_err(misuse)?;
    let mut out = OutputArgs::create(&args.output)?;
    if args.json {
        serde_json::to_writer(&mut out, &graph).map_err(std::io::Error::from)?;
        return out.finish();
    }

    let amount = match unit {
        Unit::Bytes => units::signed_bytes,
        Unit::Count if graph.pinned => |value| format!("{} pages", units::signed_count(value)),
        Unit::Count => |value| format!("{} blocks", units::signed_count(value)),
    };
    let process = opened.trace.facts().process.as_ref();
    let title = process.map_or_else(
        || opened.path.clone(),
        |process| {
            let path = String::from_utf8_lossy(&process.executable);
            format!("{} (pid {})", path.rsplit('/').next().unwrap_or(&path), process.pid)
        },
    );
    let kind = match graph.pin_unit {
        Some(PinUnit::Huge) => "huge ",
        Some(PinUnit::Slab) => "slab ",
        Some(PinUnit::Page) | None => "",
    };
    let mut subtitle = if graph.pinned {
        format!("{}pages that live blocks hold: {}", kind, amount(graph.total))
    } else {
        format!("{} {}: {}", top::unit_name(unit), top::metric_name(graph.metric), amount(graph.total))
    };
    let _ = match graph.at_ns {
        Some(at) => write!(subtitle, " at {}{}", units::duration(at), top::whose(graph.peak_of)),
        None => write!(subtitle, " from {} to {}", units::duration(graph.from_ns), units::duration(graph.to_ns)),
    };
    if graph.freeing {
        subtitle.push_str(", by who freed it");
    }
    if graph.inverted {
        subtitle.push_str(if graph.freeing {
            ", freeing functions at the root"
        } else {
            ", allocating functions at the root"
        });
    }
    let mut picture = String::new();
    let _ = svg::write(&graph, &svg::Texts { title: &title, subtitle: &subtitle, amount }, &mut picture);
    std::io::Write::write_all(&mut out, picture.as_bytes())?;
    out.finish()
}
