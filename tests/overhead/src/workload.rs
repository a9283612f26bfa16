//! The workloads: what they run, how much of it, and what recording may cost there.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::process::{Cost, Running, output_of};
use crate::tool::{Tool, recording};
use crate::{Places, redis};

/// No run may last longer.
const LIMIT: Duration = Duration::from_secs(600);

/// One row of the comparison.
#[derive(Debug)]
pub struct Workload {
    /// Short name, for `--only` and JSON.
    pub name: &'static str,
    /// What it does, in a line.
    pub title: &'static str,
    /// What it runs.
    pub program: Program,
    /// Amount of work: pairs, orders, rounds or requests.
    pub amount: u64,
    /// The same for `--quick`.
    pub quick_amount: u64,
    /// What recording may cost.
    pub goal: Goal,
}

/// What a workload runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// A C or C++ source of `programs/` and its arguments before the amount.
    Compiled(&'static str, &'static [&'static str]),
    /// A script of `programs/` under Debian's python3, its allocator switched to malloc.
    Python(&'static str),
    /// mini-redis 0.4.1 under our load.
    Redis,
}

/// What recording may cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Goal {
    /// At most so many nanoseconds more for a pair of allocation and free.
    AddedNs(f64),
    /// At least this part of the throughput, at most this multiple of the server's CPU time for an operation.
    Server {
        /// Of the plain throughput.
        throughput: f64,
        /// Of the plain CPU time.
        cpu: f64,
    },
}

/// Every workload, in the order of the table.
pub fn all() -> Vec<Workload> {
    let stacks = |name, title, arguments, added_ns| Workload {
        name,
        title,
        program: Program::Compiled("stacks.c", arguments),
        amount: 20_000_000,
        quick_amount: 2_000_000,
        goal: Goal::AddedNs(added_ns),
    };
    vec![
        stacks("reenter10", "depth 10, re-entered, 32 call sites", &["reenter10"], 70.0),
        stacks("reenter50", "depth 50, re-entered, 32 call sites", &["reenter50"], 95.0),
        stacks("leaf50", "depth 50, only the leaf changes", &["leaf50"], 95.0),
        stacks("distinct10", "depth 10, 32,768 distinct stacks", &["distinct10"], 150.0),
        Workload {
            name: "threads",
            title: "8 threads, 10 % freed by another",
            program: Program::Compiled("threads.c", &[]),
            amount: 20_000_000,
            quick_amount: 4_000_000,
            goal: Goal::AddedNs(100.0),
        },
        Workload {
            name: "mix",
            title: "C++ maps, strings, exceptions",
            program: Program::Compiled("mix.cpp", &[]),
            amount: 400_000,
            quick_amount: 50_000,
            goal: Goal::AddedNs(110.0),
        },
        Workload {
            name: "sizes",
            title: "16 to 4,096 bytes, sizes and addresses at random",
            program: Program::Compiled("sizes.c", &[]),
            amount: 10_000_000,
            quick_amount: 1_000_000,
            goal: Goal::AddedNs(130.0),
        },
        Workload {
            name: "python",
            title: "python3, large JSON",
            program: Program::Python("json_work.py"),
            amount: 8,
            quick_amount: 2,
            goal: Goal::AddedNs(95.0),
        },
        Workload {
            name: "redis",
            title: "mini-redis, 128 clients, SET and GET",
            program: Program::Redis,
            amount: 800_000,
            quick_amount: 150_000,
            goal: Goal::Server { throughput: 0.95, cpu: 1.12 },
        },
    ]
}

/// A workload that is built and whose sizes are known.
#[derive(Debug)]
pub struct Prepared {
    /// What to start.
    pub program: PathBuf,
    full: Size,
    /// A tenth: for tools that need microseconds for a pair.
    tenth: Size,
}

/// How much a run does.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    amount: u64,
    /// Pairs of allocation and free; for a server its operations.
    pub pairs: u64,
    /// Allocations and frees together as counted by a preloaded counter; `None` for a server.
    pub events: Option<u64>,
}

/// What one run printed.
#[derive(Debug, Clone)]
pub struct Run {
    /// How much it did.
    pub size: Size,
    /// CPU and wall time.
    pub cost: Cost,
    /// The most memory that the program held.
    pub peak_kib: Option<u64>,
    /// Operations a second; servers only.
    pub throughput: Option<f64>,
    /// Size of what was recorded.
    pub recorded_bytes: Option<u64>,
    /// `heaptrace info --json`, when it was asked.
    pub info: Option<Value>,
}

impl Run {
    /// CPU time for a pair or an operation, in nanoseconds.
    pub fn each_ns(&self) -> f64 {
        self.cost.cpu_ns() / self.size.pairs as f64
    }

    /// A line of progress.
    pub fn summary(&self) -> String {
        let throughput = self.throughput.map(|per_second| format!(", {per_second:.0} a second")).unwrap_or_default();
        format!("{:8.1} ns each{throughput}", self.each_ns())
    }
}

impl Workload {
    /// Builds what is needed and counts what it allocates.
    pub fn prepare(&self, places: &Places, quick: bool) -> Result<Prepared> {
        let amount = if quick { self.quick_amount } else { self.amount };
        let program = match self.program {
            Program::Compiled(source, _) => compile(places, source, &[])?,
            Program::Python(_) => {
                let python = PathBuf::from("/usr/bin/python3");
                ensure!(python.exists(), "/usr/bin/python3 is missing (Debian: python3)");
                python
            }
            Program::Redis => redis::build(places)?,
        };
        let full = self.size(&program, amount, places)?;
        let tenth = self.size(&program, (amount / 10).max(1), places)?;
        Ok(Prepared { program, full, tenth })
    }

    fn size(&self, program: &Path, amount: u64, places: &Places) -> Result<Size> {
        if self.program == Program::Redis {
            return Ok(Size { amount, pairs: amount, events: None });
        }
        let (allocs, frees) = self.count(program, amount, places)?;
        ensure!(allocs > 0, "the counter saw no allocation");
        Ok(Size { amount, pairs: allocs, events: Some(allocs + frees) })
    }

    /// Runs it once.
    pub fn run(&self, prepared: &Prepared, tool: Tool, places: &Places, read_recording: bool) -> Result<Run> {
        let folder = places.scratch()?;
        let size = if tool.is_slow() { prepared.tenth } else { prepared.full };
        let mut command = tool.command(&prepared.program, places, &folder);
        let (cost, peak_kib, throughput) = if self.program == Program::Redis {
            let served = redis::serve(command, &prepared.program, size.amount, &folder)?;
            (served.cost, served.peak_kib, Some(served.throughput))
        } else {
            self.arguments(&mut command, places, size.amount);
            let (cost, output) = Running::start(command, &folder)?.finish(LIMIT)?;
            (cost, said(&output, "peak_kib"), None)
        };
        let recorded_bytes = tool.recorded_bytes(&folder);
        if tool == Tool::Tracehound {
            ensure!(recorded_bytes.is_some_and(|bytes| bytes > 0), "there is no recording");
        }
        let info = if read_recording { info(places, &folder) } else { None };
        Ok(Run { size, cost, peak_kib, throughput, recorded_bytes, info })
    }

    /// Puts the arguments and variables of this workload onto `command`.
    pub fn arguments(&self, command: &mut Command, places: &Places, amount: u64) {
        match self.program {
            Program::Compiled(_, before) => {
                command.args(before).arg(amount.to_string());
            }
            Program::Python(script) => {
                command.env("PYTHONMALLOC", "malloc").env("PYTHONHASHSEED", "0");
                command.arg(places.programs.join(script)).arg(amount.to_string());
            }
            Program::Redis => {}
        }
    }

    /// Allocations and frees of `program`, counted by a small library in place of a recorder.
    pub fn count(&self, program: &Path, amount: u64, places: &Places) -> Result<(u64, u64)> {
        let counter = compile(places, "count.c", &["-shared", "-fPIC"])?;
        let folder = places.scratch()?;
        let counts = folder.join("counts.txt");
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", counter).env("COUNT_OUTPUT", &counts);
        self.arguments(&mut command, places, amount);
        Running::start(command, &folder)?.finish(LIMIT)?;
        let counts = std::fs::read_to_string(&counts).context("the counter wrote nothing")?;
        let mut words = counts.split_whitespace().filter_map(|word| word.parse().ok());
        let allocs = words.next().context("the counter wrote no number")?;
        Ok((allocs, words.next().context("the counter wrote one number only")?))
    }
}

/// `key NUMBER` in what a program printed.
fn said(output: &str, key: &str) -> Option<u64> {
    output.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
}

/// What `heaptrace` says about the recording in `folder`; costs are measured without it as well.
fn info(places: &Places, folder: &Path) -> Option<Value> {
    let mut command = Command::new(places.release.join("heaptrace"));
    command.args(["info", "--json"]).arg(recording(folder));
    match output_of(&mut command).and_then(|text| serde_json::from_str(&text).context("it wrote no JSON")) {
        Ok(info) => Some(info),
        Err(error) => {
            eprintln!("   heaptrace info: {error:#}");
            None
        }
    }
}

/// Compiles a source of `programs/` with optimisation; up-to-date results are kept.
pub fn compile(places: &Places, source: &str, flags: &[&str]) -> Result<PathBuf> {
    let from = places.programs.join(source);
    let to = places.work.join(source.replace('.', "-"));
    let age = |path: &Path| path.metadata().and_then(|meta| meta.modified()).ok();
    if age(&to) > age(&from).max(age(&places.programs.join("report.h"))) {
        return Ok(to);
    }
    let compiler = if source.ends_with(".cpp") { "c++" } else { "cc" };
    let mut command = Command::new(compiler);
    command.args(["-O2", "-g", "-Wall", "-Wextra", "-pthread", "-o"]).arg(&to).arg(&from).args(flags);
    output_of(&mut command)?;
    Ok(to)
}
