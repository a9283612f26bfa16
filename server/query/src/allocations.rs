//! Single blocks, in pages. A page costs one parallel scan of the window however deep it lies.

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
    let after = params.cursor.as_deref().map(parse_cursor).transpose()?;
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
        after,
        limit: params.limit,
    };
    let everything = selection.is_everything() && alive_at.is_none();
    let (total, mut rows) = if everything && params.sort.is_first(AllocationSort::Allocated) {
        page.by_alloc(from, to)
    } else {
        page.scan(from, to, cancel)?
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
    after: Option<SortPlace>,
    limit: usize,
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
            AllocationSort::FreeThread => trace.free_of(row).map_or(0, |free| {
                let origin = trace.columns().free_origin.get(free as usize).copied().unwrap_or(u32::MAX);
                u64::from(trace.thread_id(trace.origin(origin).thread)) + 1
            }),
            AllocationSort::Function => {
                self.names.get(trace.site_amount(row).0 as usize).copied().unwrap_or(u32::MAX).into()
            }
        }
    }

    fn by_alloc(&self, from: u64, to: u64) -> (u64, Vec<SortPlace>) {
        let rows: Vec<SortPlace> = if self.keys.first().is_some_and(|&(_, descending)| descending) {
            let end = self.after.map_or(to, |(_, row)| row.min(to));
            (from..end).rev().take(self.limit + 1).map(|row| self.place(row)).collect()
        } else {
            let start = self.after.map_or(from, |(_, row)| (row.saturating_add(1)).max(from));
            (start..to).take(self.limit + 1).map(|row| self.place(row)).collect()
        };
        (to.saturating_sub(from), rows)
    }

    /// Counts what passes, and keeps the first blocks behind the cursor.
    fn scan(&self, from: u64, to: u64, cancel: &Cancel) -> Result<(u64, Vec<SortPlace>)> {
        let keep = self.limit + 1;
        let cut = |rows: &mut Vec<SortPlace>| {
            rows.sort_unstable();
            rows.truncate(keep);
        };
        let parts: Vec<(u64, Vec<SortPlace>)> = ranges(from, to)
            .into_par_iter()
            .map(|range| {
                let (mut count, mut rows) = (0, Vec::new());
                let mut worst: Option<SortPlace> = None;
                let also = self.alive_at.map_or(Also::Nothing, Also::LiveAt);
                let mut picker = Picker::new(&self.test, also);
                for start in range.clone().step_by(BLOCK) {
                    cancel.check()?;
                    for &offset in picker.pick(start, (start + BLOCK as u64).min(range.end)) {
                        let row = start + u64::from(offset);
                        count += 1;
                        let entry = self.place(row);
                        if self.after.is_some_and(|after| entry <= after) || worst.is_some_and(|worst| entry >= worst) {
                            continue;
                        }
                        rows.push(entry);
                        if rows.len() >= 4 * keep {
                            cut(&mut rows);
                            worst = rows.last().copied();
                        }
                    }
                }
                Ok((count, rows))
            })
            .collect::<Result<_>>()?;
        let total = parts.iter().map(|p| p.0).sum();
        let mut rows: Vec<SortPlace> = parts.into_iter().flat_map(|p| p.1).collect();
        cut(&mut rows);
        Ok((total, rows))
    }
}
