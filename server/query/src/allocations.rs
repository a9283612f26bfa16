//! Single blocks, in pages. A page costs one parallel scan of the window if it is asked for by a cursor or is among the
//! first; further in, the block that it begins with is found by counting, in a few scans.

use rayon::prelude::*;
use serde::Deserialize;
use tracehound_format::record::Kind;

use super::amounts::ranges;
use super::filter::Filter;
use super::own_frames::OwnFrames;
use super::scan::{Also, BLOCK, Picker, RowTest};
use super::sorting::{MAX_SORT_KEYS, SortKeys};
use super::window::Window;
use super::{QueryError, Result, site_handle, site_order, stacks};
use tracehound_api::allocations::{Allocation, Allocations};
use tracehound_index::symbols::RecordingSymbols;
use tracehound_index::{AllocRow, Cancel, Trace};

/// Parameters of the query.
#[derive(Debug, Clone, Default)]
pub struct AllocationsParams {
    /// Blocks allocated in this window; with `at`, those that are live then.
    pub window: Window,
    /// Which blocks count.
    pub filter: Filter,
    /// Of this site only.
    pub site: Option<u32>,
    /// Of sites whose program's function, or its file or module, matches this regular expression.
    pub search: Option<String>,
    /// Order; ties go by allocation.
    pub sort: SortKeys<AllocationSort>,
    /// Reverses the whole order: largest or latest first.
    pub descending: bool,
    /// Where the last page ended.
    pub cursor: Option<String>,
    /// Blocks to leave out first, in place of a cursor.
    pub offset: u64,
    /// Most blocks in the answer.
    pub limit: usize,
}

/// A column of the blocks; the smallest and earliest come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AllocationSort {
    /// By allocation.
    #[default]
    #[serde(rename = "born")]
    Allocated,
    /// By free; what lives comes last.
    #[serde(rename = "died")]
    Freed,
    /// By size.
    Size,
    /// By lifetime; what lives has lived until the end.
    Lifetime,
    /// By address.
    Address,
    /// By id of the allocating thread.
    Thread,
    /// By id of the freeing thread; what lives comes first.
    FreeThread,
    /// By name of the program's function that allocated it.
    Function,
}

/// Most blocks of one answer.
pub const MAX_LIMIT: usize = 10_000;
/// How a page far from the first is found.
#[derive(Debug, Clone, Copy)]
pub struct Paging {
    /// Blocks in front of a page that a scan keeps beside those of the page; if there are more, they are counted.
    pub shallow: u64,
    /// Parts that an interval of places is divided into, to be counted.
    pub parts: u64,
    /// An interval with as many blocks is sorted, instead of being divided again.
    pub few: u64,
}

impl Default for Paging {
    fn default() -> Self {
        Self { shallow: 20_000, parts: 4096, few: 1 << 20 }
    }
}

/// Lists blocks.
///
/// # Errors
/// When a parameter does not fit the recording, or cancelled.
pub fn run(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    params: &AllocationsParams,
    cancel: &Cancel,
) -> Result<Allocations> {
    run_paging(trace, symbols, params, Paging::default(), cancel)
}

/// As [`run`], with limits of one's own.
///
/// # Errors
/// When a parameter does not fit the recording, or cancelled.
pub fn run_paging(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    params: &AllocationsParams,
    paging: Paging,
    cancel: &Cancel,
) -> Result<Allocations> {
    if params.limit == 0 || params.limit > MAX_LIMIT {
        return Err(QueryError::bad("limit", format!("1 to {MAX_LIMIT} blocks can be asked for")));
    }
    let mut selection = params.filter.select(trace, symbols, cancel)?;
    let window = params.window.resolve(trace, &selection, cancel)?;
    if let Some(site) = params.site {
        selection = selection.and_site(trace, site);
    }
    if let Some(search) = &params.search {
        let wanted = Filter::regex("search", search)?;
        selection = selection.and_sites_with(trace, OwnFrames::new(trace, symbols).matcher(&wanted));
    }
    if params.cursor.is_some() && params.offset > 0 {
        return Err(QueryError::bad("offset", "a page is asked for by a cursor or by an offset"));
    }
    let start =
        params.cursor.as_deref().map(parse_cursor).transpose()?.map(|(keys, row)| (keys, row.saturating_add(1)));
    let test = selection.rows(trace);
    let (from, to, alive_at) = match window.at {
        Some((_, place)) => (0, place.allocs, Some(place.frees)),
        None => (window.span.from.allocs, window.span.to.allocs, None),
    };
    let by_name = params.sort.keys().any(|(column, _)| column == AllocationSort::Function);
    let page = AllocationPage {
        trace,
        names: if by_name { site_order::name_ranks(trace, symbols, cancel)? } else { Vec::new() },
        test,
        keys: params.sort.keys().map(|(column, reversed)| (column, reversed != params.descending)).collect(),
        alive_at,
        limit: params.limit,
        paging,
    };
    let everything = selection.is_everything() && alive_at.is_none();
    let (total, mut rows) = if everything && params.sort.is_first(AllocationSort::Allocated) {
        page.by_alloc(from, to, start, params.offset)
    } else if params.offset > paging.shallow {
        match page.nth(from, to, params.offset, cancel)? {
            Some(start) => page.scan(from, to, Some(start), 0, cancel)?,
            None => (page.count(from, to, cancel)?, Vec::new()),
        }
    } else {
        page.scan(from, to, start, params.offset as usize, cancel)?
    };
    let more = rows.len() > params.limit;
    rows.truncate(params.limit);
    let next_cursor = rows.last().filter(|_| more).map(cursor);
    let allocations = rows.iter().map(|&(_, row)| allocation(trace, symbols, &trace.alloc(row))).collect();
    Ok(Allocations {
        schema: "heaptrace.allocations/1".into(),
        from_ns: window.from_ns,
        to_ns: window.to_ns,
        total,
        allocations,
        next_cursor,
        exactness: trace.exactness(),
    })
}

/// A block's place in the order: its columns, turned round where they are asked for so, then its row.
type SortPlace = ([u64; MAX_SORT_KEYS], u64);

fn cursor((keys, row): &SortPlace) -> String {
    keys.iter().chain([row]).map(u64::to_string).collect::<Vec<_>>().join("-")
}

fn parse_cursor(text: &str) -> Result<SortPlace> {
    let parts: Option<Vec<u64>> = text.split('-').map(|part| part.parse().ok()).collect();
    let place = parts.and_then(|parts| {
        let (&row, keys) = parts.split_last()?;
        Some((keys.try_into().ok()?, row))
    });
    place.ok_or_else(|| QueryError::bad("cursor", "this is not a cursor of an earlier page"))
}

fn allocation(trace: &Trace, symbols: &dyn RecordingSymbols, alloc: &AllocRow) -> Allocation {
    let thread = |position| trace.thread_id(position);
    Allocation {
        index: alloc.row,
        address: format!("{:#x}", alloc.address),
        size: alloc.size,
        function: Kind::from_u8(alloc.kind).map_or("unknown", Kind::function).to_owned(),
        born_ns: alloc.born_ns,
        died_ns: alloc.free.map(|d| d.died_ns),
        thread: thread(alloc.thread),
        free_thread: alloc.free.map(|d| thread(d.thread)),
        site: site_handle(alloc.site),
        stack: stacks::frames(trace, symbols, alloc.node),
        free_stack: alloc.free.map_or_else(Vec::new, |d| stacks::frames(trace, symbols, d.node)),
        previous: alloc.previous,
        next: alloc.next,
    }
}

struct AllocationPage<'a> {
    trace: &'a Trace,
    test: RowTest<'a>,
    /// By site, for an order by name.
    names: Vec<u32>,
    /// Columns, and whether their largest comes first.
    keys: Vec<(AllocationSort, bool)>,
    /// Only what is live when this many frees have happened.
    alive_at: Option<u64>,
    limit: usize,
    paging: Paging,
}

/// A place as one sequence: the columns, then the row.
fn parts_of((keys, row): SortPlace) -> [u64; MAX_SORT_KEYS + 1] {
    let mut parts = [row; MAX_SORT_KEYS + 1];
    parts[..MAX_SORT_KEYS].copy_from_slice(&keys);
    parts
}

/// Places whose first parts are these and whose next one is in an interval.
#[derive(Debug, Clone, Copy)]
struct PlaceRange<'a> {
    first: &'a [u64],
    low: u64,
    high: u64,
}

impl PlaceRange<'_> {
    /// The part of a place that is in the interval.
    fn part(&self, place: SortPlace) -> Option<u64> {
        let parts = parts_of(place);
        let (first, rest) = parts.split_at(self.first.len());
        rest.first().copied().filter(|part| first == self.first && (self.low..=self.high).contains(part))
    }

    /// How much each of so many parts covers; the last one may be shorter.
    const fn step(&self, parts: u64) -> u64 {
        (self.high - self.low) / parts + 1
    }
}

impl AllocationPage<'_> {
    fn place(&self, row: u64) -> SortPlace {
        let mut place = [0; MAX_SORT_KEYS];
        for (part, &(column, descending)) in place.iter_mut().zip(&self.keys) {
            let key = self.key(column, row);
            *part = if descending { u64::MAX - key } else { key };
        }
        (place, row)
    }

    fn key(&self, column: AllocationSort, row: u64) -> u64 {
        let trace = self.trace;
        match column {
            AllocationSort::Allocated => row,
            AllocationSort::Freed => trace.free_of(row).unwrap_or(u64::MAX),
            AllocationSort::Size => trace.size_of(row),
            AllocationSort::Lifetime => {
                let end = trace.free_of(row).map_or(trace.duration_ns(), |d| trace.died_ns(d));
                end.saturating_sub(trace.born_ns(row))
            }
            AllocationSort::Address => trace.address_of(row),
            AllocationSort::Thread => {
                let origin = trace.columns().alloc_origin.get(row as usize).copied().unwrap_or(u32::MAX);
                trace.thread_id(trace.origin(origin).thread).into()
            }
            // Blocks that were never freed come last, as in an order by the time of the free.
            AllocationSort::FreeThread => trace.free_of(row).map_or(u64::MAX, |free| {
                let origin = trace.columns().free_origin.get(free as usize).copied().unwrap_or(u32::MAX);
                trace.thread_id(trace.origin(origin).thread).into()
            }),
            AllocationSort::Function => {
                self.names.get(trace.site_amount(row).0 as usize).copied().unwrap_or(u32::MAX).into()
            }
        }
    }

    fn by_alloc(&self, from: u64, to: u64, start: Option<SortPlace>, offset: u64) -> (u64, Vec<SortPlace>) {
        let rows: Vec<SortPlace> = if self.keys.first().is_some_and(|&(_, descending)| descending) {
            let end = start.map_or(to, |(_, row)| row.saturating_sub(1).min(to)).saturating_sub(offset);
            (from..end).rev().take(self.limit + 1).map(|row| self.place(row)).collect()
        } else {
            let start = start.map_or(from, |(_, row)| row.max(from)).saturating_add(offset);
            (start..to).take(self.limit + 1).map(|row| self.place(row)).collect()
        };
        (to.saturating_sub(from), rows)
    }

    /// Counts what passes, and keeps the first blocks from a place on, less those to be left out.
    fn scan(
        &self,
        from: u64,
        to: u64,
        start: Option<SortPlace>,
        leave_out: usize,
        cancel: &Cancel,
    ) -> Result<(u64, Vec<SortPlace>)> {
        let keep = leave_out + self.limit + 1;
        let cut = |rows: &mut Vec<SortPlace>| {
            rows.sort_unstable();
            rows.truncate(keep);
        };
        let parts = self.passing(from, to, cancel, |rows_of| {
            let (mut count, mut rows) = (0, Vec::new());
            let mut worst: Option<SortPlace> = None;
            rows_of(&mut |row| {
                count += 1;
                let entry = self.place(row);
                if start.is_some_and(|start| entry < start) || worst.is_some_and(|worst| entry >= worst) {
                    return;
                }
                rows.push(entry);
                if rows.len() >= 4 * keep {
                    cut(&mut rows);
                    worst = rows.last().copied();
                }
            })?;
            Ok((count, rows))
        })?;
        let total = parts.iter().map(|p| p.0).sum();
        let mut rows: Vec<SortPlace> = parts.into_iter().flat_map(|p| p.1).collect();
        cut(&mut rows);
        rows.drain(..leave_out.min(rows.len()));
        Ok((total, rows))
    }

    /// What passes.
    fn count(&self, from: u64, to: u64, cancel: &Cancel) -> Result<u64> {
        let parts = self.passing(from, to, cancel, |rows_of| {
            let mut count = 0;
            rows_of(&mut |_| count += 1)?;
            Ok(count)
        })?;
        Ok(parts.into_iter().sum())
    }

    /// The place of the block that this many others are in front of: one part of the place after the other, each by
    /// counting what is in parts of an interval, and going on with the part that has the block.
    fn nth(&self, from: u64, to: u64, rank: u64, cancel: &Cancel) -> Result<Option<SortPlace>> {
        let (mut found, mut rank) = (Vec::new(), rank);
        while found.len() <= MAX_SORT_KEYS {
            if (self.keys.len()..MAX_SORT_KEYS).contains(&found.len()) {
                found.push(0);
                continue;
            }
            let bounds = self.bounds(from, to, &found, cancel)?;
            let Some((mut low, mut high, mut count)) = bounds.filter(|&(_, _, count)| rank < count) else {
                return Ok(None);
            };
            while low < high {
                let interval = PlaceRange { first: &found, low, high };
                if count <= self.paging.few {
                    let mut places = self.places(from, to, interval, cancel)?;
                    return Ok(Some(*places.select_nth_unstable(rank as usize).1));
                }
                let step = interval.step(self.paging.parts);
                for (at, sum) in (0..).zip(self.counts(from, to, interval, step, cancel)?) {
                    count = sum;
                    if rank < sum {
                        low += at * step;
                        high = high.min(low.saturating_add(step - 1));
                        break;
                    }
                    rank -= sum;
                }
            }
            found.push(low);
        }
        let row = found.pop().unwrap_or_default();
        Ok(found.try_into().ok().map(|keys| (keys, row)))
    }

    /// The smallest and the largest part behind these, and the number of blocks that have them.
    fn bounds(&self, from: u64, to: u64, first: &[u64], cancel: &Cancel) -> Result<Option<(u64, u64, u64)>> {
        let interval = PlaceRange { first, low: 0, high: u64::MAX };
        let wider = |a: (u64, u64, u64), b: (u64, u64, u64)| (a.0.min(b.0), a.1.max(b.1), a.2 + b.2);
        let parts = self.passing(from, to, cancel, |rows_of| {
            let mut bounds: Option<(u64, u64, u64)> = None;
            rows_of(&mut |row| {
                if let Some(part) = interval.part(self.place(row)) {
                    let one = (part, part, 1);
                    bounds = Some(bounds.map_or(one, |bounds| wider(bounds, one)));
                }
            })?;
            Ok(bounds)
        })?;
        Ok(parts.into_iter().flatten().reduce(wider))
    }

    /// How many are in each step of an interval.
    fn counts(&self, from: u64, to: u64, interval: PlaceRange<'_>, step: u64, cancel: &Cancel) -> Result<Vec<u64>> {
        let parts = self.passing(from, to, cancel, |rows_of| {
            let mut counts = vec![0_u64; self.paging.parts as usize];
            rows_of(&mut |row| {
                if let Some(part) = interval.part(self.place(row)) {
                    counts[((part - interval.low) / step) as usize] += 1;
                }
            })?;
            Ok(counts)
        })?;
        let mut sums = vec![0; self.paging.parts as usize];
        for (at, count) in parts.iter().flat_map(|counts| counts.iter().enumerate()) {
            sums[at] += count;
        }
        Ok(sums)
    }

    fn places(&self, from: u64, to: u64, interval: PlaceRange<'_>, cancel: &Cancel) -> Result<Vec<SortPlace>> {
        let parts = self.passing(from, to, cancel, |rows_of| {
            let mut places = Vec::new();
            rows_of(&mut |row| {
                let place = self.place(row);
                if interval.part(place).is_some() {
                    places.push(place);
                }
            })?;
            Ok(places)
        })?;
        Ok(parts.into_iter().flatten().collect())
    }

    /// Runs over the rows that pass, many ranges at a time.
    fn passing<T: Send>(
        &self,
        from: u64,
        to: u64,
        cancel: &Cancel,
        fold: impl Fn(&mut dyn FnMut(&mut dyn FnMut(u64)) -> Result<()>) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        ranges(from, to)
            .into_par_iter()
            .map(|range| {
                let also = self.alive_at.map_or(Also::Nothing, Also::LiveAt);
                let mut picker = Picker::new(&self.test, also);
                fold(&mut |each| {
                    for start in range.clone().step_by(BLOCK) {
                        cancel.check()?;
                        for &offset in picker.pick(start, (start + BLOCK as u64).min(range.end)) {
                            each(start + u64::from(offset));
                        }
                    }
                    Ok(())
                })
            })
            .collect()
    }
}
