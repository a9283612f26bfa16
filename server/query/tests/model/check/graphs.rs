//! Flame graphs and functions.

use std::collections::BTreeMap;

use tracehound_api::functions::GroupBy;
use tracehound_api::{Metric, Unit};
use tracehound_index::Trace;
use tracehound_query::{flamegraph, functions};

use super::no;
use crate::ask::Ask;
use crate::reference::Reference;
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

fn rows_by_path(graph: &tracehound_api::flamegraph::Flamegraph) -> BTreeMap<Vec<String>, i64> {
    let mut paths: Vec<Vec<String>> = Vec::new();
    let mut values = BTreeMap::new();
    for row in 0..graph.rows.id.len() {
        let mut path = if row == 0 { Vec::new() } else { paths[graph.rows.parent[row] as usize].clone() };
        path.extend(graph.rows.frame[row].map(|f| graph.frames[f as usize].name.clone()));
        assert!(values.insert(path.clone(), graph.rows.value[row]).is_none(), "{path:?} is there twice");
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
}
