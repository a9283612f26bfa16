//! What it costs to start and end a process that does nothing: its recording is made, has its end block, and is small.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::Places;
use crate::statistics::Spread;
use crate::tool::Tool;

const PROGRAM: &str = "/bin/true";

/// One tool's processes.
#[derive(Debug)]
pub struct Start {
    /// What they ran under.
    pub tool: Tool,
    /// From start to end, milliseconds.
    pub wall_ms: Spread,
    /// CPU time in both modes, milliseconds.
    pub cpu_ms: Spread,
}

/// Starts processes under each tool in turn.
pub fn measure(places: &Places, tools: &[Tool], rounds: usize) -> Result<Vec<Start>> {
    let mut found: Vec<(Tool, Vec<f64>, Vec<f64>)> =
        tools.iter().filter(|tool| !tool.is_slow()).map(|tool| (*tool, Vec::new(), Vec::new())).collect();
    eprintln!("== starts of {PROGRAM}");
    for round in 0..rounds {
        for (tool, walls, cpus) in found.iter_mut().filter(|(tool, ..)| round < tool.rounds(rounds)) {
            let folder = places.scratch()?;
            let mut command = tool.command(PROGRAM.as_ref(), places, &folder);
            let (wall, cpu) = one(&mut command)?;
            walls.push(wall);
            cpus.push(cpu);
        }
    }
    let spread = |values: &[f64]| Spread::of(values.iter().copied()).context("no run");
    found
        .into_iter()
        .map(|(tool, walls, cpus)| Ok(Start { tool, wall_ms: spread(&walls)?, cpu_ms: spread(&cpus)? }))
        .collect()
}

fn one(command: &mut Command) -> Result<(f64, f64)> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let (before, started) = (children_ms()?, Instant::now());
    let status = command.status().with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let wall = started.elapsed().as_secs_f64() * 1e3;
    ensure!(status.success(), "{PROGRAM} ended with {status}");
    Ok((wall, children_ms()? - before))
}

/// CPU time of all children so far, milliseconds.
fn children_ms() -> Result<f64> {
    // SAFETY: `rusage` is a structure of integers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live local variable.
    let done = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    ensure!(done == 0, "getrusage failed");
    let ms = |time: libc::timeval| time.tv_sec as f64 * 1e3 + time.tv_usec as f64 / 1e3;
    Ok(ms(usage.ru_utime) + ms(usage.ru_stime))
}
