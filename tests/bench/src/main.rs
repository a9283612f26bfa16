//! `tracehound-bench`: makes recordings of any size, and measures how fast they are indexed and asked about.
//!
//! ```text
//! tracehound-bench generate OUT [shape]       write a recording
//! tracehound-bench scale [--events 1m,10m]    for each size: ingest rate, memory, index size, latencies of questions
//! tracehound-bench ingest FILE                index one recording (run by `scale` as a process of its own, for its memory)
//! tracehound-bench rival                      read recordings of the same program with heaptrace and with heaptrack
//! ```

mod measure;
mod queries;
mod rival;

use std::io::BufWriter;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use tracehound_recordings::{Shape, generate};

#[derive(Debug, Parser)]
#[command(about, version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write a recording
    Generate {
        /// The file
        out: PathBuf,
        #[command(flatten)]
        shape: ShapeArgs,
    },
    /// Measure at several sizes and print a table
    Scale {
        /// Sizes, in events: `1m,10m,100m`
        #[arg(long, default_value = "1m,10m", value_delimiter = ',')]
        sizes: Vec<String>,
        /// Windows asked about, for each kind of question
        #[arg(long, default_value_t = 40)]
        windows: usize,
        /// Where the recordings lie; they are kept there and used again
        #[arg(long)]
        folder: Option<PathBuf>,
        #[command(flatten)]
        shape: ShapeArgs,
    },
    /// Index one recording and print what it took, as JSON
    Ingest {
        /// The recording
        file: PathBuf,
        /// Bytes of memory for the table of live blocks
        #[arg(long)]
        live_bytes: Option<u64>,
    },
    /// Record a program with both and compare how fast the recordings are read
    Rival {
        /// The recorder
        #[arg(long, default_value = "target/release/libtracehound.so")]
        library: PathBuf,
        /// Source of the program; its arguments are thousands of steps and a number of distinct sizes
        #[arg(long, default_value = "tests/programs/churn.c")]
        source: PathBuf,
        /// Thousands of steps, one number for each recording
        #[arg(long, default_value = "100,1000,10000", value_delimiter = ',')]
        steps: Vec<u64>,
        /// Distinct sizes of the program's blocks
        #[arg(long, default_value_t = 40)]
        distinct_sizes: u64,
    },
    /// Ask the first questions about a recording whose index is not in the page cache, and print latencies, as JSON
    Cold {
        /// The recording
        file: PathBuf,
    },
    /// Ask about one recording and print latencies, as JSON
    Ask {
        /// The recording
        file: PathBuf,
        /// Windows asked about, for each kind of question
        #[arg(long, default_value_t = 40)]
        windows: usize,
    },
}

#[derive(Debug, Args)]
struct ShapeArgs {
    /// Events: allocations and frees
    #[arg(long, default_value = "1m")]
    events: String,
    /// Threads
    #[arg(long, default_value_t = 4)]
    threads: u32,
    /// Nodes of the call tree
    #[arg(long, default_value_t = 20_000)]
    nodes: u32,
    /// Distinct functions, used by Zipf's law; 0: about as many as nodes, used evenly
    #[arg(long, default_value_t = 0)]
    functions: u32,
    /// Allocating backtraces
    #[arg(long, default_value_t = 5_000)]
    sites: u32,
    /// Frames of a backtrace
    #[arg(long, default_value_t = 24)]
    depth: u32,
    /// Blocks that live at once
    #[arg(long, default_value = "1m")]
    live: String,
    /// Part of the allocations that are freed soon
    #[arg(long, default_value_t = 0.7)]
    short_lived: f64,
    /// Part of the events that are reallocs
    #[arg(long, default_value_t = 0.02)]
    reallocs: f64,
    /// Mean nanoseconds between events
    #[arg(long, default_value_t = 50)]
    pause: u64,
    /// Picks another recording of the same shape
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl ShapeArgs {
    fn shape(&self) -> Result<Shape> {
        Ok(Shape {
            events: number(&self.events)?,
            threads: self.threads,
            nodes: self.nodes,
            functions: self.functions,
            sites: self.sites,
            depth: self.depth,
            live: u32::try_from(number(&self.live)?).context("--live is too large")?,
            short_lived: self.short_lived,
            reallocs: self.reallocs,
            pause: self.pause,
            seed: self.seed,
            ..Shape::default()
        })
    }
}

/// `5`, `10k`, `1m`, `2g`: decimal multiples.
pub fn number(text: &str) -> Result<u64> {
    let text = text.trim().to_ascii_lowercase();
    let (digits, factor) = match text.strip_suffix(['k', 'm', 'g']) {
        Some(digits) if text.ends_with('k') => (digits, 1_000),
        Some(digits) if text.ends_with('m') => (digits, 1_000_000),
        Some(digits) => (digits, 1_000_000_000),
        None => (text.as_str(), 1),
    };
    let value: u64 = digits.parse().with_context(|| format!("`{text}` is no number such as `10m`"))?;
    value.checked_mul(factor).with_context(|| format!("`{text}` is too large"))
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Generate { out, shape } => {
            let file = std::fs::File::create(&out).with_context(|| out.display().to_string())?;
            let made = generate(BufWriter::with_capacity(1 << 20, file), &shape.shape()?)?;
            println!(
                "{{\"allocs\":{},\"frees\":{},\"peak\":{},\"live\":{},\"file_bytes\":{}}}",
                made.allocs, made.frees, made.peak, made.live, made.file
            );
            Ok(())
        }
        Command::Scale { sizes, windows, folder, shape } => measure::scale(&sizes, windows, folder, &shape.shape()?),
        Command::Ingest { file, live_bytes } => measure::ingest(&file, live_bytes),
        Command::Rival { library, source, steps, distinct_sizes } => {
            rival::run(&library, &source, &steps, distinct_sizes)
        }
        Command::Cold { file } => queries::cold(&file),
        Command::Ask { file, windows } => queries::ask(&file, windows),
    }
}
