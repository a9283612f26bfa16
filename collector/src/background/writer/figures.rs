//! What the recording says beside its events: clock, memory, statistics, marks and remarks.

use std::sync::atomic::Ordering;

use tracehound_format::meta::{Clock, Mark, Meta, Remark, Statistics};

use super::{LATENCY_NS, OUTSIDE, SECOND_NS, Writer};
use crate::shared::chunk::CHUNK_BYTES;
use crate::shared::heap;
use crate::shared::session::Notes;
use crate::shared::sys;
use crate::shared::thread::ThreadContext;

impl Writer {
    pub(super) fn first_clock(&mut self) {
        let first = (self.facts.clock)();
        sys::sleep(200_000);
        let second = (self.facts.clock)();
        let ticks = u128::from(second.tick.saturating_sub(first.tick));
        let nanos = u128::from(second.monotonic_ns.saturating_sub(first.monotonic_ns)).max(1);
        let millihertz = u64::try_from(ticks * 1_000_000_000_000 / nanos).unwrap_or(0);
        let clock = Clock {
            source: self.facts.source,
            shift: self.facts.shift,
            millihertz,
            note: self.facts.clock_note.clone(),
        };
        self.blocks.meta(first.tick, &Meta::Clock(clock));
        self.blocks.meta(first.tick, &Meta::ClockSample(first));
        self.blocks.meta(second.tick, &Meta::ClockSample(second));
    }

    /// Often at first, for a good rate early, then every ten seconds.
    pub(super) fn clock_samples(&mut self, now: u64) {
        if now < self.times.next_clock {
            return;
        }
        if self.times.next_clock != 0 {
            let sample = (self.facts.clock)();
            self.blocks.meta(sample.tick, &Meta::ClockSample(sample));
            self.times.clock_step = (self.times.clock_step * 2).min(10 * SECOND_NS);
        }
        self.times.next_clock = now + self.times.clock_step;
    }

    /// Marks and remarks that threads have left, and what was asked for from outside.
    pub(super) fn notes(&mut self) -> sys::Result<()> {
        let (marks, remarks, outside) = {
            let mut notes = self.session.notes.lock();
            let Notes { marks, remarks, outside } = &mut *notes;
            (core::mem::take(marks), core::mem::take(remarks), core::mem::take(outside))
        };
        if !outside.is_empty() {
            self.batch.clear();
            self.batch.add_loose(outside);
            let mut first = self.outside;
            self.put_events(OUTSIDE, &mut first)?;
            self.outside = first;
        }
        for (ordinal, thread, tick, label) in marks {
            self.blocks.meta(tick, &Meta::Mark(Mark { ordinal, thread, tick, label }));
        }
        for (tick, topic, text) in remarks {
            self.blocks.meta(tick, &Meta::Remark(Remark { tick, topic: topic.into(), text }));
        }
        self.put_metas();
        Ok(())
    }

    pub(super) fn put_metas(&mut self) {
        for meta in self.metas.drain(..) {
            let tick = match &meta {
                Meta::ModuleLoad(load) => load.tick,
                Meta::ModuleUnload(unload) => unload.tick,
                _ => self.session.started_tick,
            };
            self.blocks.meta(tick, &meta);
        }
    }

    pub(super) fn sample_memory(&mut self, now: u64) {
        let period = u64::from(self.session.options.sample_memory_ms) * 1_000_000;
        if period == 0 || now.saturating_sub(self.times.sample) < period {
            return;
        }
        self.times.sample = now;
        if self.recorder_bytes == 0 || now.saturating_sub(self.times.flush) >= LATENCY_NS {
            self.recorder_bytes = self.own_bytes();
            self.peak_bytes = self.peak_bytes.max(self.recorder_bytes);
        }
        let tick = (self.facts.now)();
        if let Some(sample) = self.memory.sample(tick, self.recorder_bytes) {
            self.blocks.meta(tick, &Meta::MemorySample(sample));
        }
    }

    /// Memory of ours, an estimate from above.
    fn own_bytes(&self) -> u64 {
        let session = self.session;
        let chunks = u64::from(session.pool.chunks()) * CHUNK_BYTES as u64;
        let nodes = session.tree.used_bytes() as u64 * 3 / 2;
        let contexts = u64::from(session.threads.count()) * size_of::<ThreadContext>() as u64;
        chunks + nodes + contexts + heap::estimated_bytes()
    }

    pub(super) fn put_statistics(&mut self) {
        let tick = (self.facts.now)();
        let statistics = self.statistics(tick);
        let unchanged = Statistics { tick: 0, background_cpu_ns: 0, ..statistics.clone() }
            == Statistics { tick: 0, background_cpu_ns: 0, ..self.last_statistics.clone() };
        if !unchanged {
            self.blocks.meta(tick, &Meta::Statistics(statistics.clone()));
            self.last_statistics = statistics;
        }
    }

    /// Bytes of the file so far.
    pub fn file_bytes(&self) -> u64 {
        self.blocks.position()
    }

    /// A round that writes everything recorded so far.
    pub fn flush_now(&mut self) {
        self.times.flush = 0;
        self.round();
    }

    /// Figures up to now.
    pub fn statistics(&mut self, tick: u64) -> Statistics {
        let session = self.session;
        let retired = &session.retired;
        let mut stacks = [0_u64; 3];
        for (sum, figure) in stacks.iter_mut().zip(&retired.stacks) {
            *sum = figure.load(Ordering::Relaxed);
        }
        let mut lost = retired.lost.load(Ordering::Relaxed) + session.threads.homeless.load(Ordering::Relaxed);
        let (mut waits, mut wait_ns) = (retired.waits.load(Ordering::Relaxed), retired.wait_ns.load(Ordering::Relaxed));
        for context in session.threads.iter().filter(|c| c.is_in_use()) {
            // The lock keeps the thread from destroying its unwinder now.
            let _held = context.lock_chunks();
            let unwinder = context.alloc_unwinder.load(Ordering::Relaxed);
            if !unwinder.is_null() {
                // SAFETY: alive, see above; the figures are plain counters.
                let figures = unsafe { (session.unwinder_figures)(unwinder) };
                for (sum, figure) in stacks.iter_mut().zip(figures) {
                    *sum += figure;
                }
            }
            lost += context.lost.load(Ordering::Relaxed);
            waits += context.waits.load(Ordering::Relaxed);
            wait_ns += context.wait_ns.load(Ordering::Relaxed);
        }
        self.recorder_bytes = self.own_bytes();
        self.peak_bytes = self.peak_bytes.max(self.recorder_bytes);
        Statistics {
            tick,
            records: self.records,
            lost,
            wait_ns,
            waits,
            chunk_bytes: u64::from(session.pool.chunks()) * CHUNK_BYTES as u64,
            nodes: u64::from(session.tree.len().saturating_sub(1)),
            truncated_stacks: stacks[0],
            guessed_stacks: stacks[1],
            slow_stacks: stacks[2],
            background_cpu_ns: sys::clock(libc::CLOCK_THREAD_CPUTIME_ID),
            memory_bytes: self.peak_bytes,
        }
    }
}
