//! The writer: turns chunks into blocks.
//!
//! One round drains the channel of full chunks, and writes the chunks of a thread together when there are many, when the
//! oldest is 200 ms old, or when the pool runs low; at every 200 ms it also writes what the chunks in use hold so far,
//! without the threads' help, and says up to which tick everything is in the file (the watermark).
//!
//! For each thread the writer knows the number of the next record to write. Chunks of a thread are taken in the order of
//! their first records; a chunk that is not yet in turn waits.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;

use tracehound_format::columns::Columns;
use tracehound_format::meta::{
    Clock, ClockSample, ClockSource, End, EndReason, Mark, Meta, Process, Remark, Statistics, ThreadEnd, ThreadName,
    ThreadStart, Watermark,
};
use tracehound_format::nodes::Node;
use tracehound_format::record::{Kind, RECORD_BYTES, Record};

use super::blocks::BlockWriter;
use super::file::RecordingFile;
use super::live_blocks::{LiveBlock, LiveBlocks};
use super::memory::MemoryCounters;
use super::modules::Modules;
use crate::shared::chunk::{CHUNK_BYTES, Chunk, RECORDS};
use crate::shared::heap;
use crate::shared::session::{Notes, Session};
use crate::shared::sys::{self, Errno};
use crate::shared::thread::{IN_REAL, MODE, NO_CHUNK, RECORDING, STAMPED, ThreadContext, life};

/// Records that make a block when there is no hurry.
const BLOCK_RECORDS: usize = 64 << 10;
/// What was recorded is in the file after this time.
const LATENCY_NS: u64 = 200_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// Thread of the records that no thread of the program has made.
const OUTSIDE: u32 = 0;

/// Facts about the process that are gathered where they can be, before the writer starts.
pub struct Facts {
    /// First metadata record.
    pub process: Process,
    /// The clock's source.
    pub source: ClockSource,
    /// Bits shifted out.
    pub shift: u8,
    /// How the clock was chosen.
    pub clock_note: String,
    /// Reads ticks, CLOCK_MONOTONIC and CLOCK_REALTIME together.
    pub clock: fn() -> ClockSample,
    /// Reads ticks.
    pub now: fn() -> u64,
}

/// See the module's description.
pub struct Writer {
    session: &'static Session,
    facts: Facts,
    blocks: BlockWriter,
    threads: BTreeMap<u32, ThreadState>,
    queued: u32,
    nodes_written: u32,
    modules: Modules,
    memory: MemoryCounters,
    columns: Columns,
    metas: Vec<Meta>,
    times: Times,
    records: u64,
    /// Records from outside that are written.
    outside: u64,
    last_look: u64,
    peak_bytes: u64,
    recorder_bytes: u64,
    watermark: u64,
    ended: Option<EndReason>,
    suspended: bool,
    before_end: u64,
    /// Full chunks whose records are in blocks, and open ones with how far they are: to be settled after the commit.
    emptied: Vec<(u32, Chunk)>,
    partly: Vec<(Chunk, u32)>,
    /// Kept where forked children are followed.
    live: Option<LiveBlocks>,
    last_statistics: Statistics,
}

#[derive(Default)]
struct Times {
    flush: u64,
    sample: u64,
    second: u64,
    next_clock: u64,
    clock_step: u64,
}

/// What the writer knows about one thread, by recording-wide id.
#[derive(Default)]
struct ThreadState {
    context: Option<&'static ThreadContext>,
    announced: bool,
    name_changes: u32,
    queue: VecDeque<(u32, Chunk)>,
    /// Number of the next record to write; `None` before the first.
    next_record: Option<u64>,
    /// State of the context at the last look.
    seen_state: u64,
    /// The thread holds nothing unwritten that is stamped before this tick.
    bound: u64,
}

impl Writer {
    /// Starts the recording's file.
    ///
    /// # Errors
    /// When its first bytes cannot be written.
    pub fn new(session: &'static Session, facts: Facts, file: RecordingFile) -> sys::Result<Self> {
        let mut blocks = BlockWriter::new(file, session.recording_id, session.options.compression)?;
        blocks.meta(session.started_tick, &Meta::Process(facts.process.clone()));
        let mut writer = Self {
            session,
            facts,
            blocks,
            threads: BTreeMap::new(),
            queued: 0,
            nodes_written: 1,
            modules: Modules::default(),
            memory: MemoryCounters::new(),
            columns: Columns::default(),
            metas: Vec::new(),
            times: Times { clock_step: 50_000_000, ..Times::default() },
            records: 0,
            outside: 0,
            last_look: session.started_tick,
            peak_bytes: 0,
            recorder_bytes: 0,
            watermark: 0,
            ended: None,
            suspended: false,
            before_end: 0,
            emptied: Vec::new(),
            partly: Vec::new(),
            live: session.options.children.then(LiveBlocks::default),
            last_statistics: Statistics::default(),
        };
        writer.first_clock();
        Ok(writer)
    }

    /// The recording's file.
    pub fn file(&mut self) -> &mut RecordingFile {
        self.blocks.file()
    }

    /// Descriptors in use, with what they stand for.
    pub fn descriptors(&mut self) -> Vec<(i32, sys::FileIdentity)> {
        let mut all = self.blocks.file().descriptors();
        if let Ok(identity) = sys::identity(self.memory.descriptor()) {
            all.push((self.memory.descriptor(), identity));
        }
        all
    }

    /// Whether the recording has ended, and not for an exec, which may fail.
    pub fn has_ended_for_good(&self) -> bool {
        self.ended.is_some_and(|reason| reason != EndReason::Exec)
    }

    /// Nanoseconds until the next round is due.
    pub fn rest_ns(&self) -> u64 {
        let sample = u64::from(self.session.options.sample_memory_ms) * 1_000_000;
        if sample == 0 { LATENCY_NS / 2 } else { sample.min(LATENCY_NS / 2) }
    }

    /// One round.
    pub fn round(&mut self) {
        if self.ended.is_some() {
            return;
        }
        if let Err(error) = self.try_round() {
            self.stop(error);
        }
        self.session.pool.heartbeat.fetch_add(1, Ordering::Relaxed);
    }

    fn try_round(&mut self) -> sys::Result<()> {
        let now = sys::clock(libc::CLOCK_MONOTONIC);
        let wanted = self.session.flush_wanted.load(Ordering::Acquire);
        let asked = wanted != self.session.flush_done.load(Ordering::Relaxed);
        self.grow_pool();
        self.take_full_chunks();
        self.seize_chunks();
        let due = asked || now.saturating_sub(self.times.flush) >= LATENCY_NS;
        self.modules.scan(&mut self.metas);
        self.sample_memory(now);
        if due {
            self.flush_everything(false)?;
            self.times.flush = now;
        } else {
            self.write_ready_queues()?;
        }
        self.clock_samples(now);
        if now.saturating_sub(self.times.second) >= SECOND_NS {
            self.times.second = now;
            self.bury_dead_threads(life::LIVE);
            self.put_statistics();
        }
        if due {
            self.blocks.flush_metas();
            self.commit()?;
            self.session.flush_done.store(wanted, Ordering::Release);
            sys::futex_wake(&self.session.flush_done, i32::MAX);
        }
        Ok(())
    }

    /// Writes everything and the end block. The gate must let nobody publish any more.
    pub fn finish(&mut self, reason: EndReason) {
        if self.ended.is_some() {
            return;
        }
        if let Err(error) = self.try_finish(reason) {
            self.stop(error);
        }
        self.session.pool.heartbeat.fetch_add(1, Ordering::Relaxed);
    }

    fn try_finish(&mut self, reason: EndReason) -> sys::Result<()> {
        self.take_full_chunks();
        self.modules.scan(&mut self.metas);
        self.times.sample = 0;
        self.sample_memory(SECOND_NS);
        self.flush_everything(true)?;
        let sample = (self.facts.clock)();
        self.blocks.meta(sample.tick, &Meta::ClockSample(sample));
        self.end(reason, None)
    }

    fn end(&mut self, reason: EndReason, error: Option<Errno>) -> sys::Result<()> {
        self.blocks.flush_metas();
        self.commit()?;
        self.before_end = self.blocks.position();
        let tick = (self.facts.now)();
        let statistics = self.statistics(tick);
        let error = error.map(|error| (error.0, error.to_string()));
        self.blocks.end(tick, &Meta::End(End { reason, tick, statistics, error }))?;
        self.ended = Some(reason);
        self.session.side.set_finished(true);
        self.blocks.file().remove_side_file();
        Ok(())
    }

    /// Before the writer's thread ends, to be made anew: its descriptors end with it.
    pub fn suspend(&mut self) {
        self.session.flush_wanted.fetch_add(1, Ordering::AcqRel);
        self.round();
        self.blocks.file().table_is_gone();
        self.memory = MemoryCounters::none();
        self.suspended = true;
    }

    /// In the new thread.
    pub fn go_on(&mut self) {
        if core::mem::take(&mut self.suspended) {
            self.memory = MemoryCounters::new();
            if let Err(error) = self.blocks.file().reopen() {
                self.stop(error);
            }
        }
    }

    /// Whether the writer's thread is to end for a while.
    pub fn is_suspended(&self) -> bool {
        self.suspended
    }

    /// Blocks alive at the last flush, if they are kept.
    pub fn live_blocks(&self) -> Vec<LiveBlock> {
        self.live.as_ref().map(LiveBlocks::list).unwrap_or_default()
    }

    /// After an end that did not come, such as an exec that failed: goes on with the same file.
    pub fn resume(&mut self) {
        if self.ended.take() == Some(EndReason::Exec) {
            self.blocks.rewind(self.before_end);
            self.session.side.set_finished(false);
            // The old side file has lost its name: its memory moves to a new one. All threads stand still.
            let moved = self.blocks.file().new_side_file().and_then(|fd| self.session.side.move_to(fd));
            if let Err(error) = moved {
                let text =
                    format!("no side file after a failed exec ({error}): a kill loses what is not in the file yet");
                self.session.remark((self.facts.now)(), "no-side-file", text);
            }
        }
    }

    /// Stops recording for good: the file keeps what it has.
    fn stop(&mut self, error: Errno) {
        self.session.end_recording();
        let path = self.blocks.file().path();
        crate::shared::log::error(&format!("{path}: {error}; recording stops here, the program goes on"));
        self.columns.clear();
        self.metas.clear();
        self.blocks.drop_metas();
        let text = format!("recording stopped: {error}");
        let tick = (self.facts.now)();
        self.blocks.meta(tick, &Meta::Remark(Remark { tick, topic: "write-error".into(), text }));
        let reason = EndReason::DiskFull;
        if self.end(reason, Some(error)).is_err() {
            // Not even the end block has room: the file ends after its last whole block.
            self.blocks.file().trim();
            self.ended = Some(reason);
        }
    }

    fn first_clock(&mut self) {
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
    fn clock_samples(&mut self, now: u64) {
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

    fn grow_pool(&mut self) {
        let pool = &self.session.pool;
        if pool.growth_wanted.load(Ordering::Relaxed)
            && let Some((from, bytes)) = pool.next_growth()
        {
            let at = tracehound_format::live::HEADER_BYTES as u64 + from;
            let backed = self.blocks.file().back_side_file(at, bytes);
            pool.grown_by_writer(backed.is_ok().then_some(bytes));
        }
    }

    fn take_full_chunks(&mut self) {
        while let Some(number) = self.session.pool.receive() {
            let Some(chunk) = self.session.pool.chunk(number) else { continue };
            self.threads.entry(chunk.thread()).or_default().queue.push_back((number, chunk));
            self.queued += 1;
        }
    }

    /// When threads wait and every chunk is in use, takes half-filled ones from threads that are not recording right now,
    /// the quietest first. The thread notices at its next event that it has no room.
    fn seize_chunks(&mut self) {
        let pool = &self.session.pool;
        let wanted = pool.waiting() as usize;
        if wanted == 0 || pool.free_chunks() > 0 || self.queued > 0 {
            return;
        }
        let mut candidates: Vec<&'static ThreadContext> = self
            .session
            .threads
            .iter()
            .filter(|context| context.is_in_use())
            .filter(|context| {
                context.active.load(Ordering::Acquire) != NO_CHUNK && context.parked.load(Ordering::Relaxed) == 0
            })
            .collect();
        // A thread whose state has not changed since the last look has been quiet for long.
        let threads = &self.threads;
        candidates.sort_by_key(|context| {
            let state = context.state.load(Ordering::Relaxed);
            let seen = threads.get(&context.id.load(Ordering::Relaxed)).map(|thread| thread.seen_state);
            (
                seen != Some(state),
                context.limit.load(Ordering::Relaxed).saturating_sub(context.cursor.load(Ordering::Relaxed)),
            )
        });
        candidates.truncate(wanted.max(pool.chunks() as usize / 4));
        let held: Vec<_> = candidates
            .iter()
            .map(|context| {
                let guard = context.lock_chunks();
                (*context, context.limit.swap(0, Ordering::Relaxed), guard)
            })
            .collect();
        sys::barrier();
        // Whoever starts an event from here on finds no room and waits for the lock.
        for (context, limit, guard) in held {
            let quiet = context.mode() != RECORDING && context.active.load(Ordering::Relaxed) != NO_CHUNK;
            if quiet {
                hand_over(context, self.session);
            } else {
                context.limit.store(limit, Ordering::Relaxed);
            }
            drop(guard);
        }
        self.take_full_chunks();
    }

    /// Without hurry: threads with a block's worth of chunks, threads that have ended, and all when the pool runs low.
    fn write_ready_queues(&mut self) -> sys::Result<()> {
        const ENOUGH: usize = BLOCK_RECORDS / RECORDS as usize;
        const COMMIT_EVERY: usize = 8;
        self.bury_dead_threads(life::ENDING);
        let ended: Vec<u32> = self
            .session
            .threads
            .iter()
            .filter(|context| context.life.load(Ordering::Acquire) == life::ENDED)
            .map(|context| context.id.load(Ordering::Relaxed))
            .collect();
        // Their last chunks were sent before they said so.
        self.take_full_chunks();
        loop {
            let pool = &self.session.pool;
            let low = self.queued * 4 >= pool.chunks() || pool.waiting() > 0;
            let is_ready = |id: &u32, state: &ThreadState| {
                let queued = state.queue.len();
                queued >= ENOUGH || (queued > 0 && (low || ended.contains(id)))
            };
            let ready: Vec<u32> =
                self.threads.iter().filter(|(id, state)| is_ready(id, state)).map(|(id, _)| *id).collect();
            if ready.is_empty() {
                break;
            }
            self.announce_threads();
            let before = self.queued;
            for (i, id) in ready.into_iter().enumerate() {
                self.write_thread(id, false)?;
                if low && i % COMMIT_EVERY == COMMIT_EVERY - 1 {
                    self.commit()?;
                }
            }
            self.commit()?;
            if self.queued == before {
                // What is left waits for an earlier chunk of its thread.
                break;
            }
            self.take_full_chunks();
        }
        if !ended.is_empty() {
            self.announce_threads();
            self.forget_ended_threads(false);
        }
        Ok(())
    }

    /// Puts what has gathered into the file; then the chunks that it came from may go.
    fn commit(&mut self) -> sys::Result<()> {
        self.blocks.commit()?;
        for (chunk, written) in self.partly.drain(..) {
            chunk.set_written(written);
        }
        for (number, chunk) in self.emptied.drain(..) {
            chunk.set_written(chunk.used());
            chunk.wipe();
            self.session.pool.give_back(number);
        }
        Ok(())
    }

    /// Writes what there is, in full and in active chunks, and the watermark behind it.
    fn flush_everything(&mut self, last: bool) -> sys::Result<()> {
        self.bury_dead_threads(life::ENDING);
        let tick = (self.facts.now)();
        sys::barrier();
        let states: Vec<(u32, u64)> = self
            .session
            .threads
            .iter()
            .filter(|context| context.life.load(Ordering::Acquire) != life::FREE)
            .map(|context| (context.id.load(Ordering::Relaxed), context.state.load(Ordering::Acquire)))
            .collect();
        self.announce_threads();
        self.take_full_chunks();
        self.notes()?;
        let ids: Vec<u32> = self.threads.keys().copied().collect();
        for id in ids {
            self.write_thread(id, true)?;
        }
        self.commit()?;
        let mut complete = true;
        let mut watermark = tick;
        for (id, state) in states {
            let Some(thread) = self.threads.get_mut(&id) else { continue };
            if !matches!(state & MODE, RECORDING | STAMPED) {
                thread.bound = tick;
            } else if state != thread.seen_state {
                // The event in flight is another one than at the last look, hence stamped after it.
                thread.bound = thread.bound.max(self.last_look);
            }
            thread.seen_state = state;
            watermark = watermark.min(thread.bound);
            complete &= thread.queue.is_empty();
        }
        self.last_look = tick;
        self.forget_ended_threads(last);
        if complete && watermark > self.watermark {
            self.watermark = watermark;
            self.blocks.meta(watermark, &Meta::Watermark(Watermark { tick: watermark }));
            self.blocks.flush_metas();
            self.commit()?;
            self.session.side.set_watermark(watermark);
            if let Some(live) = &mut self.live {
                live.prune(watermark);
            }
        }
        Ok(())
    }

    /// Writes the records of a thread that are published and in turn.
    fn write_thread(&mut self, id: u32, with_active: bool) -> sys::Result<()> {
        let Some(mut state) = self.threads.remove(&id) else { return Ok(()) };
        let result = self.write_chunks(id, &mut state, with_active);
        self.threads.insert(id, state);
        result
    }

    fn write_chunks(&mut self, id: u32, state: &mut ThreadState, with_active: bool) -> sys::Result<()> {
        // A handler's chunk may come before the one that it interrupted has been handed over; a thread that ends and
        // comes back may be seen twice: the numbers of the first records give the order.
        state.queue.make_contiguous().sort_by_key(|(_, chunk)| chunk.first_record());
        self.columns.clear();
        let open = if with_active { self.open_chunks(state.context, id) } else { Vec::new() };
        let known = state.queue.front().map(|(_, chunk)| *chunk).or(open.first().copied());
        let Some(mut first) = state.next_record.or(known.map(|chunk| chunk.first_record())) else { return Ok(()) };
        while let Some(&(number, chunk)) = state.queue.front() {
            if chunk.first_record() + u64::from(chunk.written()) != first + self.columns.len() as u64 {
                break;
            }
            self.read_full(chunk);
            state.queue.pop_front();
            self.queued = self.queued.saturating_sub(1);
            self.emptied.push((number, chunk));
            if self.columns.len() >= BLOCK_RECORDS {
                self.put_events(id, &mut first)?;
            }
        }
        for chunk in open {
            let next = first + self.columns.len() as u64;
            if state.queue.is_empty() && chunk.first_record() + u64::from(chunk.written()) == next {
                let written = self.read_open(chunk);
                self.partly.push((chunk, written));
            }
        }
        self.put_events(id, &mut first)?;
        state.next_record = Some(first);
        Ok(())
    }

    /// The chunks that a thread still holds, oldest first.
    fn open_chunks(&self, context: Option<&ThreadContext>, id: u32) -> Vec<Chunk> {
        let Some(context) = context else { return Vec::new() };
        let pinned = context.pinned_len.load(Ordering::Acquire) as usize;
        let pinned = context.pinned.iter().take(pinned).map(|slot| slot.load(Ordering::Acquire));
        let numbers = pinned.chain([context.active.load(Ordering::Acquire)]);
        numbers.filter_map(|number| self.session.pool.chunk(number)).filter(|chunk| chunk.thread() == id).collect()
    }

    /// Appends a full chunk's records. A slot that was reserved by an event that a jump cut short becomes a `Lost`
    /// record, so that the numbering holds.
    fn read_full(&mut self, chunk: Chunk) {
        let mut tick = self.columns.ticks.last().copied().unwrap_or(self.session.started_tick);
        for index in chunk.written()..chunk.used() {
            let record = chunk.record(index).unwrap_or(Record::new(Kind::Lost, tick, 1, 0, 0));
            tick = record.tick;
            self.columns.push(sized(record));
        }
    }

    /// Appends what is published in a chunk that is not full yet; gives how far it was read.
    fn read_open(&mut self, chunk: Chunk) -> u32 {
        let mut index = chunk.written();
        while let Some(record) = chunk.record(index) {
            self.columns.push(sized(record));
            index += 1;
        }
        index
    }

    /// Makes a block of the collected records.
    fn put_events(&mut self, id: u32, first: &mut u64) -> sys::Result<()> {
        if !self.columns.is_empty() {
            let highest = self.columns.nodes.iter().copied().filter(|&node| node != u32::MAX).max().unwrap_or(0);
            self.put_nodes(highest)?;
            self.put_metas();
            self.blocks.flush_metas();
            self.blocks.events(id, *first, &self.columns);
            if let Some(live) = &mut self.live {
                live.add(&self.columns);
            }
            *first += self.columns.len() as u64;
            self.records += self.columns.len() as u64;
            self.columns.clear();
        }
        if self.blocks.wants_commit() { self.commit() } else { Ok(()) }
    }

    /// Writes nodes until the one with id `highest` is in the file.
    fn put_nodes(&mut self, highest: u32) -> sys::Result<()> {
        const AT_ONCE: u32 = 64 << 10;
        if highest < self.nodes_written {
            return Ok(());
        }
        let end = self.session.tree.len().max(highest + 1);
        let mut nodes = Vec::new();
        while self.nodes_written < end {
            let first = self.nodes_written;
            let last = end.min(first + AT_ONCE);
            nodes.clear();
            for id in first..last {
                // An id below the tree's length is complete; the tree says so.
                let node = self.session.tree.get(id);
                nodes.push(node.map_or(Node { parent: 0, pc: 0, generation: 0 }, |node| Node {
                    parent: node.parent,
                    pc: node.pc,
                    generation: node.generation,
                }));
            }
            self.blocks.nodes(first, &nodes);
            self.nodes_written = last;
            if self.blocks.wants_commit() {
                self.commit()?;
            }
        }
        Ok(())
    }

    fn put_metas(&mut self) {
        for meta in self.metas.drain(..) {
            let tick = match &meta {
                Meta::ModuleLoad(load) => load.tick,
                Meta::ModuleUnload(unload) => unload.tick,
                _ => self.session.started_tick,
            };
            self.blocks.meta(tick, &meta);
        }
    }

    /// Starts, names and ends of threads.
    fn announce_threads(&mut self) {
        let names_changed = self.session.names_changed.swap(false, Ordering::AcqRel);
        for context in self.session.threads.iter() {
            let life = context.life.load(Ordering::Acquire);
            let id = context.id.load(Ordering::Acquire);
            if life == life::FREE || id == 0 {
                continue;
            }
            let state = self.threads.entry(id).or_default();
            if state.context.is_none()
                && context.active.load(Ordering::Acquire) == NO_CHUNK
                && state.queue.is_empty()
                && life != life::ENDED
            {
                // Attached, but without an event so far.
                continue;
            }
            state.context = Some(context);
            if names_changed && life == life::LIVE {
                read_name(context);
            }
            let changes = context.name_changes.load(Ordering::Acquire);
            if !state.announced {
                state.announced = true;
                state.name_changes = changes;
                state.bound = context.started_tick.load(Ordering::Relaxed);
                let tick = context.started_tick.load(Ordering::Relaxed);
                let os_thread = context.os_thread.load(Ordering::Relaxed);
                let start = ThreadStart { thread: id, os_thread, tick, name: context.get_name() };
                self.blocks.meta(tick, &Meta::ThreadStart(start));
            } else if changes != state.name_changes {
                state.name_changes = changes;
                let tick = (self.facts.now)();
                let name = ThreadName { thread: id, tick, name: context.get_name() };
                self.blocks.meta(tick, &Meta::ThreadName(name));
            }
        }
    }

    /// Gives contexts of threads back that have ended and whose records are all written.
    fn forget_ended_threads(&mut self, last: bool) {
        for context in self.session.threads.iter() {
            let id = context.id.load(Ordering::Relaxed);
            if context.life.load(Ordering::Acquire) != life::ENDED {
                continue;
            }
            let Some(state) = self.threads.get(&id) else { continue };
            let everything = context.next_record.load(Ordering::Acquire);
            if !state.queue.is_empty() || state.next_record.unwrap_or(0) < everything {
                continue;
            }
            let tick = context.ended_tick.load(Ordering::Relaxed);
            if state.announced {
                self.blocks.meta(tick, &Meta::ThreadEnd(ThreadEnd { thread: id, tick }));
            }
            self.threads.remove(&id);
            if !last {
                self.session.threads.release(context);
            }
        }
    }

    /// Takes over from threads in this state of life that do not exist any more: those that said that they were ending,
    /// and those that went without a word.
    fn bury_dead_threads(&self, state: u32) {
        for context in self.session.threads.iter() {
            let os_thread = context.os_thread.load(Ordering::Relaxed);
            if context.life.load(Ordering::Acquire) == state
                && context.id.load(Ordering::Acquire) != 0
                && os_thread != 0
                && !sys::thread_exists(self.session.pid, os_thread)
            {
                bury(context, self.session, (self.facts.now)());
            }
        }
    }

    /// Marks and remarks that threads have left, and what was asked for from outside.
    fn notes(&mut self) -> sys::Result<()> {
        let (marks, remarks, outside) = {
            let mut notes = self.session.notes.lock();
            let Notes { marks, remarks, outside } = &mut *notes;
            (core::mem::take(marks), core::mem::take(remarks), core::mem::take(outside))
        };
        if !outside.is_empty() {
            self.columns.clear();
            outside.into_iter().for_each(|record| self.columns.push(record));
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

    fn sample_memory(&mut self, now: u64) {
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

    fn put_statistics(&mut self) {
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

/// Takes what a thread has left that is gone: nobody else touches its context any more.
fn bury(context: &ThreadContext, session: &Session, tick: u64) {
    let held = context.lock_chunks();
    hand_over(context, session);
    context.state.store(IN_REAL, Ordering::Relaxed);
    drop(held);
    session.retire(context);
    if context.ended_tick.load(Ordering::Relaxed) == 0 {
        context.ended_tick.store(tick, Ordering::Relaxed);
    }
    context.life.store(life::ENDED, Ordering::Release);
}

/// Hands the chunks of a thread over that is not recording and cannot begin to: its chunk fields are locked.
fn hand_over(context: &ThreadContext, session: &Session) {
    let pinned = context.pinned_len.swap(0, Ordering::AcqRel) as usize;
    for slot in context.pinned.iter().take(pinned) {
        session.pool.send(slot.load(Ordering::Relaxed));
    }
    let number = context.active.swap(NO_CHUNK, Ordering::AcqRel);
    let Some(chunk) = session.pool.chunk(number) else { return };
    let used = context.cursor.load(Ordering::Relaxed).saturating_sub(chunk.first_address()) / RECORD_BYTES as u64;
    context.limit.store(0, Ordering::Relaxed);
    context.cursor.store(0, Ordering::Relaxed);
    context.next_record.fetch_add(used, Ordering::Relaxed);
    chunk.close(used as u32);
    session.pool.send(number);
}

/// Deaths have no size in the file.
fn sized(record: Record) -> Record {
    match Kind::from_u8(record.kind) {
        Some(kind) if kind.is_free() || kind.is_realloc_from() => Record { size: 0, ..record },
        _ => record,
    }
}

/// Looks a thread's name up, for one that was named by another.
fn read_name(context: &ThreadContext) {
    let thread = context.os_thread.load(Ordering::Relaxed);
    let Ok(path) = std::ffi::CString::new(format!("/proc/self/task/{thread}/comm")) else { return };
    let Ok(text) = sys::read_file(libc::AT_FDCWD, &path) else { return };
    let mut name = [0_u8; 16];
    for (to, from) in name.iter_mut().take(15).zip(text.iter().take_while(|&&byte| byte != b'\n')) {
        *to = *from;
    }
    if name.iter().take_while(|&&byte| byte != 0).copied().collect::<Vec<_>>() != context.get_name() {
        context.set_name(name);
    }
}
