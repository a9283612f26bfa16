//! Flat and cumulative sums per function, source file, module, thread, site, or size class.

use std::collections::HashMap;
use std::hash::Hash;

use serde::Deserialize;

use super::amounts::{Signed, SumKey, SumQuery};
use super::filter::Filter;
use super::filter_functions::identity_of;
use super::node_sums::{self, NodeSums};
use super::size_classes;
use super::sorting::{SortKeys, or_last};
use super::stacks;
use super::value_tree::ValueTree;
use super::window::Window;
use super::{Result, site_handle};
use tracehound_api::functions::{FunctionRow, Functions, GroupBy};
use tracehound_api::{Metric, Unit};
use tracehound_index::frame_tree::NO_FUNCTION;
use tracehound_index::program::{BestFrame, CodeKind};
use tracehound_index::symbols::{RecordingSymbols, SymbolFrame};
use tracehound_index::{Cancel, Trace};

/// Parameters of the query.
#[derive(Debug, Clone, Default)]
pub struct FunctionsParams {
    /// What is measured.
    pub metric: Metric,
    /// What is added up.
    pub unit: Unit,
    /// Window of time.
    pub window: Window,
    /// Which blocks count.
    pub filter: Filter,
    /// What a row is.
    pub by: GroupBy,
    /// Order.
    pub sort: SortKeys<FunctionSort>,
    /// Reverses the whole order.
    pub ascending: bool,
    /// Keep rows whose name matches this regular expression.
    pub search: Option<String>,
    /// Rows to skip.
    pub offset: usize,
    /// Most rows in the answer; `None`: all.
    pub limit: Option<usize>,
}

/// A column of the table; sums begin with the largest, texts with A. Ties go by flat, cum and name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FunctionSort {
    /// By what the row itself allocated.
    #[default]
    Flat,
    /// By what was allocated below it.
    Cum,
    /// By name.
    Name,
    /// By what the row itself allocated in the other unit.
    Other,
    /// By module.
    Module,
    /// By source file and line.
    Source,
}

/// Makes the table.
///
/// # Errors
/// When a parameter does not fit the recording, or cancelled.
pub fn run(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    params: &FunctionsParams,
    cancel: &Cancel,
) -> Result<Functions> {
    let asked = node_sums::NodeSumsParams {
        metric: params.metric,
        window: params.window.clone(),
        filter: params.filter.clone(),
    };
    let sums = node_sums::by_site(trace, symbols, &asked, cancel)?;
    let (window, moment, total) = (sums.window, sums.moment, sums.total());
    let unit = params.unit;
    let (mut rows, mut total_rows) = match params.by {
        GroupBy::Thread => all(by_thread(trace, symbols, params, cancel)?),
        GroupBy::SizeClass => all(by_size_class(trace, symbols, params, cancel)?),
        GroupBy::Site => by_site(trace, symbols, params, &sums.listed(trace)),
        GroupBy::Function | GroupBy::Program | GroupBy::File | GroupBy::Module => {
            let tree = trace.frame_tree(symbols, cancel)?;
            let values = ValueTree::of_sites(trace, &tree, symbols, &params.filter, &sums.sums, cancel)?;
            cancel.check()?;
            match params.by {
                GroupBy::File | GroupBy::Module => all(by_place(trace, symbols, params.by, unit, &values)),
                _ => by_function(trace, symbols, params, &values),
            }
        }
    };
    let mut total_matched = None;
    if let Some(search) = &params.search {
        let wanted = Filter::regex("search", search)?;
        let is_about_identity = search.contains('@');
        let identity = |row: &FunctionRow| identity_of(&row.name, row.file.as_deref(), row.line, row.module.as_deref());
        rows.retain(|row| wanted.is_match(&row.name) || is_about_identity && wanted.is_match(&identity(row)));
        total_rows = rows.len() as u64;
        total_matched = Some(rows.iter().map(|row| row.flat).sum());
    }
    rows.sort_by(|a, b| {
        let by_keys = params.sort.compare(|column| match column {
            FunctionSort::Flat => b.flat.cmp(&a.flat),
            FunctionSort::Cum => b.cum.cmp(&a.cum),
            FunctionSort::Name if params.by == GroupBy::SizeClass => smallest_size(a).cmp(&smallest_size(b)),
            FunctionSort::Name => a.name.cmp(&b.name),
            FunctionSort::Other => b.flat_other.cmp(&a.flat_other),
            FunctionSort::Module => or_last(a.module.as_ref()).cmp(&or_last(b.module.as_ref())),
            FunctionSort::Source => (or_last(a.file.as_ref()), a.line).cmp(&(or_last(b.file.as_ref()), b.line)),
        });
        let order = by_keys
            .then_with(|| (b.flat, b.cum).cmp(&(a.flat, a.cum)))
            .then_with(|| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
        if params.ascending { order.reverse() } else { order }
    });
    let limit = params.limit.unwrap_or(usize::MAX);
    let rows = rows.into_iter().skip(params.offset).take(limit).collect();
    Ok(Functions {
        schema: "heaptrace.functions/1".into(),
        metric: params.metric,
        unit,
        by: params.by,
        from_ns: window.from_ns,
        to_ns: window.to_ns,
        at_ns: moment.map(|moment| moment.ns),
        peak_of: moment.and_then(|moment| moment.peak_of),
        total: total.of(unit),
        total_rows,
        total_matched,
        rows,
        exactness: trace.exactness(),
    })
}

/// Rows that are all that there are.
fn all(rows: Vec<FunctionRow>) -> (Vec<FunctionRow>, u64) {
    let total = rows.len() as u64;
    (rows, total)
}

/// Leaves out what is not shown, before it gets a name: rows go by value first. What ties with the last row stays. `value`:
/// flat and cumulative.
fn shortlist<T>(rows: &mut Vec<T>, params: &FunctionsParams, value: impl Fn(&T) -> (i64, i64)) {
    let shown = params.offset.saturating_add(params.limit.unwrap_or(usize::MAX));
    let is_known = |column| matches!(column, FunctionSort::Flat | FunctionSort::Cum);
    if shown >= rows.len() || params.search.is_some() || !params.sort.keys().all(|(column, _)| is_known(column)) {
        return;
    }
    let Some(last) = shown.checked_sub(1) else { return rows.clear() };
    let order = |a: (i64, i64), b: (i64, i64)| {
        let by_keys =
            params.sort.compare(|column| if column == FunctionSort::Cum { b.1.cmp(&a.1) } else { b.0.cmp(&a.0) });
        let order = by_keys.then_with(|| b.cmp(&a));
        if params.ascending { order.reverse() } else { order }
    };
    let last = value(rows.select_nth_unstable_by(last, |a, b| order(value(a), value(b))).1);
    rows.retain(|row| order(value(row), last).is_le());
}

/// Sums of a group.
#[derive(Debug, Clone, Copy, Default)]
struct Group {
    flat: Signed,
    cum: Signed,
    /// Some row of the tree that belongs to it, the first one.
    example: usize,
}

fn add(to: &mut Signed, from: &Signed) {
    to.count += from.count;
    to.bytes += from.bytes;
}

/// Adds up the tree by a key of its frames; a key that is on a path twice counts once.
fn group<K: Hash + Eq + Copy>(values: &ValueTree, key: impl Fn(usize) -> K) -> HashMap<K, Group> {
    let totals = values.totals();
    let mut groups: HashMap<K, Group> = HashMap::new();
    for (row, total) in totals.iter().enumerate().skip(1) {
        if total.is_zero() && values.own()[row].is_zero() {
            continue;
        }
        let its = key(row);
        let group = groups.entry(its).or_insert(Group { example: row, ..Group::default() });
        add(&mut group.flat, &values.own()[row]);
        let mut above = values.path(values.shape.parent[row]);
        if !above.any(|r| key(r as usize) == its) {
            add(&mut group.cum, total);
        }
    }
    groups
}

/// Makes rows of groups.
struct RowTexts<'a> {
    trace: &'a Trace,
    unit: Unit,
}

impl RowTexts<'_> {
    fn module(&self, module: Option<u32>) -> Option<String> {
        module.and_then(|m| self.trace.modules().get(m as usize)).map(|m| m.name())
    }

    fn row(&self, id: String, name: String, group: &Group) -> FunctionRow {
        let unit = self.unit;
        FunctionRow {
            id,
            name,
            module: None,
            file: None,
            line: None,
            library: false,
            flat: group.flat.of(unit),
            cum: group.cum.of(unit),
            flat_other: group.flat.other(unit),
            cum_other: group.cum.other(unit),
        }
    }
}

fn by_place(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    by: GroupBy,
    unit: Unit,
    values: &ValueTree,
) -> Vec<FunctionRow> {
    let texts = RowTexts { trace, unit };
    let module_of = |frame: &SymbolFrame| {
        if frame.function == NO_FUNCTION { None } else { symbols.function(frame.function).module }
    };
    match by {
        GroupBy::File => {
            let mut files: HashMap<u32, Option<u32>> = HashMap::new();
            for frame in values.shape.frame.iter().filter(|frame| frame.function != NO_FUNCTION) {
                files.entry(frame.function).or_insert_with(|| symbols.function(frame.function).place(frame).0);
            }
            group(values, |row| files.get(&values.shape.frame[row].function).copied().flatten())
                .into_iter()
                .map(|(file, group)| {
                    let name = file.map_or_else(|| "(no source file)".into(), |f| symbols.file(f).as_ref().to_owned());
                    texts.row(name.clone(), name, &group)
                })
                .collect()
        }
        _ => {
            let modules: HashMap<u32, Option<u32>> = values
                .shape
                .frame
                .iter()
                .map(|f| (f.function, f))
                .collect::<HashMap<_, _>>()
                .into_iter()
                .map(|(function, frame)| (function, module_of(frame)))
                .collect();
            group(values, |row| modules.get(&values.shape.frame[row].function).copied().flatten())
                .into_iter()
                .map(|(module, group)| {
                    let name = texts.module(module).unwrap_or_else(|| "(no module)".into());
                    texts.row(module.map_or_else(|| name.clone(), |m| format!("m{m}")), name, &group)
                })
                .collect()
        }
    }
}

fn by_function(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    params: &FunctionsParams,
    values: &ValueTree,
) -> (Vec<FunctionRow>, u64) {
    let unit = params.unit;
    let totals = values.totals();
    let owned = (params.by == GroupBy::Program).then(|| owned_by_program(symbols, values));
    let own = owned.as_deref().unwrap_or_else(|| values.own());
    // Functions have dense ids, but for that of the root, which is no row.
    let mut of_function: Vec<u32> = Vec::new();
    let mut groups: Vec<(u32, Group)> = Vec::new();
    for (row, total) in totals.iter().enumerate().skip(1) {
        if total.is_zero() && own[row].is_zero() {
            continue;
        }
        let function = values.shape.frame[row].function;
        if of_function.len() <= function as usize {
            of_function.resize((function as usize + 1).next_power_of_two(), u32::MAX);
        }
        let at = &mut of_function[function as usize];
        if *at == u32::MAX {
            *at = groups.len() as u32;
            groups.push((function, Group { example: row, ..Group::default() }));
        }
        let group = &mut groups[*at as usize].1;
        add(&mut group.flat, &own[row]);
        // The recursive flag of a row says at once what walking up its path would.
        if !values.shape.recursive[row] {
            add(&mut group.cum, total);
        }
    }
    // Of the program's functions those that allocate: what only calls them says who is to blame for nothing.
    groups.retain(|(_, group)| owned.is_none() || !group.flat.is_zero());
    let total_rows = groups.len() as u64;
    shortlist(&mut groups, params, |(_, group)| (group.flat.of(unit), group.cum.of(unit)));
    let texts = RowTexts { trace, unit };
    let row = |(id, group): (u32, Group)| {
        let function = symbols.function(id);
        let frame = values.shape.frame[group.example];
        let (file, line) = function.place(&frame);
        FunctionRow {
            module: texts.module(function.module),
            file: file.map(|f| symbols.file(f).as_ref().to_owned()),
            line,
            library: function.kind.is_library(),
            ..texts.row(format!("f{}", values.id(group.example as u32)), function.display().as_ref().to_owned(), &group)
        }
    };
    (groups.into_iter().map(row).collect(), total_rows)
}

/// What each row allocated itself, where each allocation is that of its stack's function of the program (see
/// [`tracehound_index::program::program_frame`]); what has none stays where it is.
fn owned_by_program(symbols: &dyn RecordingSymbols, values: &ValueTree) -> Vec<Signed> {
    let mut kinds: Vec<Option<CodeKind>> = Vec::new();
    let mut kind = |function: u32| {
        let at = function as usize;
        if kinds.len() <= at {
            kinds.resize((at + 1).next_power_of_two(), None);
        }
        *kinds[at].get_or_insert_with(|| symbols.kind(function))
    };
    let mut owned = vec![Signed::default(); values.len()];
    // Parents stand before their children.
    let mut innermost: Vec<BestFrame<u32>> = vec![BestFrame::default(); values.len()];
    for (row, own) in (0_u32..).zip(values.own()) {
        let at = row as usize;
        let mut its = innermost[values.shape.parent[at] as usize];
        if row > 0 {
            its.put_inner(kind(values.shape.frame[at].function), row);
        }
        innermost[at] = its;
        if !own.is_zero() {
            let owner = its.best().unwrap_or(row);
            add(&mut owned[owner as usize], own);
        }
    }
    owned
}

fn by_site(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    params: &FunctionsParams,
    sums: &NodeSums,
) -> (Vec<FunctionRow>, u64) {
    let unit = params.unit;
    let mut sites: Vec<&node_sums::NodeSum> = sums.nodes.iter().collect();
    let total_rows = sites.len() as u64;
    shortlist(&mut sites, params, |site| (site.sum.of(unit), site.sum.of(unit)));
    let row = |node: &node_sums::NodeSum| {
        let frame = stacks::innermost(trace, symbols, node.node);
        let name = frame
            .as_ref()
            .map_or_else(|| "(no backtrace)".into(), |f| f.function.clone().unwrap_or_else(|| f.address.clone()));
        FunctionRow {
            id: site_handle(node.site),
            name,
            module: frame.as_ref().and_then(|f| f.module.clone()),
            file: frame.as_ref().and_then(|f| f.file.clone()),
            line: frame.as_ref().and_then(|f| f.line),
            library: frame.as_ref().is_some_and(|f| f.library),
            flat: node.sum.of(unit),
            cum: node.sum.of(unit),
            flat_other: node.sum.other(unit),
            cum_other: node.sum.other(unit),
        }
    };
    (sites.into_iter().map(row).collect(), total_rows)
}

fn by_thread(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    params: &FunctionsParams,
    cancel: &Cancel,
) -> Result<Vec<FunctionRow>> {
    let selection = params.filter.select(trace, symbols, cancel)?;
    let window = params.window.resolve(trace, &selection, cancel)?;
    let question = SumQuery { trace, selection: &selection, key: SumKey::Thread, cancel };
    let sums = question.metric(params.metric, &window)?;
    let texts = RowTexts { trace, unit: params.unit };
    let row = |(thread, sum): (&tracehound_index::facts::ThreadFacts, Signed)| {
        texts.row(format!("t{}", thread.id), thread.name.clone(), &Group { flat: sum, cum: sum, example: 0 })
    };
    Ok(trace.threads().iter().zip(sums).filter(|(_, sum)| !sum.is_zero()).map(row).collect())
}

fn by_size_class(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    params: &FunctionsParams,
    cancel: &Cancel,
) -> Result<Vec<FunctionRow>> {
    let selection = params.filter.select(trace, symbols, cancel)?;
    let window = params.window.resolve(trace, &selection, cancel)?;
    let sums = size_classes::sums(trace, &selection, params.metric, &window, cancel)?;
    let texts = RowTexts { trace, unit: params.unit };
    let row = |(class, sum): (usize, Signed)| {
        let id = size_classes::SCALE.floor(class).to_string();
        texts.row(id, size_classes::name(class), &Group { flat: sum, cum: sum, example: 0 })
    };
    Ok(sums.into_iter().enumerate().filter(|(_, sum)| !sum.is_zero()).map(row).collect())
}

/// The smallest size of a size class's row.
fn smallest_size(row: &FunctionRow) -> Option<u64> {
    row.id.parse().ok()
}
