//! Every query against the reference.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tracehound_format::record::Kind;
use tracehound_server::api::functions::GroupBy;
use tracehound_server::api::timeline::SeriesName;
use tracehound_server::api::{Amount, Metric, Unit};
use tracehound_server::ingest::{IndexPlace, OpenOptions, Recording};
use tracehound_server::query::{
    Filter, LifetimeKind, TimeExpr, Window, allocations, diff, flamegraph, functions, info, leaks, lifetimes, memory,
    node_sums, sites, sizes, threads, timeline,
};
use tracehound_server::trace::layout::Granularity;
use tracehound_server::trace::{Cancel, Trace, What};

use crate::reference::{Keep, Mapping, Reference, Truth};
use crate::script;
use crate::symbols::{self, Names};

/// Small pages and buckets, so that short traces have many of both.
pub fn options(fine: (u64, u64, u64)) -> OpenOptions {
    // Few sizes get codes of their own, now and then none.
    let table_sizes = (fine.0 % 5) as u16;
    let fine = Granularity { page_events: fine.0, bucket_events: fine.1, chunk_events: fine.2, table_sizes };
    // Now and then the table of live blocks moves to disk at once.
    let live_bytes = if fine.page_events.is_multiple_of(4) { 0 } else { OpenOptions::default().live_bytes };
    OpenOptions { index: IndexPlace::Auto, fine, live_bytes, ..OpenOptions::default() }
}

pub fn fine() -> impl Strategy<Value = (u64, u64, u64)> {
    (1_u64..20, 1_u64..40, 1_u64..60)
}

const METRICS: [Metric; 7] =
    [Metric::Live, Metric::Peak, Metric::Leaked, Metric::Allocated, Metric::Freed, Metric::Grown, Metric::Temporary];

#[derive(Debug, Clone)]
pub struct Ask {
    pub from: u64,
    pub to: u64,
    pub at: Option<u64>,
    pub keep: Keep,
    pub filter: Filter,
    pub points: usize,
}

fn keep() -> impl Strategy<Value = Keep> {
    let rare = |max: u64| prop_oneof![3 => Just(None), 1 => (0..max).prop_map(Some)];
    let text = || {
        prop_oneof![
            4 => Just(None),
            1 => (0_u32..symbols::FUNCTIONS).prop_map(|f| Some(symbols::name(f))),
            1 => (0_u32..3).prop_map(|f| Some(format!("src/{f}"))),
        ]
    };
    (
        (text(), text(), prop_oneof![5 => Just(None), 1 => Just(Some(0_u32)), 1 => Just(Some(1))]),
        (text(), text(), text()),
        prop_oneof![4 => Just(None), 1 => (1_u32..5).prop_map(Some)],
        (rare(100), rare(1 << 33), rare(500), rare(2000)),
        prop_oneof![5 => Just(None), 1 => Just(Some("leaked")), 1 => Just(Some("freed")), 1 => Just(Some("temporary"))],
    )
        .prop_map(
            |(
                (focus, ignore, module),
                (hide, show, show_from),
                thread,
                (min_size, max_size, min_lifetime, max_lifetime),
                lifetime,
            )| Keep {
                focus,
                ignore,
                hide,
                show,
                show_from,
                module,
                thread,
                min_size: min_size.unwrap_or(0),
                max_size,
                min_lifetime: min_lifetime.unwrap_or(0),
                max_lifetime,
                lifetime,
            },
        )
}

/// A window and an instant in parts of a thousand of the recording's length, a filter, and a number of points.
pub type Asked = ((u16, u16, Option<u16>), Keep, usize);

/// A few questions.
pub fn asks() -> impl Strategy<Value = Vec<Asked>> {
    let window = prop_oneof![
        1 => Just((0, 1000, None)),
        4 => (0_u16..1001, 0_u16..1001, prop_oneof![2 => Just(None), 1 => (0_u16..1001).prop_map(Some)])
            .prop_map(|(a, b, at)| (a.min(b), a.max(b), at)),
    ];
    prop::collection::vec((window, prop_oneof![2 => Just(Keep::default()), 3 => keep()], 1_usize..40), 1..5)
}

fn filter(keep: &Keep, truth: &Reference) -> Option<Filter> {
    let regex = |text: &Option<String>| text.as_ref().map(|t| Filter::regex("focus", &regex::escape(t)).unwrap());
    if let Some(thread) = keep.thread
        && !truth.births.iter().any(|b| b.thread == thread)
    {
        return None;
    }
    Some(Filter {
        focus: regex(&keep.focus),
        ignore: regex(&keep.ignore),
        hide: regex(&keep.hide),
        show: regex(&keep.show),
        show_from: regex(&keep.show_from),
        module: keep.module.map(|m| Filter::regex("module", &format!("module{m}\\.so$")).unwrap()),
        thread: keep.thread.map(|t| t.to_string().parse().unwrap()),
        min_size: (keep.min_size > 0).then_some(keep.min_size),
        max_size: keep.max_size,
        min_lifetime: (keep.min_lifetime > 0).then_some(keep.min_lifetime),
        max_lifetime: keep.max_lifetime,
        lifetime: keep.lifetime.map(|l| l.parse::<LifetimeKind>().unwrap()),
    })
}

impl Ask {
    pub fn new(truth: &Reference, raw: &((u16, u16, Option<u16>), Keep, usize)) -> Option<Self> {
        let ((from, to, at), keep, points) = raw;
        let part = |p: u16| truth.duration * u64::from(p) / 1000;
        Some(Self {
            from: part(*from),
            to: part(*to),
            at: at.map(part),
            filter: filter(keep, truth)?,
            keep: keep.clone(),
            points: *points,
        })
    }

    pub fn window(&self) -> Window {
        let time = |ns| Some(TimeExpr::Ns(ns));
        Window { from: time(self.from), to: time(self.to), at: self.at.and_then(time) }
    }

    /// Births and deaths before the moment of a metric.
    pub fn moment(&self, truth: &Reference, metric: Metric) -> u64 {
        match (metric, self.at) {
            (Metric::Peak, _) => truth.peak(self.from, self.to).3,
            (_, Some(at)) => truth.events_before(at + 1),
            (_, None) => truth.events_before(self.to),
        }
    }
}

fn no() -> Cancel {
    Cancel::new()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 4000, ..ProptestConfig::default() })]
    #[test]
    fn everything_agrees(script in script::script(260), asked in asks(), fine in fine()) {
        let folder = tempfile::tempdir().unwrap();
        let written = script::run(&script);
        let path = script::store(folder.path(), &written.bytes);
        let built = Recording::open(&path, options(fine)).unwrap().trace();
        // The second opening maps what the first one built.
        let mapped = Recording::open(&path, options(fine)).unwrap().trace();
        for trace in [&built, &mapped] {
            facts_agree(trace, &written.truth);
            events_agree(trace, &written.truth);
            blocks_agree(trace, &written.truth);
        }
        for raw in &asked {
            if let Some(ask) = Ask::new(&written.truth, raw) {
                queries_agree(&mapped, &written.truth, &ask);
            }
        }
    }
}

pub fn facts_agree(trace: &Trace, truth: &Reference) {
    let info = info::run(trace);
    let allocs = truth.order.iter().filter(|t| matches!(t, Truth::Alloc(_))).count() as u64;
    let pool_frees = truth.births.iter().filter(|b| b.died.is_some_and(|d| d.kind == Kind::PoolFree)).count() as u64;
    assert_eq!(info.events.alloc, allocs);
    assert_eq!(info.events.free, truth.frees + pool_frees);
    assert_eq!(info.events.realloc, truth.reallocs);
    assert_eq!(info.events.map, truth.maps);
    assert_eq!(info.events.brk, truth.breaks);
    let of = |test: fn(&Mapping) -> bool| truth.mappings.iter().filter(|m| test(&m.1)).count() as u64;
    let remapped = of(|m| matches!(m, Mapping::Remap { .. }));
    assert_eq!(info.events.remap, remapped);
    assert_eq!(info.events.map + info.events.unmap + info.events.remap + info.events.brk, truth.mappings.len() as u64);
    let levels = truth.mapped_pages();
    assert_eq!(info.mapped.peak_bytes, levels.iter().map(|l| l.1 as u64).max().unwrap_or(0) << 12);
    assert_eq!(info.mapped.end_bytes, levels.last().map_or(0, |l| l.1 as u64) << 12);
    let first = levels.iter().find(|l| (l.1 as u64) << 12 == info.mapped.peak_bytes).map_or(0, |l| l.0);
    assert!(info.mapped.peak_bytes == 0 || info.mapped.peak_at_ns == first);
    assert_eq!(info.events.lost, 0);
    assert!(info.complete);
    assert_eq!(info.recorder.unmatched_frees, truth.unmatched);
    assert_eq!(info.allocations.count, truth.births.len() as u64);
    assert_eq!(info.allocations.bytes, truth.births.iter().map(|b| b.size).sum::<u64>());
    let left: Vec<_> = truth.births.iter().filter(|b| b.died.is_none()).collect();
    assert_eq!(info.leaked, Amount { bytes: left.iter().map(|b| b.size).sum(), count: left.len() as u64 });
    let temporary: Vec<_> = truth.births.iter().filter(|b| b.temporary).collect();
    assert_eq!(info.temporary.count, temporary.len() as u64);
    assert_eq!(info.temporary.bytes, temporary.iter().map(|b| b.size).sum::<u64>());
    let peak = truth.peak(0, u64::MAX);
    assert_eq!((info.peak.bytes, info.peak.count), (peak.0, peak.1));
    assert_eq!(info.peak.at_ns, peak.2);
    let mut nodes: Vec<u32> = truth.births.iter().map(|b| b.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    assert_eq!(info.sites, nodes.len() as u64);
    assert_eq!(info.max_depth, nodes.iter().map(|&n| truth.path(n).len() as u64).max().unwrap_or(0));
    assert_eq!(info.peak_rss.map_or(0, |p| p.bytes), truth.samples.iter().map(|s| s.1).max().unwrap_or(0));
}

pub fn events_agree(trace: &Trace, truth: &Reference) {
    let rows = truth.by_row();
    let mut row_of = vec![0_u64; rows.len()];
    rows.iter().enumerate().for_each(|(row, &i)| row_of[i] = row as u64);
    let events: Vec<_> = trace
        .events(trace.everything())
        .filter(|e| !matches!(e.what, What::ThreadStart { .. } | What::ThreadEnd))
        .collect();
    assert_eq!(events.len(), truth.order.len());
    for (event, expected) in events.iter().zip(&truth.order) {
        match (expected, &event.what) {
            (Truth::Alloc(i), What::Alloc { function, address, size, row }) => {
                let b = &truth.births[*i];
                let got = (event.t_ns, event.thread, event.node, *function, *address, *size, *row);
                assert_eq!(got, (b.born_ns, b.thread, b.node, b.kind.function(), b.address, b.size, row_of[*i]));
            }
            (Truth::Free(i), What::Free { function, address, row }) => {
                let (b, d) = (&truth.births[*i], truth.births[*i].died.unwrap());
                let got = (event.t_ns, event.thread, event.node, *function, *address, *row);
                assert_eq!(got, (d.ns, d.thread, d.node, d.kind.function(), b.address, Some(row_of[*i])));
            }
            (Truth::Realloc { old, new }, What::Realloc { function, address, size, row, old_row, .. }) => {
                let b = &truth.births[*new];
                let got = (event.t_ns, event.thread, event.node, *function, *address, *size, *row, *old_row);
                let old = old.map(|o| row_of[o]);
                assert_eq!(got, (b.born_ns, b.thread, b.node, "realloc", b.address, b.size, row_of[*new], old));
            }
            (Truth::Other { t_ns, thread }, _) => assert_eq!((event.t_ns, event.thread), (*t_ns, *thread)),
            (expected, got) => panic!("{got:?} where {expected:?} happened"),
        }
    }
}

pub fn blocks_agree(trace: &Trace, truth: &Reference) {
    let rows = truth.by_row();
    let mut row_of = vec![0_u64; rows.len()];
    rows.iter().enumerate().for_each(|(row, &i)| row_of[i] = row as u64);
    for (row, &i) in rows.iter().enumerate() {
        let (b, got) = (&truth.births[i], trace.birth(row as u64));
        assert_eq!((got.born_ns, got.address, got.size, got.node), (b.born_ns, b.address, b.size, b.node));
        assert_eq!(trace.thread_id(got.thread), b.thread);
        assert_eq!(got.kind, b.kind as u8);
        assert_eq!(got.is_temporary, b.temporary);
        assert_eq!(
            got.death.map(|d| (d.died_ns, trace.thread_id(d.thread), d.node)),
            b.died.map(|d| (d.ns, d.thread, d.node))
        );
        assert_eq!(got.previous, b.previous.map(|p| row_of[p]));
        assert_eq!(got.next, b.next.map(|n| row_of[n]));
        assert_eq!(trace.event_of_birth(row as u64), Some(b.born_event));
    }
    for t_ns in (0..=truth.duration).step_by((truth.duration / 97 + 1) as usize) {
        assert_eq!(trace.position_before(t_ns).events(), truth.events_before(t_ns), "at {t_ns}");
    }
    for events in 0..=truth.states.len() as u64 {
        let place = trace.position_after(events);
        assert_eq!(place.events(), events);
        assert_eq!(place.births, truth.births.iter().filter(|b| b.born_event < events).count() as u64);
        let state = trace.state_at(place);
        assert_eq!(state.live, if events == 0 { 0 } else { truth.states[events as usize - 1].bytes });
    }
}

pub fn queries_agree(trace: &Trace, truth: &Reference, ask: &Ask) {
    for metric in METRICS {
        let at = ask.moment(truth, metric);
        let expected = truth.sums(metric, ask.from, ask.to, at, &ask.keep);
        let params = node_sums::Params { metric, window: ask.window(), filter: ask.filter.clone() };
        let got = node_sums::run(trace, &Names, &params, &no()).unwrap();
        let sums: BTreeMap<u32, (i64, i64)> = got.nodes.iter().map(|n| (n.node, (n.sum.bytes, n.sum.count))).collect();
        assert_eq!(sums, expected, "{metric:?} {ask:?}");
        for inverted in [false, true] {
            flamegraph_agrees(trace, truth, ask, metric, &expected, inverted);
        }
        functions_agree(trace, truth, ask, metric, &expected);
    }
    threads_agree(trace, truth, ask);
    timeline_agrees(trace, truth, ask);
    allocations_agree(trace, truth, ask);
    leaks_agree(trace, truth, ask);
    histograms_agree(trace, truth, ask);
    sites_agree(trace, truth, ask);
    diff_agrees(trace, truth, ask);
    memory_agrees(trace, truth, ask);
}

fn flamegraph_agrees(
    trace: &Trace,
    truth: &Reference,
    ask: &Ask,
    metric: Metric,
    expected: &BTreeMap<u32, (i64, i64)>,
    inverted: bool,
) {
    let mut params = flamegraph::Params {
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

fn rows_by_path(graph: &tracehound_server::api::flamegraph::Flamegraph) -> BTreeMap<Vec<String>, i64> {
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
fn is_a_tree(graph: &tracehound_server::api::flamegraph::Flamegraph) {
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

fn functions_agree(trace: &Trace, truth: &Reference, ask: &Ask, metric: Metric, expected: &BTreeMap<u32, (i64, i64)>) {
    let table = |by| {
        let params = functions::Params {
            metric,
            window: ask.window(),
            filter: ask.filter.clone(),
            by,
            ..functions::Params::default()
        };
        functions::run(trace, &Names, &params, &no()).unwrap()
    };
    let grouped = |key: &dyn Fn(u32) -> String| {
        let mut sums: BTreeMap<String, [i64; 4]> = BTreeMap::new();
        for (&node, &(bytes, count)) in expected {
            let keys: Vec<String> = truth.shown(node, &ask.keep).into_iter().map(key).collect();
            if let Some(leaf) = keys.first() {
                let sum = sums.entry(leaf.clone()).or_default();
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
    assert_eq!(got(GroupBy::Function), grouped(&symbols::name));
    assert_eq!(got(GroupBy::File), grouped(&symbols::file));
    assert_eq!(got(GroupBy::Module), grouped(&|f| format!("module{}.so", f % 2)));
    let by_site = table(GroupBy::Site);
    assert_eq!(by_site.rows.len(), expected.len());
    let mut threads: BTreeMap<String, i64> = BTreeMap::new();
    let at = ask.moment(truth, metric);
    for b in truth.births.iter().filter(|b| truth.passes(b, &ask.keep)) {
        *threads.entry(format!("t{}", b.thread)).or_default() +=
            truth.weight(b, metric, ask.from, ask.to, at) * b.size as i64;
    }
    threads.retain(|_, v| *v != 0);
    let by_thread: BTreeMap<String, i64> =
        table(GroupBy::Thread).rows.into_iter().map(|r| (r.name, r.flat)).filter(|r| r.1 != 0).collect();
    assert_eq!(by_thread, threads);
}

fn threads_agree(trace: &Trace, truth: &Reference, ask: &Ask) {
    let params = threads::Params { window: ask.window(), filter: ask.filter.clone() };
    let got = threads::run(trace, &Names, &params, &no()).unwrap();
    let inside = |t: u64| t >= ask.from && t < ask.to;
    let mut pairs: BTreeMap<(u32, u32), (u64, u64)> = BTreeMap::new();
    for b in truth.births.iter().filter(|b| truth.passes(b, &ask.keep)) {
        if let Some(d) = b.died.filter(|d| inside(d.ns)) {
            let sum = pairs.entry((b.thread, d.thread)).or_default();
            sum.0 += b.size;
            sum.1 += 1;
        }
    }
    let found: BTreeMap<_, _> =
        got.pairs.iter().map(|p| ((p.allocated_by, p.freed_by), (p.amount.bytes, p.amount.count))).collect();
    assert_eq!(found, pairs);
    for thread in &got.threads {
        let freed: u64 = pairs.iter().filter(|(k, _)| k.1 == thread.id).map(|(_, v)| v.0).sum();
        assert_eq!(thread.freed.bytes, freed);
        let of = |metric| -> Amount {
            let at = ask.moment(truth, metric);
            let mut sum = (0, 0);
            for b in truth.births.iter().filter(|b| b.thread == thread.id && truth.passes(b, &ask.keep)) {
                let weight = truth.weight(b, metric, ask.from, ask.to, at) as u64;
                sum = (sum.0 + weight * b.size, sum.1 + weight);
            }
            Amount { bytes: sum.0, count: sum.1 }
        };
        assert_eq!(thread.allocated, of(Metric::Allocated));
        assert_eq!(thread.live, of(Metric::Live));
        assert_eq!(thread.leaked, of(Metric::Leaked));
        assert_eq!(thread.temporary, of(Metric::Temporary));
    }
}

fn timeline_agrees(trace: &Trace, truth: &Reference, ask: &Ask) {
    let series = vec![
        SeriesName::LiveBytes,
        SeriesName::LiveCount,
        SeriesName::AllocRate,
        SeriesName::FreeRate,
        SeriesName::Rss,
        SeriesName::MappedBytes,
    ];
    let mapped = truth.mapped_pages();
    let params = timeline::Params { series, window: ask.window(), filter: ask.filter.clone(), points: ask.points };
    let got = timeline::run(trace, &Names, &params, &no()).unwrap();
    let peak = truth.peak(ask.from, ask.to);
    assert_eq!((got.peak.bytes, got.peak.count, got.peak.at_ns), (peak.0, peak.1, peak.2));
    // What passes, one by one: (time, bytes, count, whether a realloc is not half done).
    let mut steps = Vec::new();
    for truth_event in &truth.order {
        let (death, birth) = match *truth_event {
            Truth::Alloc(i) => (None, Some(i)),
            Truth::Free(i) => (Some(i), None),
            Truth::Realloc { old, new } => (old, Some(new)),
            Truth::Other { .. } => continue,
        };
        let passes = |i: &usize| truth.passes(&truth.births[*i], &ask.keep);
        if let Some(i) = death.filter(passes) {
            let b = &truth.births[i];
            steps.push((b.died.unwrap().ns, -(b.size as i64), -1_i64, birth.is_none()));
        }
        if let Some(i) = birth {
            let b = &truth.births[i];
            if passes(&i) {
                steps.push((b.born_ns, b.size as i64, 1, true));
            } else if let Some(last) = steps.last_mut().filter(|_| death.is_some_and(|d| passes(&d))) {
                last.3 = true;
            }
        }
    }
    let columns = got.t_ns.len();
    for i in 0..columns {
        let (from, to) = (got.t_ns[i], got.t_ns.get(i + 1).copied().unwrap_or(ask.to));
        let before: (i64, i64) = steps.iter().filter(|s| s.0 < from).fold((0, 0), |sum, s| (sum.0 + s.1, sum.1 + s.2));
        let (mut now, mut low, mut high) = (before, before, before);
        let (mut births, mut deaths) = (0, 0);
        for s in steps.iter().filter(|s| s.0 >= from && s.0 < to) {
            now = (now.0 + s.1, now.1 + s.2);
            births += i64::from(s.2 > 0);
            deaths += i64::from(s.2 < 0);
            if s.3 {
                low = (low.0.min(now.0), low.1.min(now.1));
                high = (high.0.max(now.0), high.1.max(now.1));
            }
        }
        let at = |series: usize| {
            let s = &got.series[series];
            (s.min[i].unwrap() as i64, s.max[i].unwrap() as i64, s.last[i].unwrap() as i64)
        };
        assert_eq!(at(0), (low.0, high.0, now.0), "bytes in column {i} of {columns}, {ask:?}");
        assert_eq!(at(1), (low.1, high.1, now.1), "blocks in column {i}");
        let seconds = (to - from).max(1) as f64 / 1e9;
        assert_eq!((got.series[2].last[i].unwrap() * seconds).round() as i64, births);
        assert_eq!((got.series[3].last[i].unwrap() * seconds).round() as i64, deaths);
        let samples: Vec<u64> = truth.samples.iter().filter(|s| s.0 >= from && s.0 < to).map(|s| s.1).collect();
        assert_eq!(got.series[4].max[i], samples.iter().max().map(|&s| s as f64));
        assert_eq!(got.series[4].last[i], samples.last().map(|&s| s as f64));
        let start = mapped.iter().rfind(|m| m.0 < from).map_or(0, |m| m.1);
        let levels = || [start].into_iter().chain(mapped.iter().filter(|m| m.0 >= from && m.0 < to).map(|m| m.1));
        let bytes = |pages: Option<usize>| pages.map(|p| (p << 12) as f64);
        assert_eq!(got.series[5].min[i], bytes(levels().min()), "mapped in column {i}");
        assert_eq!(got.series[5].max[i], bytes(levels().max()));
        assert_eq!(got.series[5].last[i], bytes(levels().last()));
    }
}

fn allocations_agree(trace: &Trace, truth: &Reference, ask: &Ask) {
    let alive_at = ask.at.map(|at| truth.events_before(at + 1));
    let expected: Vec<(u64, &crate::reference::Birth)> = truth
        .by_row()
        .into_iter()
        .enumerate()
        .map(|(row, i)| (row as u64, &truth.births[i]))
        .filter(|(_, b)| match alive_at {
            Some(events) => b.is_live_at_event(events),
            None => b.born_ns >= ask.from && b.born_ns < ask.to,
        })
        .filter(|(_, b)| truth.passes(b, &ask.keep))
        .collect();
    use allocations::Sort;
    for (sort, descending) in [
        (Sort::Born, false),
        (Sort::Born, true),
        (Sort::Size, true),
        (Sort::Size, false),
        (Sort::Died, false),
        (Sort::Lifetime, true),
    ] {
        let mut expected = expected.clone();
        let key = |(row, b): &(u64, &crate::reference::Birth)| match sort {
            Sort::Born => *row,
            Sort::Died => b.died_event,
            Sort::Size => b.size,
            Sort::Lifetime => b.lifetime(truth.duration),
        };
        expected.sort_by_key(|e| (if descending { u64::MAX - key(e) } else { key(e) }, e.0));
        if sort == Sort::Born && descending {
            expected.sort_by_key(|e| u64::MAX - e.0);
        }
        let mut got = Vec::new();
        let mut cursor = None;
        loop {
            let params = allocations::Params {
                window: ask.window(),
                filter: ask.filter.clone(),
                site: None,
                sort,
                descending,
                cursor,
                limit: 7,
            };
            let page = allocations::run(trace, &Names, &params, &no()).unwrap();
            assert_eq!(page.total, expected.len() as u64);
            assert!(page.allocations.len() <= 7);
            got.extend(page.allocations.into_iter().map(|a| a.index));
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(got, expected.iter().map(|e| e.0).collect::<Vec<_>>(), "{sort:?} {descending} {ask:?}");
    }
}

fn leaks_agree(trace: &Trace, truth: &Reference, ask: &Ask) {
    let params = leaks::Params { window: ask.window(), filter: ask.filter.clone(), ..leaks::Params::default() };
    let got = leaks::run(trace, &Names, &params, &no()).unwrap();
    let expected = truth.sums(Metric::Leaked, ask.from, ask.to, 0, &ask.keep);
    assert_eq!(got.sites.len(), expected.len());
    assert_eq!(got.leaked.bytes as i64, expected.values().map(|s| s.0).sum::<i64>());
    assert!(got.sites.windows(2).all(|w| w[0].bytes >= w[1].bytes));
    for site in &got.sites {
        let node = trace.site_node(tracehound_server::query::parse_site("site", &site.id).unwrap()).unwrap();
        assert_eq!((site.bytes as i64, site.count as i64), expected[&node]);
        let born: Vec<u64> = truth
            .births
            .iter()
            .filter(|b| b.node == node && b.died.is_none() && b.born_ns >= ask.from && b.born_ns < ask.to)
            .filter(|b| truth.passes(b, &ask.keep))
            .map(|b| b.born_ns)
            .collect();
        assert_eq!(Some(&site.first_ns), born.iter().min());
        assert_eq!(Some(&site.last_ns), born.iter().max());
        assert_eq!(site.stack.len(), truth.functions(node).len());
        assert!(!site.verdict.why.is_empty());
    }
}

fn histograms_agree(trace: &Trace, truth: &Reference, ask: &Ask) {
    let born: Vec<_> = truth
        .births
        .iter()
        .filter(|b| b.born_ns >= ask.from && b.born_ns < ask.to && truth.passes(b, &ask.keep))
        .collect();
    let params = sizes::Params { window: ask.window(), filter: ask.filter.clone() };
    let got = sizes::run(trace, &Names, &params, &no()).unwrap();
    let classes = |lower: &[u64], value: &dyn Fn(&crate::reference::Birth) -> u64| -> Vec<(u64, u64, u64)> {
        (0..lower.len())
            .map(|i| {
                let end = lower.get(i + 1).copied().unwrap_or(u64::MAX);
                let inside: Vec<_> = born.iter().filter(|b| value(b) >= lower[i] && value(b) < end).collect();
                let live = inside.iter().filter(|b| b.died.is_none()).count() as u64;
                (inside.len() as u64, inside.iter().map(|b| b.size).sum(), live)
            })
            .collect()
    };
    let counted = |h: &tracehound_server::api::histograms::Histogram| -> Vec<(u64, u64, u64)> {
        (0..h.lower.len()).map(|i| (h.count[i], h.bytes[i], h.live_count[i])).collect()
    };
    assert_eq!(counted(&got.histogram), classes(&got.histogram.lower, &|b| b.size));
    assert_eq!(got.histogram.count.iter().sum::<u64>(), born.len() as u64);
    for exact in &got.commonest {
        assert_eq!(exact.count, born.iter().filter(|b| b.size == exact.size).count() as u64);
    }
    let params = lifetimes::Params { window: ask.window(), filter: ask.filter.clone() };
    let got = lifetimes::run(trace, &Names, &params, &no()).unwrap();
    assert_eq!(counted(&got.histogram), classes(&got.histogram.lower, &|b| b.lifetime(truth.duration)));
    assert_eq!(got.map_count.iter().sum::<u64>(), born.len() as u64);
    assert_eq!(got.map_bytes.iter().sum::<u64>(), born.iter().map(|b| b.size).sum::<u64>());
    assert_eq!(got.map_count.len(), got.map_size.len() * got.map_lifetime.len());
}

fn sites_agree(trace: &Trace, truth: &Reference, ask: &Ask) {
    let params = sites::Params { window: ask.window(), filter: ask.filter.clone(), ..sites::Params::default() };
    let got = sites::run(trace, &Names, &params, &no()).unwrap();
    let sum = |metric| truth.sums(metric, ask.from, ask.to, ask.moment(truth, metric), &ask.keep);
    let (allocated, freed, live) = (sum(Metric::Allocated), sum(Metric::Freed), sum(Metric::Live));
    let amount = |sums: &BTreeMap<u32, (i64, i64)>, node| {
        let (bytes, count) = sums.get(&node).copied().unwrap_or_default();
        Amount { bytes: bytes as u64, count: count as u64 }
    };
    for row in &got.sites {
        let site = tracehound_server::query::parse_site("site", &row.id).unwrap();
        let node = trace.site_node(site).unwrap();
        assert_eq!(row.allocated, amount(&allocated, node));
        assert_eq!(row.freed, amount(&freed, node));
        assert_eq!(row.live, amount(&live, node));
        assert_eq!(row.trend.len(), 32);
        for (i, &bytes) in (1..).zip(&row.trend) {
            let t_ns = ask.from + (u128::from(ask.to - ask.from) * i / 32) as u64;
            let at = truth.events_before(t_ns);
            let alive = truth.sums(Metric::Live, 0, 0, at, &ask.keep);
            assert_eq!(bytes, amount(&alive, node).bytes, "moment {i}");
        }
    }
    let mut nodes: Vec<u32> = allocated.keys().chain(freed.keys()).chain(live.keys()).copied().collect();
    nodes.sort_unstable();
    nodes.dedup();
    assert_eq!(got.total_sites, nodes.len() as u64);
    let Some(first) = got.sites.first() else { return };
    let site = tracehound_server::query::parse_site("site", &first.id).unwrap();
    let node = trace.site_node(site).unwrap();
    let params = sites::OneParams { site, window: ask.window(), filter: ask.filter.clone(), points: ask.points };
    let one = sites::one(trace, &Names, &params, &no()).unwrap();
    assert_eq!(&one.row, first);
    let mut by: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for b in truth.births.iter().filter(|b| b.node == node && truth.passes(b, &ask.keep)) {
        if let Some(d) = b.died.filter(|d| d.ns >= ask.from && d.ns < ask.to) {
            let sum = by.entry(d.node).or_default();
            sum.0 += b.size;
            sum.1 += u64::from(d.thread == b.thread);
        }
    }
    assert_eq!(one.freed_by.len(), by.len());
    let mut expected: Vec<_> = by.values().copied().collect();
    let mut found: Vec<_> = one.freed_by.iter().map(|f| (f.amount.bytes, f.same_thread.count)).collect();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected);
    let mut lifetimes: Vec<u64> = truth
        .births
        .iter()
        .filter(|b| b.node == node && truth.passes(b, &ask.keep) && b.born_ns >= ask.from && b.born_ns < ask.to)
        .map(|b| b.lifetime(truth.duration))
        .collect();
    lifetimes.sort_unstable();
    let q = one.lifetime_quantiles;
    assert_eq!(q.min_ns, lifetimes.first().copied().unwrap_or(0));
    assert_eq!(q.max_ns, lifetimes.last().copied().unwrap_or(0));
    if !lifetimes.is_empty() {
        let no_longer = |ns: u64| lifetimes.iter().filter(|&&l| l <= ns).count();
        assert!(no_longer(q.p50_ns) * 2 >= lifetimes.len());
        assert!(q.p50_ns == 0 || no_longer(q.p50_ns - 1) * 2 < lifetimes.len());
    }
}

fn diff_agrees(trace: &Trace, truth: &Reference, ask: &Ask) {
    let time = |ns| Window { at: Some(TimeExpr::Ns(ns)), ..Window::default() };
    let (before, after) = (time(ask.from), time(ask.to));
    let side = |window, label| diff::Side { trace, symbols: &Names, window, label };
    let params = diff::Params { filter: ask.filter.clone(), ..diff::Params::default() };
    let got = diff::run(side(&before, "a"), side(&after, "b"), &params, &no()).unwrap();
    let (a, b) = (truth.events_before(ask.from + 1), truth.events_before(ask.to + 1));
    let passing: Vec<_> = truth.births.iter().filter(|x| truth.passes(x, &ask.keep)).collect();
    let sum = |test: &dyn Fn(&crate::reference::Birth) -> bool| -> u64 {
        passing.iter().filter(|x| test(x)).map(|x| x.size).sum()
    };
    assert_eq!(got.total_before.bytes, sum(&|x| x.is_live_at_event(a)));
    assert_eq!(got.total_after.bytes, sum(&|x| x.is_live_at_event(b)));
    let survived: u64 = got.rows.iter().map(|r| r.survived.unwrap().bytes).sum();
    assert_eq!(survived, sum(&|x| x.is_live_at_event(a) && x.is_live_at_event(b)));
}

fn memory_agrees(trace: &Trace, truth: &Reference, ask: &Ask) {
    let at = ask.at.unwrap_or(ask.to);
    let params = memory::Params { at: Some(TimeExpr::Ns(at)), limit: None };
    let got = memory::run(trace, &Names, &params, &no()).unwrap();
    let events = truth.events_before(at + 1);
    let live: Vec<_> = truth.births.iter().filter(|b| b.is_live_at_event(events)).collect();
    assert_eq!(got.live, Amount { bytes: live.iter().map(|b| b.size).sum(), count: live.len() as u64 });
    assert_eq!(got.sample.map(|s| s.rss_bytes), truth.samples.iter().rfind(|s| s.0 <= at).map(|s| s.1));
    // Blocks byte by byte would take too long: the sizes are up to 16 GiB. Borders cut the addresses into stretches.
    let ranges: Vec<(u64, u64)> = live
        .iter()
        .filter(|b| b.kind != Kind::PoolAlloc)
        .map(|b| (b.address, b.address.saturating_add(b.size.max(1))))
        .collect();
    let mut borders: Vec<u64> = ranges.iter().flat_map(|r| [r.0, r.1]).collect();
    borders.sort_unstable();
    borders.dedup();
    let covered = borders.windows(2).filter(|w| ranges.iter().any(|r| r.0 <= w[0] && w[1] <= r.1));
    assert_eq!(got.pages.used_bytes, covered.map(|w| w[1] - w[0]).sum::<u64>());
    assert_eq!(got.pages.bytes, got.pages.count * 4096);
    assert_eq!(got.pages.by_tenths.iter().sum::<u64>(), got.pages.count);
    assert!(got.pages.used_bytes <= got.pages.bytes);
    let owners = truth.mapped_at(at);
    assert_eq!(got.mapped_bytes, (owners.iter().flatten().count() as u64) << 12);
    let levels = truth.mapped_pages();
    let peak = levels.iter().filter(|l| l.0 <= at).map(|l| l.1 as u64).max().unwrap_or(0);
    assert_eq!(got.mapped_peak_bytes, peak << 12);
    assert_eq!(got.kinds.iter().map(|k| k.mapped_bytes).sum::<u64>(), got.mapped_bytes);
    assert_eq!(got.kinds.iter().map(|k| k.mappings).sum::<u64>(), got.mappers.iter().map(|m| m.mappings).sum::<u64>());
    assert_eq!(
        got.kinds.iter().map(|k| k.used_bytes).sum::<u64>(),
        got.mappers.iter().map(|m| m.used_bytes).sum::<u64>()
    );
    assert_eq!(got.resident.is_some(), got.sample.is_some());
    if let (Some(sample), Some(r)) = (got.sample, got.resident) {
        let parts = r.live_bytes + r.page_rest_bytes + r.other_anonymous_bytes + r.files_bytes + r.recorder_bytes;
        assert_eq!(parts - r.untouched_bytes, sample.rss_bytes);
        assert_eq!(r.live_bytes, got.pages.used_bytes);
    }
    let mut by_node: BTreeMap<u32, u64> = BTreeMap::new();
    owners.iter().flatten().for_each(|&node| *by_node.entry(node).or_default() += 1 << 12);
    let mut expected: Vec<(u64, usize)> =
        by_node.iter().map(|(&node, &bytes)| (bytes, truth.functions(node).len())).collect();
    let mut found: Vec<(u64, usize)> = got.mappers.iter().map(|m| (m.mapped_bytes, m.stack.len())).collect();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected);
}
