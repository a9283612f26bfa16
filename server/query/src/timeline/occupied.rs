//! Pages with a live block, from runs of 64 events: the index has the fewest and the most of a run, and how many they are
//! behind its last event.
//!
//! In the middle of a run the events before it are looked at: pages that one block has for itself come and go with it. Those
//! at the ends of blocks it may share, so the number there may miss two for each event; what comes out lies between the
//! run's extremes. In the first run there is nothing else to share with, and the number is exact.

use std::collections::HashMap;

use tracehound_api::timeline::{Series, SeriesName};
use tracehound_format::record::Kind;
use tracehound_index::places::OCCUPANCY_PAGE;
use tracehound_index::{Position, Trace};

use super::columns::Grid;

/// Events in a run.
const RUN: u64 = 64;

/// The series of a grid; without values where addresses are not known.
pub fn series(trace: &Trace, grid: &Grid) -> Series {
    let (name, thread) = (SeriesName::OccupiedBytes, None);
    let mut series = Series { name, thread, min: Vec::new(), max: Vec::new(), last: Vec::new() };
    let is_known = trace.imported_from().is_none();
    let number = |pages: u32| is_known.then(|| (u64::from(pages) * OCCUPANCY_PAGE) as f64);
    let mut start = if is_known { pages_behind(trace, grid.places[0].events()) } else { 0 };
    for borders in grid.places.windows(2) {
        let (from, to) = (borders[0].events(), borders[1].events());
        let Extremes { min, max, last } = if is_known { between(trace, from, to, start) } else { Extremes::of(0) };
        series.min.push(number(min));
        series.max.push(number(max));
        series.last.push(number(last));
        start = last;
    }
    series
}

/// Pages over a few events.
#[derive(Debug, Clone, Copy)]
struct Extremes {
    min: u32,
    max: u32,
    last: u32,
}

impl Extremes {
    const fn of(pages: u32) -> Self {
        Self { min: pages, max: pages, last: pages }
    }

    fn join(&mut self, other: Self) {
        (self.min, self.max, self.last) = (self.min.min(other.min), self.max.max(other.max), other.last);
    }
}

/// Behind `from` events and behind each up to `to`; `start` is the number behind `from`.
fn between(trace: &Trace, from: u64, to: u64, start: u32) -> Extremes {
    let mut found = Extremes::of(start);
    let mut at = from;
    while at < to {
        let (run, end) = (at / RUN, to.min((at / RUN + 1) * RUN));
        // Without a settled event a run has no extremes.
        let known = trace.occupied_run(run as usize).filter(|_| is_whole(trace, end));
        found.join(match known {
            Some([fewest, most, last]) if at.is_multiple_of(RUN) && fewest <= most => {
                Extremes { min: fewest, max: most, last }
            }
            Some([_, _, last]) => Extremes { last, ..walk(trace, run, at, end) },
            None => walk(trace, run, at, end),
        });
        at = end;
    }
    found
}

/// Whether there is nothing of its run behind `events` events.
fn is_whole(trace: &Trace, events: u64) -> bool {
    events.is_multiple_of(RUN) || events == trace.everything().to.events()
}

/// Pages behind `events` events.
fn pages_behind(trace: &Trace, events: u64) -> u32 {
    let Some(last) = events.checked_sub(1) else { return 0 };
    if is_whole(trace, events) {
        return trace.occupied_run((last / RUN) as usize).map_or(0, |[_, _, behind]| behind);
    }
    walk(trace, last / RUN, last, events).last
}

/// Behind the events from `from` on, up to `to`, of one run.
fn walk(trace: &Trace, run: u64, from: u64, to: u64) -> Extremes {
    let before = run.checked_sub(1).and_then(|run| trace.occupied_run(run as usize)).map_or(0, |[_, _, last]| last);
    let limits = trace.occupied_run(run as usize).filter(|[fewest, most, _]| fewest <= most);
    let within = |pages: i64| {
        let pages = u32::try_from(pages.max(0)).unwrap_or(u32::MAX);
        limits.map_or(pages, |[fewest, most, _]| pages.clamp(fewest, most))
    };
    // Blocks that begin or end in a page, where no older ones can.
    let mut shared: Option<HashMap<u64, u32>> = (run == 0).then(HashMap::new);
    let mut pages = i64::from(before);
    let mut found: Option<Extremes> = None;
    let mut place: Position = trace.position_after(run * RUN);
    for event in run * RUN..to {
        let is_free = trace.is_free(event);
        let row = if is_free { trace.row_of_free(place.frees) } else { place.allocs };
        let address = trace.address_of(row);
        let (first, last) = pages_of(address, trace.size_of(row));
        // Blocks of a pool lie in a block of the allocator. The index tells them apart by the highest bit, which no address of
        // a program has.
        let is_in_pool = (trace.origin_of_alloc(row).kind == Kind::PoolAlloc as u8) != (address >> 63 != 0);
        let own = if is_in_pool { 0 } else { last.saturating_sub(first + 1) as i64 };
        pages += if is_free { -own } else { own };
        if let Some(shared) = shared.as_mut().filter(|_| !is_in_pool) {
            let ends = if first == last { &[first][..] } else { &[first, last] };
            for page in ends {
                let blocks = shared.entry(*page).or_insert(0);
                match is_free {
                    true => {
                        *blocks = blocks.saturating_sub(1);
                        pages -= i64::from(*blocks == 0);
                    }
                    false => {
                        pages += i64::from(*blocks == 0);
                        *blocks += 1;
                    }
                }
            }
        }
        let settled = !is_free || !is_moving(trace, place.frees);
        if is_free {
            place.frees += 1;
        } else {
            place.allocs += 1;
        }
        if event < from {
            continue;
        }
        let now = within(pages);
        match &mut found {
            Some(found) if settled => found.join(Extremes::of(now)),
            Some(found) => found.last = now,
            None => found = Some(Extremes::of(now)),
        }
    }
    found.unwrap_or(Extremes::of(within(pages)))
}

/// Whether the free is the first half of a realloc, whose other half is the next event.
fn is_moving(trace: &Trace, ordinal: u64) -> bool {
    Kind::from_u8(trace.free(ordinal).kind).is_some_and(Kind::is_realloc_from)
}

/// The first and the last page of a block.
const fn pages_of(address: u64, size: u64) -> (u64, u64) {
    let last = address.saturating_add(size.saturating_sub(1));
    (address / OCCUPANCY_PAGE, last / OCCUPANCY_PAGE)
}
