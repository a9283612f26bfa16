//! `heaptrace pins`: whose blocks hold pages that would be given back without them.

use std::io::{self, Write};

use anyhow::Result;
use tracehound_api::ledger::Basis;
use tracehound_api::pins::{PinGroup, PinRow, PinUnit, Pins};
use tracehound_query::pins::{self, PinsParams};

use super::args::{Files, PIN_UNITS, wire};
use super::table::{Align, TextCell, TextTable};
use super::terminal::{ColorChoice, Style, TextRole, clean};
use super::units::{bytes, count, duration, percent, plural};
use super::{answer_each, misuse};
use crate::query_params;

/// Show the code whose blocks hold pages in memory, and what would be given back if they were elsewhere.
///
/// A page can be given back only when no block is left in it. A few long-lived blocks can hold many pages: if they were
/// in a pool or an arena of their own, all these pages would be given back.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heaptrace pins memory-app-1.dat                  by function, at the end
  heaptrace pins --at 'cache dropped' memory-app-1.dat
  heaptrace pins --by age memory-app-1.dat         do old blocks hold the pages?
  heaptrace pins --unit slab memory-app-1.dat      what jemalloc, tcmalloc or mimalloc would give back
  heaptrace pins --json memory-app-1.dat | jq '.rows[0]'")]
pub struct PinsArgs {
    #[command(flatten)]
    files: Files,
    /// The instant: 1.5s, 200ms, start, peak, end, 50%, or a mark's label
    #[arg(long, value_name = "TIME", default_value = "end")]
    at: String,
    /// What a row is: function, site, age, thread
    #[arg(long, value_name = "WHAT", default_value = "function", hide_possible_values = true)]
    by: PinsBy,
    /// What is given back as a whole: 4k pages, 2M (huge pages), slab (what the allocator gives back)
    #[arg(long, value_name = "UNIT", default_value = "4k", value_parser = wire::<PinUnit>(PIN_UNITS), hide_possible_values = true)]
    unit: PinUnit,
    /// Number of rows to show; 0 = all [default: 15; with --json all]
    #[arg(short = 'n', long, value_name = "N")]
    rows: Option<usize>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum PinsBy {
    Function,
    Site,
    Age,
    Thread,
}

/// Prints the pins.
pub fn run(args: &PinsArgs, color: ColorChoice) -> Result<()> {
    let limit = args.files.row_limit(args.rows, 15);
    let by = match args.by {
        PinsBy::Function => PinGroup::Function,
        PinsBy::Site => PinGroup::Site,
        PinsBy::Age => PinGroup::Age,
        PinsBy::Thread => PinGroup::Thread,
    };
    let at = query_params::window(None, None, Some(&args.at)).map_err(misuse)?.at;
    let params =
        PinsParams { at, by, unit: args.unit, limit: limit.filter(|_| args.files.json), ..PinsParams::default() };
    let print = |pins: &Pins, style, out: &mut dyn Write| print(pins, limit.unwrap_or(usize::MAX), style, out);
    answer_each(&args.files, color, &params, None, &params.at, pins::run, print)
}

/// Writes the rows and the pairs.
pub fn print(pins: &Pins, most: usize, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let pages = &pins.pages;
    let what = match pins.unit {
        PinUnit::Huge => "huge pages",
        PinUnit::Slab if pins.unit_basis == Basis::Modelled => "pages of slabs",
        PinUnit::Page | PinUnit::Slab => "pages",
    };
    let head = format!("{} in {} {what} hold live blocks", bytes(pages.bytes), count(pages.count));
    if pages.count == 0 {
        writeln!(out, "no live block is in {what} at {}", duration(pins.at_ns))?;
    } else {
        let full = percent(pages.live_bytes.cast_signed(), pages.bytes.cast_signed());
        writeln!(out, "{}, {full} full, at {}", style.paint(TextRole::Strong, head), duration(pins.at_ns))?;
    }
    if pins.look_ns.is_none() {
        writeln!(out, "the recording has no looks at pages: all of them count as resident")?;
    } else if pins.basis == Basis::Modelled {
        writeln!(
            out,
            "blocks from before the recording, or from when it was off, are not known: pages may hold more than is said here"
        )?;
    }
    if !pins.unit_words.is_empty() {
        let basis = if pins.unit_basis == Basis::Modelled { "modelled: " } else { "" };
        writeln!(out, "{basis}{}", clean(&pins.unit_words))?;
    }
    if pins.outside.count > 0 {
        let outside = (bytes(pins.outside.bytes), count(pins.outside.count));
        writeln!(
            out,
            "left out: {} in {} pages of 4 KiB with live blocks (--unit 4k counts them)",
            outside.0, outside.1
        )?;
    }
    if pages.count == 0 {
        return Ok(());
    }
    writeln!(out)?;
    let mut table = TextTable::new(&[
        ("given back", Align::Right),
        ("own bytes", Align::Right),
        ("pages", Align::Right),
        ("allocated", Align::Right),
        ("who", Align::Left),
    ]);
    // What libraries do in between is in --json.
    let shown: Vec<&PinRow> = pins.rows.iter().filter(|row| !row.library).take(most).collect();
    for row in &shown {
        table.row(vec![
            bytes(row.given_back_bytes).into(),
            bytes(row.own_bytes).into(),
            count(row.pages).into(),
            TextCell::new(TextRole::Faint, format!("{} … {}", duration(row.born_first_ns), duration(row.born_last_ns))),
            TextCell::new(TextRole::Name, who(row)),
        ]);
    }
    table.print(style, out)?;
    let more = pins.rows.iter().filter(|row| !row.library).count() - shown.len();
    if more > 0 {
        writeln!(out, "… and {} more (-n 0 shows all)", count(more as u64))?;
    }
    for pair in pins.pairs.iter().filter(|pair| pair.given_back_bytes > 0).take(3) {
        writeln!(
            out,
            "together {}: {} share {}",
            bytes(pair.given_back_bytes),
            clean(&pair.functions.join(" and ")),
            plural(pair.shared_pages, if pins.unit == PinUnit::Huge { "huge page" } else { "page" })
        )?;
    }
    Ok(())
}

fn who(row: &PinRow) -> String {
    let place = match (&row.file, row.line) {
        (Some(file), Some(line)) => format!("  {}:{line}", file.rsplit('/').next().unwrap_or(file)),
        _ => String::new(),
    };
    let id = row.id.as_ref().map_or_else(String::new, |id| format!("{id} "));
    format!("{id}{}{place}", row.function)
}
