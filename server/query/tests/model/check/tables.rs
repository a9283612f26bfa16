//! Tables of allocations, leaks and sites; histograms.

use std::collections::BTreeMap;

use tracehound_api::allocations::Allocation;
use tracehound_api::sites::SiteRow;
use tracehound_api::{Amount, Metric};
use tracehound_index::Trace;
use tracehound_query::amounts::{SumKey, SumQuery};
use tracehound_query::sorting::SortKeys;
use tracehound_query::suppress::{SuppressedStacks, SuppressionOrigin, built_in, parse};
use tracehound_query::{allocations, leaks, lifetimes, sites, sizes, stacks, trend};

use super::no;
use crate::ask::Ask;
use crate::reference::Reference;
use crate::symbols::Names;

pub fn allocations_agree(trace: &Trace, truth: &Reference, ask: &Ask) {
    let alive_at = ask.at.map(|at| truth.events_before(at + 1));
    let expected: Vec<(u64, &crate::reference::Alloc)> = truth
        .by_row()
        .into_iter()
        .enumerate()
        .map(|(row, i)| (row as u64, &truth.allocs[i]))
        .filter(|(_, b)| match alive_at {
            Some(events) => b.is_live_at_event(events),
            None => b.born_ns >= ask.from && b.born_ns < ask.to,
        })
        .filter(|(_, b)| truth.passes(b, &ask.keep))
        .collect();
    use allocations::AllocationSort;
    let key = |sort, (row, b): &(u64, &crate::reference::Alloc)| match sort {
        AllocationSort::Allocated => *row,
        AllocationSort::Freed => b.freed_event,
        AllocationSort::Size => b.size,
        AllocationSort::Lifetime => b.lifetime(truth.duration),
        AllocationSort::Address => b.address,
        AllocationSort::Thread => b.thread.into(),
        AllocationSort::FreeThread => b.freed.map_or(u64::MAX, |free| free.thread.into()),
        AllocationSort::Function => unreachable!("see names_are_ordered"),
    };
    for (keys, descending) in [
        (vec![(AllocationSort::Allocated, false)], false),
        (vec![(AllocationSort::Allocated, false)], true),
        (vec![(AllocationSort::Size, false)], true),
        (vec![(AllocationSort::Size, false)], false),
        (vec![(AllocationSort::Freed, false)], false),
        (vec![(AllocationSort::Lifetime, false)], true),
        (vec![(AllocationSort::Size, true), (AllocationSort::Lifetime, false)], false),
        (vec![(AllocationSort::Size, false), (AllocationSort::Allocated, true)], true),
        (vec![(AllocationSort::Address, false)], true),
        (vec![(AllocationSort::Thread, false), (AllocationSort::FreeThread, true)], false),
        (vec![(AllocationSort::FreeThread, false)], true),
    ] {
        let mut expected = expected.clone();
        expected.sort_by_key(|e| {
            let turned = |&(sort, back)| if back != descending { u64::MAX - key(sort, e) } else { key(sort, e) };
            (keys.iter().map(turned).collect::<Vec<u64>>(), e.0)
        });
        let mut got = Vec::new();
        let mut cursor = None;
        loop {
            let params = allocations::AllocationsParams {
                window: ask.window(),
                filter: ask.filter.clone(),
                site: None,
                search: None,
                sort: SortKeys::new(keys.iter().copied()).unwrap(),
                descending,
                cursor,
                offset: 0,
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
        let rows: Vec<u64> = expected.iter().map(|e| e.0).collect();
        assert_eq!(got, rows, "{keys:?} {descending} {ask:?}");
        // The same pages without those in front of them; behind the last one there is nothing.
        for offset in [1, 19, 20, 21, 22, rows.len() / 2, rows.len().saturating_sub(1), rows.len(), rows.len() + 30] {
            let params = allocations::AllocationsParams {
                window: ask.window(),
                filter: ask.filter.clone(),
                sort: SortKeys::new(keys.iter().copied()).unwrap(),
                descending,
                offset: offset as u64,
                limit: 7,
                ..allocations::AllocationsParams::default()
            };
            let paging = allocations::Paging { shallow: 20, parts: 3, few: 2 };
            let page = allocations::run_paging(trace, &Names, &params, paging, &no()).unwrap();
            assert_eq!(page.total, rows.len() as u64);
            let got: Vec<u64> = page.allocations.iter().map(|a| a.index).collect();
            let from = offset.min(rows.len());
            assert_eq!(got, rows[from..(from + 7).min(rows.len())], "from {offset}: {keys:?} {descending} {ask:?}");
            assert_eq!(page.next_cursor.is_some(), from + 7 < rows.len());
        }
    }
    names_are_ordered(trace, ask);
}

/// Blocks by the program's function of their backtraces, as pages show it; what has none comes last.
fn names_are_ordered(trace: &Trace, ask: &Ask) {
    let params = allocations::AllocationsParams {
        window: ask.window(),
        filter: ask.filter.clone(),
        sort: allocations::AllocationSort::Function.into(),
        limit: allocations::MAX_LIMIT,
        ..allocations::AllocationsParams::default()
    };
    let page = allocations::run(trace, &Names, &params, &no()).unwrap();
    let key = |block: &Allocation| {
        let by = block.stack.iter().find(|frame| !frame.library).or(block.stack.first());
        let name = by.and_then(|frame| frame.function.clone());
        (name.is_none(), name, block.index)
    };
    assert!(page.allocations.iter().map(key).is_sorted(), "{ask:?}");
}

pub fn leaks_agree(trace: &Trace, truth: &Reference, ask: &Ask) {
    let params =
        leaks::LeaksParams { window: ask.window(), filter: ask.filter.clone(), ..leaks::LeaksParams::default() };
    let got = leaks::run(trace, &Names, &params, &no()).unwrap();
    let expected = truth.sums(Metric::Leaked, ask.from, ask.to, 0, &ask.keep);
    assert_eq!(got.sites.len(), expected.len());
    assert_eq!(got.leaked.bytes as i64, expected.values().map(|s| s.0).sum::<i64>());
    assert!(got.sites.windows(2).all(|w| w[0].bytes >= w[1].bytes));
    for site in &got.sites {
        let node = trace.site_node(tracehound_query::parse_site("site", &site.id).unwrap()).unwrap();
        assert_eq!((site.bytes as i64, site.count as i64), expected[&node]);
        let allocated: Vec<u64> = truth
            .allocs
            .iter()
            .filter(|b| b.node == node && b.freed.is_none() && b.born_ns >= ask.from && b.born_ns < ask.to)
            .filter(|b| truth.passes(b, &ask.keep))
            .map(|b| b.born_ns)
            .collect();
        assert_eq!(Some(&site.first_ns), allocated.iter().min());
        assert_eq!(Some(&site.last_ns), allocated.iter().max());
        assert_eq!(site.stack.len(), truth.functions(node).len());
        assert!(!site.verdict.why.is_empty());
    }
    columns_agree(trace, ask, &got);
    suppressions_agree(trace);
    let by_function =
        leaks::run(trace, &Names, &leaks::LeaksParams { functions: usize::MAX, ..params }, &no()).unwrap();
    let functions = &by_function.functions;
    assert_eq!(functions.len() as u64, by_function.total_functions);
    assert_eq!(functions.iter().map(|f| f.bytes).sum::<u64>(), got.leaked.bytes);
    assert_eq!(functions.iter().map(|f| f.count).sum::<u64>(), got.leaked.count);
    assert_eq!(functions.iter().map(|f| f.total_sites).sum::<u64>(), got.total_sites);
}

/// What many backtraces fall under is what each falls under by itself.
fn suppressions_agree(trace: &Trace) {
    let list = "leak:^fn_3$\nleak:src/1.c\nleak:nobody\nleak:module1.so\nleak:xmalloc";
    let list = parse(list, &SuppressionOrigin::Option).unwrap();
    for suppressions in [&list[..1], &list[..2], &list[2..3], &list[1..], &built_in()] {
        let mut many = SuppressedStacks::new(trace, &Names, suppressions);
        for node in (0..trace.node_count()).rev() {
            let stack = stacks::frames(trace, &Names, node);
            assert_eq!(many.hit(node), suppressions.iter().position(|known| known.matches(&stack)));
        }
    }
}

/// Live bytes of many sites in one pass are those of each moment by itself.
fn columns_agree(trace: &Trace, ask: &Ask, leaks: &tracehound_api::leaks::Leaks) {
    let selection = ask.filter.select(trace, &Names, &no()).unwrap();
    let window = ask.window().resolve(trace, &selection, &no()).unwrap();
    let places: Vec<_> = trend::moments(trace, &window, 7).iter().map(|moment| moment.1).collect();
    let handle = |site: &tracehound_api::leaks::LeakSite| tracehound_query::parse_site("site", &site.id).unwrap();
    let sites: Vec<u32> = leaks.sites.iter().map(handle).collect();
    let columns = trend::columns_at(trace, &selection, &sites, &places, &no()).unwrap();
    let question = SumQuery { trace, selection: &selection, key: SumKey::Site, cancel: &no() };
    for (&place, column) in places.iter().zip(&columns) {
        let live = question.live_at(place).unwrap();
        let expected: Vec<_> = sites.iter().map(|&site| live[site as usize]).collect();
        assert_eq!(*column, expected, "{ask:?}");
    }
}

pub fn histograms_agree(trace: &Trace, truth: &Reference, ask: &Ask) {
    let allocated: Vec<_> = truth
        .allocs
        .iter()
        .filter(|b| b.born_ns >= ask.from && b.born_ns < ask.to && truth.passes(b, &ask.keep))
        .collect();
    let params = sizes::SizesParams { window: ask.window(), filter: ask.filter.clone() };
    let got = sizes::run(trace, &Names, &params, &no()).unwrap();
    let classes = |lower: &[u64], value: &dyn Fn(&crate::reference::Alloc) -> u64| -> Vec<(u64, u64, u64)> {
        (0..lower.len())
            .map(|i| {
                let end = lower.get(i + 1).copied().unwrap_or(u64::MAX);
                let inside: Vec<_> = allocated.iter().filter(|b| value(b) >= lower[i] && value(b) < end).collect();
                let live = inside.iter().filter(|b| b.freed.is_none()).count() as u64;
                (inside.len() as u64, inside.iter().map(|b| b.size).sum(), live)
            })
            .collect()
    };
    let counted = |h: &tracehound_api::histograms::Histogram| -> Vec<(u64, u64, u64)> {
        (0..h.lower.len()).map(|i| (h.count[i], h.bytes[i], h.live_count[i])).collect()
    };
    assert_eq!(counted(&got.histogram), classes(&got.histogram.lower, &|b| b.size));
    assert_eq!(got.histogram.count.iter().sum::<u64>(), allocated.len() as u64);
    for exact in &got.commonest {
        assert_eq!(exact.count, allocated.iter().filter(|b| b.size == exact.size).count() as u64);
    }
    let params = lifetimes::LifetimesParams { window: ask.window(), filter: ask.filter.clone() };
    let got = lifetimes::run(trace, &Names, &params, &no()).unwrap();
    assert_eq!(counted(&got.histogram), classes(&got.histogram.lower, &|b| b.lifetime(truth.duration)));
    assert_eq!(got.map_count.iter().sum::<u64>(), allocated.len() as u64);
    assert_eq!(got.map_bytes.iter().sum::<u64>(), allocated.iter().map(|b| b.size).sum::<u64>());
    assert_eq!(got.map_count.len(), got.map_size.len() * got.map_lifetime.len());
}

/// Each order is that of what the rows show.
fn site_orders_agree(trace: &Trace, ask: &Ask, params: &sites::SitesParams) {
    use sites::SiteSort;
    let rows = |sort: SortKeys<SiteSort>, ascending| {
        let params = sites::SitesParams { sort, ascending, ..params.clone() };
        sites::run(trace, &Names, &params, &no()).unwrap().sites
    };
    let grown = |row: &SiteRow| row.allocated.bytes as i64 - row.freed.bytes as i64;
    let medians: Vec<u64> = rows(SiteSort::Lifetime.into(), false).iter().map(|row| row.lifetimes.p50_ns).collect();
    assert!(medians.is_sorted_by(|a, b| a >= b), "{medians:?} {ask:?}");
    let changes: Vec<i64> = rows(SiteSort::Trend.into(), true).iter().map(grown).collect();
    assert!(changes.is_sorted(), "{changes:?} {ask:?}");
    let place = |row: &SiteRow| {
        let source = row.file.clone().or(row.module.clone());
        (source.is_none(), source, row.line.filter(|_| row.file.is_some()))
    };
    let keys = SortKeys::new([(SiteSort::Name, false), (SiteSort::Source, false)]).unwrap();
    let by_name = rows(keys, false);
    assert!(by_name.iter().filter(|row| row.function.is_some()).map(|r| (r.function.clone(), place(r))).is_sorted());
    assert!(rows(SiteSort::Source.into(), false).iter().map(place).is_sorted(), "{ask:?}");
}

pub fn sites_agree(trace: &Trace, truth: &Reference, ask: &Ask) {
    let params =
        sites::SitesParams { window: ask.window(), filter: ask.filter.clone(), ..sites::SitesParams::default() };
    let got = sites::run(trace, &Names, &params, &no()).unwrap();
    let sum = |metric| truth.sums(metric, ask.from, ask.to, ask.moment(truth, metric), &ask.keep);
    let (allocated, freed, live) = (sum(Metric::Allocated), sum(Metric::Freed), sum(Metric::Live));
    let amount = |sums: &BTreeMap<u32, (i64, i64)>, node| {
        let (bytes, count) = sums.get(&node).copied().unwrap_or_default();
        Amount { bytes: bytes as u64, count: count as u64 }
    };
    for row in &got.sites {
        let site = tracehound_query::parse_site("site", &row.id).unwrap();
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
    site_orders_agree(trace, ask, &params);
    let Some(first) = got.sites.first() else { return };
    let site = tracehound_query::parse_site("site", &first.id).unwrap();
    let node = trace.site_node(site).unwrap();
    let params = sites::OneParams { site, window: ask.window(), filter: ask.filter.clone(), points: ask.points };
    let one = sites::one(trace, &Names, &params, &no()).unwrap();
    assert_eq!(&one.row, first);
    let mut by: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for b in truth.allocs.iter().filter(|b| b.node == node && truth.passes(b, &ask.keep)) {
        if let Some(d) = b.freed.filter(|d| d.ns >= ask.from && d.ns < ask.to) {
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
        .allocs
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
