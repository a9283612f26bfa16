//! `heaptrace memory`: why the process is as large as it is.

use std::io::{self, Write};

use anyhow::Result;
use tracehound_api::memory::{Mapper, MappingKind, Memory};
use tracehound_query::memory::{self, MemoryParams};

use super::args::Files;
use super::stack::name;
use super::table::{Align, TextCell, TextTable};
use super::terminal::{ColorChoice, Style, TextRole};
use super::units::{bytes, count, duration, percent};
use super::{Shortfall, for_each, interrupt, misuse, terminal};
use crate::query_params;

/// Show what resident memory is made of: live blocks, the rest of their pages, what the allocator keeps, files, and us;
/// and who mapped what.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heaptrace memory memory-app-1.dat                at the end
  heaptrace memory --at peak memory-app-1.dat
  heaptrace memory --json memory-app-1.dat | jq .resident")]
pub struct MemoryArgs {
    #[command(flatten)]
    files: Files,
    /// The instant: 1.5s, 200ms, start, peak, end, 50%, or a mark's label
    #[arg(long, value_name = "TIME", default_value = "end")]
    at: String,
    /// Show so many backtraces that mapped memory; 0 = all [default: 10; with --json all]
    #[arg(short = 'n', long, value_name = "N")]
    rows: Option<usize>,
}

/// Prints the figures.
pub fn run(args: &MemoryArgs, color: ColorChoice) -> Result<()> {
    let style = Style::of_stdout(color);
    let limit = match (args.rows, args.files.json) {
        (None, false) => Some(10),
        (None, true) | (Some(0), _) => None,
        (Some(rows), _) => Some(rows),
    };
    let at = query_params::window(None, None, Some(&args.at)).map_err(misuse)?.at;
    let params = MemoryParams { at, limit };
    for_each(
        &args.files,
        Shortfall::Tell(style),
        &mut terminal::stdout(),
        |opened| {
            opened.tell_beyond(&params.at);
            memory::run(&opened.trace, &opened.symbols, &params, interrupt::flag()).map_err(misuse)
        },
        |memory, _, out| print(memory, style, out),
    )
}

/// Writes what resident memory is made of, how full the pages are, and who mapped address space.
pub fn print(memory: &Memory, style: Style, out: &mut dyn Write) -> io::Result<()> {
    resident(memory, style, out)?;
    let pages = &memory.pages;
    if pages.bytes > 0 {
        let share = percent(pages.used_bytes.cast_signed(), pages.bytes.cast_signed());
        let emptiest = pages.by_tenths.first().copied().unwrap_or(0);
        writeln!(
            out,
            "\n{} pages of {} hold live blocks, {share} full; {} of them are a tenth full at most",
            count(pages.count),
            bytes(pages.page_bytes),
            count(emptiest)
        )?;
    }
    if memory.mapped_bytes > 0 {
        mapped(memory, style, out)?;
    } else {
        writeln!(out, "\nno mappings were recorded up to then")?;
    }
    Ok(())
}

fn resident(memory: &Memory, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let live = format!("{} in {} live blocks", bytes(memory.live.bytes), count(memory.live.count));
    let (Some(sample), Some(resident)) = (&memory.sample, &memory.resident) else {
        writeln!(out, "{} at {}", style.paint(TextRole::Strong, live), duration(memory.at_ns))?;
        return writeln!(out, "resident memory was not sampled up to then");
    };
    let times = match memory.live.bytes {
        0 => String::new(),
        live => format!(", {:.1} times the live blocks", sample.rss_bytes as f64 / live as f64),
    };
    let head = format!("resident {}", bytes(sample.rss_bytes));
    writeln!(out, "{} at {}{times}", style.paint(TextRole::Strong, head), duration(sample.t_ns))?;
    let share = |part: u64| percent(part.cast_signed(), sample.rss_bytes.cast_signed());
    let mut table = TextTable::new(&[("bytes", Align::Right), ("of resident", Align::Right), ("what", Align::Left)]);
    let mut row = |value: u64, what: &str| {
        table.row(vec![
            bytes(value).into(),
            TextCell::new(TextRole::Faint, share(value)),
            TextCell::new(TextRole::Plain, what),
        ]);
    };
    row(resident.live_bytes, &live);
    row(resident.page_rest_bytes, "the rest of their pages: fragmentation");
    if resident.untouched_bytes > 0 {
        row(resident.untouched_bytes, "less: of these pages not touched by the program, at least");
    }
    row(
        resident.other_anonymous_bytes,
        "without a file: kept by the allocator for later, stacks, data of modules, mapped by the program",
    );
    row(resident.files_bytes, "code, files and shared memory");
    row(resident.recorder_bytes, "the recorder, an estimate from above");
    table.print(style, out)
}

fn mapped(memory: &Memory, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let head = format!("mapped {}", bytes(memory.mapped_bytes));
    let peak = bytes(memory.mapped_peak_bytes);
    writeln!(out, "\n{} of address space, {peak} at most up to then", style.paint(TextRole::Strong, head))?;
    let columns = [("mapped", Align::Right), ("pieces", Align::Right), ("live blocks in it", Align::Right)];
    let mut table = TextTable::new(&[&columns[..], &[("what", Align::Left)]].concat());
    for kind in &memory.kinds {
        let what = match kind.kind {
            MappingKind::Break => "the program break",
            MappingKind::Anonymous => "memory without a file",
            MappingKind::Stack => "stacks of threads",
            MappingKind::File => "files",
            MappingKind::Existing => "there before recording began",
        };
        table.row(vec![
            bytes(kind.mapped_bytes).into(),
            count(kind.mappings).into(),
            bytes(kind.used_bytes).into(),
            what.to_owned().into(),
        ]);
    }
    table.print(style, out)?;
    writeln!(out)?;
    let mut table = TextTable::new(&[&columns[..], &[("by", Align::Left)]].concat());
    for mapper in &memory.mappers {
        table.row(vec![
            bytes(mapper.mapped_bytes).into(),
            count(mapper.mappings).into(),
            bytes(mapper.used_bytes).into(),
            TextCell::new(TextRole::Name, mapper_name(mapper)),
        ]);
    }
    table.print(style, out)
}

/// The program's own frame if there is one, else the innermost.
fn mapper_name(mapper: &Mapper) -> String {
    let own = mapper.stack.iter().find(|frame| !frame.library).or(mapper.stack.first());
    own.map_or_else(|| "(before recording, without a backtrace, or others)".to_owned(), name)
}
