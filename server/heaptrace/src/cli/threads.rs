//! `heaptrace threads`: who allocates, and who frees whose.

use std::io::{self, Write};

use anyhow::Result;
use tracehound_api::threads::Threads;
use tracehound_query::threads::{self, ThreadsParams};

use super::args::{Files, Filters, WindowArgs};
use super::table::{Align, TextCell, TextTable};
use super::terminal::{ColorChoice, Style, TextRole};
use super::units::{bytes, count};
use super::{answer_each, misuse};

/// Show what each thread allocated and freed, and which threads free the blocks of others.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heaptrace threads memory-app-1.dat
  heaptrace threads --from 50% memory-app-1.dat
  heaptrace threads --json memory-app-1.dat | jq '.pairs'")]
pub struct ThreadsArgs {
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    window: WindowArgs,
    #[command(flatten)]
    filters: Filters,
}

/// Prints the tables.
pub fn run(args: &ThreadsArgs, color: ColorChoice) -> Result<()> {
    let window = args.window.resolve()?;
    let params = ThreadsParams { window, filter: args.filters.filter().map_err(misuse)? };
    answer_each(&args.files, color, &params, Some(&params.filter), params.window.times(), threads::run, print)
}

/// Writes the threads, and below them the pairs of different ones.
pub fn print(threads: &Threads, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let mut table = TextTable::new(&[
        ("id", Align::Right),
        ("allocated", Align::Right),
        ("blocks", Align::Right),
        ("freed", Align::Right),
        ("live", Align::Right),
        ("leaked", Align::Right),
        ("temporary", Align::Right),
        ("thread", Align::Left),
    ]);
    for thread in &threads.threads {
        table.row(vec![
            TextCell::new(TextRole::Faint, thread.id.to_string()),
            bytes(thread.allocated.bytes).into(),
            count(thread.allocated.count).into(),
            bytes(thread.freed.bytes).into(),
            bytes(thread.live.bytes).into(),
            bytes(thread.leaked.bytes).into(),
            TextCell::new(TextRole::Faint, count(thread.temporary.count)),
            TextCell::new(TextRole::Name, &thread.name),
        ]);
    }
    table.print(style, out)?;
    let mut others: Vec<_> = threads.pairs.iter().filter(|pair| pair.allocated_by != pair.freed_by).collect();
    if others.is_empty() {
        return Ok(());
    }
    others.sort_by_key(|pair| (std::cmp::Reverse(pair.amount.bytes), pair.allocated_by, pair.freed_by));
    let name = |id: u32| {
        let thread = threads.threads.iter().find(|thread| thread.id == id);
        thread.map_or_else(|| id.to_string(), |thread| format!("{id} {}", thread.name))
    };
    writeln!(out, "\n{}", style.paint(TextRole::Strong, "freed by another thread"))?;
    let mut table = TextTable::new(&[("bytes", Align::Right), ("blocks", Align::Right), ("from, to", Align::Left)]);
    for pair in others.iter().take(20) {
        table.row(vec![
            bytes(pair.amount.bytes).into(),
            count(pair.amount.count).into(),
            TextCell::new(TextRole::Name, format!("{} → {}", name(pair.allocated_by), name(pair.freed_by))),
        ]);
    }
    table.print(style, out)?;
    if others.len() > 20 {
        writeln!(out, "… and {} more pairs (--json has all)", count(others.len() as u64 - 20))?;
    }
    Ok(())
}
