//! `heaptrace leaks`: what was never freed, and who allocated it.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use tracehound_server::api::Frame;
use tracehound_server::api::leaks::{LeakSite, Leaks, Shape, Verdict, VerdictKind};
use tracehound_server::query::suppress::{self, Origin, Suppression};
use tracehound_server::query::{Filter, leaks};

use super::args::{Files, Filters, Window};
use super::open::Opened;
use super::terminal::{ColorChoice, Role, Style, clean, truncate, width};
use super::units::{bytes, count, percent, signed_bytes};
use super::{Shortfall, for_each, interrupt, misuse, terminal};
use crate::{question, suppressions};

/// Show what was never freed, by the backtrace that allocated it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heaptrace leaks memory-app-1.dat
  heaptrace leaks --from 10s --focus parse memory-app-1.dat     born after 10 s, below parse
  heaptrace leaks --suppress '^_dl_' --sites 0 memory-app-1.dat  all sites but the loader's
  heaptrace leaks --json memory-app-1.dat | jq '.sites[0].stack[0]'

In a running program: what is live now.")]
pub struct LeaksArgs {
    #[command(flatten)]
    files: Files,
    /// Show so many sites, largest first; 0 = all [default: 10; with --json all]
    #[arg(short = 'n', long, value_name = "N")]
    sites: Option<usize>,
    /// Show stacks to their root
    #[arg(long)]
    full: bool,
    /// Add sites up apart that have a function, file or module that matches; may be repeated
    #[arg(long, value_name = "RE")]
    suppress: Vec<String>,
    #[command(flatten)]
    suppressions: SuppressionFiles,
    /// List what was suppressed, too
    #[arg(long)]
    show_suppressed: bool,
    /// Leave out what libc and ld.so keep by design
    #[arg(long)]
    builtin_suppressions: bool,
    #[command(flatten)]
    window: Window,
    #[command(flatten)]
    filters: Filters,
}

/// Suppressions in LeakSanitizer's format.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct SuppressionFiles {
    /// A file of suppressions in LeakSanitizer's format: one `leak:PATTERN` a line; may be repeated
    #[arg(long, value_name = "FILE")]
    suppressions: Vec<PathBuf>,
    /// Do not read the suppressions that the program itself brings along (__lsan_default_suppressions)
    #[arg(long)]
    no_program_suppressions: bool,
}

impl SuppressionFiles {
    /// Reads the files.
    pub fn read(&self) -> Result<Vec<Suppression>> {
        let mut all = Vec::new();
        for path in &self.suppressions {
            let name = path.display().to_string();
            let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
            let list = suppress::parse(&text, &Origin::File(name.clone()));
            all.extend(list.map_err(|why| anyhow::anyhow!("{name}, {why}"))?);
        }
        Ok(all)
    }

    /// The program's own; what cannot be read is said on standard error.
    pub fn of_program(&self, opened: &Opened) -> Vec<Suppression> {
        if self.no_program_suppressions {
            return Vec::new();
        }
        let (list, problems) = suppressions::of_program(&opened.trace);
        for problem in problems {
            eprintln!("heaptrace: {}", clean(&problem));
        }
        list
    }
}

/// Prints the reports.
pub fn run(args: &LeaksArgs, color: ColorChoice) -> Result<()> {
    let style = Style::of_stdout(color);
    let window = question::window(args.window.from().as_deref(), args.window.to().as_deref(), None).map_err(misuse)?;
    let filter = args.filters.filter().map_err(misuse)?;
    let mut suppress = Vec::new();
    for pattern in &args.suppress {
        suppress.push(Suppression::new(Filter::regex("suppress", pattern).map_err(misuse)?, Origin::Option));
    }
    suppress.extend(args.suppressions.read()?);
    if args.builtin_suppressions {
        suppress.extend(suppress::built_in());
    }
    let limit = match (args.sites, args.files.json) {
        (None, false) => Some(10),
        (None, true) | (Some(0), _) => None,
        (Some(sites), _) => Some(sites),
    };
    let params = leaks::Params { window, filter, suppress, show_suppressed: args.show_suppressed, limit };
    for_each(
        &args.files,
        Shortfall::Tell(style),
        &mut terminal::stdout(),
        |opened| {
            let mut params = params.clone();
            params.suppress.extend(args.suppressions.of_program(opened));
            leaks::run(&opened.trace, &opened.symbols, &params, interrupt::flag()).map_err(misuse)
        },
        |leaks, _, out| print(leaks, args.full, style, out),
    )
}

/// Names are aligned up to this width.
const NAME_COLUMN: usize = 48;

/// Writes the report; `all_frames` shows stacks to their root.
pub fn print(leaks: &Leaks, all_frames: bool, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let amount = &leaks.leaked;
    if amount.count == 0 && leaks.suppressed.count == 0 {
        writeln!(out, "{}", style.paint(Role::Good, "Nothing leaked: every block was freed."))?;
        return print_freed_at_exit(leaks, all_frames, style, out);
    }
    let head = format!(
        "{} leaked in {}, from {}",
        bytes(amount.bytes),
        plural(amount.count, "block"),
        plural(leaks.total_sites, "site")
    );
    writeln!(out, "{}", style.paint(Role::Strong, head))?;
    if leaks.suppressed.count > 0 {
        writeln!(
            out,
            "{} in {} suppressed",
            bytes(leaks.suppressed.bytes),
            plural(leaks.suppressed.count, "more block")
        )?;
        for used in &leaks.suppressions {
            let text = format!(
                "  {} in {} by {} ({})",
                bytes(used.bytes),
                plural(used.count, "block"),
                clean(&used.pattern),
                clean(&used.origin)
            );
            writeln!(out, "{}", style.paint(Role::Faint, text))?;
        }
    }
    for site in &leaks.sites {
        writeln!(out)?;
        print_site(site, amount.bytes, all_frames, style, out)?;
    }
    let shown: u64 = leaks.sites.iter().map(|site| site.bytes).sum();
    let hidden = leaks.total_sites.saturating_sub(leaks.sites.len() as u64);
    if hidden > 0 {
        let rest = amount.bytes.saturating_sub(shown);
        writeln!(out, "\n… and {} with {} (--sites 0 shows all)", plural(hidden, "more site"), bytes(rest))?;
    }
    for site in &leaks.suppressed_sites {
        let head = format!("{} in {}", bytes(site.bytes), plural(site.count, "block"));
        let rest = format!("({})  suppressed by {}", site.id, clean(&site.pattern));
        writeln!(out, "\n{head} {}", style.paint(Role::Faint, rest))?;
        print_stack(&site.stack, all_frames, style, out)?;
    }
    print_freed_at_exit(leaks, all_frames, style, out)
}

/// What grew and was tidied up at the end, which no count of what is left shows.
fn print_freed_at_exit(leaks: &Leaks, all_frames: bool, style: Style, out: &mut dyn Write) -> io::Result<()> {
    if leaks.freed_at_exit.is_empty() {
        return Ok(());
    }
    let total = leaks.freed_at_exit.iter().map(|site| site.bytes).sum();
    let head = format!(
        "Not leaked, but kept until the program ended, and growing: {} from {}",
        bytes(total),
        plural(leaks.freed_at_exit.len() as u64, "site")
    );
    writeln!(out, "\n{}", style.paint(Role::Strong, head))?;
    for site in &leaks.freed_at_exit {
        writeln!(out)?;
        print_site(site, total, all_frames, style, out)?;
    }
    Ok(())
}

fn print_site(site: &LeakSite, whole: u64, all_frames: bool, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let share = percent(site.bytes.cast_signed(), whole.cast_signed());
    let head = format!("{} in {}", bytes(site.bytes), plural(site.count, "block"));
    let (word, role) = verdict(&site.verdict);
    writeln!(
        out,
        "{} {}  {}{}",
        style.paint(Role::Strong, head),
        style.paint(Role::Faint, format!("({share}, {})", site.id)),
        style.paint(role, word),
        style.paint(Role::Faint, format!(": {}", clean(&site.verdict.why)))
    )?;
    print_stack(&site.stack, all_frames, style, out)
}

fn print_stack(stack: &[Frame], all_frames: bool, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let lines = if all_frames { (0..stack.len()).map(Line::Frame).collect() } else { fold(stack) };
    // Names are aligned as far as they are of reasonable length; places follow.
    let names: Vec<String> = stack.iter().map(name).collect();
    let shown = |line: &Line| match line {
        Line::Frame(i) => Some(width(&names[*i])),
        Line::Folded(_) => None,
    };
    let column = lines.iter().filter_map(shown).filter(|&width| width <= NAME_COLUMN).max().unwrap_or(0);
    let room = style.width.map_or(usize::MAX, |columns| columns.saturating_sub(6));
    for line in lines {
        let i = match line {
            Line::Frame(i) => i,
            Line::Folded(count) => {
                let text = format!("… {} of libraries (--full shows them)", plural(count as u64, "frame"));
                writeln!(out, "    {}", style.paint(Role::Faint, text))?;
                continue;
            }
        };
        let (frame, name) = (&stack[i], &names[i]);
        let name = truncate(name, room.max(20));
        let pad = " ".repeat(column.saturating_sub(width(&name)));
        let place = place(frame);
        let place = truncate(&place, room.saturating_sub(width(&name) + pad.len()).max(12));
        let role = if frame.is_library() { Role::Faint } else { Role::Name };
        if place.is_empty() {
            writeln!(out, "    {}", style.paint(role, name))?;
        } else {
            writeln!(out, "    {}{pad}  {}", style.paint(role, name), style.paint(Role::Faint, place))?;
        }
    }
    Ok(())
}

/// A line of a stack as people see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// The frame at this position.
    Frame(usize),
    /// So many frames that say nothing about the program.
    Folded(usize),
}

/// Leaves out the inside of libraries: of the frames below the program's code the one that it called, of the frames
/// above the one that called it, between two of its frames both. All frames if none is the program's.
fn fold(stack: &[Frame]) -> Vec<Line> {
    let mut lines = Vec::new();
    let own = |frame: &Frame| !frame.is_library();
    let Some(last_own) = stack.iter().rposition(own) else {
        return (0..stack.len()).map(Line::Frame).collect();
    };
    let mut i = 0;
    while i < stack.len() {
        let run = stack[i..].iter().take_while(|frame| frame.is_library()).count();
        if run == 0 {
            lines.push(Line::Frame(i));
            i += 1;
            continue;
        }
        let (head, tail) = match i {
            0 => (0, 1),
            _ if i > last_own => (1, 0),
            _ => (1, 1),
        };
        if run <= head + tail + 1 {
            lines.extend((i..i + run).map(Line::Frame));
        } else {
            lines.extend((i..i + head).map(Line::Frame));
            lines.push(Line::Folded(run - head - tail));
            lines.extend((i + run - tail..i + run).map(Line::Frame));
        }
        i += run;
    }
    lines
}

/// Function, or where the code is that has no name.
pub fn name(frame: &Frame) -> String {
    match (&frame.function, &frame.module) {
        (Some(function), _) => clean(function).into_owned(),
        (None, Some(module)) => format!("{} in {}", frame.address, clean(module)),
        (None, None) => frame.address.clone(),
    }
}

fn place(frame: &Frame) -> String {
    let mut place = match (&frame.file, frame.line) {
        (Some(file), Some(line)) => format!("{}:{line}", clean(short(file))),
        (Some(file), None) => clean(short(file)).into_owned(),
        _ => frame
            .module
            .as_deref()
            .filter(|_| frame.function.is_some())
            .map(|module| clean(module).into_owned())
            .unwrap_or_default(),
    };
    if frame.inlined {
        place.push_str(" (inlined)");
    }
    place
}

/// Without the hash of the compiler in front of the standard library's sources.
fn short(file: &str) -> &str {
    let rest = file.strip_prefix("/rustc/").and_then(|rest| rest.split_once('/'));
    rest.map_or(file, |(_, rest)| rest)
}

/// The judgement in a word or two, and how it looks.
pub fn verdict(verdict: &Verdict) -> (String, Role) {
    match verdict.kind {
        VerdictKind::Growing if verdict.shape == Shape::Stepwise => ("growing in steps".into(), Role::Bad),
        VerdictKind::Bounded if verdict.shape == Shape::Stepwise => ("stepwise".into(), Role::Plain),
        VerdictKind::Bounded if verdict.shape == Shape::Constant => ("constant".into(), Role::Good),
        VerdictKind::Growing => (format!("growing {}/s", signed_bytes(verdict.bytes_per_second as i64)), Role::Bad),
        VerdictKind::Bounded => ("bounded".into(), Role::Good),
        VerdictKind::OneTime => ("one-time".into(), Role::Plain),
        VerdictKind::Unclear => ("unclear".into(), Role::Hot),
    }
}

fn plural(n: u64, what: &str) -> String {
    format!("{} {what}{}", count(n), if n == 1 { "" } else { "s" })
}
