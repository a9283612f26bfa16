//! `GET recordings/{id}/breakdown`: live bytes over time, taken apart.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Exactness;

/// What a layer of the breakdown is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BreakdownGroup {
    /// The innermost function of the program on the backtrace.
    #[default]
    Function,
    /// The module of that function.
    Module,
    /// The allocating thread.
    Thread,
    /// The allocating backtrace.
    Site,
    /// The language of that function.
    Language,
}

/// Live bytes at moments in time, by layer. The layers and the rest add up to the live bytes of the timeline with as many
/// columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Breakdown {
    /// `heaptrace.breakdown/1`.
    pub schema: String,
    /// What a layer is.
    pub by: BreakdownGroup,
    /// Start of the window.
    pub from_ns: u64,
    /// End of the window.
    pub to_ns: u64,
    /// The moments: ends of equal columns of time, the last at `to_ns`.
    pub t_ns: Vec<u64>,
    /// Live bytes at each moment.
    pub total: Vec<i64>,
    /// The layers that were largest at some moment, largest first.
    pub rows: Vec<BreakdownRow>,
    /// All other layers together, at each moment.
    pub rest: Vec<i64>,
    /// How many these are; of very many layers, at least so many.
    pub rest_rows: u64,
    /// How far the figures can be trusted.
    pub exactness: Exactness,
}

/// One layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BreakdownRow {
    /// Handle of a site, id of a thread; else the name.
    pub id: String,
    /// Function, module, thread or language.
    pub name: String,
    /// Of a function or site: its module.
    pub module: Option<String>,
    /// Its source file.
    pub file: Option<String>,
    /// Its line.
    pub line: Option<u32>,
    /// Live bytes at each moment.
    pub bytes: Vec<i64>,
}
