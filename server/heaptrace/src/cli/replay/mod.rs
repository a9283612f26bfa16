//! `heaptrace replay`: the recorded calls, played back against other allocators.

mod allocators;
mod other_memory;
mod stream;
mod together;
mod tunables;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};
use serde::{Deserialize, Serialize};
use tracehound_api::replay::{RecordedMemory, Replay, ReplayRow, SelfCheck};
use tracehound_query::replay_basis::{self, ReplayBasis};
use tracehound_query::replays;

use super::args::Files;
use super::open::{self, OpenRecording};
use super::table::{Align, TextCell, TextTable};
use super::terminal::{ColorChoice, Style, TextRole, clean};
use super::units::{bytes, duration};
use super::{FileName, Misuse, Shortfall, for_each, interrupt, misuse, terminal};
use allocators::{Candidate, Family};

/// Replay the recorded calls with other allocators, and show how much memory they would have taken.
///
/// The calls are made with the threads, the order and the sizes of the recording; an allocator that queries the time
/// gets the recorded time. The recording's own allocator is replayed first: its error is an estimate for all rows.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heaptrace replay memory-app-1.dat                                    what is installed, and usual settings
  heaptrace replay memory-app-1.dat --allocator jemalloc --set dirty_decay_ms=0
  heaptrace replay memory-app-1.dat --allocator system --set arena_max=2
  heaptrace replay memory-app-1.dat --allocator ./libmine.so
  heaptrace replay --together memory-app-1.dat memory-app-2.dat memory-app-3.dat

Names of settings are the allocator's own; one in capitals is an environment variable.")]
pub struct ReplayArgs {
    #[command(flatten)]
    files: Files,
    /// An allocator: system, jemalloc, tcmalloc, mimalloc, or the path of a library
    #[arg(long, value_name = "ALLOCATOR")]
    allocator: Vec<String>,
    /// A setting of the allocators
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Try so many orders of events of different threads
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    orders: u32,
    /// Print one table for several recordings of one program, whose calls differ from run to run; its ranges hold all of them
    #[arg(long)]
    together: bool,
}

/// What the player says: memory of no file, its own and that which is not the allocator's.
#[derive(Debug, Clone, Deserialize)]
struct Played {
    allocator: String,
    base: u64,
    peak: u64,
    end: u64,
    /// When the recorded memory was highest.
    marked: u64,
    cpu_ns: u64,
    failed: u64,
    has_asked_time: bool,
}

/// What a recording would take.
#[derive(Debug, Serialize)]
#[serde(transparent)]
struct ReplayAnswer {
    replay: Replay,
    /// What the recording's own allocator takes at the end when it is replayed.
    #[serde(skip)]
    own_end_bytes: Option<u64>,
}

/// The player and the calls that it plays.
struct ReplayStep {
    player: PathBuf,
    file: tempfile::NamedTempFile,
    /// Calls up to the moment at which the recorded memory was highest.
    mark: u64,
}

/// Events that threads may go ahead of each other, of each order that is tried: few, as where each thread has a processor, and
/// as many as a thread makes while others wait for one.
const CHUNKS: [u32; 6] = [1024, 128, 1 << 15, 1 << 13, 64, 4096];
/// Without the recorder, and without the other programs of that time, the program may be so many times as fast: an allocator
/// that gives memory back after a while has given back less by then. More than one: what it has at the end depends on which
/// calls lie just before and behind such a moment.
const FASTER: [u32; 2] = [2, 4];

/// Plays, and prints the table.
pub fn run(args: &ReplayArgs, color: ColorChoice) -> Result<()> {
    let style = Style::of_stdout(color);
    let mut settings = BTreeMap::new();
    for setting in &args.set {
        let Some((name, value)) = setting.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(Misuse(format!("--set {setting}: write NAME=VALUE")).into());
        };
        settings.insert(name.to_owned(), value.to_owned());
    }
    let named: Vec<Candidate> =
        args.allocator.iter().map(|name| Candidate::named(name, &settings)).collect::<Result<_>>()?;
    let candidates = |has_threads: bool| match (named.is_empty(), settings.is_empty()) {
        (false, _) => Ok(named.clone()),
        (true, true) => Ok(Candidate::usual(has_threads)),
        (true, false) => Candidate::named("system", &settings).map(|system| vec![system]),
    };
    if args.together {
        return run_together(args, &candidates, style);
    }
    let without_figures = Cell::new(0_u64);
    for_each(
        &args.files,
        FileName::Tell(style),
        Shortfall::Tell(style),
        &mut terminal::stdout(),
        |opened| {
            let has_threads = has_threads(opened);
            let orders = if has_threads { args.orders } else { 1 };
            let answer = play_all(opened, &candidates(has_threads)?, orders)?;
            without_figures.set(without_figures.get() + u64::from(!has_figures(&answer)));
            Ok(answer)
        },
        |answer, _, out| print(answer, style, out),
    )?;
    match without_figures.get() {
        0 => Ok(()),
        _ => Err(no_figures()),
    }
}

/// Plays all recordings, and prints one table.
fn run_together(args: &ReplayArgs, candidates: &dyn Fn(bool) -> Result<Vec<Candidate>>, style: Style) -> Result<()> {
    let files = &args.files.files;
    let opened: Vec<OpenRecording> =
        files.iter().map(|file| open::open_telling_among(file, files)).collect::<Result<_>>()?;
    together::check(&opened.iter().map(|one| &*one.trace).collect::<Vec<_>>())?;
    // All of them the same rows.
    let has_threads = opened.iter().any(has_threads);
    let (candidates, orders) = (candidates(has_threads)?, if has_threads { args.orders } else { 1 });
    let answers = opened.iter().map(|opened| play_all(opened, &candidates, orders)).collect::<Result<Vec<_>>>()?;
    let Some(answer) = together::combine(answers) else { bail!("no recording could be replayed") };
    let mut out = terminal::stdout();
    if args.files.json {
        serde_json::to_writer_pretty(&mut out, &answer).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        print(&answer, style, &mut out)?;
    }
    out.flush()?;
    if has_figures(&answer) { Ok(()) } else { Err(no_figures()) }
}

fn has_threads(opened: &OpenRecording) -> bool {
    opened.trace.threads().iter().filter(|thread| thread.active).count() > 1
}

fn has_figures(answer: &ReplayAnswer) -> bool {
    answer.replay.rows.iter().any(|row| row.peak_bytes[1] > 0)
}

fn no_figures() -> anyhow::Error {
    anyhow!("no allocator gave figures; the rows say why")
}

fn play_all(opened: &OpenRecording, candidates: &[Candidate], orders: u32) -> Result<ReplayAnswer> {
    let trace = &opened.trace;
    let basis = replay_basis::run(trace, &opened.symbols, interrupt::flag()).map_err(misuse)?;
    let live = trace.facts().peak.bytes;
    if let Some(available) = available_bytes().filter(|available| live.saturating_mul(3) / 2 > *available) {
        bail!(
            "a replay would need up to {} of memory, and {} are available",
            bytes(live.saturating_mul(3) / 2),
            bytes(available)
        );
    }
    let player = player()?;
    let file = tempfile::NamedTempFile::new().context("a temporary file for the calls cannot be made")?;
    let others = other_memory::by_looks(&basis);
    let mut out = BufWriter::new(file.as_file());
    let stream = stream::write(trace, &basis, &others, interrupt::flag(), &mut out)?;
    drop(out);
    if stream.calls == 0 {
        bail!("the recording has no calls to play");
    }
    let stage = ReplayStep { player, file, mark: stream.mark };
    // What the player itself takes, with the system's allocator before the first call.
    let plain = Candidate { family: Family::System, library: None, settings: BTreeMap::new() };
    let base = stage.play(&plain, CHUNKS[0], 1)?.base;
    let own = match basis.allocator.as_str() {
        "glibc" => Some(plain),
        other => Candidate::named(other, &BTreeMap::new()).ok(),
    };
    let predicted = |played: u64| played.saturating_sub(base);
    let (mut self_check, mut own_end_bytes, mut recorded_as) = (None, None, basis.allocator.clone());
    if let Some(own) = &own
        && !basis.samples.is_empty()
        && let Ok(curve) = stage.curve(own)
    {
        let others = other_memory::by_samples(&basis, &others, &curve);
        stream::rewrite(stage.file.as_file(), &stream, &others).context("the file of the calls cannot be changed")?;
    }
    if let Some(own) = own
        && let Ok(played) = stage.play(&own, CHUNKS[0], 1)
    {
        // What the recorder saw are the moments at which it looked: the peak of the replay may lie between two of them.
        let then_bytes = predicted(played.marked);
        let error = (then_bytes as f64 - basis.peak_bytes as f64) / basis.peak_bytes.max(1) as f64;
        self_check = Some(SelfCheck { peak_bytes: predicted(played.peak), then_bytes, error });
        own_end_bytes = Some(predicted(played.end));
        if !basis.is_inside_program {
            recorded_as = played.allocator;
        }
    }
    let mut rows = Vec::new();
    let progress = ReplayProgress::new(opened, candidates.len());
    for (candidate, number) in candidates.iter().zip(1..) {
        progress.show(number, candidate);
        // No variable replaces an allocator inside the program.
        let command = if basis.is_inside_program {
            String::new()
        } else {
            command_line(opened, candidate, basis.allocator == "glibc")
        };
        rows.push(row(&stage, candidate, orders, command, &predicted)?);
    }
    let recorded = recorded(&basis, recorded_as);
    let replay = Replay { schema: "heaptrace.replay/1".into(), recordings: 1, recorded, self_check, rows };
    replays::keep(trace, &replay);
    Ok(ReplayAnswer { replay, own_end_bytes })
}

/// Which of the rows is being made, where standard error is a terminal. It goes when it is dropped.
struct ReplayProgress {
    bar: ProgressBar,
    rows: usize,
}

impl ReplayProgress {
    fn new(opened: &OpenRecording, rows: usize) -> Self {
        let bar =
            ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_finish(ProgressFinish::AndClear);
        let looks = ProgressStyle::with_template("{spinner} replaying {prefix} {msg}, {elapsed}");
        bar.set_style(looks.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        let path = Path::new(&opened.path);
        bar.set_prefix(clean(&path.file_name().unwrap_or(path.as_os_str()).to_string_lossy()).into_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar, rows }
    }

    fn show(&self, number: usize, candidate: &Candidate) {
        let library = candidate.library.as_ref().and_then(|path| path.file_name());
        let name = library.map_or_else(|| "system".into(), |name| clean(&name.to_string_lossy()).into_owned());
        self.bar.set_message(format!("with {name} ({number} of {})", self.rows));
    }
}

fn recorded(basis: &ReplayBasis, allocator: String) -> RecordedMemory {
    RecordedMemory { allocator, peak_bytes: basis.peak_bytes, other_bytes: basis.other_bytes }
}

fn row(
    stage: &ReplayStep,
    candidate: &Candidate,
    orders: u32,
    command: String,
    predicted: &dyn Fn(u64) -> u64,
) -> Result<ReplayRow> {
    let mut row = ReplayRow {
        allocator: candidate.library.as_ref().map_or_else(|| "system".into(), |path| path.display().to_string()),
        settings: candidate.settings.clone(),
        peak_bytes: [u64::MAX, 0],
        end_bytes: [u64::MAX, 0],
        cpu_ns: u64::MAX,
        command,
        failed: None,
    };
    let mut plays: Vec<(u32, u32)> = CHUNKS.iter().cycle().take(orders as usize).map(|&chunk| (chunk, 1)).collect();
    while !plays.is_empty() {
        interrupt::flag().check()?;
        let (chunk, pace) = plays.remove(0);
        match stage.play(candidate, chunk, pace) {
            Ok(played) => {
                let (peak, end) = (predicted(played.peak), predicted(played.end));
                row.peak_bytes = [row.peak_bytes[0].min(peak), row.peak_bytes[1].max(peak)];
                row.end_bytes = [row.end_bytes[0].min(end), row.end_bytes[1].max(end)];
                row.cpu_ns = row.cpu_ns.min(played.cpu_ns);
                row.allocator = played.allocator;
                if played.failed > 0 {
                    row.failed = Some(format!("{} allocations failed", played.failed));
                }
                if played.has_asked_time && (chunk, pace) == (CHUNKS[0], 1) {
                    plays.extend(FASTER.map(|pace| (chunk, pace)));
                }
            }
            Err(error) => {
                (row.peak_bytes, row.end_bytes, row.cpu_ns) = ([0, 0], [0, 0], 0);
                row.failed = Some(format!("{error:#}"));
                break;
            }
        }
    }
    Ok(row)
}

/// The command that proves a row. A program that brings an allocator of its own has the system's only where the C library
/// is asked first.
fn command_line(opened: &OpenRecording, candidate: &Candidate, has_system_allocator: bool) -> String {
    let is_system = candidate.family == Family::System && !has_system_allocator;
    let preload = is_system.then(|| ("LD_PRELOAD".to_owned(), "libc.so.6".to_owned()));
    let variables = preload.into_iter().chain(candidate.environment());
    let variables = variables.map(|(name, value)| format!("{name}={}", replays::shell_word(&value)));
    let program = Some(replays::command_line(&opened.trace)).filter(|line| !line.is_empty());
    variables.chain(program).collect::<Vec<_>>().join(" ")
}

impl ReplayStep {
    /// Starts the player once, with chunks of so many events, so many times as fast as recorded.
    fn play(&self, candidate: &Candidate, chunk: u32, pace: u32) -> Result<Played> {
        let text = self.start(candidate, &[&chunk.to_string(), &pace.to_string()])?;
        serde_json::from_str(&text).context("heaptrace-replay gave no figures")
    }

    /// What the allocator has taken at each change of other memory.
    fn curve(&self, candidate: &Candidate) -> Result<Vec<u64>> {
        let text = self.start(candidate, &[&CHUNKS[0].to_string(), "1", "1"])?;
        Ok(text.lines().map_while(|line| line.parse().ok()).collect())
    }

    /// Starts the player once; gives what it says.
    fn start(&self, candidate: &Candidate, numbers: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.player);
        for name in ["LD_PRELOAD", "GLIBC_TUNABLES", "MALLOC_CONF", "MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_"] {
            command.env_remove(name);
        }
        command.arg(self.file.path()).arg(self.mark.to_string()).args(numbers);
        command.envs(candidate.environment());
        let output = command.stdin(Stdio::null()).stderr(Stdio::piped()).output();
        let output = output.with_context(|| cannot_start(&self.player))?;
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            let line = said.lines().next().unwrap_or_default();
            bail!("the replay ended by {}{}{line}", output.status, if line.is_empty() { "" } else { ": " });
        }
        // The loader says so and goes on without.
        if let Some(line) = said.lines().find(|line| line.contains("cannot be preloaded")) {
            bail!("{line}");
        }
        // An allocator says what it does not understand, and goes on with its usual settings.
        let refuses =
            |line: &&str| ["invalid", "malformed"].iter().any(|word| line.to_ascii_lowercase().contains(word));
        if let Some(line) = said.lines().find(refuses).filter(|_| !candidate.settings.is_empty()) {
            bail!("the allocator refuses a setting: {line}");
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// The program that plays, which lies beside this one.
fn player() -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    let beside = here.with_file_name("heaptrace-replay");
    if beside.is_file() {
        return Ok(beside);
    }
    bail!("heaptrace-replay is not beside {}: it is in the packages, and `make build` makes it", here.display())
}

/// It is no static program: it loads the allocators of the system.
fn cannot_start(player: &Path) -> String {
    const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";
    let missing = cfg!(target_arch = "x86_64") && !Path::new(LOADER).exists();
    let reason =
        if missing { ": it needs glibc, which is not here; replay the recording on a machine with it" } else { "" };
    format!("cannot start {}{reason}", player.display())
}

fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

fn range(bounds: [u64; 2]) -> String {
    // Less than a hundredth apart is one figure.
    if bounds[1] - bounds[0] <= bounds[1] / 100 {
        bytes(bounds[1])
    } else {
        format!("{} – {}", bytes(bounds[0]), bytes(bounds[1]))
    }
}

/// The allocator and its settings.
fn name_of(row: &ReplayRow) -> String {
    let settings = row.settings.iter().map(|(name, value)| format!(" {name}={value}"));
    settings.fold(row.allocator.clone(), |name, setting| name + &setting)
}

fn print(answer: &ReplayAnswer, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let replay = &answer.replay;
    let recorded = &replay.recorded;
    let recordings = match replay.recordings {
        1 => String::new(),
        several => format!(" in {several} recordings"),
    };
    let head =
        format!("recorded with {}{recordings}: at most {}", clean(&recorded.allocator), bytes(recorded.peak_bytes));
    writeln!(out, "{} of memory without a file, without the recorder", style.paint(TextRole::Strong, head))?;
    match &replay.self_check {
        Some(check) => writeln!(
            out,
            "{}self-check: its own allocator replayed takes {} at that moment ({:+.1}%) and {} at most; all rows may have an \
             error of this size",
            if replay.recordings > 1 { "worst " } else { "" },
            bytes(check.then_bytes),
            check.error * 100.0,
            bytes(check.peak_bytes)
        )?,
        None => writeln!(out, "no self-check: the recording's own allocator is not at hand")?,
    }
    writeln!(out)?;
    let mut table = TextTable::new(&[
        ("at most", Align::Right),
        ("at the end", Align::Right),
        ("processor", Align::Right),
        ("allocator", Align::Left),
    ]);
    for row in &replay.rows {
        let name = name_of(row);
        if let Some(failed) = row.failed.as_ref().filter(|_| row.peak_bytes[1] == 0) {
            let text = format!("{name}: {failed}");
            let none = String::new;
            table.row(vec![none().into(), none().into(), none().into(), TextCell::new(TextRole::Hot, clean(&text))]);
            continue;
        }
        table.row(vec![
            range(row.peak_bytes).into(),
            range(row.end_bytes).into(),
            TextCell::new(TextRole::Faint, duration(row.cpu_ns)),
            TextCell::new(TextRole::Name, name),
        ]);
    }
    table.print(style, out)?;
    if !replays::is_checked(replay) {
        return writeln!(out, "\nThe self-check failed: these are figures without a verdict.");
    }
    let others = replay.rows.iter().filter(|row| row.failed.is_none() && !replays::is_own(replay, row));
    let Some(best) = others.min_by_key(|row| row.end_bytes[1]) else { return Ok(()) };
    let own = answer.own_end_bytes.unwrap_or(recorded.peak_bytes).min(recorded.peak_bytes);
    if best.end_bytes[1] < own {
        if best.command.is_empty() {
            return writeln!(
                out,
                "\nLeast at the end: {}. LD_PRELOAD does not replace the allocator inside the program: build it with this \
                 one to prove it.",
                clean(&name_of(best))
            );
        }
        return writeln!(out, "\nLeast at the end. Prove it:\n  {}", clean(&best.command));
    }
    writeln!(out, "\nNo row takes less at the end than the program's own allocator, {}.", bytes(own))
}
