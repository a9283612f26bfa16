//! Instructions for a pair, counted by callgrind: the figure that a busy machine does not change.
//!
//! Each workload runs twice, small and larger; the difference between the two leaves start and end out. Instructions of
//! the program's threads and of ours are told apart by callgrind's files, one for each thread: ours is the second.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::Places;
use crate::process::Running;
use crate::tool::{Tool, library};
use crate::workload::{self, Program, Workload};

const LIMIT: Duration = Duration::from_secs(600);

/// One workload's counts for a pair.
#[derive(Debug)]
pub struct Instructions {
    /// Name of the workload.
    pub name: &'static str,
    /// Without a recorder.
    pub plain: f64,
    /// Of the program's own thread when traced.
    pub traced: f64,
    /// Of our threads.
    pub background: f64,
    /// Of the program's own thread under a recorder asleep.
    pub asleep: f64,
}

/// Counts the single-threaded compiled workloads.
pub fn count(places: &Places, chosen: impl Fn(&str) -> bool) -> Result<Vec<Instructions>> {
    ensure!(Path::new("/usr/bin/valgrind").exists(), "valgrind is not installed (Debian: valgrind)");
    ensure!(library(places).exists(), "{} is missing", library(places).display());
    let mut counts = Vec::new();
    for workload in workload::all().into_iter().filter(|workload| chosen(workload.name)) {
        let Program::Compiled(source, _) = workload.program else { continue };
        if source == "threads.c" {
            continue;
        }
        eprintln!("== instructions: {}", workload.title);
        let amount = match workload.name {
            "distinct10" => 65_536,
            "mix" => 2_000,
            _ => 20_000,
        };
        counts.push(one(&workload, source, amount, places)?);
    }
    Ok(counts)
}

fn one(workload: &Workload, source: &str, amount: u64, places: &Places) -> Result<Instructions> {
    let program = workload::compile(places, source, &[])?;
    let pairs = workload.count(&program, 2 * amount, places)?.0 - workload.count(&program, amount, places)?.0;
    let between = |tool: Tool| -> Result<(f64, f64)> {
        let (small, small_ours) = run(workload, &program, amount, tool, places)?;
        let (large, large_ours) = run(workload, &program, 2 * amount, tool, places)?;
        let each = |from: u64, to: u64| (to as f64 - from as f64) / pairs as f64;
        Ok((each(small, large), each(small_ours, large_ours)))
    };
    let (plain, _) = between(Tool::Plain)?;
    let (traced, background) = between(Tool::Tracehound)?;
    let (asleep, _) = between(Tool::Asleep)?;
    Ok(Instructions { name: workload.name, plain, traced, background, asleep })
}

/// Instructions of the first thread, and of all others.
fn run(workload: &Workload, program: &Path, amount: u64, tool: Tool, places: &Places) -> Result<(u64, u64)> {
    let folder = places.scratch()?;
    let mut command = Command::new("/usr/bin/valgrind");
    command.args(["--tool=callgrind", "--separate-threads=yes", "--trace-children=yes"]);
    command.arg(format!("--callgrind-out-file={}/callgrind.%p", folder.display()));
    command.env_remove("LD_PRELOAD");
    // The variable is set inside, so that valgrind's own launcher is not recorded.
    command.arg("/usr/bin/env");
    if tool != Tool::Plain {
        command.arg(format!("LD_PRELOAD={}", library(places).display()));
        command.arg(format!("TRACEHOUND_OUTPUT={}", folder.join("memory-%p.dat").display()));
        command.arg(format!("TRACEHOUND_START={}", if tool == Tool::Asleep { "off" } else { "on" }));
        // Valgrind's launcher, which runs between env and the program, hands the recorder on.
        command.arg("TRACEHOUND_CHILDREN=1");
    }
    command.arg(program);
    workload.arguments(&mut command, places, amount);
    Running::start(command, &folder)?.finish(LIMIT)?;
    let mut counts = (0, 0);
    for entry in std::fs::read_dir(&folder).context("the counts are gone")?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some((_, thread)) = name.strip_prefix("callgrind.").and_then(|rest| rest.split_once('-')) else { continue };
        let text = std::fs::read_to_string(entry.path()).context("a count cannot be read")?;
        let total = text.lines().find_map(|line| line.strip_prefix("totals: ")?.trim().parse::<u64>().ok());
        let total = total.with_context(|| format!("{name} holds no total"))?;
        if thread == "01" {
            counts.0 += total;
        } else {
            counts.1 += total;
        }
    }
    ensure!(counts.0 > 0, "callgrind counted nothing");
    Ok(counts)
}
