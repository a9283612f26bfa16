//! Comparisons of two moments, and memory at one.

use std::collections::{BTreeMap, BTreeSet};

use tracehound_api::Amount;
use tracehound_api::breakdown::BreakdownGroup;
use tracehound_api::timeline::SeriesName;
use tracehound_format::record::Kind;
use tracehound_index::Trace;
use tracehound_query::{TimeExpr, Window, breakdown, diff, heap_map, memory, timeline};

use super::no;
use crate::ask::Ask;
use crate::reference::Reference;
use crate::symbols::Names;

pub fn diff_agrees(trace: &Trace, truth: &Reference, ask: &Ask) {
    let time = |ns| Window { at: Some(TimeExpr::Ns(ns)), ..Window::default() };
    let (before, after) = (time(ask.from), time(ask.to));
    let side = |window, label| diff::Side { trace, symbols: &Names, window, label };
    let params = diff::DiffParams { filter: ask.filter.clone(), ..diff::DiffParams::default() };
    let got = diff::run(side(&before, "a"), side(&after, "b"), &params, &no()).unwrap();
    let (a, b) = (truth.events_before(ask.from + 1), truth.events_before(ask.to + 1));
    let passing: Vec<_> = truth.allocs.iter().filter(|x| truth.passes(x, &ask.keep)).collect();
    let sum = |test: &dyn Fn(&crate::reference::Alloc) -> bool| -> u64 {
        passing.iter().filter(|x| test(x)).map(|x| x.size).sum()
    };
    assert_eq!(got.total_before.bytes, sum(&|x| x.is_live_at_event(a)));
    assert_eq!(got.total_after.bytes, sum(&|x| x.is_live_at_event(b)));
    let survived: u64 = got.rows.iter().map(|r| r.survived.unwrap().bytes).sum();
    assert_eq!(survived, sum(&|x| x.is_live_at_event(a) && x.is_live_at_event(b)));
}

/// At every moment the layers and the rest are what the timeline has as live bytes.
pub fn breakdown_agrees(trace: &Trace, ask: &Ask) {
    let params = timeline::TimelineParams {
        series: vec![SeriesName::LiveBytes],
        window: ask.window(),
        filter: ask.filter.clone(),
        points: 23,
    };
    let heap = timeline::run(trace, &Names, &params, &no()).unwrap();
    for by in [
        BreakdownGroup::Function,
        BreakdownGroup::Module,
        BreakdownGroup::Thread,
        BreakdownGroup::Site,
        BreakdownGroup::Language,
    ] {
        let (window, filter) = (ask.window(), ask.filter.clone());
        let max_amounts = breakdown::MAX_AMOUNTS;
        let mut params = breakdown::BreakdownParams { window, filter, by, points: 23, top: 2, max_amounts };
        let got = breakdown::run(trace, &Names, &params, &no()).unwrap();
        params.max_amounts = 0;
        let by_looks = breakdown::run(trace, &Names, &params, &no()).unwrap();
        // 23 moments are fewer than what is looked at in any case.
        assert_eq!(serde_json::to_value(&by_looks).unwrap(), serde_json::to_value(&got).unwrap());
        assert_eq!(got.rest_rows > 0, got.rest.iter().any(|&bytes| bytes > 0));
        let total: Vec<Option<f64>> = got.total.iter().map(|&bytes| Some(bytes as f64)).collect();
        assert_eq!(total, heap.series[0].last, "{by:?} {ask:?}");
        assert!(got.rows.len() <= 2 && got.rows.iter().all(|row| row.bytes.iter().all(|&bytes| bytes >= 0)));
        for at in 0..total.len() {
            let sum = got.rest[at] + got.rows.iter().map(|row| row.bytes[at]).sum::<i64>();
            assert_eq!(sum, got.total[at]);
        }
    }
}

pub fn memory_agrees(trace: &Trace, truth: &Reference, ask: &Ask) {
    let at = ask.at.unwrap_or(ask.to);
    let params = memory::MemoryParams { at: Some(TimeExpr::Ns(at)), limit: None, ..Default::default() };
    let got = memory::run(trace, &Names, &params, &no()).unwrap();
    let events = truth.events_before(at + 1);
    let live: Vec<_> = truth.allocs.iter().filter(|b| b.is_live_at_event(events)).collect();
    assert_eq!(got.live, Amount { bytes: live.iter().map(|b| b.size).sum(), count: live.len() as u64 });
    assert_eq!(got.sample.map(|s| s.rss_bytes), truth.samples.iter().rfind(|s| s.0 <= at).map(|s| s.1));
    // Blocks byte by byte would take too long: the sizes are up to 16 GiB. Borders cut the addresses into ranges.
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
    assert_eq!(got.mappers.iter().map(|m| m.mapped_bytes).sum::<u64>(), got.mapped_bytes);
    assert_eq!(got.ledger.is_some(), got.sample.is_some());
    if let (Some(sample), Some(ledger)) = (got.sample, &got.ledger) {
        assert_eq!(ledger.rows.iter().map(|row| row.bytes).sum::<u64>(), ledger.rss_bytes);
        assert!(ledger.rss_bytes >= sample.rss_bytes);
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

/// The heap map, byte by byte of what is live at each of its moments; rows are few, so that they cut blocks.
pub fn heap_map_agrees(trace: &Trace, truth: &Reference, ask: &Ask) {
    let (window, filter) = (ask.window(), ask.filter.clone());
    let params = heap_map::HeapMapParams { window: Window { at: None, ..window }, filter, rows: 9, columns: 5 };
    let got = heap_map::run(trace, &Names, &params, &no()).unwrap();
    let (start, end) = ask.keep.address.unwrap_or((0, u64::MAX));
    let shown: Vec<_> =
        truth.allocs.iter().filter(|b| b.kind != Kind::PoolAlloc && truth.passes(b, &ask.keep)).collect();
    let place = |b: &crate::reference::Alloc| b.address.max(start)..(b.address + b.size.max(1)).min(end);
    let events: Vec<u64> = (0..got.t_ns.len()).map(|i| truth.events_before(got.t_ns[i])).collect();
    let visible: Vec<_> = shown.iter().filter(|b| events.iter().any(|&at| b.is_live_at_event(at))).collect();
    let units = |bytes: u64| -> BTreeSet<u64> {
        visible.iter().flat_map(|b| place(b).start / bytes..=(place(b).end - 1) / bytes).collect()
    };
    let row_bytes = (12..64).map(|shift| 1_u64 << shift).find(|&bytes| {
        let of = |b: &&&crate::reference::Alloc| (place(b).end - 1) / bytes - place(b).start / bytes;
        visible.iter().all(|b| of(b) < 9) && units(bytes).len() <= 9
    });
    assert_eq!(Some(got.row_bytes), row_bytes);
    assert_eq!(got.addresses, units(got.row_bytes).into_iter().map(|unit| unit * got.row_bytes).collect::<Vec<_>>());
    for (row, &address) in got.addresses.iter().enumerate() {
        for (column, &at) in events.iter().enumerate() {
            let mut by_node: BTreeMap<u32, u64> = BTreeMap::new();
            for b in shown.iter().filter(|b| b.is_live_at_event(at)) {
                let behind = (b.address + b.size).min(end).min(address + got.row_bytes);
                *by_node.entry(b.node).or_default() += behind.saturating_sub(b.address.max(start).max(address));
            }
            assert_eq!(got.occupied[row][column], by_node.values().sum::<u64>(), "{address:#x} at {column}");
            let most = by_node.values().max().copied().unwrap_or(0);
            match got.dominant[row][column] {
                None => assert_eq!(most, 0),
                Some(position) => {
                    let site = tracehound_query::parse_site("site", &got.sites[position as usize].id).unwrap();
                    assert_eq!(by_node[&trace.site_node(site).unwrap()], most);
                }
            }
        }
    }
    assert!(got.resident.is_empty() && got.look_ns.is_empty(), "the recording has no looks");
}
