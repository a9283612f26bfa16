//! Queries in SQL: the indexes of recordings as virtual tables of SQLite, which parses, plans and sorts.
//!
//! ```text
//! schema        what tables, columns and parameters there are; the guide is made from it
//! allocations   blocks, row by row from the columns of the index; conditions go down to its zone maps
//! rows          all other tables, and functions that return tables: each asks an existing query
//!   process · code · answers · compare
//! json          an answer as a document
//! limits        time and memory of a question that somebody else asks
//! ```
//! Nothing can be written, attached or loaded: an authoriser allows reading alone. Any question can be cancelled.

mod allocations;
mod answers;
mod arguments;
mod code;
mod compare;
mod examples;
mod guide;
mod json;
mod limits;
mod process;
mod rows;
pub mod schema;
mod virtual_table;

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Batch, Connection};
use tracehound_index::symbols::RecordingSymbols;
use tracehound_index::{Cancel, Trace};

pub use guide::{description, markdown};
pub use json::JsonRows;
pub use limits::SqlLimits;
pub use process::hex;
pub use rusqlite::types::Value;

use limits::{KeptRoom, QuestionClock};

/// A recording that can be asked about.
#[derive(Clone)]
pub struct SqlRecording {
    /// Its index.
    pub trace: Arc<Trace>,
    /// Its names.
    pub symbols: Arc<dyn RecordingSymbols>,
    /// Its path, as it was given.
    pub path: String,
}

/// What all tables share.
pub(crate) struct SqlContext {
    recordings: Vec<SqlRecording>,
    cancel: Cancel,
    /// Rows that functions have returned.
    kept: Mutex<rows::Kept>,
    room: Arc<KeptRoom>,
}

impl SqlContext {
    /// The recordings with their numbers, from 1: all, or the one that a condition names.
    fn chosen(&self, number: Option<i64>) -> impl Iterator<Item = (i64, &SqlRecording)> {
        (1_i64..).zip(&self.recordings).filter(move |(own, _)| number.is_none_or(|number| number == *own))
    }
}

/// Error of a query in SQL.
#[derive(Debug, thiserror::Error)]
pub enum SqlError {
    /// Stopped from outside.
    #[error("cancelled")]
    Cancelled,
    /// Something else than reading.
    #[error("only SELECT is possible: recordings are never changed")]
    ReadOnly,
    /// No statement, or more than one.
    #[error("{0}")]
    Statement(&'static str),
    /// What SQLite or a query says about it.
    #[error("{0}")]
    Sqlite(String),
    /// The time is over.
    #[error(
        "no answer within {} s; sites(), functions() and timeline() ask the index and are fast, LIMIT and conditions on \
         `row` or `born_ns` make less work",
        .0.as_secs_f64()
    )]
    TooLong(Duration),
    /// It needs more memory than there is for it.
    #[error(
        "the question needs more than {} MiB of memory; sites(), functions() and timeline() group without it, and \
         `heaptrace sql` has no such limit",
        .0 >> 20
    )]
    TooMuchMemory(u64),
    /// A row of the answer is too large.
    #[error("a row of the answer has more than {} KiB", .0 >> 10)]
    RowTooLarge(u64),
    /// The receiver of the rows has failed.
    #[error(transparent)]
    Output(#[from] std::io::Error),
}

/// Receiver of an answer, row by row.
pub trait RowSink {
    /// The names of the columns; called once, before all rows.
    ///
    /// # Errors
    /// When they cannot be written.
    fn columns(&mut self, names: &[String]) -> std::io::Result<()>;

    /// One row, with a value for each column. `Break`: it was not taken, and no more rows are wanted.
    ///
    /// # Errors
    /// When it cannot be written.
    fn row(&mut self, values: &[Value]) -> std::io::Result<ControlFlow<()>>;
}

/// Recordings as a database.
pub struct Database {
    connection: Connection,
    cancel: Cancel,
    limits: Option<SqlLimits>,
}

/// Longest statement, bytes.
const LONGEST_STATEMENT: i32 = 1 << 20;
/// Instructions of SQLite's machine between two looks at the cancel flag.
const STEPS: i32 = 10_000;

impl Database {
    /// A database of these recordings, which are numbered from 1. Its questions may take what they want.
    ///
    /// # Errors
    /// When SQLite has no memory.
    pub fn new(recordings: Vec<SqlRecording>, cancel: &Cancel) -> Result<Self, SqlError> {
        Self::open(recordings, cancel, None)
    }

    /// The same for questions of others. When its time is over, a question sets `cancel`, too.
    ///
    /// # Errors
    /// When SQLite has no memory.
    pub fn limited(recordings: Vec<SqlRecording>, cancel: &Cancel, limits: SqlLimits) -> Result<Self, SqlError> {
        Self::open(recordings, cancel, Some(limits))
    }

    fn open(recordings: Vec<SqlRecording>, cancel: &Cancel, limits: Option<SqlLimits>) -> Result<Self, SqlError> {
        let context = Arc::new(SqlContext {
            recordings,
            cancel: cancel.clone(),
            kept: Mutex::default(),
            room: KeptRoom::new(limits.map_or(u64::MAX, |limits| limits.kept_bytes)),
        });
        let mut connection = Connection::open_in_memory().map_err(words)?;
        allocations::register(&connection, &context).map_err(words)?;
        rows::register(&connection, &context).map_err(words)?;
        for view in schema::VIEWS {
            connection.execute_batch(&format!("CREATE VIEW {} AS {}", view.name, view.query)).map_err(words)?;
        }
        connection.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, LONGEST_STATEMENT).map_err(words)?;
        connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0).map_err(words)?;
        if let Some(limits) = &limits {
            limits.apply(&connection).map_err(words)?;
        }
        connection.authorizer(Some(allow_reading)).map_err(words)?;
        let flag = cancel.clone();
        connection.progress_handler(STEPS, Some(move || flag.is_cancelled())).map_err(words)?;
        Ok(Self { connection, cancel: cancel.clone(), limits })
    }

    /// Runs a statement, and passes the rows of its answer to `sink`.
    ///
    /// # Errors
    /// When the statement is wrong or none that reads, when it is cancelled or beyond its limits, or when `sink` fails.
    pub fn query(&self, sql: &str, sink: &mut dyn RowSink) -> Result<(), SqlError> {
        let Some(limits) = self.limits else { return self.answer(sql, sink) };
        let is_late = AtomicBool::new(false);
        let clock = QuestionClock {
            time: limits.time,
            cancel: &self.cancel,
            interrupt: self.connection.get_interrupt_handle(),
            is_late: &is_late,
        };
        let answer = std::thread::scope(|scope| {
            let (answered, waits) = mpsc::channel::<()>();
            let watch = std::thread::Builder::new().name("heaptrace-sql".into());
            watch.spawn_scoped(scope, move || clock.run(&waits))?;
            let answer = self.answer(sql, sink);
            drop(answered);
            answer
        });
        match answer {
            Err(SqlError::Cancelled) if is_late.load(Ordering::Relaxed) => Err(SqlError::TooLong(limits.time)),
            other => other,
        }
    }

    fn answer(&self, sql: &str, sink: &mut dyn RowSink) -> Result<(), SqlError> {
        let mut batch = Batch::new(&self.connection, sql);
        let Some(mut statement) = batch.next().map_err(|error| self.failure(sql, error))? else {
            return Err(SqlError::Statement("there is no statement; for instance: SELECT * FROM recordings"));
        };
        if batch.next().map_err(|error| self.failure(sql, error))?.is_some() {
            return Err(SqlError::Statement("one statement at a time can be answered"));
        }
        if statement.column_count() == 0 || !statement.readonly() {
            return Err(SqlError::ReadOnly);
        }
        let row_bytes = self.limits.map_or(u64::MAX, |limits| u64::from(limits.row_bytes.unsigned_abs()));
        let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
        let mut values = vec![Value::Null; names.len()];
        let mut rows = statement.query([]).map_err(|error| self.failure(sql, error))?;
        let mut reported = false;
        while let Some(row) = rows.next().map_err(|error| self.failure(sql, error))? {
            if !reported {
                sink.columns(&names)?;
                reported = true;
            }
            let mut bytes = 0;
            for (at, value) in values.iter_mut().enumerate() {
                let cell = row.get_ref(at).unwrap_or(ValueRef::Null);
                if let ValueRef::Text(text) | ValueRef::Blob(text) = cell {
                    bytes += text.len() as u64;
                }
                if bytes > row_bytes {
                    return Err(SqlError::RowTooLarge(row_bytes));
                }
                *value = cell.try_into().unwrap_or(Value::Null);
            }
            if sink.row(&values)?.is_break() {
                return Ok(());
            }
        }
        if !reported {
            sink.columns(&names)?;
        }
        Ok(())
    }

    fn failure(&self, asked: &str, failure: rusqlite::Error) -> SqlError {
        use rusqlite::ErrorCode::{AuthorizationForStatementDenied, OperationInterrupted, OutOfMemory};
        match (failure.sqlite_error_code(), self.limits) {
            (Some(AuthorizationForStatementDenied), _) => SqlError::ReadOnly,
            (Some(OperationInterrupted), _) => SqlError::Cancelled,
            _ if self.cancel.is_cancelled() => SqlError::Cancelled,
            (Some(OutOfMemory), Some(limits)) => SqlError::TooMuchMemory(limits.sqlite_bytes),
            // What SQLite says of a change to a virtual table, before it asks the authoriser.
            _ if failure.to_string().contains("may not be modified") => SqlError::ReadOnly,
            _ => match place(asked, &failure) {
                Some((line, column)) => SqlError::Sqlite(format!("{} (line {line}, column {column})", words(failure))),
                None => words(failure),
            },
        }
    }
}

/// Line and column, from 1, of what SQLite does not understand.
fn place(asked: &str, failure: &rusqlite::Error) -> Option<(usize, usize)> {
    let rusqlite::Error::SqlInputError { sql, offset, .. } = failure else { return None };
    // What SQLite was given is the end of what was asked.
    let before = asked.get(..asked.len().checked_sub(sql.len())? + usize::try_from(*offset).ok()?)?;
    let line = before.rsplit('\n').next()?;
    Some((before.matches('\n').count() + 1, line.chars().count() + 1))
}

/// SQLite's message, without the whole statement and the number of the error.
fn words(error: rusqlite::Error) -> SqlError {
    SqlError::Sqlite(match error {
        rusqlite::Error::SqliteFailure(_, Some(text)) => text,
        rusqlite::Error::SqlInputError { msg, .. } => msg,
        other => other.to_string(),
    })
}

fn allow_reading(context: AuthContext<'_>) -> Authorization {
    match context.action {
        AuthAction::Function { function_name } if function_name.eq_ignore_ascii_case("load_extension") => {
            Authorization::Deny
        }
        AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive | AuthAction::Function { .. } => {
            Authorization::Allow
        }
        _ => Authorization::Deny,
    }
}
