//! Tables whose rows existing queries make. Rows are cached by their key, so that a join does not run the query again for
//! each row.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, PoisonError};

use rusqlite::types::Value;
use rusqlite::vtab::Context;
use rusqlite::{Connection, Error, Result};
use tracehound_index::Cancel;
use tracehound_query::QueryError;

use super::allocations::module_error;
use super::arguments::{Arguments, Condition, SqlComparison, bound};
use super::limits::KeptPart;
use super::schema::{self, SqlTable};
use super::virtual_table::{self, TableReader, TableSource};
use super::{SqlContext, SqlRecording, answers, code, compare, process};

/// A row, without the number of the recording.
pub type SqlRow = Vec<Value>;
/// Rows of one recording.
pub type SqlRows = Box<dyn Iterator<Item = SqlRow>>;

/// Query of a table.
pub struct Question<'a> {
    /// About this recording.
    pub recording: &'a SqlRecording,
    /// All recordings.
    pub all: &'a [SqlRecording],
    /// Parameters of the function.
    pub arguments: Arguments<'a>,
    /// Rows with this key alone.
    pub key: Option<i64>,
    /// Set when somebody wants to stop.
    pub cancel: &'a Cancel,
}

/// How the rows of a table are made.
#[derive(Clone, Copy)]
struct RowSource {
    table: &'static SqlTable,
    make: fn(&Question<'_>) -> Result<SqlRows, QueryError>,
    /// The column by which single rows are asked for.
    key: Option<usize>,
    /// Rows are many, cheap, and found by their key at once: they are not cached.
    passing: bool,
    /// The table is about all recordings at once, and has no column `recording` in front.
    of_all: bool,
}

const fn of(table: &'static SqlTable, make: fn(&Question<'_>) -> Result<SqlRows, QueryError>) -> RowSource {
    RowSource { table, make, key: None, passing: false, of_all: false }
}

impl RowSource {
    const fn by(self, key: usize) -> Self {
        Self { key: Some(key), ..self }
    }
}

static SOURCES: &[RowSource] = &[
    of(&schema::RECORDINGS, process::recordings),
    of(&schema::THREADS, process::threads).by(1),
    of(&schema::MODULES, process::modules).by(1),
    of(&schema::MARKS, process::marks),
    of(&schema::CAPTURES, process::captures),
    of(&schema::SAMPLES, process::samples),
    of(&schema::MAPPINGS, process::mappings),
    of(&schema::REMARKS, process::remarks),
    RowSource { passing: true, ..of(&schema::STACKS, code::stacks).by(1) },
    RowSource { passing: true, ..of(&schema::FRAMES, code::frames).by(1) },
    of(&schema::SITES, answers::sites).by(1),
    of(&schema::FUNCTIONS, answers::functions),
    of(&schema::THREAD_SUMS, answers::thread_sums).by(1),
    of(&schema::LEAKS, answers::leaks).by(1),
    of(&schema::TIMELINE, answers::timeline),
    of(&schema::FLAME, answers::flame).by(1),
    of(&schema::LIFETIMES, answers::lifetimes),
    RowSource { of_all: true, ..of(&schema::DIFF, compare::diff) },
];

/// Registers the tables with SQLite.
pub fn register(connection: &Connection, context: &Arc<SqlContext>) -> Result<()> {
    for source in SOURCES {
        let context = Arc::clone(context);
        virtual_table::register(connection, AnswerSource { context, source })?;
    }
    Ok(())
}

/// Cached rows.
pub struct KeptRows {
    rows: Vec<SqlRow>,
    by_key: HashMap<i64, Vec<u32>>,
    /// Budget that the rows take while they are cached.
    _part: KeptPart,
}

/// Cached rows, by name of the table, number of the recording, and the parameters as texts.
pub type Kept = HashMap<(&'static str, i64, String), Arc<KeptRows>>;

#[derive(Clone)]
struct AnswerSource {
    context: Arc<SqlContext>,
    source: &'static RowSource,
}

impl TableSource for AnswerSource {
    type Rows = AnswerRows;

    fn table(&self) -> &'static SqlTable {
        self.source.table
    }

    fn can_go_down(&self, column: usize, comparison: SqlComparison) -> bool {
        let source = self.source;
        comparison == SqlComparison::Equal && (column == 0 && !source.of_all || Some(column) == source.key)
    }

    fn estimate(&self, conditions: &[Condition]) -> (f64, f64) {
        const ROWS: f64 = 10_000.0;
        let recordings = self.context.recordings.len().max(1) as f64;
        let mut rows = ROWS * recordings;
        for &(column, _) in conditions {
            rows /= if Some(column) == self.source.key {
                ROWS / 10.0
            } else if column == 0 {
                recordings
            } else {
                1.0
            };
        }
        (rows, rows)
    }

    fn look(&self, conditions: Vec<(Condition, Value)>) -> Result<AnswerRows> {
        let columns = self.source.table.columns.len();
        let mut arguments = vec![None; self.source.table.parameters.len()];
        let (mut key, mut chosen) = (None, None);
        for ((column, _), value) in conditions {
            if let Some(parameter) = column.checked_sub(columns) {
                if let Some(place) = arguments.get_mut(parameter) {
                    *place = Some(value);
                }
            } else if Some(column) == self.source.key {
                key = bound(&value);
            } else {
                chosen = bound(&value);
            }
        }
        let waiting = if self.source.of_all {
            VecDeque::from([1])
        } else {
            self.context.chosen(chosen).map(|(number, _)| number).collect()
        };
        let rows = Box::new(std::iter::empty());
        let mut rows =
            AnswerRows { asked: self.clone(), arguments, key, waiting, recording: 0, rows, row: None, at: 0 };
        rows.advance()?;
        Ok(rows)
    }
}

struct AnswerRows {
    asked: AnswerSource,
    arguments: Vec<Option<Value>>,
    key: Option<i64>,
    /// Numbers of the recordings whose turn comes.
    waiting: VecDeque<i64>,
    /// Number of the recording whose rows are given.
    recording: i64,
    rows: SqlRows,
    row: Option<SqlRow>,
    at: i64,
}

impl AnswerRows {
    fn make(&self, number: i64, key: Option<i64>) -> Result<SqlRows> {
        let at = usize::try_from(number - 1).unwrap_or_default();
        let Some(recording) = self.asked.context.recordings.get(at) else { return Ok(Box::new(std::iter::empty())) };
        let question = Question {
            recording,
            all: &self.asked.context.recordings,
            arguments: Arguments(&self.arguments),
            key,
            cancel: &self.asked.context.cancel,
        };
        (self.asked.source.make)(&question).map_err(module_error)
    }

    /// The rows of a recording, kept for the next look.
    fn keep(&self, number: i64) -> Result<Arc<KeptRows>> {
        let context = &self.asked.context;
        let lock = || context.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let name = (self.asked.source.table.name, number, format!("{:?}", self.arguments));
        if let Some(found) = lock().get(&name) {
            return Ok(Arc::clone(found));
        }
        let mut rows = self.fitting(number)?;
        if rows.is_none() {
            // Cached rows are dropped to make room for those of the present query.
            lock().clear();
            rows = self.fitting(number)?;
        }
        let Some(kept) = rows else {
            let most = context.room.most() >> 20;
            let why = format!("what functions return to this question takes more than {most} MiB at once");
            return Err(Error::ModuleError(why));
        };
        let kept = Arc::new(kept);
        lock().insert(name, Arc::clone(&kept));
        Ok(kept)
    }

    /// The rows of a recording, if there is room for them.
    fn fitting(&self, number: i64) -> Result<Option<KeptRows>> {
        let mut part = KeptPart::of(&self.asked.context.room);
        let mut rows = Vec::new();
        let mut by_key: HashMap<i64, Vec<u32>> = HashMap::new();
        for (at, row) in (0..).zip(self.make(number, None)?) {
            if !part.take(&row) {
                return Ok(None);
            }
            if let Some(key) = self.asked.source.key
                && let Some(Value::Integer(value)) = row.get(key - 1)
            {
                by_key.entry(*value).or_default().push(at);
            }
            rows.push(row);
        }
        Ok(Some(KeptRows { rows, by_key, _part: part }))
    }

    fn rows_of(&self, number: i64) -> Result<SqlRows> {
        if self.asked.source.passing {
            return self.make(number, self.key);
        }
        let kept = self.keep(number)?;
        let places: Box<dyn Iterator<Item = usize>> = match self.key {
            Some(key) => {
                let places = kept.by_key.get(&key).cloned().unwrap_or_default();
                Box::new(places.into_iter().map(|at| at as usize))
            }
            None => Box::new(0..kept.rows.len()),
        };
        Ok(Box::new(places.filter_map(move |at| kept.rows.get(at).cloned())))
    }
}

impl TableReader for AnswerRows {
    /// Takes the next row, of the next recording if need be.
    fn advance(&mut self) -> Result<()> {
        loop {
            self.row = self.rows.next();
            if self.row.is_some() {
                self.at += 1;
                return Ok(());
            }
            let Some(number) = self.waiting.pop_front() else { return Ok(()) };
            self.recording = number;
            self.rows = self.rows_of(number)?;
        }
    }

    fn is_over(&self) -> bool {
        self.row.is_none()
    }

    fn value(&self, out: &mut Context, column: usize) -> Result<()> {
        let columns = self.asked.source.table.columns.len();
        let value = match column.checked_sub(columns) {
            Some(parameter) => self.arguments.get(parameter).and_then(Option::as_ref),
            None if self.asked.source.of_all => self.row.as_ref().and_then(|row| row.get(column)),
            None if column == 0 => return out.set_result(self.recording),
            None => self.row.as_ref().and_then(|row| row.get(column - 1)),
        };
        match value {
            Some(value) => out.set_result(value),
            None => Ok(()),
        }
    }

    fn number(&self) -> i64 {
        /// More rows than a table of this kind has.
        const BITS: u32 = 40;
        self.recording << BITS | self.at
    }
}
