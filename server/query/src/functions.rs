//! Flat and cumulative sums per function, source file, module, thread, or site.

use std::collections::HashMap;
use std::hash::Hash;

use super::amounts::{Signed, SumKey, SumQuery};
use super::filter::{Filter, identity_of};
use super::node_sums::{self, NodeSums};
use super::stacks;
use super::value_tree::ValueTree;
use super::window::Window;
use super::{Result, site_handle};
use tracehound_api::functions::{FunctionRow, Functions, GroupBy};
use tracehound_api::{Metric, Unit};
use tracehound_index::frame_tree::NO_FUNCTION;
use tracehound_index::program::{CodeKind, program_frame};
use tracehound_index::symbols::{RecordingSymbols, SymbolFrame};
use tracehound_index::{Cancel, Trace};

/// What is asked.
#[derive(Debug, Clone, Default)]
pub struct FunctionsParams {
    /// What is measured.
    pub metric: Metric,
    /// What is added up.
    pub unit: Unit,
    /// When.
    pub window: Window,
    /// Of what.
    pub filter: Filter,
    /// What a row is.
    pub by: GroupBy,
    /// Order.
    pub sort: FunctionSort,
    /// Smallest first.
    pub ascending: bool,
    /// Keep rows whose name matches this regular expression.
    pub search: Option<String>,
    /// Rows to skip.
    pub offset: usize,
    /// Most rows in the answer; `None`: all.
    pub limit: Option<usize>,
}

/// Order of the rows; ties go by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FunctionSort {
    /// By what the row itself allocated.
    #[default]
    Flat,
    /// By what was allocated below it.
    Cum,
    /// By name.
    Name,
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
    let sums = node_sums::run(trace, symbols, &asked, cancel)?;
    let unit = params.unit;
    let mut rows = match params.by {
        GroupBy::Thread => by_thread(trace, symbols, params, cancel)?,
        GroupBy::Site => by_site(trace, symbols, unit, &sums),
        GroupBy::Function | GroupBy::Program | GroupBy::File | GroupBy::Module => {
            let tree = trace.frame_tree(symbols, cancel)?;
            let values = ValueTree::new(trace, &tree, symbols, &params.filter, &sums);
            cancel.check()?;
            by_frame(trace, symbols, params.by, unit, &values)
        }
    };
    if let Some(search) = &params.search {
        let wanted = Filter::regex("search", search)?;
        let is_about_identity = search.contains('@');
        let identity = |row: &FunctionRow| identity_of(&row.name, row.file.as_deref(), row.line, row.module.as_deref());
        rows.retain(|row| wanted.is_match(&row.name) || is_about_identity && wanted.is_match(&identity(row)));
    }
    let total_rows = rows.len() as u64;
    rows.sort_by(|a, b| {
        let by_value = match params.sort {
            FunctionSort::Flat => (b.flat, b.cum).cmp(&(a.flat, a.cum)),
            FunctionSort::Cum => (b.cum, b.flat).cmp(&(a.cum, a.flat)),
            FunctionSort::Name => std::cmp::Ordering::Equal,
        };
        let order = by_value.then_with(|| a.name.cmp(&b.name)).then_with(|| a.id.cmp(&b.id));
        if params.ascending { order.reverse() } else { order }
    });
    let limit = params.limit.unwrap_or(usize::MAX);
    let rows = rows.into_iter().skip(params.offset).take(limit).collect();
    Ok(Functions {
        schema: "heaptrace.functions/1".into(),
        metric: params.metric,
        unit,
        by: params.by,
        from_ns: sums.window.from_ns,
        to_ns: sums.window.to_ns,
        at_ns: sums.moment.map(|moment| moment.ns),
        peak_of: sums.moment.and_then(|moment| moment.peak_of),
        total: sums.total.of(unit),
        total_rows,
        rows,
        exactness: trace.exactness(),
    })
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
        if total.is_zero() && values.own[row].is_zero() {
            continue;
        }
        let its = key(row);
        let group = groups.entry(its).or_insert(Group { example: row, ..Group::default() });
        add(&mut group.flat, &values.own[row]);
        let mut above = values.path(values.shape.parent[row]);
        if !above.any(|r| key(r as usize) == its) {
            add(&mut group.cum, total);
        }
    }
    groups
}

fn by_frame(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    by: GroupBy,
    unit: Unit,
    values: &ValueTree,
) -> Vec<FunctionRow> {
    let module_of = |frame: &SymbolFrame| {
        if frame.function == NO_FUNCTION { None } else { symbols.function(frame.function).module }
    };
    let name_of = |module: Option<u32>| module.and_then(|m| trace.modules().get(m as usize)).map(|m| m.name());
    let row = |id: String, name: String, group: &Group| FunctionRow {
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
                    row(name.clone(), name, &group)
                })
                .collect()
        }
        GroupBy::Module => {
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
                    let name = name_of(module).unwrap_or_else(|| "(no module)".into());
                    row(module.map_or_else(|| name.clone(), |m| format!("m{m}")), name, &group)
                })
                .collect()
        }
        _ => {
            // The recursive flag of a row says at once what walking up its path would.
            let totals = values.totals();
            let owned = (by == GroupBy::Program).then(|| owned_by_program(symbols, values));
            let own = owned.as_ref().unwrap_or(&values.own);
            let mut groups: HashMap<u32, Group> = HashMap::new();
            for (row, total) in totals.iter().enumerate().skip(1) {
                if total.is_zero() && own[row].is_zero() {
                    continue;
                }
                let entry = groups.entry(values.shape.frame[row].function);
                let group = entry.or_insert(Group { example: row, ..Group::default() });
                add(&mut group.flat, &own[row]);
                if !values.shape.recursive[row] {
                    add(&mut group.cum, total);
                }
            }
            // Of the program's functions those that allocate: what only calls them says who is to blame for nothing.
            groups.retain(|_, group| owned.is_none() || !group.flat.is_zero());
            groups
                .into_iter()
                .map(|(id, group)| {
                    let function = symbols.function(id);
                    let frame = values.shape.frame[group.example];
                    let (file, line) = function.place(&frame);
                    FunctionRow {
                        module: name_of(function.module),
                        file: file.map(|f| symbols.file(f).as_ref().to_owned()),
                        line,
                        library: function.kind.is_library(),
                        ..row(
                            format!("f{}", values.id(group.example as u32)),
                            function.display().as_ref().to_owned(),
                            &group,
                        )
                    }
                })
                .collect()
        }
    }
}

/// What each row allocated itself, where each allocation is that of its stack's function of the program; what has none
/// stays where it is.
fn owned_by_program(symbols: &dyn RecordingSymbols, values: &ValueTree) -> Vec<Signed> {
    let mut known: HashMap<u32, CodeKind> = HashMap::new();
    let mut kind = |row: u32| {
        let function = values.shape.frame[row as usize].function;
        *known.entry(function).or_insert_with(|| symbols.function(function).kind)
    };
    let mut owned = vec![Signed::default(); values.len()];
    for (row, own) in (0..).zip(&values.own) {
        if !own.is_zero() {
            let owner = program_frame(values.path(row).map(&mut kind)).and_then(|at| values.path(row).nth(at));
            let owner = owner.unwrap_or(row);
            add(&mut owned[owner as usize], own);
        }
    }
    owned
}

fn by_site(trace: &Trace, symbols: &dyn RecordingSymbols, unit: Unit, sums: &NodeSums) -> Vec<FunctionRow> {
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
    sums.nodes.iter().map(row).collect()
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
    let unit = params.unit;
    let row = |(thread, sum): (&tracehound_index::facts::ThreadFacts, Signed)| FunctionRow {
        id: format!("t{}", thread.id),
        name: thread.name.clone(),
        module: None,
        file: None,
        line: None,
        library: false,
        flat: sum.of(unit),
        cum: sum.of(unit),
        flat_other: sum.other(unit),
        cum_other: sum.other(unit),
    };
    Ok(trace.threads().iter().zip(sums).filter(|(_, sum)| !sum.is_zero()).map(row).collect())
}
