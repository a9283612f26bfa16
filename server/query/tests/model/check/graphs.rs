//! Flame graphs and functions.

use std::collections::BTreeMap;

use tracehound_api::functions::{FunctionRow, GroupBy};
use tracehound_api::pins::PinUnit;
use tracehound_api::{Metric, Unit};
use tracehound_index::Trace;
use tracehound_query::transform::read_all;
use tracehound_query::{TimeExpr, Window, churn, flamegraph, functions, pins};

use super::no;
use crate::ask::Ask;
use crate::reference::{Keep, Reference};
use crate::symbols::{self, Names};

pub fn flamegraph_agrees(
    trace: &Trace,
    truth: &Reference,
    ask: &Ask,
    metric: Metric,
    expected: &BTreeMap<u32, (i64, i64)>,
    inverted: bool,
) {
    let mut params = flamegraph::FlamegraphParams {
        metric,
        unit: Unit::Bytes,
        window: ask.window(),
        filter: ask.filter.clone(),
        root: None,
        width: 1000,
        min_px: 0.0,
        max_nodes: 100_000,
        inverted,
        freeing: false,
        pinned: None,
    };
    let whole = flamegraph::run(trace, &Names, &params, &no()).unwrap();
    let total: i64 = expected.values().map(|s| s.0).sum();
    assert_eq!(whole.total, total);
    // Paths of functions from the root, with what is below each.
    let mut own: BTreeMap<Vec<String>, i64> = BTreeMap::new();
    for (&node, &(bytes, _)) in expected {
        let mut path: Vec<String> = truth.shown(node, &ask.keep).into_iter().map(symbols::name).collect();
        if !inverted {
            path.reverse();
        }
        *own.entry(path).or_default() += bytes;
    }
    let mut paths: BTreeMap<Vec<String>, i64> = BTreeMap::new();
    for (path, bytes) in own.into_iter().filter(|o| o.1 != 0) {
        for end in 0..=path.len() {
            *paths.entry(path[..end].to_vec()).or_default() += bytes;
        }
    }
    paths.entry(Vec::new()).or_default();
    let got = rows_by_path(&whole);
    assert_eq!(got, paths);
    is_a_tree(&whole);
    // Blocks beside the bytes, those of no bytes included.
    let mut counts: BTreeMap<Vec<String>, i64> = BTreeMap::new();
    for (&node, &(_, count)) in expected {
        let mut path: Vec<String> = truth.shown(node, &ask.keep).into_iter().map(symbols::name).collect();
        if !inverted {
            path.reverse();
        }
        for end in 0..=path.len() {
            *counts.entry(path[..end].to_vec()).or_default() += count;
        }
    }
    for (path, count) in column_by_path(&whole, &whole.rows.other) {
        assert_eq!(count, Some(counts.get(&path).copied().unwrap_or(0)), "{path:?}");
    }
    // Pruned: the same totals, nothing lost, no more rows than asked for.
    for (min_px, max_nodes) in [(30.0, 100_000), (0.0, 5), (80.0, 9)] {
        params.min_px = min_px;
        params.max_nodes = max_nodes;
        let pruned = flamegraph::run(trace, &Names, &params, &no()).unwrap();
        assert_eq!(pruned.total, total);
        assert!(pruned.rows.id.len() <= max_nodes);
        is_a_tree(&pruned);
        for (i, id) in pruned.rows.id.iter().enumerate().filter(|(i, _)| pruned.rows.folded[*i] == 0) {
            let at = whole.rows.id.iter().zip(&whole.rows.folded).position(|(w, f)| w == id && *f == 0).unwrap();
            assert_eq!(pruned.rows.value[i], whole.rows.value[at]);
        }
    }
    // Focus on a row's backtraces: what is at and below it, and nothing else.
    if !inverted {
        for at in (1..whole.rows.id.len()).step_by(1 + whole.rows.id.len() / 3) {
            let mut focused = params.clone();
            focused.filter.transforms.extend(read_all(&format!("focus-subtree:{}", whole.rows.id[at])).unwrap());
            (focused.min_px, focused.max_nodes) = (0.0, 100_000);
            // Of the row alone the peak may be at another instant.
            if metric == Metric::Peak {
                continue;
            }
            let below = flamegraph::run(trace, &Names, &focused, &no()).unwrap();
            assert_eq!(below.total, whole.rows.value[at]);
            let size = |graph: &tracehound_api::flamegraph::Flamegraph, from: usize| {
                let mut inside = vec![false; graph.rows.id.len()];
                for row in from..inside.len() {
                    inside[row] = row == from || row > from && inside[graph.rows.parent[row] as usize];
                }
                inside.into_iter().filter(|&row| row).count()
            };
            assert_eq!(below.rows.id.len(), if below.rows.id.len() == 1 { 1 } else { 1 + size(&whole, at) });
            is_a_tree(&below);
            // Without the row alone nothing is lost: its caller holds what it held, its callees are its caller's.
            let mut merged = params.clone();
            merged.filter.transforms.extend(read_all(&format!("merge-node:{}", whole.rows.id[at])).unwrap());
            let merged = flamegraph::run(trace, &Names, &merged, &no()).unwrap();
            assert_eq!(merged.total, whole.total);
            let caller = whole.rows.id[whole.rows.parent[at] as usize];
            if let Some(above) = merged.rows.id.iter().position(|&id| id == caller) {
                assert!(metric == Metric::Grown || merged.rows.own[above] >= whole.rows.own[at]);
            }
            is_a_tree(&merged);
        }
    }
    // Zoomed: from any row down the same rows.
    (params.min_px, params.max_nodes) = (0.0, 100_000);
    for at in (1..whole.rows.id.len()).step_by(1 + whole.rows.id.len() / 4) {
        params.root = Some(whole.rows.id[at]);
        let zoomed = flamegraph::run(trace, &Names, &params, &no()).unwrap();
        assert_eq!(zoomed.rows.value[0], whole.rows.value[at]);
        assert_eq!(zoomed.rows.id[0], whole.rows.id[at]);
        is_a_tree(&zoomed);
        let mut above = Vec::new();
        let mut row = at;
        while row != 0 {
            row = whole.rows.parent[row] as usize;
            above.push((whole.rows.id[row], whole.rows.value[row]));
        }
        above.reverse();
        let ancestors: Vec<_> = zoomed.ancestors.iter().map(|a| (a.id, a.value)).collect();
        assert_eq!(ancestors, above);
        assert_eq!(zoomed.total, total);
    }
}

/// By freeing backtraces: what was freed in the window, on the stacks of the frees as the filter shows them.
pub fn freeing_agrees(trace: &Trace, truth: &Reference, ask: &Ask) {
    let params = flamegraph::FlamegraphParams {
        metric: Metric::Freed,
        window: ask.window(),
        filter: ask.filter.clone(),
        width: 1000,
        min_px: 0.0,
        max_nodes: 100_000,
        freeing: true,
        ..flamegraph::FlamegraphParams::default()
    };
    let got = flamegraph::run(trace, &Names, &params, &no()).unwrap();
    // Patterns choose blocks by their allocations; what changes backtraces changes those of the frees.
    let blocks = Keep { transforms: Vec::new(), show_from: None, ..ask.keep.clone() };
    let mut paths: BTreeMap<Vec<String>, i64> = BTreeMap::from([(Vec::new(), 0)]);
    for b in truth.allocs.iter().filter(|b| truth.passes(b, &blocks)) {
        let Some(freed) = b.freed.filter(|freed| freed.ns >= ask.from && freed.ns < ask.to) else { continue };
        let Some(stack) = truth.counted(freed.node, &ask.keep) else { continue };
        let mut path: Vec<String> = stack.into_iter().map(symbols::name).collect();
        path.reverse();
        for end in 0..=path.len() {
            *paths.entry(path[..end].to_vec()).or_default() += b.size as i64;
        }
    }
    paths.retain(|path, bytes| *bytes != 0 || path.is_empty());
    assert_eq!(rows_by_path(&got), paths);
    assert_eq!(got.total, paths[&Vec::new()]);
    is_a_tree(&got);
    let other = flamegraph::FlamegraphParams { metric: Metric::Live, ..params };
    assert!(flamegraph::run(trace, &Names, &other, &no()).is_err());
}

/// Pages on the tree are those of the table: all of them, and for each function no more than are its own.
pub fn pinned_agrees(trace: &Trace, ask: &Ask) {
    for unit in [PinUnit::Page, PinUnit::Huge] {
        pinned_in_units_agrees(trace, ask, unit);
    }
    // Sites that are alike in all figures have one order, too.
    let by = tracehound_api::pins::PinGroup::Site;
    let sites = || pins::run(trace, &Names, &pins::PinsParams { by, ..pins::PinsParams::default() }, &no()).unwrap();
    assert_eq!(format!("{:?}", sites().rows), format!("{:?}", sites().rows));
}

fn pinned_in_units_agrees(trace: &Trace, ask: &Ask, unit: PinUnit) {
    let window = Window { from: None, to: None, at: Some(TimeExpr::End) };
    let params = flamegraph::FlamegraphParams {
        window,
        width: 1000,
        min_px: 0.0,
        max_nodes: 100_000,
        pinned: Some(unit),
        ..flamegraph::FlamegraphParams::default()
    };
    let got = flamegraph::run(trace, &Names, &params, &no()).unwrap();
    let table = pins::run(trace, &Names, &pins::PinsParams { unit, ..pins::PinsParams::default() }, &no()).unwrap();
    is_a_tree(&got);
    assert_eq!((got.total as u64, got.at_ns), (table.pages.bytes, Some(table.at_ns)));
    let counted = flamegraph::FlamegraphParams { unit: Unit::Count, ..params.clone() };
    assert_eq!(flamegraph::run(trace, &Names, &counted, &no()).unwrap().total as u64, table.pages.count);
    let mut of_function: BTreeMap<String, u64> = BTreeMap::new();
    for (path, bytes) in rows_by_path(&got) {
        // Below itself a function has counted the pages already.
        if let Some((last, above)) = path.split_last().filter(|(last, above)| !above.contains(last)) {
            assert!(bytes > 0, "{above:?}");
            *of_function.entry(last.clone()).or_default() += bytes as u64;
        }
    }
    for (function, bytes) in of_function {
        let row = table.rows.iter().find(|row| row.function == function).unwrap();
        assert!(bytes <= row.pages * table.page_bytes, "{function}: {bytes}, {row:?}");
    }
    // A part of the blocks holds a part of the pages.
    let part = flamegraph::FlamegraphParams { filter: ask.filter.clone(), ..params.clone() };
    assert!(flamegraph::run(trace, &Names, &part, &no()).unwrap().total <= got.total);
    for wrong in [
        flamegraph::FlamegraphParams { metric: Metric::Allocated, ..params.clone() },
        flamegraph::FlamegraphParams { metric: Metric::Freed, freeing: true, ..params },
    ] {
        assert!(flamegraph::run(trace, &Names, &wrong, &no()).is_err());
    }
}

/// Allocations, temporary ones and reallocs, by the innermost function that is no wrapper.
pub fn churn_agrees(trace: &Trace, truth: &Reference, ask: &Ask) {
    let params = churn::ChurnParams { window: ask.window(), filter: ask.filter.clone(), ..Default::default() };
    let got = churn::run(trace, &Names, &params, &no()).unwrap();
    let wrapper = symbols::name(symbols::WRAPPER);
    let mut expected: BTreeMap<String, [u64; 6]> = BTreeMap::new();
    // Steps of reallocs in the order of time: chains by their newest block.
    let mut chains: BTreeMap<usize, [u64; 2]> = BTreeMap::new();
    let mut steps = 0;
    for i in truth.by_row() {
        let b = &truth.allocs[i];
        if b.born_ns < ask.from || b.born_ns >= ask.to || !truth.passes(b, &ask.keep) {
            continue;
        }
        let names: Vec<String> = truth.functions(b.node).into_iter().map(symbols::name).collect();
        let by = names.iter().find(|name| **name != wrapper).or(names.first());
        let sum = expected.entry(by.map_or("(no backtrace)", String::as_str).into()).or_default();
        sum[0] += 1;
        sum[1] += b.size;
        if b.temporary {
            sum[2] += 1;
        }
        if let Some(previous) = b.previous {
            let before = &truth.allocs[previous];
            let moved = if before.address == b.address { 0 } else { before.size.min(b.size) };
            sum[3] += 1;
            sum[4] += u64::from(before.address != b.address);
            sum[5] += moved;
            let chain = chains.remove(&previous).unwrap_or_default();
            chains.insert(i, [chain[0] + 1, chain[1] + moved]);
            steps += 1;
        }
    }
    let sums = |row: &tracehound_api::churn::ChurnSum| {
        let (all, temporary) = (row.allocations, row.temporary);
        [all.count, all.bytes, temporary.count, row.reallocs, row.moved, row.moved_bytes]
    };
    let rows: BTreeMap<String, [u64; 6]> = got.rows.iter().map(|r| (r.function.clone(), sums(&r.sum))).collect();
    assert_eq!(rows, expected);
    assert_eq!(got.total.reallocs, steps);
    let longest = got.rows.iter().filter_map(|row| row.longest).map(|chain| chain.moved_bytes).max();
    assert_eq!(longest, chains.values().map(|chain| chain[1]).max());
    let counts: Vec<u64> = got.rows.iter().map(|row| row.sum.allocations.count).collect();
    assert!(counts.is_sorted_by(|a, b| a >= b));
    let sorted = |sort: churn::ChurnSort| {
        let params = churn::ChurnParams { sort: sort.into(), ..params.clone() };
        churn::run(trace, &Names, &params, &no()).unwrap().rows
    };
    let chains: Vec<Option<u64>> =
        sorted(churn::ChurnSort::Chain).iter().map(|row| row.longest.map(|chain| chain.moved_bytes)).collect();
    assert!(chains.is_sorted_by(|a, b| a >= b), "{chains:?}");
    let place = |row: &tracehound_api::churn::ChurnRow| {
        let source = row.file.clone().or(row.module.clone());
        (source.is_none(), source, row.line)
    };
    assert!(sorted(churn::ChurnSort::Source).iter().map(place).is_sorted());
}

fn rows_by_path(graph: &tracehound_api::flamegraph::Flamegraph) -> BTreeMap<Vec<String>, i64> {
    column_by_path(graph, &graph.rows.value)
}

/// A column of a graph by the paths of functions.
fn column_by_path<T: Copy>(graph: &tracehound_api::flamegraph::Flamegraph, column: &[T]) -> BTreeMap<Vec<String>, T> {
    let mut paths: Vec<Vec<String>> = Vec::new();
    let mut values = BTreeMap::new();
    for (row, &value) in column.iter().enumerate() {
        let mut path = if row == 0 { Vec::new() } else { paths[graph.rows.parent[row] as usize].clone() };
        path.extend(graph.rows.frame[row].map(|f| graph.frames[f as usize].name.clone()));
        assert!(values.insert(path.clone(), value).is_none(), "{path:?} is there twice");
        paths.push(path);
    }
    values
}

/// Children and own are the whole, at every row; parents come first.
fn is_a_tree(graph: &tracehound_api::flamegraph::Flamegraph) {
    let rows = &graph.rows;
    let mut below = rows.own.clone();
    for row in (1..rows.id.len()).rev() {
        let parent = rows.parent[row] as usize;
        assert!(parent < row);
        below[parent] += rows.value[row];
        assert_eq!(rows.frame[row].is_none(), rows.folded[row] > 0);
        assert_eq!(rows.other[row].is_none(), rows.folded[row] > 0);
    }
    assert_eq!(below, rows.value);
}

pub fn functions_agree(
    trace: &Trace,
    truth: &Reference,
    ask: &Ask,
    metric: Metric,
    expected: &BTreeMap<u32, (i64, i64)>,
) {
    let table = |by| {
        let params = functions::FunctionsParams {
            metric,
            window: ask.window(),
            filter: ask.filter.clone(),
            by,
            ..functions::FunctionsParams::default()
        };
        functions::run(trace, &Names, &params, &no()).unwrap()
    };
    // Rows that have no module, or no file, come last.
    for (sort, text) in [
        (functions::FunctionSort::Module, (|row| row.module.clone()) as fn(&FunctionRow) -> Option<String>),
        (functions::FunctionSort::Source, |row| row.file.clone()),
    ] {
        let (window, filter, sort) = (ask.window(), ask.filter.clone(), sort.into());
        let params = functions::FunctionsParams { metric, window, filter, sort, ..Default::default() };
        let rows = functions::run(trace, &Names, &params, &no()).unwrap().rows;
        assert!(rows.iter().map(text).map(|text| (text.is_none(), text)).is_sorted(), "{:?}", params.sort);
    }
    let grouped_at = |key: &dyn Fn(u32) -> String, leaf_of: &dyn Fn(&[String]) -> Option<String>| {
        let mut sums: BTreeMap<String, [i64; 4]> = BTreeMap::new();
        for (&node, &(bytes, count)) in expected {
            let keys: Vec<String> = truth.shown(node, &ask.keep).into_iter().map(key).collect();
            if let Some(leaf) = leaf_of(&keys) {
                let sum = sums.entry(leaf).or_default();
                sum[0] += bytes;
                sum[2] += count;
            }
            let mut distinct = keys.clone();
            distinct.sort();
            distinct.dedup();
            for key in distinct {
                let sum = sums.entry(key).or_default();
                sum[1] += bytes;
                sum[3] += count;
            }
        }
        sums.retain(|_, s| *s != [0; 4]);
        sums
    };
    let got = |by| {
        let table = table(by);
        assert_eq!(table.total, expected.values().map(|s| s.0).sum::<i64>());
        let rows = table.rows.into_iter();
        let sums: BTreeMap<String, [i64; 4]> =
            rows.map(|r| (r.name, [r.flat, r.cum, r.flat_other, r.cum_other])).filter(|(_, s)| *s != [0; 4]).collect();
        sums
    };
    let grouped = |key: &dyn Fn(u32) -> String| grouped_at(key, &|keys| keys.first().cloned());
    assert_eq!(got(GroupBy::Function), grouped(&symbols::name));
    let wrapper = symbols::name(symbols::WRAPPER);
    let mut by_program =
        grouped_at(&symbols::name, &|keys| keys.iter().find(|&key| *key != wrapper).or(keys.first()).cloned());
    by_program.retain(|_, sums| (sums[0], sums[2]) != (0, 0));
    assert_eq!(got(GroupBy::Program), by_program);
    assert_eq!(got(GroupBy::File), grouped(&symbols::file));
    assert_eq!(got(GroupBy::Module), grouped(&|f| format!("module{}.so", f % 2)));
    let by_site = table(GroupBy::Site);
    assert_eq!(by_site.rows.len(), expected.len());
    parts_are_of_the_whole(trace, ask, metric);
    let mut threads: BTreeMap<String, i64> = BTreeMap::new();
    let at = ask.moment(truth, metric);
    for b in truth.allocs.iter().filter(|b| truth.passes(b, &ask.keep)) {
        *threads.entry(format!("t{}", b.thread)).or_default() +=
            truth.weight(b, metric, ask.from, ask.to, at) * b.size as i64;
    }
    threads.retain(|_, v| *v != 0);
    let by_thread: BTreeMap<String, i64> =
        table(GroupBy::Thread).rows.into_iter().map(|r| (r.name, r.flat)).filter(|r| r.1 != 0).collect();
    assert_eq!(by_thread, threads);
    let mut classes: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    for b in truth.allocs.iter().filter(|b| truth.passes(b, &ask.keep)) {
        let weight = truth.weight(b, metric, ask.from, ask.to, at);
        let smallest = if b.size == 0 { 0 } else { 1_u64 << b.size.ilog2() };
        let sum = classes.entry(smallest.to_string()).or_default();
        sum.0 += weight * b.size as i64;
        sum.1 += weight;
    }
    classes.retain(|_, sum| *sum != (0, 0));
    let by_class = table(GroupBy::SizeClass).rows.into_iter().map(|r| (r.id, (r.flat, r.flat_other)));
    assert_eq!(by_class.collect::<BTreeMap<_, _>>(), classes);
}

/// Rows that are not shown need no names: those that are shown are the same as in the whole table.
fn parts_are_of_the_whole(trace: &Trace, ask: &Ask, metric: Metric) {
    use functions::FunctionSort;
    for (by, sort, ascending) in [
        (GroupBy::Function, FunctionSort::Flat, false),
        (GroupBy::Function, FunctionSort::Cum, false),
        (GroupBy::Function, FunctionSort::Cum, true),
        (GroupBy::Function, FunctionSort::Name, false),
        (GroupBy::Program, FunctionSort::Flat, true),
        (GroupBy::Site, FunctionSort::Flat, false),
    ] {
        let table = |offset, limit| {
            let (window, filter, sort) = (ask.window(), ask.filter.clone(), sort.into());
            let params = functions::FunctionsParams {
                metric,
                window,
                filter,
                by,
                sort,
                ascending,
                offset,
                limit,
                ..Default::default()
            };
            functions::run(trace, &Names, &params, &no()).unwrap()
        };
        let whole = table(0, None);
        for (offset, limit) in [(0, 1), (1, 2), (2, 0), (3, 100)] {
            let part = table(offset, Some(limit));
            assert_eq!(part.total_rows, whole.rows.len() as u64);
            let shown: Vec<_> = whole.rows.iter().skip(offset).take(limit).cloned().collect();
            assert_eq!(part.rows, shown, "{by:?} {sort:?} {ascending} {offset} {limit}");
        }
    }
}
