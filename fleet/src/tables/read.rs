//! The data set as questions read it: recordings, sums of stacks in them, and what stacks are called.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context, Result};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, RecordBatch, StringArray};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use rustc_hash::FxHashMap;
use tracehound_index::program::CodeKind;

use super::{RECORDINGS, ROOT, unescape, value_of};
use crate::labels::Collected;
use crate::store::Store;

/// Objects that are read at once.
const AT_ONCE: usize = 8;

/// The name of a stack or a frame everywhere.
pub type Name = [u8; 16];

/// A recording, by its row and its partition.
#[derive(Debug, Clone)]
pub struct RecordingRow {
    pub id: String,
    pub service: String,
    pub version: String,
    pub day: String,
    pub host: String,
    pub started_unix_ns: i64,
    pub duration_ns: i64,
    pub peak_bytes: i64,
    pub leaked_bytes: i64,
    pub allocated_bytes: i64,
    pub peak_rss_bytes: i64,
    pub complete: bool,
}

/// Which recordings a question is about.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    pub service: Option<String>,
    pub version: Option<String>,
    pub since: Option<String>,
    pub until: Option<String>,
}

impl Scope {
    /// Whether a recording is in it that has no tables yet.
    fn has_collected(&self, about: &Collected) -> bool {
        let is = |wanted: &Option<String>, name: &str| wanted.as_ref().is_none_or(|wanted| wanted == name);
        let day = crate::ask::day_of(about.started_unix_ns / 1_000_000_000 / 86_400);
        is(&self.service, &about.service)
            && is(&self.version, &about.version)
            && self.since.as_deref().is_none_or(|since| day.as_str() >= since)
            && self.until.as_deref().is_none_or(|until| day.as_str() <= until)
    }

    fn has(&self, path: &str) -> bool {
        let is = |wanted: &Option<String>, key: &str| {
            wanted.as_ref().is_none_or(|wanted| value_of(path, key).is_some_and(|value| unescape(value) == *wanted))
        };
        let day = value_of(path, "day").unwrap_or_default();
        is(&self.service, "service")
            && is(&self.version, "version")
            && self.since.as_deref().is_none_or(|since| day >= since)
            && self.until.as_deref().is_none_or(|until| day <= until)
    }
}

/// A data set, opened: which files count.
pub struct DataSet<'a> {
    store: &'a Store,
    scope: Scope,
    /// The recordings, in order of their start.
    pub recordings: Vec<RecordingRow>,
    /// Days that were compacted, with the file that counts for each table.
    compacted: BTreeMap<String, super::compact::DayState>,
}

/// `service=…/version=…/day=…` of a path in the set.
pub fn day_of(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').collect();
    let at = parts.iter().position(|part| part.starts_with("service="))?;
    Some(parts.get(at..at + 3)?.join("/"))
}

impl<'a> DataSet<'a> {
    /// Reads which recordings there are.
    ///
    /// # Errors
    /// When the store does not answer, or a file is none of ours.
    pub async fn open(store: &'a Store, scope: Scope) -> Result<Self> {
        let compacted = super::compact::states(store).await?;
        let mut set = Self { store, scope, recordings: Vec::new(), compacted };
        let mut rows = Vec::new();
        let mut of_batch = |path: &str, batch: &RecordBatch| -> Result<()> {
            for row in 0..batch.num_rows() {
                rows.push(recording_of(path, batch, row)?);
            }
            Ok(())
        };
        set.scan(RECORDINGS, &RECORDING_COLUMNS, &mut of_batch).await?;
        rows.sort_by(|a, b| (a.started_unix_ns, &a.id).cmp(&(b.started_unix_ns, &b.id)));
        set.recordings = rows;
        Ok(set)
    }

    /// How many whole recordings of the store have no tables yet, and would be in the set if they had.
    ///
    /// # Errors
    /// When the store does not answer, or what it knows of a recording cannot be read.
    pub async fn without_tables(&self) -> Result<usize> {
        let mut packed: BTreeSet<String> =
            self.compacted.values().flat_map(|state| state.recordings.iter().cloned()).collect();
        for (name, _) in self.store.list(&format!("{ROOT}/{RECORDINGS}")).await? {
            packed.extend(value_of(&name, "recording").map(str::to_owned));
        }
        let mut count = 0;
        for id in self.store.whole().await? {
            if !packed.contains(&id) && self.scope.has_collected(&self.store.about(&id).await?) {
                count += 1;
            }
        }
        Ok(count)
    }

    /// The files of a table that count: of recordings as they came, and of compacted days.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn files(&self, table: &str) -> Result<Vec<String>> {
        let names = self.store.list(&format!("{ROOT}/{table}")).await?.into_iter().map(|(name, _)| name);
        Ok(names
            .filter(|name| name.ends_with(".parquet") && self.scope.has(name) && self.counts(table, name))
            .collect())
    }

    /// The columns of a table's files; those of its folders are not among them.
    ///
    /// # Errors
    /// When the store does not answer, or the file is none of ours.
    pub async fn columns(&self, table: &str) -> Result<Vec<String>> {
        let Some(name) = self.files(table).await?.into_iter().next() else { return Ok(Vec::new()) };
        let bytes = self.store.get(&name).await?;
        let builder = ParquetRecordBatchReaderBuilder::try_new(bytes).with_context(|| name.clone())?;
        Ok(builder.schema().fields().iter().map(|field| field.name().clone()).collect())
    }

    /// Hands on the rows of a table that count, with the columns that are named (and `recording`, where that is one), by
    /// batches: files are read and decoded side by side, and few batches of each are in memory.
    ///
    /// # Errors
    /// When the store does not answer, a file is none of ours, or `each` says so.
    pub async fn scan(
        &self,
        table: &str,
        columns: &[&str],
        each: &mut dyn FnMut(&str, &RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let columns: Arc<[String]> = columns.iter().map(|&name| name.to_owned()).collect();
        let store = self.store;
        let decoded = stream::iter(self.files(table).await?).map(|name| {
            let columns = Arc::clone(&columns);
            async move {
                let bytes = store.get(&name).await?;
                let (sender, batches) = tokio::sync::mpsc::channel::<Result<RecordBatch>>(2);
                let decode = move || {
                    let failed = match projected(bytes, &columns) {
                        Ok(mut reader) => {
                            reader.find_map(|batch| sender.blocking_send(batch.map_err(Into::into)).err())
                        }
                        Err(error) => sender.blocking_send(Err(error)).err(),
                    };
                    // Nobody waits for more.
                    drop(failed);
                };
                tokio::task::spawn_blocking(decode);
                anyhow::Ok((name, batches))
            }
        });
        let mut decoded = std::pin::pin!(decoded.buffered(AT_ONCE));
        while let Some((name, mut batches)) = decoded.try_next().await? {
            while let Some(batch) = batches.recv().await {
                let batch = batch.with_context(|| name.clone())?;
                each(&name, &batch).with_context(|| name.clone())?;
            }
        }
        Ok(())
    }

    /// Of a compacted day the file that its state names, and recordings that came later; no other.
    fn counts(&self, table: &str, path: &str) -> bool {
        let state = day_of(path).and_then(|day| self.compacted.get(&day));
        match (state, value_of(path, "recording")) {
            (Some(state), Some(id)) => !state.recordings.contains(id),
            (Some(state), None) => state.files.get(table).is_some_and(|file| path.ends_with(file.as_str())),
            (None, Some(_)) => true,
            (None, None) => false,
        }
    }

    /// For each row of a table that is of one of the recordings: the recording by its place in the list, the stack, and
    /// columns of numbers.
    ///
    /// # Errors
    /// When the store does not answer, or a file is none of ours.
    pub async fn stacks(&self, table: &str, columns: &[&str], each: &mut dyn FnMut(u32, Name, &[f64])) -> Result<()> {
        let known = self.places();
        let mut values = vec![0.0; columns.len()];
        let all: Vec<&str> = columns.iter().copied().chain(["stack"]).collect();
        let mut of_batch = |path: &str, batch: &RecordBatch| -> Result<()> {
            let stacks = column(batch, "stack")?.as_fixed_size_binary_opt().context("stack")?;
            let picked = columns.iter().map(|name| column(batch, name)).collect::<Result<Vec<_>>>()?;
            let recordings = BatchRecordings::of(path, batch)?;
            for row in 0..batch.num_rows() {
                // One whose row in `recordings` is not there (yet) does not count.
                let Some(&recording) = known.get(recordings.at(row)) else { continue };
                for (value, column) in values.iter_mut().zip(&picked) {
                    *value = number_at(column.as_ref(), row);
                }
                each(recording, name_of(stacks.value(row))?, &values);
            }
            Ok(())
        };
        self.scan(table, &all, &mut of_batch).await
    }

    /// Places of the recordings in the list, by id.
    pub fn places(&self) -> FxHashMap<&str, u32> {
        self.recordings.iter().zip(0..).map(|(row, place)| (row.id.as_str(), place)).collect()
    }

    /// What stacks are called: the program's functions on them, innermost first; all of them if no stack
    /// is named.
    ///
    /// # Errors
    /// When the store does not answer, or a file is none of ours.
    pub async fn names(&self, wanted: Option<&BTreeSet<Name>>) -> Result<StackTexts> {
        let mut frames: FxHashMap<Name, Vec<NamedLevel>> = FxHashMap::default();
        let mut of_batch = |_: &str, batch: &RecordBatch| -> Result<()> {
            let hashes = column(batch, "frame")?.as_fixed_size_binary_opt().context("frame")?;
            let text = |name: &str| -> Result<_> {
                Ok(column(batch, name)?.as_string_opt::<i32>().with_context(|| name.to_owned())?.clone())
            };
            let (functions, files, modules) = (text("function")?, text("file")?, text("module")?);
            let (lines, levels) = (column(batch, "line")?, column(batch, "level")?);
            for row in 0..batch.num_rows() {
                let of = |column: &StringArray| column.is_valid(row).then(|| column.value(row).to_owned());
                let level = number_at(levels.as_ref(), row) as usize;
                let list = frames.entry(name_of(hashes.value(row))?).or_default();
                if list.len() != level {
                    // Of another recording: the same.
                    continue;
                }
                let line = lines.is_valid(row).then(|| number_at(lines.as_ref(), row) as u64);
                list.push(NamedLevel::new(of(&functions), of(&files), of(&modules), line));
            }
            Ok(())
        };
        let columns = ["frame", "function", "file", "module", "line", "level"];
        self.scan("frames", &columns, &mut of_batch).await?;
        let mut texts = StackTexts::default();
        let mut of_batch = |_: &str, batch: &RecordBatch| -> Result<()> {
            let stacks = column(batch, "stack")?.as_fixed_size_binary_opt().context("stack")?;
            let by_names = batch.column_by_name("names").and_then(|column| column.as_fixed_size_binary_opt());
            let lists = column(batch, "frames")?.as_list_opt::<i32>().context("frames")?;
            for row in 0..batch.num_rows() {
                let name = name_of(stacks.value(row))?;
                if wanted.is_some_and(|wanted| !wanted.contains(&name)) || texts.0.contains_key(&name) {
                    continue;
                }
                let list = lists.value(row);
                let list = list.as_fixed_size_binary_opt().context("frames")?;
                let mut levels = Vec::new();
                for frame in 0..list.len() {
                    levels.extend(frames.get(&name_of(list.value(frame))?).into_iter().flatten());
                }
                let key = match by_names {
                    Some(column) => name_of(column.value(row))?,
                    // An earlier version of heaptrace wrote it: it is the same in this build alone.
                    None => name,
                };
                texts.0.insert(name, StackText::new(&levels, key));
            }
            Ok(())
        };
        self.scan("stacks", &["stack", "names", "frames"], &mut of_batch).await?;
        Ok(texts)
    }
}

/// What stacks are called.
#[derive(Debug, Default)]
pub struct StackTexts(FxHashMap<Name, StackText>);

impl StackTexts {
    /// The name of one.
    pub fn get(&self, stack: &Name) -> StackText {
        self.0.get(stack).cloned().unwrap_or_else(|| StackText { function: "(unknown)".into(), ..StackText::default() })
    }
}

/// What a stack is called.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
pub struct StackText {
    /// The innermost function of the program.
    pub function: String,
    /// Its source file.
    pub file: Option<String>,
    /// The line of the call.
    pub line: Option<u64>,
    /// The program's functions that called it.
    pub callers: Vec<String>,
    /// Hash of all functions with their modules: the same in another build.
    #[serde(skip)]
    pub key: Name,
}

#[derive(Debug, Clone)]
struct NamedLevel {
    function: String,
    file: Option<String>,
    line: Option<u64>,
    library: bool,
}

impl NamedLevel {
    fn new(function: Option<String>, file: Option<String>, module: Option<String>, line: Option<u64>) -> Self {
        let module = module.map(|path| path.rsplit('/').next().unwrap_or_default().to_owned());
        let library = CodeKind::of(function.as_deref(), file.as_deref(), module.as_deref()).is_library();
        let function = function.unwrap_or_else(|| "(no name)".into());
        Self { function, file, line, library }
    }
}

impl StackText {
    fn new(levels: &[&NamedLevel], key: Name) -> Self {
        let own: Vec<&&NamedLevel> = levels.iter().filter(|level| !level.library).collect();
        let shown: Vec<&&NamedLevel> = if own.is_empty() { levels.iter().collect() } else { own };
        let first = shown.first();
        Self {
            function: first.map_or_else(|| "(no backtrace)".into(), |level| level.function.clone()),
            file: first.and_then(|level| level.file.clone()),
            line: first.and_then(|level| level.line),
            callers: shown.iter().skip(1).take(3).map(|level| level.function.clone()).collect(),
            key,
        }
    }

    /// On one line.
    pub fn line(&self) -> String {
        let place = match (&self.file, self.line) {
            (Some(file), Some(line)) => format!("  {}:{line}", file.rsplit('/').next().unwrap_or(file)),
            _ => String::new(),
        };
        let callers: String = self.callers.iter().map(|caller| format!(" ← {caller}")).collect();
        crate::clean(&format!("{}{callers}{place}", self.function))
    }
}

/// A file's batches, with the columns that are named and `recording`, as far as it has them.
fn projected(bytes: Bytes, columns: &[String]) -> Result<ParquetRecordBatchReader> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(bytes)?;
    let fields = builder.schema().fields();
    let wanted = fields.iter().enumerate().filter(|(_, field)| {
        let name = field.name();
        name == "recording" || columns.iter().any(|column| column == name)
    });
    let roots: Vec<usize> = wanted.map(|(place, _)| place).collect();
    let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
    Ok(builder.with_projection(mask).with_batch_size(1 << 15).build()?)
}

/// The batches of a file.
///
/// # Errors
/// When it is none.
pub fn batches_of(bytes: Bytes) -> Result<Vec<RecordBatch>> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes)?.with_batch_size(1 << 15).build()?;
    Ok(reader.collect::<std::result::Result<Vec<_>, _>>()?)
}

fn column<'b>(batch: &'b RecordBatch, name: &str) -> Result<&'b arrow_array::ArrayRef> {
    batch.column_by_name(name).with_context(|| format!("there is no column {name}"))
}

fn number_at(column: &dyn Array, row: usize) -> f64 {
    if column.is_null(row) {
        return 0.0;
    }
    match (column.as_primitive_opt::<Int64Type>(), column.as_primitive_opt::<Float64Type>()) {
        (Some(integers), _) => integers.value(row) as f64,
        (_, Some(floats)) => floats.value(row),
        _ => column.as_boolean_opt().map_or(0.0, |truths| f64::from(u8::from(truths.value(row)))),
    }
}

fn name_of(bytes: &[u8]) -> Result<Name> {
    bytes.try_into().context("a name has 16 bytes")
}

/// The recordings of a batch's rows: a column in a compacted file, else all rows are of the folder's.
pub enum BatchRecordings<'b> {
    Column(&'b StringArray),
    Folder(String),
}

impl<'b> BatchRecordings<'b> {
    /// Of a batch of a file.
    ///
    /// # Errors
    /// When neither says it.
    pub fn of(path: &str, batch: &'b RecordBatch) -> Result<Self> {
        if let Some(column) = batch.column_by_name("recording") {
            return Ok(Self::Column(column.as_string_opt::<i32>().context("recording")?));
        }
        let folder = value_of(path, "recording").with_context(|| format!("{path} is of no recording"))?;
        Ok(Self::Folder(unescape(folder)))
    }

    /// Of a row.
    pub fn at(&self, row: usize) -> &str {
        match self {
            Self::Column(column) => column.value(row),
            Self::Folder(id) => id,
        }
    }
}

/// The columns that [`recording_of`] reads.
const RECORDING_COLUMNS: [&str; 8] = [
    "host",
    "started_unix_ns",
    "duration_ns",
    "peak_bytes",
    "leaked_bytes",
    "allocated_bytes",
    "peak_rss_bytes",
    "complete",
];

fn recording_of(path: &str, batch: &RecordBatch, row: usize) -> Result<RecordingRow> {
    let number = |name: &str| -> Result<i64> { Ok(number_at(column(batch, name)?.as_ref(), row) as i64) };
    let part = |key: &str| value_of(path, key).map(unescape).unwrap_or_default();
    let host = column(batch, "host")?.as_string_opt::<i32>().context("host")?.value(row).to_owned();
    Ok(RecordingRow {
        id: BatchRecordings::of(path, batch)?.at(row).to_owned(),
        service: part("service"),
        version: part("version"),
        day: part("day"),
        host,
        started_unix_ns: number("started_unix_ns")?,
        duration_ns: number("duration_ns")?,
        peak_bytes: number("peak_bytes")?,
        leaked_bytes: number("leaked_bytes")?,
        allocated_bytes: number("allocated_bytes")?,
        peak_rss_bytes: number("peak_rss_bytes")?,
        complete: number("complete")? != 0,
    })
}
