//! Measures what recording costs: each workload runs plain, traced, and under other recorders where they are
//! installed, in interleaved rounds; CPU time of the whole process tree counts, so our writer thread and heaptrack's
//! compressor do too. Goals stand beside the results, nothing is asserted: a machine that is shared has bad minutes.

mod account;
mod instructions;
mod process;
mod redis;
mod report;
mod starts;
mod statistics;
mod tool;
mod workload;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Parser;

use crate::report::{Outcome, Report};
use crate::tool::Tool;
use crate::workload::Workload;

/// What recording costs: ratios, nanoseconds and bytes, against no recorder and against others.
#[derive(Debug, Parser)]
struct Arguments {
    /// Small workloads and few rounds: about two minutes.
    #[arg(long)]
    quick: bool,
    /// One JSON document instead of tables.
    #[arg(long)]
    json: bool,
    /// Rounds of plain and traced runs; others take part in fewer.
    #[arg(long)]
    rounds: Option<usize>,
    /// Only workloads whose name contains one of these, separated by commas.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Leave instruction counts (valgrind) out.
    #[arg(long)]
    no_instructions: bool,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let places = Places::find()?;
    let (tools, missing) = Tool::installed(&places);
    let rounds = arguments.rounds.unwrap_or(if arguments.quick { 3 } else { 7 });
    let chosen = |name: &str| arguments.only.is_empty() || arguments.only.iter().any(|part| name.contains(part));

    let mut report = Report::new(missing);
    for workload in workload::all().into_iter().filter(|workload| chosen(workload.name)) {
        eprintln!("== {}", workload.title);
        match measure(&workload, &tools, &places, arguments.quick, rounds) {
            Ok(outcome) => report.outcomes.push(outcome),
            Err(error) => {
                eprintln!("   left out: {error:#}");
                report.left_out.push((workload.name.to_owned(), format!("{error:#}")));
            }
        }
    }
    if chosen("starts") {
        match starts::measure(&places, &tools, rounds * 10) {
            Ok(starts) => report.starts = starts,
            Err(error) => report.left_out.push(("starts".to_owned(), format!("{error:#}"))),
        }
    }
    if !arguments.no_instructions {
        match instructions::count(&places, chosen) {
            Ok(counts) => report.instructions = counts,
            Err(error) => report.left_out.push(("instruction counts".to_owned(), format!("{error:#}"))),
        }
    }
    report.clock_reads = account::clock_reads();
    if arguments.json {
        println!("{:#}", report.to_json());
    } else {
        print!("{report}");
    }
    Ok(())
}

/// Runs one workload under every tool, round by round, in changing order.
fn measure(workload: &Workload, tools: &[Tool], places: &Places, quick: bool, rounds: usize) -> Result<Outcome> {
    let prepared = workload.prepare(places, quick)?;
    let mut outcome = Outcome::new(workload);
    for round in 0..rounds {
        let mut order: Vec<Tool> = tools.iter().copied().filter(|tool| round < tool.rounds(rounds)).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for tool in order {
            if outcome.failed(tool) {
                continue;
            }
            // The recording is read once: what it says does not change from round to round.
            let read_recording = round + 1 == rounds && tool == Tool::Tracehound;
            match workload.run(&prepared, tool, places, read_recording) {
                Ok(run) => {
                    eprintln!("   {round} {:<20} {}", tool.name(), run.summary());
                    outcome.add(round, tool, run);
                }
                Err(error) => {
                    eprintln!("   {round} {:<20} failed: {error:#}", tool.name());
                    outcome.fail(tool, format!("{error:#}"));
                }
            }
        }
    }
    Ok(outcome)
}

/// Where things lie.
#[derive(Debug)]
pub struct Places {
    /// The programs' sources.
    pub programs: PathBuf,
    /// Compiled workloads and, while a run lasts, its files.
    pub work: PathBuf,
    /// `libtracehound.so` and `heaptrace`.
    pub release: PathBuf,
}

impl Places {
    fn find() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().context("no workspace")?;
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let work = target.join("overhead");
        std::fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
        Ok(Self { programs: root.join("tests/overhead/programs"), work, release: target.join("release") })
    }

    /// An empty folder for the files of one run.
    fn scratch(&self) -> Result<PathBuf> {
        let folder = self.work.join(format!("run-{}", std::process::id()));
        if folder.exists() {
            std::fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
        }
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(folder)
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        // Only a leftover in the target folder if it fails.
        let _ = std::fs::remove_dir_all(self.work.join(format!("run-{}", std::process::id())));
    }
}
