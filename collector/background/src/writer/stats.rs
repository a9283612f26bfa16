//! Records beside the events: clock, memory, statistics, marks and remarks.

use std::sync::atomic::Ordering;

use tracehound_format::meta::{
    Clock, ContextName, GaveUp, Mark, MemoryPart, MemorySample, Meta, RecorderMemory, Remark, StackCounts, Statistics,
};

use super::chunks::BLOCK_RECORDS;
use super::{OUTSIDE, RecordingWriter, SECOND_NS};
use crate::blocks::BlockWriter;
use crate::initial_mappings;
use tracehound_shared::call_tree::CallTree;
use tracehound_shared::chunk::MOST_RECORDS;
use tracehound_shared::heap;
use tracehound_shared::own;
use tracehound_shared::session::{GivenUp, Notes};
use tracehound_shared::stack_counters::StackCounters;
use tracehound_shared::sys;

/// What is left of our heap when the writer's buffers are taken away: tables of modules and names, and what the
/// allocator keeps for itself.
const OTHER_LIMIT: u64 = 16 << 20;
/// A resident set of at most so many bytes has its kinds counted in some milliseconds.
const QUICK_DETAIL_BYTES: u64 = 256 << 20;

impl RecordingWriter {
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

    /// Writes marks and remarks that threads have left, and what was requested from outside.
    pub(super) fn notes(&mut self) -> sys::Result<()> {
        if let Some(text) = tracehound_shared::python::remark() {
            self.session.remark((self.facts.now)(), "interpreter", text);
        }
        if let Some(text) = tracehound_shared::hotspot::remark() {
            self.session.remark((self.facts.now)(), "hotspot", text);
        }
        let Notes { marks, remarks, outside, forks, context_names, given_up } =
            self.session.with_notes(core::mem::take);
        self.put_block_list()?;
        // These records come before everything that is not in the file yet.
        let wanted = self.session.existing_wanted.swap(0, Ordering::AcqRel);
        let existing = if wanted == 0 { Vec::new() } else { initial_mappings::records(wanted.max(self.watermark + 1)) };
        let outside = [existing, outside].concat();
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
        for fork in forks {
            self.blocks.meta(fork.tick, &Meta::Forked(fork));
        }
        for (id, tick, name) in context_names {
            self.blocks.meta(tick, &Meta::ContextName(ContextName { id, tick, name }));
        }
        let untold = self.session.switches.untold.swap(0, Ordering::Relaxed);
        let untold = (untold > 0).then_some(GivenUp { what: "notes", waited_ns: 0, threads: untold, uncertain: true });
        for wait in given_up.iter().chain(&untold) {
            let (what, tick) = (wait.what.to_owned(), (self.facts.now)());
            let (waited_ns, threads, uncertain) = (wait.waited_ns, wait.threads, wait.uncertain);
            self.blocks.meta(tick, &Meta::GaveUp(GaveUp { tick, what, waited_ns, threads, missing: 0, uncertain }));
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
        // Where this thread has to wait for a processor between the two readings, the program's threads fill the pool
        // meanwhile: tens of MiB would be the program's.
        const TRIES: usize = 4;
        let mut sample = None;
        for _ in 0..TRIES {
            let before = self.own_bytes();
            sample = self.memory.sample((self.facts.now)(), before);
            self.recorder_bytes = self.own_bytes().max(before);
            if self.recorder_bytes == before {
                break;
            }
        }
        self.peak_bytes = self.peak_bytes.max(self.recorder_bytes);
        if let Some(sample) = sample {
            self.rss = sample.rss;
            let recorder = self.recorder_bytes;
            self.blocks.meta(sample.tick, &Meta::MemorySample(MemorySample { recorder, ..sample }));
        }
    }

    /// Writes memory by its kinds, if it is time or it `must` be. The kernel holds its lock on the address space while it
    /// counts a mapping, about 10 ms a GiB, and every thread that maps memory waits: so a large resident set is counted only
    /// when it must be, others for at most a thousandth of the time, and the more seldom the longer the process has been
    /// running. Looks at the page tables have more detail and block no thread.
    pub(super) fn memory_detail(&mut self, now: u64, must: bool) {
        const FIRST_PERIOD_NS: u64 = SECOND_NS;
        let is_due = now >= self.times.next_detail && self.rss <= QUICK_DETAIL_BYTES;
        if self.session.options.sample_memory_ms == 0 || !(is_due || must) {
            return;
        }
        if self.times.first_detail == 0 {
            self.times.first_detail = now;
        }
        let tick = (self.facts.now)();
        if let Some(detail) = self.memory.detail(tick) {
            self.blocks.meta(tick, &Meta::MemoryDetail(detail));
        }
        let end = sys::clock(libc::CLOCK_MONOTONIC);
        let age = now.saturating_sub(self.times.first_detail);
        self.times.next_detail = end + (end.saturating_sub(now) * 1000).max(age / 200).max(FIRST_PERIOD_NS);
    }

    /// Writes memory by its kinds with a look that was requested: of a large resident set only if it is time.
    pub(super) fn memory_detail_of_look(&mut self) {
        let now = sys::clock(libc::CLOCK_MONOTONIC);
        self.memory_detail(now, self.rss <= QUICK_DETAIL_BYTES || now >= self.times.next_detail);
    }

    /// Writes the parts of the recorder's memory, where they have changed.
    pub(super) fn put_parts(&mut self) {
        if own::unlisted_bytes() > 0 {
            let text = "no memory to list all mappings of the recorder: some count as the program's".into();
            self.session.remark((self.facts.now)(), "unlisted-memory", text);
        }
        let parts = self.parts();
        if parts != self.last_parts {
            let tick = (self.facts.now)();
            self.blocks.meta(tick, &Meta::RecorderMemory(RecorderMemory { tick, parts: parts.clone() }));
            self.last_parts = parts;
        }
    }

    /// Our memory by its parts, estimates from above, and what bounds each of them.
    fn parts(&self) -> Vec<MemoryPart> {
        let part = |(name, bytes, limit): (&str, u64, u64)| MemoryPart { name: name.into(), bytes, limit };
        self.amounts().into_iter().map(part).collect()
    }

    /// Name, bytes and limit of each part: a few counters, so that every sample of memory can ask for them.
    fn amounts(&self) -> [(&'static str, u64, u64); 7] {
        let session = self.session;
        let threads = u64::from(session.threads.count());
        let nodes = u64::from(session.tree.len());
        let (writer, directory) = self.blocks.memory();
        let (writer_limit, directory_limit) = BlockWriter::memory_limit(BLOCK_RECORDS as u64 + u64::from(MOST_RECORDS));
        let heap = heap::estimated_bytes();
        let contexts = session.threads.bytes();
        // Nodes lie in the tree and in the side file.
        let node = CallTree::NODE_BYTES as u64 * 3 / 2;
        [
            ("events", session.pool.bytes(), session.pool.most_bytes()),
            ("call_tree", nodes * node, u64::from(session.tree.capacity()) * node),
            ("stacks", own::stack_bytes(), (session.unwinder_limit)(threads, nodes)),
            ("threads", contexts, contexts),
            ("writer", writer, writer_limit),
            ("directory", directory, directory_limit),
            ("other", heap.saturating_sub(writer + directory), OTHER_LIMIT + threads * 1024),
        ]
    }

    /// Memory of the recorder, an estimate from above.
    fn own_bytes(&self) -> u64 {
        self.amounts().iter().map(|(_, bytes, _)| bytes).sum()
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

    /// How backtraces were found, if that has changed.
    pub(super) fn put_stack_counts(&mut self) {
        let counts = self.stack_counts((self.facts.now)());
        if (StackCounts { tick: 0, ..counts }) != (StackCounts { tick: 0, ..self.last_stack_counts }) {
            self.blocks.meta(counts.tick, &Meta::StackCounts(counts));
            self.last_stack_counts = counts;
        }
    }

    fn stack_counts(&self, tick: u64) -> StackCounts {
        let total = StackCounters::default();
        total.add(&self.session.retired.stacks, 0);
        for context in self.session.threads.iter().filter(|c| c.is_in_use()) {
            total.add(&context.stacks, context.events());
        }
        total.counts(tick)
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
        let stacks = self.stack_counts(tick);
        let retired = &session.retired;
        let mut lost =
            retired.lost.load(Ordering::Relaxed) + session.threads.contexts_unavailable.load(Ordering::Relaxed);
        let (mut waits, mut wait_ns) = (retired.waits.load(Ordering::Relaxed), retired.wait_ns.load(Ordering::Relaxed));
        for context in session.threads.iter().filter(|c| c.is_in_use()) {
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
            chunk_bytes: session.pool.bytes(),
            nodes: u64::from(session.tree.len().saturating_sub(1)),
            truncated_stacks: stacks.truncated,
            guessed_stacks: stacks.heuristic,
            slow_stacks: stacks.general,
            background_cpu_ns: sys::clock(libc::CLOCK_THREAD_CPUTIME_ID),
            memory_bytes: self.peak_bytes,
        }
    }
}
