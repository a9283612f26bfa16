//! Every query against the reference.

mod curves;
mod graphs;
mod moments;
mod tables;

use std::collections::BTreeMap;

use proptest::prelude::*;
use tracehound_api::{Amount, Metric, PeakOf};
use tracehound_format::record::Kind;
use tracehound_index::layout::{class_floor, lifetime_class};
use tracehound_index::zones::{Zone, site_bit, thread_bit};
use tracehound_index::{AllocRow, BlockEvent, BlockRow, Cancel, Span, Trace, What};
use tracehound_ingest::Recording;
use tracehound_query::{TimeExpr, Window, flamegraph, info, node_sums};

use crate::ask::{Ask, asks, fine, options};
use crate::program;
use crate::reference::{Mapping, Reference, Truth};
use crate::script;
use crate::symbols::Names;
use curves::{threads_agree, timeline_agrees};
use graphs::{churn_agrees, flamegraph_agrees, freeing_agrees, functions_agree, pinned_agrees};
use moments::{breakdown_agrees, diff_agrees, heap_map_agrees, memory_agrees};
use tables::{allocations_agree, histograms_agree, leaks_agree, sites_agree};

const METRICS: [Metric; 7] =
    [Metric::Live, Metric::Peak, Metric::Leaked, Metric::Allocated, Metric::Freed, Metric::Grown, Metric::Temporary];

fn no() -> Cancel {
    Cancel::new()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 4000, ..ProptestConfig::default() })]
    #[test]
    fn everything_agrees(script in script::script(260), asked in asks(), fine in fine()) {
        let folder = tempfile::tempdir().unwrap();
        let written = program::run(&script);
        let path = program::store(folder.path(), &written.bytes);
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
    let pool_frees = truth.allocs.iter().filter(|b| b.freed.is_some_and(|d| d.kind == Kind::PoolFree)).count() as u64;
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
    assert_eq!(info.recorder.order_repairs, truth.inverted);
    assert_eq!(info.allocations.count, truth.allocs.len() as u64);
    assert_eq!(info.allocations.bytes, truth.allocs.iter().map(|b| b.size).sum::<u64>());
    let left: Vec<_> = truth.allocs.iter().filter(|b| b.freed.is_none()).collect();
    assert_eq!(info.leaked, Amount { bytes: left.iter().map(|b| b.size).sum(), count: left.len() as u64 });
    let temporary: Vec<_> = truth.allocs.iter().filter(|b| b.temporary).collect();
    assert_eq!(info.temporary.count, temporary.len() as u64);
    assert_eq!(info.temporary.bytes, temporary.iter().map(|b| b.size).sum::<u64>());
    let peak = truth.peak(0, u64::MAX);
    assert_eq!((info.peak.bytes, info.peak.count), (peak.0, peak.1));
    assert_eq!(info.peak.at_ns, peak.2);
    let mut nodes: Vec<u32> = truth.allocs.iter().map(|b| b.node).collect();
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
                let b = &truth.allocs[*i];
                let got = (event.t_ns, event.thread, event.node, *function, *address, *size, *row);
                assert_eq!(got, (b.born_ns, b.thread, b.node, b.kind.function(), b.address, b.size, row_of[*i]));
            }
            (Truth::Free(i), What::Free { function, address, row, .. }) => {
                let (b, d) = (&truth.allocs[*i], truth.allocs[*i].freed.unwrap());
                let got = (event.t_ns, event.thread, event.node, *function, *address, *row);
                assert_eq!(got, (d.ns, d.thread, d.node, d.kind.function(), b.address, Some(row_of[*i])));
            }
            (Truth::Realloc { old, new }, What::Realloc { function, address, size, row, old_row, .. }) => {
                let b = &truth.allocs[*new];
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
    zones_agree(trace);
    let rows = truth.by_row();
    let mut row_of = vec![0_u64; rows.len()];
    rows.iter().enumerate().for_each(|(row, &i)| row_of[i] = row as u64);
    for (row, &i) in rows.iter().enumerate() {
        let (b, got) = (&truth.allocs[i], trace.alloc(row as u64));
        assert_eq!((got.born_ns, got.address, got.size, got.node), (b.born_ns, b.address, b.size, b.node));
        assert_eq!(trace.thread_id(got.thread), b.thread);
        assert_eq!(got.kind, b.kind as u8);
        assert_eq!(got.is_temporary, b.temporary);
        assert_eq!(
            got.free.map(|d| (d.died_ns, trace.thread_id(d.thread), d.node)),
            b.freed.map(|d| (d.ns, d.thread, d.node))
        );
        assert_eq!(got.previous, b.previous.map(|p| row_of[p]));
        assert_eq!(got.next, b.next.map(|n| row_of[n]));
        assert_eq!(trace.event_of_alloc(row as u64), Some(b.allocated_event));
    }
    let everything = trace.everything();
    let events = everything.to.events();
    for start in [0, events / 3, events / 2] {
        let from = trace.position_after(start);
        let span = Span { from, to: everything.to };
        let passed: Vec<BlockRow> = trace.blocks(span).collect();
        assert_eq!(passed.len() as u64, everything.to.allocs - from.allocs);
        for (block, row) in passed.iter().zip(from.allocs..) {
            let b = trace.alloc(row);
            assert_eq!((block.row, block.born_ns, block.address, block.size), (row, b.born_ns, b.address, b.size));
            assert_eq!(trace.origin(block.origin).node, b.node);
            let free = block.free.map(|(ns, origin)| (ns, trace.origin(origin).node));
            assert_eq!((free, block.previous), (b.free.map(|d| (d.died_ns, d.node)), b.previous));
        }
        let steps: Vec<BlockEvent> = trace.steps(span).collect();
        assert_eq!(steps.len() as u64, events - start);
        for (step, event) in steps.iter().zip(start..) {
            let place = trace.position_after(event);
            let row = if step.allocated { place.allocs } else { trace.row_of_free(place.frees) };
            assert_eq!((step.allocated, step.row), (!trace.is_free(event), row));
            assert_eq!(step.t_ns, trace.time_of_event(event));
        }
    }
    for t_ns in (0..=truth.duration).step_by((truth.duration / 97 + 1) as usize) {
        assert_eq!(trace.position_before(t_ns).events(), truth.events_before(t_ns), "at {t_ns}");
    }
    for events in 0..=truth.states.len() as u64 {
        let place = trace.position_after(events);
        assert_eq!(place.events(), events);
        assert_eq!(place.allocs, truth.allocs.iter().filter(|b| b.allocated_event < events).count() as u64);
        let state = trace.state_at(place);
        assert_eq!(state.live, if events == 0 { 0 } else { truth.states[events as usize - 1].bytes });
    }
}

/// What is in the zones is what the rows of their runs have.
pub fn zones_agree(trace: &Trace) {
    let (allocs, frees) = (trace.alloc_count(), trace.free_count());
    let ledgers = trace.ledgers();
    let block = |zone: &mut Zone, row: u64| {
        let alloc = trace.alloc(row);
        zone.min_size = zone.min_size.min(alloc.size);
        zone.max_size = zone.max_size.max(alloc.size);
        zone.threads |= thread_bit(alloc.thread);
        zone.sites |= site_bit(alloc.site);
        alloc
    };
    let end = |zone: &mut Zone, alloc: &AllocRow, other: u64| {
        let Some(free) = alloc.free else { return };
        let class = lifetime_class(free.died_ns - alloc.born_ns);
        assert!(class_floor(class) <= free.died_ns - alloc.born_ns);
        zone.classes |= 1 << class;
        zone.first = zone.first.min(other);
        zone.end = zone.end.max(other + 1);
        zone.freed += 1;
        zone.temporary += u32::from(alloc.is_temporary);
    };
    let run = ledgers.alloc_zones.run_rows();
    let mut seen = 0;
    for (rows, zone) in ledgers.alloc_zones.touching(0, allocs) {
        let mut expected = Zone::default();
        for row in rows.clone() {
            let alloc = block(&mut expected, row);
            end(&mut expected, &alloc, alloc.free.map_or(0, |d| d.ordinal));
        }
        assert_eq!((zone, rows.start, rows.end), (expected, seen, (seen + run).min(allocs)));
        seen = rows.end;
    }
    assert_eq!(seen, allocs);
    seen = 0;
    for (ordinals, zone) in ledgers.free_zones.touching(0, frees) {
        let mut expected = Zone::default();
        for ordinal in ordinals.clone() {
            let row = trace.row_of_free(ordinal);
            let alloc = block(&mut expected, row);
            end(&mut expected, &alloc, row);
        }
        assert_eq!((zone, ordinals.start), (expected, seen));
        seen = ordinals.end;
    }
    assert_eq!(seen, frees);
}

pub fn queries_agree(trace: &Trace, truth: &Reference, ask: &Ask) {
    for metric in METRICS {
        let at = ask.moment(truth, metric);
        let expected = truth.sums(metric, ask.from, ask.to, at, &ask.keep);
        let params = node_sums::NodeSumsParams { metric, window: ask.window(), filter: ask.filter.clone() };
        let got = node_sums::run(trace, &Names, &params, &no()).unwrap();
        let sums: BTreeMap<u32, (i64, i64)> = got.nodes.iter().map(|n| (n.node, (n.sum.bytes, n.sum.count))).collect();
        assert_eq!(sums, expected, "{metric:?} {ask:?}");
        for inverted in [false, true] {
            flamegraph_agrees(trace, truth, ask, metric, &expected, inverted);
        }
        functions_agree(trace, truth, ask, metric, &expected);
    }
    freeing_agrees(trace, truth, ask);
    pinned_agrees(trace, ask);
    churn_agrees(trace, truth, ask);
    peak_agrees(trace, truth, ask);
    threads_agree(trace, truth, ask);
    timeline_agrees(trace, truth, ask);
    allocations_agree(trace, truth, ask);
    leaks_agree(trace, truth, ask);
    histograms_agree(trace, truth, ask);
    sites_agree(trace, truth, ask);
    diff_agrees(trace, truth, ask);
    heap_map_agrees(trace, truth, ask);
    memory_agrees(trace, truth, ask);
    breakdown_agrees(trace, ask);
}

/// The moment of the peak is that of what passes the filter, and the answer says so.
fn peak_agrees(trace: &Trace, truth: &Reference, ask: &Ask) {
    let is_everything = ask.filter.select(trace, &Names, &no()).unwrap().is_everything();
    let of = Some(if is_everything { PeakOf::Heap } else { PeakOf::Filter });
    let params = node_sums::NodeSumsParams { metric: Metric::Peak, window: ask.window(), filter: ask.filter.clone() };
    let got = node_sums::run(trace, &Names, &params, &no()).unwrap();
    let moment = got.moment.unwrap();
    let expected = truth.peak_of(ask.from, ask.to, &ask.keep);
    assert_eq!((moment.ns, moment.place.events(), moment.peak_of), (expected.2, expected.3, of), "{ask:?}");
    assert_eq!((got.total.bytes, got.total.count), (expected.0 as i64, expected.1 as i64));
    // `at=peak` is the same moment of the whole recording.
    let expected = truth.peak_of(0, u64::MAX, &ask.keep);
    let window = Window { at: Some(TimeExpr::Peak), ..ask.window() };
    let params =
        flamegraph::FlamegraphParams { window, filter: ask.filter.clone(), ..flamegraph::FlamegraphParams::default() };
    let got = flamegraph::run(trace, &Names, &params, &no()).unwrap();
    assert_eq!((got.at_ns, got.peak_of), (Some(expected.2), of));
    assert_eq!(got.total, truth.sums(Metric::Live, 0, 0, expected.3, &ask.keep).values().map(|sum| sum.0).sum::<i64>());
}
