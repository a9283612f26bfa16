//! Positions in the order of events: conversion from and to times, pages and rows.

use super::Trace;
use super::schema::{EventPage, TableRow};

/// A position between two events: the numbers of allocations and frees before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Position {
    /// Allocations before.
    pub allocs: u64,
    /// Frees before.
    pub frees: u64,
}

impl Position {
    /// Allocations and frees before.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.allocs + self.frees
    }
}

/// A range of events, from one place to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Span {
    /// Its start.
    pub from: Position,
    /// Its end.
    pub to: Position,
}

/// Bytes of a page that [`Trace::occupied_run`] counts.
pub const OCCUPANCY_PAGE: u64 = 4096;

impl Trace {
    /// The whole recording.
    #[must_use]
    pub fn everything(&self) -> Span {
        Span { from: Position::default(), to: self.end_position() }
    }

    /// The position behind the blocks that a forked process has inherited, which come before its own events.
    #[must_use]
    pub fn own_start(&self) -> Position {
        let inherited = self.facts().inherited.as_ref().map_or(0, |inherited| inherited.blocks);
        Position { allocs: inherited.min(self.alloc_count()), frees: 0 }
    }

    /// The position behind the last event.
    #[must_use]
    pub fn end_position(&self) -> Position {
        Position { allocs: self.alloc_count(), frees: self.free_count() }
    }

    /// Number of pages, the open one included.
    #[must_use]
    pub fn page_count(&self) -> usize {
        self.columns().page_time.len() + usize::from(self.tail().page.is_some())
    }

    /// A page.
    #[must_use]
    pub fn page(&self, index: usize) -> EventPage {
        EventPage::get(self.columns(), index).unwrap_or_else(|| self.tail().page.unwrap_or_default())
    }

    /// Position of the first event of a page.
    #[must_use]
    pub fn page_start(&self, index: usize) -> Position {
        if index >= self.page_count() {
            return self.end_position();
        }
        let page = self.page(index);
        Position { allocs: page.allocs, frees: page.frees }
    }

    /// The last page for which `is_before` holds, given that it holds for a front of the pages.
    fn last_page(&self, closed: Option<usize>, open: impl FnOnce(&EventPage) -> bool) -> Option<usize> {
        if let Some(page) = &self.tail().page
            && open(page)
        {
            return Some(self.columns().page_time.len());
        }
        closed
    }

    /// The last page that begins before `t_ns`.
    #[must_use]
    pub fn page_before(&self, t_ns: u64) -> Option<usize> {
        let closed = self.columns().page_time.partition_point(|&t| t < t_ns);
        self.last_page(closed.checked_sub(1), |p| p.time_ns < t_ns)
    }

    /// The page that holds allocation `row`.
    #[must_use]
    pub fn page_of_alloc(&self, row: u64) -> Option<usize> {
        self.last_page(self.closed_page_of_alloc(row), |p| p.allocs <= row)
    }

    /// The page that holds free `ordinal`.
    #[must_use]
    pub fn page_of_free(&self, ordinal: u64) -> Option<usize> {
        self.last_page(self.closed_page_of_free(ordinal), |p| p.frees <= ordinal)
    }

    /// The page that holds the event behind `events` others.
    #[must_use]
    pub fn page_of_event(&self, events: u64) -> Option<usize> {
        let c = self.columns();
        let (mut low, mut high) = (0, c.page_allocs.len());
        while low < high {
            let middle = low.midpoint(high);
            if c.page_allocs[middle] + c.page_frees[middle] <= events {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        self.last_page(low.checked_sub(1), |p| p.allocs + p.frees <= events)
    }

    /// The position behind all events before `t_ns`, exact to the nanosecond.
    #[must_use]
    pub fn position_before(&self, t_ns: u64) -> Position {
        let Some(index) = self.page_before(t_ns) else { return Position::default() };
        let (page, from, to) = (self.page(index), self.page_start(index), self.page_start(index + 1));
        let since = u32::try_from(t_ns - page.time_ns).unwrap_or(u32::MAX);
        let c = self.columns();
        let within = |times: &[u32], from: u64, to: u64| {
            let times = times.get(from as usize..to as usize).unwrap_or_default();
            if t_ns - page.time_ns > u64::from(u32::MAX) {
                to
            } else {
                from + times.partition_point(|&t| t < since) as u64
            }
        };
        Position {
            allocs: within(&c.alloc_time, from.allocs, to.allocs),
            frees: within(&c.free_time, from.frees, to.frees),
        }
    }

    /// Live bytes when all events up to a moment had happened.
    #[must_use]
    pub fn live_bytes_at(&self, t_ns: u64) -> u64 {
        let behind = t_ns.saturating_add(1);
        let Some(index) = self.page_before(behind) else { return 0 };
        let (page, to) = (self.page(index), self.position_before(behind));
        let live = (page.allocs..to.allocs).fold(page.live, |sum, row| sum.saturating_add(self.size_of(row)));
        (page.frees..to.frees).fold(live, |rest, ordinal| rest.saturating_sub(self.size_of_free(ordinal)))
    }

    /// Pages of [`OCCUPANCY_PAGE`] bytes with a live block, of the 64 events with this number: the fewest and the most
    /// after one of them, and behind the last.
    #[must_use]
    pub fn occupied_run(&self, index: usize) -> Option<[u32; 3]> {
        let c = self.columns();
        let stored = || Some([*c.occupied_min.get(index)?, *c.occupied_max.get(index)?, *c.occupied_last.get(index)?]);
        stored().or_else(|| Some(self.tail().occupied).filter(|_| index == c.occupied_last.len()))
    }

    /// One word of the order of events.
    #[inline]
    #[must_use]
    pub fn order_word(&self, index: usize) -> u64 {
        self.columns().order.get(index).copied().unwrap_or(self.tail().order_word)
    }

    /// Whether the event behind `events` others is a free.
    #[inline]
    #[must_use]
    pub fn is_free(&self, events: u64) -> bool {
        self.order_word((events / 64) as usize) >> (events % 64) & 1 == 1
    }

    /// Frees among events `from..to`.
    #[must_use]
    pub fn frees_among(&self, from: u64, to: u64) -> u64 {
        let (mut at, mut frees) = (from, 0);
        while at < to {
            let start = at % 64;
            let take = (64 - start).min(to - at);
            let mask = if take == 64 { u64::MAX } else { ((1 << take) - 1) << start };
            frees += u64::from((self.order_word((at / 64) as usize) & mask).count_ones());
            at += take;
        }
        frees
    }

    /// The position behind the first `events` allocations and frees.
    #[must_use]
    pub fn position_after(&self, events: u64) -> Position {
        let end = self.end_position();
        if events >= end.events() {
            return end;
        }
        let Some(index) = self.page_of_event(events) else { return Position::default() };
        let start = self.page_start(index);
        let frees = start.frees + self.frees_among(start.events(), events);
        Position { allocs: events - frees, frees }
    }

    /// Ordinal of an allocation among allocations and frees.
    #[must_use]
    pub fn event_of_alloc(&self, row: u64) -> Option<u64> {
        let index = self.page_of_alloc(row)?;
        let (mut at, end) = (self.page_start(index), self.page_start(index + 1).events());
        while at.events() < end {
            if self.is_free(at.events()) {
                at.frees += 1;
            } else if at.allocs == row {
                return Some(at.events());
            } else {
                at.allocs += 1;
            }
        }
        None
    }

    /// Ordinal of a free among allocations and frees.
    #[must_use]
    pub fn event_of_free(&self, ordinal: u64) -> Option<u64> {
        let index = self.page_of_free(ordinal)?;
        let (mut at, end) = (self.page_start(index), self.page_start(index + 1).events());
        while at.events() < end {
            if !self.is_free(at.events()) {
                at.allocs += 1;
            } else if at.frees == ordinal {
                return Some(at.events());
            } else {
                at.frees += 1;
            }
        }
        None
    }

    /// The moment of the peak.
    #[must_use]
    pub fn peak_position(&self) -> Position {
        self.position_after(self.facts().peak.events)
    }
}
