//! Times, order and extremes of events: what goes into pages, and when chunks and buckets end.

use std::io;

use super::PairingEngine;
use crate::checkpoint::Checkpoint;
use crate::event_batch::EventBatch;
use tracehound_index::schema::EventPage;

impl PairingEngine {
    /// Passes on the current batch, in the middle of a page.
    ///
    /// # Errors
    /// Those of `hand_over`.
    pub fn flush(&mut self, hand_over: &mut impl FnMut(EventBatch) -> io::Result<EventBatch>) -> io::Result<()> {
        if self.chunk.is_empty() { Ok(()) } else { self.hand_over(hand_over) }
    }

    /// Passes on the current batch, with a checkpoint behind it that `complete` finishes.
    ///
    /// # Errors
    /// Those of `hand_over`.
    pub fn flush_with(
        &mut self,
        complete: impl FnOnce(&Self) -> Checkpoint,
        hand_over: &mut impl FnMut(EventBatch) -> io::Result<EventBatch>,
    ) -> io::Result<()> {
        self.end_bucket();
        self.chunk.checkpoint = Some(Box::new(complete(self)));
        self.hand_over(hand_over)
    }

    /// Ends the bucket where it is long enough and a page has just ended.
    fn end_bucket(&mut self) {
        let events = self.totals.allocs + self.totals.frees;
        let bucket_events = events - self.totals.bucket_start.0 - self.totals.bucket_start.1;
        if bucket_events >= self.fine.bucket_events && self.totals.page.is_none() {
            self.chunk.ends_bucket = true;
            self.totals.bucket_start = (self.totals.allocs, self.totals.frees);
        }
    }

    pub(super) fn hand_over(
        &mut self,
        hand_over: &mut impl FnMut(EventBatch) -> io::Result<EventBatch>,
    ) -> io::Result<()> {
        self.end_bucket();
        self.chunk = hand_over(std::mem::take(&mut self.chunk))?;
        self.start_chunk();
        Ok(())
    }

    /// Only full words of order bits go along with a chunk; the open one is carried by the totals.
    pub(super) fn start_chunk(&mut self) {
        self.chunk.first_alloc = self.totals.allocs;
        self.chunk.first_free = self.totals.frees;
        self.chunk.order_first = (self.totals.allocs + self.totals.frees) / 64;
    }

    pub(super) fn close_page(&mut self) {
        if let Some(page) = self.totals.page.take() {
            self.chunk.pages.push(page);
            self.totals.pages += 1;
            self.totals.page_events = 0;
        }
    }

    /// Nanoseconds since the page's time; opens a page where that is needed. The second half of a pair stays with the
    /// first.
    #[inline]
    pub(super) fn page_time(&mut self, ns: u64, with_previous: bool) -> u32 {
        self.totals.last_ns = ns;
        if let Some(page) = &self.totals.page {
            let since = ns - page.time_ns;
            if with_previous || since <= u64::from(u32::MAX) && self.totals.page_events < self.fine.page_events {
                return since as u32;
            }
        }
        self.open_page(ns);
        0
    }

    #[cold]
    fn open_page(&mut self, ns: u64) {
        self.close_page();
        let t = &mut self.totals;
        t.page = Some(EventPage {
            time_ns: ns,
            allocs: t.allocs,
            frees: t.frees,
            allocated: t.allocated,
            live: t.live,
            min_bytes: u64::MAX,
            max_bytes: 0,
            min_count: u64::MAX,
            max_count: 0,
        });
    }

    /// Notes one event in the order and in the page; `settled` = the state after it counts for the extremes.
    #[inline]
    pub(super) fn note(&mut self, is_free: bool, settled: bool) {
        let t = &mut self.totals;
        let bit = (t.allocs + t.frees - 1) % 64;
        t.order_word |= u64::from(is_free) << bit;
        t.occupied.note(self.occupancy.pages(), settled);
        if bit == 63 {
            self.chunk.order.push(t.order_word);
            t.order_word = 0;
            self.chunk.occupied.push(std::mem::take(&mut t.occupied));
        }
        t.page_events += 1;
        if let (true, Some(page)) = (settled, &mut t.page) {
            let count = t.allocs - t.frees;
            page.min_bytes = page.min_bytes.min(t.live);
            page.max_bytes = page.max_bytes.max(t.live);
            page.min_count = page.min_count.min(count);
            page.max_count = page.max_count.max(count);
        }
    }
}
