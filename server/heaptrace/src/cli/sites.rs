//! `heaptrace sites`: every allocating backtrace with its sums, one a line.

use std::io::{self, Write};

use anyhow::Result;
use tracehound_api::sites::{SiteRow, Sites};
use tracehound_query::sites::{self, SiteSort, SitesParams};

use super::args::{Files, Filters, WindowArgs};
use super::table::{Align, TextCell, TextTable};
use super::terminal::{ColorChoice, Style, TextRole};
use super::units::{bytes, count, duration};
use super::{answer_each, misuse};

/// List the allocating backtraces with what they allocated, freed, leaked, and held at the peak.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heaptrace sites memory-app-1.dat
  heaptrace sites --sort peak -n 5 memory-app-1.dat
  heaptrace sites --from 10s --to 20s --search 'parse' memory-app-1.dat
  heaptrace sites --json memory-app-1.dat | jq '.sites[] | select(.leaked.bytes > 0)'")]
pub struct SitesArgs {
    #[command(flatten)]
    files: Files,
    /// Largest first by: allocated, freed, live, leaked, peak, temporary (bytes), count (blocks allocated)
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = SiteGrouping::Allocated, hide_possible_values = true)]
    sort: SiteGrouping,
    /// Only sites whose function, file or module matches
    #[arg(long, value_name = "RE")]
    search: Option<String>,
    /// Number of rows to show; 0 = all [default: 30; with --json all]
    #[arg(short = 'n', long, value_name = "N")]
    rows: Option<usize>,
    #[command(flatten)]
    window: WindowArgs,
    #[command(flatten)]
    filters: Filters,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum SiteGrouping {
    Allocated,
    Freed,
    Live,
    Leaked,
    Peak,
    Temporary,
    Count,
}

/// Prints the lists.
pub fn run(args: &SitesArgs, color: ColorChoice) -> Result<()> {
    let limit = args.files.row_limit(args.rows, 30);
    let sort = match args.sort {
        SiteGrouping::Allocated => SiteSort::Allocated,
        SiteGrouping::Freed => SiteSort::Freed,
        SiteGrouping::Live => SiteSort::Live,
        SiteGrouping::Leaked => SiteSort::Leaked,
        SiteGrouping::Peak => SiteSort::AtPeak,
        SiteGrouping::Temporary => SiteSort::Temporary,
        SiteGrouping::Count => SiteSort::Count,
    };
    let window = args.window.resolve()?;
    let filter = args.filters.filter().map_err(misuse)?;
    let params =
        SitesParams { window, filter, sort: sort.into(), search: args.search.clone(), limit, ..SitesParams::default() };
    answer_each(&args.files, color, &params, Some(&params.filter), params.window.times(), sites::run, print)
}

/// Writes the table.
pub fn print(sites: &Sites, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let head =
        format!("{} sites from {} to {}", count(sites.total_sites), duration(sites.from_ns), duration(sites.to_ns));
    writeln!(out, "{}", style.paint(TextRole::Strong, head))?;
    let mut table = TextTable::new(&[
        ("site", Align::Right),
        ("allocated", Align::Right),
        ("blocks", Align::Right),
        ("at peak", Align::Right),
        ("live", Align::Right),
        ("leaked", Align::Right),
        ("temporary", Align::Right),
        ("function", Align::Left),
    ]);
    for row in &sites.sites {
        let leaked = if row.leaked.bytes > 0 { TextRole::Bad } else { TextRole::Faint };
        table.row(vec![
            TextCell::new(TextRole::Faint, &row.id),
            bytes(row.allocated.bytes).into(),
            count(row.allocated.count).into(),
            bytes(row.at_peak.bytes).into(),
            bytes(row.live.bytes).into(),
            TextCell::new(leaked, bytes(row.leaked.bytes)),
            TextCell::new(TextRole::Faint, count(row.temporary.count)),
            TextCell::new(TextRole::Name, place(row)),
        ]);
    }
    table.print(style, out)?;
    let hidden = sites.total_sites.saturating_sub(sites.sites.len() as u64);
    if hidden > 0 {
        writeln!(out, "… and {} more (--rows 0 shows all)", count(hidden))?;
    }
    Ok(())
}

/// Function and place of a site's innermost frame.
pub fn place(row: &SiteRow) -> String {
    let function = row.function.clone().or_else(|| row.offset.clone()).unwrap_or_else(|| "?".into());
    match (&row.file, row.line, &row.module) {
        (Some(file), Some(line), _) => format!("{function}  {}:{line}", file.rsplit('/').next().unwrap_or(file)),
        (Some(file), None, _) => format!("{function}  {}", file.rsplit('/').next().unwrap_or(file)),
        (None, _, Some(module)) => format!("{function}  {module}"),
        (None, _, None) => function,
    }
}
