//! From time to rows and back: positions in the order of events, births with their deaths.

use tracehound_format::record::Kind;

use super::Trace;
use super::layout::{FATE_TEMPORARY, LARGE_SIZE, ODD_ADDRESS, Page, TABLE_SIZE};

/// A place between two events: how many births and deaths lie before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Position {
    /// Births before.
    pub births: u64,
    /// Deaths before.
    pub deaths: u64,
}

impl Position {
    /// Births and deaths before.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.births + self.deaths
    }
}

/// A stretch of events, from one place to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Span {
    /// Its start.
    pub from: Position,
    /// Its end.
    pub to: Position,
}

/// One block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Birth {
    /// Position among all births.
    pub row: u64,
    /// When it was born.
    pub born_ns: u64,
    /// Where.
    pub address: u64,
    /// Requested bytes.
    pub size: u64,
    /// Call-tree node of the caller.
    pub node: u32,
    /// Position of the bearing thread.
    pub thread: u32,
    /// Kind number of the function.
    pub kind: u8,
    /// Site.
    pub site: u32,
    /// It was temporary.
    pub is_temporary: bool,
    /// Its death, if it died.
    pub death: Option<Death>,
    /// The block that realloc made it from.
    pub previous: Option<u64>,
    /// The block that realloc made of it.
    pub next: Option<u64>,
}

/// The end of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Death {
    /// Position among all deaths.
    pub ordinal: u64,
    /// When.
    pub died_ns: u64,
    /// Call-tree node of the caller; 0 = not recorded.
    pub node: u32,
    /// Position of the freeing thread.
    pub thread: u32,
    /// Kind number of the function.
    pub kind: u8,
}

impl Trace {
    /// Births in the snapshot.
    #[must_use]
    pub fn birth_count(&self) -> u64 {
        self.columns().birth_time.len() as u64
    }

    /// Deaths of seen births in the snapshot.
    #[must_use]
    pub fn death_count(&self) -> u64 {
        self.columns().death_time.len() as u64
    }

    /// The whole recording.
    #[must_use]
    pub fn everything(&self) -> Span {
        Span { from: Position::default(), to: self.end_position() }
    }

    /// Behind the last event.
    #[must_use]
    pub fn end_position(&self) -> Position {
        Position { births: self.birth_count(), deaths: self.death_count() }
    }

    /// Number of pages, the open one included.
    #[must_use]
    pub fn page_count(&self) -> usize {
        self.columns().page_time.len() + usize::from(self.tail().page.is_some())
    }

    /// A page.
    #[must_use]
    pub fn page(&self, index: usize) -> Page {
        let c = self.columns();
        if index >= c.page_time.len() {
            return self.tail().page.unwrap_or_default();
        }
        Page {
            time_ns: c.page_time[index],
            births: c.page_births[index],
            deaths: c.page_deaths[index],
            allocated: c.page_allocated[index],
            live: c.page_live[index],
            min_bytes: c.page_min_bytes[index],
            max_bytes: c.page_max_bytes[index],
            min_count: c.page_min_count[index],
            max_count: c.page_max_count[index],
        }
    }

    /// First place of a page.
    #[must_use]
    pub fn page_start(&self, index: usize) -> Position {
        if index >= self.page_count() {
            return self.end_position();
        }
        let page = self.page(index);
        Position { births: u64::from(page.births), deaths: u64::from(page.deaths) }
    }

    /// The last page for which `is_before` holds, given that it holds for a front of the pages.
    fn last_page(&self, closed: Option<usize>, open: impl FnOnce(&Page) -> bool) -> Option<usize> {
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

    /// The page that holds birth `row`.
    #[must_use]
    pub fn page_of_birth(&self, row: u64) -> Option<usize> {
        self.last_page(self.closed_page_of_birth(row), |p| u64::from(p.births) <= row)
    }

    /// The page that holds death `ordinal`.
    #[must_use]
    pub fn page_of_death(&self, ordinal: u64) -> Option<usize> {
        self.last_page(self.closed_page_of_death(ordinal), |p| u64::from(p.deaths) <= ordinal)
    }

    /// The page that holds the event behind `events` others.
    #[must_use]
    pub fn page_of_event(&self, events: u64) -> Option<usize> {
        let c = self.columns();
        let (mut low, mut high) = (0, c.page_births.len());
        while low < high {
            let middle = low.midpoint(high);
            if u64::from(c.page_births[middle]) + u64::from(c.page_deaths[middle]) <= events {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        self.last_page(low.checked_sub(1), |p| u64::from(p.births) + u64::from(p.deaths) <= events)
    }

    /// The place behind all events before `t_ns`, exact to the nanosecond.
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
            births: within(&c.birth_time, from.births, to.births),
            deaths: within(&c.death_time, from.deaths, to.deaths),
        }
    }

    /// One word of the order of events.
    #[inline]
    #[must_use]
    pub fn order_word(&self, index: usize) -> u64 {
        self.columns().order.get(index).copied().unwrap_or(self.tail().order_word)
    }

    /// Whether the event behind `events` others is a death.
    #[inline]
    #[must_use]
    pub fn is_death(&self, events: u64) -> bool {
        self.order_word((events / 64) as usize) >> (events % 64) & 1 == 1
    }

    /// Deaths among events `from..to`.
    #[must_use]
    pub fn deaths_among(&self, from: u64, to: u64) -> u64 {
        let (mut at, mut deaths) = (from, 0);
        while at < to {
            let start = at % 64;
            let take = (64 - start).min(to - at);
            let mask = if take == 64 { u64::MAX } else { ((1 << take) - 1) << start };
            deaths += u64::from((self.order_word((at / 64) as usize) & mask).count_ones());
            at += take;
        }
        deaths
    }

    /// The place behind the first `events` births and deaths.
    #[must_use]
    pub fn position_after(&self, events: u64) -> Position {
        let end = self.end_position();
        if events >= end.events() {
            return end;
        }
        let Some(index) = self.page_of_event(events) else { return Position::default() };
        let start = self.page_start(index);
        let deaths = start.deaths + self.deaths_among(start.events(), events);
        Position { births: events - deaths, deaths }
    }

    /// Ordinal of a birth among births and deaths.
    #[must_use]
    pub fn event_of_birth(&self, row: u64) -> Option<u64> {
        let index = self.page_of_birth(row)?;
        let (mut at, end) = (self.page_start(index), self.page_start(index + 1).events());
        while at.events() < end {
            if self.is_death(at.events()) {
                at.deaths += 1;
            } else if at.births == row {
                return Some(at.events());
            } else {
                at.births += 1;
            }
        }
        None
    }

    /// Ordinal of a death among births and deaths.
    #[must_use]
    pub fn event_of_death(&self, ordinal: u64) -> Option<u64> {
        let index = self.page_of_death(ordinal)?;
        let (mut at, end) = (self.page_start(index), self.page_start(index + 1).events());
        while at.events() < end {
            if !self.is_death(at.events()) {
                at.births += 1;
            } else if at.deaths == ordinal {
                return Some(at.events());
            } else {
                at.deaths += 1;
            }
        }
        None
    }

    /// When a block was born.
    #[must_use]
    pub fn born_ns(&self, row: u64) -> u64 {
        let base = self.page_of_birth(row).map_or(0, |i| self.page(i).time_ns);
        base + self.columns().birth_time.get(row as usize).map_or(0, |&t| u64::from(t))
    }

    /// When a death happened.
    #[must_use]
    pub fn died_ns(&self, ordinal: u64) -> u64 {
        let base = self.page_of_death(ordinal).map_or(0, |i| self.page(i).time_ns);
        base + self.columns().death_time.get(ordinal as usize).map_or(0, |&t| u64::from(t))
    }

    /// Ordinal of the death of a block; `None` while it lives.
    #[inline]
    #[must_use]
    pub fn death_of(&self, row: u64) -> Option<u64> {
        // Deaths behind the snapshot may be in the ledger already.
        let death = u64::from(self.ledgers().death.get(row as usize));
        death.checked_sub(1).filter(|&d| d < self.death_count())
    }

    /// Requested bytes of a block.
    #[inline]
    #[must_use]
    pub fn size_of(&self, row: u64) -> u64 {
        let code = self.columns().birth_size.get(row as usize).copied().unwrap_or(0);
        self.size_of_code(code, || row)
    }

    /// Requested bytes of the block that a death ended.
    #[inline]
    #[must_use]
    pub fn size_of_death(&self, ordinal: u64) -> u64 {
        let code = self.columns().death_size.get(ordinal as usize).copied().unwrap_or(0);
        self.size_of_code(code, || self.row_of_death(ordinal))
    }

    /// The size behind a code; `row` tells whose it is.
    #[inline]
    pub(crate) fn size_of_code(&self, code: u16, row: impl FnOnce() -> u64) -> u64 {
        match code {
            0..TABLE_SIZE => u64::from(code),
            LARGE_SIZE => self.large_size(row()),
            _ => self.columns().size_table.get(usize::from(code - TABLE_SIZE)).copied().unwrap_or(0),
        }
    }

    #[cold]
    fn large_size(&self, row: u64) -> u64 {
        let c = self.columns();
        c.large_row.binary_search(&row).ok().and_then(|at| c.large_size.get(at).copied()).unwrap_or(0)
    }

    /// Address of a block.
    #[must_use]
    pub fn address_of(&self, row: u64) -> u64 {
        let c = self.columns();
        let low = c.birth_address.get(row as usize).copied().unwrap_or(0);
        match c.birth_address_high.get(row as usize) {
            Some(&ODD_ADDRESS) => {
                c.odd_row.binary_search(&row).ok().and_then(|at| c.odd_address.get(at).copied()).unwrap_or(0)
            }
            high => u64::from(low) | u64::from(high.copied().unwrap_or(0)) << 32,
        }
    }

    /// The old address of a realloc whose old block was not seen.
    #[must_use]
    pub fn orphan_address(&self, row: u64) -> Option<u64> {
        let c = self.columns();
        let at = c.orphan_row.binary_search(&row).ok()?;
        c.orphan_address.get(at).copied().filter(|&a| a != u64::MAX)
    }

    /// One death.
    #[must_use]
    pub fn death(&self, ordinal: u64) -> Death {
        let origin = self.origin(self.columns().death_origin.get(ordinal as usize).copied().unwrap_or(u32::MAX));
        Death { ordinal, died_ns: self.died_ns(ordinal), node: origin.node, thread: origin.thread, kind: origin.kind }
    }

    /// Row of the block that a death ended.
    #[must_use]
    pub fn row_of_death(&self, ordinal: u64) -> u64 {
        self.columns().death_row.get(ordinal as usize).map_or(u64::MAX, |&row| u64::from(row))
    }

    /// The block that realloc made block `row` from.
    #[must_use]
    pub fn previous(&self, row: u64, kind: u8) -> Option<u64> {
        if !Kind::from_u8(kind).is_some_and(Kind::is_realloc_to) {
            return None;
        }
        let event = self.event_of_birth(row)?.checked_sub(1)?;
        if !self.is_death(event) {
            return None;
        }
        let ordinal = self.position_after(event).deaths;
        let death = self.columns().death_origin.get(ordinal as usize).map(|&o| self.origin(o))?;
        let linked = Kind::from_u8(death.kind).is_some_and(Kind::is_realloc_from);
        (linked && self.orphan_row(row).is_none()).then(|| self.row_of_death(ordinal))
    }

    fn orphan_row(&self, row: u64) -> Option<usize> {
        self.columns().orphan_row.binary_search(&row).ok()
    }

    /// Everything about block `row`; rows from [`Self::birth_count`] on give an empty one.
    #[must_use]
    pub fn birth(&self, row: u64) -> Birth {
        let origin = self.origin(self.columns().birth_origin.get(row as usize).copied().unwrap_or(u32::MAX));
        let death = self.death_of(row).map(|ordinal| self.death(ordinal));
        let next = death.as_ref().and_then(|death| {
            if !Kind::from_u8(death.kind).is_some_and(Kind::is_realloc_from) {
                return None;
            }
            let event = self.event_of_death(death.ordinal)?;
            Some(self.position_after(event + 1).births).filter(|&row| row < self.birth_count())
        });
        let fate = self.ledgers().fate.get(row as usize);
        Birth {
            row,
            born_ns: self.born_ns(row),
            address: self.address_of(row),
            size: self.size_of(row),
            node: origin.node,
            thread: origin.thread,
            kind: origin.kind,
            site: origin.site,
            is_temporary: death.is_some() && fate & FATE_TEMPORARY != 0,
            death,
            previous: self.previous(row, origin.kind),
            next,
        }
    }

    /// The moment of the peak.
    #[must_use]
    pub fn peak_position(&self) -> Position {
        self.position_after(self.facts().peak.events)
    }
}
