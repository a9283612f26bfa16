//! Allocation rates: blocks and temporary blocks by function of the program, and chains of reallocs with what
//! they moved.
//!
//! A chain is a block that realloc resized: `a → b → c`. Rows come in order of time, so the chain that ends in `a` is
//! known when `b` comes.

use std::collections::HashMap;

use rustc_hash::FxHashMap;
use serde::Deserialize;
use tracehound_api::churn::{Churn, ChurnRow, ChurnSum, ReallocChain};
use tracehound_api::{Amount, Metric};
use tracehound_format::record::Kind;
use tracehound_index::frame_tree::{FrameTree, NO_FUNCTION};
use tracehound_index::program::program_frame;
use tracehound_index::symbols::{FunctionId, RecordingSymbols, SymbolFrame};
use tracehound_index::{Cancel, Trace};

use super::Result;
use super::amounts::{Signed, SumKey, SumQuery};
use super::filter::{Filter, Selection};
use super::sorting::{SortKeys, or_last};
use super::window::{Resolved, Window};

/// Parameters of the query.
#[derive(Debug, Clone, Default)]
pub struct ChurnParams {
    /// Window of time.
    pub window: Window,
    /// Which blocks count.
    pub filter: Filter,
    /// Order of the rows.
    pub sort: SortKeys<ChurnSort>,
    /// Most rows; `None`: all.
    pub limit: Option<usize>,
}

/// A column of the table; figures begin with the largest. Ties go by allocations, bytes and name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChurnSort {
    /// By number of allocations.
    #[default]
    Allocations,
    /// By allocated bytes.
    Bytes,
    /// By number of temporary allocations.
    Temporary,
    /// By bytes that reallocs moved.
    Moved,
    /// By bytes that the longest chain of reallocs moved.
    Chain,
    /// By name.
    Name,
    /// By source file and line, else by module.
    Source,
}

/// Rows between two looks at the cancel flag.
const CHECK: u64 = 1 << 16;

/// Makes the table.
///
/// # Errors
/// When a parameter does not fit the recording, or cancelled.
pub fn run(trace: &Trace, symbols: &dyn RecordingSymbols, params: &ChurnParams, cancel: &Cancel) -> Result<Churn> {
    let selection = params.filter.select(trace, symbols, cancel)?;
    let mut window = params.window.resolve(trace, &selection, cancel)?;
    // What a forked process has inherited is no work of its own.
    if window.span.from.allocs < trace.own_start().allocs {
        window.span.from = trace.own_start();
    }
    let tree = trace.frame_tree(symbols, cancel)?;
    let mut functions = ProgramFunctions::new(trace, symbols, &tree);
    let question = SumQuery { trace, selection: &selection, key: SumKey::Site, cancel };
    let mut groups: HashMap<FunctionId, ChurnGroup> = HashMap::new();
    for metric in [Metric::Allocated, Metric::Temporary] {
        let sums: Vec<Signed> = question.metric(metric, &window)?;
        for (site, sum) in (0_u32..).zip(sums).filter(|(_, sum)| !sum.is_zero()) {
            let its = &mut functions.group(&mut groups, site).sum;
            let to = if metric == Metric::Allocated { &mut its.allocations } else { &mut its.temporary };
            add(to, sum.amount());
        }
    }
    for (site, chain) in chains(trace, &selection, &window, cancel, |site, step| {
        let sum = &mut functions.group(&mut groups, site).sum;
        sum.reallocs += 1;
        sum.moved += u64::from(step.is_some());
        sum.moved_bytes += step.unwrap_or(0);
    })? {
        let longest = &mut functions.group(&mut groups, site).longest;
        let rank = |chain: &ReallocChain| (chain.moved_bytes, chain.reallocs, chain.last_bytes, chain.last_ns);
        if longest.as_ref().is_none_or(|known| rank(known) < rank(&chain)) {
            *longest = Some(chain);
        }
    }
    Ok(answer(trace, symbols, params, &window, groups))
}

fn add(to: &mut Amount, more: Amount) {
    to.bytes += more.bytes;
    to.count += more.count;
}

/// What one function did.
#[derive(Debug, Default)]
struct ChurnGroup {
    frame: Option<SymbolFrame>,
    sum: ChurnSum,
    longest: Option<ReallocChain>,
}

/// The function of the program that a site belongs to; each site is looked at once.
struct ProgramFunctions<'a> {
    trace: &'a Trace,
    symbols: &'a dyn RecordingSymbols,
    tree: &'a FrameTree,
    known: FxHashMap<u32, SymbolFrame>,
}

impl<'a> ProgramFunctions<'a> {
    fn new(trace: &'a Trace, symbols: &'a dyn RecordingSymbols, tree: &'a FrameTree) -> Self {
        Self { trace, symbols, tree, known: FxHashMap::default() }
    }

    fn group<'g>(&mut self, groups: &'g mut HashMap<FunctionId, ChurnGroup>, site: u32) -> &'g mut ChurnGroup {
        let frame = *self.known.entry(site).or_insert_with(|| {
            let shape = self.tree.shape();
            let row = self.tree.of_node(self.trace.site_node(site).unwrap_or(0));
            let path: Vec<SymbolFrame> = shape.path(row).map(|row| shape.frame[row as usize]).collect();
            let program = program_frame(path.iter().map(|frame| self.symbols.function(frame.function).kind));
            program.and_then(|at| path.get(at)).or(path.first()).copied().unwrap_or(shape.frame[0])
        });
        let group = groups.entry(frame.function).or_default();
        group.frame.get_or_insert(frame);
        group
    }
}

/// Chains of reallocs in the window, with the sites of their last blocks. `step` gets every realloc: its site, and the
/// bytes that it moved to another address.
fn chains(
    trace: &Trace,
    selection: &Selection,
    window: &Resolved,
    cancel: &Cancel,
    mut step: impl FnMut(u32, Option<u64>),
) -> Result<Vec<(u32, ReallocChain)>> {
    let test = selection.rows(trace);
    let columns = trace.columns();
    let reallocs: Vec<bool> = (0..trace.origin_count())
        .map(|id| Kind::from_u8(trace.origin(id).kind).is_some_and(Kind::is_realloc_to))
        .collect();
    let mut open: FxHashMap<u64, (u32, ReallocChain)> = FxHashMap::default();
    for row in window.span.from.allocs..window.span.to.allocs {
        if row.is_multiple_of(CHECK) {
            cancel.check()?;
        }
        let origin = columns.alloc_origin.get(row as usize).copied().unwrap_or(u32::MAX);
        if reallocs.get(origin as usize) != Some(&true) || !test.passes(row) {
            continue;
        }
        let origin = trace.origin(origin);
        let Some(before) = trace.previous(row, origin.kind) else { continue };
        let (old, new) = (trace.size_of(before), trace.size_of(row));
        let moved = (trace.address_of(before) != trace.address_of(row)).then_some(old.min(new));
        step(origin.site, moved);
        let nothing =
            ReallocChain { reallocs: 0, moved: 0, moved_bytes: 0, first_bytes: old, last_bytes: old, last_ns: 0 };
        let (_, mut chain) = open.remove(&before).unwrap_or((origin.site, nothing));
        chain.reallocs += 1;
        chain.moved += u64::from(moved.is_some());
        chain.moved_bytes += moved.unwrap_or(0);
        chain.last_bytes = new;
        chain.last_ns = trace.born_ns(row);
        open.insert(row, (origin.site, chain));
    }
    Ok(open.into_values().collect())
}

fn answer(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    params: &ChurnParams,
    window: &Resolved,
    groups: HashMap<FunctionId, ChurnGroup>,
) -> Churn {
    let seconds = window.to_ns.saturating_sub(window.from_ns) as f64 / 1e9;
    let rate = |sum: &mut ChurnSum| {
        sum.allocations_per_second = if seconds > 0.0 { sum.allocations.count as f64 / seconds } else { 0.0 };
    };
    let mut total = ChurnSum::default();
    let mut rows: Vec<ChurnRow> = Vec::with_capacity(groups.len());
    for (function, ChurnGroup { frame, mut sum, longest }) in groups {
        add(&mut total.allocations, sum.allocations);
        add(&mut total.temporary, sum.temporary);
        total.reallocs += sum.reallocs;
        total.moved += sum.moved;
        total.moved_bytes += sum.moved_bytes;
        rate(&mut sum);
        let named = |name: &str| ChurnRow { function: name.into(), file: None, line: None, module: None, sum, longest };
        rows.push(match frame.filter(|_| function != NO_FUNCTION) {
            None => named("(no backtrace)"),
            Some(frame) => {
                let facts = symbols.function(function);
                let (file, line) = facts.place(&frame);
                let module = facts.module.and_then(|m| trace.modules().get(m as usize)).map(|m| m.name());
                let file = file.map(|file| symbols.file(file).as_ref().to_owned());
                ChurnRow { file, line, module, ..named(facts.display().as_ref()) }
            }
        });
    }
    rate(&mut total);
    rows.sort_by(|a, b| {
        let by_keys = params.sort.compare(|column| match column {
            ChurnSort::Allocations => b.sum.allocations.count.cmp(&a.sum.allocations.count),
            ChurnSort::Bytes => b.sum.allocations.bytes.cmp(&a.sum.allocations.bytes),
            ChurnSort::Temporary => b.sum.temporary.count.cmp(&a.sum.temporary.count),
            ChurnSort::Moved => b.sum.moved_bytes.cmp(&a.sum.moved_bytes),
            ChurnSort::Chain => chain_of(b).cmp(&chain_of(a)),
            ChurnSort::Name => a.function.cmp(&b.function),
            ChurnSort::Source => source_of(a).cmp(&source_of(b)),
        });
        let amount = |row: &ChurnRow| (row.sum.allocations.count, row.sum.allocations.bytes);
        by_keys
            .then_with(|| amount(b).cmp(&amount(a)))
            .then_with(|| (&a.function, &a.file, a.line).cmp(&(&b.function, &b.file, b.line)))
    });
    let total_rows = rows.len() as u64;
    rows.truncate(params.limit.unwrap_or(usize::MAX));
    Churn {
        schema: "heaptrace.churn/1".into(),
        from_ns: window.from_ns,
        to_ns: window.to_ns,
        total,
        total_rows,
        rows,
        exactness: trace.exactness(),
    }
}

/// Bytes that the longest chain of a row moved; rows without a chain come last.
fn chain_of(row: &ChurnRow) -> Option<u64> {
    row.longest.as_ref().map(|chain| chain.moved_bytes)
}

fn source_of(row: &ChurnRow) -> impl Ord {
    (or_last(row.file.as_ref().or(row.module.as_ref())), row.line)
}
