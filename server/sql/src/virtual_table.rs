//! SQLite's interface to virtual tables, once for all of ours: its structures, the conditions that go down, the cursor.
//! What a table holds is a [`TableSource`].

use std::borrow::Cow;
use std::ffi::{CStr, c_int};

use rusqlite::types::Value;
use rusqlite::vtab::{Context, Filters, IndexInfo, Module, VTab, VTabConfig, VTabConnection, VTabCursor};
use rusqlite::{Connection, Error, Result, ffi};

use super::arguments::{Condition, SqlComparison, conditions, plan};
use super::schema::SqlTable;

/// A table: its columns, the conditions that it accepts, and the reader of its rows.
pub trait TableSource: Clone + Send + Sync + 'static {
    /// What reads its rows.
    type Rows: TableReader;
    /// Its name, columns and parameters.
    fn table(&self) -> &'static SqlTable;
    /// Whether a condition can be pushed down; SQLite checks every condition again.
    fn can_go_down(&self, column: usize, comparison: SqlComparison) -> bool;
    /// How many rows these conditions leave, and what it costs to find them.
    fn estimate(&self, conditions: &[Condition]) -> (f64, f64);
    /// The rows that these conditions leave, at the first; hidden columns behind the others are parameters.
    fn look(&self, conditions: Vec<(Condition, Value)>) -> Result<Self::Rows>;
}

/// The rows of one look at a table.
pub trait TableReader {
    /// Goes to the next row.
    fn advance(&mut self) -> Result<()>;
    /// Whether there is no row any more.
    fn is_over(&self) -> bool;
    /// The value of a column of the current row.
    fn value(&self, out: &mut Context, column: usize) -> Result<()>;
    /// The number of the current row, in the whole table.
    fn number(&self) -> i64;
}

/// Registers a table with SQLite.
pub fn register<S: TableSource>(connection: &Connection, source: S) -> Result<()> {
    connection.create_module(source.table().name, &VirtualTable::<S>::MODULE, Some(source))
}

#[repr(C)]
struct VirtualTable<S> {
    /// SQLite's part; it must stand first.
    base: ffi::sqlite3_vtab,
    source: S,
}

impl<S: TableSource> VirtualTable<S> {
    const MODULE: Module<'static, Self> = Module::eponymous_only_module();
}

// SAFETY: the structure begins with SQLite's part, and is `repr(C)`.
unsafe impl<'vtab, S: TableSource> VTab<'vtab> for VirtualTable<S> {
    type Aux = S;
    type Cursor = TableCursor<'vtab, S>;

    fn connect(
        db: &mut VTabConnection,
        aux: Option<&S>,
        _module_name: &[u8],
        _database_name: &[u8],
        _table_name: &[u8],
        _args: &[&[u8]],
    ) -> Result<(Cow<'static, CStr>, Self)> {
        let Some(source) = aux.cloned() else { return Err(Error::ModuleError("no recordings".into())) };
        db.config(VTabConfig::Innocuous)?;
        Ok((Cow::Owned(source.table().declaration()), Self { base: ffi::sqlite3_vtab::default(), source }))
    }

    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        let can_go_down = |column, comparison| self.source.can_go_down(column, comparison);
        let Some(conditions) = plan(info, self.source.table().columns.len(), can_go_down) else { return Ok(false) };
        let (rows, effort) = self.source.estimate(&conditions);
        info.set_estimated_rows(rows.max(1.0) as i64);
        info.set_estimated_cost(effort.max(1.0));
        Ok(true)
    }

    fn open(&'vtab mut self) -> Result<TableCursor<'vtab, S>> {
        Ok(TableCursor { base: ffi::sqlite3_vtab_cursor::default(), source: &self.source, rows: None })
    }
}

#[repr(C)]
struct TableCursor<'vtab, S: TableSource> {
    /// SQLite's part; it must stand first.
    base: ffi::sqlite3_vtab_cursor,
    source: &'vtab S,
    rows: Option<S::Rows>,
}

// SAFETY: the structure begins with SQLite's part, and is `repr(C)`.
unsafe impl<S: TableSource> VTabCursor for TableCursor<'_, S> {
    fn filter(&mut self, _: c_int, plan: Option<&str>, values: &Filters<'_>) -> Result<()> {
        let values = values.iter().map(|value| Value::try_from(value).unwrap_or(Value::Null)).collect();
        self.rows = Some(self.source.look(conditions(plan, values))?);
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.rows.as_mut().map_or(Ok(()), TableReader::advance)
    }

    fn eof(&self) -> bool {
        self.rows.as_ref().is_none_or(TableReader::is_over)
    }

    fn column(&self, out: &mut Context, column: c_int) -> Result<()> {
        match (&self.rows, usize::try_from(column)) {
            (Some(rows), Ok(column)) => rows.value(out, column),
            _ => Ok(()),
        }
    }

    fn rowid(&self) -> Result<i64> {
        Ok(self.rows.as_ref().map_or(0, TableReader::number))
    }
}
