//! `heaptrace leaks`: what was never freed, and who allocated it.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use regex::Regex;
use tracehound_server::api::Frame;
use tracehound_server::api::leaks::{LeakSite, Leaks, Verdict, VerdictKind};
use tracehound_server::query::{Filter, leaks};

use super::args::{Files, Filters, Window};
use super::terminal::{ColorChoice, Role, Style, clean, truncate, width};
use super::units::{bytes, count, percent, signed_bytes};
use super::{for_each, interrupt, misuse, terminal};
use crate::question;

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
    /// A file of suppressions in LeakSanitizer's format: one `leak:PATTERN` a line
    #[arg(long, value_name = "FILE")]
    suppressions: Option<PathBuf>,
    #[command(flatten)]
    window: Window,
    #[command(flatten)]
    filters: Filters,
}

/// Prints the reports.
pub fn run(args: &LeaksArgs, color: ColorChoice) -> Result<()> {
    let style = Style::of_stdout(color);
    let window = question::window(args.window.from().as_deref(), args.window.to().as_deref(), None).map_err(misuse)?;
    let filter = args.filters.filter().map_err(misuse)?;
    let mut suppress = Vec::new();
    for pattern in &args.suppress {
        suppress.push(Filter::regex("suppress", pattern).map_err(misuse)?);
    }
    if let Some(path) = &args.suppressions {
        suppress.extend(suppressions(path)?);
    }
    let limit = match (args.sites, args.files.json) {
        (None, false) => Some(10),
        (None, true) | (Some(0), _) => None,
        (Some(sites), _) => Some(sites),
    };
    let params = leaks::Params { window, filter, suppress, limit };
    for_each(
        &args.files,
        &mut terminal::stdout(),
        |opened| leaks::run(&opened.trace, &opened.symbols, &params, interrupt::flag()).map_err(misuse),
        |leaks, _, out| print(leaks, args.full, style, out),
    )
}

/// Reads `leak:PATTERN` lines; `*` stands for anything, `^` and `$` for the ends, everything else for itself.
fn suppressions(path: &std::path::Path) -> Result<Vec<Regex>> {
    let name = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    let mut patterns = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some(pattern) = line.strip_prefix("leak:") else {
            anyhow::bail!("{name}, line {number}: {line:?} is no suppression; write `leak:PATTERN`");
        };
        let (start, rest) = pattern.strip_prefix('^').map_or(("", pattern), |rest| ("^", rest));
        let (end, rest) = rest.strip_suffix('$').map_or(("", rest), |rest| ("$", rest));
        let middle: Vec<_> = rest.split('*').map(regex::escape).collect();
        let regex = Regex::new(&format!("{start}{}{end}", middle.join(".*")));
        patterns.push(regex.with_context(|| format!("{name}, line {number}"))?);
    }
    Ok(patterns)
}

/// Names are aligned up to this width.
const NAME_COLUMN: usize = 48;

/// Writes the report; `all_frames` shows stacks to their root.
pub fn print(leaks: &Leaks, all_frames: bool, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let amount = &leaks.leaked;
    if amount.count == 0 && leaks.suppressed.count == 0 {
        return writeln!(out, "{}", style.paint(Role::Good, "Nothing leaked: every block was freed."));
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
    let lines = if all_frames { (0..site.stack.len()).map(Line::Frame).collect() } else { fold(&site.stack) };
    // Names are aligned as far as they are of reasonable length; places follow.
    let names: Vec<String> = site.stack.iter().map(name).collect();
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
        let (frame, name) = (&site.stack[i], &names[i]);
        let name = truncate(name, room.max(20));
        let pad = " ".repeat(column.saturating_sub(width(&name)));
        let place = place(frame);
        let place = truncate(&place, room.saturating_sub(width(&name) + pad.len()).max(12));
        let role = if is_library(frame) { Role::Faint } else { Role::Name };
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
    let own = |frame: &Frame| !is_library(frame);
    let Some(last_own) = stack.iter().rposition(own) else {
        return (0..stack.len()).map(Line::Frame).collect();
    };
    let mut i = 0;
    while i < stack.len() {
        let run = stack[i..].iter().take_while(|frame| is_library(frame)).count();
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

/// Code that came with the compiler or the C library, by where its source was.
pub fn is_library(frame: &Frame) -> bool {
    const SOURCES: [&str; 5] = ["/rustc/", "/usr/include/", "/usr/lib/", "./csu/", "../sysdeps/"];
    const MODULES: [&str; 5] = ["libc.so", "ld-linux", "libstdc++.so", "libgcc_s.so", "libpthread.so"];
    match (&frame.file, &frame.module) {
        (Some(file), _) if SOURCES.iter().any(|source| file.starts_with(source)) => true,
        (_, Some(module)) => MODULES.iter().any(|library| module.starts_with(library)),
        (_, None) => false,
    }
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

fn verdict(verdict: &Verdict) -> (String, Role) {
    match verdict.kind {
        VerdictKind::Growing => (format!("growing {}/s", signed_bytes(verdict.bytes_per_second as i64)), Role::Bad),
        VerdictKind::Bounded => ("bounded".into(), Role::Good),
        VerdictKind::OneTime => ("one-time".into(), Role::Plain),
        VerdictKind::Unclear => ("unclear".into(), Role::Hot),
    }
}

fn plural(n: u64, what: &str) -> String {
    format!("{} {what}{}", count(n), if n == 1 { "" } else { "s" })
}
