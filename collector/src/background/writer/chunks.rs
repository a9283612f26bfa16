//! From chunks to blocks: whose turn it is, what goes into a block, when a chunk is free again.

use std::sync::atomic::Ordering;

use tracehound_format::meta::{Meta, Watermark};
use tracehound_format::nodes::Node;
use tracehound_format::record::Kind;

use super::threads::hand_over;
use super::{Settlement, ThreadState, Writer};
use crate::shared::chunk::{Chunk, RECORDS};
use crate::shared::sys;
use crate::shared::thread::{EVENT, MODE, NO_CHUNK, RECORDING, STAMPED, ThreadContext, life};

/// Records that make a block when there is no hurry.
pub(super) const BLOCK_RECORDS: usize = 64 << 10;

impl Writer {
    pub(super) fn grow_pool(&mut self) {
        let pool = &self.session.pool;
        if pool.growth_wanted.load(Ordering::Relaxed)
            && let Some((from, bytes)) = pool.next_growth()
        {
            let at = tracehound_format::live::HEADER_BYTES as u64 + from;
            let backed = self.blocks.file().back_side_file(at, bytes);
            pool.grown_by_writer(backed.is_ok().then_some(bytes));
        }
    }

    pub(super) fn take_full_chunks(&mut self) {
        while let Some(number) = self.session.pool.receive() {
            let Some(chunk) = self.session.pool.chunk(number) else { continue };
            self.threads.entry(chunk.thread()).or_default().queue.push_back((number, chunk));
            self.queued += 1;
        }
    }

    /// When threads wait and every chunk is in use, takes half-filled ones from threads that are not recording right now,
    /// the quietest first. The thread notices at its next event that it has no room.
    pub(super) fn seize_chunks(&mut self) {
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
        sort_by_moving_key(&mut candidates, |context| {
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
    pub(super) fn write_ready_queues(&mut self) -> sys::Result<()> {
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
            self.take_full_chunks();
        }
        if !ended.is_empty() {
            self.announce_threads();
            self.forget_ended_threads(false);
        }
        Ok(())
    }

    /// Puts what has gathered into the file; then the chunks that it came from may go.
    pub(super) fn commit(&mut self) -> sys::Result<()> {
        self.blocks.commit()?;
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
            self.write_thread(id, true, last)?;
        }
        self.commit()?;
        let mut complete = true;
        let mut watermark = tick;
        for (id, state) in states {
            let Some(thread) = self.threads.get_mut(&id) else { continue };
            if !matches!(state & MODE, RECORDING | STAMPED) {
                thread.bound = tick;
            } else if state / EVENT != thread.seen_state / EVENT {
                // The event in flight is another one than at the last look, hence stamped after it. The mode alone tells
                // nothing: a realloc is stamped once and goes through two of them.
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

    /// Writes the records of a thread that are published and in turn; the last time also those that would wait for others
    /// before them.
    fn write_thread(&mut self, id: u32, with_active: bool, last: bool) -> sys::Result<()> {
        let context = self.threads.get(&id).and_then(|state| state.context);
        let open = if with_active { self.open_chunks(context, id) } else { Vec::new() };
        if !open.is_empty() {
            // What the thread filled before these was sent before they were taken: it comes first.
            self.take_full_chunks();
        }
        let Some(mut state) = self.threads.remove(&id) else { return Ok(()) };
        let result = self.write_chunks(id, &mut state, open, last);
        self.threads.insert(id, state);
        result
    }

    fn write_chunks(&mut self, id: u32, state: &mut ThreadState, mut open: Vec<Chunk>, last: bool) -> sys::Result<()> {
        // A handler's chunk may come before the one that it interrupted has been handed over; a thread that ends and
        // comes back may be seen twice: the numbers of the first records give the order.
        state.queue.make_contiguous().sort_by_key(|(_, chunk)| chunk.first_record());
        self.batch.clear();
        // One that has been handed over since is written as a full one.
        open.retain(|open| state.queue.iter().all(|(_, full)| full.first_address() != open.first_address()));
        let mut first = state.next_record;
        while let Some(&(number, chunk)) = state.queue.front() {
            let (next, position) =
                (first + u64::from(self.batch.count), chunk.first_record() + u64::from(chunk.written()));
            // One that was wholly written while it was open may arrive after records of the chunk behind it were.
            if chunk.written() == chunk.used() {
                self.taken.push(Settlement::Emptied(number, chunk));
                state.queue.pop_front();
                self.queued = self.queued.saturating_sub(1);
                continue;
            }
            if position > next && last {
                self.skip_to(id, &mut first, position)?;
            } else if position != next {
                break;
            }
            self.batch.add_full(chunk, self.session.started_tick);
            self.taken.push(Settlement::Emptied(number, chunk));
            state.queue.pop_front();
            self.queued = self.queued.saturating_sub(1);
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
                    // What is published behind a slot that was not filled does not wait for it any more.
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

    /// Goes on at record `position`, before which records are missing that will not come any more: a reader sees the gap
    /// in the numbers and counts them as lost.
    fn skip_to(&mut self, id: u32, first: &mut u64, position: u64) -> sys::Result<()> {
        self.put_events(id, first)?;
        self.session.retired.lost.fetch_add(position.saturating_sub(*first), Ordering::Relaxed);
        *first = position;
        Ok(())
    }

    /// At the end: records that threads have handed over and that never came, behind the last that did. No gap tells of
    /// them, hence a record of its own.
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
            if let Some(live) = &mut self.live {
                live.add(self.batch.spans().flatten().chain(self.batch.loose()));
            }
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
}

/// Sorts by keys that other threads change meanwhile: each is read once. A sort that reads a key for every comparison finds
/// them contradict each other, and panics.
fn sort_by_moving_key<T, K: Ord>(items: &mut [T], key: impl FnMut(&T) -> K) {
    items.sort_by_cached_key(key);
}

#[cfg(test)]
mod tests;
