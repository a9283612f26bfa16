//! `heaptrace check`: whether a recording keeps its limits, with the evidence; for continuous integration.

mod baseline;
mod budget;
mod measure;
mod outputs;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tracehound_query::suppress;

use super::leaks::SuppressionFiles;
use super::output::OutputArgs;
use super::terminal::{self, ColorChoice, Style};
use super::{Misuse, Unread, open};
use baseline::Baseline;
use budget::{Budget, ByteSize, Percent};
use measure::{CheckReport, Subject};

/// Check recordings against limits, and show the backtraces that exceed them; exit code 1 if a limit is exceeded.
///
/// Leaks of libc and ld.so do not count, and neither do leaks that match suppressions.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heaptrace check --max-leaked 0 --max-peak 64MiB memory-app-1.dat
  heaptrace check --budget heap.toml --junit heap.xml --markdown heap.md memory-app-1.dat
  heaptrace check --baseline main.json --tolerance 5% memory-app-1.dat
  heaptrace check --max-leaked 1g --evidence main.json memory-app-1.dat     makes a baseline")]
pub struct CheckArgs {
    /// Recordings: finished, running, cut off or damaged
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Bytes that may be live at the end
    #[arg(long, value_name = "SIZE")]
    max_leaked: Option<ByteSize>,
    /// Bytes that may be live at any moment
    #[arg(long, value_name = "SIZE")]
    max_peak: Option<ByteSize>,
    /// Part of the allocations that may be temporary
    #[arg(long, value_name = "PERCENT")]
    max_temporary: Option<Percent>,
    /// Bytes that one block may have
    #[arg(long, value_name = "SIZE")]
    max_block: Option<ByteSize>,
    /// Blocks that may be allocated
    #[arg(long, value_name = "N")]
    max_allocations: Option<u64>,
    /// Resident memory that the process may have at any moment, without the recorder's
    #[arg(long, value_name = "SIZE")]
    max_rss: Option<ByteSize>,
    /// Limit of free bytes, at the end, in pages that also contain live blocks (see heaptrace pins)
    #[arg(long, value_name = "SIZE")]
    max_pinned: Option<ByteSize>,
    /// A file of limits: peak, leaked (in all, by function, by module), temporary, largest, allocations (in all, per mark)
    #[arg(long, value_name = "heap.toml")]
    budget: Option<PathBuf>,
    /// Baseline that must not be exceeded: a recording, or JSON of `check --evidence` or `info --json`
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Tolerance for values above the baseline
    #[arg(long, value_name = "PERCENT", default_value = "5%")]
    tolerance: Percent,
    /// Write a JUnit report
    #[arg(long, value_name = "OUT")]
    junit: Option<PathBuf>,
    /// Write a report for a pull request
    #[arg(long, value_name = "OUT")]
    markdown: Option<PathBuf>,
    /// Write everything that was measured, with the backtraces, as JSON
    #[arg(long, value_name = "OUT")]
    evidence: Option<PathBuf>,
    /// Print one JSON document, with a stable schema
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    suppressions: SuppressionFiles,
    /// Count what libc and ld.so keep by design, too
    #[arg(long)]
    no_builtin_suppressions: bool,
}

/// Checks, reports, and says by the exit code how it went.
pub fn run(args: &CheckArgs, color: ColorChoice) -> Result<ExitCode> {
    let given = suppressions(args)?;
    let baseline = args.baseline.as_deref().map(|path| Baseline::read(path, args, &given)).transpose()?;
    let limits = limits(args, baseline.as_ref())?;
    let mut reports = Vec::new();
    let mut unread = Unread::new(args.files.len());
    for file in &args.files {
        let Some(opened) = unread.unless(open::open_among(file, &args.files))? else { continue };
        let mut suppress = given.clone();
        suppress.extend(args.suppressions.of_program(&opened));
        let report = Subject::new(&opened, suppress, !args.no_builtin_suppressions)?.report(&limits)?;
        if let Some(baseline) = &baseline {
            baseline.tell_of_another(&report);
        }
        reports.push(report);
    }
    let passed = reports.iter().all(|report| report.passed);

    let write = |path: &Option<PathBuf>, text: &dyn Fn() -> String| -> Result<()> {
        let Some(path) = path else { return Ok(()) };
        let mut out = OutputArgs::create(path)?;
        out.write_all(text().as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
        out.finish()
    };
    write(&args.junit, &|| outputs::junit(&reports))?;
    write(&args.markdown, &|| outputs::markdown(&reports))?;
    write(&args.evidence, &|| format!("{:#}\n", document(&reports)))?;
    let mut out = terminal::stdout();
    if args.json {
        writeln!(out, "{:#}", document(&reports))?;
    } else {
        let style = Style::of_stdout(color);
        for report in &reports {
            outputs::print(report, style, &mut out)?;
        }
    }
    match out.flush() {
        // A closed pipe is no error: the exit code has the result.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        other => other?,
    }
    unread.into_result()?;
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// One report is itself, several are a list.
fn document(reports: &[CheckReport]) -> Value {
    match reports {
        [one] => json!(one),
        all => {
            let all: Vec<_> = all.iter().map(|report| json!({"file": report.file, "document": report})).collect();
            json!({"schema": "heaptrace.list/1", "recordings": all})
        }
    }
}

fn suppressions(args: &CheckArgs) -> Result<Vec<suppress::Suppression>> {
    // Nothing was checked then: that is no limit that is exceeded.
    let mut all = args.suppressions.read().map_err(|error| Misuse(format!("{error:#}")))?;
    if !args.no_builtin_suppressions {
        all.extend(suppress::built_in());
    }
    Ok(all)
}

/// Everything that limits: options, the budget file, the baseline.
fn limits(args: &CheckArgs, baseline: Option<&Baseline>) -> Result<Vec<(Budget, String)>> {
    let mut limits = Vec::new();
    let options = [
        ("--max-peak", Budget { peak: args.max_peak, ..Budget::default() }, args.max_peak.is_some()),
        ("--max-leaked", Budget { leaked: args.max_leaked, ..Budget::default() }, args.max_leaked.is_some()),
        (
            "--max-temporary",
            Budget { temporary: args.max_temporary, ..Budget::default() },
            args.max_temporary.is_some(),
        ),
        ("--max-block", Budget { largest: args.max_block, ..Budget::default() }, args.max_block.is_some()),
        ("--max-rss", Budget { rss: args.max_rss, ..Budget::default() }, args.max_rss.is_some()),
        ("--max-pinned", Budget { pinned: args.max_pinned, ..Budget::default() }, args.max_pinned.is_some()),
        (
            "--max-allocations",
            Budget { allocations: args.max_allocations, ..Budget::default() },
            args.max_allocations.is_some(),
        ),
    ];
    let given = options.iter().filter(|(.., given)| *given);
    limits.extend(given.map(|(name, budget, _)| (budget.clone(), (*name).to_owned())));
    if let Some(path) = &args.budget {
        limits.push((budget::read(path)?, path.display().to_string()));
    }
    if let Some(baseline) = baseline {
        limits.push((baseline.budget(args.tolerance), baseline.source()));
    }
    let empty = |budget: &Budget| {
        let figures = [budget.peak, budget.leaked, budget.leaked_in_all, budget.largest, budget.rss, budget.pinned];
        let figures = figures.iter().all(Option::is_none);
        let lists = budget.leaks.is_empty() && budget.modules.is_empty() && budget.marks.is_empty();
        figures && lists && budget.temporary.is_none() && budget.allocations.is_none()
    };
    if limits.iter().all(|(budget, _)| empty(budget)) {
        let names: Vec<&str> = options.iter().map(|(name, ..)| *name).collect();
        let why = format!("there is no limit to check: give {}, --budget or --baseline", names.join(", "));
        return Err(Misuse(why).into());
    }
    Ok(limits)
}
