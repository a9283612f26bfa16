//! `heaptrace fleet top`: the stacks with most bytes over all recordings.

use std::collections::{BTreeSet, HashMap};

use anyhow::Result;
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::{FleetMetric, Where, bytes};
use crate::tables::read::{Name, StackText};

/// Options of `fleet top`.
#[derive(Debug, clap::Args)]
pub struct FleetTopArgs {
    #[command(flatten)]
    place: Where,
    /// Only recordings of this version
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// What is summed
    #[arg(long, value_enum, default_value_t)]
    metric: FleetMetric,
    /// Show so many rows
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    rows: usize,
}

/// `heaptrace.fleet-top/1`.
#[derive(Debug, Serialize)]
struct FleetTop {
    schema: &'static str,
    metric: FleetMetric,
    recordings: usize,
    total_bytes: i64,
    total_stacks: usize,
    rows: Vec<FleetTopRow>,
}

#[derive(Debug, Serialize)]
struct FleetTopRow {
    bytes: i64,
    recordings: usize,
    #[serde(flatten)]
    stack: StackText,
}

/// Answers.
pub async fn run(args: FleetTopArgs) -> Result<()> {
    let store = args.place.store()?;
    let set = args.place.open(&store, args.version.as_deref()).await?;
    let mut sums: FxHashMap<Name, (f64, usize)> = HashMap::default();
    set.stacks("sites", &[args.metric.column()], &mut |_, stack, values| {
        if values[0] > 0.0 {
            let sum = sums.entry(stack).or_default();
            sum.0 += values[0];
            sum.1 += 1;
        }
    })
    .await?;
    let total: f64 = sums.values().map(|(bytes, _)| bytes).sum();
    let mut all: Vec<(Name, f64, usize)> = sums.into_iter().map(|(stack, (bytes, n))| (stack, bytes, n)).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let total_stacks = all.len();
    all.truncate(args.rows);
    let names = set.names(Some(&all.iter().map(|row| row.0).collect::<BTreeSet<_>>())).await?;
    let rows = all.into_iter().map(|(stack, bytes, recordings)| FleetTopRow {
        bytes: bytes as i64,
        recordings,
        stack: names.get(&stack),
    });
    let answer = FleetTop {
        schema: "heaptrace.fleet-top/1",
        metric: args.metric,
        recordings: set.recordings.len(),
        total_bytes: total as i64,
        total_stacks,
        rows: rows.collect(),
    };
    args.place.print(&answer, |top| {
        let mut out = format!(
            "{} {} in {} recordings, from {} stacks\n",
            bytes(top.total_bytes as f64),
            args.metric.column().trim_end_matches("_bytes"),
            top.recordings,
            top.total_stacks
        );
        for row in &top.rows {
            let share = 100.0 * row.bytes as f64 / (top.total_bytes as f64).max(1.0);
            out.push_str(&format!(
                "{:>10}  {share:>5.1}%  {:>4} rec.  {}\n",
                bytes(row.bytes as f64),
                row.recordings,
                row.stack.line()
            ));
        }
        out
    })
}
