//! Comparisons of two moments, and memory at one.

use std::collections::BTreeMap;

use tracehound_api::Amount;
use tracehound_format::record::Kind;
use tracehound_index::Trace;
use tracehound_query::{TimeExpr, Window, diff, memory};

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

pub fn memory_agrees(trace: &Trace, truth: &Reference, ask: &Ask) {
    let at = ask.at.unwrap_or(ask.to);
    let params = memory::MemoryParams { at: Some(TimeExpr::Ns(at)), limit: None };
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
