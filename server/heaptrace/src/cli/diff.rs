//! `heaptrace diff`: what changed between two recordings, or between two instants of one.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Result;
use tracehound_api::diff::Diff;
use tracehound_api::{Amount, Metric, Unit};
use tracehound_query::compare::{self, Comparison};
use tracehound_query::diff::{self, DiffParams, Side};
use tracehound_query::filter::Selection;
use tracehound_query::{TimeExpr, Window};

use super::args::{Filters, METRICS, UNITS, row_limit, wire};
use super::open::{self, OpenRecording};
use super::table::{Align, TextCell, TextTable};
use super::terminal::{self, ColorChoice, Style, TextRole};
use super::units::{signed_bytes, signed_count};
use super::{Misuse, interrupt, misuse, stack, top};
use crate::query_params;

/// Show what changed between two recordings, or between two instants of one, by backtrace.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heaptrace diff before.dat after.dat                     what lives at the ends
  heaptrace diff --metric peak before.dat after.dat       what lives at the peaks
  heaptrace diff --from 10s --to end memory-app-1.dat     what grew after 10 s
  heaptrace diff --before 10s..20s --after 70s..80s --metric allocated memory-app-1.dat
  heaptrace diff --normalize --metric allocated small-load.dat large-load.dat
  heaptrace diff old-1.dat old-2.dat old-3.dat --vs new-1.dat new-2.dat new-3.dat
  heaptrace diff --json before.dat after.dat | jq '.rows[0]'")]
pub struct DiffArgs {
    /// One recording, or two to compare; with --vs any number
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The recordings of the second side: differences that may be chance are folded away
    #[arg(long, num_args = 1.., value_name = "FILE", conflicts_with_all = ["from", "to", "before", "after", "normalize"])]
    vs: Vec<PathBuf>,
    /// A window of one recording to compare with --after; a label that contains `..` is put into double quotes
    #[arg(long, value_name = "FROM..TO", requires = "after", conflicts_with_all = ["from", "to"])]
    before: Option<String>,
    /// The other window
    #[arg(long, value_name = "FROM..TO", requires = "before")]
    after: Option<String>,
    /// Scale the first side so that both have the same total, as pprof's -normalize: what is left is a change of shares
    #[arg(long)]
    normalize: bool,
    /// The first instant, with one recording [default: start]
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// The second instant, with one recording [default: end]
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// What is compared: live, peak, leaked, allocated, freed, temporary
    #[arg(long, value_name = "METRIC", default_value = "live", value_parser = wire::<Metric>(METRICS), hide_possible_values = true)]
    metric: Metric,
    /// What the order is about: bytes, count
    #[arg(long, value_name = "UNIT", default_value = "bytes", value_parser = wire::<Unit>(UNITS), hide_possible_values = true)]
    unit: Unit,
    /// Number of rows to show, largest change first; 0 = all [default: 20; with --json all]
    #[arg(short = 'n', long, value_name = "N")]
    rows: Option<usize>,
    /// Print one JSON document, with a stable schema
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    filters: Filters,
}

/// Prints the comparison.
pub fn run(args: &DiffArgs, color: ColorChoice) -> Result<()> {
    let limit = row_limit(args.rows, args.json, 20);
    let (metric, unit) = (args.metric, args.unit);
    let params =
        DiffParams { metric, unit, filter: args.filters.filter().map_err(misuse)?, limit, ..DiffParams::default() };
    let params = DiffParams { normalize: args.normalize, ..params };
    if !args.vs.is_empty() {
        return run_many(args, &params, color);
    }
    if args.files.len() > 2 {
        return Err(Misuse("more than two recordings: put those of the second side behind --vs".into()).into());
    }
    let two = args.files.len() == 2;
    let windows = match (&args.before, &args.after) {
        (Some(_), Some(_)) if two => {
            return Err(Misuse("--before and --after are windows of one recording; two were given".into()).into());
        }
        (Some(before), Some(after)) => {
            let window = |name, text: &str| query_params::window_between(name, text).map_err(misuse);
            Some((window("before", before)?, window("after", after)?))
        }
        _ => None,
    };
    if two && (args.from.is_some() || args.to.is_some()) {
        return Err(Misuse("--from and --to are two instants of one recording; two were given".into()).into());
    }
    if !two && windows.is_none() && metric != Metric::Live {
        return Err(Misuse("--metric: two instants of one recording are compared by what is live".into()).into());
    }
    let instant = |name: &str, text: &Option<String>, default: TimeExpr| -> Result<Window> {
        let at = text.as_deref().map(|text| query_params::parse(name, text)).transpose().map_err(misuse)?;
        Ok(Window { at: Some(at.unwrap_or(default)), ..Window::default() })
    };
    let has_windows = windows.is_some();
    let (before, after) = if let Some(windows) = windows {
        windows
    } else if two {
        (Window::default(), Window::default())
    } else {
        (instant("from", &args.from, TimeExpr::Start)?, instant("to", &args.to, TimeExpr::End)?)
    };

    let first = open::open_telling_among(&args.files[0], &args.files)?;
    let second = args.files.get(1).map(|path| open::open_telling_among(path, &args.files)).transpose()?;
    let other = second.as_ref().unwrap_or(&first);
    first.tell_beyond(before.times());
    other.tell_beyond(after.times());
    [Some(&first), second.as_ref()]
        .into_iter()
        .flatten()
        .for_each(|opened| opened.tell_missing_modules(&params.filter));
    if has_windows {
        for (name, window) in [("before", &before), ("after", &after)] {
            // What is wrong with it is wrong with this option.
            let resolved = window.resolve(&first.trace, &Selection::all(), interrupt::flag());
            resolved.map_err(|error| misuse(error.of_parameter(name)))?;
        }
    }
    let labels = match &second {
        Some(second) => (first.path.clone(), second.path.clone()),
        None if has_windows => (args.before.clone().unwrap_or_default(), args.after.clone().unwrap_or_default()),
        None => (args.from.clone().unwrap_or("start".into()), args.to.clone().unwrap_or("end".into())),
    };
    let answer =
        diff::run(side(&first, &before, &labels.0), side(other, &after, &labels.1), &params, interrupt::flag())
            .map_err(misuse)?;
    let mut out = terminal::stdout();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &answer).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        print(&answer, metric, Style::of_stdout(color), &mut out)?;
    }
    out.flush()?;
    Ok(())
}

/// Several recordings a side.
fn run_many(args: &DiffArgs, params: &DiffParams, color: ColorChoice) -> Result<()> {
    let all = [args.files.as_slice(), args.vs.as_slice()].concat();
    let open_all =
        |files: &[PathBuf]| files.iter().map(|file| open::open_telling_among(file, &all)).collect::<Result<Vec<_>>>();
    let (before, after) = (open_all(&args.files)?, open_all(&args.vs)?);
    before.iter().chain(&after).for_each(|opened| opened.tell_missing_modules(&params.filter));
    let everything = Window::default();
    let sides = |opened: &[OpenRecording]| -> Vec<(usize, String)> {
        opened.iter().enumerate().map(|(i, opened)| (i, opened.path.clone())).collect()
    };
    let (old, new) = (sides(&before), sides(&after));
    let old: Vec<Side<'_>> = old.iter().map(|(i, label)| side(&before[*i], &everything, label)).collect();
    let new: Vec<Side<'_>> = new.iter().map(|(i, label)| side(&after[*i], &everything, label)).collect();
    let answer = compare::run(&old, &new, params, interrupt::flag()).map_err(misuse)?;
    let mut out = terminal::stdout();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &answer).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        print_many(&answer, params.metric, Style::of_stdout(color), &mut out)?;
    }
    out.flush()?;
    Ok(())
}

/// Writes the significant rows, and in one line the others.
pub fn print_many(answer: &Comparison, metric: Metric, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let text = |value: f64| match answer.unit {
        Unit::Bytes => signed_bytes(value.round() as i64),
        Unit::Count => signed_count(value.round() as i64),
    };
    let signed = |change: f64| format!("{}{}", if change > 0.0 { "+" } else { "" }, text(change));
    let role = |change: f64| if change > 0.0 { TextRole::Bad } else { TextRole::Good };
    let total = &answer.total;
    let change = total.after_mean - total.before_mean;
    writeln!(
        out,
        "{}: {} {} {}  {}  (means of {} and {} recordings, p {:.1e})",
        style.paint(TextRole::Strong, format!("{} {}", top::unit_name(answer.unit), top::metric_name(metric))),
        text(total.before_mean),
        style.paint(TextRole::Faint, "→"),
        text(total.after_mean),
        style.paint(role(change), signed(change)),
        answer.before.len(),
        answer.after.len(),
        total.p,
    )?;
    let mut table = TextTable::new(&[
        ("change", Align::Right),
        ("before", Align::Right),
        ("after", Align::Right),
        ("p", Align::Right),
        ("backtrace", Align::Left),
    ]);
    for row in &answer.rows {
        let change = row.change.after_mean - row.change.before_mean;
        table.row(vec![
            TextCell::new(role(change), signed(change)),
            text(row.change.before_mean).into(),
            text(row.change.after_mean).into(),
            TextCell::new(TextRole::Faint, format!("{:.1e}", row.change.p)),
            TextCell::new(TextRole::Name, stack::one_line(&row.stack, 4)),
        ]);
    }
    if answer.rows.is_empty() {
        writeln!(out, "{}", style.paint(TextRole::Good, "no backtrace differs by more than chance"))?;
    } else {
        table.print(style, out)?;
    }
    let noise = &answer.noise;
    let text = format!(
        "{} more backtraces differ by no more than chance, {} in all",
        noise.rows,
        signed(noise.after_mean - noise.before_mean)
    );
    writeln!(out, "{}", style.paint(TextRole::Faint, text))
}

fn side<'a>(opened: &'a OpenRecording, window: &'a Window, label: &'a str) -> Side<'a> {
    Side { trace: &opened.trace, symbols: &opened.symbols, window, label }
}

/// Writes the comparison: totals, then a row for each backtrace.
pub fn print(diff: &Diff, metric: Metric, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let of = |amount: &Amount, unit: Unit| match unit {
        Unit::Bytes => amount.bytes.cast_signed(),
        Unit::Count => amount.count.cast_signed(),
    };
    let text = |value: i64, unit: Unit| match unit {
        Unit::Bytes => signed_bytes(value),
        Unit::Count => signed_count(value),
    };
    let change = |before: &Amount, after: &Amount, unit: Unit| {
        let change = of(after, unit) - of(before, unit);
        let sign = if change > 0 { "+" } else { "" };
        (change, format!("{sign}{}", text(change, unit)))
    };
    let role = |change: i64| match change {
        0 => TextRole::Plain,
        1.. => TextRole::Bad,
        _ => TextRole::Good,
    };
    let unit = diff.unit;
    let (total, total_text) = change(&diff.total_before, &diff.total_after, unit);
    writeln!(
        out,
        "{}: {} {} {} {} {}  {}",
        style.paint(TextRole::Strong, format!("{} {}", top::unit_name(unit), top::metric_name(metric))),
        terminal::clean(&diff.before),
        style.paint(TextRole::Strong, text(of(&diff.total_before, unit), unit)),
        style.paint(TextRole::Faint, "→"),
        terminal::clean(&diff.after),
        style.paint(TextRole::Strong, text(of(&diff.total_after, unit), unit)),
        style.paint(role(total), total_text),
    )?;
    if let Some(factor) = diff.scaled_by {
        let text = format!("the first side was multiplied by {factor:.4} so that both have the same total");
        writeln!(out, "{}", style.paint(TextRole::Faint, text))?;
    }
    let other = if unit == Unit::Bytes { Unit::Count } else { Unit::Bytes };
    let mut table = TextTable::new(&[
        ("change", Align::Right),
        ("before", Align::Right),
        ("after", Align::Right),
        (if other == Unit::Count { "blocks" } else { "bytes" }, Align::Right),
        ("backtrace", Align::Left),
    ]);
    for row in &diff.rows {
        let (bytes, text_of_change) = change(&row.before, &row.after, unit);
        table.row(vec![
            TextCell::new(role(bytes), text_of_change),
            text(of(&row.before, unit), unit).into(),
            text(of(&row.after, unit), unit).into(),
            TextCell::new(TextRole::Faint, change(&row.before, &row.after, other).1),
            TextCell::new(TextRole::Name, stack::one_line(&row.stack, 4)),
        ]);
    }
    table.print(style, out)?;
    let hidden = diff.total_rows.saturating_sub(diff.rows.len() as u64);
    if hidden > 0 {
        writeln!(out, "… and {} more (--rows 0 shows all)", signed_count(hidden.cast_signed()))?;
    }
    Ok(())
}
