//! `heaptrace churn`: who allocates how often, and what reallocs move.

use std::io::{self, Write};

use anyhow::Result;
use tracehound_api::churn::{Churn, ChurnRow};
use tracehound_query::churn::{self, ChurnParams, ChurnSort};

use super::args::{Files, Filters, WindowArgs};
use super::table::{Align, TextCell, TextTable};
use super::terminal::{ColorChoice, Style, TextRole};
use super::units::{bytes, count, duration, percent, plural};
use super::{answer_each, misuse};

/// Show who allocates how often: allocations a second, the temporary ones, and what reallocs moved.
///
/// A row is a function of the program with all that it had allocated in the window, through whatever library. A block
/// that realloc resizes again and again is a chain; the one that moved most is shown.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heaptrace churn memory-app-1.dat
  heaptrace churn --sort moved memory-app-1.dat    which vectors are copied again and again?
  heaptrace churn --from 10s --to 20s memory-app-1.dat
  heaptrace churn --json memory-app-1.dat | jq '.rows[0]'")]
pub struct ChurnArgs {
    #[command(flatten)]
    files: Files,
    /// Most first by: allocations, bytes, temporary (allocations), moved (bytes that reallocs moved)
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = ChurnOrder::Allocations, hide_possible_values = true)]
    sort: ChurnOrder,
    /// Number of rows to show; 0 = all [default: 20; with --json all]
    #[arg(short = 'n', long, value_name = "N")]
    rows: Option<usize>,
    #[command(flatten)]
    window: WindowArgs,
    #[command(flatten)]
    filters: Filters,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ChurnOrder {
    Allocations,
    Bytes,
    Temporary,
    Moved,
}

/// Prints the tables.
pub fn run(args: &ChurnArgs, color: ColorChoice) -> Result<()> {
    let limit = args.files.row_limit(args.rows, 20);
    let sort = match args.sort {
        ChurnOrder::Allocations => ChurnSort::Allocations,
        ChurnOrder::Bytes => ChurnSort::Bytes,
        ChurnOrder::Temporary => ChurnSort::Temporary,
        ChurnOrder::Moved => ChurnSort::Moved,
    };
    let window = args.window.resolve()?;
    let params = ChurnParams { window, filter: args.filters.filter().map_err(misuse)?, sort: sort.into(), limit };
    answer_each(&args.files, color, &params, Some(&params.filter), params.window.times(), churn::run, print)
}

/// Writes the table.
fn print(churn: &Churn, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let sum = &churn.total;
    let head =
        format!("{} ({} a second)", plural(sum.allocations.count, "allocation"), rate(sum.allocations_per_second));
    writeln!(
        out,
        "{}, {} in {}; {} reallocs moved {}",
        style.paint(TextRole::Strong, head),
        bytes(sum.allocations.bytes),
        duration(churn.to_ns.saturating_sub(churn.from_ns)),
        count(sum.moved),
        bytes(sum.moved_bytes)
    )?;
    writeln!(out)?;
    let mut table = TextTable::new(&[
        ("a second", Align::Right),
        ("allocations", Align::Right),
        ("bytes", Align::Right),
        ("temporary", Align::Right),
        ("moved", Align::Right),
        ("who", Align::Left),
        ("longest chain of reallocs", Align::Left),
    ]);
    for row in &churn.rows {
        let sum = &row.sum;
        table.row(vec![
            rate(sum.allocations_per_second).into(),
            count(sum.allocations.count).into(),
            bytes(sum.allocations.bytes).into(),
            percent(sum.temporary.count.cast_signed(), sum.allocations.count.cast_signed()).into(),
            if sum.reallocs == 0 { String::new() } else { bytes(sum.moved_bytes) }.into(),
            TextCell::new(TextRole::Name, who(row)),
            TextCell::new(TextRole::Faint, chain(row)),
        ]);
    }
    table.print(style, out)?;
    let more = churn.total_rows - churn.rows.len() as u64;
    if more > 0 {
        writeln!(out, "… and {} more (-n 0 shows all)", count(more))?;
    }
    Ok(())
}

fn rate(per_second: f64) -> String {
    if per_second >= 99.5 { count(per_second.round() as u64) } else { format!("{per_second:.1}") }
}

fn who(row: &ChurnRow) -> String {
    match (&row.file, row.line) {
        (Some(file), Some(line)) => format!("{}  {}:{line}", row.function, file.rsplit('/').next().unwrap_or(file)),
        _ => row.function.clone(),
    }
}

/// `21 times, 96.0 MiB moved: 8 B → 4.00 MiB`.
fn chain(row: &ChurnRow) -> String {
    row.longest.as_ref().map_or_else(String::new, |chain| {
        let times = plural(chain.reallocs, "time");
        let sizes = format!("{} → {}", bytes(chain.first_bytes), bytes(chain.last_bytes));
        format!("{times}, {} moved: {sizes}", bytes(chain.moved_bytes))
    })
}
