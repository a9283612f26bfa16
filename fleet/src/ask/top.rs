//! `heaptrace fleet top`: the stacks with most bytes over all recordings, or in some minutes of the clock.

use std::collections::{BTreeSet, HashMap};

use anyhow::{Result, bail};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::interval::Interval;
use super::{FleetMetric, Where, bytes};
use crate::tables::read::{DataSet, Name, StackText};

/// Options of `fleet top`.
#[derive(Debug, clap::Args)]
pub struct FleetTopArgs {
    #[command(flatten)]
    place: Where,
    /// Only recordings of this version
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    #[command(flatten)]
    interval: Interval,
    /// What is summed [default: leaked; with --from or --to: grown]
    #[arg(long, value_enum)]
    metric: Option<FleetMetric>,
    /// Number of rows to show
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    rows: usize,
}

/// `heaptrace.fleet-top/1`.
#[derive(Debug, Serialize)]
struct FleetTop {
    schema: &'static str,
    metric: FleetMetric,
    /// The interval that was asked for, in UTC.
    from: Option<String>,
    to: Option<String>,
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

/// Runs the query.
pub async fn run(args: FleetTopArgs) -> Result<()> {
    args.interval.check()?;
    let metric = args.metric.unwrap_or(if args.interval.is_given() { FleetMetric::Grown } else { FleetMetric::Leaked });
    let store = args.place.store()?;
    let set = args.place.open(&store, args.version.as_deref()).await?;
    let sums = if args.interval.is_given() || metric == FleetMetric::Grown {
        of_minutes(&set, metric, args.interval).await?
    } else {
        of_recordings(&set, metric).await?
    };
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
    let [from, to] = args.interval.ends();
    let answer = FleetTop {
        schema: "heaptrace.fleet-top/1",
        metric,
        from,
        to,
        recordings: set.recordings.len(),
        total_bytes: total as i64,
        total_stacks,
        rows: rows.collect(),
    };
    args.place.print(&answer, |top| {
        let mut out = format!(
            "{} {} in {} recordings{}{}, from {} stacks\n",
            bytes(top.total_bytes as f64),
            metric.word(),
            top.recordings,
            top.from.as_ref().map_or_else(String::new, |from| format!(" from {from}")),
            top.to.as_ref().map_or_else(String::new, |to| format!(" to {to}")),
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

/// Bytes of each stack, and the number of recordings that have some.
type StackSums = FxHashMap<Name, (f64, usize)>;

async fn of_recordings(set: &DataSet<'_>, metric: FleetMetric) -> Result<StackSums> {
    let Some(column) = metric.column() else { bail!("{} is a sum of minutes", metric.word()) };
    let mut sums = StackSums::default();
    set.stacks("sites", &[column], &mut |_, stack, values| {
        if values[0] > 0.0 {
            let sum = sums.entry(stack).or_default();
            sum.0 += values[0];
            sum.1 += 1;
        }
    })
    .await?;
    Ok(sums)
}

async fn of_minutes(set: &DataSet<'_>, metric: FleetMetric, interval: Interval) -> Result<StackSums> {
    if !matches!(metric, FleetMetric::Grown | FleetMetric::Allocated) {
        bail!("of an interval there is what was allocated, and what grew: --metric allocated or grown");
    }
    let with_minutes = set.files("site_minutes").await?;
    if with_minutes.is_empty() {
        bail!("these recordings have no tables by the minute: an earlier version of heaptrace wrote them");
    }
    let mut by_recording: FxHashMap<(Name, u32), f64> = HashMap::default();
    set.stacks(
        "site_minutes",
        &["minute_unix_ns", "allocated_bytes", "freed_bytes"],
        &mut |recording, stack, values| {
            // A minute since 1970 is exact in 53 bits: its nanoseconds are a multiple of 2,048.
            let &[minute, allocated, freed] = values else { return };
            if interval.has(minute as i64) {
                let change = if metric == FleetMetric::Grown { allocated - freed } else { allocated };
                *by_recording.entry((stack, recording)).or_default() += change;
            }
        },
    )
    .await?;
    let mut sums = StackSums::default();
    for ((stack, _), bytes) in by_recording.into_iter().filter(|(_, bytes)| *bytes != 0.0) {
        let sum = sums.entry(stack).or_default();
        sum.0 += bytes;
        sum.1 += 1;
    }
    Ok(sums)
}
