//! Live bytes at any place, and the peak of any range, exact to the event.

use tracehound_format::record::Kind;

use super::{Position, Span, Trace};

/// The state behind an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeapState {
    /// The place behind the event.
    pub place: Position,
    /// Live bytes.
    pub live: u64,
    /// Bytes of all allocations so far.
    pub allocated: u64,
    /// `false` between the two halves of a realloc, which happen at once.
    pub settled: bool,
}

/// The highest point of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PeakPlace {
    /// Live bytes.
    pub bytes: u64,
    /// Live blocks.
    pub count: u64,
    /// When.
    pub at_ns: u64,
    /// The place behind the event that made it.
    pub place: Position,
}

impl Trace {
    /// The state at a place.
    #[must_use]
    pub fn state_at(&self, place: Position) -> HeapState {
        let end = self.end_position();
        if place.events() >= end.events() {
            let facts = self.facts();
            return HeapState { place: end, live: facts.live_bytes, allocated: facts.allocated_bytes, settled: true };
        }
        let Some(index) = self.page_of_event(place.events()) else {
            return HeapState { settled: true, ..HeapState::default() };
        };
        let start = self.page_start(index);
        let page = self.page(index);
        // Sums need no order.
        let allocated: u64 = (start.allocs..place.allocs).map(|row| self.size_of(row)).sum();
        let freed: u64 = (start.frees..place.frees).map(|d| self.size_of_free(d)).sum();
        let last = place.events().checked_sub(1).filter(|&last| self.is_free(last));
        HeapState {
            place,
            live: (page.live + allocated).saturating_sub(freed),
            allocated: page.allocated + allocated,
            settled: last.is_none() || !self.is_half(place.frees - 1),
        }
    }

    /// The state at the start of a page.
    #[must_use]
    pub fn page_state(&self, index: usize) -> HeapState {
        let page = self.page(index);
        HeapState { place: self.page_start(index), live: page.live, allocated: page.allocated, settled: true }
    }

    /// Continues from `state` until `events` allocations and frees lie behind, and passes the state behind each to `each`.
    #[inline]
    pub fn walk_from(&self, state: &mut HeapState, events: u64, mut each: impl FnMut(&HeapState)) {
        while state.place.events() < events {
            let before = state.place;
            if self.is_free(before.events()) {
                state.live = state.live.saturating_sub(self.size_of_free(before.frees));
                state.place.frees += 1;
                state.settled = !self.is_half(before.frees);
            } else {
                let size = self.size_of(before.allocs);
                state.live += size;
                state.allocated += size;
                state.place.allocs += 1;
                state.settled = true;
            }
            each(state);
        }
    }

    /// Whether a free is the first half of a realloc.
    #[inline]
    #[must_use]
    pub fn is_half(&self, ordinal: u64) -> bool {
        let origin = self.columns().free_origin.get(ordinal as usize).copied().unwrap_or(u32::MAX);
        let kind = self.columns().origin_kind.get(origin as usize).copied().unwrap_or(0);
        kind == Kind::ReallocFrom as u8 || kind == Kind::ReallocarrayFrom as u8
    }

    /// The first moment of a range at which most bytes were live; what was live when it began counts.
    #[must_use]
    pub fn peak_in(&self, span: Span, from_ns: u64) -> PeakPlace {
        if span == self.everything() && self.facts().peak.bytes > 0 {
            let peak = self.facts().peak;
            return PeakPlace {
                bytes: peak.bytes,
                count: peak.count,
                at_ns: peak.at_ns,
                place: self.position_after(peak.events),
            };
        }
        let start = self.state_at(span.from);
        let mut best = start;
        // Whole pages by their maxima, then one walk through the page that holds the largest.
        let first = self.page_of_event(span.from.events()).unwrap_or(0);
        let last = self.page_of_event(span.to.events()).unwrap_or(0);
        let visit = |index: usize, best: &mut HeapState| {
            let mut state = if index == first { start } else { self.page_state(index) };
            let end = self.page_start(index + 1).events().min(span.to.events());
            self.walk_from(&mut state, end, |state| {
                if state.live > best.live {
                    *best = *state;
                }
            });
        };
        visit(first, &mut best);
        if last > first {
            let maxima = &self.columns().page_max_bytes;
            let inner = maxima.get(first + 1..last.min(maxima.len())).unwrap_or_default();
            let highest = inner.iter().copied().max().unwrap_or(0);
            if highest > best.live
                && let Some(at) = inner.iter().position(|&m| m == highest)
            {
                visit(first + 1 + at, &mut best);
            }
            visit(last, &mut best);
        }
        let count = best.place.allocs - best.place.frees;
        let at_ns = if best.place == span.from { from_ns } else { self.time_of_event(best.place.events() - 1) };
        PeakPlace { bytes: best.live, count, at_ns, place: best.place }
    }

    /// When the event behind `events` others happened.
    #[must_use]
    pub fn time_of_event(&self, events: u64) -> u64 {
        let place = self.position_after(events);
        if self.is_free(events) { self.died_ns(place.frees) } else { self.born_ns(place.allocs) }
    }
}
