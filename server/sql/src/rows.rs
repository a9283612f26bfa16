//! Tables whose rows existing queries make. What was made once is kept for the next look, found by its key, so that a
//! join does not ask again for each row.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, c_int};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::types::Value;
use rusqlite::vtab::{Context, Filters, IndexInfo, Module, VTab, VTabConfig, VTabConnection, VTabCursor};
use rusqlite::{Connection, Error, Result, ffi};
use tracehound_index::Cancel;
use tracehound_query::QueryError;

use super::allocations::module_error;
use super::arguments::{Arguments, SqlComparison, bound, conditions, plan};
use super::schema::{self, SqlTable};
use super::{SqlContext, SqlRecording, answers, code, compare, process};

/// A row, without the number of the recording.
pub type SqlRow = Vec<Value>;
/// Rows of one recording.
pub type SqlRows = Box<dyn Iterator<Item = SqlRow>>;

/// What a table is asked.
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
    /// Rows are many, cheap, and found by their key at once: they are not kept.
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
    of(&schema::LEAKS, answers::leaks).by(1),
    of(&schema::TIMELINE, answers::timeline),
    of(&schema::FLAME, answers::flame).by(1),
    of(&schema::LIFETIMES, answers::lifetimes),
    RowSource { of_all: true, ..of(&schema::DIFF, compare::diff) },
];

/// Tells SQLite of the tables.
pub fn register(connection: &Connection, context: &Arc<SqlContext>) -> Result<()> {
    const MODULE: Module<RowsTable> = Module::eponymous_only_module();
    for source in SOURCES {
        connection.create_module(source.table.name, &MODULE, Some((Arc::clone(context), source)))?;
    }
    Ok(())
}

/// Rows that are kept.
struct KeptRows {
    rows: Vec<SqlRow>,
    by_key: HashMap<i64, Vec<u32>>,
}

/// What rows are kept for: number of the recording, and the parameters as texts.
type Kept = HashMap<(i64, String), Arc<KeptRows>>;

#[repr(C)]
struct RowsTable {
    /// SQLite's part; it must stand first.
    base: ffi::sqlite3_vtab,
    context: Arc<SqlContext>,
    source: &'static RowSource,
    kept: Arc<Mutex<Kept>>,
}

// SAFETY: the structure begins with SQLite's part, and is `repr(C)`.
unsafe impl<'vtab> VTab<'vtab> for RowsTable {
    type Aux = (Arc<SqlContext>, &'static RowSource);
    type Cursor = RowsCursor<'vtab>;

    fn connect(
        db: &mut VTabConnection,
        aux: Option<&Self::Aux>,
        _module_name: &[u8],
        _database_name: &[u8],
        _table_name: &[u8],
        _args: &[&[u8]],
    ) -> Result<(Cow<'static, CStr>, Self)> {
        let Some((context, source)) = aux else { return Err(Error::ModuleError("no recordings".into())) };
        db.config(VTabConfig::Innocuous)?;
        let base = ffi::sqlite3_vtab::default();
        let own = Self { base, context: Arc::clone(context), source, kept: Arc::default() };
        Ok((Cow::Owned(source.table.declaration()), own))
    }

    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        const ROWS: f64 = 10_000.0;
        let source = self.source;
        let can_go_down = |column, comparison| {
            comparison == SqlComparison::Equal && (column == 0 && !source.of_all || Some(column) == source.key)
        };
        let Some(conditions) = plan(info, source.table.columns.len(), can_go_down) else { return Ok(false) };
        let mut rows = ROWS * self.context.recordings.len().max(1) as f64;
        for (column, _) in conditions {
            rows /= if Some(column) == source.key {
                ROWS / 10.0
            } else if column == 0 {
                self.context.recordings.len().max(1) as f64
            } else {
                1.0
            };
        }
        info.set_estimated_rows(rows.max(1.0) as i64);
        info.set_estimated_cost(rows.max(1.0));
        Ok(true)
    }

    fn open(&'vtab mut self) -> Result<RowsCursor<'vtab>> {
        Ok(RowsCursor {
            base: ffi::sqlite3_vtab_cursor::default(),
            context: Arc::clone(&self.context),
            source: self.source,
            kept: Arc::clone(&self.kept),
            arguments: Vec::new(),
            key: None,
            waiting: VecDeque::new(),
            number: 0,
            rows: Box::new(std::iter::empty()),
            row: None,
            at: 0,
            table: PhantomData,
        })
    }
}

#[repr(C)]
struct RowsCursor<'vtab> {
    /// SQLite's part; it must stand first.
    base: ffi::sqlite3_vtab_cursor,
    context: Arc<SqlContext>,
    source: &'static RowSource,
    kept: Arc<Mutex<Kept>>,
    arguments: Vec<Option<Value>>,
    key: Option<i64>,
    /// Numbers of the recordings whose turn comes.
    waiting: VecDeque<i64>,
    /// Number of the recording whose rows are given.
    number: i64,
    rows: SqlRows,
    row: Option<SqlRow>,
    at: i64,
    table: PhantomData<&'vtab RowsTable>,
}

impl RowsCursor<'_> {
    fn make(&self, number: i64, key: Option<i64>) -> Result<SqlRows> {
        let at = usize::try_from(number - 1).unwrap_or_default();
        let Some(recording) = self.context.recordings.get(at) else { return Ok(Box::new(std::iter::empty())) };
        let question = Question {
            recording,
            all: &self.context.recordings,
            arguments: Arguments(&self.arguments),
            key,
            cancel: &self.context.cancel,
        };
        (self.source.make)(&question).map_err(module_error)
    }

    /// The rows of a recording, kept for the next look.
    fn keep(&self, number: i64) -> Result<Arc<KeptRows>> {
        let lock = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let name = (number, format!("{:?}", self.arguments));
        if let Some(found) = lock().get(&name) {
            return Ok(Arc::clone(found));
        }
        let rows: Vec<SqlRow> = self.make(number, None)?.collect();
        let mut by_key: HashMap<i64, Vec<u32>> = HashMap::new();
        if let Some(key) = self.source.key {
            for (at, row) in (0..).zip(&rows) {
                if let Some(Value::Integer(value)) = row.get(key - 1) {
                    by_key.entry(*value).or_default().push(at);
                }
            }
        }
        let kept = Arc::new(KeptRows { rows, by_key });
        lock().insert(name, Arc::clone(&kept));
        Ok(kept)
    }

    fn rows_of(&self, number: i64) -> Result<SqlRows> {
        if self.source.passing {
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

    /// Takes the next row, of the next recording if need be.
    fn advance(&mut self) -> Result<()> {
        loop {
            self.row = self.rows.next();
            if self.row.is_some() {
                self.at += 1;
                return Ok(());
            }
            let Some(number) = self.waiting.pop_front() else { return Ok(()) };
            self.number = number;
            self.rows = self.rows_of(number)?;
        }
    }
}

// SAFETY: the structure begins with SQLite's part, and is `repr(C)`.
unsafe impl VTabCursor for RowsCursor<'_> {
    fn filter(&mut self, _: c_int, plan: Option<&str>, values: &Filters<'_>) -> Result<()> {
        let columns = self.source.table.columns.len();
        let values = values.iter().map(|value| Value::try_from(value).unwrap_or(Value::Null)).collect();
        self.arguments = vec![None; self.source.table.parameters.len()];
        (self.key, self.at) = (None, 0);
        let mut chosen = None;
        for ((column, _), value) in conditions(plan, values) {
            if let Some(parameter) = column.checked_sub(columns) {
                if let Some(place) = self.arguments.get_mut(parameter) {
                    *place = Some(value);
                }
            } else if Some(column) == self.source.key {
                self.key = bound(&value);
            } else {
                chosen = bound(&value);
            }
        }
        self.waiting = if self.source.of_all {
            VecDeque::from([1])
        } else {
            self.context.chosen(chosen).map(|(number, _)| number).collect()
        };
        self.rows = Box::new(std::iter::empty());
        self.advance()
    }

    fn next(&mut self) -> Result<()> {
        self.advance()
    }

    fn eof(&self) -> bool {
        self.row.is_none()
    }

    fn column(&self, out: &mut Context, column: c_int) -> Result<()> {
        let Ok(column) = usize::try_from(column) else { return Ok(()) };
        let columns = self.source.table.columns.len();
        let value = match column.checked_sub(columns) {
            Some(parameter) => self.arguments.get(parameter).and_then(Option::as_ref),
            None if self.source.of_all => self.row.as_ref().and_then(|row| row.get(column)),
            None if column == 0 => return out.set_result(self.number),
            None => self.row.as_ref().and_then(|row| row.get(column - 1)),
        };
        match value {
            Some(value) => out.set_result(value),
            None => Ok(()),
        }
    }

    fn rowid(&self) -> Result<i64> {
        /// More rows than a table of this kind has.
        const BITS: u32 = 40;
        Ok(self.number << BITS | self.at)
    }
}
