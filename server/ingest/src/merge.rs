//! Merge of all threads' runs by time into one sequence, exact: ties go by thread id, and the order of a thread never
//! changes. The pairing also sees a window of later events, so that it can correct the order of hand-overs.
//!
//! ```text
//! blocks by first tick → decoders (several threads, a bounded range ahead) → cursors, one a thread → batches of events
//! ```
//! Decoders, merge with pairing, and the sealer run at the same time; full queues hold the faster ones back.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{bounded, unbounded};
use tracehound_format::block::BlockHeader;
use tracehound_format::record::Kind;

use super::Control;
use super::checkpoint::{Checkpoint, Keeper};
use super::code_versions::CodeVersions;
use super::decode::{BlockDecoder, Run};
use super::engine::{MergedEvent, PairingEngine};
use super::event_batch::EventBatch;
use super::scan::BlockRef;
use super::seal::Sealer;

/// Source of a run.
#[derive(Debug)]
pub enum RunSource {
    /// A block of the recording; several in turn where a realloc may stand behind events of a signal handler that came
    /// after it, and that the block before ends with.
    Blocks(Vec<BlockRef>),
    /// Records of the side file.
    Ready(Run),
}

/// Records of one thread that have not been merged.
#[derive(Debug)]
pub struct Pending {
    /// Not larger than the time of any of its records, not smaller than that of its thread's pending before it.
    pub key: u64,
    /// Recording-wide thread id.
    pub thread: u32,
    /// Number of the first record among its thread's.
    pub first_record: u64,
    /// Records.
    pub count: u64,
    /// Bytes that it takes in the file.
    pub bytes: u64,
    /// The largest time of its records; 0 where it does not matter.
    pub newest: u64,
    /// Where they are.
    pub source: RunSource,
}

/// What was decoded of a [`Pending`]; several where blocks that belong together are not all readable.
#[derive(Debug)]
struct DecodedPart {
    /// As in [`Pending`].
    first_record: u64,
    /// As in [`Pending`].
    count: u64,
    /// The records; where the payload of the damaged block is, if there are none.
    run: Result<Run, u64>,
}

impl Pending {
    /// Each block for itself.
    pub fn split(self) -> Vec<Self> {
        let RunSource::Blocks(blocks) = self.source else { return vec![self] };
        let (key, thread) = (self.key, self.thread);
        let each = blocks.into_iter().map(|block| {
            let header = &block.header;
            let bytes = u64::from(header.stored_len) + BlockHeader::LEN as u64;
            let (first_record, count) = (header.first_record, u64::from(header.count));
            let source = RunSource::Blocks(vec![block]);
            Self { key, thread, first_record, count, bytes, newest: header.last_tick, source }
        });
        each.collect()
    }

    fn is_joined(&self) -> bool {
        matches!(&self.source, RunSource::Blocks(blocks) if blocks.len() > 1)
    }
}

/// A run that is being merged.
#[derive(Debug)]
struct Active {
    run: Run,
    origins: Vec<u32>,
    at: usize,
}

/// A thread's place in the merge.
#[derive(Debug, Default)]
struct Cursor {
    id: u32,
    /// Times do not go below this.
    floor: u64,
    runs: VecDeque<Active>,
}

impl Cursor {
    fn head(&self) -> Option<u64> {
        let active = self.runs.front()?;
        active.run.items.get(active.at).map(|item| item.tick.max(self.floor))
    }
}

/// See the module's description.
#[derive(Debug, Default)]
pub struct Merger {
    pending: Vec<Pending>,
    cursors: Vec<Cursor>,
    /// Merged events that the pairing has seen but not taken.
    ahead: Vec<MergedEvent>,
    /// Nothing before this tick is expected any more.
    merged_until: u64,
    /// Payload offsets of blocks of events that turned out to be damaged.
    pub damaged: BTreeSet<u64>,
    spare: Vec<Run>,
    /// Records after this tick are left out: recording had ended, and other threads' later events are in no record.
    cut: Option<u64>,
    /// Times of runs of several blocks go up to here. Where their records are not in the file's order, counts of records
    /// mean nothing to a later run.
    joined_until: u64,
}

/// Runs that are decoded ahead of the merge.
const AHEAD: usize = 24;
/// Events that are paired in one go: they stay in the cache between the two steps.
const BATCH: usize = 1024;
/// A batch with more events within one window than this is cut all the same.
const MAX_BATCH: usize = 1 << 16;

impl Merger {
    /// Adds records to be merged.
    pub fn add(&mut self, pending: Pending) {
        self.pending.push(pending);
    }

    /// Leaves out what is after `tick`.
    pub fn cut_after(&mut self, tick: Option<u64>) {
        self.cut = tick;
    }

    /// Whether a later run could go on behind what `engine` has taken; `rest` has left the runs and was not taken yet.
    /// Not where events stand elsewhere than in the file, or one of them is none of the file's: a gap is reported by an
    /// event that is no record.
    fn can_stop_before(&self, engine: &PairingEngine, rest: &[MergedEvent]) -> bool {
        let left = rest.first().map(|event| event.tick).into_iter().chain(self.cursors.iter().filter_map(Cursor::head));
        engine.can_stop_before(rest)
            && rest.iter().all(|event| event.kind != Kind::Lost as u8)
            && left.min().is_none_or(|tick| tick > self.joined_until)
    }

    /// The state behind what `engine` has taken.
    fn checkpoint(&self, engine: &PairingEngine, rest: &[MergedEvent]) -> Checkpoint {
        let mut threads = engine.threads.clone();
        for (cursor, state) in self.cursors.iter().zip(&mut threads) {
            let left: usize = cursor.runs.iter().map(|a| a.run.items.len() - a.at).sum();
            state.next_record -= (left as u64).min(state.next_record);
            state.last_tick = state.last_tick.max(cursor.floor);
        }
        for event in rest.iter().rev() {
            if let Some(state) = threads.get_mut(event.thread as usize) {
                state.next_record -= state.next_record.min(1);
                state.last_tick = event.tick;
            }
        }
        let (totals, clock, damaged) = (engine.totals.clone(), engine.clock.clone(), self.damaged.clone());
        Checkpoint { totals, threads, clock, damaged }
    }

    /// The state between two runs; `None` where a later run could not go on.
    #[must_use]
    pub fn resting_checkpoint(&self, engine: &PairingEngine) -> Option<Checkpoint> {
        self.can_stop_before(engine, &self.ahead).then(|| self.checkpoint(engine, &self.ahead))
    }

    /// Merges everything before `limit` (`None`: everything) into `engine`, whose chunks go to `sealer`. With a limit,
    /// what is less than the engine's window before it is left for later. Nodes of events are replaced by those of `versions`.
    ///
    /// # Errors
    /// When memory or disk runs out.
    #[allow(clippy::too_many_arguments)] // The parts of ingest, which come together here.
    pub fn run(
        &mut self,
        limit: Option<u64>,
        file: &File,
        versions: Option<Arc<CodeVersions>>,
        engine: &mut PairingEngine,
        sealer: &mut Sealer,
        keeper: &Keeper<'_>,
        control: &mut Control,
    ) -> io::Result<()> {
        let limit = limit.unwrap_or(u64::MAX);
        self.pending.sort_by_key(|p| (p.key, p.thread, p.first_record));
        let ready = self.pending.partition_point(|p| p.key < limit);
        let blocks: Vec<Pending> = self.pending.drain(..ready).collect();
        let next = AtomicUsize::new(0);
        let decoders = std::thread::available_parallelism().map_or(1, |n| n.get().saturating_sub(1)).clamp(1, 8);
        let (permit, permits) = bounded::<Run>(AHEAD);
        let (decoded, runs) = unbounded();
        let (chunks, chunk_queue) = bounded::<EventBatch>(3);
        let (used, empty) = unbounded::<EventBatch>();
        let outcome = std::thread::scope(|scope| {
            for _ in 0..decoders.min(blocks.len()) {
                let (permits, decoded, next, blocks) = (permits.clone(), decoded.clone(), &next, &blocks);
                let versions = versions.clone();
                scope.spawn(move || {
                    let mut decoder = BlockDecoder::default();
                    while let Ok(mut run) = permits.recv() {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(pending) = blocks.get(index) else { break };
                        let mut parts = match &pending.source {
                            RunSource::Blocks(blocks) => decode_blocks(&mut decoder, file, pending, blocks, run),
                            RunSource::Ready(ready) => {
                                run.clone_from(ready);
                                vec![whole(pending, run)]
                            }
                        };
                        if let Some(versions) = &versions {
                            parts
                                .iter_mut()
                                .filter_map(|part| part.run.as_mut().ok())
                                .for_each(|run| versions.split(run));
                        }
                        if decoded.send((index, parts)).is_err() {
                            break;
                        }
                    }
                });
            }
            let seal = scope.spawn(move || -> io::Result<()> {
                for mut chunk in chunk_queue {
                    sealer.take(&chunk)?;
                    if let Some(checkpoint) = chunk.checkpoint.take() {
                        keeper.save(*checkpoint, sealer)?;
                    }
                    chunk.clear();
                    let _ = used.send(chunk);
                }
                Ok(())
            });
            for _ in 0..AHEAD {
                let _ = permit.try_send(self.spare.pop().unwrap_or_default());
            }
            let mut waiting = HashMap::new();
            let mut fetch = |index: usize| loop {
                if let Some(parts) = waiting.remove(&index) {
                    return parts;
                }
                match runs.recv() {
                    Ok((i, parts)) => {
                        waiting.insert(i, parts);
                    }
                    Err(_) => return Vec::new(),
                }
            };
            let mut hand_over = |chunk: EventBatch| {
                chunks.send(chunk).map_err(|_| io::Error::other("the index cannot be written"))?;
                Ok(empty.try_recv().unwrap_or_default())
            };
            let mut merge = || -> io::Result<usize> {
                let taken =
                    self.merge(limit, &blocks, &mut fetch, &permit, engine, &mut hand_over, keeper.every, control)?;
                engine.flush(&mut hand_over)?;
                Ok(taken)
            };
            let merged = merge();
            drop(permit);
            drop(chunks);
            let sealed = seal.join().unwrap_or_else(|_| Err(io::Error::other("the sealer stopped")));
            sealed.and(merged)
        })?;
        // After a cancellation some blocks were not activated.
        self.pending.splice(0..0, blocks.into_iter().skip(outcome));
        Ok(())
    }

    #[allow(clippy::too_many_arguments)] // One call, and the borrows forbid a struct.
    fn merge(
        &mut self,
        limit: u64,
        blocks: &[Pending],
        fetch: &mut dyn FnMut(usize) -> Vec<DecodedPart>,
        permit: &crossbeam_channel::Sender<Run>,
        engine: &mut PairingEngine,
        hand_over: &mut impl FnMut(EventBatch) -> io::Result<EventBatch>,
        save_every: Duration,
        control: &mut Control,
    ) -> io::Result<usize> {
        let full = engine.batch_events(BATCH);
        let mut saved = Instant::now();
        let mut heap: BinaryHeap<Reverse<(u64, u32, usize)>> = BinaryHeap::new();
        for (index, cursor) in self.cursors.iter().enumerate() {
            if let Some(tick) = cursor.head() {
                heap.push(Reverse((tick, cursor.id, index)));
            }
        }
        let mut batch = std::mem::take(&mut self.ahead);
        batch.reserve(BATCH * 2);
        let (mut due, mut next) = (full, 0);
        let mut is_cancelled = false;
        loop {
            let next_key = blocks.get(next).map_or(u64::MAX, |b| b.key);
            let head = heap.peek().map_or(u64::MAX, |h| h.0.0);
            if next < blocks.len() && next_key <= head {
                if control.cancel.is_cancelled() {
                    is_cancelled = true;
                    break;
                }
                let parts = fetch(next);
                let _ = permit.try_send(self.spare.pop().unwrap_or_default());
                for part in parts {
                    self.activate(&blocks[next], part, engine, &mut batch, &mut heap);
                }
                control.advance(blocks[next].bytes, engine.totals.counts.total);
                next += 1;
                continue;
            }
            let Some(Reverse((tick, id, index))) = heap.pop() else { break };
            if tick >= limit {
                break;
            }
            let bound = heap.peek().map_or((u64::MAX, u32::MAX), |h| (h.0.0, h.0.1));
            let bound = bound.min((next_key, 0)).min((limit, 0));
            let Some(cursor) = self.cursors.get_mut(index) else { break };
            if let Some(head) = emit(cursor, id, index as u32, bound, &mut batch, &mut self.spare) {
                heap.push(Reverse((head, id, index)));
            }
            if batch.len() >= due {
                let last = batch.last().map_or(0, |e| e.tick);
                let until = last.saturating_sub(engine.window());
                let has_some = batch.first().is_some_and(|event| event.tick < until);
                if has_some || batch.len() > MAX_BATCH {
                    take(engine, &mut batch, has_some.then_some(until), hand_over)?;
                    if saved.elapsed() >= save_every && self.can_stop_before(engine, &batch) {
                        engine.flush_with(|engine| self.checkpoint(engine, &batch), hand_over)?;
                        saved = Instant::now();
                    }
                }
                due = batch.len() + full;
            }
        }
        let last = batch.last().map_or(0, |e| e.tick);
        let until = match (is_cancelled, limit) {
            (true, _) => Some(last),
            (false, u64::MAX) => None,
            (false, limit) => Some(limit),
        };
        let until = until.map(|tick| tick.saturating_sub(engine.window()));
        take(engine, &mut batch, until, hand_over)?;
        self.ahead = batch;
        if !is_cancelled {
            self.merged_until = limit;
        }
        Ok(next)
    }

    fn activate(
        &mut self,
        pending: &Pending,
        part: DecodedPart,
        engine: &mut PairingEngine,
        batch: &mut Vec<MergedEvent>,
        heap: &mut BinaryHeap<Reverse<(u64, u32, usize)>>,
    ) {
        let thread = engine.thread(pending.thread);
        let DecodedPart { first_record, count, run } = part;
        let Some(state) = engine.threads.get_mut(thread as usize) else { return };
        state.known_records = state.known_records.max(first_record.saturating_add(count));
        let mut run = match run {
            Ok(run) => run,
            Err(payload_at) => {
                self.damaged.insert(payload_at);
                return;
            }
        };
        if pending.is_joined() {
            let newest = run.items.iter().map(|item| item.tick).max().unwrap_or(0);
            self.joined_until = self.joined_until.max(newest);
        }
        let expected = state.next_record;
        let skip = usize::try_from(expected.saturating_sub(first_record)).unwrap_or(usize::MAX);
        if skip >= run.items.len() {
            self.spare.push(run);
            return;
        }
        state.next_record = first_record.saturating_add(run.items.len() as u64);
        state.known_records = state.known_records.max(state.next_record);
        if let Some(tick) = self.cut
            && let Some(late) = run.items.get(skip..).and_then(|rest| rest.iter().position(|item| item.tick > tick))
        {
            run.items.truncate(skip + late);
        }
        // Thread 0 is nobody's: marks, starts and stops from outside.
        state.active |= pending.thread != 0;
        let floor = state.last_tick.max(pending.key).max(self.merged_until);
        let gap = first_record.saturating_sub(expected);
        if gap > 0 {
            let kind = Kind::Lost as u8;
            let origin = engine.origin(0, thread, kind);
            batch.push(MergedEvent { tick: pending.key, address: gap, size: 0, origin, thread, kind });
        }
        let origins = engine.origins_of(&run.origins, thread);
        let index = thread as usize;
        while self.cursors.len() <= index {
            let id = engine.threads.get(self.cursors.len()).map_or(0, |t| t.id);
            self.cursors.push(Cursor { id, ..Cursor::default() });
        }
        let cursor = &mut self.cursors[index];
        let was_idle = cursor.runs.is_empty();
        if was_idle {
            cursor.floor = cursor.floor.max(floor);
        }
        cursor.runs.push_back(Active { run, origins, at: skip });
        if let (true, Some(tick)) = (was_idle, cursor.head()) {
            heap.push(Reverse((tick, pending.thread, index)));
        }
    }

    /// Notes how far the threads' times have come, for a later run.
    pub fn note_ticks(&self, engine: &mut PairingEngine) {
        for (cursor, state) in self.cursors.iter().zip(&mut engine.threads) {
            state.last_tick = state.last_tick.max(cursor.floor);
        }
    }
}

fn whole(pending: &Pending, run: Run) -> DecodedPart {
    DecodedPart { first_record: pending.first_record, count: pending.count, run: Ok(run) }
}

/// Decodes blocks that belong together as one run; where one of them is damaged, each as a run of its own.
fn decode_blocks(
    decoder: &mut BlockDecoder,
    file: &File,
    pending: &Pending,
    blocks: &[BlockRef],
    mut run: Run,
) -> Vec<DecodedPart> {
    if decoder.decode(file, blocks, &mut run).is_ok() {
        return vec![whole(pending, run)];
    }
    let each = blocks.iter().map(|block| {
        let mut run = Run::default();
        let decoded = decoder.decode(file, std::slice::from_ref(block), &mut run);
        let header = &block.header;
        DecodedPart {
            first_record: header.first_record,
            count: u64::from(header.count),
            run: decoded.map(|()| run).map_err(|_| block.payload_at),
        }
    });
    each.collect()
}

/// Passes the events of a batch before a tick to the pairing.
fn take(
    engine: &mut PairingEngine,
    batch: &mut Vec<MergedEvent>,
    until: Option<u64>,
    hand_over: &mut impl FnMut(EventBatch) -> io::Result<EventBatch>,
) -> io::Result<()> {
    let taken = engine.take(batch, until, hand_over)?;
    batch.drain(..taken);
    Ok(())
}

/// Moves a cursor's events before `bound` (tick, thread id) to the batch; gives the tick of the next one.
#[inline]
fn emit(
    cursor: &mut Cursor,
    id: u32,
    thread: u32,
    bound: (u64, u32),
    batch: &mut Vec<MergedEvent>,
    spare: &mut Vec<Run>,
) -> Option<u64> {
    while let Some(active) = cursor.runs.front_mut() {
        let mut floor = cursor.floor;
        let Active { run, origins, at } = active;
        let rest = run.items.get(*at..).unwrap_or_default();
        let mut taken = 0;
        for item in rest {
            let tick = item.tick.max(floor);
            if tick > bound.0 || tick == bound.0 && id >= bound.1 || taken >= BATCH {
                break;
            }
            floor = tick;
            let origin = origins.get(item.origin()).copied().unwrap_or(0);
            batch.push(MergedEvent { tick, address: item.address, size: item.size, origin, thread, kind: item.kind() });
            taken += 1;
        }
        *at += taken;
        cursor.floor = floor;
        if taken < rest.len() {
            return cursor.head();
        }
        if let Some(done) = cursor.runs.pop_front()
            && spare.len() < AHEAD
        {
            spare.push(done.run);
        }
    }
    None
}
