//! The writer: turns chunks into blocks.
//!
//! One round drains the channel of full chunks, and writes the chunks of a thread together when there are many, when
//! the oldest is 200 ms old, or when the pool runs low; at every 200 ms it also writes what the chunks in use hold so
//! far, without the threads' help, and writes up to which tick everything is in the file (the watermark). With
//! thousands of threads it does so less often, see [`RecordingWriter::flush_period`], and takes chunks back that have
//! been idle for a second. What names events is written some milliseconds after it is known.
//!
//! For each thread the writer knows the number of the next record to write. Chunks of a thread are taken in the order
//! of their first records; a chunk that is not yet in turn waits.

mod block_list;
mod chunks;
mod codes;
mod looks;
mod stats;
mod threads;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;

use tracehound_format::live::Ending;
use tracehound_format::meta::{
    Attached, ClockSample, ClockSource, End, EndReason, MemoryPart, Meta, Process, Remark, StackCounts, Statistics,
};
use tracehound_format::record::Kind;

use super::batch::{Batch, Settlement};
use super::blocks::BlockWriter;
use super::file::RecordingFile;
use super::memory::MemoryCounters;
use super::modules::KnownModules;
use super::page_looks::PageLooks;
use tracehound_shared::chunk::Chunk;
use tracehound_shared::code_list::ListPosition;
use tracehound_shared::gate;
use tracehound_shared::heap;
use tracehound_shared::session::Session;
use tracehound_shared::sys::{self, Errno};
use tracehound_shared::thread::{ThreadContext, life};

/// Time after which a record is in the file; but see [`RecordingWriter::flush_period`].
const LATENCY_NS: u64 = 200_000_000;
/// Shortest time between two rounds that write names alone.
const NAMES_NS: u64 = 5_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// Thread id of records that belong to no thread of the program.
const OUTSIDE: u32 = 0;

/// Facts about the process that are gathered where they can be, before the writer starts.
pub struct ProcessFacts {
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
    /// The process was running already.
    pub attached: Option<Attached>,
}

/// See the module's description.
pub struct RecordingWriter {
    session: &'static Session,
    facts: ProcessFacts,
    blocks: BlockWriter,
    threads: BTreeMap<u32, WriterThread>,
    /// Bytes of chunks in the threads' queues.
    queued: u64,
    nodes_written: u32,
    modules: KnownModules,
    memory: MemoryCounters,
    looks: PageLooks,
    /// The resident set at the last sample.
    rss: u64,
    batch: Batch,
    metas: Vec<Meta>,
    times: Times,
    records: u64,
    /// Number of records from outside that are written.
    outside: u64,
    last_look: u64,
    peak_bytes: u64,
    recorder_bytes: u64,
    watermark: u64,
    ended: Option<EndReason>,
    suspended: bool,
    before_end: u64,
    /// Chunks whose records are in the batch.
    taken: Vec<Settlement>,
    /// Chunks whose records are in blocks: to be settled after the commit.
    settled: Vec<Settlement>,
    last_statistics: Statistics,
    last_stack_counts: StackCounts,
    last_parts: Vec<MemoryPart>,
    /// Position in the list of code objects up to which they are in the file.
    codes_written: ListPosition,
    /// The same of methods of Java.
    methods_written: ListPosition,
    /// Descriptor of a list of blocks to be written; -1: none.
    block_list: i32,
}

#[derive(Default)]
struct Times {
    flush: u64,
    /// When names were written last without a flush.
    names: u64,
    /// How long the last flush took.
    flushing: u64,
    sample: u64,
    next_detail: u64,
    first_detail: u64,
    second: u64,
    next_clock: u64,
    clock_step: u64,
}

/// The writer's data about one thread, by recording-wide id.
#[derive(Default)]
struct WriterThread {
    context: Option<&'static ThreadContext>,
    announced: bool,
    name_changes: u32,
    queue: VecDeque<(u32, Chunk)>,
    /// Records in `queue`, written ones among them.
    queued_records: u64,
    /// Number of the next record to write; a thread's first one is 0.
    next_record: u64,
    /// State of the context at the last flush.
    seen_state: u64,
    /// When the state changed last.
    changed: u64,
    /// The thread holds nothing unwritten that is stamped before this tick.
    bound: u64,
}

impl RecordingWriter {
    /// Starts the recording's file.
    ///
    /// # Errors
    /// When its first bytes cannot be written.
    pub fn new(session: &'static Session, facts: ProcessFacts, file: RecordingFile) -> sys::Result<Self> {
        let mut blocks = BlockWriter::new(file, session.recording_id, session.options.compression)?;
        blocks.meta(session.started_tick, &Meta::Process(facts.process.clone()));
        if let Some(forked_from) = &session.forked_from {
            blocks.meta(session.started_tick, &Meta::ForkedFrom(forked_from.clone()));
        }
        if let Some(attached) = facts.attached {
            blocks.meta(session.started_tick, &Meta::Attached(attached));
        }
        let mut writer = Self {
            session,
            facts,
            blocks,
            threads: BTreeMap::new(),
            queued: 0,
            nodes_written: 1,
            modules: KnownModules::default(),
            memory: MemoryCounters::new(),
            looks: PageLooks::new(),
            rss: 0,
            batch: Batch::default(),
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
            taken: Vec::new(),
            settled: Vec::new(),
            last_statistics: Statistics::default(),
            last_stack_counts: StackCounts::default(),
            last_parts: Vec::new(),
            codes_written: ListPosition::default(),
            methods_written: ListPosition::default(),
            block_list: -1,
        };
        writer.first_clock();
        writer.first_block()?;
        Ok(writer)
    }

    /// Writes the process, the clock and the modules before anything is sampled: if the program is killed right after
    /// its start, its blocks are in the side file, and have names.
    fn first_block(&mut self) -> sys::Result<()> {
        self.modules.scan(&mut self.metas);
        self.put_metas();
        self.blocks.flush_metas();
        self.blocks.commit()
    }

    /// The recording's file.
    pub fn file(&mut self) -> &mut RecordingFile {
        self.blocks.file()
    }

    /// Descriptors in use, with what they stand for.
    pub fn descriptors(&mut self) -> Vec<(i32, sys::FileIdentity)> {
        let mut all = self.blocks.file().descriptors();
        for fd in self.memory.descriptors().into_iter().chain(self.looks.descriptors()) {
            if let Ok(identity) = sys::identity(fd) {
                all.push((fd, identity));
            }
        }
        all
    }

    /// Whether the recording has ended, and not because the process is about to be gone, which may fail.
    pub fn has_ended_for_good(&self) -> bool {
        self.ended.is_some_and(|reason| !matches!(reason, EndReason::Exec | EndReason::Exit))
    }

    /// Whether the recording has ended, for good or not.
    pub fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// The recording.
    pub fn session(&self) -> &'static Session {
        self.session
    }

    /// Nanoseconds until the next round is due.
    pub fn rest_ns(&self) -> u64 {
        let sample = u64::from(self.session.options.sample_memory_ms) * 1_000_000;
        let rest = if sample == 0 { LATENCY_NS / 2 } else { sample.min(LATENCY_NS / 2) };
        if self.session.names_wanted.load(Ordering::Acquire) { rest.min(NAMES_NS) } else { rest }
    }

    /// One round.
    pub fn round(&mut self) {
        if self.session.switches.go_on.load(Ordering::SeqCst) {
            self.resume();
            self.session.switches.go_on.store(false, Ordering::SeqCst);
        }
        if self.ended.is_some() {
            return;
        }
        if let Err(error) = self.try_round() {
            self.stop(error);
        }
        self.session.pool.beat();
    }

    fn try_round(&mut self) -> sys::Result<()> {
        if heap::is_short() {
            return Err(Errno(libc::ENOMEM));
        }
        let now = sys::clock(libc::CLOCK_MONOTONIC);
        let wanted = self.session.flush_wanted.load(Ordering::Acquire);
        let asked = wanted != self.session.flush_done.load(Ordering::Relaxed);
        self.grow_pool();
        self.take_full_chunks();
        self.seize_chunks();
        let due = asked || now.saturating_sub(self.times.flush) >= self.flush_period();
        self.modules.scan(&mut self.metas);
        self.sample_memory(now);
        self.memory_detail(now, false);
        self.page_looks(now);
        if due {
            self.session.names_wanted.store(false, Ordering::Release);
            self.flush_everything(false)?;
            self.take_idle_chunks(now);
            self.session.pool.flushes.fetch_add(1, Ordering::Relaxed);
            self.times.flush = now;
            self.times.flushing = sys::clock(libc::CLOCK_MONOTONIC).saturating_sub(now);
        } else {
            self.put_names(now)?;
            self.write_ready_queues()?;
        }
        self.clock_samples(now);
        if now.saturating_sub(self.times.second) >= SECOND_NS {
            self.times.second = now;
            self.reap_exited_threads(life::LIVE);
            self.put_statistics();
            self.put_stack_counts();
            self.put_parts();
        }
        if due {
            self.blocks.flush_metas();
            self.commit()?;
            self.session.flush_done.store(wanted, Ordering::Release);
            sys::futex_wake(&self.session.flush_done, i32::MAX);
        }
        Ok(())
    }

    /// Writes what names events, if some of it waits: of a process that is killed a moment later the events are in the side
    /// file, and the names nowhere.
    fn put_names(&mut self, now: u64) -> sys::Result<()> {
        let is_early = now.saturating_sub(self.times.names) < NAMES_NS;
        if is_early || !self.session.names_wanted.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        self.times.names = now;
        self.announce_threads();
        self.put_codes();
        self.notes()?;
        self.blocks.flush_metas();
        self.commit()
    }

    /// Time from one flush to the next. A flush looks at every thread and makes a block of each that has something new:
    /// with thousands of threads it takes long, and then at most a fifth of the time is spent so. A kill loses nothing
    /// meanwhile: what is not in the file is in the side file.
    fn flush_period(&self) -> u64 {
        const LONGEST_NS: u64 = 2 * SECOND_NS;
        LATENCY_NS.max((self.times.flushing * 5).min(LONGEST_NS))
    }

    /// Writes everything and the end block. The gate must not let any thread publish any more.
    pub fn finish(&mut self, reason: EndReason) {
        if self.ended.is_some() {
            return;
        }
        if let Err(error) = self.try_finish(reason) {
            self.stop(error);
        }
        self.session.pool.beat();
    }

    fn try_finish(&mut self, reason: EndReason) -> sys::Result<()> {
        self.take_full_chunks();
        self.modules.scan(&mut self.metas);
        self.times.sample = 0;
        self.sample_memory(SECOND_NS);
        self.last_look(reason);
        self.memory_detail(sys::clock(libc::CLOCK_MONOTONIC), true);
        self.put_parts();
        self.report_losses();
        self.flush_everything(true)?;
        self.report_missing()?;
        let sample = (self.facts.clock)();
        self.blocks.meta(sample.tick, &Meta::ClockSample(sample));
        self.end(reason, None)
    }

    /// Reports losses that their threads will not report any more, by a record in the next chunk.
    fn report_losses(&self) {
        let threads = &self.session.threads;
        let unreported = threads.iter().map(|context| context.lost_unreported.swap(0, Ordering::Relaxed));
        let contexts_unavailable = threads.contexts_unavailable.swap(0, Ordering::Relaxed);
        self.session.retired.lost.fetch_add(contexts_unavailable, Ordering::Relaxed);
        let lost = unreported.sum::<u64>() + threads.unreported.swap(0, Ordering::Relaxed) + contexts_unavailable;
        if contexts_unavailable > 0 {
            let text = format!("no memory for what a thread records in: {contexts_unavailable} events are lost");
            self.session.remark((self.facts.now)(), "no-context", text);
        }
        if lost > 0 {
            self.session.note_from_outside(Kind::Lost, (self.facts.now)(), lost);
        }
    }

    fn end(&mut self, reason: EndReason, error: Option<(i32, String)>) -> sys::Result<()> {
        self.put_stack_counts();
        self.blocks.flush_metas();
        self.commit()?;
        self.before_end = self.blocks.position();
        let tick = (self.facts.now)();
        let statistics = self.statistics(tick);
        self.blocks.end(tick, &Meta::End(End { reason, tick, statistics, error }))?;
        if !gate::change(gate::HELD, gate::ENDED) && !matches!(gate::state(), gate::PASS | gate::COLD) {
            // The thread that requested the end, or one that waited for it, has given up: the threads record on.
            self.blocks.rewind(self.before_end);
            return Ok(());
        }
        self.ended = Some(reason);
        self.session.side.set_finished(true);
        self.blocks.file().remove_side_file();
        Ok(())
    }

    /// Suspends the writer before its thread ends, to be made anew: the descriptors end with the thread.
    pub fn suspend(&mut self) {
        self.session.flush_wanted.fetch_add(1, Ordering::AcqRel);
        self.round();
        self.session.side.set_locked(false);
        self.blocks.file().lose_table();
        self.memory = MemoryCounters::none();
        self.looks.forget_descriptors();
        self.suspended = true;
    }

    /// Continues in the new thread.
    pub fn go_on(&mut self) {
        if core::mem::take(&mut self.suspended) {
            self.memory = MemoryCounters::new();
            self.looks.reopen();
            if let Err(error) = self.blocks.file().reopen() {
                self.stop(error);
            }
        }
    }

    /// Whether the writer's thread is to end for a while.
    pub fn is_suspended(&self) -> bool {
        self.suspended
    }

    /// Continues with the same file after an end that was taken back, such as that of an exec that failed.
    fn resume(&mut self) {
        if self.ended.take_if(|reason| matches!(reason, EndReason::Exec | EndReason::Exit)).is_none() {
            return;
        }
        self.blocks.rewind(self.before_end);
        self.session.side.set_finished(false);
        // The old side file has lost its name: its memory moves to a new one, while no thread can write to it.
        let side = &self.session.side;
        let moved = self.blocks.file().new_side_file().and_then(|fd| {
            side.copy_to(fd)?;
            let was_off = gate::state() == gate::PASS;
            if !was_off && !gate::change(gate::ENDED, gate::MOVING) {
                return Err(Errno(libc::EBUSY));
            }
            let moved = side.move_to(fd);
            gate::change(gate::MOVING, gate::RECORDING);
            moved
        });
        gate::change(gate::ENDED, gate::RECORDING);
        if let Err(error) = moved {
            let text = format!("no side file after a failed exec ({error}): a kill loses what is not in the file yet");
            self.session.remark((self.facts.now)(), "no-side-file", text);
        }
    }

    /// After a panic in a round: what the writer was writing is lost, what is in the file stays, and the end block
    /// notes it.
    pub fn failed(&mut self) {
        if self.ended.is_none() {
            self.stop_with(0, "the recorder's writer failed");
        }
    }

    /// The calling thread takes over the writer's work after the writer's thread, whose descriptors have ended with
    /// it.
    pub fn adopt(&mut self) {
        if self.has_ended_for_good() {
            return;
        }
        self.session.side.set_locked(false);
        if self.blocks.file().lose_table() {
            self.memory = MemoryCounters::none();
            self.looks.forget_descriptors();
            if let Err(error) = self.blocks.file().reopen() {
                self.stop(error);
            }
        }
    }

    /// Stops recording for good: the file keeps what it has.
    fn stop(&mut self, error: Errno) {
        self.stop_with(error.0, &error.to_string());
    }

    fn stop_with(&mut self, code: i32, error: &str) {
        // Before the gate is shut: what is stamped until here is recorded by all threads.
        let tick = (self.facts.now)();
        self.session.end_recording();
        let path = self.blocks.file().path();
        // A write that took too long at an end is reported by the code that ends the recording.
        if code != libc::ETIMEDOUT {
            tracehound_shared::log::error(&format!("{path}: {error}; recording stops here, the program goes on"));
        }
        self.batch.clear();
        self.taken.clear();
        self.metas.clear();
        self.blocks.drop_metas();
        let text = format!("recording stopped: {error}");
        self.blocks.meta(tick, &Meta::Remark(Remark { tick, topic: "write-error".into(), text }));
        let reason = EndReason::DiskFull;
        // What was published and is not in the file is in the side file. An end block would make that worthless, and other
        // threads' later events are in the file perhaps.
        let keeps_side_file = !matches!(code, 0 | libc::ETIMEDOUT) && self.session.side.is_shared();
        let is_ended = if keeps_side_file {
            self.put_stack_counts();
            self.blocks.flush_metas();
            // Without room for the remark the side file says as much.
            let _ = self.blocks.commit();
            false
        } else {
            self.end(reason, Some((code, error.into()))).is_ok()
        };
        if !is_ended {
            // The file ends after its last whole block, and the side file says why.
            self.blocks.file().trim();
            self.session.side.set_ending(Ending::NoRoom, tick, 0);
            self.ended = Some(reason);
        }
    }
}
