//! `GET sql`: an answer in SQL; `GET sql/schema`: what can be asked.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Rows of an answer in SQL.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SqlAnswer {
    /// `heaptrace.sql/1`.
    pub schema: String,
    /// Names of the columns, in their order. Of several with one name, later ones have their number behind a `:`.
    pub columns: Vec<String>,
    /// The rows, each with a member for every column.
    pub rows: Vec<BTreeMap<String, SqlCell>>,
    /// How many rows these are.
    pub row_count: u64,
    /// There are more rows than these: the limit of rows or of bytes was reached.
    pub truncated: bool,
}

/// A value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum SqlCell {
    /// NULL.
    Null,
    /// INTEGER: 64 bits, signed.
    Integer(i64),
    /// REAL. What is not finite is `null`.
    Real(f64),
    /// TEXT; a BLOB as hexadecimal digits.
    Text(String),
}

/// What can be asked in SQL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SqlSchema {
    /// `heaptrace.sql_schema/1`.
    pub schema: String,
    /// Tables, functions that return tables, and views.
    pub tables: Vec<SqlTableInfo>,
    /// Questions to begin with.
    pub examples: Vec<SqlExample>,
}

/// A table, a function that returns one, or a view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SqlTableInfo {
    /// Its name.
    pub name: String,
    /// What a row is.
    pub about: String,
    /// Parameters of a function, in their order; all may be left out, from the last one on.
    pub parameters: Vec<SqlColumnInfo>,
    /// Columns of a table or a function; of a view none, its query names them.
    pub columns: Vec<SqlColumnInfo>,
    /// What a view is made of.
    pub query: Option<String>,
}

/// A column or a parameter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SqlColumnInfo {
    /// Its name.
    pub name: String,
    /// `INTEGER`, `REAL` or `TEXT`; any may be NULL.
    pub kind: String,
    /// What it holds.
    pub about: String,
}

/// A question to begin with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SqlExample {
    /// What it asks, in words.
    pub title: String,
    /// The same in SQL.
    pub query: String,
    /// How many recordings it needs.
    pub recordings: u32,
}
