//! Pairing: takes all events in their true order, pairs allocations with frees, and fills columns.
//!
//! ```text
//! allocation   row = allocations so far; columns of allocations; the block goes into the live map
//! free   the live map has row, size, allocation; columns of frees, from which the sealer fills the ledgers in
//! realloc free of the old block and allocation of the new one at the instant of the second record, next to each other
//! ```
//! Between the two records of a realloc the old address may be handed out to another thread; the old block is then
//! freed at that instant, and the realloc counts as a free and an allocation.

mod contexts;
mod existing;
mod kinds;
mod occupancy;
mod order;
mod origins;
mod pages;
mod rare;
mod state;

use std::collections::HashMap;
use std::io;

pub use contexts::ContextNumbers;
use existing::ExistingBlocks;
use kinds::KindClass;
use kinds::is_in_pool;
pub use kinds::key_of;
pub use occupancy::OccupiedRun;
use occupancy::PageOccupancy;
pub use order::WINDOW_NS;
use order::{MOST_TRIES, Recent};
pub use origins::Origins;
pub use state::{HalfRealloc, PairingThread, Totals};
use state::{LastAllocs, NO_ROW};
use tracehound_format::record::{Kind, RequestDetails};

use super::clock::ClockMap;
use super::event_batch::EventBatch;
use super::live_map::{LiveBlock, LiveMap};
use tracehound_index::facts::{PeakPosition, TEMPORARY_WITHIN};
use tracehound_index::layout::{Granularity, ODD_ADDRESS, TEMPORARY_BIT, lifetime_class};
use tracehound_index::schema::{LateTemporary, OddAddress, OrphanRealloc};

/// An event on its way from the merge, in true order.
#[derive(Debug, Clone, Copy, Default)]
pub struct MergedEvent {
    /// Clock ticks, not smaller than the event's before.
    pub tick: u64,
    /// Address word.
    pub address: u64,
    /// Size modulo 2^32.
    pub size: u32,
    /// Index into [`Origins`].
    pub origin: u32,
    /// Position in the list of threads.
    pub thread: u32,
    /// Kind number.
    pub kind: u8,
}

impl MergedEvent {
    /// The same as an event of another kind.
    const fn of(self, kind: Kind) -> Self {
        Self { kind: kind as u8, ..self }
    }
}

/// See the module's description.
#[derive(Debug)]
pub struct PairingEngine {
    /// Ticks to nanoseconds.
    pub clock: ClockMap,
    /// Threads by position.
    pub threads: Vec<PairingThread>,
    thread_index: HashMap<u32, u32>,
    /// Distinct origins.
    pub origins: Origins,
    /// Totals.
    pub totals: Totals,
    live: LiveMap,
    occupancy: PageOccupancy,
    chunk: EventBatch,
    fine: Granularity,
    /// Threads that are between the two records of a realloc.
    halves: u32,
    /// Threads whose next record has an upper half of its size.
    carries: u32,
    /// Events up to this tick may be in another order than in the file.
    moved_until: u64,
    /// The last frees.
    recent: Recent,
    /// Request contexts.
    pub contexts: ContextNumbers,
    /// Blocks from before the recording.
    pub existing: ExistingBlocks,
}

/// Events between the fetch of a slot of the live map and its use.
const AHEAD: usize = 20;

impl PairingEngine {
    /// An engine at the start of a recording.
    #[must_use]
    pub fn new(live: LiveMap, clock: ClockMap, fine: Granularity) -> Self {
        Self {
            clock,
            threads: Vec::new(),
            thread_index: HashMap::new(),
            origins: Origins::default(),
            totals: Totals::default(),
            live,
            occupancy: PageOccupancy::default(),
            chunk: EventBatch::default(),
            fine,
            halves: 0,
            carries: 0,
            moved_until: 0,
            recent: Recent::default(),
            contexts: ContextNumbers::default(),
            existing: ExistingBlocks::default(),
        }
    }

    /// Continues from the state that an earlier run has left: totals, threads, and the live blocks, given as key and
    /// block.
    ///
    /// # Errors
    /// When the live map cannot grow.
    pub fn restore(
        &mut self,
        totals: Totals,
        threads: Vec<PairingThread>,
        live: impl Iterator<Item = (u64, LiveBlock)>,
    ) -> io::Result<()> {
        for (key, block) in live {
            self.live.insert(key, block)?;
            self.occupy(key, block.size);
        }
        self.totals = totals;
        self.thread_index = threads.iter().enumerate().map(|(i, t)| (t.id, i as u32)).collect();
        self.threads = threads;
        for thread in &mut self.threads {
            for half in thread.halves() {
                self.halves += 1;
                if half.row.is_some() && !half.split {
                    half.live = self.live.remove(half.address);
                }
            }
            self.carries += u32::from(!thread.details.is_empty());
        }
        self.start_chunk();
        Ok(())
    }

    /// Position of a thread in the list; it is added if it is new.
    pub fn thread(&mut self, id: u32) -> u32 {
        *self.thread_index.entry(id).or_insert_with(|| {
            let index = self.threads.len() as u32;
            self.threads.push(PairingThread::new(id));
            index
        })
    }

    /// Index of an origin; it is added if it is new.
    pub fn origin(&mut self, node: u32, thread: u32, kind: u8) -> u32 {
        self.origins.intern(node, thread, kind, &mut self.chunk)
    }

    /// Indices of many origins of a thread, given as nodes and kinds.
    pub fn origins_of(&mut self, pairs: &[(u32, u8)], thread: u32) -> Vec<u32> {
        self.origins.intern_all(pairs, thread, &mut self.chunk)
    }

    /// Events to be paired in one go, at most `most`: no more than go into a chunk.
    #[must_use]
    pub fn batch_events(&self, most: usize) -> usize {
        usize::try_from(self.fine.chunk_events).unwrap_or(most).clamp(1, most)
    }

    /// Rows that have a zone.
    #[must_use]
    pub const fn zone_rows(&self) -> u64 {
        self.fine.zone_rows
    }

    /// Forgets the last allocations of a thread, so that none of them counts as temporary.
    pub fn forget_last_allocs(&mut self, thread: u32) {
        if let Some(thread) = self.threads.get_mut(thread as usize) {
            thread.last_allocs = [NO_ROW; TEMPORARY_WITHIN + 1];
        }
    }

    /// Bytes of the table of live blocks.
    #[must_use]
    pub fn table_bytes(&self) -> u64 {
        self.live.table_bytes()
    }

    /// Takes the events before tick `until` (`None`: all), which come in the order of their stamps, and returns
    /// how many they were. Later events are only read, to correct hand-overs, and may be in another order afterwards.
    /// What is put off until then or later is not taken. `hand_over` gets full chunks and gives empty ones back.
    ///
    /// # Errors
    /// When memory or disk runs out.
    pub fn take(
        &mut self,
        events: &mut [MergedEvent],
        until: Option<u64>,
        hand_over: &mut impl FnMut(EventBatch) -> io::Result<EventBatch>,
    ) -> io::Result<usize> {
        for event in events.iter().take(AHEAD) {
            self.live.prefetch(key_of(event.address, event.kind));
        }
        let (mut at, mut tries) = (0, 0);
        while let Some(&event) = events.get(at).filter(|event| until.is_none_or(|until| event.tick < until)) {
            if let Some(next) = events.get(at + AHEAD) {
                self.live.prefetch(key_of(next.address, next.kind));
            }
            let class = KindClass::of(event.kind);
            if self.halves > 0 && class != KindClass::ReallocTo {
                self.drop_half(&event);
            }
            let may_wait = tries < MOST_TRIES;
            let is_tied = events.get(at + 1).is_some_and(|next| next.tick == event.tick);
            if is_tied && may_wait && class != KindClass::Other && self.put_off_tied(events, at) {
                tries += 1;
                continue;
            }
            let taken = match class {
                KindClass::Alloc => {
                    let ns = self.clock.convert(event.tick);
                    let taken = self.alloc(ns, &event, event.origin, false, events, at, may_wait)?;
                    self.totals.counts.alloc += u64::from(taken);
                    taken
                }
                KindClass::Free => match self.live.remove(key_of(event.address, event.kind)) {
                    Some(live) => {
                        self.totals.counts.free += 1;
                        let ns = self.clock.convert(event.tick);
                        self.free(ns, key_of(event.address, event.kind), live, event.origin, true);
                        self.recent.note(&event, self.totals.frees - 1);
                        true
                    }
                    None if self.existing.holds(key_of(event.address, event.kind)) => {
                        self.totals.counts.free += 1;
                        let ns = self.clock.convert(event.tick);
                        self.end_existing(ns, &event)
                    }
                    None if may_wait && self.put_off_free(events, at) => false,
                    None => {
                        self.totals.counts.free += 1;
                        let ns = self.clock.convert(event.tick);
                        self.unmatched(ns, &event);
                        true
                    }
                },
                KindClass::ReallocFrom => match self.live.remove(event.address) {
                    None if may_wait && !self.existing.holds(event.address) && self.put_off_free(events, at) => false,
                    live => {
                        self.realloc_from(&event, live);
                        true
                    }
                },
                KindClass::ReallocTo => self.realloc_to(&event, events, at, may_wait)?,
                KindClass::Other => {
                    self.other(&event);
                    true
                }
            };
            if !taken {
                tries += 1;
                continue;
            }
            (at, tries) = (at + 1, 0);
            self.totals.counts.total += 1;
            if self.chunk.events() >= self.fine.chunk_events && self.totals.page_events >= self.fine.page_events {
                self.close_page();
                self.hand_over(hand_over)?;
            }
        }
        Ok(at)
    }

    /// The event's size with its upper half, and the details of the record in front of it.
    #[inline]
    fn full_size(&mut self, event: &MergedEvent) -> (u64, RequestDetails) {
        if self.carries == 0 {
            return (u64::from(event.size), RequestDetails::default());
        }
        let thread = &mut self.threads[event.thread as usize];
        self.carries -= u32::from(!thread.details.is_empty());
        let details = std::mem::take(&mut thread.details);
        (u64::from(event.size) | details.size_high() << 32, details)
    }

    /// Takes an allocation. False when the event at `at` was deferred, which `may_wait` permits: nothing has changed then.
    #[inline]
    #[allow(clippy::too_many_arguments)] // The fast path's state, in registers.
    fn alloc(
        &mut self,
        ns: u64,
        event: &MergedEvent,
        origin: u32,
        with_previous: bool,
        events: &mut [MergedEvent],
        at: usize,
        may_wait: bool,
    ) -> io::Result<bool> {
        let (size, details) = self.full_size(event);
        let origin = match details.alignment() {
            0 => origin,
            alignment => self.origins.aligned(origin, alignment, &mut self.chunk),
        };
        let key = key_of(event.address, event.kind);
        if self.halves > 0 {
            self.split_half(ns, key);
        }
        let row = self.totals.allocs;
        if let Some(old) = self.live.insert(key, LiveBlock { born_ns: ns, size, row, origin })? {
            if may_wait && self.put_off_alloc(events, at) {
                self.live.insert(key, old)?;
                self.give_back(event.thread, details);
                return Ok(false);
            }
            self.overwrite(ns, key, old, event.thread);
        }
        if self.existing.holds(key) {
            self.replace_existing(ns, event);
        }
        let since = self.page_time(ns, with_previous);
        let chunk = &mut self.chunk;
        chunk.alloc_time.push(since);
        chunk.alloc_size.push(match u32::try_from(size) {
            Ok(size) if size != u32::MAX => size,
            _ => {
                chunk.large.push(size);
                u32::MAX
            }
        });
        chunk.alloc_origin.push(origin);
        chunk.alloc_address.push(event.address as u32);
        chunk.alloc_address_high.push(match event.address >> 32 {
            high if high < u64::from(ODD_ADDRESS) => high as u16,
            _ => {
                chunk.odd.push(OddAddress { row, address: event.address });
                ODD_ADDRESS
            }
        });
        if self.contexts.are_used() {
            let context = self.context_of(event.thread);
            self.chunk.alloc_context.push(context);
        }
        let t = &mut self.totals;
        t.allocs += 1;
        t.allocated += size;
        t.live += size;
        self.occupy(key, size);
        let t = &mut self.totals;
        if t.live > t.peak.bytes {
            let (count, events) = (t.allocs - t.frees, t.allocs + t.frees);
            t.peak = PeakPosition { bytes: t.live, count, at_ns: ns, events };
        }
        note_alloc(&mut self.threads[event.thread as usize].last_allocs, row);
        self.note(false, true);
        Ok(true)
    }

    #[inline]
    fn free(&mut self, ns: u64, key: u64, live: LiveBlock, origin: u32, settled: bool) {
        let since = self.page_time(ns, false);
        let bearer = self.origins.thread(live.origin);
        let is_temporary = self.threads.get(bearer as usize).is_some_and(|t| t.last_allocs.contains(&live.row));
        let mut lifetime_class = 1 + lifetime_class(ns.saturating_sub(live.born_ns));
        let chunk = &mut self.chunk;
        if is_temporary {
            lifetime_class |= TEMPORARY_BIT;
            self.totals.temporary.0 += 1;
            self.totals.temporary.1 += live.size;
            if live.row >= self.totals.bucket_start.0 {
                chunk.temporary.push((live.origin, live.size));
            } else {
                chunk.late.push(LateTemporary { row: live.row, origin: live.origin, size: live.size });
            }
        }
        chunk.free_time.push(since);
        chunk.free_row.push(live.row);
        chunk.free_origin.push(origin);
        chunk.free_alloc_origin.push(live.origin);
        chunk.free_size.push(live.size);
        chunk.free_class.push(lifetime_class);
        if self.contexts.are_used() {
            let context = self.context_of(self.origins.thread(origin));
            self.chunk.free_context.push(context);
        }
        self.totals.frees += 1;
        self.totals.live -= live.size;
        if !is_in_pool(key) {
            self.occupancy.remove(key, live.size);
        }
        self.note(true, settled);
    }

    /// A block is in its pages. Those of a pool lie in a block of the allocator.
    #[inline]
    fn occupy(&mut self, key: u64, size: u64) {
        if !is_in_pool(key) {
            self.occupancy.add(key, size);
        }
    }

    #[inline]
    fn realloc_from(&mut self, event: &MergedEvent, live: Option<LiveBlock>) {
        let existing = live.is_none() && self.existing.holds(event.address) && {
            let ns = self.clock.convert(event.tick);
            self.end_existing(ns, event)
        };
        let (address, origin, row) = (event.address, event.origin, live.map(|l| l.row));
        let half = HalfRealloc { address, origin, row, live, split: false, existing, between: event.size };
        if let Some(thread) = self.threads.get_mut(event.thread as usize) {
            let outer = thread.half_realloc.replace(half);
            thread.outer_halves.extend(outer);
            self.halves += 1;
        }
    }

    /// Takes the second half of a realloc. False when the event at `at` was deferred.
    #[inline]
    fn realloc_to(
        &mut self,
        event: &MergedEvent,
        events: &mut [MergedEvent],
        at: usize,
        may_wait: bool,
    ) -> io::Result<bool> {
        let ns = self.clock.convert(event.tick);
        // Other changes at this instant come before, so that the two halves stay together.
        if let Some(occupant) = self.live.remove(event.address) {
            if may_wait && self.put_off_alloc(events, at) {
                self.live.insert(event.address, occupant)?;
                return Ok(false);
            }
            self.overwrite(ns, event.address, occupant, event.thread);
        }
        let half = self.threads.get_mut(event.thread as usize).and_then(PairingThread::take_half);
        self.halves -= u32::from(half.is_some());
        match half {
            Some(HalfRealloc { live: Some(old), origin, address, .. }) => {
                self.totals.counts.realloc += 1;
                if self.halves > 0 {
                    self.split_half(ns, event.address);
                }
                self.free(ns, address, old, origin, false);
                self.alloc(ns, event, event.origin, true, events, at, false)
            }
            Some(HalfRealloc { split: true, .. }) => {
                self.totals.counts.alloc += 1;
                let from = self.origins.list().get(event.origin as usize).copied();
                let node = from.map_or(0, |o| o.node);
                let kind = if event.kind == Kind::ReallocTo as u8 { Kind::ReallocNew } else { Kind::ReallocarrayNew };
                let origin = self.origins.intern(node, event.thread, kind as u8, &mut self.chunk);
                let event = MergedEvent { kind: kind as u8, ..*event };
                self.alloc(ns, &event, origin, false, events, at, false)
            }
            other => {
                // The old block was not seen, or its record is lost.
                self.totals.counts.realloc += 1;
                self.totals.counts.unmatched += u64::from(other.is_some_and(|half| !half.existing));
                let old_address = other.map_or(u64::MAX, |half| half.address);
                self.chunk.orphans.push(OrphanRealloc { row: self.totals.allocs, old_address });
                self.alloc(ns, event, event.origin, false, events, at, false)
            }
        }
    }
}

#[inline]
fn note_alloc(last: &mut LastAllocs, row: u64) {
    for at in (1..last.len()).rev() {
        last[at] = last[at - 1];
    }
    last[0] = row;
}

#[cfg(test)]
mod tests;
