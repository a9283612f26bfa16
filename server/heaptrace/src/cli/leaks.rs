//! `heaptrace leaks`: what was never freed, and who allocated it.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use tracehound_api::leaks::{LeakSite, Leaks, MappedSite, Shape, Verdict, VerdictKind};
use tracehound_query::suppress::{self, Suppression, SuppressionOrigin};
use tracehound_query::{Filter, Window, leaks};

use super::args::{Files, Filters, WindowArgs};
use super::open::OpenRecording;
use super::terminal::{ColorChoice, Style, TextRole, clean, width};
use super::units::{bytes, duration, percent, plural, signed_bytes};
use super::{FileName, Shortfall, for_each, interrupt, misuse, stack, terminal};
use tracehound_audit::suppressions;

/// Show what was never freed, by the backtrace that allocated it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heaptrace leaks memory-app-1.dat
  heaptrace leaks --from 10s --focus parse memory-app-1.dat     allocated after 10 s, below parse
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
    /// Show a separate sum of the sites that have a matching function, file or module; may be repeated
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
    window: WindowArgs,
    #[command(flatten)]
    filters: Filters,
}

/// Suppressions in LeakSanitizer's format.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct SuppressionFiles {
    /// A file of suppressions in LeakSanitizer's format: one `leak:PATTERN` a line; may be repeated
    #[arg(long, value_name = "FILE")]
    suppressions: Vec<PathBuf>,
    /// Ignore the suppressions of the program itself (__lsan_default_suppressions)
    #[arg(long)]
    no_program_suppressions: bool,
}

impl SuppressionFiles {
    /// Reads the files.
    pub fn read(&self) -> Result<Vec<Suppression>> {
        read_suppressions(&self.suppressions)
    }

    /// The program's own; what cannot be read is said on standard error.
    pub fn of_program(&self, opened: &OpenRecording) -> Vec<Suppression> {
        if self.no_program_suppressions {
            return Vec::new();
        }
        let (list, problems) = suppressions::of_program(&opened.trace);
        for problem in problems {
            crate::tell!("heaptrace: {}", clean(&problem));
        }
        list
    }
}

/// Reads files of suppressions in LeakSanitizer's format.
pub fn read_suppressions(paths: &[PathBuf]) -> Result<Vec<Suppression>> {
    let mut all = Vec::new();
    for path in paths {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        let list = suppress::parse(&text, &SuppressionOrigin::File(name.clone()));
        all.extend(list.map_err(|why| anyhow::anyhow!("{name}, {why}"))?);
    }
    Ok(all)
}

/// Prints the reports.
pub fn run(args: &LeaksArgs, color: ColorChoice) -> Result<()> {
    let style = Style::of_stdout(color);
    let window = args.window.resolve()?;
    let filter = args.filters.filter().map_err(misuse)?;
    let mut suppress = Vec::new();
    for pattern in &args.suppress {
        suppress.push(Suppression::new(Filter::regex("suppress", pattern).map_err(misuse)?, SuppressionOrigin::Option));
    }
    suppress.extend(args.suppressions.read()?);
    if args.builtin_suppressions {
        suppress.extend(suppress::built_in());
    }
    let limit = args.files.row_limit(args.sites, 10);
    let is_whole = filter.is_empty() && window == Window::default();
    let params =
        leaks::LeaksParams { window, filter, suppress, show_suppressed: args.show_suppressed, limit, functions: 0 };
    for_each(
        &args.files,
        FileName::Tell(style),
        Shortfall::Tell(style),
        &mut terminal::stdout(),
        |opened| {
            let mut params = params.clone();
            params.suppress.extend(args.suppressions.of_program(opened));
            opened.tell_beyond(params.window.times());
            opened.tell_missing_modules(&params.filter);
            leaks::run(&opened.trace, &opened.symbols, &params, interrupt::flag()).map_err(misuse)
        },
        |leaks, opened, out| {
            if !is_whole && leaks.leaked.count == 0 && leaks.suppressed.count == 0 {
                return writeln!(
                    out,
                    "No leaked block matches; without filters and times `heaptrace leaks` lists all."
                );
            }
            print(leaks, opened.ended_early(), args.full, style, out)
        },
    )
}

/// Writes the report. `ended_early`: the program went on without the recorder; `all_frames` shows stacks to their root.
pub fn print(leaks: &Leaks, ended_early: bool, all_frames: bool, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let amount = &leaks.leaked;
    if amount.count == 0 && leaks.suppressed.count == 0 {
        let words = match leaks.exactness.events {
            0 => "Nothing leaked: there are no events.",
            _ if !leaks.exactness.complete => "Nothing leaked: every block that is known was freed.",
            _ if ended_early => {
                "Nothing leaked up to the end of the recording, which was before the end of the program: every block was freed."
            }
            _ => "Nothing leaked: every block was freed.",
        };
        writeln!(out, "{}", style.paint(TextRole::Good, words))?;
        print_freed_at_exit(leaks, all_frames, style, out)?;
        return print_still_mapped(leaks, all_frames, style, out);
    }
    let head = format!(
        "{} leaked in {}, from {}",
        bytes(amount.bytes),
        plural(amount.count, "block"),
        plural(leaks.total_sites, "site")
    );
    writeln!(out, "{}", style.paint(TextRole::Strong, head))?;
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
            writeln!(out, "{}", style.paint(TextRole::Faint, text))?;
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
        writeln!(out, "\n{head} {}", style.paint(TextRole::Faint, rest))?;
        stack::print(&site.stack, all_frames, style, out)?;
    }
    print_freed_at_exit(leaks, all_frames, style, out)?;
    print_still_mapped(leaks, all_frames, style, out)
}

/// Writes sites that grew and were freed at the end: no count of leaked blocks has them.
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
    writeln!(out, "\n{}", style.paint(TextRole::Strong, head))?;
    for site in &leaks.freed_at_exit {
        writeln!(out)?;
        print_site(site, total, all_frames, style, out)?;
    }
    Ok(())
}

/// Writes mappings that were never given back: no count of leaked blocks has them.
fn print_still_mapped(leaks: &Leaks, all_frames: bool, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let Some(head) = still_mapped(leaks) else { return Ok(()) };
    writeln!(
        out,
        "\n{}",
        style.paint(TextRole::Strong, format!("{head} (`heaptrace memory` shows what is resident)"))
    )?;
    for site in &leaks.still_mapped {
        let head = format!("{} in {}", bytes(site.bytes), plural(site.count, "mapping"));
        let times = format!("(the first at {}, the last at {})", duration(site.first_ns), duration(site.last_ns));
        writeln!(out, "\n{} {}", style.paint(TextRole::Strong, head), style.paint(TextRole::Faint, times))?;
        stack::print(&site.stack, all_frames, style, out)?;
    }
    Ok(())
}

/// What was mapped piece by piece and never unmapped, in one line; `None` where nothing was.
pub fn still_mapped(leaks: &Leaks) -> Option<String> {
    let sum = |of: fn(&MappedSite) -> u64| leaks.still_mapped.iter().map(of).sum();
    let (total, count) = (sum(|site| site.bytes), sum(|site| site.count));
    (count > 0)
        .then(|| format!("Beside the blocks, {} in {} were never unmapped", bytes(total), plural(count, "mapping")))
}

fn print_site(site: &LeakSite, whole: u64, all_frames: bool, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let share = percent(site.bytes.cast_signed(), whole.cast_signed());
    let head = format!("{} in {}", bytes(site.bytes), plural(site.count, "block"));
    let (word, role) = verdict(&site.verdict);
    let (aside, why) = (format!("({share}, {})", site.id), clean(&site.verdict.why));
    let line = width(&head) + width(&aside) + width(&word) + width(&why) + 5;
    write!(
        out,
        "{} {}  {}",
        style.paint(TextRole::Strong, head),
        style.paint(TextRole::Faint, aside),
        style.paint(role, word)
    )?;
    // The reason is on lines of its own where it does not fit.
    match style.width.filter(|&columns| line > columns) {
        None => writeln!(out, "{}", style.paint(TextRole::Faint, format!(": {why}")))?,
        Some(columns) => {
            writeln!(out, ":")?;
            for part in textwrap::wrap(&why, columns.saturating_sub(2).max(20)) {
                writeln!(out, "  {}", style.paint(TextRole::Faint, part))?;
            }
        }
    }
    stack::print(&site.stack, all_frames, style, out)
}

/// The verdict in a word or two, and its style.
pub fn verdict(verdict: &Verdict) -> (String, TextRole) {
    match verdict.kind {
        VerdictKind::Growing if verdict.shape == Shape::Stepwise => ("growing in steps".into(), TextRole::Bad),
        VerdictKind::Bounded if verdict.shape == Shape::Stepwise => ("stepwise".into(), TextRole::Plain),
        VerdictKind::Bounded if verdict.shape == Shape::Constant => ("constant".into(), TextRole::Good),
        VerdictKind::Growing => (format!("growing {}/s", signed_bytes(verdict.bytes_per_second as i64)), TextRole::Bad),
        VerdictKind::Bounded => ("bounded".into(), TextRole::Good),
        VerdictKind::OneTime => ("one-time".into(), TextRole::Plain),
        VerdictKind::Unclear => ("unclear".into(), TextRole::Hot),
    }
}
