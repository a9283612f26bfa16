//! The heart of ingest: takes all events in their true order, pairs births with deaths, and writes columns.
//!
//! ```text
//! birth   row = births so far; columns of births; the block goes into the live map
//! death   the live map knows row, size, birth; columns of deaths; ledger and fate of the row are filled in
//! realloc death of the old block and birth of the new one at the instant of the second record, next to each other
//! ```
//! Between the two records of a realloc the old address may be handed out to another thread; the old block then dies at
//! that instant, and the realloc counts as a free and an allocation.

use std::collections::HashMap;
use std::io;

use serde::{Deserialize, Serialize};
use tracehound_format::record::Kind;

use super::chunk::{Chunk, Other};
use super::clock::ClockMap;
use super::live_map::{Live, LiveMap};
use crate::trace::column::Ledger;
use crate::trace::facts::{EventCounts, Peak, TEMPORARY_WITHIN};
use crate::trace::layout::{
    FATE_TEMPORARY, Granularity, LARGE_SIZE, NO_SITE, ODD_ADDRESS, Origin, Page, lifetime_class,
};

/// An event on its way from the merge, in true order.
#[derive(Debug, Clone, Copy, Default)]
pub struct Event {
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
    /// Kind number; [`DONE`] once it was taken out of turn.
    pub kind: u8,
}

/// Kind of an event that was taken already.
pub const DONE: u8 = 0;

/// What a kind means here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Skip,
    Alloc,
    Free,
    ReallocFrom,
    ReallocTo,
    Other,
}

const CLASSES: [Class; 64] = {
    let mut classes = [Class::Other; 64];
    let mut number = 1;
    while number < 64 {
        if let Some(kind) = Kind::from_u8(number) {
            classes[number as usize] = if kind.is_alloc() {
                Class::Alloc
            } else if kind.is_free() {
                Class::Free
            } else if kind.is_realloc_from() {
                Class::ReallocFrom
            } else if kind.is_realloc_to() {
                Class::ReallocTo
            } else {
                Class::Other
            };
        }
        number += 1;
    }
    classes[DONE as usize] = Class::Skip;
    classes
};

/// Blocks of a pool lie inside blocks of the allocator, often at the very same address: they are told apart.
const POOL: u64 = 1 << 63;

/// Key of a block in the live map.
#[inline]
#[must_use]
pub fn key_of(address: u64, kind: u8) -> u64 {
    if kind == Kind::PoolAlloc as u8 || kind == Kind::PoolFree as u8 { address ^ POOL } else { address }
}

/// First half of a realloc, waiting for the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HalfRealloc {
    address: u64,
    origin: u32,
    /// Row of the old block, if it was seen.
    row: Option<u32>,
    #[serde(skip)]
    live: Option<Live>,
    /// The old block has died already, because its address was handed out again.
    split: bool,
}

/// What must be remembered of a thread between its records.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ThreadState {
    /// Recording-wide id.
    pub id: u32,
    /// Number of the next record.
    pub next_record: u64,
    /// Records known to exist from headers of blocks that could not be read.
    pub known_records: u64,
    /// Time of the last record, ticks.
    pub last_tick: u64,
    /// It made an event.
    pub active: bool,
    size_high: u64,
    map_detail: Option<(u64, u32)>,
    half_remap: Option<(u64, u64)>,
    half_realloc: Option<HalfRealloc>,
    /// Rows of its last births, latest first.
    last_births: [u32; TEMPORARY_WITHIN + 1],
}

const NO_ROW: u32 = u32::MAX;

/// All distinct origins, and the sites among them.
#[derive(Debug, Default)]
pub struct Origins {
    list: Vec<Origin>,
    by_key: HashMap<(u32, u32, u8), u32>,
    site_of_node: HashMap<u32, u32>,
}

impl Origins {
    /// The list, by index.
    #[must_use]
    pub fn list(&self) -> &[Origin] {
        &self.list
    }

    /// Takes one that is known already; for resuming.
    pub fn restore(&mut self, origin: Origin) {
        let index = self.list.len() as u32;
        self.by_key.insert((origin.node, origin.thread, origin.kind), index);
        if origin.site != NO_SITE {
            self.site_of_node.insert(origin.node, origin.site);
        }
        self.list.push(origin);
    }

    fn intern(&mut self, node: u32, thread: u32, kind: u8, chunk: &mut Chunk) -> u32 {
        let next = self.list.len() as u32;
        let index = *self.by_key.entry((node, thread, kind)).or_insert(next);
        if index == next {
            let bears = matches!(CLASSES[(kind & 63) as usize], Class::Alloc | Class::ReallocTo);
            let site = if bears {
                let next_site = self.site_of_node.len() as u32;
                let site = *self.site_of_node.entry(node).or_insert(next_site);
                if site == next_site {
                    chunk.sites.push(node);
                }
                site
            } else {
                NO_SITE
            };
            let origin = Origin { node, thread, kind, site };
            self.list.push(origin);
            chunk.origins.push(origin);
        }
        index
    }
}

/// Totals and positions; everything that a later run needs to go on.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Numbers of events.
    pub counts: EventCounts,
    /// Births so far.
    pub births: u64,
    /// Deaths so far.
    pub deaths: u64,
    /// Bytes of all births.
    pub allocated: u64,
    /// Live bytes.
    pub live: u64,
    /// Temporary blocks: count, bytes.
    pub temporary: (u64, u64),
    /// The peak.
    pub peak: Peak,
    /// Records known to be missing.
    pub lost: u64,
    /// Time of the last event.
    pub last_ns: u64,
    /// The page that is being filled; `None` before the first event.
    pub page: Option<Page>,
    /// Events in it.
    pub page_events: u64,
    /// Pages before it.
    pub pages: u64,
    /// The word of order bits that is being filled.
    pub order_word: u64,
    /// Births and deaths when the open bucket began.
    pub bucket_start: (u64, u64),
    /// Switches of recording: time, on.
    pub switches: Vec<(u64, bool)>,
}

/// See the module's text.
#[derive(Debug)]
pub struct Engine {
    /// Ticks to nanoseconds.
    pub clock: ClockMap,
    /// Threads by position.
    pub threads: Vec<ThreadState>,
    thread_index: HashMap<u32, u32>,
    /// Distinct origins.
    pub origins: Origins,
    /// Totals.
    pub totals: Totals,
    live: LiveMap,
    death: Ledger<u32>,
    fate: Ledger<u8>,
    chunk: Chunk,
    fine: Granularity,
    halves: u32,
    carries: u32,
}

/// More births than row numbers.
const MAX_BIRTHS: u64 = u32::MAX as u64 - 1;

impl Engine {
    /// An engine at the start of a recording.
    #[must_use]
    pub fn new(live: LiveMap, death: Ledger<u32>, fate: Ledger<u8>, clock: ClockMap, fine: Granularity) -> Self {
        Self {
            clock,
            threads: Vec::new(),
            thread_index: HashMap::new(),
            origins: Origins::default(),
            totals: Totals::default(),
            live,
            death,
            fate,
            chunk: Chunk::default(),
            fine,
            halves: 0,
            carries: 0,
        }
    }

    /// Goes on from what an earlier run left: totals, threads, and the live blocks, given as key and block.
    ///
    /// # Errors
    /// When the live map cannot grow.
    pub fn restore(
        &mut self,
        totals: Totals,
        threads: Vec<ThreadState>,
        live: impl Iterator<Item = (u64, Live)>,
    ) -> io::Result<()> {
        for (key, block) in live {
            self.live.insert(key, block)?;
        }
        self.totals = totals;
        self.thread_index = threads.iter().enumerate().map(|(i, t)| (t.id, i as u32)).collect();
        self.threads = threads;
        for thread in &mut self.threads {
            if let Some(half) = &mut thread.half_realloc {
                self.halves += 1;
                if half.row.is_some() && !half.split {
                    half.live = self.live.remove(half.address);
                }
            }
            self.carries += u32::from(thread.size_high != 0);
        }
        self.death.reserve(self.totals.births)?;
        self.fate.reserve(self.totals.births)?;
        self.start_chunk();
        Ok(())
    }

    /// Position of a thread in the list; it is added if it is new.
    pub fn thread(&mut self, id: u32) -> u32 {
        *self.thread_index.entry(id).or_insert_with(|| {
            let index = self.threads.len() as u32;
            self.threads.push(ThreadState {
                id,
                last_births: [NO_ROW; TEMPORARY_WITHIN + 1],
                ..ThreadState::default()
            });
            index
        })
    }

    /// Index of an origin; it is added if it is new.
    pub fn origin(&mut self, node: u32, thread: u32, kind: u8) -> u32 {
        self.origins.intern(node, thread, kind, &mut self.chunk)
    }

    /// The ledgers of deaths and fates.
    #[must_use]
    pub fn ledgers(&self) -> (&Ledger<u32>, &Ledger<u8>) {
        (&self.death, &self.fate)
    }

    /// Gives the ledgers up, to be finished.
    #[must_use]
    pub fn into_ledgers(self) -> (Ledger<u32>, Ledger<u8>) {
        (self.death, self.fate)
    }

    /// Bytes of the table of live blocks.
    #[must_use]
    pub fn table_bytes(&self) -> u64 {
        self.live.table_bytes()
    }

    /// Takes events in their true order. `hand_over` gets full chunks. Events of the same tick must come in one call.
    ///
    /// # Errors
    /// When memory or disk runs out, or there are more births than row numbers.
    pub fn take(
        &mut self,
        events: &mut [Event],
        hand_over: &mut impl FnMut(Chunk) -> io::Result<()>,
    ) -> io::Result<()> {
        let births = self.totals.births + events.len() as u64;
        if births > MAX_BIRTHS {
            return Err(io::Error::other("the recording has more than 4,294,967,294 allocations"));
        }
        self.death.reserve(births)?;
        self.fate.reserve(births)?;
        const AHEAD: usize = 12;
        for event in events.iter().take(AHEAD) {
            self.live.prefetch(key_of(event.address, event.kind));
        }
        for at in 0..events.len() {
            if let Some(next) = events.get(at + AHEAD) {
                self.live.prefetch(key_of(next.address, next.kind));
            }
            let event = events[at];
            let class = CLASSES[(event.kind & 63) as usize];
            if self.halves > 0 && class != Class::ReallocTo {
                self.drop_half(&event);
            }
            match class {
                Class::Alloc => {
                    self.totals.counts.alloc += 1;
                    let ns = self.clock.convert(event.tick);
                    self.birth(ns, &event, event.origin, false, events, at)?;
                }
                Class::Free => {
                    self.totals.counts.free += 1;
                    let ns = self.clock.convert(event.tick);
                    match self.live.remove(key_of(event.address, event.kind)) {
                        Some(live) => self.death(ns, live, event.origin, true),
                        None => self.unmatched(ns, &event),
                    }
                }
                Class::ReallocFrom => self.realloc_from(&event),
                Class::ReallocTo => self.realloc_to(&event, events, at)?,
                Class::Other => self.other(&event),
                Class::Skip => {}
            }
            if self.chunk.events() >= self.fine.chunk_events && self.totals.page_events >= self.fine.page_events {
                self.close_page();
                self.hand_over(hand_over)?;
            }
        }
        Ok(())
    }

    /// Hands over what there is, in the middle of a page.
    ///
    /// # Errors
    /// Those of `hand_over`.
    pub fn flush(&mut self, hand_over: &mut impl FnMut(Chunk) -> io::Result<()>) -> io::Result<()> {
        if !self.chunk.is_empty() {
            self.hand_over(hand_over)?;
        }
        Ok(())
    }

    fn hand_over(&mut self, hand_over: &mut impl FnMut(Chunk) -> io::Result<()>) -> io::Result<()> {
        let events = self.totals.births + self.totals.deaths;
        if !events.is_multiple_of(64) {
            // The open word goes along when it is full; until then the snapshot carries it.
            let full = (events / 64 - self.chunk.order_first) as usize;
            self.chunk.order.truncate(full);
        }
        let bucket_events = events - self.totals.bucket_start.0 - self.totals.bucket_start.1;
        if bucket_events >= self.fine.bucket_events && self.totals.page.is_none() {
            self.chunk.ends_bucket = true;
            self.totals.bucket_start = (self.totals.births, self.totals.deaths);
        }
        let chunk = std::mem::take(&mut self.chunk);
        self.start_chunk();
        hand_over(chunk)
    }

    fn start_chunk(&mut self) {
        let events = self.totals.births + self.totals.deaths;
        self.chunk.first_birth = self.totals.births;
        self.chunk.order_first = events / 64;
        if !events.is_multiple_of(64) {
            self.chunk.order.push(self.totals.order_word);
        }
    }

    fn close_page(&mut self) {
        if let Some(page) = self.totals.page.take() {
            self.chunk.pages.push(page);
            self.totals.pages += 1;
            self.totals.page_events = 0;
        }
    }

    /// Nanoseconds since the page's time; opens a page where that is needed. The second half of a pair stays with the
    /// first.
    #[inline]
    fn page_time(&mut self, ns: u64, with_previous: bool) -> u32 {
        self.totals.last_ns = ns;
        if let Some(page) = &self.totals.page {
            let since = ns - page.time_ns;
            if with_previous || since <= u64::from(u32::MAX) && self.totals.page_events < self.fine.page_events {
                return since as u32;
            }
        }
        self.open_page(ns);
        0
    }

    fn open_page(&mut self, ns: u64) {
        self.close_page();
        let t = &mut self.totals;
        t.page = Some(Page {
            time_ns: ns,
            births: t.births as u32,
            deaths: t.deaths as u32,
            allocated: t.allocated,
            live: t.live,
            min_bytes: u64::MAX,
            max_bytes: 0,
            min_count: u32::MAX,
            max_count: 0,
        });
    }

    /// Notes one event in the order and in the page; `settled` = the state after it counts for the extremes.
    #[inline]
    fn note(&mut self, is_death: bool, settled: bool) {
        let t = &mut self.totals;
        let bit = (t.births + t.deaths - 1) % 64;
        if bit == 0 {
            t.order_word = 0;
            self.chunk.order.push(0);
        }
        t.order_word |= u64::from(is_death) << bit;
        if let Some(word) = self.chunk.order.last_mut() {
            *word = t.order_word;
        }
        t.page_events += 1;
        if let (true, Some(page)) = (settled, &mut t.page) {
            let count = (t.births - t.deaths) as u32;
            page.min_bytes = page.min_bytes.min(t.live);
            page.max_bytes = page.max_bytes.max(t.live);
            page.min_count = page.min_count.min(count);
            page.max_count = page.max_count.max(count);
        }
    }

    #[inline]
    fn full_size(&mut self, event: &Event) -> u64 {
        if self.carries == 0 {
            return u64::from(event.size);
        }
        let thread = &mut self.threads[event.thread as usize];
        self.carries -= u32::from(thread.size_high != 0);
        u64::from(event.size) | std::mem::take(&mut thread.size_high) << 32
    }

    #[inline]
    fn birth(
        &mut self,
        ns: u64,
        event: &Event,
        origin: u32,
        with_previous: bool,
        events: &mut [Event],
        at: usize,
    ) -> io::Result<()> {
        let size = self.full_size(event);
        let key = key_of(event.address, event.kind);
        if self.halves > 0 {
            self.split_half(ns, key);
        }
        let row = self.totals.births as u32;
        if let Some(old) = self.live.insert(key, Live { born_ns: ns, size, row, origin })? {
            self.settle_collision(ns, key, old, events, at);
        }
        let since = self.page_time(ns, with_previous);
        let chunk = &mut self.chunk;
        chunk.birth_time.push(since);
        chunk.birth_size.push(match u32::try_from(size) {
            Ok(size) if size != LARGE_SIZE => size,
            _ => {
                chunk.large.push((u64::from(row), size));
                LARGE_SIZE
            }
        });
        chunk.birth_origin.push(origin);
        chunk.birth_address.push(event.address as u32);
        chunk.birth_address_high.push(match event.address >> 32 {
            high if high < u64::from(ODD_ADDRESS) => high as u16,
            _ => {
                chunk.odd.push((u64::from(row), event.address));
                ODD_ADDRESS
            }
        });
        let t = &mut self.totals;
        t.births += 1;
        t.allocated += size;
        t.live += size;
        if t.live > t.peak.bytes {
            let (count, events) = (t.births - t.deaths, t.births + t.deaths);
            t.peak = Peak { bytes: t.live, count, at_ns: ns, events };
        }
        let last = &mut self.threads[event.thread as usize].last_births;
        last.rotate_right(1);
        last[0] = row;
        self.note(false, true);
        Ok(())
    }

    #[inline]
    fn death(&mut self, ns: u64, live: Live, origin: u32, settled: bool) {
        let since = self.page_time(ns, false);
        let bearer = self.origins.list.get(live.origin as usize).map_or(0, |o| o.thread);
        let is_temporary = self.threads.get(bearer as usize).is_some_and(|t| t.last_births.contains(&live.row));
        let ordinal = self.totals.deaths as u32;
        let mut fate = 1 + lifetime_class(ns.saturating_sub(live.born_ns));
        let chunk = &mut self.chunk;
        if is_temporary {
            fate |= FATE_TEMPORARY;
            self.totals.temporary.0 += 1;
            self.totals.temporary.1 += live.size;
            if u64::from(live.row) >= self.totals.bucket_start.0 {
                chunk.temporary.push((live.origin, live.size));
            } else {
                chunk.late.push((live.row, live.origin, live.size));
            }
        }
        self.death.store(u64::from(live.row), ordinal + 1);
        self.fate.store(u64::from(live.row), fate);
        chunk.death_time.push(since);
        chunk.death_row.push(live.row);
        chunk.death_origin.push(origin);
        chunk.death_birth_origin.push(live.origin);
        chunk.death_size.push(live.size);
        self.totals.deaths += 1;
        self.totals.live -= live.size;
        self.note(true, settled);
    }

    #[cold]
    fn unmatched(&mut self, ns: u64, event: &Event) {
        self.totals.counts.unmatched += 1;
        self.push_other(ns, event, event.address, 0, 0, 0);
    }

    fn push_other(&mut self, ns: u64, event: &Event, a: u64, b: u64, c: u64, d: u64) {
        let node = self.origins.list.get(event.origin as usize).map_or(0, |o| o.node);
        self.totals.last_ns = self.totals.last_ns.max(ns);
        self.chunk.others.push(Other {
            position: self.totals.births + self.totals.deaths,
            t_ns: ns,
            thread: event.thread,
            kind: event.kind,
            node,
            a,
            b,
            c,
            d,
        });
    }

    /// A block is born where one lives: either its free carries the same tick and comes behind in the order of threads,
    /// or its end was not seen.
    #[cold]
    fn settle_collision(&mut self, ns: u64, key: u64, old: Live, events: &mut [Event], at: usize) {
        let born = events[at];
        let rest = events.iter_mut().skip(at + 1).take_while(|e| e.tick == born.tick);
        for event in rest {
            let class = CLASSES[(event.kind & 63) as usize];
            let ends = matches!(class, Class::Free | Class::ReallocFrom);
            if ends && event.thread != born.thread && key_of(event.address, event.kind) == key {
                let (thread, origin) = (event.thread, event.origin);
                event.kind = DONE;
                if class == Class::Free {
                    self.totals.counts.free += 1;
                    self.death(ns, old, origin, true);
                } else {
                    self.die_as_free(ns, old, origin);
                    let half = HalfRealloc { address: key, origin, row: None, live: None, split: true };
                    if let Some(thread) = self.threads.get_mut(thread as usize) {
                        thread.half_realloc = Some(half);
                        self.halves += 1;
                    }
                }
                return;
            }
        }
        self.totals.counts.overwritten += 1;
        let origin = self.origins.intern(0, born.thread, Kind::Lost as u8, &mut self.chunk);
        self.death(ns, old, origin, true);
    }

    fn die_as_free(&mut self, ns: u64, live: Live, origin: u32) {
        let from = self.origins.list.get(origin as usize).copied();
        let (node, thread) = from.map_or((0, 0), |o| (o.node, o.thread));
        let origin = self.origins.intern(node, thread, Kind::ReallocFree as u8, &mut self.chunk);
        self.totals.counts.free += 1;
        self.death(ns, live, origin, true);
    }

    #[inline]
    fn realloc_from(&mut self, event: &Event) {
        let live = self.live.remove(event.address);
        let half =
            HalfRealloc { address: event.address, origin: event.origin, row: live.map(|l| l.row), live, split: false };
        if let Some(thread) = self.threads.get_mut(event.thread as usize) {
            thread.half_realloc = Some(half);
            self.halves += 1;
        }
    }

    #[inline]
    fn realloc_to(&mut self, event: &Event, events: &mut [Event], at: usize) -> io::Result<()> {
        let ns = self.clock.convert(event.tick);
        let half = self.threads.get_mut(event.thread as usize).and_then(|t| t.half_realloc.take());
        self.halves -= u32::from(half.is_some());
        match half {
            Some(HalfRealloc { live: Some(old), origin, .. }) => {
                self.totals.counts.realloc += 1;
                // What else must happen at this instant happens before, so that the two halves stay together.
                if self.halves > 0 {
                    self.split_half(ns, event.address);
                }
                if let Some(occupant) = self.live.remove(event.address) {
                    self.settle_collision(ns, event.address, occupant, events, at);
                }
                self.death(ns, old, origin, false);
                self.birth(ns, event, event.origin, true, events, at)
            }
            Some(HalfRealloc { split: true, .. }) => {
                self.totals.counts.alloc += 1;
                let from = self.origins.list.get(event.origin as usize).copied();
                let node = from.map_or(0, |o| o.node);
                let kind = if event.kind == Kind::ReallocTo as u8 { Kind::ReallocNew } else { Kind::ReallocarrayNew };
                let origin = self.origins.intern(node, event.thread, kind as u8, &mut self.chunk);
                let event = Event { kind: kind as u8, ..*event };
                self.birth(ns, &event, origin, false, events, at)
            }
            other => {
                // The old block was not seen, or its record is lost.
                self.totals.counts.realloc += 1;
                self.totals.counts.unmatched += u64::from(other.is_some());
                let old_address = other.map_or(u64::MAX, |half| half.address);
                self.chunk.orphans.push((self.totals.births, old_address));
                self.birth(ns, event, event.origin, false, events, at)
            }
        }
    }

    /// The record behind a first half is not its second half: there is a gap, and the old block is gone.
    #[cold]
    fn drop_half(&mut self, event: &Event) {
        let carries_on = event.kind == Kind::SizeHigh as u8;
        let Some(thread) = self.threads.get_mut(event.thread as usize) else { return };
        if carries_on || event.kind == DONE || thread.half_realloc.is_none() {
            return;
        }
        let Some(half) = thread.half_realloc.take() else { return };
        self.halves -= 1;
        let ns = self.clock.convert(event.tick);
        if let Some(live) = half.live {
            self.die_as_free(ns, live, half.origin);
        } else if !half.split {
            self.totals.counts.free += 1;
            let kind = Kind::ReallocFree as u8;
            self.unmatched(ns, &Event { address: half.address, origin: half.origin, kind, ..*event });
        }
    }

    /// The address of a block that is being moved was handed out again: the block is dead now.
    #[cold]
    fn split_half(&mut self, ns: u64, key: u64) {
        for index in 0..self.threads.len() {
            let Some(half) = &mut self.threads[index].half_realloc else { continue };
            if half.address == key
                && let Some(live) = half.live.take()
            {
                half.split = true;
                let origin = half.origin;
                self.die_as_free(ns, live, origin);
                return;
            }
        }
    }

    #[cold]
    fn other(&mut self, event: &Event) {
        let ns = self.clock.convert(event.tick);
        let index = event.thread as usize;
        let Some(kind) = Kind::from_u8(event.kind) else {
            self.totals.counts.unknown += 1;
            return;
        };
        match kind {
            Kind::SizeHigh => {
                let Some(thread) = self.threads.get_mut(index) else { return };
                let high = event.address & u64::from(u32::MAX);
                self.carries += u32::from(thread.size_high == 0 && high != 0);
                self.carries -= u32::from(thread.size_high != 0 && high == 0);
                thread.size_high = high;
            }
            Kind::MapDetail => {
                if let Some(thread) = self.threads.get_mut(index) {
                    thread.map_detail = Some((event.address, event.size));
                }
            }
            Kind::Mmap | Kind::MapExisting => {
                self.totals.counts.map += 1;
                let len = self.full_size(event);
                let detail = self.threads.get_mut(index).and_then(|t| t.map_detail.take());
                let (protection, fd) = detail.map_or((0, u64::from(u32::MAX)), |(p, fd)| (p, u64::from(fd)));
                self.push_other(ns, event, event.address, len, protection, fd);
            }
            Kind::Munmap => {
                self.totals.counts.unmap += 1;
                let len = self.full_size(event);
                self.push_other(ns, event, event.address, len, 0, 0);
            }
            Kind::MremapFrom => {
                let len = self.full_size(event);
                if let Some(thread) = self.threads.get_mut(index) {
                    thread.half_remap = Some((event.address, len));
                }
            }
            Kind::MremapTo => {
                self.totals.counts.remap += 1;
                let len = self.full_size(event);
                let half = self.threads.get_mut(index).and_then(|t| t.half_remap.take());
                let (old, old_len) = half.unwrap_or((0, 0));
                self.push_other(ns, event, event.address, len, old, old_len);
            }
            Kind::Brk => {
                self.totals.counts.brk += 1;
                let high_given = self.threads.get(index).is_some_and(|t| t.size_high != 0);
                let low = self.full_size(event);
                // Without an upper half the 32 bits are the whole number, sign included.
                let moved = if high_given { low } else { i64::from(low as u32 as i32) as u64 };
                self.push_other(ns, event, event.address, moved, 0, 0);
            }
            Kind::Lost => {
                self.totals.lost += event.address;
                self.push_other(ns, event, event.address, 0, 0, 0);
            }
            Kind::CaptureStart | Kind::CaptureStop => {
                self.totals.switches.push((ns, kind == Kind::CaptureStart));
                self.push_other(ns, event, event.address, 0, 0, 0);
            }
            _ => self.push_other(ns, event, event.address, u64::from(event.size), 0, 0),
        }
    }
}
