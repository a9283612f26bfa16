//! What was measured, as tables and as JSON.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};

use crate::account::{Account, ClockReads};
use crate::instructions::Instructions;
use crate::starts::Start;
use crate::statistics::Spread;
use crate::tool::Tool;
use crate::workload::{Goal, Run, Workload};

const SCHEMA: &str = "tracehound.overhead/1";
const MIB: f64 = 1024.0 * 1024.0;
/// What we may hold in the program.
const MEMORY_GOAL: f64 = 16.0 * MIB;
const BYTES_GOAL: f64 = 3.0;
/// What a call may cost that passes through a recorder asleep, in nanoseconds.
const PASS_GOAL_NS: f64 = 2.0;
/// All tools, in the order of tables.
const TOOLS: [Tool; 6] =
    [Tool::Plain, Tool::Tracehound, Tool::Asleep, Tool::Heaptrack, Tool::Tcmalloc, Tool::TcmallocHeap];

/// Everything of one `tracehound-overhead`.
#[derive(Debug)]
pub struct Report {
    /// Recorders that are not installed.
    pub missing: Vec<String>,
    /// Workloads, measured.
    pub outcomes: Vec<Outcome>,
    /// Starts of processes.
    pub starts: Vec<Start>,
    /// Instruction counts.
    pub instructions: Vec<Instructions>,
    /// Reads of the clock.
    pub clock_reads: Option<ClockReads>,
    /// What could not be measured, and why.
    pub left_out: Vec<(String, String)>,
}

/// The runs of one workload.
#[derive(Debug)]
pub struct Outcome {
    name: &'static str,
    title: &'static str,
    goal: Goal,
    runs: BTreeMap<(Tool, usize), Run>,
    failures: BTreeMap<Tool, String>,
}

impl Outcome {
    /// Of a workload, no run yet.
    pub fn new(workload: &Workload) -> Self {
        let (runs, failures) = (BTreeMap::new(), BTreeMap::new());
        Self { name: workload.name, title: workload.title, goal: workload.goal, runs, failures }
    }

    /// Short name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// What it does.
    pub const fn title(&self) -> &'static str {
        self.title
    }

    /// Keeps a run.
    pub fn add(&mut self, round: usize, tool: Tool, run: Run) {
        self.runs.insert((tool, round), run);
    }

    /// Keeps a failure; the tool is not tried again.
    pub fn fail(&mut self, tool: Tool, why: String) {
        self.failures.insert(tool, why);
    }

    /// Whether the tool has failed here.
    pub fn failed(&self, tool: Tool) -> bool {
        self.failures.contains_key(&tool)
    }

    fn runs(&self, tool: Tool) -> impl Iterator<Item = (usize, &Run)> {
        self.runs.iter().filter(move |((other, _), _)| *other == tool).map(|((_, round), run)| (*round, run))
    }

    /// A figure of each run.
    fn each(&self, tool: Tool, figure: impl Fn(&Run) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.runs(tool).filter_map(|(_, run)| figure(run)))
    }

    /// A figure of each run together with the same of its base in the same round.
    fn paired(&self, tool: Tool, figure: impl Fn(&Run) -> Option<f64>, join: fn(f64, f64) -> f64) -> Option<Spread> {
        Spread::of(self.runs(tool).filter_map(|(round, run)| {
            let base = self.runs.get(&(tool.base(), round))?;
            Some(join(figure(run)?, figure(base)?))
        }))
    }

    fn cpu_each(&self, tool: Tool) -> Option<Spread> {
        self.each(tool, |run| Some(run.each_ns()))
    }

    /// Nanoseconds that a tool adds to a pair.
    pub fn added(&self, tool: Tool) -> Option<Spread> {
        self.paired(tool, |run| Some(run.each_ns()), |with, without| with - without)
    }

    fn ratio(&self, tool: Tool) -> Option<Spread> {
        self.paired(tool, |run| Some(run.each_ns()), |with, without| with / without)
    }

    fn throughput(&self, tool: Tool) -> Option<Spread> {
        self.paired(tool, |run| run.throughput, |with, without| with / without)
    }

    fn added_memory(&self, tool: Tool) -> Option<Spread> {
        self.paired(tool, |run| run.peak_kib.map(|kib| kib as f64 * 1024.0), |with, without| with - without)
    }

    /// Pairs of allocation and free of a run.
    pub fn pairs(&self) -> Option<u64> {
        self.runs(Tool::Plain).map(|(_, run)| run.size.pairs).next()
    }

    /// What `heaptrace info` says of the recording that was read.
    pub fn info(&self) -> Option<&Value> {
        self.runs(Tool::Tracehound).find_map(|(_, run)| run.info.as_ref())
    }

    /// Events of the recording itself, or else as counted.
    fn events(&self, tool: Tool) -> Option<u64> {
        let recorded = self.info().filter(|_| tool == Tool::Tracehound).and_then(|info| {
            let events = info.get("events")?.as_object()?;
            // A realloc of a block is two events: its old block is freed, a new one is allocated.
            Some(
                events
                    .iter()
                    .filter(|(kind, _)| *kind != "lost")
                    .map(|(kind, count)| count.as_u64().unwrap_or(0) * if kind == "realloc" { 2 } else { 1 })
                    .sum(),
            )
        });
        recorded.or_else(|| self.runs(tool).find_map(|(_, run)| run.size.events))
    }

    fn bytes_an_event(&self, tool: Tool) -> Option<f64> {
        let bytes = self.each(tool, |run| run.recorded_bytes.map(|bytes| bytes as f64))?.median;
        Some(bytes / self.events(tool)? as f64)
    }
}

impl Report {
    /// Without results yet.
    pub const fn new(missing: Vec<String>) -> Self {
        Self {
            missing,
            outcomes: Vec::new(),
            starts: Vec::new(),
            instructions: Vec::new(),
            clock_reads: None,
            left_out: Vec::new(),
        }
    }

    /// The report as one document.
    pub fn to_json(&self) -> Value {
        let outcomes: Vec<Value> = self.outcomes.iter().map(outcome_json).collect();
        let starts: Vec<Value> = self
            .starts
            .iter()
            .map(|start| {
                json!({"tool": start.tool.name(), "wall_ms": spread_json(Some(start.wall_ms)),
                       "cpu_ms": spread_json(Some(start.cpu_ms))})
            })
            .collect();
        let instructions: Vec<Value> = self
            .instructions
            .iter()
            .map(|counts| {
                json!({"name": counts.name, "plain": counts.plain, "traced": counts.traced,
                       "asleep": counts.asleep, "background": counts.background})
            })
            .collect();
        let left_out: Vec<Value> = self.left_out.iter().map(|(name, why)| json!({"name": name, "why": why})).collect();
        json!({"schema": SCHEMA, "machine": machine(), "missing": self.missing, "workloads": outcomes,
               "accounts": self.accounts().iter().map(account_json).collect::<Vec<_>>(), "starts": starts, "instructions_a_pair": instructions, "left_out": left_out})
    }
}

fn account_json(account: &Account) -> Value {
    let (hooks, background) = account.instructions.unzip();
    json!({"work": account.name, "added_ns": account.added, "background_ns": account.background,
           "clock_reads_ns": account.clock, "rest_ns": account.rest(),
           "hook_instructions": hooks, "background_instructions": background})
}

fn spread_json(spread: Option<Spread>) -> Value {
    spread.map_or(Value::Null, |s| json!({"median": s.median, "low": s.low, "high": s.high}))
}

fn outcome_json(outcome: &Outcome) -> Value {
    let goal = match outcome.goal {
        Goal::AddedNs(ns) => json!({"added_ns": ns}),
        Goal::Server { throughput, cpu } => json!({"throughput_ratio": throughput, "cpu_ratio": cpu}),
    };
    let mut tools = serde_json::Map::new();
    for tool in TOOLS {
        if let Some(why) = outcome.failures.get(&tool) {
            tools.insert(tool.name().to_owned(), json!({"failed": why}));
        } else if let Some(cpu) = outcome.cpu_each(tool) {
            let system = outcome.each(tool, |run| Some(run.cost.system.as_nanos() as f64 / run.size.pairs as f64));
            let wall = outcome.each(tool, |run| Some(run.cost.wall.as_secs_f64()));
            let entry = json!({
                "runs": outcome.runs(tool).count(),
                "cpu_ns": spread_json(Some(cpu)),
                "system_ns": spread_json(system),
                "wall_seconds": spread_json(wall),
                "against": tool.base().name(),
                "added_ns": spread_json(outcome.added(tool)),
                "cpu_ratio": spread_json(outcome.ratio(tool)),
                "throughput": spread_json(outcome.each(tool, |run| run.throughput)),
                "throughput_ratio": spread_json(outcome.throughput(tool)),
                "bytes_an_event": outcome.bytes_an_event(tool),
                "added_memory_bytes": spread_json(outcome.added_memory(tool)),
            });
            tools.insert(tool.name().to_owned(), entry);
        }
    }
    json!({"name": outcome.name, "title": outcome.title, "pairs": outcome.pairs(), "events": outcome.events(Tool::Plain),
           "goal": goal, "bytes_goal": BYTES_GOAL, "memory_goal_bytes": MEMORY_GOAL,
           "tools": tools, "info": outcome.info()})
}

/// Processor, count of them, and how busy others kept it.
fn machine() -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map(|(_, name)| name);
    json!({"processor": model, "processors": std::thread::available_parallelism().map_or(0, usize::from),
           "kernel": read("/proc/sys/kernel/osrelease").trim(), "load": read("/proc/loadavg").trim()})
}

const NOTHING: &str = "–";

/// `median (low–high)`.
fn written(spread: Option<Spread>, scale: f64, digits: usize) -> String {
    spread.map_or_else(
        || NOTHING.to_owned(),
        |s| {
            let [low, median, high] = [s.low, s.median, s.high].map(|value| value / scale);
            format!("{median:.digits$} ({low:.digits$}–{high:.digits$})")
        },
    )
}

/// A Markdown table, columns lined up, all but the first to the right.
fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let header: Vec<String> = header.iter().map(|&title| title.to_owned()).collect();
    let mut widths: Vec<usize> = header.iter().map(|title| title.chars().count()).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &[String]| {
        let cells = cells.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
            0 => format!(" {cell:<width$} "),
            _ => format!(" {cell:>width$} "),
        });
        format!("|{}|\n", cells.collect::<Vec<_>>().join("|"))
    };
    let rule: Vec<String> = widths
        .iter()
        .enumerate()
        .map(|(column, &width)| if column == 0 { "-".repeat(width) } else { format!("{}:", "-".repeat(width - 1)) })
        .collect();
    [&header, &rule].into_iter().chain(&rows).map(|row| line(row)).collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", machine_line())?;
        writeln!(f, "CPU time of the whole process tree; medians (quartiles) of interleaved pairs of runs.")?;
        for missing in &self.missing {
            writeln!(f, "Not compared, because it is not installed: {missing}.")?;
        }
        let one_process: Vec<&Outcome> =
            self.outcomes.iter().filter(|outcome| matches!(outcome.goal, Goal::AddedNs(_))).collect();
        if !one_process.is_empty() {
            writeln!(f, "\nAdded nanoseconds for a pair of allocation and free\n")?;
            let header = [
                "work",
                "plain ns",
                "tracehound +ns",
                "goal",
                "ratio",
                "asleep +ns",
                "goal",
                "heaptrack --raw +ns",
                "tcmalloc heap +ns",
            ];
            write!(f, "{}", table(&header, one_process.iter().map(|outcome| time_row(outcome)).collect()))?;
            writeln!(f, "\nBytes an event on disk, and MiB that the recorder holds in the program\n")?;
            let header = [
                "work",
                "events",
                "bytes",
                "goal",
                "heaptrack bytes",
                "MiB",
                "goal",
                "heaptrack MiB",
                "tcmalloc heap MiB",
            ];
            write!(f, "{}", table(&header, one_process.iter().map(|outcome| space_row(outcome)).collect()))?;
        }
        for outcome in &self.outcomes {
            if let Goal::Server { throughput, cpu } = outcome.goal {
                writeln!(
                    f,
                    "\n{}: part of the plain throughput, multiple of the server's CPU time an operation\n",
                    outcome.title
                )?;
                write!(
                    f,
                    "{}",
                    table(
                        &["under", "throughput", "goal", "CPU", "goal", "µs an operation"],
                        server_rows(outcome, throughput, cpu)
                    )
                )?;
            }
        }
        if !self.starts.is_empty() {
            writeln!(f, "\nStart and end of a process that does nothing, medians\n")?;
            let rows = self.starts.iter().map(|start| {
                let numbers = [start.wall_ms.median, start.cpu_ms.median].map(|ms| format!("{ms:.1}"));
                std::iter::once(start.tool.name().to_owned()).chain(numbers).collect()
            });
            write!(f, "{}", table(&["under", "ms", "ms of CPU time"], rows.collect()))?;
        }
        if !self.instructions.is_empty() {
            writeln!(f, "\nInstructions for a pair (callgrind)\n")?;
            let rows = self.instructions.iter().map(|counts| {
                let added = counts.traced - counts.plain;
                let numbers = [counts.plain, counts.traced, added, counts.background, counts.asleep - counts.plain];
                std::iter::once(counts.name.to_owned()).chain(numbers.map(|n| format!("{n:.0}"))).collect()
            });
            let header = ["work", "plain", "traced", "added", "in our threads", "added asleep"];
            write!(f, "{}", table(&header, rows.collect()))?;
        }
        self.write_accounts(f)?;
        for outcome in &self.outcomes {
            for (tool, why) in &outcome.failures {
                writeln!(f, "\n{} failed at {}: {why}", tool.name(), outcome.title)?;
            }
        }
        for (name, why) in &self.left_out {
            writeln!(f, "\nLeft out: {name}: {why}")?;
        }
        Ok(())
    }
}

impl Report {
    fn accounts(&self) -> Vec<Account> {
        let added = self.outcomes.iter().filter(|outcome| matches!(outcome.goal, Goal::AddedNs(_)));
        added.filter_map(|outcome| Account::of(outcome, &self.instructions, self.clock_reads)).collect()
    }

    fn write_accounts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let accounts = self.accounts();
        if accounts.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nWhere the added nanoseconds go")?;
        if let Some(reads) = self.clock_reads {
            writeln!(f, "A read of the clock: {:.1} ns; {:.1} ns ordered, with threads.", reads.plain, reads.ordered)?;
        }
        writeln!(f, "The rest is added less the recorder's thread less the reads: other instructions, and caches.\n")?;
        let rows = accounts.iter().map(|account| {
            let clock = account.clock.map_or_else(|| NOTHING.to_owned(), |ns| format!("{ns:.0}"));
            let counts = account.instructions.map_or_else(
                || [NOTHING.to_owned(), NOTHING.to_owned()],
                |(hooks, background)| [hooks, background].map(|count| format!("{count:.0}")),
            );
            let [hooks, background] = counts;
            vec![
                account.name.to_owned(),
                format!("{:.0}", account.added),
                format!("{:.0}", account.background),
                clock,
                format!("{:.0}", account.rest()),
                hooks,
                background,
            ]
        });
        let header = [
            "work",
            "added ns",
            "recorder's thread",
            "two reads",
            "rest",
            "instructions in hooks",
            "in the recorder's thread",
        ];
        write!(f, "{}", table(&header, rows.collect()))
    }
}

fn machine_line() -> String {
    let machine = machine();
    let text = |key: &str| machine.get(key).and_then(Value::as_str).unwrap_or("?").to_owned();
    let load = text("load");
    let load = load.split(' ').next().unwrap_or("?");
    format!("{}, {} processors, Linux {}, load {load}", text("processor"), machine["processors"], text("kernel"))
}

fn time_row(outcome: &Outcome) -> Vec<String> {
    let Goal::AddedNs(goal) = outcome.goal else { return Vec::new() };
    let plain = outcome.cpu_each(Tool::Plain).map_or_else(|| NOTHING.to_owned(), |s| format!("{:.0}", s.median));
    let ratio = outcome.ratio(Tool::Tracehound).map_or_else(|| NOTHING.to_owned(), |s| format!("{:.2}", s.median));
    let added = |tool| written(outcome.added(tool), 1.0, 0);
    vec![
        outcome.title.to_owned(),
        plain,
        added(Tool::Tracehound),
        format!("≤ {goal:.0}"),
        ratio,
        written(outcome.added(Tool::Asleep), 1.0, 1),
        format!("≤ {:.0}", 2.0 * PASS_GOAL_NS),
        added(Tool::Heaptrack),
        added(Tool::TcmallocHeap),
    ]
}

fn space_row(outcome: &Outcome) -> Vec<String> {
    let bytes = |tool| outcome.bytes_an_event(tool).map_or_else(|| NOTHING.to_owned(), |bytes| format!("{bytes:.2}"));
    let memory =
        |tool| outcome.added_memory(tool).map_or_else(|| NOTHING.to_owned(), |s| format!("{:.1}", s.median / MIB));
    vec![
        outcome.title.to_owned(),
        outcome.events(Tool::Tracehound).map_or_else(|| NOTHING.to_owned(), |events| events.to_string()),
        bytes(Tool::Tracehound),
        format!("≤ {BYTES_GOAL:.0}"),
        bytes(Tool::Heaptrack),
        memory(Tool::Tracehound),
        format!("≤ {:.0}", MEMORY_GOAL / MIB),
        memory(Tool::Heaptrack),
        memory(Tool::TcmallocHeap),
    ]
}

fn server_rows(outcome: &Outcome, throughput: f64, cpu: f64) -> Vec<Vec<String>> {
    let known = TOOLS.into_iter().filter(|&tool| outcome.cpu_each(tool).is_some());
    known
        .map(|tool| {
            let goal = |text: String| if tool == Tool::Tracehound { text } else { String::new() };
            vec![
                tool.name().to_owned(),
                written(outcome.throughput(tool), 1.0, 2),
                goal(format!("≥ {throughput:.2}")),
                written(outcome.ratio(tool), 1.0, 2),
                goal(format!("≤ {cpu:.2}")),
                written(outcome.cpu_each(tool), 1000.0, 2),
            ]
        })
        .collect()
}
