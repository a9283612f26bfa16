//! Live bytes at any place, and the peak of any stretch, exact to the event.

use tracehound_format::record::Kind;

use super::{Position, Span, Trace};

/// The state behind an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct State {
    /// The place behind the event.
    pub place: Position,
    /// Live bytes.
    pub live: u64,
    /// Bytes of all births so far.
    pub allocated: u64,
    /// `false` between the two halves of a realloc, which happen at once.
    pub settled: bool,
}

/// The highest point of a stretch.
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
    pub fn state_at(&self, place: Position) -> State {
        let end = self.end_position();
        if place.events() >= end.events() {
            let facts = self.facts();
            return State { place: end, live: facts.live_bytes, allocated: facts.allocated_bytes, settled: true };
        }
        let Some(index) = self.page_of_event(place.events()) else {
            return State { settled: true, ..State::default() };
        };
        let start = self.page_start(index);
        let page = self.page(index);
        // Sums need no order.
        let born: u64 = (start.births..place.births).map(|row| self.size_of(row)).sum();
        let died: u64 = (start.deaths..place.deaths).map(|d| self.size_of_death(d)).sum();
        let last = place.events().checked_sub(1).filter(|&last| self.is_death(last));
        State {
            place,
            live: (page.live + born).saturating_sub(died),
            allocated: page.allocated + born,
            settled: last.is_none() || !self.is_half(place.deaths - 1),
        }
    }

    /// The state at the start of a page.
    #[must_use]
    pub fn page_state(&self, index: usize) -> State {
        let page = self.page(index);
        State { place: self.page_start(index), live: page.live, allocated: page.allocated, settled: true }
    }

    /// Goes on from `state` until `events` births and deaths lie behind, telling the state behind each.
    #[inline]
    pub fn walk_from(&self, state: &mut State, events: u64, mut each: impl FnMut(&State)) {
        while state.place.events() < events {
            let before = state.place;
            if self.is_death(before.events()) {
                state.live = state.live.saturating_sub(self.size_of_death(before.deaths));
                state.place.deaths += 1;
                state.settled = !self.is_half(before.deaths);
            } else {
                let size = self.size_of(before.births);
                state.live += size;
                state.allocated += size;
                state.place.births += 1;
                state.settled = true;
            }
            each(state);
        }
    }

    /// Whether a death is the first half of a realloc.
    #[inline]
    #[must_use]
    pub fn is_half(&self, ordinal: u64) -> bool {
        let origin = self.columns().death_origin.get(ordinal as usize).copied().unwrap_or(u32::MAX);
        let kind = self.columns().origin_kind.get(origin as usize).copied().unwrap_or(0);
        kind == Kind::ReallocFrom as u8 || kind == Kind::ReallocarrayFrom as u8
    }

    /// The first moment of a stretch at which most bytes were live; what was live when it began counts.
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
        let visit = |index: usize, best: &mut State| {
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
        let count = best.place.births - best.place.deaths;
        let at_ns = if best.place == span.from { from_ns } else { self.time_of_event(best.place.events() - 1) };
        PeakPlace { bytes: best.live, count, at_ns, place: best.place }
    }

    /// When the event behind `events` others happened.
    #[must_use]
    pub fn time_of_event(&self, events: u64) -> u64 {
        let place = self.position_after(events);
        if self.is_death(events) { self.died_ns(place.deaths) } else { self.born_ns(place.births) }
    }
}
