//! Per-thread counters of how backtraces were found: written by their thread alone, read by the writer.
//!
//! Known stacks, which are most, are not counted: they are the difference to the number of the thread's events.

use crate::sync::atomic::{AtomicU64, Ordering};

use tracehound_format::meta::StackCounts;

/// See [`StackCounts`] for what each counts.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "the record that they become says it once")]
pub struct StackCounters {
    pub chains: AtomicU64,
    pub cfi: AtomicU64,
    pub general: AtomicU64,
    pub frame_chain: AtomicU64,
    pub libunwind: AtomicU64,
    pub nested: AtomicU64,
    pub missing: AtomicU64,
    pub registered: AtomicU64,
    pub frame_pointers: AtomicU64,
    pub heuristic: AtomicU64,
    pub truncated: AtomicU64,
    /// Events that are recorded without a stack, because none was wanted.
    pub unwanted: AtomicU64,
    /// Events of threads that have ended; only in totals.
    pub events: AtomicU64,
}

/// Adds one. Only the counter's owner may call this.
#[inline(always)]
pub fn count(counter: &AtomicU64) {
    add(counter, 1);
}

#[inline(always)]
fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
}

impl StackCounters {
    /// All zero.
    pub const fn new() -> StackCounters {
        StackCounters {
            chains: AtomicU64::new(0),
            cfi: AtomicU64::new(0),
            general: AtomicU64::new(0),
            frame_chain: AtomicU64::new(0),
            libunwind: AtomicU64::new(0),
            nested: AtomicU64::new(0),
            missing: AtomicU64::new(0),
            registered: AtomicU64::new(0),
            frame_pointers: AtomicU64::new(0),
            heuristic: AtomicU64::new(0),
            truncated: AtomicU64::new(0),
            unwanted: AtomicU64::new(0),
            events: AtomicU64::new(0),
        }
    }

    fn all(&self) -> [&AtomicU64; 13] {
        [
            &self.chains,
            &self.cfi,
            &self.general,
            &self.frame_chain,
            &self.libunwind,
            &self.nested,
            &self.missing,
            &self.registered,
            &self.frame_pointers,
            &self.heuristic,
            &self.truncated,
            &self.unwanted,
            &self.events,
        ]
    }

    /// Adds what `other` has, and of a thread with so many `events`.
    pub fn add(&self, other: &StackCounters, events: u64) {
        for (total, counter) in self.all().into_iter().zip(other.all()) {
            total.fetch_add(counter.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.events.fetch_add(events, Ordering::Relaxed);
    }

    /// Back to zero.
    pub fn clear(&self) {
        for counter in self.all() {
            counter.store(0, Ordering::Relaxed);
        }
    }

    /// As the recording has it, with `tick` as its time.
    pub fn counts(&self, tick: u64) -> StackCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // Events that signal handlers interrupt are not among the events.
        let others =
            [&self.chains, &self.cfi, &self.general, &self.frame_chain, &self.libunwind, &self.missing, &self.unwanted];
        let others = others.into_iter().map(get).sum::<u64>();
        StackCounts {
            tick,
            paths: get(&self.events).saturating_sub(others),
            chains: get(&self.chains),
            cfi: get(&self.cfi),
            general: get(&self.general),
            frame_chain: get(&self.frame_chain),
            libunwind: get(&self.libunwind),
            nested: get(&self.nested),
            missing: get(&self.missing),
            registered: get(&self.registered),
            frame_pointers: get(&self.frame_pointers),
            heuristic: get(&self.heuristic),
            truncated: get(&self.truncated),
        }
    }
}
