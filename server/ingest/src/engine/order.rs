//! Order of hand-overs: events of one block whose stamps are equal or the wrong way round are put right.
//!
//! ```text
//! a free of no live block,         the alloc follows in the window:  the free's thread is deferred until behind the alloc
//! an alloc over a live block,      the free follows in the window:   the alloc's thread is deferred until behind the free
//! the same, but the free and the alloc are of one thread, and        these two frees are exchanged, then the other one is
//! another thread freed a block there just before:                    deferred until behind the alloc
//! three and more at one address and tick:                            an order in which allocs and frees alternate
//! ```
//! Stamps of today's recorder are equal where a hand-over takes less than a tick, and the wrong way round by a tick or two
//! where it takes less than a step of the CPUs' counters, which agree no better. Recorders that read the clock of a free
//! without a fence could stamp it before the alloc of its own block. A thread that waits takes all its events of the
//! window along, so its own order never changes.

use super::kinds::{KindClass, key_of};
use super::{MergedEvent, PairingEngine};

/// Largest distance of the two stamps of a hand-over that are in the wrong order.
pub const WINDOW_NS: u64 = 10_000;
/// Events that are looked through for the other half of a hand-over.
const MOST_EVENTS: usize = 4096;
/// Most events of one address and tick that are put in order together.
const MOST_TIED: usize = 16;
/// How often an event at one position may be deferred before it is taken as it is.
pub(super) const MOST_TRIES: u32 = 64;

/// Number of last frees that are kept.
const RECENT: usize = 256;

/// The last frees, so that one that took the block of another can be recognised.
#[derive(Debug)]
pub(super) struct Recent(Box<[Freed; RECENT]>);

#[derive(Debug, Clone, Copy)]
struct Freed {
    event: MergedEvent,
    ordinal: u64,
}

impl Default for Recent {
    fn default() -> Self {
        Self(Box::new(
            [Freed {
                event: MergedEvent { tick: 0, address: 0, size: 0, origin: 0, thread: 0, kind: 0 },
                ordinal: u64::MAX,
            }; RECENT],
        ))
    }
}

impl Recent {
    /// Remembers a free and the ordinal of its free.
    #[inline]
    pub(super) fn note(&mut self, event: &MergedEvent, ordinal: u64) {
        self.0[ordinal as usize % RECENT] = Freed { event: *event, ordinal };
    }

    /// The last free of the block at `key`, not before `tick`.
    fn last(&self, key: u64, tick: u64) -> Option<Freed> {
        let matching = |freed: &&Freed| {
            freed.ordinal != u64::MAX
                && freed.event.tick >= tick
                && key_of(freed.event.address, freed.event.kind) == key
        };
        self.0.iter().filter(matching).max_by_key(|freed| freed.ordinal).copied()
    }
}

/// Other events at an address in the window, in the order of the stamps.
struct Next {
    /// Position of the first event, whether it allocates, its thread.
    first: Option<(usize, bool, u32)>,
    /// Whether it and those behind it contradict the order of the stamps: two allocs or two frees in a row, if the
    /// event in front is taken where it is.
    contradicts: bool,
}

impl PairingEngine {
    /// Ticks of the window.
    #[must_use]
    pub fn window(&self) -> u64 {
        self.clock.ticks(WINDOW_NS)
    }

    /// Whether everything before `rest`, which has not been taken, is in the order of the file: then a later run can
    /// continue there.
    #[must_use]
    pub fn can_stop_before(&self, rest: &[MergedEvent]) -> bool {
        rest.first().is_none_or(|next| next.tick > self.moved_until)
    }

    /// The free at `at` finds no block. Returns whether it was deferred until behind the alloc that it belongs to.
    #[cold]
    pub(super) fn put_off_free(&mut self, events: &mut [MergedEvent], at: usize) -> bool {
        let next = look_ahead(events, at, self.window(), false);
        match next.first {
            Some((to, true, thread)) if self.has_no_gap() || next.contradicts => {
                if thread == events[at].thread && !self.change_places(events, at) {
                    return false;
                }
                self.put_off(events, at, to);
                true
            }
            _ => false,
        }
    }

    /// The free at `at` finds no block, and its thread allocates one there next. If another thread's free took the
    /// block just before, that one came too early: the block's free becomes that of the event at `at`, and the other
    /// one's event is at `at` afterwards.
    fn change_places(&mut self, events: &mut [MergedEvent], at: usize) -> bool {
        let Some(event) = events.get_mut(at) else { return false };
        let (key, since) = (key_of(event.address, event.kind), event.tick.saturating_sub(self.window()));
        let Some(freed) = self.recent.last(key, since).filter(|freed| freed.event.thread != event.thread) else {
            return false;
        };
        if KindClass::of(event.kind) != KindClass::Free {
            return false;
        }
        // What has been handed over cannot be changed any more.
        let place = freed.ordinal.checked_sub(self.chunk.first_free);
        let Some(origin) = place.and_then(|place| self.chunk.free_origin.get_mut(place as usize)) else {
            return false;
        };
        *origin = event.origin;
        let context = self.threads.get(event.thread as usize).map_or(0, |thread| thread.context);
        if let Some(of_free) = place.and_then(|place| self.chunk.free_context.get_mut(place as usize)) {
            *of_free = context;
        }
        self.recent.note(event, freed.ordinal);
        *event = MergedEvent { tick: event.tick, ..freed.event };
        true
    }

    /// The alloc at `at` finds a live block. Returns whether it was deferred until behind the free of that block.
    #[cold]
    pub(super) fn put_off_alloc(&mut self, events: &mut [MergedEvent], at: usize) -> bool {
        let next = look_ahead(events, at, self.window(), true);
        match next.first {
            Some((to, false, thread))
                if thread != events[at].thread
                    && (self.has_no_gap() || next.contradicts || events[to].tick == events[at].tick) =>
            {
                self.put_off(events, at, to);
                true
            }
            _ => false,
        }
    }

    /// The event at `at` shares its tick with the next one. Tells whether it was put off, because allocs and frees of
    /// its address alternate only if another one of that tick comes first. Two of them are left to the other rules.
    #[cold]
    pub(super) fn put_off_tied(&mut self, events: &mut [MergedEvent], at: usize) -> bool {
        let event = events[at];
        let key = key_of(event.address, event.kind);
        let tied: Vec<(usize, bool, u32)> = events
            .iter()
            .enumerate()
            .skip(at)
            .take(MOST_EVENTS)
            .take_while(|(_, other)| other.tick == event.tick)
            .filter(|(_, other)| key_of(other.address, other.kind) == key)
            .filter_map(|(index, other)| {
                let class = KindClass::of(other.kind);
                (class.allocates() || class.ends()).then_some((index, class.allocates(), other.thread))
            })
            .take(MOST_TIED + 1)
            .collect();
        if tied.len() < 3 || tied.len() > MOST_TIED {
            return false;
        }
        let mut order = Vec::with_capacity(tied.len());
        let mut steps = 1 << 12;
        if !alternate(&tied, self.live.get(key).is_some(), &mut order, &mut steps) {
            return false;
        }
        match order.first().and_then(|&first: &usize| tied.get(first)) {
            Some(&(to, _, thread)) if to != at && thread != event.thread => {
                self.put_off(events, at, to);
                true
            }
            _ => false,
        }
    }

    /// Whether nothing is known to be missing: every free has its alloc, and the other way round.
    fn has_no_gap(&self) -> bool {
        self.totals.lost == 0 && self.totals.switches.is_empty()
    }

    /// Defers the event at `at`, and those of its thread behind it, until behind the event at `to`.
    fn put_off(&mut self, events: &mut [MergedEvent], at: usize, to: usize) {
        let Some(window) = events.get_mut(at..=to) else { return };
        let (Some(first), Some(last)) = (window.first().copied(), window.last().copied()) else { return };
        self.totals.counts.reordered += u64::from(first.tick != last.tick);
        self.moved_until = self.moved_until.max(last.tick);
        let (moved, others): (Vec<MergedEvent>, Vec<MergedEvent>) =
            window.iter().partition(|event| event.thread == first.thread);
        let moved = moved.into_iter().map(|event| MergedEvent { tick: last.tick, ..event });
        for (slot, event) in window.iter_mut().zip(others.into_iter().chain(moved)) {
            *slot = event;
        }
    }
}

/// Finds an order of `tied` (position, allocates, thread) in which allocs and frees alternate, and each thread's own
/// order is kept; `lives`: a block is there before. The earliest choices come first.
fn alternate(tied: &[(usize, bool, u32)], lives: bool, order: &mut Vec<usize>, steps: &mut u32) -> bool {
    if order.len() == tied.len() {
        return true;
    }
    for (index, &(_, allocates, thread)) in tied.iter().enumerate() {
        if *steps == 0 {
            return false;
        }
        let is_next = !order.contains(&index)
            && tied.iter().take(index).enumerate().all(|(before, other)| other.2 != thread || order.contains(&before));
        if allocates == lives || !is_next {
            continue;
        }
        *steps -= 1;
        order.push(index);
        if alternate(tied, allocates, order, steps) {
            return true;
        }
        order.pop();
    }
    false
}

/// Looks for the events at the address of the one at `at`, which allocates or ends a block.
fn look_ahead(events: &[MergedEvent], at: usize, window: u64, allocates: bool) -> Next {
    let mut next = Next { first: None, contradicts: false };
    let Some(event) = events.get(at) else { return next };
    let key = key_of(event.address, event.kind);
    let until = event.tick.saturating_add(window);
    let mut before = allocates;
    let rest = events.iter().enumerate().skip(at + 1).take(MOST_EVENTS).take_while(|(_, e)| e.tick <= until);
    for (index, other) in rest.filter(|(_, other)| key_of(other.address, other.kind) == key) {
        let class = KindClass::of(other.kind);
        let other_allocates = class.allocates();
        if !other_allocates && !class.ends() {
            continue;
        }
        if next.first.is_some() && other_allocates == before {
            next.contradicts = true;
            break;
        }
        next.first.get_or_insert((index, other_allocates, other.thread));
        before = other_allocates;
    }
    next
}
