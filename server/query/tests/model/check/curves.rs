//! Time series and threads.

use std::collections::BTreeMap;

use tracehound_api::timeline::SeriesName;
use tracehound_api::{Amount, Metric};
use tracehound_index::Trace;
use tracehound_query::{threads, timeline};

use super::no;
use crate::ask::Ask;
use crate::reference::{Reference, Truth};
use crate::symbols::Names;

pub fn threads_agree(trace: &Trace, truth: &Reference, ask: &Ask) {
    let params = threads::ThreadsParams { window: ask.window(), filter: ask.filter.clone() };
    let got = threads::run(trace, &Names, &params, &no()).unwrap();
    let inside = |t: u64| t >= ask.from && t < ask.to;
    let mut pairs: BTreeMap<(u32, u32), (u64, u64)> = BTreeMap::new();
    for b in truth.allocs.iter().filter(|b| truth.passes(b, &ask.keep)) {
        if let Some(d) = b.freed.filter(|d| inside(d.ns)) {
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
            for b in truth.allocs.iter().filter(|b| b.thread == thread.id && truth.passes(b, &ask.keep)) {
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

pub fn timeline_agrees(trace: &Trace, truth: &Reference, ask: &Ask) {
    let series = vec![
        SeriesName::LiveBytes,
        SeriesName::LiveCount,
        SeriesName::AllocRate,
        SeriesName::FreeRate,
        SeriesName::Rss,
        SeriesName::MappedBytes,
    ];
    let mapped = truth.mapped_pages();
    let params =
        timeline::TimelineParams { series, window: ask.window(), filter: ask.filter.clone(), points: ask.points };
    let got = timeline::run(trace, &Names, &params, &no()).unwrap();
    let peak = truth.peak_of(ask.from, ask.to, &ask.keep);
    assert_eq!((got.peak.bytes, got.peak.count, got.peak.at_ns), (peak.0, peak.1, peak.2));
    // What passes, one by one: (time, bytes, count, whether a realloc is not half done).
    let mut steps = Vec::new();
    for truth_event in &truth.order {
        let (free, alloc) = match *truth_event {
            Truth::Alloc(i) => (None, Some(i)),
            Truth::Free(i) => (Some(i), None),
            Truth::Realloc { old, new } => (old, Some(new)),
            Truth::Other { .. } => continue,
        };
        let passes = |i: &usize| truth.passes(&truth.allocs[*i], &ask.keep);
        if let Some(i) = free.filter(passes) {
            let b = &truth.allocs[i];
            steps.push((b.freed.unwrap().ns, -(b.size as i64), -1_i64, alloc.is_none()));
        }
        if let Some(i) = alloc {
            let b = &truth.allocs[i];
            if passes(&i) {
                steps.push((b.born_ns, b.size as i64, 1, true));
            } else if let Some(last) = steps.last_mut().filter(|_| free.is_some_and(|d| passes(&d))) {
                last.3 = true;
            }
        }
    }
    let columns = got.t_ns.len();
    for i in 0..columns {
        let (from, to) = (got.t_ns[i], got.t_ns.get(i + 1).copied().unwrap_or(ask.to));
        let before: (i64, i64) = steps.iter().filter(|s| s.0 < from).fold((0, 0), |sum, s| (sum.0 + s.1, sum.1 + s.2));
        let (mut now, mut low, mut high) = (before, before, before);
        let (mut allocs, mut frees) = (0, 0);
        for s in steps.iter().filter(|s| s.0 >= from && s.0 < to) {
            now = (now.0 + s.1, now.1 + s.2);
            allocs += i64::from(s.2 > 0);
            frees += i64::from(s.2 < 0);
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
        assert_eq!((got.series[2].last[i].unwrap() * seconds).round() as i64, allocs);
        assert_eq!((got.series[3].last[i].unwrap() * seconds).round() as i64, frees);
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
