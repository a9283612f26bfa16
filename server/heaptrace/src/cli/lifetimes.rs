//! `heaptrace lifetimes`: how long blocks live.

use std::io::{self, Write};

use anyhow::Result;
use tracehound_api::histograms::Lifetimes;
use tracehound_query::lifetimes::{self, LifetimesParams};

use super::args::{Files, Filters, WindowArgs};
use super::table::{Align, TextCell, TextTable};
use super::terminal::{ColorChoice, Style, TextRole};
use super::units::{bytes, count, duration, percent};
use super::{answer_each, misuse};

/// Show how long blocks live, and how many of each age are still live.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heaptrace lifetimes memory-app-1.dat
  heaptrace lifetimes --focus parse memory-app-1.dat
  heaptrace lifetimes --json memory-app-1.dat | jq .histogram")]
pub struct LifetimesArgs {
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    window: WindowArgs,
    #[command(flatten)]
    filters: Filters,
}

/// Prints the histograms.
pub fn run(args: &LifetimesArgs, color: ColorChoice) -> Result<()> {
    let window = args.window.resolve()?;
    let params = LifetimesParams { window, filter: args.filters.filter().map_err(misuse)? };
    answer_each(&args.files, color, &params, Some(&params.filter), params.window.times(), lifetimes::run, print)
}

/// One line of the histogram: its class by decade, blocks, bytes, and blocks that live.
#[derive(Default, Clone, Copy)]
struct HistogramLine {
    count: u64,
    bytes: u64,
    live: u64,
}

/// Decades of nanoseconds, as people think of them.
const DECADES: [(u64, &str); 8] = [
    (1_000, "under 1 µs"),
    (10_000, "1 to 10 µs"),
    (100_000, "10 to 100 µs"),
    (1_000_000, "0.1 to 1 ms"),
    (10_000_000, "1 to 10 ms"),
    (100_000_000, "10 to 100 ms"),
    (1_000_000_000, "0.1 to 1 s"),
    (u64::MAX, "1 s and more"),
];

/// Writes the histogram; its classes are finer than decades, and go where their lower end is.
pub fn print(lifetimes: &Lifetimes, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let histogram = &lifetimes.histogram;
    let total: u64 = histogram.count.iter().sum();
    let mut lines = [HistogramLine::default(); DECADES.len()];
    let columns = histogram.lower.iter().zip(&histogram.count).zip(&histogram.bytes).zip(&histogram.live_count);
    for (((&lower, &blocks), &size), &live) in columns {
        let decade = DECADES.partition_point(|&(end, _)| end <= lower).min(DECADES.len() - 1);
        lines[decade].count += blocks;
        lines[decade].bytes += size;
        lines[decade].live += live;
    }
    let window = format!("from {} to {}", duration(lifetimes.from_ns), duration(lifetimes.to_ns));
    let head = format!("{} blocks allocated {window}", count(total));
    writeln!(out, "{}", style.paint(TextRole::Strong, head))?;
    let mut table = TextTable::new(&[
        ("lived", Align::Right),
        ("blocks", Align::Right),
        ("%", Align::Right),
        ("bytes", Align::Right),
        ("still live", Align::Right),
        ("", Align::Left),
    ]);
    let most = lines.iter().map(|line| line.count).max().unwrap_or(0).max(1);
    // Characters of the longest: with all columns before it a line fits into 80.
    const BAR: f64 = 20.0;
    for ((_, name), line) in DECADES.iter().zip(&lines).filter(|(_, line)| line.count > 0) {
        let bar = "█".repeat((line.count as f64 / most as f64 * BAR).ceil() as usize);
        table.row(vec![
            (*name).to_owned().into(),
            count(line.count).into(),
            percent(line.count.cast_signed(), total.cast_signed()).into(),
            bytes(line.bytes).into(),
            TextCell::new(if line.live > 0 { TextRole::Hot } else { TextRole::Faint }, count(line.live)),
            TextCell::new(TextRole::Name, bar),
        ]);
    }
    table.print(style, out)?;
    let note = "Blocks that still live count with the time until the end of the recording.";
    writeln!(out, "{}", style.paint(TextRole::Faint, note))
}
