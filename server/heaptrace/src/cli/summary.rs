//! `heaptrace summary`: the answers to the first questions, on one screen.

use std::io::{self, Write};

use anyhow::Result;
use serde::Serialize;
use tracehound_api::Metric;
use tracehound_api::functions::{Functions, GroupBy};
use tracehound_api::info::Info;
use tracehound_api::leaks::Leaks;
use tracehound_api::replay::Replay;
use tracehound_query::{functions, leaks as leak_query, replays};

use super::args::Files;
use super::open::OpenRecording;
use super::terminal::{ColorChoice, Style, TextRole, clean, truncate};
use super::units::{bytes, count, duration, percent, plural};
use super::{FileName, Shortfall, for_each, interrupt, leaks, misuse, stack, terminal};

/// Show the peak and its holders, leaks and growth, and temporary allocations, on one screen.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heaptrace summary memory-app-1.dat
  heaptrace summary --json memory-app-1.dat | jq .growing")]
pub struct SummaryArgs {
    #[command(flatten)]
    files: Files,
}

/// `heaptrace.summary/1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    schema: &'static str,
    info: Info,
    /// Functions with most bytes live at the peak.
    at_peak: Functions,
    /// Functions with most temporary blocks.
    temporary: Functions,
    /// The largest leaks.
    leaks: Leaks,
    /// Of all leaking sites those that grow: how many, and their rate in bytes a second.
    growing: (u64, f64),
    /// What `heaptrace replay` found, if it was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    replay: Option<Replay>,
}

/// Rows of each part.
const ROWS: usize = 5;

/// Prints the summaries.
pub fn run(args: &SummaryArgs, color: ColorChoice) -> Result<()> {
    let style = Style::of_stdout(color);
    for_each(
        &args.files,
        FileName::InAnswer,
        Shortfall::Tell(style),
        &mut terminal::stdout(),
        ask,
        |summary, opened, out| print(summary, &opened.path, style, out),
    )
}

/// Asks.
pub fn ask(opened: &OpenRecording) -> Result<Summary> {
    let (trace, symbols, cancel) = (&opened.trace, &opened.symbols, interrupt::flag());
    let by = |metric, unit| {
        let params = functions::FunctionsParams {
            metric,
            unit,
            by: GroupBy::Program,
            limit: Some(ROWS),
            ..functions::FunctionsParams::default()
        };
        functions::run(trace, symbols, &params, cancel).map_err(misuse)
    };
    let params = leak_query::LeaksParams { limit: Some(ROWS), ..leak_query::LeaksParams::default() };
    let mut all = leak_query::run(trace, symbols, &params, cancel).map_err(misuse)?;
    let growing = leak_query::growing(trace, cancel).map_err(misuse)?;
    all.freed_at_exit.truncate(ROWS);
    Ok(Summary {
        schema: "heaptrace.summary/1",
        info: tracehound_audit::info(trace, symbols),
        at_peak: by(Metric::Peak, tracehound_api::Unit::Bytes)?,
        temporary: by(Metric::Temporary, tracehound_api::Unit::Count)?,
        leaks: all,
        growing,
        replay: replays::find(trace),
    })
}

/// Writes the screen.
pub fn print(summary: &Summary, path: &str, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let info = &summary.info;
    writeln!(
        out,
        "{}  {}",
        style.paint(TextRole::Strong, clean(path)),
        style.paint(TextRole::Faint, format!("{} recorded", duration(info.process.duration_ns)))
    )?;
    let peak = format!(
        "peak {} in {} at {}",
        bytes(info.peak.bytes),
        plural(info.peak.count, "block"),
        duration(info.peak.at_ns)
    );
    writeln!(out, "\n{}", style.paint(TextRole::Strong, peak))?;
    functions_of(&summary.at_peak, info.peak.bytes, &bytes, style, out)?;

    let leaked = &summary.leaks.leaked;
    let head = format!("leaked {} in {}", bytes(leaked.bytes), plural(leaked.count, "block"));
    writeln!(out, "\n{}", style.paint(TextRole::Strong, head))?;
    match summary.growing {
        (0, _) => {}
        (1, rate) => {
            writeln!(out, "  {}", style.paint(TextRole::Bad, format!("1 site grows, {}/s", bytes(rate as u64))))?
        }
        (n, rate) => {
            writeln!(
                out,
                "  {}",
                style.paint(TextRole::Bad, format!("{n} sites grow, {}/s in all", bytes(rate as u64)))
            )?;
        }
    }
    let ended = &summary.leaks.freed_at_exit;
    for site in summary.leaks.sites.iter().chain(ended) {
        let (word, role) = leaks::verdict(&site.verdict);
        let name = stack::one_line(&site.stack, 3);
        let late = if site.verdict.freed_at_exit { ", freed at exit" } else { "" };
        let room = style.width.map_or(usize::MAX, |columns| columns.saturating_sub(16 + word.len() + late.len()));
        let name = truncate(&name, room.max(20));
        writeln!(
            out,
            "  {:>10}  {}{late}  {}",
            bytes(site.bytes),
            style.paint(role, word),
            style.paint(TextRole::Name, &name)
        )?;
    }
    if let Some(head) = leaks::still_mapped(&summary.leaks) {
        writeln!(out, "\n{}", style.paint(TextRole::Strong, head))?;
        for site in summary.leaks.still_mapped.iter().take(ROWS) {
            let name = stack::one_line(&site.stack, 3);
            let room = style.width.map_or(usize::MAX, |columns| columns.saturating_sub(14));
            let name = truncate(&name, room.max(20));
            writeln!(out, "  {:>10}  {}", bytes(site.bytes), style.paint(TextRole::Name, &name))?;
        }
    }

    let temporary = &info.temporary;
    let share = percent(temporary.count.cast_signed(), info.allocations.count.cast_signed());
    let head = format!("temporary {} of {} blocks ({share})", count(temporary.count), count(info.allocations.count));
    writeln!(out, "\n{}", style.paint(TextRole::Strong, head))?;
    functions_of(&summary.temporary, temporary.count, &count, style, out)?;
    summary.replay.as_ref().map_or(Ok(()), |replay| print_replay(replay, style, out))
}

/// One line: what another allocator or setting would hold, by `heaptrace replay`.
fn print_replay(replay: &Replay, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let recorded = &replay.recorded;
    let error = replay.self_check.as_ref().map_or_else(
        || "not checked against the recording".to_owned(),
        |check| format!("off by {:.1}% for the recording itself", check.error.abs() * 100.0),
    );
    let words = match replays::smaller(replay) {
        None if !replays::is_checked(replay) => {
            "the self-check of heaptrace replay failed: there are figures, but no verdict".to_owned()
        }
        Some(row) => {
            let settings: Vec<String> = row.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let with = if settings.is_empty() { String::new() } else { format!(" with {}", settings.join(" ")) };
            format!(
                "{}{with} would hold {} at the peak instead of {} ({})",
                clean(&row.allocator),
                bytes(row.peak_bytes[1]),
                bytes(recorded.peak_bytes),
                clean(&recorded.allocator)
            )
        }
        None => format!(
            "none of {} would hold a tenth less than {} does",
            plural(replay.rows.len() as u64, "replayed allocator"),
            clean(&recorded.allocator)
        ),
    };
    writeln!(out, "\n{}  {}", style.paint(TextRole::Strong, words), style.paint(TextRole::Faint, error))
}

fn functions_of(
    functions: &Functions,
    whole: u64,
    amount: &dyn Fn(u64) -> String,
    style: Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    for row in functions.rows.iter().filter(|row| row.flat > 0) {
        let share = percent(row.flat, whole.cast_signed());
        let flat = amount(row.flat.cast_unsigned());
        writeln!(
            out,
            "  {flat:>10}  {share:>6}  {}  {}",
            style.paint(TextRole::Name, clean(&row.name)),
            style.paint(TextRole::Faint, clean(row.module.as_deref().unwrap_or_default()))
        )?;
    }
    Ok(())
}
