//! `heaptrace map`: the heap by address and time, as a picture of characters.

use std::io::{self, Write};

use anyhow::Result;
use tracehound_api::heap_map::{HeapMap, MapSite};
use tracehound_query::heap_map::{self, HeapMapParams, MAX_COLUMNS};

use super::args::{Files, Filters, WindowArgs};
use super::table::{Align, TextCell, TextTable};
use super::terminal::{ColorChoice, Style, TextRole};
use super::units::{bytes, count, duration};
use super::{answer_each, misuse};

/// Show the occupied addresses over time, with their sites, and which of them were in memory.
///
/// A line is a range of addresses, a column a moment. A letter is the site with most bytes there, upper case if half
/// of the addresses or more are live blocks; `.` is resident memory without a block, `?` a site without a letter.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heaptrace map memory-app-1.dat
  heaptrace map --address 0x7f2a40000000..0x7f2a44000000 memory-app-1.dat    look closer
  heaptrace sites --address 0x7f2a40000000..0x7f2a40010000 memory-app-1.dat  who is there?
  heaptrace map --json memory-app-1.dat | jq '.sites[0]'")]
pub struct MapArgs {
    #[command(flatten)]
    files: Files,
    /// Show so many ranges of addresses at most [default: 32; with --json 128]
    #[arg(short = 'n', long, value_name = "N")]
    rows: Option<usize>,
    /// Show so many moments [default: what fits into a line; with --json 200]
    #[arg(long, value_name = "N")]
    columns: Option<usize>,
    #[command(flatten)]
    window: WindowArgs,
    #[command(flatten)]
    filters: Filters,
}

/// Characters before the picture in a line.
const MARGIN: usize = 19;

/// Prints the maps.
pub fn run(args: &MapArgs, color: ColorChoice) -> Result<()> {
    let width = Style::of_stdout(color).width.unwrap_or(80).saturating_sub(MARGIN).clamp(20, MAX_COLUMNS);
    let (rows, columns) = if args.files.json { (128, 200) } else { (32, width) };
    let params = HeapMapParams {
        window: args.window.resolve()?,
        filter: args.filters.filter().map_err(misuse)?,
        rows: args.rows.unwrap_or(rows),
        columns: args.columns.unwrap_or(columns),
    };
    answer_each(&args.files, color, &params, Some(&params.filter), params.window.times(), heap_map::run, print)
}

/// Letters of sites, in their order.
const LETTERS: &str = "abcdefghijklmnopqrstuvwxyz";

/// Writes the picture, and below it what its letters mean.
fn print(map: &HeapMap, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let when = format!("from {} to {}", duration(map.from_ns), duration(map.to_ns));
    if map.addresses.is_empty() {
        return writeln!(out, "No block was live at any of {} moments {when}.", map.t_ns.len());
    }
    let head = format!("{} ranges of {} {when}", count(map.addresses.len() as u64), bytes(map.row_bytes));
    writeln!(out, "{}", style.paint(TextRole::Strong, head))?;
    if map.resident.is_empty() {
        writeln!(out, "the recording has no looks at pages: which memory was free but resident is not known")?;
    }
    let mut expected = map.addresses[0];
    for (row, &address) in map.addresses.iter().enumerate() {
        if address != expected {
            writeln!(out, "{}", style.paint(TextRole::Faint, "                 ⋮"))?;
        }
        expected = address.saturating_add(map.row_bytes);
        let cells: String = (0..map.t_ns.len()).map(|column| cell(map, row, column)).collect();
        let label = style.paint(TextRole::Faint, format!("{address:>#16x}")).to_string();
        writeln!(out, "{label} │{}", cells.trim_end())?;
    }
    writeln!(out)?;
    let mut table =
        TextTable::new(&[("", Align::Left), ("site", Align::Right), ("cells", Align::Right), ("who", Align::Left)]);
    for (letter, site) in LETTERS.chars().zip(&map.sites) {
        table.row(vec![
            TextCell::new(TextRole::Strong, letter.to_string()),
            TextCell::new(TextRole::Faint, &site.id),
            count(site.cells).into(),
            TextCell::new(TextRole::Name, who(site)),
        ]);
    }
    table.print(style, out)?;
    match map.total_sites.saturating_sub(LETTERS.len().min(map.sites.len()) as u64) {
        0 => Ok(()),
        more => writeln!(out, "… and {} more sites, shown as ?", count(more)),
    }
}

/// One cell as a character.
fn cell(map: &HeapMap, row: usize, column: usize) -> char {
    let occupied = map.occupied[row][column];
    if occupied == 0 {
        let resident = map.resident.get(row).and_then(|row| row.get(column)).is_some_and(|&bytes| bytes > 0);
        return if resident { '.' } else { ' ' };
    }
    let letter = map.dominant[row][column].and_then(|site| LETTERS.chars().nth(site as usize)).unwrap_or('?');
    if occupied.saturating_mul(2) >= map.row_bytes { letter.to_ascii_uppercase() } else { letter }
}

fn who(site: &MapSite) -> String {
    let function = site.function.as_deref().unwrap_or("?");
    let place = |file: &Option<String>, line: Option<u32>, module: &Option<String>| match (file, line, module) {
        (Some(file), Some(line), _) => format!("  {}:{line}", file.rsplit('/').next().unwrap_or(file)),
        (_, _, Some(module)) => format!("  {module}"),
        _ => String::new(),
    };
    let by = site.caller.as_ref().map_or_else(String::new, |caller| {
        let name = caller.function.as_deref().or(caller.offset.as_deref()).unwrap_or("?");
        format!(", by {name}{}", place(&caller.file, caller.line, &caller.module))
    });
    format!("{function}{}{by}", place(&site.file, site.line, &site.module))
}
