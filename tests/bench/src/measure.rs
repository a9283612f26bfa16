//! Ingest: each run is a process of its own, so that its memory can be told.

use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tracehound_recordings::{Shape, generate};
use tracehound_server::ingest::{OpenOptions, Recording};
use tracehound_server::query::info;

use crate::number;

/// Indexes a recording from nothing and prints rate, memory and sizes.
pub fn ingest(file: &Path, live_bytes: Option<u64>) -> Result<()> {
    let mut options = OpenOptions { rebuild: true, ..OpenOptions::default() };
    options.live_bytes = live_bytes.unwrap_or(options.live_bytes);
    let start = Instant::now();
    let trace = Recording::open(file, options)?.trace();
    let seconds = start.elapsed().as_secs_f64();
    let info = info::run(&trace);
    let events = info.exactness.events;
    let index = folder_bytes(&index_of(file))?;
    println!(
        "{}",
        json!({
            "events": events,
            "births": info.allocations.count,
            "seconds": seconds,
            "events_per_second": events as f64 / seconds,
            "anonymous_peak_bytes": peak_anonymous()?,
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

/// A figure of our own status, in bytes.
fn status(name: &str) -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find(|l| l.starts_with(name)).context("the kernel tells no memory figures")?;
    let kib: u64 = line.split_whitespace().nth(1).context("an odd line of status")?.parse()?;
    Ok(kib * 1024)
}

/// Largest resident memory that is not a mapped file's, as far as a sample after the fact can tell: the largest
/// resident set minus what is file-backed now, or what is anonymous now, whichever is larger.
fn peak_anonymous() -> Result<u64> {
    Ok(status("RssAnon:")?.max(status("VmHWM:")?.saturating_sub(status("RssFile:")? + status("RssShmem:")?)))
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
        let asked = run(&["ask", "--windows", &windows.to_string()])?;
        rows.push((size.clone(), ingested, asked));
    }
    print_table(&rows);
    Ok(())
}

fn print_table(rows: &[(String, Value, Value)]) {
    let number = |value: &Value, scale: f64| value.as_f64().map_or_else(String::new, |v| format!("{:.2}", v / scale));
    let mut lines: Vec<(String, Vec<String>)> = Vec::new();
    let mut line = |name: &str, cells: Vec<String>| lines.push((name.to_owned(), cells));
    let ingest = |key: &str, scale: f64| rows.iter().map(|r| number(&r.1[key], scale)).collect::<Vec<_>>();
    line("ingest, million events a second", ingest("events_per_second", 1e6));
    line("ingest, seconds", ingest("seconds", 1.0));
    line("memory while ingesting without mapped files, MiB", ingest("anonymous_peak_bytes", 1048576.0));
    line("recording, bytes an event", rows.iter().map(|r| per(&r.1, "file_bytes", "events")).collect());
    line("index, bytes an allocation", ingest("index_bytes_per_allocation", 1.0));
    line("second open to the first answer, ms", rows.iter().map(|r| number(&r.2["open_ms"], 1.0)).collect());
    let names: Vec<String> =
        rows.first().and_then(|r| r.2["questions"].as_array()).map_or_else(Vec::new, |questions| {
            questions.iter().filter_map(|q| q["name"].as_str().map(str::to_owned)).collect()
        });
    for (at, name) in names.iter().enumerate() {
        let cell = |r: &(String, Value, Value)| {
            let q = &r.2["questions"][at];
            format!("{} / {}", number(&q["p50_ms"], 1.0), number(&q["p95_ms"], 1.0))
        };
        line(&format!("{name}, p50 / p95 ms"), rows.iter().map(cell).collect());
    }
    print!("| |");
    rows.iter().for_each(|r| print!(" {} |", r.0));
    print!("\n|---|");
    rows.iter().for_each(|_| print!("---|"));
    println!();
    for (name, cells) in lines {
        println!("| {name} | {} |", cells.join(" | "));
    }
}

fn per(value: &Value, above: &str, below: &str) -> String {
    match (value[above].as_f64(), value[below].as_f64()) {
        (Some(a), Some(b)) if b > 0.0 => format!("{:.2}", a / b),
        _ => String::new(),
    }
}
