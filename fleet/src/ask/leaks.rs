//! `heaptrace fleet leaks`: the stacks that grow, by service and version.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use serde::Serialize;

use super::{Where, bytes};
use crate::tables::read::{BatchRecordings, DataSet, Name, RecordingRow, StackText};

/// Options of `fleet leaks`.
#[derive(Debug, clap::Args)]
pub struct FleetLeaksArgs {
    #[command(flatten)]
    place: Where,
    /// Only recordings of this version
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// Number of rows to show
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    rows: usize,
}

/// `heaptrace.fleet-leaks/1`.
#[derive(Debug, Serialize)]
pub struct FleetLeaks {
    schema: &'static str,
    recordings: usize,
    /// What grows in most recordings first.
    pub rows: Vec<FleetLeakRow>,
    /// Rows that were left out.
    pub hidden: usize,
}

#[derive(Debug, Serialize)]
pub struct FleetLeakRow {
    /// The service whose recordings have it.
    pub service: String,
    /// The version in which it grows.
    pub version: String,
    /// Recordings in which it grows.
    pub growing: usize,
    /// Of so many of this version.
    pub recordings: usize,
    /// What they have of it in all.
    pub bytes: i64,
    /// Mean over the recordings in which it grows.
    pub bytes_per_second: f64,
    freed_at_exit: bool,
    /// The stack.
    #[serde(flatten)]
    pub stack: StackText,
}

#[derive(Default)]
struct FleetLeakSum {
    recordings: BTreeSet<String>,
    bytes: i64,
    rate: f64,
    late: bool,
}

/// Runs the query.
pub async fn run(args: FleetLeaksArgs) -> Result<()> {
    let store = args.place.store()?;
    let set = args.place.open(&store, args.version.as_deref()).await?;
    let answer = growing(&set, args.rows).await?;
    args.place.print(&answer, |leaks| {
        let mut out = format!("{} recordings\n", leaks.recordings);
        if leaks.rows.is_empty() {
            out.push_str("nothing grows\n");
        }
        for row in &leaks.rows {
            let late = if row.freed_at_exit { ", freed at exit" } else { "" };
            out.push_str(&format!(
                "{} {}: grows in {} of {} recordings, {}/s each, {} in all{late}\n    {}\n",
                crate::clean(&row.service),
                crate::clean(&row.version),
                row.growing,
                row.recordings,
                bytes(row.bytes_per_second),
                bytes(row.bytes as f64),
                row.stack.line()
            ));
        }
        if leaks.hidden > 0 {
            out.push_str(&format!("… and {} more (-n shows more)\n", leaks.hidden));
        }
        out
    })
}

/// The stacks that grow, so many rows at most.
///
/// # Errors
/// When the store does not answer, or a file is none of ours.
pub async fn growing(set: &DataSet<'_>, most: usize) -> Result<FleetLeaks> {
    let known: BTreeMap<&str, &RecordingRow> = set.recordings.iter().map(|row| (row.id.as_str(), row)).collect();
    let mut all: BTreeMap<(Name, &str, &str), FleetLeakSum> = BTreeMap::new();
    let mut of_batch = |path: &str, batch: &RecordBatch| -> Result<()> {
        let column = |name: &str| batch.column_by_name(name).with_context(|| format!("there is no column {name}"));
        let kinds = column("kind")?.as_string_opt::<i32>().context("kind")?;
        let stacks = column("stack")?.as_fixed_size_binary_opt().context("stack")?;
        let sizes = column("bytes")?.as_primitive_opt::<Int64Type>().context("bytes")?;
        let rates = column("bytes_per_second")?.as_primitive_opt::<Float64Type>().context("bytes_per_second")?;
        let late = column("freed_at_exit")?.as_boolean_opt().context("freed_at_exit")?;
        let recordings = BatchRecordings::of(path, batch)?;
        for row in (0..batch.num_rows()).filter(|&row| kinds.is_valid(row) && kinds.value(row) == "growing") {
            let Some(about) = known.get(recordings.at(row)) else { continue };
            let stack: Name = stacks.value(row).try_into().context("stack")?;
            let sum = all.entry((stack, &about.service, &about.version)).or_default();
            sum.recordings.insert(recordings.at(row).to_owned());
            sum.bytes += sizes.value(row);
            sum.rate += rates.value(row);
            sum.late |= late.value(row);
        }
        Ok(())
    };
    let columns = ["kind", "stack", "bytes", "bytes_per_second", "freed_at_exit"];
    set.scan("verdicts", &columns, &mut of_batch).await?;
    let names = set.names(Some(&all.keys().map(|key| key.0).collect())).await?;
    let of_version = |service: &str, version: &str| {
        set.recordings.iter().filter(|row| row.service == service && row.version == version).count()
    };
    let mut rows: Vec<FleetLeakRow> = all
        .into_iter()
        .map(|((stack, service, version), sum)| FleetLeakRow {
            service: service.to_owned(),
            version: version.to_owned(),
            growing: sum.recordings.len(),
            recordings: of_version(service, version),
            bytes: sum.bytes,
            bytes_per_second: sum.rate / sum.recordings.len() as f64,
            freed_at_exit: sum.late,
            stack: names.get(&stack),
        })
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse((row.growing, row.bytes)));
    let hidden = rows.len().saturating_sub(most);
    rows.truncate(most);
    Ok(FleetLeaks { schema: "heaptrace.fleet-leaks/1", recordings: set.recordings.len(), rows, hidden })
}
