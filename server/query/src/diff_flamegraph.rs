//! Two sides as one flame graph: their trees of functions laid over one another by name and module (see
//! [`super::across`]), so that what grew
//! and what shrank stand where they are called from. Addresses and lines do not matter, so that two runs, or two
//! builds, can be compared.

mod inverted;

use std::collections::HashMap;

use super::across::Across;
use super::diff::{Side, both};
use super::filter::Filter;
use super::node_sums::{self, NodeSumsParams};
use super::pins;
use super::pruned::{Lazy, Limits, prune};
use super::value_tree::ValueTree;
use super::{QueryError, Result};
use tracehound_api::diff_flamegraph::{DiffAncestor, DiffFlamegraph, DiffRows, DiffWidth};
use tracehound_api::flamegraph::FlameFrame;
use tracehound_api::pins::PinUnit;
use tracehound_api::{Metric, Unit};
use tracehound_index::Cancel;
use tracehound_index::symbols::FunctionId;

/// Parameters of the query.
#[derive(Debug, Clone)]
pub struct DiffFlamegraphParams {
    /// What is measured on both sides.
    pub metric: Metric,
    /// What is added up.
    pub unit: Unit,
    /// Which blocks count.
    pub filter: Filter,
    /// What rows are as wide as.
    pub width_of: DiffWidth,
    /// Resident pages instead of blocks, as in [`super::flamegraph::FlamegraphParams::pinned`].
    pub pinned: Option<PinUnit>,
    /// From this row down; `None`: everything.
    pub root: Option<u64>,
    /// Limits of the rows that are returned.
    pub limits: Limits,
    /// Callers below callees.
    pub inverted: bool,
    /// Scale the first side so that both sides have the same total, as in [`super::diff::DiffParams::normalize`].
    pub normalize: bool,
}

/// Index of a row of the laid-over tree; 0 is the root.
type RowId = u32;

/// Both sides of a row.
type Sides = [u64; 2];

/// The laid-over tree: parents stand before their children.
struct Overlay {
    parent: Vec<RowId>,
    /// Index into `functions`; the root's means nothing.
    function: Vec<u32>,
    own: Vec<Sides>,
    functions: Vec<FlameFrame>,
    /// By (parent, function).
    children: HashMap<(RowId, u32), RowId>,
    /// By name, with what tells it from others of that name, and module.
    named: HashMap<(String, Option<String>), u32>,
    /// By function: its name in `named`.
    called: Vec<String>,
    across: Across,
}

impl Overlay {
    fn new(across: Across) -> Self {
        Self {
            parent: vec![0],
            function: vec![u32::MAX],
            own: vec![[0; 2]],
            functions: Vec::new(),
            children: HashMap::new(),
            named: HashMap::new(),
            called: Vec::new(),
            across,
        }
    }

    /// Adds one side to the tree. Returns its sum.
    fn add(&mut self, side: Side<'_>, which: usize, params: &DiffFlamegraphParams, cancel: &Cancel) -> Result<u64> {
        let values = values(side, params, cancel)?;
        cancel.check()?;
        let amount = |row: usize| values.own()[row].of(params.unit).max(0) as u64;
        // Rows without a value on this side, at them or below, are not added.
        let mut holds: Vec<bool> = (0..values.len()).map(|row| amount(row) > 0).collect();
        for row in (1..holds.len()).rev() {
            if holds[row] {
                holds[values.shape.parent[row] as usize] = true;
            }
        }
        let mut shown_as: Vec<RowId> = vec![0; holds.len()];
        let mut known: HashMap<FunctionId, u32> = HashMap::new();
        for row in 0..holds.len() {
            if row > 0 && holds[row] {
                let frame = values.shape.frame[row];
                let function = *known.entry(frame.function).or_insert_with(|| self.function(side, which, &frame));
                shown_as[row] = self.child(shown_as[values.shape.parent[row] as usize], function);
            }
            self.own[shown_as[row] as usize][which] += amount(row);
        }
        Ok(self.own.iter().map(|own| own[which]).sum())
    }

    fn function(&mut self, side: Side<'_>, which: usize, frame: &tracehound_index::symbols::SymbolFrame) -> u32 {
        let function = side.symbols.function(frame.function);
        let name = function.display().as_ref().to_owned();
        let module = function.module.and_then(|m| side.trace.modules().get(m as usize)).map(|m| m.name());
        let called = format!("{name}{}", self.across.label(which, frame.function));
        let (functions, names) = (&mut self.functions, &mut self.called);
        *self.named.entry((called.clone(), module.clone())).or_insert_with(|| {
            let (file, line) = function.place(frame);
            let file = file.map(|f| side.symbols.file(f).as_ref().to_owned());
            let library = function.kind.is_library();
            let language = function.language.map(|language| language.name().to_owned());
            functions.push(FlameFrame { name, module, file, line, inlined: frame.inlined, library, language });
            names.push(called);
            functions.len() as u32 - 1
        })
    }

    fn child(&mut self, parent: RowId, function: u32) -> RowId {
        let next = self.parent.len() as RowId;
        let row = *self.children.entry((parent, function)).or_insert(next);
        if row == next {
            self.parent.push(parent);
            self.function.push(function);
            self.own.push([0; 2]);
        }
        row
    }

    /// Makes the totals of both sides the same by scaling the first; the factor, or nothing if a side is empty.
    fn scale(&mut self, before: u64, after: u64) -> Option<f64> {
        if before == 0 || after == 0 {
            return None;
        }
        let factor = after as f64 / before as f64;
        for own in &mut self.own {
            own[0] = (own[0] as f64 * factor).round() as u64;
        }
        Some(factor)
    }

    /// A row and its callers, without the root.
    fn path(&self, row: RowId) -> impl Iterator<Item = RowId> + '_ {
        std::iter::successors(Some(row), |&r| self.parent.get(r as usize).copied()).take_while(|&r| r != 0)
    }

    /// Ids that depend on nothing but the names on the way: the same in every answer, whatever else is in the tree.
    fn ids(&self) -> Vec<u64> {
        let hashed = |(f, called): (&FlameFrame, &String)| hash(called) ^ hash_module(f.module.as_deref());
        let named: Vec<u64> = self.functions.iter().zip(&self.called).map(hashed).collect();
        let mut ids = vec![0_u64; self.parent.len()];
        for row in 1..ids.len() {
            let above = ids[self.parent[row] as usize];
            let mixed = mix(above ^ named[self.function[row] as usize].rotate_left(17));
            ids[row] = (mixed & ((1 << 53) - 1)).max(1);
        }
        ids
    }
}

fn values(side: Side<'_>, params: &DiffFlamegraphParams, cancel: &Cancel) -> Result<ValueTree> {
    let Side { trace, symbols, window, .. } = side;
    if let Some(unit) = params.pinned {
        return Ok(pins::graph::values(trace, symbols, unit, params.metric, window, &params.filter, cancel)?.values);
    }
    let asked = NodeSumsParams { metric: params.metric, window: window.clone(), filter: params.filter.clone() };
    let sums = node_sums::by_site(trace, symbols, &asked, cancel)?.sums;
    let tree = trace.frame_tree(symbols, cancel)?;
    ValueTree::of_sites(trace, &tree, symbols, &params.filter, &sums, cancel)
}

/// FNV-1a, 64 bits.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, byte| (h ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn hash_module(module: Option<&str>) -> u64 {
    module.map_or(0x9e37_79b9, |module| hash(module).rotate_left(31))
}

/// The finalizer of splitmix64: every bit of the input changes half of the output.
const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Width of a row by its own sums.
fn own_width(width_of: DiffWidth, &[before, after]: &Sides) -> u64 {
    match width_of {
        DiffWidth::Larger => before.max(after),
        DiffWidth::Change => before.abs_diff(after),
    }
}

/// A tree whose rows have two sides; its value is the width.
trait Tree: Lazy {
    /// Own and descendants' sums.
    fn sums(&self, row: &Self::Row) -> Sides;
    /// Own sums.
    fn own(&self, row: &Self::Row) -> Sides;
    /// What to ask for to get the row as the root.
    fn id(&self, row: &Self::Row) -> u64;
    /// Index into the overlay's functions; none for the root.
    fn function(&self, row: &Self::Row) -> Option<u32>;
    /// The row with an id.
    fn find(&mut self, root: Option<u64>) -> Option<AskedRow<Self::Row>>;
}

/// The row that was asked for.
struct AskedRow<R> {
    /// From the tree's root down to its parent.
    above: Vec<R>,
    row: R,
}

/// The tree with its sums, as pruning wants it.
struct Summed<'a> {
    overlay: &'a Overlay,
    ids: Vec<u64>,
    sums: Vec<Sides>,
    width: Vec<u64>,
    size: Vec<u32>,
    /// Children of row `i`: `child[first[i]..first[i + 1]]`.
    first: Vec<u32>,
    child: Vec<RowId>,
}

impl<'a> Summed<'a> {
    fn new(overlay: &'a Overlay, width_of: DiffWidth) -> Self {
        let len = overlay.parent.len();
        let mut sums = overlay.own.clone();
        let mut width: Vec<u64> = overlay.own.iter().map(|own| own_width(width_of, own)).collect();
        let mut size = vec![0_u32; len];
        let mut first = vec![0_u32; len + 1];
        for row in (1..len).rev() {
            let parent = overlay.parent[row] as usize;
            let [before, after] = sums[row];
            sums[parent][0] += before;
            sums[parent][1] += after;
            if width[row] == 0 {
                continue;
            }
            size[row] += 1;
            width[parent] += width[row];
            size[parent] = size[parent].saturating_add(size[row]);
            first[parent + 1] += 1;
        }
        for row in 0..len {
            first[row + 1] += first[row];
        }
        let mut next = first.clone();
        let mut child = vec![0; first[len] as usize];
        for row in (1..len).filter(|&row| width[row] > 0) {
            let at = &mut next[overlay.parent[row] as usize];
            child[*at as usize] = row as RowId;
            *at += 1;
        }
        Self { overlay, ids: overlay.ids(), sums, width, size, first, child }
    }
}

impl Lazy for Summed<'_> {
    type Row = RowId;

    fn children(&mut self, row: &RowId) -> Vec<RowId> {
        let at = *row as usize;
        self.child[self.first[at] as usize..self.first[at + 1] as usize].to_vec()
    }

    fn weight(&self, row: &RowId) -> u64 {
        self.width[*row as usize]
    }

    fn value(&self, row: &RowId) -> i64 {
        i64::try_from(self.width[*row as usize]).unwrap_or(i64::MAX)
    }

    fn size(&self, row: &RowId) -> u32 {
        self.size[*row as usize]
    }
}

impl Tree for Summed<'_> {
    fn sums(&self, row: &RowId) -> Sides {
        self.sums[*row as usize]
    }

    fn own(&self, row: &RowId) -> Sides {
        self.overlay.own[*row as usize]
    }

    fn id(&self, row: &RowId) -> u64 {
        self.ids[*row as usize]
    }

    fn function(&self, row: &RowId) -> Option<u32> {
        (*row != 0).then(|| self.overlay.function[*row as usize])
    }

    fn find(&mut self, root: Option<u64>) -> Option<AskedRow<RowId>> {
        let row = match root {
            None | Some(0) => 0,
            Some(id) => self.ids.iter().position(|&known| known == id)? as RowId,
        };
        let mut above: Vec<RowId> = self.overlay.path(row).skip(1).collect();
        above.extend((row != 0).then_some(0));
        above.reverse();
        Some(AskedRow { above, row })
    }
}

/// Makes the flame graph.
///
/// # Errors
/// When a parameter does not fit a recording, or cancelled.
pub fn run(
    before: Side<'_>,
    after: Side<'_>,
    params: &DiffFlamegraphParams,
    cancel: &Cancel,
) -> Result<DiffFlamegraph> {
    if params.metric == Metric::Grown {
        return Err(QueryError::bad("metric", "`grown` is a difference already; compare `live` instead"));
    }
    let mut overlay = Overlay::new(Across::new(&[before, after], cancel)?);
    let mut total_before = overlay.add(before, 0, params, cancel)?;
    let total_after = overlay.add(after, 1, params, cancel)?;
    let scaled_by = if params.normalize { overlay.scale(total_before, total_after) } else { None };
    if scaled_by.is_some() {
        total_before = overlay.own.iter().map(|own| own[0]).sum();
    }
    let mut frames = DiffFrames { overlay: &overlay, list: Vec::new(), numbers: HashMap::new() };
    let (ancestors, rows) = if params.inverted {
        shown(&mut inverted::InvertedDiff::new(&overlay, params.width_of), params, &mut frames, cancel)?
    } else {
        shown(&mut Summed::new(&overlay, params.width_of), params, &mut frames, cancel)?
    };
    let same = std::ptr::eq(before.trace, after.trace);
    Ok(DiffFlamegraph {
        schema: "heaptrace.diff_flamegraph/1".into(),
        metric: params.metric,
        unit: params.unit,
        width_of: params.width_of,
        pinned: params.pinned.is_some(),
        pin_unit: params.pinned,
        inverted: params.inverted,
        scaled_by,
        before: before.label.to_owned(),
        after: after.label.to_owned(),
        total_before,
        total_after,
        ancestors,
        rows,
        frames: frames.list,
        exactness: both(before.trace.exactness(), after.trace.exactness(), same),
    })
}

/// Numbers for the functions that are shown.
struct DiffFrames<'a> {
    overlay: &'a Overlay,
    list: Vec<FlameFrame>,
    numbers: HashMap<u32, u32>,
}

impl DiffFrames<'_> {
    fn number(&mut self, function: u32) -> u32 {
        *self.numbers.entry(function).or_insert_with(|| {
            self.list.push(self.overlay.functions[function as usize].clone());
            self.list.len() as u32 - 1
        })
    }
}

/// Rows that are shown, from the requested root down.
fn shown<T: Tree>(
    tree: &mut T,
    params: &DiffFlamegraphParams,
    frames: &mut DiffFrames<'_>,
    cancel: &Cancel,
) -> Result<(Vec<DiffAncestor>, DiffRows)> {
    cancel.check()?;
    let Some(AskedRow { above, row }) = tree.find(params.root) else {
        let root = params.root.unwrap_or(0);
        return Err(QueryError::bad("root", format!("there is no row {root} in this flame graph")));
    };
    let chosen = prune(tree, row, &params.limits);
    let mut rows = DiffRows::default();
    // Sums of the chosen children of each row: the difference to the row is its own, or was folded.
    let mut held: Vec<Sides> = vec![[0; 2]; chosen.len()];
    for row in &chosen {
        let parent = row.parent as usize;
        let (sums, own, id, frame) = match &row.row {
            Some(at) => {
                let sums = tree.sums(at);
                if !rows.id.is_empty() {
                    held[parent][0] += sums[0];
                    held[parent][1] += sums[1];
                }
                (sums, tree.own(at), tree.id(at), tree.function(at).map(|function| frames.number(function)))
            }
            // Comes after its siblings, so what they hold is known.
            None => {
                let rest = [0, 1].map(|side| {
                    let (all, own) = if side == 0 {
                        (rows.before[parent], rows.own_before[parent])
                    } else {
                        (rows.after[parent], rows.own_after[parent])
                    };
                    all - own - held[parent][side]
                });
                (rest, rest, rows.id[parent], None)
            }
        };
        rows.id.push(id);
        rows.parent.push(row.parent);
        rows.frame.push(frame);
        rows.before.push(sums[0]);
        rows.after.push(sums[1]);
        rows.own_before.push(own[0]);
        rows.own_after.push(own[1]);
        rows.width.push(row.value as u64);
        rows.folded.push(row.folded);
    }
    if let (Some(id), Some(first)) = (params.root, rows.id.first_mut()) {
        *first = id;
    }
    let ancestors = above.iter().map(|row| {
        let [before, after] = tree.sums(row);
        let frame = tree.function(row).map(|function| frames.number(function));
        DiffAncestor { id: tree.id(row), frame, before, after }
    });
    Ok((ancestors.collect(), rows))
}
