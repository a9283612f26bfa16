//! Ingest: each run is a process of its own, so that its memory can be measured.

use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tracehound_ingest::{OpenOptions, Recording};
use tracehound_query::info;
use tracehound_recordings::{Shape, generate};

use crate::number;

/// Indexes a recording from nothing and prints rate, memory and sizes.
pub fn ingest(file: &Path, live_bytes: Option<u64>) -> Result<()> {
    let mut options = OpenOptions { rebuild: true, ..OpenOptions::default() };
    options.live_bytes = live_bytes.unwrap_or(options.live_bytes);
    let watch = Watch::start();
    let start = Instant::now();
    let trace = Recording::open(file, options)?.trace();
    let (seconds, cpu_seconds) = (start.elapsed().as_secs_f64(), usage_seconds()?);
    let anonymous = watch.stop();
    let info = info::run(&trace);
    let events = info.exactness.events;
    let index = folder_bytes(&index_of(file))?;
    println!(
        "{}",
        json!({
            "events": events,
            "allocs": info.allocations.count,
            "seconds": seconds,
            "events_per_second": events as f64 / seconds,
            "cpu_seconds": cpu_seconds,
            "cpu_ns_per_event": cpu_seconds * 1e9 / events as f64,
            "anonymous_peak_bytes": anonymous,
            "resident_peak_bytes": status("VmHWM:")?,
            "index_bytes": index,
            "index_bytes_per_allocation": index as f64 / info.allocations.count.max(1) as f64,
            "file_bytes": info.recorder.file_bytes,
            "peak_bytes": info.peak.bytes,
            "leaked_bytes": info.leaked.bytes,
        })
    );
    Ok(())
}

/// The index folder beside a recording.
pub fn index_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".idx");
    name.into()
}

fn folder_bytes(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir(folder)? {
        sum += entry?.metadata()?.len();
    }
    Ok(sum)
}

/// Processor time of this process, threads that ended included.
fn usage_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let behind = stat.rsplit_once(')').context("an odd line of stat")?.1;
    let ticks: u64 = behind.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<u64>().ok()).sum();
    // USER_HZ is 100 on every Linux that we run on.
    Ok(ticks as f64 / 100.0)
}

/// A figure of our own status, in bytes.
fn status(name: &str) -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find(|l| l.starts_with(name)).context("the kernel tells no memory figures")?;
    let kib: u64 = line.split_whitespace().nth(1).context("an odd line of status")?.parse()?;
    Ok(kib * 1024)
}

/// Looks at our own memory a hundred times a second.
struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Watch {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let watch = move || {
            let mut most = 0;
            while !stopped.load(Ordering::Relaxed) {
                most = status("RssAnon:").unwrap_or(0).max(most);
                std::thread::sleep(Duration::from_millis(10));
            }
            most
        };
        Self { stop, thread: std::thread::spawn(watch) }
    }

    /// Largest resident memory that was not a mapped file's.
    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or(0)
    }
}

/// Generates, indexes and asks at each size, and prints one table.
pub fn scale(sizes: &[String], windows: usize, folder: Option<PathBuf>, shape: &Shape) -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let folder = folder.unwrap_or_else(|| temporary.path().to_path_buf());
    std::fs::create_dir_all(&folder)?;
    let me = std::env::current_exe()?;
    let mut rows = Vec::new();
    for size in sizes {
        let shape = Shape { events: number(size)?, ..*shape };
        let file = folder.join(format!("bench-{size}-{}n-{}t-{}.dat", shape.nodes, shape.threads, shape.seed));
        if !file.exists() {
            let out = BufWriter::with_capacity(1 << 20, std::fs::File::create(&file)?);
            generate(out, &shape)?;
        }
        let run = |arguments: &[&str]| -> Result<Value> {
            let output = Command::new(&me).args(arguments).arg(&file).output()?;
            ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Ok(serde_json::from_slice(&output.stdout)?)
        };
        let ingested = run(&["ingest"])?;
        let mut asked = run(&["ask", "--windows", &windows.to_string()])?;
        asked["cold"] = run(&["cold"])?;
        rows.push((size.clone(), ingested, asked));
    }
    print_table(&rows);
    Ok(())
}

/// Allocations a second that bytehound 0.11 read on a machine of this kind, at most.
const BYTEHOUND: f64 = 0.8e6;

fn print_table(rows: &[(String, Value, Value)]) {
    let number = |value: &Value, scale: f64| value.as_f64().map_or_else(String::new, |v| format!("{:.2}", v / scale));
    let mut lines: Vec<(String, &str, Vec<String>)> = Vec::new();
    let mut line = |name: &str, goal: &'static str, cells: Vec<String>| lines.push((name.to_owned(), goal, cells));
    let ingest = |key: &str, scale: f64| rows.iter().map(|r| number(&r.1[key], scale)).collect::<Vec<_>>();
    let against = |r: &(String, Value, Value)| {
        let (allocs, seconds) = (r.1["allocs"].as_f64()?, r.1["seconds"].as_f64()?);
        Some(format!("{:.1}x", allocs / seconds / BYTEHOUND))
    };
    line("ingest, million events a second", "8", ingest("events_per_second", 1e6));
    line("ingest, seconds", "linear", ingest("seconds", 1.0));
    line("ingest, processor nanoseconds an event", "250", ingest("cpu_ns_per_event", 1.0));
    let ratios = rows.iter().map(|r| against(r).unwrap_or_default()).collect();
    line("ingest against bytehound's 0.8 million allocations a second", "10x", ratios);
    line("memory while ingesting without mapped files, MiB", "512", ingest("anonymous_peak_bytes", 1048576.0));
    line("memory while ingesting with mapped files, MiB", "", ingest("resident_peak_bytes", 1048576.0));
    line("recording, bytes an event", "", rows.iter().map(|r| per(&r.1, "file_bytes", "events")).collect());
    line("index, bytes an allocation", "40", ingest("index_bytes_per_allocation", 1.0));
    line("second open to the first answer, ms", "1000", rows.iter().map(|r| number(&r.2["open_ms"], 1.0)).collect());
    for (key, name, goal) in [
        ("first_ms", "first answer, index on the disk alone, ms", "1000"),
        ("timeline_ms", "then the timeline, ms", ""),
        ("leaked_ms", "then what is left, ms", ""),
        ("filtered_ms", "then what is live, by size, ms", ""),
    ] {
        line(name, goal, rows.iter().map(|r| number(&r.2["cold"][key], 1.0)).collect());
    }
    let names: Vec<String> =
        rows.first().and_then(|r| r.2["questions"].as_array()).map_or_else(Vec::new, |questions| {
            questions.iter().filter_map(|q| q["name"].as_str().map(str::to_owned)).collect()
        });
    for (at, name) in names.iter().enumerate() {
        let cell = |r: &(String, Value, Value)| {
            let q = &r.2["questions"][at];
            let of = |key: &str| number(&q[key], 1.0);
            format!("{} / {} / {}", of("p50_ms"), of("p95_ms"), of("cpu_p95_ms"))
        };
        let goal = match name {
            name if name.starts_with("by ") => "500",
            name if ["timeline", "flame graph", "functions"].iter().any(|start| name.starts_with(start)) => "100",
            _ => "",
        };
        line(name, goal, rows.iter().map(cell).collect());
    }
    println!("Questions: p50 / p95 / p95 of processor time, milliseconds, over random windows; goals are for p95.\n");
    print!("| | goal |");
    rows.iter().for_each(|r| print!(" {} |", r.0));
    print!("\n|---|---|");
    rows.iter().for_each(|_| print!("---|"));
    println!();
    for (name, goal, cells) in lines {
        println!("| {name} | {goal} | {} |", cells.join(" | "));
    }
    println!();
}

fn per(value: &Value, above: &str, below: &str) -> String {
    match (value[above].as_f64(), value[below].as_f64()) {
        (Some(a), Some(b)) if b > 0.0 => format!("{:.2}", a / b),
        _ => String::new(),
    }
}
