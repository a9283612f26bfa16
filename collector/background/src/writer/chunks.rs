//! From chunks to blocks: the order of chunks, the records of a block, and when a chunk is free again.

use std::sync::atomic::Ordering;

use tracehound_format::meta::{Meta, Watermark};
use tracehound_format::nodes::Node;
use tracehound_format::record::{Kind, RECORD_BYTES};

use super::{RecordingWriter, SECOND_NS, Settlement, WriterThread};
use crate::seize::seize;
use tracehound_shared::chunk::{Chunk, MOST_RECORDS};
use tracehound_shared::sys;
use tracehound_shared::thread::{EVENT, MODE, NO_CHUNK, RECORDING, STAMPED, ThreadContext, life};

/// Records that make a block when there is no hurry.
pub(super) const BLOCK_RECORDS: usize = 64 << 10;

impl RecordingWriter {
    pub(super) fn grow_pool(&mut self) {
        let pool = &self.session.pool;
        if pool.growth_wanted.load(Ordering::Relaxed)
            && let Some((slot, offset, bytes)) = pool.next_growth()
        {
            let at = tracehound_format::live::HEADER_BYTES as u64 + offset;
            let backed = self.blocks.file().back_side_file(at, bytes);
            pool.grown_by_writer(slot, backed.is_ok().then_some(bytes));
        }
    }

    pub(super) fn take_full_chunks(&mut self) {
        while let Some(number) = self.session.pool.receive() {
            let Some(chunk) = self.session.pool.chunk(number) else { continue };
            let state = self.threads.entry(chunk.thread()).or_default();
            state.queue.push_back((number, chunk));
            state.queued_records += u64::from(chunk.used());
            self.queued += u64::from(chunk.bytes());
        }
    }

    /// Takes the oldest chunk of a thread off its queue, to be settled.
    fn take_off(&mut self, state: &mut WriterThread) {
        if let Some((number, chunk)) = state.queue.pop_front() {
            state.queued_records = state.queued_records.saturating_sub(u64::from(chunk.used()));
            self.queued = self.queued.saturating_sub(u64::from(chunk.bytes()));
            self.taken.push(Settlement::Emptied(number, chunk));
        }
    }

    /// When threads want chunks and every one is in use, takes half-filled ones from threads that are not recording
    /// right now, the quietest first. The thread notices at its next event that it has no room.
    pub(super) fn seize_chunks(&mut self) {
        let pool = &self.session.pool;
        let wanted = pool.wanted() as usize;
        if wanted == 0 || pool.free_bytes() > 0 || self.queued > 0 {
            return;
        }
        pool.fed();
        let mut candidates: Vec<&'static ThreadContext> = self.holders().collect();
        // A thread whose state has not changed since the last look has been quiet for long.
        let threads = &self.threads;
        sort_by_moving_key(&mut candidates, |context| {
            let state = context.state.load(Ordering::Relaxed);
            let seen = threads.get(&context.id.load(Ordering::Relaxed)).map(|thread| thread.seen_state);
            (
                seen != Some(state),
                context.limit.load(Ordering::Relaxed).saturating_sub(context.cursor.load(Ordering::Relaxed)),
            )
        });
        let some = candidates.len() / 4;
        candidates.truncate(wanted.max(some));
        self.take_from(candidates);
    }

    /// Threads that have a chunk and do not wait for another.
    fn holders(&self) -> impl Iterator<Item = &'static ThreadContext> {
        self.session.threads.iter().filter(|context| {
            context.is_in_use()
                && context.active.load(Ordering::Acquire) != NO_CHUNK
                && context.parked.load(Ordering::Relaxed) == 0
        })
    }

    /// Takes chunks back from threads that have recorded nothing for a second: others may need them, in other sizes.
    /// Such a thread gets a small one at its next event.
    pub(super) fn take_idle_chunks(&mut self, now: u64) {
        let is_idle = |context: &&ThreadContext| {
            let thread = self.threads.get(&context.id.load(Ordering::Relaxed));
            let state = context.state.load(Ordering::Relaxed);
            state & MODE != RECORDING
                && thread
                    .is_some_and(|thread| thread.seen_state == state && now.saturating_sub(thread.changed) >= SECOND_NS)
        };
        let idle: Vec<&'static ThreadContext> = self.holders().filter(is_idle).collect();
        if !idle.is_empty() {
            self.take_from(idle);
        }
    }

    /// Takes the chunks of those threads that are not recording.
    fn take_from(&mut self, threads: Vec<&'static ThreadContext>) {
        /// A barrier for so many.
        const AT_ONCE: usize = 256;
        for some in threads.chunks(AT_ONCE) {
            self.session.pool.beat();
            seize(some, &self.session.pool);
        }
        self.take_full_chunks();
    }

    /// Writes, without hurry, threads with a block's worth of chunks, threads that have ended, and all when the pool
    /// runs low. At
    /// most about as much as the pool holds: threads that record faster than this writes would keep it from its other
    /// work, such as the command that stops them. The next round, which comes at once, writes the rest.
    pub(super) fn write_ready_queues(&mut self) -> sys::Result<()> {
        const ENOUGH: u64 = (BLOCK_RECORDS - MOST_RECORDS as usize) as u64;
        const COMMIT_EVERY: usize = 8;
        self.reap_exited_threads(life::ENDING);
        let mut ended: Vec<u32> = self
            .session
            .threads
            .iter()
            .filter(|context| context.life.load(Ordering::Acquire) == life::ENDED)
            .map(|context| context.id.load(Ordering::Relaxed))
            .collect();
        ended.sort_unstable();
        // Their last chunks were sent before they were marked as ended.
        self.take_full_chunks();
        let records = self.records;
        let most = self.session.pool.bytes() / RECORD_BYTES as u64;
        loop {
            let pool = &self.session.pool;
            let low = self.queued * 4 >= pool.bytes() || pool.wanted() > 0;
            let is_ready = |id: &u32, state: &WriterThread| {
                state.queued_records >= ENOUGH || (!state.queue.is_empty() && (low || ended.binary_search(id).is_ok()))
            };
            let ready: Vec<u32> =
                self.threads.iter().filter(|(id, state)| is_ready(id, state)).map(|(id, _)| *id).collect();
            if ready.is_empty() {
                break;
            }
            self.announce_threads();
            let before = self.queued;
            for (i, id) in ready.into_iter().enumerate() {
                self.write_thread(id, false, false)?;
                if low && i % COMMIT_EVERY == COMMIT_EVERY - 1 {
                    self.commit()?;
                }
            }
            self.commit()?;
            if self.queued == before {
                // What is left waits for an earlier chunk of its thread.
                break;
            }
            if self.records - records >= most {
                self.session.pool.ring();
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

    /// Commits what has gathered to the file; then the chunks that it came from are settled.
    pub(super) fn commit(&mut self) -> sys::Result<()> {
        self.blocks.commit()?;
        self.session.pool.beat();
        for settlement in self.settled.drain(..) {
            match settlement {
                Settlement::Partly(chunk, written) => chunk.set_written(written),
                Settlement::Emptied(number, chunk) => {
                    chunk.set_written(chunk.used());
                    chunk.wipe();
                    self.session.pool.give_back(number);
                }
            }
        }
        Ok(())
    }

    /// Writes what there is, in full and in active chunks, and the watermark behind it.
    pub(super) fn flush_everything(&mut self, last: bool) -> sys::Result<()> {
        self.reap_exited_threads(life::ENDING);
        let now = sys::clock(libc::CLOCK_MONOTONIC);
        let tick = (self.facts.now)();
        sys::barrier();
        let states: Vec<(u32, u64, Option<u64>)> = self
            .session
            .threads
            .iter()
            .filter(|context| context.life.load(Ordering::Acquire) != life::FREE)
            .map(|context| {
                let state = context.state.load(Ordering::Acquire);
                (context.id.load(Ordering::Relaxed), state, self.recorded(context))
            })
            .collect();
        self.announce_threads();
        self.take_full_chunks();
        self.notes()?;
        let ids: Vec<u32> = self.threads.keys().copied().collect();
        for id in ids {
            self.write_thread(id, true, last)?;
        }
        self.commit()?;
        let mut watermark = tick;
        for (id, state, recorded) in states {
            let Some(thread) = self.threads.get_mut(&id) else { continue };
            // What it had recorded at the look may not be written yet: its chunk was on its way to the queue, or waits
            // there for an earlier one.
            let is_written = recorded.is_some_and(|recorded| thread.next_record >= recorded);
            if is_written && !matches!(state & MODE, RECORDING | STAMPED) {
                thread.bound = tick;
            } else if is_written && state / EVENT != thread.seen_state / EVENT {
                // The event in progress is another one than at the last look, hence stamped after it. The mode alone
                // proves nothing: a realloc is stamped once and goes through two of them.
                thread.bound = thread.bound.max(self.last_look);
            }
            if state != thread.seen_state {
                thread.changed = now;
            }
            thread.seen_state = state;
            watermark = watermark.min(thread.bound);
        }
        self.last_look = tick;
        self.forget_ended_threads(last);
        if watermark > self.watermark {
            self.watermark = watermark;
            self.blocks.meta(watermark, &Meta::Watermark(Watermark { tick: watermark }));
            self.blocks.flush_metas();
            self.commit()?;
            self.session.side.set_watermark(watermark);
        }
        Ok(())
    }

    /// How many records a thread has made so far; `None` while its chunks change hands. Between a chunk that it has let go
    /// and the next one it has none, and the queue does not have it either.
    fn recorded(&self, context: &ThreadContext) -> Option<u64> {
        let _held = context.lock_chunks_if_free()?;
        let active = self.session.pool.chunk(context.active.load(Ordering::Relaxed));
        let cursor = context.cursor.load(Ordering::Acquire);
        let used = active.map_or(0, |chunk| cursor.saturating_sub(chunk.first_address()) / RECORD_BYTES as u64);
        Some(context.next_record.load(Ordering::Relaxed) + used)
    }

    /// Writes the records of a thread that are published and in turn; the last time also those that would wait for
    /// others before them.
    fn write_thread(&mut self, id: u32, with_active: bool, last: bool) -> sys::Result<()> {
        let context = self.threads.get(&id).and_then(|state| state.context);
        if !last && self.has_nothing_new(context, id) {
            return Ok(());
        }
        self.session.pool.beat();
        let open = if with_active { self.open_chunks(context, id) } else { Vec::new() };
        if with_active {
            // Chunks that the thread filled before its open ones were sent before these were listed: they come first.
            self.take_full_chunks();
        }
        let Some(mut state) = self.threads.remove(&id) else { return Ok(()) };
        let result = self.write_chunks(id, &mut state, open, last);
        self.threads.insert(id, state);
        result
    }

    /// Whether everything that a thread has recorded is written, which is so for most when there are thousands.
    fn has_nothing_new(&self, context: Option<&ThreadContext>, id: u32) -> bool {
        let (Some(context), Some(state)) = (context, self.threads.get(&id)) else { return false };
        if !state.queue.is_empty() || context.pinned_len.load(Ordering::Acquire) != 0 {
            return false;
        }
        let number = context.active.load(Ordering::Acquire);
        let Some(chunk) = self.session.pool.chunk(number).filter(|chunk| chunk.thread() == id) else { return false };
        let cursor = context.cursor.load(Ordering::Acquire);
        cursor == chunk.first_address() + u64::from(chunk.written()) * RECORD_BYTES as u64
    }

    fn write_chunks(&mut self, id: u32, state: &mut WriterThread, mut open: Vec<Chunk>, last: bool) -> sys::Result<()> {
        // A handler's chunk may come before the one that it interrupted has been handed over; a thread that ends and
        // comes back may be seen twice: the numbers of the first records give the order.
        state.queue.make_contiguous().sort_by_key(|(_, chunk)| chunk.first_record());
        self.batch.clear();
        // A chunk that was sent since then is written as a full one.
        open.retain(|open| state.queue.iter().all(|(_, full)| full.first_address() != open.first_address()));
        let mut first = state.next_record;
        while let Some(&(_, chunk)) = state.queue.front() {
            let (next, position) =
                (first + u64::from(self.batch.count), chunk.first_record() + u64::from(chunk.written()));
            // A chunk that was wholly written while it was open may arrive after records of the chunk behind it.
            if chunk.written() == chunk.used() {
                self.take_off(state);
                continue;
            }
            if position > next && last {
                self.skip_to(id, &mut first, position)?;
            } else if position != next {
                break;
            }
            self.batch.add_full(chunk, self.session.started_tick);
            self.take_off(state);
            if self.batch.count as usize >= BLOCK_RECORDS {
                self.put_events(id, &mut first)?;
            }
        }
        for chunk in open {
            let (next, position) =
                (first + u64::from(self.batch.count), chunk.first_record() + u64::from(chunk.written()));
            if position > next && last && chunk.published() > chunk.written() {
                self.skip_to(id, &mut first, position)?;
            } else if position != next {
                continue;
            }
            if state.queue.is_empty() {
                let written = if last {
                    // Records behind a slot that was not filled do not wait for it any more.
                    self.batch.add_last(chunk, self.session.started_tick)
                } else {
                    self.batch.add_open(chunk)
                };
                self.taken.push(Settlement::Partly(chunk, written));
            }
        }
        self.put_events(id, &mut first)?;
        state.next_record = first;
        Ok(())
    }

    /// Continues at record `position`; records before it are missing and will not come any more: a reader sees the
    /// gap in the numbers and counts them as lost.
    fn skip_to(&mut self, id: u32, first: &mut u64, position: u64) -> sys::Result<()> {
        self.put_events(id, first)?;
        self.session.retired.lost.fetch_add(position.saturating_sub(*first), Ordering::Relaxed);
        *first = position;
        Ok(())
    }

    /// At the end: reports records that threads have handed over and that never came, behind the last that did. No
    /// gap in the numbers shows them, hence a record of its own.
    pub(super) fn report_missing(&mut self) -> sys::Result<()> {
        let mut missing = 0;
        for context in self.session.threads.iter() {
            let Some(state) = self.threads.get(&context.id.load(Ordering::Acquire)) else { continue };
            let handed_over = context.next_record.load(Ordering::Acquire);
            missing += handed_over.saturating_sub(state.next_record);
        }
        if missing > 0 {
            self.session.retired.lost.fetch_add(missing, Ordering::Relaxed);
            self.session.note_from_outside(Kind::Lost, (self.facts.now)(), missing);
            self.notes()?;
        }
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

    /// Makes a block of the collected records. Only then may a commit settle the chunks that they lie in.
    pub(super) fn put_events(&mut self, id: u32, first: &mut u64) -> sys::Result<()> {
        if self.batch.count != 0 {
            self.put_nodes(self.batch.highest_node)?;
            self.put_metas();
            self.blocks.flush_metas();
            self.blocks.events(id, *first, &self.batch);
            *first += u64::from(self.batch.count);
            self.records += u64::from(self.batch.count);
            self.batch.clear();
        }
        self.settled.append(&mut self.taken);
        if self.blocks.wants_commit() { self.commit() } else { Ok(()) }
    }

    /// Writes nodes until the one with id `highest` is in the file.
    fn put_nodes(&mut self, highest: u32) -> sys::Result<()> {
        const AT_ONCE: u32 = 64 << 10;
        if highest < self.nodes_written {
            return Ok(());
        }
        let end = self.session.tree.len().max(highest + 1);
        // After reading the length: code objects that these nodes name were listed before the nodes were made.
        self.put_codes();
        self.blocks.flush_metas();
        let mut nodes = Vec::new();
        while self.nodes_written < end {
            let first = self.nodes_written;
            let last = end.min(first + AT_ONCE);
            nodes.clear();
            for id in first..last {
                // Every id below the tree's length is a complete node.
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
}

/// Sorts by keys that other threads change meanwhile: each key is read once. A sort that reads a key for every comparison
/// may find an order that contradicts itself, and panics.
fn sort_by_moving_key<T: Copy, K: Ord>(items: &mut Vec<T>, mut key: impl FnMut(&T) -> K) {
    let mut keyed: Vec<(K, T)> = items.iter().map(|item| (key(item), *item)).collect();
    keyed.sort_by(|one, other| one.0.cmp(&other.0));
    items.clear();
    items.extend(keyed.into_iter().map(|(_, item)| item));
}

#[cfg(test)]
mod tests;
