//! One scan through a range from front to back: every allocation and free, or every block with its free.
//!
//! [`Trace::alloc`] and [`Trace::events`] return more about one event, and search for it; a scan over millions of
//! events reads the order of events bit by bit here. The data that a row refers to may be anywhere, and is prefetched
//! some rows ahead.

use tracehound_format::record::Kind;

use super::ledger::fetch;
use super::{Position, Span, Trace, links};

/// Rows whose references are fetched into the cache before they are needed.
const AHEAD: usize = 16;

/// An allocation or a free of a block whose allocation was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockEvent {
    /// When.
    pub t_ns: u64,
    /// The block.
    pub row: u64,
    /// An allocation; else a free.
    pub allocated: bool,
}

/// One block. Origins have node, thread and function, see [`Trace::origin`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRow {
    /// Position among all allocations.
    pub row: u64,
    /// When it was allocated.
    pub born_ns: u64,
    /// Where.
    pub address: u64,
    /// Requested bytes.
    pub size: u64,
    /// Origin of its allocation.
    pub origin: u32,
    /// When it was freed, and the origin of its free.
    pub free: Option<(u64, u32)>,
    /// The block that realloc made it from.
    pub previous: Option<u64>,
}

/// Iterator over allocations and frees.
#[derive(Debug)]
pub struct BlockEvents<'a> {
    walk: PageCursor<'a>,
    end: u64,
}

/// Iterator over the blocks that were allocated in a range.
#[derive(Debug)]
pub struct Blocks<'a> {
    walk: PageCursor<'a>,
    end: u64,
}

/// Cursor that moves forward and caches the page that it is in.
#[derive(Debug)]
struct PageCursor<'a> {
    trace: &'a Trace,
    at: Position,
    page: usize,
    /// Number of events before the end of the page.
    page_end: u64,
    /// Base of the times in the page.
    page_ns: u64,
}

impl Trace {
    /// The allocations and frees of a range in their order; of a realloc the free comes first.
    #[must_use]
    pub fn steps(&self, span: Span) -> BlockEvents<'_> {
        BlockEvents { walk: PageCursor::new(self, span.from), end: span.to.events() }
    }

    /// The blocks that were allocated in a range, in that order.
    #[must_use]
    pub fn blocks(&self, span: Span) -> Blocks<'_> {
        Blocks { walk: PageCursor::new(self, span.from), end: span.to.allocs }
    }
}

impl<'a> PageCursor<'a> {
    fn new(trace: &'a Trace, at: Position) -> Self {
        let page = trace.page_of_event(at.events()).unwrap_or(0);
        let page_end = trace.page_start(page + 1).events();
        Self { trace, at, page, page_end, page_ns: trace.page(page).time_ns }
    }

    /// Base of the next event's time.
    #[inline]
    fn page_ns(&mut self) -> u64 {
        while self.at.events() >= self.page_end && self.page + 1 < self.trace.page_count() {
            self.page += 1;
            self.page_end = self.trace.page_start(self.page + 1).events();
            self.page_ns = self.trace.page(self.page).time_ns;
        }
        self.page_ns
    }
}

impl Iterator for BlockEvents<'_> {
    type Item = BlockEvent;

    #[inline]
    fn next(&mut self) -> Option<BlockEvent> {
        let walk = &mut self.walk;
        if walk.at.events() >= self.end {
            return None;
        }
        let (page_ns, c) = (walk.page_ns(), walk.trace.columns());
        let allocated = !walk.trace.is_free(walk.at.events());
        let (row, time) = if allocated {
            let row = walk.at.allocs;
            walk.at.allocs += 1;
            (row, c.alloc_time.get(row as usize))
        } else {
            let ordinal = walk.at.frees;
            walk.at.frees += 1;
            if let Some(&code) = c.free_row.get(ordinal as usize + AHEAD) {
                let row = links::near(ordinal + AHEAD as u64, code);
                c.alloc_size.get(row as usize).map(fetch);
                c.alloc_origin.get(row as usize).map(fetch);
            }
            (walk.trace.row_of_free(ordinal), c.free_time.get(ordinal as usize))
        };
        Some(BlockEvent { t_ns: page_ns + u64::from(*time?), row, allocated })
    }
}

impl Iterator for Blocks<'_> {
    type Item = BlockRow;

    #[inline]
    fn next(&mut self) -> Option<BlockRow> {
        let walk = &mut self.walk;
        if walk.at.allocs >= self.end {
            return None;
        }
        let (trace, before) = (walk.trace, walk.at.frees);
        let c = trace.columns();
        while trace.is_free(walk.at.events()) {
            walk.at.frees += 1;
        }
        let page_ns = walk.page_ns();
        let at = walk.at;
        walk.at.allocs += 1;
        let row = at.allocs as usize;
        let origin = *c.alloc_origin.get(row)?;
        let code = trace.ledgers().free.get(row + AHEAD);
        if code != links::NONE {
            let ordinal = links::near((row + AHEAD) as u64, code);
            c.free_time.get(ordinal as usize).map(fetch);
            c.free_origin.get(ordinal as usize).map(fetch);
        }
        let free = trace.free_of(at.allocs);
        Some(BlockRow {
            row: at.allocs,
            born_ns: page_ns + u64::from(*c.alloc_time.get(row)?),
            address: trace.address_of(at.allocs),
            size: trace.size_of(at.allocs),
            origin,
            free: free.and_then(|free| Some((trace.died_ns(free), *c.free_origin.get(free as usize)?))),
            previous: trace.previous_in_passing(at, origin, before),
        })
    }
}

impl Trace {
    /// The block that realloc made the one behind `at` from, where only frees lie between the `before`-th and `at`.
    #[inline]
    fn previous_in_passing(&self, at: Position, origin: u32, before: u64) -> Option<u64> {
        let kind = *self.columns().origin_kind.get(origin as usize)?;
        if !Kind::from_u8(kind).is_some_and(Kind::is_realloc_to) {
            return None;
        }
        if at.frees == before {
            // Whether the walk began between the two halves is not known here.
            return self.previous(at.allocs, kind);
        }
        let linked = self.is_half(at.frees - 1) && self.orphan_row(at.allocs).is_none();
        linked.then(|| self.row_of_free(at.frees - 1))
    }
}
