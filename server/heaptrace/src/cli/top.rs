//! `heaptrace top`: who has the memory, in pprof's columns.

use std::io::{self, Write};

use anyhow::Result;
use tracehound_api::functions::{FunctionRow, Functions, GroupBy};
use tracehound_api::{Metric, PeakOf, Unit};
use tracehound_query::functions::{self, FunctionSort, FunctionsParams};

use super::args::{Files, Filters, Measure, wire};
use super::table::{Align, TextCell, TextTable};
use super::terminal::{ColorChoice, Style, TextRole};
use super::units::{duration, percent, signed_bytes, signed_count};
use super::{answer_each, misuse};

const GROUPS: &[&str] = &["function", "program", "file", "module", "thread", "site", "size_class"];

/// Show the functions (or files, modules, threads, sites) that hold the memory, in pprof's columns.
///
/// flat: allocated by the function itself. cum: by it and everything below it, recursion counted once.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heaptrace top memory-app-1.dat                           live at the end
  heaptrace top --metric peak --cum memory-app-1.dat       at the peak, callers first
  heaptrace top --metric temporary --unit count memory-app-1.dat
  heaptrace top --by module --at 50% memory-app-1.dat")]
pub struct TopArgs {
    #[command(flatten)]
    files: Files,
    /// Add up per: function, program (only the program's functions; allocations by wrappers and libraries are added to their callers),
    /// file, module, thread, site, size_class
    #[arg(long, value_name = "WHAT", default_value = "function", value_parser = wire::<GroupBy>(GROUPS), hide_possible_values = true)]
    by: GroupBy,
    /// Sort by what was allocated below a function, not by the function itself
    #[arg(long)]
    cum: bool,
    /// Number of rows to show; 0 = all [default: 30; with --json all]
    #[arg(short = 'n', long, value_name = "N")]
    rows: Option<usize>,
    #[command(flatten)]
    measure: Measure,
    #[command(flatten)]
    filters: Filters,
}

/// Prints the tables.
pub fn run(args: &TopArgs, color: ColorChoice) -> Result<()> {
    let limit = args.files.row_limit(args.rows, 30);
    let params = FunctionsParams {
        metric: args.measure.metric,
        unit: args.measure.unit(),
        window: args.measure.window()?,
        filter: args.filters.filter().map_err(misuse)?,
        by: args.by,
        sort: if args.cum { FunctionSort::Cum } else { FunctionSort::Flat }.into(),
        limit,
        ..FunctionsParams::default()
    };
    answer_each(&args.files, color, &params, Some(&params.filter), params.window.times(), functions::run, print)
}

/// Writes the table.
pub fn print(functions: &Functions, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let amount = |value: i64| match functions.unit {
        Unit::Bytes => signed_bytes(value),
        Unit::Count => signed_count(value),
    };
    let total = functions.total;
    let shown: i64 = functions.rows.iter().map(|row| row.flat).sum();
    writeln!(
        out,
        "{}: {} {}",
        style.paint(TextRole::Strong, format!("{} {}", unit_name(functions.unit), metric_name(functions.metric))),
        style.paint(TextRole::Strong, amount(total)),
        style.paint(TextRole::Faint, when(functions)),
    )?;
    writeln!(
        out,
        "{}",
        style.paint(
            TextRole::Faint,
            format!(
                "{} of {} {}, {} of the total",
                functions.rows.len(),
                functions.total_rows,
                group_name(functions.by, functions.total_rows),
                percent(shown, total)
            )
        )
    )?;

    let mut table = TextTable::new(&[
        ("flat", Align::Right),
        ("flat%", Align::Right),
        ("sum%", Align::Right),
        ("cum", Align::Right),
        ("cum%", Align::Right),
        (column_name(functions.by), Align::Left),
    ]);
    let mut sum = 0;
    for row in &functions.rows {
        sum += row.flat;
        let hot =
            |value: i64| if value.saturating_mul(10) >= total && value > 0 { TextRole::Hot } else { TextRole::Plain };
        table.row(vec![
            TextCell::new(hot(row.flat), amount(row.flat)),
            percent(row.flat, total).into(),
            TextCell::new(TextRole::Faint, percent(sum, total)),
            TextCell::new(hot(row.cum), amount(row.cum)),
            percent(row.cum, total).into(),
            TextCell::new(TextRole::Name, label(row, functions.by)),
        ]);
    }
    table.print(style, out)
}

fn label(row: &FunctionRow, by: GroupBy) -> String {
    let mut label = row.name.clone();
    if matches!(by, GroupBy::Function | GroupBy::Program | GroupBy::Site) {
        if let Some(file) = &row.file {
            let name = file.rsplit('/').next().unwrap_or(file);
            label.push_str(&match row.line {
                Some(line) => format!("  {name}:{line}"),
                None => format!("  {name}"),
            });
        } else if let Some(module) = &row.module {
            label.push_str(&format!("  {module}"));
        }
    }
    if by == GroupBy::Site {
        label = format!("{}  {label}", row.id);
    }
    label
}

fn when(functions: &Functions) -> String {
    match functions.at_ns {
        Some(at) => format!("at {}{}", duration(at), whose(functions.peak_of)),
        None => format!("from {} to {}", duration(functions.from_ns), duration(functions.to_ns)),
    }
}

/// Which peak an instant is, to be put behind it.
pub const fn whose(peak: Option<PeakOf>) -> &'static str {
    match peak {
        None => "",
        Some(PeakOf::Heap) => ", the heap's peak",
        Some(PeakOf::Filter) => ", the peak of what passes the filter",
    }
}

/// The metric in a word or two.
pub const fn metric_name(metric: Metric) -> &'static str {
    match metric {
        Metric::Live => "live",
        Metric::Peak => "live at the peak",
        Metric::Leaked => "leaked",
        Metric::Allocated => "allocated",
        Metric::Freed => "freed",
        Metric::Grown => "grown",
        Metric::Temporary => "temporary",
    }
}

/// The unit in a word.
pub const fn unit_name(unit: Unit) -> &'static str {
    match unit {
        Unit::Bytes => "bytes",
        Unit::Count => "blocks",
    }
}

const fn column_name(by: GroupBy) -> &'static str {
    match by {
        GroupBy::Function => "function",
        GroupBy::Program => "function of the program",
        GroupBy::File => "file",
        GroupBy::Module => "module",
        GroupBy::Thread => "thread",
        GroupBy::Site => "site",
        GroupBy::SizeClass => "size class",
    }
}

const fn group_name(by: GroupBy, count: u64) -> &'static str {
    match (by, count) {
        (GroupBy::Function, 1) => "function",
        (GroupBy::Function, _) => "functions",
        (GroupBy::Program, 1) => "function of the program",
        (GroupBy::Program, _) => "functions of the program",
        (GroupBy::File, 1) => "file",
        (GroupBy::File, _) => "files",
        (GroupBy::Module, 1) => "module",
        (GroupBy::Module, _) => "modules",
        (GroupBy::Thread, 1) => "thread",
        (GroupBy::Thread, _) => "threads",
        (GroupBy::Site, 1) => "site",
        (GroupBy::Site, _) => "sites",
        (GroupBy::SizeClass, 1) => "size class",
        (GroupBy::SizeClass, _) => "size classes",
    }
}
