//! Single blocks, in pages. A page costs one parallel scan of the window however deep it lies.

use rayon::prelude::*;
use tracehound_format::record::Kind;

use super::amounts::ranges;
use super::filter::Filter;
use super::scan::{Also, BLOCK, Picker, RowTest};
use super::window::Window;
use super::{QueryError, Result, site_handle, stacks};
use tracehound_api::allocations::{Allocation, Allocations};
use tracehound_index::symbols::RecordingSymbols;
use tracehound_index::{AllocRow, Cancel, Trace};

/// What is asked.
#[derive(Debug, Clone, Default)]
pub struct AllocationsParams {
    /// Blocks allocated in this window; with `at`, those that are live then.
    pub window: Window,
    /// Of what.
    pub filter: Filter,
    /// Of this site only.
    pub site: Option<u32>,
    /// Order; ties go by allocation.
    pub sort: AllocationSort,
    /// Largest or latest first.
    pub descending: bool,
    /// Where the last page ended.
    pub cursor: Option<String>,
    /// Most blocks in the answer.
    pub limit: usize,
}

/// Order of the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AllocationSort {
    /// By allocation.
    #[default]
    Allocated,
    /// By free; what lives comes last.
    Freed,
    /// By size.
    Size,
    /// By lifetime; what lives has lived until the end.
    Lifetime,
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
    let after = params.cursor.as_deref().map(parse_cursor).transpose()?;
    let test = selection.rows(trace);
    let (from, to, alive_at) = match window.at {
        Some((_, place)) => (0, place.allocs, Some(place.frees)),
        None => (window.span.from.allocs, window.span.to.allocs, None),
    };
    let page = AllocationPage {
        trace,
        test,
        sort: params.sort,
        descending: params.descending,
        alive_at,
        after,
        limit: params.limit,
    };
    let everything = selection.is_everything() && alive_at.is_none();
    let (total, mut rows) = if everything && params.sort == AllocationSort::Allocated {
        page.by_alloc(from, to)
    } else {
        page.scan(from, to, cancel)?
    };
    let more = rows.len() > params.limit;
    rows.truncate(params.limit);
    let next_cursor = rows.last().filter(|_| more).map(|&(key, row)| format!("{key}-{row}"));
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

fn parse_cursor(text: &str) -> Result<(u64, u64)> {
    let parts = text.split_once('-').and_then(|(key, row)| Some((key.parse().ok()?, row.parse().ok()?)));
    parts.ok_or_else(|| QueryError::bad("cursor", "this is not a cursor of an earlier page"))
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
    sort: AllocationSort,
    descending: bool,
    /// Only what is live when this many frees have happened.
    alive_at: Option<u64>,
    after: Option<(u64, u64)>,
    limit: usize,
}

impl AllocationPage<'_> {
    fn key(&self, row: u64) -> u64 {
        let trace = self.trace;
        match self.sort {
            AllocationSort::Allocated => row,
            AllocationSort::Freed => trace.free_of(row).unwrap_or(u64::MAX),
            AllocationSort::Size => trace.size_of(row),
            AllocationSort::Lifetime => {
                let end = trace.free_of(row).map_or(trace.duration_ns(), |d| trace.died_ns(d));
                end.saturating_sub(trace.born_ns(row))
            }
        }
    }

    /// Whether `a` comes before `b`: by key in the order that was asked for, then by allocation.
    fn precedes(&self, a: (u64, u64), b: (u64, u64)) -> bool {
        if self.descending { (b.0, a.1) < (a.0, b.1) } else { a < b }
    }

    fn by_alloc(&self, from: u64, to: u64) -> (u64, Vec<(u64, u64)>) {
        let rows: Vec<(u64, u64)> = if self.descending {
            let end = self.after.map_or(to, |(_, row)| row.min(to));
            (from..end).rev().take(self.limit + 1).map(|row| (row, row)).collect()
        } else {
            let start = self.after.map_or(from, |(_, row)| (row.saturating_add(1)).max(from));
            (start..to).take(self.limit + 1).map(|row| (row, row)).collect()
        };
        (to.saturating_sub(from), rows)
    }

    /// Counts what passes, and keeps the first blocks behind the cursor.
    fn scan(&self, from: u64, to: u64, cancel: &Cancel) -> Result<(u64, Vec<(u64, u64)>)> {
        let keep = self.limit + 1;
        let order = |a: &(u64, u64), b: &(u64, u64)| {
            if self.precedes(*a, *b) { std::cmp::Ordering::Less } else { std::cmp::Ordering::Greater }
        };
        let cut = |rows: &mut Vec<(u64, u64)>| {
            rows.sort_unstable_by(|a, b| if a == b { std::cmp::Ordering::Equal } else { order(a, b) });
            rows.truncate(keep);
        };
        let parts: Vec<(u64, Vec<(u64, u64)>)> = ranges(from, to)
            .into_par_iter()
            .map(|range| {
                let (mut count, mut rows) = (0, Vec::new());
                let mut worst: Option<(u64, u64)> = None;
                let also = self.alive_at.map_or(Also::Nothing, Also::LiveAt);
                let mut picker = Picker::new(&self.test, also);
                for start in range.clone().step_by(BLOCK) {
                    cancel.check()?;
                    for &offset in picker.pick(start, (start + BLOCK as u64).min(range.end)) {
                        let row = start + u64::from(offset);
                        count += 1;
                        let entry = (self.key(row), row);
                        if self.after.is_some_and(|after| !self.precedes(after, entry))
                            || worst.is_some_and(|worst| !self.precedes(entry, worst))
                        {
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
        let mut rows: Vec<(u64, u64)> = parts.into_iter().flat_map(|p| p.1).collect();
        cut(&mut rows);
        Ok((total, rows))
    }
}
