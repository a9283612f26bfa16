//! Reading against heaptrack: the same program is recorded by both, and what each recording takes to be read is
//! measured, in interleaved rounds.
//!
//! heaptrack pairs allocations with frees in two steps: `heaptrack_interpret` turns the raw recording into another file
//! (while the program runs, or afterwards), `heaptrack_print` reads that one. Both are shown.
//! `heaptrack_interpret` keeps a table of the distinct pairs of size and backtrace, which grows without end (until it
//! aborts) from some tens of thousands of them on: the program is asked for few sizes, so that long ones can be read.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

const INTERPRET: &str = "/usr/lib/heaptrack/libexec/heaptrack_interpret";
const ROUNDS: usize = 3;

/// Wall and processor seconds, the least of all rounds.
#[derive(Clone, Copy)]
struct Cost {
    wall: f64,
    cpu: f64,
}

impl Cost {
    const NONE: Self = Self { wall: f64::INFINITY, cpu: f64::INFINITY };

    fn least(self, other: Self) -> Self {
        Self { wall: self.wall.min(other.wall), cpu: self.cpu.min(other.cpu) }
    }
}

/// Records `program steps sizes` with both for each of `steps`, reads the recordings, prints rates and ratios.
pub fn run(library: &Path, source: &Path, steps: &[u64], sizes: u64) -> Result<()> {
    if !Path::new("/usr/bin/heaptrack_print").exists() || !Path::new(INTERPRET).exists() {
        println!("heaptrack is not installed (Debian: heaptrack): nothing to compare with.");
        return Ok(());
    }
    let library = library.canonicalize().with_context(|| format!("{}: `make build` makes it", library.display()))?;
    println!("Million events a second by wall clock / of processor time; starts of processes included.\n");
    println!(
        "| thousand steps | events | heaptrace, to the index | heaptrack, both steps | `heaptrack_print` alone | ratio to both | ratio to the second |"
    );
    println!("|---|---|---|---|---|---|---|");
    for &steps in steps {
        let measured = compare(&library, source, steps, sizes).with_context(|| format!("{steps} thousand steps"))?;
        let Measured { events, theirs, read, both, print } = measured;
        let rate =
            |events: f64, cost: Cost| format!("{:.2} / {:.2}", events / cost.wall / 1e6, events / cost.cpu / 1e6);
        let ratio = |other: Cost| {
            let (wall, cpu) = (events / read.wall, events / read.cpu);
            format!("{:.1} x / {:.1} x", wall / (theirs / other.wall), cpu / (theirs / other.cpu))
        };
        println!(
            "| {steps} | {events} | {} | {} | {} | {} | {} |",
            rate(events, read),
            rate(theirs, both),
            rate(theirs, print),
            ratio(both),
            ratio(print)
        );
    }
    Ok(())
}

/// What both read, and what it cost.
struct Measured {
    events: f64,
    theirs: f64,
    read: Cost,
    both: Cost,
    print: Cost,
}

fn compare(library: &Path, source: &Path, steps: u64, sizes: u64) -> Result<Measured> {
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    let program = at("program");
    ended(Command::new("cc").args(["-O1", "-pthread", "-o"]).arg(&program).arg(source))?;
    let arguments = [steps.to_string(), sizes.to_string()];
    let ours = at("ours.dat");
    let mut recorded = Command::new(&program);
    recorded.args(&arguments).env("LD_PRELOAD", library).env("TRACEHOUND_OUTPUT", &ours);
    ended(recorded.stdout(Stdio::null()))?;
    let mut recorded = Command::new("heaptrack");
    recorded.args(["--raw", "-o"]).arg(at("theirs")).arg(&program).args(&arguments);
    ended(recorded.stdout(Stdio::null()))?;
    let packed = std::fs::read_dir(folder.path())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("theirs")))
        .context("heaptrack left no recording")?;
    let unpack = if packed.extension().is_some_and(|e| e == "zst") { "zstd" } else { "gzip" };
    let (raw, interpreted) = (at("raw"), at("interpreted"));
    ended(Command::new(unpack).arg("-dc").arg(&packed).stdout(File::create(&raw)?))?;

    let (mut read, mut interpret, mut print) = (Cost::NONE, Cost::NONE, Cost::NONE);
    let mut events = 0.0;
    for _ in 0..ROUNDS {
        let (cost, count) = ingest(&ours)?;
        read = read.least(cost);
        events = count;
        let mut command = Command::new(INTERPRET);
        command.stdin(File::open(&raw)?).stdout(File::create(&interpreted)?).stderr(Stdio::null());
        interpret = interpret.least(timed(&mut command)?);
        // heaptrack_print tells formats by the ends of names.
        let packed = pack(&interpreted)?;
        print = print.least(timed(Command::new("heaptrack_print").arg(&packed).stdout(Stdio::null()))?);
    }
    let text = std::fs::read(&interpreted)?;
    let theirs = text.split(|&b| b == b'\n').filter(|line| matches!(line.first(), Some(b'+' | b'-'))).count() as f64;
    let both = Cost { wall: interpret.wall + print.wall, cpu: interpret.cpu + print.cpu };
    Ok(Measured { events, theirs, read, both, print })
}

fn pack(interpreted: &Path) -> Result<PathBuf> {
    let packed = interpreted.with_extension("gz");
    ended(Command::new("gzip").arg("-1c").arg(interpreted).stdout(File::create(&packed)?))?;
    Ok(packed)
}

fn ended(command: &mut Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).stderr(Stdio::null()).status();
    let status = status.with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// A program that does nothing but this, from its start to its end.
fn timed(command: &mut Command) -> Result<Cost> {
    let (start, before) = (Instant::now(), children_seconds()?);
    let status = command.stderr(Stdio::null()).status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    // Ticks are hundredths of a second.
    Ok(Cost { wall: start.elapsed().as_secs_f64(), cpu: (children_seconds()? - before).max(0.01) })
}

fn ingest(file: &Path) -> Result<(Cost, f64)> {
    let (start, before) = (Instant::now(), children_seconds()?);
    let output = Command::new(std::env::current_exe()?).arg("ingest").arg(file).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let cost = Cost { wall: start.elapsed().as_secs_f64(), cpu: (children_seconds()? - before).max(0.01) };
    let printed: Value = serde_json::from_slice(&output.stdout)?;
    Ok((cost, printed["events"].as_f64().context("no number of events")?))
}

/// Processor time of programs that we started and that have ended.
fn children_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let behind = stat.rsplit_once(')').context("an odd line of stat")?.1;
    let ticks: u64 = behind.split_whitespace().skip(13).take(2).filter_map(|t| t.parse::<u64>().ok()).sum();
    Ok(ticks as f64 / 100.0)
}
