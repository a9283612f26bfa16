//! `heaptrace memory`: why the process is as large as it is.

use std::io::{self, Write};

use anyhow::Result;
use tracehound_api::ledger::{Basis, LedgerRow, MemoryLedger};
use tracehound_api::memory::{Mapper, Memory};
use tracehound_query::memory::{self, MemoryParams};

use super::args::Files;
use super::stack::name;
use super::table::{Align, TextCell, TextTable};
use super::terminal::{self, ColorChoice, Style, TextRole, clean};
use super::units::{bytes, count, duration, percent};
use super::{FileName, Shortfall, for_each, interrupt, misuse};
use crate::query_params;

/// Show the parts of resident memory: live blocks, the rest of their pages, memory that the allocator keeps, files, the
/// recorder; and the backtraces that mapped memory.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heaptrace memory memory-app-1.dat                at the end
  heaptrace memory --at peak memory-app-1.dat
  heaptrace memory --json memory-app-1.dat | jq .rows")]
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
    let limit = args.files.row_limit(args.rows, 10);
    let at = query_params::window(None, None, Some(&args.at)).map_err(misuse)?.at;
    let params = MemoryParams { at, limit, ..MemoryParams::default() };
    let style = Style::of_stdout(color);
    for_each(
        &args.files,
        FileName::Tell(style),
        Shortfall::Tell(style),
        &mut terminal::stdout(),
        |opened| {
            opened.tell_beyond(&params.at);
            memory::run(&opened.trace, &opened.symbols, &params, interrupt::flag()).map_err(misuse)
        },
        |memory, opened, out| print(memory, memory::has_mappings(&opened.trace), style, out),
    )
}

/// Writes what resident memory is made of, how full the pages are, and who mapped address space, where mappings were
/// recorded.
pub fn print(memory: &Memory, has_mappings: bool, style: Style, out: &mut dyn Write) -> io::Result<()> {
    resident(memory, style, out)?;
    let pages = &memory.pages;
    if pages.bytes > 0 {
        let share = percent(pages.used_bytes.cast_signed(), pages.bytes.cast_signed());
        let emptiest = pages.by_tenths.first().copied().unwrap_or(0);
        let at = if is_of_another_instant(memory) { format!(" at {}", duration(memory.at_ns)) } else { String::new() };
        writeln!(
            out,
            "\n{} pages of {} hold live blocks{at}, {share} full; {} of them are a tenth full at most",
            count(pages.count),
            bytes(pages.page_bytes),
            count(emptiest)
        )?;
    }
    if memory.mapped_bytes > 0 {
        mapped(memory, style, out)?;
    } else if has_mappings {
        writeln!(out, "\nno mappings were recorded up to then")?;
    } else {
        writeln!(out, "\nmappings were not recorded (TRACEHOUND_MAPPINGS=0)")?;
    }
    Ok(())
}

fn resident(memory: &Memory, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let live = format!("{} in {} live blocks", bytes(memory.live.bytes), count(memory.live.count));
    let Some(ledger) = &memory.ledger else {
        writeln!(out, "{} at {}", style.paint(TextRole::Strong, live), duration(memory.at_ns))?;
        return writeln!(out, "resident memory was not sampled up to then");
    };
    let times = match ledger.live_bytes {
        0 => String::new(),
        live => format!(", {:.1} times the live blocks", ledger.rss_bytes as f64 / live as f64),
    };
    let head = format!("resident {}", bytes(ledger.rss_bytes));
    let at = duration(ledger.look_ns.unwrap_or(memory.at_ns));
    writeln!(out, "{} at {at}{times}", style.paint(TextRole::Strong, head))?;
    if is_of_another_instant(memory) {
        writeln!(
            out,
            "this is the look at the pages that is most like it; at {} there were {live}",
            duration(memory.at_ns)
        )?;
    }
    let share = |part: u64| percent(part.cast_signed(), ledger.rss_bytes.cast_signed());
    let mut table = TextTable::new(&[("bytes", Align::Right), ("of resident", Align::Right), ("what", Align::Left)]);
    for row in ledger.rows.iter().filter(|row| row.bytes > 0) {
        let about = match row.basis {
            Basis::Exact => "",
            Basis::Modelled => "~",
        };
        let details: Vec<String> = row.children.iter().take(3).map(child).collect();
        // One file, mapper or thread has a name that says more than the row's; the one heap has not.
        let is_named = row.children.len() > 1 || row.children.iter().any(|part| part.key != "heap");
        let details =
            if is_named && row.key != "recorder" { format!("  {}", details.join(", ")) } else { String::new() };
        table.row(vec![
            format!("{about}{}", bytes(row.bytes)).into(),
            TextCell::new(TextRole::Faint, share(row.bytes)),
            TextCell::new(TextRole::Plain, format!("{}{}", what(&row.key, ledger), clean(&details))),
        ]);
    }
    table.print(style, out)?;
    let beside: Vec<String> = ledger
        .beside
        .iter()
        .filter(|row| row.bytes > 0 && !row.key.starts_with("cgroup"))
        .map(|row| format!("{} {}", bytes(row.bytes), beside(&row.key)))
        .collect();
    if !beside.is_empty() {
        writeln!(out, "beside it: {}", beside.join(", "))?;
    }
    writeln!(out, "{}", style.paint(TextRole::Strong, clean(&ledger.why)))
}

fn child(row: &LedgerRow) -> String {
    format!("{} {}", row.name.as_deref().unwrap_or(&row.key), bytes(row.bytes))
}

/// Whether other blocks were live at the instant that was asked for than at the look that the rows are of.
fn is_of_another_instant(memory: &Memory) -> bool {
    let looked = memory.ledger.as_ref().and_then(|ledger| Some((ledger.look_ns?, ledger.live_count)));
    looked.is_some_and(|(look_ns, live)| look_ns != memory.at_ns && live != memory.live.count)
}

fn what(key: &str, ledger: &MemoryLedger) -> String {
    match key {
        "live" => format!("live blocks: {}", count(ledger.live_count)),
        "rounding" => format!("rounding and headers of live blocks, by the rules of {}", ledger.allocator),
        "holes" => "holes in pages with live blocks: fragmentation (heaptrace pins)".into(),
        "free_pages" if !ledger.knows_all_blocks => {
            "pages without a recorded block: free, or with blocks from before".into()
        }
        "free_top" if !ledger.knows_all_blocks => "the same, above the last recorded block of a heap".into(),
        "free_pages" => "pages without a live block that the allocator keeps".into(),
        "free_top" => "free above the last live block of a heap".into(),
        "allocator_metadata" => "the allocator's own".into(),
        "stacks" => "stacks".into(),
        "mappings" => "mapped by the program itself".into(),
        "runtime_heaps" => "the heap of a language's runtime".into(),
        "modules" => "code and data of modules".into(),
        "files" => "files and shared memory".into(),
        "recorder" => "the recorder".into(),
        "other" => "other memory without a file".into(),
        "unexplained" => "unexplained".into(),
        other => other.into(),
    }
}

fn beside(key: &str) -> &str {
    match key {
        "swapped" => "swapped out",
        "live_untouched" => "of live blocks never touched, or given back",
        "free_not_resident" => "free and not resident, which costs nothing",
        "huge_pages" => "of resident memory in huge pages",
        "lazy_free" => "resident until the kernel needs it (MADV_FREE)",
        "page_tables" => "of page tables",
        other => other,
    }
}

fn mapped(memory: &Memory, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let head = format!("mapped {}", bytes(memory.mapped_bytes));
    let peak = bytes(memory.mapped_peak_bytes);
    writeln!(out, "\n{} of address space, {peak} at most up to then", style.paint(TextRole::Strong, head))?;
    if memory.mappers.iter().all(|mapper| mapper.stack.is_empty()) {
        return Ok(());
    }
    let columns = [("mapped", Align::Right), ("pieces", Align::Right), ("by", Align::Left)];
    let mut table = TextTable::new(&columns);
    let names: Vec<String> = memory.mappers.iter().map(mapper_name).collect();
    for (mapper, name) in memory.mappers.iter().zip(&names) {
        let is_one_of_many = names.iter().filter(|other| *other == name).count() > 1;
        table.row(vec![
            bytes(mapper.mapped_bytes).into(),
            count(mapper.mappings).into(),
            TextCell::new(TextRole::Name, if is_one_of_many { with_callers(mapper, name) } else { name.clone() }),
        ]);
    }
    table.print(style, out)
}

/// A mapper's name and who called it, for those that have one name.
fn with_callers(mapper: &Mapper, own: &str) -> String {
    const CALLERS: usize = 3;
    let outer = mapper.stack.iter().map(name).skip_while(|frame| frame != own).skip(1);
    let callers: Vec<String> = outer.filter(|frame| frame != own).take(CALLERS).collect();
    callers.iter().fold(own.to_owned(), |all, caller| format!("{all} ← {caller}"))
}

/// The program's own frame if there is one, else the innermost.
fn mapper_name(mapper: &Mapper) -> String {
    let own = mapper.stack.iter().find(|frame| !frame.library).or(mapper.stack.first());
    own.map_or_else(|| "(before recording, without a backtrace, or others)".to_owned(), name)
}
