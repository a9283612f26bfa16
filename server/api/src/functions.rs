//! `GET recordings/{id}/functions`, `heaptrace top`: flat and cumulative sums, as pprof's `top`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Exactness, Metric, PeakOf, Unit};

/// A table of functions (or files, modules, threads, sites).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Functions {
    /// `heaptrace.functions/1`.
    pub schema: String,
    /// What is measured.
    pub metric: Metric,
    /// What is added up.
    pub unit: Unit,
    /// What a row is.
    pub by: GroupBy,
    /// Start of the window.
    pub from_ns: u64,
    /// End of the window.
    pub to_ns: u64,
    /// The instant, for `live` and `peak`.
    pub at_ns: Option<u64>,
    /// Whose peak the instant is, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_of: Option<PeakOf>,
    /// Sum over everything that passed the filter.
    pub total: i64,
    /// Rows that exist, of which `rows` is a part.
    pub total_rows: u64,
    /// With a search: the sum of `flat` over all rows that match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_matched: Option<i64>,
    /// Rows, in the order that was asked for.
    pub rows: Vec<FunctionRow>,
    /// How far the figures can be trusted.
    pub exactness: Exactness,
}

/// What a row adds up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum GroupBy {
    /// One function of one module.
    #[default]
    Function,
    /// One function of the program: what standard libraries, wrappers of the allocator and code without a name allocate
    /// counts as allocated by the innermost function that is none of them.
    Program,
    /// One source file.
    File,
    /// One module.
    Module,
    /// One thread.
    Thread,
    /// One allocating backtrace.
    Site,
    /// Sizes from one power of two to the next.
    SizeClass,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FunctionRow {
    /// Stable handle: `f12` function, `s12` site, `t1` thread, `64` the smallest size of a size class; else the name.
    pub id: String,
    /// Function, file, module, thread, innermost function of the site, or bounds of the size class.
    pub name: String,
    /// File name of the module, where a row has one.
    pub module: Option<String>,
    /// Source file, where a row has one: of a function the one that it is declared in.
    pub file: Option<String>,
    /// Line of `file`, where a row has one: of a function that of its declaration.
    pub line: Option<u32>,
    /// Of a function: of a standard library, or one that only hands out memory under another name.
    #[serde(default)]
    #[schema(required = true)]
    pub library: bool,
    /// The function itself called the allocator.
    pub flat: i64,
    /// The function was anywhere on the stack; recursion counted once.
    pub cum: i64,
    /// `flat` in the other unit (blocks for bytes, bytes for blocks).
    pub flat_other: i64,
    /// `cum` in the other unit.
    pub cum_other: i64,
}
