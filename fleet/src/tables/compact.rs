//! Many small files of a closed day as one of each table, sorted by stack, so that equal names lie side by side; stacks and
//! frames once.
//!
//! ```text
//! write compact-<number>.parquet of each table → write _state/….json, which says what counts → delete the small files
//! ```
//! Stopped anywhere, sums are the same: without the state the small files count, with it the compacted ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context, Result};
use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use serde::{Deserialize, Serialize};

use super::read::{BatchRecordings, batches_of, day_of};
use super::{ADDED, RECORDINGS, ROOT, TABLES, value_of, write};
use crate::store::Store;

/// What counts of a day that was compacted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DayState {
    /// `heaptrace.fleet-day/1`.
    pub schema: String,
    /// How often it was compacted.
    pub generation: u64,
    /// The file of each table.
    pub files: BTreeMap<String, String>,
    /// The recordings that are in them.
    pub recordings: BTreeSet<String>,
}

/// All days that were compacted.
///
/// # Errors
/// When the store does not answer.
pub async fn states(store: &Store) -> Result<BTreeMap<String, DayState>> {
    let mut states = BTreeMap::new();
    for (name, _) in store.list(&format!("{ROOT}/_state")).await? {
        let Some(day) = name.strip_suffix(".json").and_then(day_of) else { continue };
        let state = store.get(&name).await?;
        states.insert(day, serde_json::from_slice(&state).with_context(|| format!("{name} in the store"))?);
    }
    Ok(states)
}

/// What was done.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Days.
    pub days: usize,
    /// Small files that went.
    pub files: usize,
}

/// Compacts the days before `before` (`YYYY-MM-DD`) that have something new. `after_step` is called behind each step that
/// a crash may follow.
///
/// # Errors
/// When the store does not answer or take a file, or `after_step` says so.
pub async fn compact(store: &Store, before: &str, after_step: &mut dyn FnMut(&str) -> Result<()>) -> Result<Compacted> {
    let states = states(store).await?;
    // A recording is of a day when its row is there.
    let mut fresh: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, _) in store.list(&format!("{ROOT}/{RECORDINGS}")).await? {
        let closed = value_of(&name, "day").is_some_and(|day| day < before);
        if let (true, Some(day), Some(id)) = (closed, day_of(&name), value_of(&name, "recording")) {
            fresh.entry(day).or_default().insert(id.to_owned());
        }
    }
    let mut done = Compacted::default();
    for (day, ids) in fresh {
        let known = states.get(&day).cloned().unwrap_or_default();
        if !ids.is_subset(&known.recordings) {
            done.days += 1;
            one_day(store, &day, &ids, &known, after_step).await?;
        }
        done.files += delete_small(store, &day, after_step).await?;
    }
    Ok(done)
}

async fn one_day(
    store: &Store,
    day: &str,
    ids: &BTreeSet<String>,
    known: &DayState,
    after_step: &mut dyn FnMut(&str) -> Result<()>,
) -> Result<()> {
    let mut state = DayState {
        schema: "heaptrace.fleet-day/1".into(),
        generation: known.generation + 1,
        recordings: known.recordings.union(ids).cloned().collect(),
        files: BTreeMap::new(),
    };
    for table in TABLES.into_iter().chain([RECORDINGS]) {
        let mut parts = Vec::new();
        if let Some(file) = known.files.get(table) {
            let path = format!("{ROOT}/{table}/{day}/{file}");
            parts.push((path.clone(), batches_of(store.get(&path).await?)?));
        }
        let there = if ADDED.contains(&table) { Some(recordings_with(store, table, day).await?) } else { None };
        for id in ids.difference(&known.recordings) {
            if there.as_ref().is_some_and(|there| !there.contains(id)) {
                continue;
            }
            let path = format!("{ROOT}/{table}/{day}/recording={id}/{table}.parquet");
            parts.push((path.clone(), batches_of(store.get(&path).await?).with_context(|| path.clone())?));
        }
        let file = format!("compact-{:06}.parquet", state.generation);
        if let Some(bytes) = merged(table, &parts)? {
            store.put(&format!("{ROOT}/{table}/{day}/{file}"), bytes.into()).await?;
            state.files.insert(table.into(), file);
        }
        after_step("a table was written")?;
    }
    store.put(&format!("{ROOT}/_state/{day}.json"), serde_json::to_vec_pretty(&state)?.into()).await?;
    after_step("the state was written")
}

/// The recordings of a day that have a table.
async fn recordings_with(store: &Store, table: &str, day: &str) -> Result<BTreeSet<String>> {
    let names = store.list(&format!("{ROOT}/{table}/{day}")).await?;
    Ok(names.iter().filter_map(|(name, _)| value_of(name, "recording").map(str::to_owned)).collect())
}

/// What the state of a day does not name any more.
async fn delete_small(store: &Store, day: &str, after_step: &mut dyn FnMut(&str) -> Result<()>) -> Result<usize> {
    let states = states(store).await?;
    let Some(state) = states.get(day) else { return Ok(0) };
    let mut deleted = 0;
    // The rows of recordings go last: a stopped run finds by them what is left.
    for table in TABLES.into_iter().chain([RECORDINGS]) {
        for (name, _) in store.list(&format!("{ROOT}/{table}/{day}")).await? {
            let is_old = match value_of(&name, "recording") {
                Some(id) => state.recordings.contains(id),
                None => state.files.get(table).is_none_or(|file| !name.ends_with(file.as_str())),
            };
            if is_old {
                store.delete(&name).await?;
                deleted += 1;
                after_step("a small file was deleted")?;
            }
        }
    }
    Ok(deleted)
}

/// The rows of all parts, sorted by what they are found by; `None` if there are none. Stacks and frames are there once,
/// whichever recording they are of.
fn merged(table: &str, parts: &[(String, Vec<RecordBatch>)]) -> Result<Option<Vec<u8>>> {
    let is_shared = matches!(table, "stacks" | "frames");
    let Some(first) = parts.iter().flat_map(|(_, batches)| batches).next() else { return Ok(None) };
    let own: Vec<Arc<Field>> =
        first.schema().fields().iter().filter(|field| field.name() != "recording").cloned().collect();
    let mut all = Vec::new();
    for (path, batches) in parts {
        for batch in batches {
            let mut columns: Vec<ArrayRef> = Vec::new();
            for field in &own {
                let column = batch.column_by_name(field.name()).with_context(|| format!("{path}: {}", field.name()))?;
                columns.push(Arc::clone(column));
            }
            if !is_shared {
                let ids = BatchRecordings::of(path, batch)?;
                let ids = (0..batch.num_rows()).map(|row| Some(ids.at(row)));
                columns.insert(0, Arc::new(ids.collect::<StringArray>()));
            }
            all.push(columns);
        }
    }
    let mut fields: Vec<Arc<Field>> = own;
    if !is_shared {
        fields.insert(0, Arc::new(Field::new("recording", DataType::Utf8, false)));
    }
    let schema = Arc::new(Schema::new(fields));
    let batches = all
        .into_iter()
        .map(|columns| RecordBatch::try_new(Arc::clone(&schema), columns))
        .collect::<Result<Vec<_>, _>>()?;
    let sorted = sorted(&batches, is_shared)?;
    Ok(Some(write::file_of(&[sorted], &schema)?))
}

/// One batch of all, by stack (or frame and level), then by recording.
fn sorted(batches: &[RecordBatch], is_shared: bool) -> Result<RecordBatch> {
    let mut rows: Vec<(Vec<u8>, usize, usize)> = Vec::new();
    for (number, batch) in batches.iter().enumerate() {
        let key = ["stack", "frame"].into_iter().find_map(|name| batch.column_by_name(name));
        let key = key.and_then(|column| column.as_fixed_size_binary_opt());
        let level = batch.column_by_name("level").and_then(|c| c.as_primitive_opt::<arrow_array::types::Int64Type>());
        let recording = batch.column_by_name("recording").and_then(|column| column.as_string_opt::<i32>());
        for row in 0..batch.num_rows() {
            let mut sort = key.map_or(Vec::new(), |column| column.value(row).to_vec());
            sort.extend(level.map_or(0, |column| column.value(row)).to_be_bytes());
            sort.extend(recording.map_or("", |column| column.value(row)).as_bytes());
            rows.push((sort, number, row));
        }
    }
    rows.sort();
    if is_shared {
        rows.dedup_by(|a, b| a.0 == b.0);
    }
    let places: Vec<(usize, usize)> = rows.into_iter().map(|(_, batch, row)| (batch, row)).collect();
    Ok(arrow_select::interleave::interleave_record_batch(&batches.iter().collect::<Vec<_>>(), &places)?)
}
