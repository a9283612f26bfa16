//! Questions in SQL: the indexes of recordings as virtual tables of SQLite, which parses, plans and sorts.
//!
//! ```text
//! schema        what tables, columns and parameters there are; the guide is made from it
//! allocations   blocks, row by row from the columns of the index; conditions go down to its zone maps
//! rows          all other tables, and functions that return tables: each asks an existing query
//!   process · code · answers · compare
//! ```
//! Nothing can be written, attached or loaded: an authoriser allows reading alone. Any question can be cancelled.

mod allocations;
mod answers;
mod arguments;
mod code;
mod compare;
mod guide;
mod process;
mod rows;
pub mod schema;
mod virtual_table;

use std::sync::Arc;

use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Batch, Connection};
use tracehound_index::symbols::RecordingSymbols;
use tracehound_index::{Cancel, Trace};

pub use guide::markdown;
pub use rusqlite::types::Value;

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
}

impl SqlContext {
    /// The recordings with their numbers, from 1: all, or the one that a condition names.
    fn chosen(&self, number: Option<i64>) -> impl Iterator<Item = (i64, &SqlRecording)> {
        (1_i64..).zip(&self.recordings).filter(move |(own, _)| number.is_none_or(|number| number == *own))
    }
}

/// Why a question has no answer.
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
    /// Whoever takes the rows cannot.
    #[error(transparent)]
    Output(#[from] std::io::Error),
}

/// Takes an answer, row by row.
pub trait RowSink {
    /// The names of the columns; called once, before all rows.
    ///
    /// # Errors
    /// When they cannot be written.
    fn columns(&mut self, names: &[String]) -> std::io::Result<()>;

    /// One row, with a value for each column.
    ///
    /// # Errors
    /// When it cannot be written.
    fn row(&mut self, values: &[Value]) -> std::io::Result<()>;
}

/// Recordings as a database.
pub struct Database {
    connection: Connection,
    cancel: Cancel,
}

/// Longest statement, bytes.
const LONGEST_STATEMENT: i32 = 1 << 20;
/// Instructions of SQLite's machine between two looks at the cancel flag.
const STEPS: i32 = 10_000;

impl Database {
    /// A database of these recordings, which are numbered from 1.
    ///
    /// # Errors
    /// When SQLite has no memory.
    pub fn new(recordings: Vec<SqlRecording>, cancel: &Cancel) -> Result<Self, SqlError> {
        let context = Arc::new(SqlContext { recordings, cancel: cancel.clone() });
        let mut connection = Connection::open_in_memory().map_err(error)?;
        allocations::register(&connection, &context).map_err(error)?;
        rows::register(&connection, &context).map_err(error)?;
        for view in schema::VIEWS {
            connection.execute_batch(&format!("CREATE VIEW {} AS {}", view.name, view.query)).map_err(error)?;
        }
        connection.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, LONGEST_STATEMENT).map_err(error)?;
        connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0).map_err(error)?;
        connection.authorizer(Some(allow_reading)).map_err(error)?;
        let flag = cancel.clone();
        connection.progress_handler(STEPS, Some(move || flag.is_cancelled())).map_err(error)?;
        Ok(Self { connection, cancel: cancel.clone() })
    }

    /// Asks, and gives the answer row by row.
    ///
    /// # Errors
    /// When the statement is wrong or none that reads, cancelled, or when `sink` fails.
    pub fn query(&self, sql: &str, sink: &mut dyn RowSink) -> Result<(), SqlError> {
        let mut batch = Batch::new(&self.connection, sql);
        let Some(mut statement) = batch.next().map_err(|error| self.failure(error))? else {
            return Err(SqlError::Statement("there is no statement; for instance: SELECT * FROM recordings"));
        };
        if batch.next().map_err(|error| self.failure(error))?.is_some() {
            return Err(SqlError::Statement("one statement at a time can be answered"));
        }
        if statement.column_count() == 0 || !statement.readonly() {
            return Err(SqlError::ReadOnly);
        }
        let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
        let mut values = vec![Value::Null; names.len()];
        let mut rows = statement.query([]).map_err(|error| self.failure(error))?;
        let mut reported = false;
        while let Some(row) = rows.next().map_err(|error| self.failure(error))? {
            if !reported {
                sink.columns(&names)?;
                reported = true;
            }
            for (at, value) in values.iter_mut().enumerate() {
                *value = row.get_ref(at).unwrap_or(ValueRef::Null).try_into().unwrap_or(Value::Null);
            }
            sink.row(&values)?;
        }
        if !reported {
            sink.columns(&names)?;
        }
        Ok(())
    }

    fn failure(&self, failure: rusqlite::Error) -> SqlError {
        use rusqlite::ErrorCode::{AuthorizationForStatementDenied, OperationInterrupted};
        match failure.sqlite_error_code() {
            Some(AuthorizationForStatementDenied) => SqlError::ReadOnly,
            Some(OperationInterrupted) => SqlError::Cancelled,
            _ if self.cancel.is_cancelled() => SqlError::Cancelled,
            // What SQLite says of a change to a virtual table, before it asks the authoriser.
            _ if failure.to_string().contains("may not be modified") => SqlError::ReadOnly,
            _ => error(failure),
        }
    }
}

/// SQLite's own words, without the whole statement and the number of the error.
fn error(error: rusqlite::Error) -> SqlError {
    SqlError::Sqlite(match error {
        rusqlite::Error::SqliteFailure(_, Some(text)) => text,
        rusqlite::Error::SqlInputError { msg, sql, offset, .. } => {
            let before = usize::try_from(offset).ok().and_then(|offset| sql.get(..offset));
            let near = before.and_then(|before| sql.get(before.len()..)).map(|rest| rest.chars().take(20).collect());
            match near {
                Some::<String>(near) if !near.is_empty() && !msg.contains("near") => format!("{msg}, at `{near}`"),
                _ => msg,
            }
        }
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
