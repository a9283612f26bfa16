//! `allocations` and `live`: blocks, straight from the columns of the index.
//!
//! Conditions choose a range of rows, and among these what zone maps and columns let pass: one bit a row. SQLite looks at
//! every condition again, so a bound may be wide.

use std::sync::Arc;

use rayon::prelude::*;
use rusqlite::types::Value;
use rusqlite::vtab::Context;
use rusqlite::{Connection, Error, Result, ffi};
use tracehound_format::record::Kind;
use tracehound_index::{Cancel, Free, Position, Trace};
use tracehound_query::filter::Selection;
use tracehound_query::scan::{Also, BLOCK, Picker};

use super::SqlContext;
use super::arguments::{Arguments, Condition, SqlComparison, bound};
use super::schema::{ALLOCATIONS, LIVE, SqlTable};
use super::virtual_table::{self, TableReader, TableSource};

/// Columns of the tables, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockColumn {
    Recording,
    Row,
    Address,
    Size,
    AllocatedAt,
    FreedAt,
    LifetimeNs,
    Thread,
    FreeThread,
    Site,
    Stack,
    FreeStack,
    Function,
    Previous,
    Temporary,
    Alignment,
}

use BlockColumn as Is;

const COLUMNS: [BlockColumn; 16] = [
    Is::Recording,
    Is::Row,
    Is::Address,
    Is::Size,
    Is::AllocatedAt,
    Is::FreedAt,
    Is::LifetimeNs,
    Is::Thread,
    Is::FreeThread,
    Is::Site,
    Is::Stack,
    Is::FreeStack,
    Is::Function,
    Is::Previous,
    Is::Temporary,
    Is::Alignment,
];

const _: () = assert!(COLUMNS.len() == ALLOCATIONS.columns.len());

/// Registers the tables with SQLite.
pub fn register(connection: &Connection, context: &Arc<SqlContext>) -> Result<()> {
    for table in [&ALLOCATIONS, &LIVE] {
        virtual_table::register(connection, BlockSource { context: Arc::clone(context), table })?;
    }
    Ok(())
}

#[derive(Clone)]
struct BlockSource {
    context: Arc<SqlContext>,
    table: &'static SqlTable,
}

impl TableSource for BlockSource {
    type Rows = BlockRows;

    fn table(&self) -> &'static SqlTable {
        self.table
    }

    fn can_go_down(&self, column: usize, comparison: SqlComparison) -> bool {
        match COLUMNS.get(column) {
            Some(Is::Recording | Is::Thread | Is::Site) => comparison == SqlComparison::Equal,
            Some(Is::Row | Is::AllocatedAt | Is::Size) => true,
            _ => false,
        }
    }

    fn estimate(&self, conditions: &[Condition]) -> (f64, f64) {
        let all: u64 = self.context.recordings.iter().map(|recording| recording.trace.alloc_count()).sum();
        let mut rows = all as f64;
        let mut effort = rows;
        for &(column, comparison) in conditions {
            // If a condition picks a range, other rows are not even read.
            let (part, is_range) = match (COLUMNS.get(column), comparison) {
                (Some(Is::Row | Is::AllocatedAt), SqlComparison::Equal) => (1e-6, true),
                (Some(Is::Row | Is::AllocatedAt), _) => (0.3, true),
                (Some(Is::Recording), _) => (1.0 / self.context.recordings.len().max(1) as f64, true),
                (Some(Is::Site), _) => (0.01, false),
                (Some(Is::Thread), _) => (0.2, false),
                (Some(Is::Size), SqlComparison::Equal) => (0.05, false),
                _ => (0.5, false),
            };
            rows *= part;
            effort *= if is_range { part } else { 0.2 };
        }
        (rows, effort)
    }

    fn look(&self, conditions: Vec<(Condition, Value)>) -> Result<BlockRows> {
        let bounds = Bounds::new(&conditions);
        let is_live = !self.table.parameters.is_empty();
        let at = conditions.iter().find(|((column, _), _)| *column == COLUMNS.len()).map(|(_, value)| value.clone());
        let at = Arguments(&[at]).time(0, "at_time").map_err(module_error)?;
        let mut parts = Vec::new();
        for (number, recording) in self.context.chosen(bounds.recording) {
            let trace = &recording.trace;
            let alive = is_live.then(|| moment(trace, at.clone(), &self.context.cancel)).transpose()?;
            parts.push(bounds.part(trace, number, alive, &self.context.cancel)?);
        }
        let row = parts.first().map_or(0, |part| part.rows.start);
        let mut rows = BlockRows { parts, part: 0, row };
        rows.settle();
        Ok(rows)
    }
}

/// The rows of one recording that pass.
struct Part {
    recording: i64,
    trace: Arc<Trace>,
    rows: std::ops::Range<u64>,
    /// A bit for each row; `None`: all pass.
    passing: Option<Vec<u64>>,
}

impl Part {
    /// The first passing row from `row` on.
    fn next(&self, row: u64) -> Option<u64> {
        if row >= self.rows.end {
            return None;
        }
        let Some(bits) = &self.passing else { return Some(row) };
        let mut at = row - self.rows.start;
        loop {
            let word = bits.get((at / 64) as usize)? >> (at % 64);
            if word != 0 {
                return Some(self.rows.start + at + u64::from(word.trailing_zeros()));
            }
            at = (at / 64 + 1) * 64;
        }
    }
}

struct BlockRows {
    parts: Vec<Part>,
    part: usize,
    row: u64,
}

/// Conditions on the rows of one recording.
struct Bounds {
    rows: (u64, u64),
    born_ns: (u64, u64),
    sizes: (u64, u64),
    thread: Option<i64>,
    site: Option<i64>,
    recording: Option<i64>,
}

impl Bounds {
    fn new(conditions: &[(Condition, Value)]) -> Self {
        let mut bounds = Self {
            rows: (0, u64::MAX),
            born_ns: (0, u64::MAX),
            sizes: (0, u64::MAX),
            thread: None,
            site: None,
            recording: None,
        };
        for ((column, comparison), value) in conditions {
            let Some(value) = bound(value) else { continue };
            let narrow = |range: &mut (u64, u64)| {
                // A real number has been rounded towards zero.
                let value = u64::try_from(value).unwrap_or(0);
                if *comparison != SqlComparison::AtMost {
                    range.0 = range.0.max(value);
                }
                if *comparison != SqlComparison::AtLeast {
                    range.1 = range.1.min(value);
                }
            };
            match COLUMNS.get(*column) {
                Some(Is::Row) => narrow(&mut bounds.rows),
                Some(Is::AllocatedAt) => narrow(&mut bounds.born_ns),
                Some(Is::Size) => narrow(&mut bounds.sizes),
                Some(Is::Thread) => bounds.thread = Some(value),
                Some(Is::Site) => bounds.site = Some(value),
                Some(Is::Recording) => bounds.recording = Some(value),
                _ => {}
            }
        }
        bounds
    }

    /// The rows of `trace` that pass; with `alive`, of the blocks that are live there.
    fn part(&self, trace: &Arc<Trace>, recording: i64, alive: Option<Position>, cancel: &Cancel) -> Result<Part> {
        let from = trace.position_before(self.born_ns.0).allocs.max(self.rows.0);
        let end = trace.position_before(self.born_ns.1.saturating_add(1)).allocs;
        let to = end.min(self.rows.1.saturating_add(1)).min(alive.map_or(u64::MAX, |place| place.allocs));
        let rows = from..to.max(from);
        let mut selection = Selection::all();
        (selection.min_size, selection.max_size) = self.sizes;
        if let Some(thread) = self.thread {
            let is_it = |facts: &tracehound_index::facts::ThreadFacts| i64::from(facts.id) == thread;
            selection.threads = Some(trace.threads().iter().map(is_it).collect());
        }
        if let Some(site) = self.site {
            selection = selection.and_site(trace, u32::try_from(site).unwrap_or(u32::MAX));
        }
        let also = alive.map_or(Also::Nothing, |place| Also::LiveAt(place.frees));
        let trace = Arc::clone(trace);
        if selection.is_everything() && also == Also::Nothing {
            return Ok(Part { recording, trace, rows, passing: None });
        }
        let passing = pick(&trace, &selection, &also, &rows, cancel)?;
        Ok(Part { recording, trace, rows, passing: Some(passing) })
    }
}

/// A bit for each row of `rows`: set where it passes.
fn pick(
    trace: &Trace,
    selection: &Selection,
    also: &Also,
    rows: &std::ops::Range<u64>,
    cancel: &Cancel,
) -> Result<Vec<u64>> {
    /// Rows of one task: many blocks, whole words.
    const TASK: u64 = 64 * BLOCK as u64;
    let test = selection.rows(trace);
    let tasks = (rows.end - rows.start).div_ceil(TASK);
    let parts: Vec<Vec<u64>> = (0..tasks)
        .into_par_iter()
        .map(|task| {
            cancel.check().map_err(|_| interrupted())?;
            let from = rows.start + task * TASK;
            let to = rows.end.min(from + TASK);
            let mut bits = vec![0_u64; (to - from).div_ceil(64) as usize];
            let mut picker = Picker::new(&test, also.clone());
            for start in (from..to).step_by(BLOCK) {
                for &offset in picker.pick(start, to.min(start + BLOCK as u64)) {
                    let at = start - from + u64::from(offset);
                    bits[(at / 64) as usize] |= 1 << (at % 64);
                }
            }
            Ok(bits)
        })
        .collect::<Result<_>>()?;
    Ok(parts.concat())
}

/// The error that SQLite returns when its progress handler stops it.
pub fn interrupted() -> Error {
    Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_INTERRUPT), None)
}

impl BlockRows {
    /// Goes to the first passing row from the current one on.
    fn settle(&mut self) {
        while let Some(part) = self.parts.get(self.part) {
            if let Some(row) = part.next(self.row) {
                self.row = row;
                return;
            }
            self.part += 1;
            self.row = self.parts.get(self.part).map_or(0, |part| part.rows.start);
        }
    }
}

impl TableReader for BlockRows {
    fn advance(&mut self) -> Result<()> {
        self.row += 1;
        self.settle();
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.part >= self.parts.len()
    }

    fn value(&self, out: &mut Context, column: usize) -> Result<()> {
        let Some(part) = self.parts.get(self.part) else { return Ok(()) };
        let (trace, row) = (&part.trace, self.row);
        let Some(column) = COLUMNS.get(column) else { return Ok(()) };
        let free = || trace.free_of(row);
        let ended = || free().map(|ordinal| trace.free(ordinal));
        match column {
            Is::Recording => out.set_result(part.recording),
            Is::Row => out.set_result(signed(row)),
            Is::Address => out.set_result(signed(trace.address_of(row))),
            Is::Size => out.set_result(signed(trace.size_of(row))),
            Is::AllocatedAt => out.set_result(signed(trace.born_ns(row))),
            Is::FreedAt => out.set_result(free().map(|ordinal| signed(trace.died_ns(ordinal)))),
            Is::LifetimeNs => {
                let lived = |ordinal| signed(trace.died_ns(ordinal).saturating_sub(trace.born_ns(row)));
                out.set_result(free().map(lived))
            }
            Is::Thread => out.set_result(trace.thread_id(trace.origin_of_alloc(row).thread)),
            Is::FreeThread => out.set_result(ended().map(|free: Free| trace.thread_id(free.thread))),
            Is::Site => out.set_result(trace.origin_of_alloc(row).site),
            Is::Stack => out.set_result(trace.origin_of_alloc(row).node),
            Is::FreeStack => out.set_result(ended().map(|free| free.node)),
            Is::Function => {
                out.set_result(Kind::from_u8(trace.origin_of_alloc(row).kind).map_or("unknown", Kind::function))
            }
            Is::Previous => out.set_result(trace.alloc(row).previous.map(signed)),
            Is::Temporary => out.set_result(trace.is_temporary(row)),
            Is::Alignment => out.set_result(trace.alignment_of(row).map(signed)),
        }
    }

    fn number(&self) -> i64 {
        /// More rows than a recording has.
        const BITS: u32 = 44;
        self.parts.get(self.part).map_or(0, |part| part.recording << BITS | signed(self.row))
    }
}

/// The place behind the events of a time; without one, the end.
fn moment(trace: &Trace, at: Option<tracehound_query::TimeExpr>, cancel: &Cancel) -> Result<Position> {
    if at.is_none() {
        return Ok(trace.end_position());
    }
    let window = tracehound_query::Window { at, ..Default::default() };
    let resolved = window.resolve(trace, &Selection::all(), cancel).map_err(module_error)?;
    Ok(resolved.at.map_or(trace.end_position(), |(_, place)| place))
}

/// An error of a query, as an error of SQLite.
pub fn module_error(error: tracehound_query::QueryError) -> Error {
    match error {
        tracehound_query::QueryError::Cancelled => interrupted(),
        other => Error::ModuleError(other.to_string()),
    }
}

/// Numbers of ours as SQLite has them: addresses of programs, sizes and times are below 2^63.
pub const fn signed(number: u64) -> i64 {
    number.cast_signed()
}
