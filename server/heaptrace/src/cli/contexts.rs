//! `heaptrace contexts`: which request has the memory.

use std::io::{self, Write};

use anyhow::Result;
use tracehound_api::contexts::Contexts;
use tracehound_index::symbols::RecordingSymbols;
use tracehound_index::{Cancel, Trace};
use tracehound_query::contexts;

use super::answer_each;
use super::args::Files;
use super::table::{Align, TextCell, TextTable};
use super::terminal::{ColorChoice, Style, TextRole};
use super::units::{bytes, count};

/// Rows of the table; the JSON has all.
const MOST_ROWS: usize = 50;

/// Show what each request context of the program allocated, and how much of it is still live.
#[derive(Debug, clap::Args)]
#[command(after_help = "A program sets the request that it works on by tracehound_context_set(id), see tracehound.h.

Examples:
  heaptrace contexts memory-app-1.dat
  heaptrace leaks --context 'GET /items' memory-app-1.dat
  heaptrace contexts --json memory-app-1.dat | jq '.contexts[] | select(.freed_elsewhere.count > 0)'")]
pub struct ContextsArgs {
    #[command(flatten)]
    files: Files,
}

/// Prints the table.
pub fn run(args: &ContextsArgs, color: ColorChoice) -> Result<()> {
    let ask = |trace: &Trace, _: &dyn RecordingSymbols, (): &(), cancel: &Cancel| contexts::run(trace, cancel);
    answer_each(&args.files, color, &(), None, None, ask, print)
}

fn print(contexts: &Contexts, style: Style, out: &mut dyn Write) -> io::Result<()> {
    if contexts.contexts.is_empty() {
        return writeln!(out, "The program named no request contexts (tracehound_context_set).");
    }
    let mut table = TextTable::new(&[
        ("live", Align::Right),
        ("blocks", Align::Right),
        ("peak", Align::Right),
        ("allocated", Align::Right),
        ("blocks", Align::Right),
        ("freed elsewhere", Align::Right),
        ("context", Align::Left),
    ]);
    for context in contexts.contexts.iter().take(MOST_ROWS) {
        let name =
            context.name.as_ref().map_or_else(|| context.id.to_string(), |name| format!("{} {name}", context.id));
        table.row(vec![
            bytes(context.live.bytes).into(),
            count(context.live.count).into(),
            bytes(context.peak_bytes).into(),
            bytes(context.allocations.bytes).into(),
            count(context.allocations.count).into(),
            TextCell::new(TextRole::Faint, bytes(context.freed_elsewhere.bytes)),
            TextCell::new(TextRole::Name, name),
        ]);
    }
    table.print(style, out)?;
    match contexts.contexts.len().saturating_sub(MOST_ROWS) {
        0 => Ok(()),
        more => writeln!(out, "… and {} more (--json has all)", count(more as u64)),
    }
}
