//! Threads in a window: who allocates, and who frees whose blocks.

use std::collections::BTreeMap;

use super::Result;
use super::amounts::{Signed, SumKey, SumQuery};
use super::filter::{Filter, Selection};
use super::scan::{Also, BLOCK, Picker};
use super::window::{Resolved, Window};
use tracehound_api::threads::{Thread, ThreadPair, Threads};
use tracehound_api::{Amount, Metric};
use tracehound_index::symbols::RecordingSymbols;
use tracehound_index::{Cancel, Span, Trace};

/// Parameters of the query.
#[derive(Debug, Clone, Default)]
pub struct ThreadsParams {
    /// Window of time.
    pub window: Window,
    /// Of what; `thread` means the allocating thread.
    pub filter: Filter,
}

/// Lists threads.
///
/// # Errors
/// When a parameter does not fit the recording, or cancelled.
pub fn run(trace: &Trace, symbols: &dyn RecordingSymbols, params: &ThreadsParams, cancel: &Cancel) -> Result<Threads> {
    let selection = params.filter.select(trace, symbols, cancel)?;
    let window = params.window.resolve(trace, &selection, cancel)?;
    let question = SumQuery { trace, selection: &selection, key: SumKey::Thread, cancel };
    let of = |metric| question.metric(metric, &window);
    let (allocated, live) = (of(Metric::Allocated)?, of(Metric::Live)?);
    let (leaked, temporary) = (of(Metric::Leaked)?, of(Metric::Temporary)?);
    let pairs = pairs(trace, &selection, &window, cancel)?;
    let mut freed = vec![Amount::default(); trace.threads().len()];
    for (&(_, freer), amount) in &pairs {
        if let Some(sum) = freed.get_mut(freer as usize) {
            sum.bytes += amount.bytes;
            sum.count += amount.count;
        }
    }
    let amount = |sums: &[Signed], at: usize| sums.get(at).map_or_else(Amount::default, Signed::amount);
    let mut threads: Vec<Thread> = trace
        .threads()
        .iter()
        .enumerate()
        .filter(|(_, t)| t.active)
        .map(|(at, t)| Thread {
            id: t.id,
            os_thread: t.os_thread,
            name: t.name.clone(),
            started_ns: t.started_ns,
            ended_ns: t.ended_ns,
            allocated: amount(&allocated, at),
            freed: freed[at],
            live: amount(&live, at),
            leaked: amount(&leaked, at),
            temporary: amount(&temporary, at),
        })
        .collect();
    threads.sort_by_key(|t| t.id);
    let mut pairs: Vec<ThreadPair> = pairs
        .into_iter()
        .map(|((bearer, freer), amount)| ThreadPair {
            allocated_by: trace.thread_id(bearer),
            freed_by: trace.thread_id(freer),
            amount,
        })
        .collect();
    pairs.sort_by_key(|p| (p.allocated_by, p.freed_by));
    Ok(Threads {
        schema: "heaptrace.threads/1".into(),
        from_ns: window.from_ns,
        to_ns: window.to_ns,
        threads,
        pairs,
        exactness: trace.exactness(),
    })
}

/// Frees by (allocating, freeing) thread.
fn pairs(
    trace: &Trace,
    selection: &Selection,
    window: &Resolved,
    cancel: &Cancel,
) -> Result<BTreeMap<(u32, u32), Amount>> {
    let mut pairs: BTreeMap<(u32, u32), Amount> = BTreeMap::new();
    let mut add = |pair: (u32, u32), count: u64, bytes: u64| {
        let sum = pairs.entry(pair).or_default();
        sum.count += count;
        sum.bytes += bytes;
    };
    let c = trace.columns();
    let test = selection.rows(trace);
    let all = selection.is_everything();
    let mut rows = |span: Span| -> Result<()> {
        let mut picker = Picker::new(&test, Also::Nothing);
        for start in (span.from.frees..span.to.frees).step_by(BLOCK) {
            cancel.check()?;
            for &offset in picker.pick_frees(start, (start + BLOCK as u64).min(span.to.frees)) {
                let ordinal = start + u64::from(offset);
                let row = trace.row_of_free(ordinal);
                let thread = |origins: &[u32], at: u64| {
                    let origin = origins.get(at as usize).copied().unwrap_or(u32::MAX);
                    c.origin_thread.get(origin as usize).copied().unwrap_or(u32::MAX)
                };
                let pair = (thread(&c.alloc_origin, row), thread(&c.free_origin, ordinal));
                add(pair, 1, trace.size_of_free(ordinal));
            }
        }
        Ok(())
    };
    let span = window.span;
    let (first, last) = trace.whole_buckets(span);
    if !all || first >= last {
        rows(span)?;
    } else {
        rows(Span { from: span.from, to: trace.bucket_start(first) })?;
        rows(Span { from: trace.bucket_start(last), to: span.to })?;
        trace.walk_buckets::<1>(&trace.facts().pair_sums, (first, last), 0, cancel, |pair, amount| {
            let at = pair as usize;
            if let (Some(&bearer), Some(&freer)) = (c.pair_bearer.get(at), c.pair_freer.get(at)) {
                add((bearer, freer), amount.count, amount.bytes);
            }
        })?;
    }
    Ok(pairs)
}
