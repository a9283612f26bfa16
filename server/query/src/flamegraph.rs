//! A flame graph: the tree of functions with values, pruned to what can be seen, from any row down; or inverted, with
//! the allocating functions at the root and their callers below.

use std::collections::HashMap;

use super::amounts::{MetricMoment, Signed};
use super::filter::Filter;
use super::freeing;
use super::node_sums::{self, NodeSumsParams, SiteSums};
use super::pins::{self, graph::PinnedTree};
use super::pruned::{Chosen, Lazy, Limits, prune};
use super::subtree_sums::SubtreeSums;
use super::value_tree::{RowId, ValueTree};
use super::window::{Resolved, Window};
use super::{QueryError, Result};
use tracehound_api::flamegraph::{Ancestor, FlameFrame, Flamegraph, Rows};
use tracehound_api::pins::PinUnit;
use tracehound_api::{Metric, Unit};
use tracehound_index::symbols::{FunctionId, RecordingSymbols, SymbolFrame};
use tracehound_index::{Cancel, Trace};

/// Parameters of the query.
#[derive(Debug, Clone)]
pub struct FlamegraphParams {
    /// What is measured.
    pub metric: Metric,
    /// What is added up.
    pub unit: Unit,
    /// Window of time.
    pub window: Window,
    /// Which blocks count.
    pub filter: Filter,
    /// From this row down; `None`: everything.
    pub root: Option<u64>,
    /// Pixels of the root.
    pub width: u32,
    /// Narrower rows are folded.
    pub min_px: f64,
    /// Most rows in the answer.
    pub max_nodes: usize,
    /// Callers below callees.
    pub inverted: bool,
    /// By the backtraces that freed the blocks; for [`Metric::Freed`] alone.
    pub freeing: bool,
    /// Resident pages that only blocks from below a row hold, instead of blocks, and what of them is given back as a whole;
    /// for [`Metric::Live`] and [`Metric::Peak`].
    pub pinned: Option<PinUnit>,
}

impl Default for FlamegraphParams {
    fn default() -> Self {
        Self {
            metric: Metric::default(),
            unit: Unit::default(),
            window: Window::default(),
            filter: Filter::default(),
            root: None,
            width: 1200,
            min_px: 0.5,
            max_nodes: 2000,
            inverted: false,
            freeing: false,
            pinned: None,
        }
    }
}

/// Makes a flame graph.
///
/// # Errors
/// When a parameter does not fit the recording, or cancelled.
pub fn run(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    params: &FlamegraphParams,
    cancel: &Cancel,
) -> Result<Flamegraph> {
    let GraphValues { values, window, moment } = measure(trace, symbols, params, cancel)?;
    cancel.check()?;
    let limits = Limits { width: params.width, min_px: params.min_px, max_nodes: params.max_nodes.max(2) };
    let mut frames = FlameFrames { trace, symbols, list: Vec::new(), by_function: HashMap::new() };
    let (total, ancestors, rows) = if params.inverted {
        inverted(&values, params, &limits, &mut frames)?
    } else {
        top_down(&values, params, &limits, &mut frames)?
    };
    Ok(Flamegraph {
        schema: "heaptrace.flamegraph/1".into(),
        metric: params.metric,
        unit: params.unit,
        from_ns: window.from_ns,
        to_ns: window.to_ns,
        at_ns: moment.map(|moment| moment.ns),
        peak_of: moment.and_then(|moment| moment.peak_of),
        inverted: params.inverted,
        freeing: params.freeing,
        pinned: params.pinned.is_some(),
        pin_unit: params.pinned,
        total,
        ancestors,
        rows,
        frames: frames.list,
        exactness: trace.exactness(),
    })
}

/// The tree with the requested values.
struct GraphValues {
    values: ValueTree,
    window: Resolved,
    moment: Option<MetricMoment>,
}

fn measure(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    params: &FlamegraphParams,
    cancel: &Cancel,
) -> Result<GraphValues> {
    let FlamegraphParams { metric, window, filter, .. } = params;
    match (params.freeing, params.pinned) {
        (true, Some(_)) => Err(QueryError::bad("pinned", "pages are held by who allocated, not by who freed")),
        (false, Some(unit)) => {
            let PinnedTree { values, window, moment } =
                pins::graph::values(trace, symbols, unit, *metric, window, filter, cancel)?;
            Ok(GraphValues { values, window, moment: Some(moment) })
        }
        (true, None) => {
            let sums = freeing::sums(trace, symbols, *metric, window, filter, cancel)?;
            let tree = trace.frame_tree(symbols, cancel)?;
            let rows = sums.nodes.iter().map(|node| (tree.of_node(node.node), node.sum));
            let values = ValueTree::of_rows(trace, &tree, symbols, filter, rows);
            Ok(GraphValues { values, window: sums.window, moment: sums.moment })
        }
        (false, None) => {
            let asked = NodeSumsParams { metric: *metric, window: window.clone(), filter: filter.clone() };
            let SiteSums { window, moment, sums } = node_sums::by_site(trace, symbols, &asked, cancel)?;
            let tree = trace.frame_tree(symbols, cancel)?;
            let values = ValueTree::of_sites(trace, &tree, symbols, filter, &sums, cancel)?;
            Ok(GraphValues { values, window, moment })
        }
    }
}

type Parts = (i64, Vec<Ancestor>, Rows);

fn no_such_root(root: u64) -> QueryError {
    QueryError::bad("root", format!("there is no row {root} in this flame graph"))
}

/// Numbers for frames, each function once.
struct FlameFrames<'a> {
    trace: &'a Trace,
    symbols: &'a dyn RecordingSymbols,
    list: Vec<FlameFrame>,
    by_function: HashMap<FunctionId, u32>,
}

impl FlameFrames<'_> {
    fn number(&mut self, frame: &SymbolFrame) -> u32 {
        let (trace, symbols, list) = (self.trace, self.symbols, &mut self.list);
        *self.by_function.entry(frame.function).or_insert_with(|| {
            let function = symbols.function(frame.function);
            let (file, line) = function.place(frame);
            list.push(FlameFrame {
                name: function.display().as_ref().to_owned(),
                module: function.module.and_then(|m| trace.modules().get(m as usize)).map(|m| m.name()),
                file: file.map(|f| symbols.file(f).as_ref().to_owned()),
                line,
                inlined: frame.inlined,
                library: function.kind.is_library(),
                language: function.language.map(|language| language.name().to_owned()),
            });
            list.len() as u32 - 1
        })
    }
}

/// Figures of a row beside its sums in the requested unit.
struct RowFacts {
    id: u64,
    frame: Option<u32>,
    other: i64,
}

fn rows_of<R>(chosen: &[Chosen<R>], mut describe: impl FnMut(&R) -> RowFacts) -> Rows {
    let mut rows = Rows::default();
    for row in chosen {
        let (id, frame, other) = match row.row.as_ref().map(&mut describe) {
            Some(RowFacts { id, frame, other }) => (id, frame, Some(other)),
            None => (rows.id.get(row.parent as usize).copied().unwrap_or(0), None, None),
        };
        rows.id.push(id);
        rows.parent.push(row.parent);
        rows.frame.push(frame);
        rows.value.push(row.value);
        rows.own.push(row.own);
        rows.other.push(other);
        rows.folded.push(row.folded);
    }
    rows
}

impl Lazy for SubtreeSums<'_> {
    type Row = RowId;

    fn children(&mut self, row: &RowId) -> Vec<RowId> {
        SubtreeSums::children(self, *row)
    }

    fn weight(&self, row: &RowId) -> u64 {
        SubtreeSums::weight(self, *row)
    }

    fn value(&self, row: &RowId) -> i64 {
        SubtreeSums::value(self, *row)
    }

    fn size(&self, row: &RowId) -> u32 {
        SubtreeSums::size(self, *row)
    }
}

fn top_down(
    values: &ValueTree,
    params: &FlamegraphParams,
    limits: &Limits,
    frames: &mut FlameFrames<'_>,
) -> Result<Parts> {
    let mut tree = SubtreeSums::new(values, params.unit);
    let root = match params.root {
        None | Some(0) => 0,
        Some(id) => {
            let frame = u32::try_from(id).map_err(|_| no_such_root(id))?;
            values.row_of(frame).ok_or_else(|| no_such_root(id))?
        }
    };
    let mut describe = |row: RowId| {
        let frame = values.shape.frame[row as usize];
        (u64::from(values.id(row)), (row != 0).then(|| frames.number(&frame)))
    };
    let chosen = prune(&mut tree, root, limits);
    let rows = rows_of(&chosen, |&row| {
        let (id, frame) = describe(row);
        RowFacts { id, frame, other: tree.other(row) }
    });
    let mut above: Vec<RowId> = values.path(root).skip(1).collect();
    above.extend((root != 0).then_some(0));
    let ancestors = above.iter().rev().map(|&row| {
        let (id, frame) = describe(row);
        Ancestor { id, frame, value: SubtreeSums::value(&tree, row) }
    });
    Ok((SubtreeSums::value(&tree, 0), ancestors.collect(), rows))
}

/// Rows of the inverted tree are made as they are needed: a row is the set of backtraces that end in its functions.
struct InvertedTree<'a> {
    values: &'a ValueTree,
}

/// One backtrace in an inverted row: where it began, and the caller that comes next.
#[derive(Debug, Clone, Copy)]
struct InvertedItem {
    leaf: RowId,
    next: RowId,
    value: i64,
    other: i64,
}

/// A row of the inverted tree.
#[derive(Debug)]
struct InvertedRow {
    depth: u32,
    frame: SymbolFrame,
    items: Vec<InvertedItem>,
    value: i64,
    other: i64,
    weight: u64,
    /// Backtraces with a value.
    size: u32,
}

impl InvertedRow {
    fn new(depth: u32, frame: SymbolFrame, items: Vec<InvertedItem>) -> Self {
        let value = items.iter().map(|i| i.value).sum();
        let other = items.iter().map(|i| i.other).sum();
        let weight = items.iter().map(|i| i.value.unsigned_abs()).sum();
        let size = u32::try_from(items.iter().filter(|i| i.value != 0).count()).unwrap_or(u32::MAX);
        Self { depth, frame, items, value, other, weight, size }
    }
}

impl Lazy for InvertedTree<'_> {
    type Row = InvertedRow;

    fn children(&mut self, row: &InvertedRow) -> Vec<InvertedRow> {
        let mut groups: HashMap<FunctionId, usize> = HashMap::new();
        let mut children: Vec<(SymbolFrame, Vec<InvertedItem>)> = Vec::new();
        for item in row.items.iter().filter(|item| item.next != 0) {
            let frame = self.values.shape.frame[item.next as usize];
            let at = *groups.entry(frame.function).or_insert_with(|| {
                children.push((frame, Vec::new()));
                children.len() - 1
            });
            children[at].1.push(InvertedItem { next: self.values.shape.parent[item.next as usize], ..*item });
        }
        let children = children.into_iter().map(|(frame, items)| InvertedRow::new(row.depth + 1, frame, items));
        children.filter(|child| child.weight > 0).collect()
    }

    fn weight(&self, row: &InvertedRow) -> u64 {
        row.weight
    }

    fn value(&self, row: &InvertedRow) -> i64 {
        row.value
    }

    fn size(&self, row: &InvertedRow) -> u32 {
        // How many rows lie below is not known without making them; how many backtraces do, is.
        row.size
    }
}

/// Bits of an inverted row's id that hold a row of the frame tree; the depth is above them.
const LEAF_BITS: u32 = 32;

impl InvertedRow {
    /// A backtrace that ends in the row's functions, and their number: enough to find the row again.
    fn id(&self, values: &ValueTree) -> u64 {
        let leaf = self.items.iter().map(|i| values.id(i.leaf)).min().unwrap_or(0);
        if self.depth == 0 { 0 } else { u64::from(self.depth.min((1 << 20) - 1)) << LEAF_BITS | u64::from(leaf) }
    }
}

fn inverted(
    values: &ValueTree,
    params: &FlamegraphParams,
    limits: &Limits,
    frames: &mut FlameFrames<'_>,
) -> Result<Parts> {
    let item = |(row, own): (RowId, &Signed)| {
        let (value, other) = (own.of(params.unit), own.other(params.unit));
        InvertedItem { leaf: row, next: row, value, other }
    };
    let mut items: Vec<InvertedItem> = values.owners().map(item).collect();
    items.retain(|item| (item.value, item.other) != (0, 0));
    // The first of a function's frames is the one that is shown.
    items.sort_unstable_by_key(|item| item.leaf);
    let mut tree = InvertedTree { values };
    let nobody = values.shape.frame[0];
    let mut root = InvertedRow::new(0, nobody, items);
    let total = root.value;
    let mut ancestors = Vec::new();
    let describe = |row: &InvertedRow, frames: &mut FlameFrames<'_>| {
        (row.id(values), (row.depth > 0).then(|| frames.number(&row.frame)))
    };
    if let Some(id) = params.root.filter(|&id| id != 0) {
        let depth = id >> LEAF_BITS;
        let leaf = values.row_of(id as u32).filter(|&row| row != 0).ok_or_else(|| no_such_root(id))?;
        let functions: Vec<FunctionId> =
            values.path(leaf).take(depth as usize).map(|row| values.shape.frame[row as usize].function).collect();
        if depth == 0 || functions.len() as u64 != depth {
            return Err(no_such_root(id));
        }
        for function in functions {
            let found = tree.children(&root).into_iter().find(|child| child.frame.function == function);
            // A function that has nothing in this window is an empty row, not an error.
            let child = found.unwrap_or_else(|| {
                let frame = SymbolFrame { function, ..nobody };
                InvertedRow::new(root.depth + 1, frame, Vec::new())
            });
            let (id, frame) = describe(&root, frames);
            ancestors.push(Ancestor { id, frame, value: root.value });
            root = child;
        }
    }
    let chosen = prune(&mut tree, root, limits);
    let mut rows = rows_of(&chosen, |row| {
        let (id, frame) = describe(row, frames);
        RowFacts { id, frame, other: row.other }
    });
    if let (Some(id), Some(first)) = (params.root, rows.id.first_mut()) {
        *first = id;
    }
    Ok((total, ancestors, rows))
}
