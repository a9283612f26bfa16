//! All events of a range in their true order, put together again from the columns.

use tracehound_format::record::Kind;

use super::Trace;
use super::places::{Position, Span};
use super::schema::{OtherEvent, TableRow};

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceEvent {
    /// When.
    pub t_ns: u64,
    /// Recording-wide id of the thread; 0 = none of the program's.
    pub thread: u32,
    /// Call-tree node of the caller; 0 = none.
    pub node: u32,
    /// Id of the request context that it belongs to; 0 = none.
    pub context: u64,
    /// What happened.
    pub what: What,
}

/// What an event is. `function` is the name of the function that was called.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields say what they are; units are bytes and addresses throughout")]
pub enum What {
    /// A block was allocated.
    Alloc { function: &'static str, address: u64, size: u64, row: u64 },
    /// A block was freed; `row` is `None` when its allocation was not seen, `existing` the bytes of one that was there
    /// before recording began.
    Free { function: &'static str, address: u64, row: Option<u64>, existing: Option<u64> },
    /// A block became another one; `old_address` is `None` when its record is lost.
    Realloc {
        function: &'static str,
        old_address: Option<u64>,
        address: u64,
        size: u64,
        row: u64,
        old_row: Option<u64>,
    },
    /// Address space was mapped.
    Map { address: u64, len: u64, protection: u32, flags: u32, fd: Option<u32> },
    /// Address space that had been mapped before recording began.
    Existing { address: u64, len: u64 },
    /// A block that was in the heap before recording began.
    ExistingBlock { address: u64, size: u64 },
    /// Address space was given back.
    Unmap { address: u64, len: u64 },
    /// A mapping was moved or resized.
    Remap { old_address: u64, old_len: u64, address: u64, len: u64 },
    /// The program break moved to `address`.
    Brk { address: u64, delta: i64 },
    /// A label was set.
    Mark { label: Option<String> },
    /// A thread made its first event.
    ThreadStart { name: String },
    /// A thread ended.
    ThreadEnd,
    /// The process forked.
    Fork { child: u64 },
    /// Events of this thread are missing here.
    Lost { count: u64 },
    /// The block at this address was replaced by an allocation; its free was not seen.
    Overwritten { address: u64, row: u64 },
    /// Recording was switched on.
    CaptureStart,
    /// Recording was switched off.
    CaptureStop,
}

/// Iterator over the events of a range.
#[derive(Debug)]
pub struct TraceEvents<'a> {
    trace: &'a Trace,
    at: Position,
    end: u64,
    page: usize,
    page_time: u64,
    page_end: u64,
    other: usize,
    others_end: usize,
    extra: std::vec::IntoIter<TraceEvent>,
    next_extra: Option<TraceEvent>,
    waiting: Option<TraceEvent>,
}

fn function(kind: u8) -> &'static str {
    Kind::from_u8(kind).map_or("unknown", Kind::function)
}

impl Trace {
    /// The events of an interval of the recording in their true order. Threads' starts and ends, and marks from
    /// outside, stand where their time puts them.
    #[must_use]
    pub fn events(&self, span: Span) -> TraceEvents<'_> {
        let c = self.columns();
        let everything = self.everything();
        let first = if span.from == everything.from { 0 } else { span.from.events() };
        let other = c.other_position.partition_point(|&p| p < first);
        let others_end = if span.to == everything.to {
            c.other_position.len()
        } else {
            c.other_position.partition_point(|&p| p < span.to.events())
        };
        let mut extra = Vec::new();
        if span == everything {
            extra = self.extra_events();
        }
        let mut extra = extra.into_iter();
        let next_extra = extra.next();
        TraceEvents {
            trace: self,
            at: span.from,
            end: span.to.events(),
            page: 0,
            page_time: 0,
            page_end: 0,
            other,
            others_end,
            extra,
            next_extra,
            waiting: None,
        }
    }

    /// Events from the metadata that are not in the stream of events.
    fn extra_events(&self) -> Vec<TraceEvent> {
        let mut extra = Vec::new();
        for thread in self.threads().iter().filter(|t| t.active) {
            let at = |t_ns, what| TraceEvent { t_ns, thread: thread.id, node: 0, context: 0, what };
            extra.push(at(thread.started_ns, What::ThreadStart { name: thread.name.clone() }));
            if let Some(t_ns) = thread.ended_ns {
                extra.push(at(t_ns, What::ThreadEnd));
            }
        }
        let c = self.columns();
        let seen: std::collections::HashSet<u64> = c
            .other_kind
            .iter()
            .zip(c.other_a.iter())
            .filter(|&(&kind, _)| kind == Kind::Mark as u8)
            .map(|(_, &ordinal)| ordinal)
            .collect();
        for mark in self.marks().iter().filter(|m| !seen.contains(&m.ordinal)) {
            let what = What::Mark { label: Some(mark.label.clone()) };
            extra.push(TraceEvent { t_ns: mark.t_ns, thread: mark.thread, node: 0, context: 0, what });
        }
        extra.sort_by_key(|e| e.t_ns);
        extra
    }

    /// Events that are neither allocations nor frees of seen blocks, in order.
    pub fn other_events(&self) -> impl Iterator<Item = TraceEvent> + '_ {
        (0..self.columns().other_kind.len()).filter_map(|index| self.other_event(index))
    }

    fn other_event(&self, index: usize) -> Option<TraceEvent> {
        let OtherEvent { t_ns, thread, kind: number, node, a, b, c: extra, d, context, .. } =
            OtherEvent::get(self.columns(), index)?;
        let kind = Kind::from_u8(number)?;
        let what = match kind {
            Kind::Mmap => What::Map {
                address: a,
                len: b,
                protection: extra as u32,
                flags: (extra >> 32) as u32,
                fd: u32::try_from(d).ok().filter(|&fd| fd != u32::MAX),
            },
            Kind::MapExisting => What::Existing { address: a, len: b },
            Kind::ExistingBlock => What::ExistingBlock { address: a, size: b },
            Kind::Munmap => What::Unmap { address: a, len: b },
            Kind::MremapTo => What::Remap { old_address: extra, old_len: d, address: a, len: b },
            Kind::Brk => What::Brk { address: a, delta: b as i64 },
            Kind::Mark => {
                let mark = self.marks().binary_search_by_key(&a, |m| m.ordinal).ok();
                What::Mark { label: mark.and_then(|at| self.marks().get(at)).map(|m| m.label.clone()) }
            }
            Kind::Fork => What::Fork { child: b },
            Kind::Lost => What::Lost { count: a },
            Kind::CaptureStart => What::CaptureStart,
            Kind::CaptureStop => What::CaptureStop,
            kind if kind.is_free() => {
                What::Free { function: function(number), address: a, row: None, existing: (b != 0).then_some(b) }
            }
            _ => return None,
        };
        let context = self.context_id(context);
        Some(TraceEvent { t_ns, thread: self.thread_id(thread), node, context, what })
    }
}

impl TraceEvents<'_> {
    fn enter_page(&mut self) {
        let trace = self.trace;
        let known = self.page_end != 0;
        let index = if known { Some(self.page + 1) } else { trace.page_of_event(self.at.events()) };
        self.page = index.unwrap_or(0);
        self.page_time = trace.page(self.page).time_ns;
        self.page_end = trace.page_start(self.page + 1).events();
    }

    fn next_row(&mut self) -> Option<TraceEvent> {
        if self.at.events() >= self.end {
            return None;
        }
        while self.at.events() >= self.page_end {
            self.enter_page();
        }
        let trace = self.trace;
        let c = trace.columns();
        if trace.is_free(self.at.events()) {
            let ordinal = self.at.frees;
            self.at.frees += 1;
            let t_ns = self.page_time + u64::from(*c.free_time.get(ordinal as usize)?);
            let origin = trace.origin(*c.free_origin.get(ordinal as usize)?);
            let row = trace.row_of_free(ordinal);
            let address = trace.address_of(row);
            let thread = trace.thread_id(origin.thread);
            if Kind::from_u8(origin.kind).is_some_and(Kind::is_realloc_from) {
                return self.join(row, address);
            }
            let what = if origin.kind == Kind::Lost as u8 {
                What::Overwritten { address, row }
            } else {
                What::Free { function: function(origin.kind), address, row: Some(row), existing: None }
            };
            let context = trace.context_id(trace.context_of_free(ordinal));
            return Some(TraceEvent { t_ns, thread, node: origin.node, context, what });
        }
        let row = self.at.allocs;
        let mut event = self.alloc_event()?;
        if let What::Alloc { function, address, size, .. } = event.what
            && trace.origin(*c.alloc_origin.get(row as usize)?).kind >= Kind::ReallocFrom as u8
        {
            let old_address = trace.orphan_address(row);
            event.what = What::Realloc { function, old_address, address, size, row, old_row: None };
        }
        Some(event)
    }

    fn alloc_event(&mut self) -> Option<TraceEvent> {
        let trace = self.trace;
        let c = trace.columns();
        let row = self.at.allocs;
        let t_ns = self.page_time + u64::from(*c.alloc_time.get(row as usize)?);
        let origin = trace.origin(*c.alloc_origin.get(row as usize)?);
        self.at.allocs += 1;
        let (address, size) = (trace.address_of(row), trace.size_of(row));
        let what = What::Alloc { function: function(origin.kind), address, size, row };
        let context = trace.context_id(trace.context_of_alloc(row));
        Some(TraceEvent { t_ns, thread: trace.thread_id(origin.thread), node: origin.node, context, what })
    }

    /// The allocation that belongs to a realloc's free comes next.
    fn join(&mut self, old_row: u64, old_address: u64) -> Option<TraceEvent> {
        let mut event = self.alloc_event()?;
        if let What::Alloc { function, address, size, row } = event.what {
            let (old_address, old_row) = (Some(old_address), Some(old_row));
            event.what = What::Realloc { function, old_address, address, size, row, old_row };
        }
        Some(event)
    }
}

impl Iterator for TraceEvents<'_> {
    type Item = TraceEvent;

    fn next(&mut self) -> Option<TraceEvent> {
        let trace = self.trace;
        while self.waiting.is_none() {
            let position = trace.columns().other_position.get(self.other).copied();
            let other_left = self.other < self.others_end;
            if other_left && position.is_some_and(|p| p <= self.at.events()) {
                self.other += 1;
                self.waiting = trace.other_event(self.other - 1);
                continue;
            }
            self.waiting = self.next_row();
            if self.waiting.is_none() {
                if !other_left {
                    break;
                }
                self.other += 1;
                self.waiting = trace.other_event(self.other - 1);
            }
        }
        let extra_first = match (&self.next_extra, &self.waiting) {
            (Some(extra), Some(event)) => extra.t_ns <= event.t_ns,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if extra_first { std::mem::replace(&mut self.next_extra, self.extra.next()) } else { self.waiting.take() }
    }
}
