//! Looks at the page tables: which pages of which mapping are in memory.
//!
//! ```text
//! private, no file   mincore, 16 MiB at a time (about 1 ms a GiB; other threads' mmap waits for one such slice at most);
//!                    empty address space is passed over by pagemap
//! many small ones    pagemap for all that are neighbours
//! files, shared      pagemap, since mincore reports the page cache
//! what mincore took for more or less than the kernel counts: pages of zeros, swap   pagemap, there and from then on
//! ```
//! pagemap is queried by `PAGEMAP_SCAN` where the kernel has it, else read. Under a seccomp filter it is only read. The
//! time of all looks is bounded: one part in [`SHARE`] of the recording's time, the one at the end included; somewhat more
//! for marks.

mod pass;
mod probe;

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};

use tracehound_format::look::{KernelCounters, LookReason, PageLook, PageState};

use pass::LookPass;
use probe::PageProbe;
use tracehound_shared::maps_text::{library, lines};
use tracehound_shared::own;
use tracehound_shared::sys;

/// Looks may take one part in so many of the time.
const SHARE: u64 = 200;
/// Most time that can be saved up.
const MOST_CREDIT_NS: i64 = 50_000_000;
/// Most time that marks may borrow.
const MOST_DEBT_NS: i64 = 100_000_000;
/// Reading the mappings takes two to three parts in so many of a look, and with one look's time in hand another one is left
/// for the end: reading that takes more than one part of the time in hand is given up.
const READING_PART: i64 = 5;
/// After that, so many times the time in hand is saved up.
const SAVED_UP: u64 = 3;
/// Least time between two looks that were not requested.
const LEAST_PERIOD_NS: u64 = 20_000_000;
/// As the recording grows longer, they are at least this part of its length apart, except at a new highest resident set.
const THINNING: u64 = 500;
/// The resident set counts as changed when it differs by this many bytes, and by a fiftieth.
const LEAST_CHANGE: u64 = 1 << 20;
/// Number of mappings that can be noted as needing pagemap.
const MOST_EXACT: usize = 4096;

/// Purpose of a look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LookRequest {
    /// Why.
    pub reason: LookReason,
    /// Label of the request.
    pub label: Vec<u8>,
    /// Nanoseconds of processor time after which reading the mappings is given up; `None`: it is not.
    pub most_reading: Option<u64>,
}

/// See the module's description.
pub struct PageLooks {
    probe: PageProbe,
    maps: i32,
    status: i32,
    page_bytes: u64,
    text: Vec<u8>,
    /// Mappings of the recorder's library, which stay where they are.
    library: Vec<Range<usize>>,
    /// A look was put off, since there are too many mappings for the time in hand.
    pub was_put_off: bool,
    /// Starts of mappings for which mincore is wrong.
    exact: Vec<u64>,
    /// Difference between the kernel's counters and its page tables.
    slack: u64,
    /// The program's resident set at the last look, and the highest so far.
    last_rss: u64,
    highest_rss: u64,
    /// Of the resident set, the recorder's: it grows most where the program has hardly begun, and is no reason for a look.
    recorder: u64,
    /// Time of the first check whether a look is due.
    began: u64,
    /// End of the last look.
    last: u64,
    cost: u64,
    credit: i64,
    /// Time up to which credit is counted.
    earned_at: u64,
    next_cgroup: u64,
}

impl PageLooks {
    /// Opens the files that looks read.
    pub fn new() -> Self {
        let page_bytes = sys::page_bytes() as u64;
        let mut looks = Self {
            probe: PageProbe::new(page_bytes),
            maps: -1,
            status: -1,
            page_bytes,
            text: Vec::new(),
            library: Vec::new(),
            was_put_off: false,
            exact: Vec::new(),
            slack: 0,
            last_rss: 0,
            highest_rss: 0,
            recorder: 0,
            began: 0,
            last: 0,
            cost: 0,
            credit: 0,
            earned_at: 0,
            next_cgroup: 0,
        };
        looks.reopen();
        looks
    }

    /// Opens the files again, in another table of descriptors.
    pub fn reopen(&mut self) {
        let open = |path| sys::open_at(libc::AT_FDCWD, path, libc::O_RDONLY, 0).map_or(-1, sys::move_high);
        self.maps = open(c"/proc/thread-self/maps");
        self.status = open(c"/proc/thread-self/status");
        self.probe.pagemap = open(c"/proc/self/pagemap");
    }

    /// Forgets the descriptors, which were closed with their table.
    pub fn forget_descriptors(&mut self) {
        (self.maps, self.status, self.probe.pagemap) = (-1, -1, -1);
    }

    /// The descriptors in use; -1: none.
    pub fn descriptors(&self) -> [i32; 3] {
        [self.maps, self.status, self.probe.pagemap]
    }

    /// The look that is due without a request, if one is: the resident set is `rss` now, of which `recorder` bytes are the
    /// recorder's, or `period` is over (0: there is none).
    pub fn due(&mut self, now: u64, rss: u64, recorder: u64, period: u64) -> Option<LookRequest> {
        self.earn(now);
        self.recorder = recorder;
        let rss = rss.saturating_sub(recorder);
        let since = now.saturating_sub(self.last);
        if period > 0 && since >= period.max(2 * self.cost) {
            return Some(LookRequest::default());
        }
        let changed = rss.abs_diff(self.last_rss);
        if changed < LEAST_CHANGE || changed < self.last_rss / 50 || self.credit < self.needed() {
            return None;
        }
        let is_highest = rss > self.highest_rss.saturating_add(self.highest_rss / 50);
        let thinned = now.saturating_sub(self.began) / THINNING;
        let least = if is_highest { LEAST_PERIOD_NS } else { LEAST_PERIOD_NS.max(thinned) };
        let most_reading = Some((self.credit / READING_PART).max(0).cast_unsigned());
        (since >= least).then(|| LookRequest { most_reading, ..LookRequest::default() })
    }

    /// Credit that a look needs which was not requested: its own time, and that of the one at the end.
    fn needed(&self) -> i64 {
        self.cost.saturating_mul(2).cast_signed()
    }

    /// Whether there is time for a look at a mark.
    pub fn has_time(&mut self, now: u64) -> bool {
        self.earn(now);
        self.credit > -MOST_DEBT_NS
    }

    /// Whether a look takes so long that an exit should not wait for one.
    pub fn is_slow(&self) -> bool {
        self.cost > 300_000_000
    }

    fn earn(&mut self, now: u64) {
        if self.began == 0 {
            (self.began, self.earned_at) = (now, now);
            self.credit = MOST_CREDIT_NS / 10;
        }
        let earned = now.saturating_sub(self.earned_at) / SHARE;
        self.earned_at = now.max(self.earned_at);
        self.credit = self.credit.saturating_add_unsigned(earned).min(MOST_CREDIT_NS.max(self.needed()));
    }

    /// Looks at all mappings. `threads` are addresses on the stacks of threads, each with the thread's id, by
    /// address. Empty where the kernel gives no data.
    pub fn look(
        &mut self,
        request: LookRequest,
        ticks: fn() -> u64,
        threads: &[(usize, u32)],
        filtered: bool,
    ) -> Vec<PageLook> {
        let started = sys::clock(libc::CLOCK_MONOTONIC);
        let tick = ticks();
        let mut text = core::mem::take(&mut self.text);
        text.clear();
        let Some((before, has_filter)) = self.counters() else { return Vec::new() };
        // Of the processor: on a busy machine the clock would run out in a process of any size.
        let worked = sys::clock(libc::CLOCK_THREAD_CPUTIME_ID);
        let is_over = || {
            let now = || sys::clock(libc::CLOCK_THREAD_CPUTIME_ID);
            request.most_reading.is_some_and(|most| now().saturating_sub(worked) > most)
        };
        match sys::read_on(self.maps, &mut text, || !is_over()) {
            Ok(true) => {}
            Ok(false) => {
                self.give_up(started);
                return Vec::new();
            }
            Err(_) => return Vec::new(),
        }
        self.probe.is_filtered = filtered || has_filter;
        let mut ours = own::list();
        if self.library.is_empty() {
            self.library = library(lines(&text), PageLook::fields as *const () as usize);
        }
        ours.extend(self.library.iter().cloned());
        ours.sort_unstable_by_key(|range| range.start);
        let quick = before.swap == 0 && !self.probe.is_filtered;
        let mut found = LookPass::run(&mut self.probe, &text, &ours, threads, quick.then_some(&self.exact));
        let mut after = self.counters().map_or(before, |(after, _)| after);
        let tolerance = (32 * self.page_bytes).max(before.anonymous / 1024).max(2 * self.slack);
        if !found.quick.is_empty() && self.probe.pagemap != -1 && off(found.anonymous, &before, &after) > tolerance {
            let quickly = core::mem::take(&mut found.quick);
            found = LookPass::run(&mut self.probe, &text, &ours, threads, None);
            after = self.counters().map_or(after, |(after, _)| after);
            self.slack = off(found.anonymous, &before, &after);
            self.learn(&found, &quickly);
        }
        let mut looks = found.records();
        self.text = if text.capacity() > 1 << 20 { Vec::new() } else { text };
        let until = ticks();
        let ended = sys::clock(libc::CLOCK_MONOTONIC);
        for (part, look) in (0..).zip(&mut looks) {
            (look.tick, look.until, look.reason, look.part) = (tick, until, request.reason, part);
            (look.before, look.after) = (before, after);
        }
        if let Some(last) = looks.last_mut() {
            last.last = true;
        }
        if let Some(first) = looks.first_mut() {
            first.label = request.label;
            if ended >= self.next_cgroup {
                self.next_cgroup = ended + 1_000_000_000;
                first.cgroup = probe::control_group();
            }
        }
        self.cost = ended.saturating_sub(started);
        self.credit = self.credit.saturating_sub_unsigned(self.cost);
        self.last = ended;
        self.last_rss = after.rss().saturating_sub(self.recorder);
        self.highest_rss = self.highest_rss.max(self.last_rss);
        looks
    }

    /// The mappings are too many for the time in hand: the look is made when more is saved up.
    fn give_up(&mut self, started: u64) {
        let saved = self.credit.max(0).cast_unsigned().saturating_mul(SAVED_UP);
        self.cost = self.cost.max(saved / 2);
        self.was_put_off = true;
        self.last = sys::clock(libc::CLOCK_MONOTONIC);
        self.credit = self.credit.saturating_sub_unsigned(self.last.saturating_sub(started));
    }

    /// Notes the mappings in which mincore and the page tables differ.
    fn learn(&mut self, found: &LookPass<'_>, quickly: &[(u64, u64)]) {
        let mut truth: BTreeMap<u64, u64> = BTreeMap::new();
        for look in &found.looks {
            let ranges: Vec<(u64, u64)> = look.ranges().collect();
            for run in look.page_runs().unwrap_or_default() {
                if let (Some((start, _)), PageState::Anonymous) = (ranges.get(run.mapping), run.state) {
                    *truth.entry(*start).or_default() += run.len / probe::page_of(self.page_bytes);
                }
            }
        }
        for &(start, pages) in quickly {
            if truth.get(&start).copied().unwrap_or(0) != pages && self.exact.len() < MOST_EXACT {
                self.exact.push(start);
            }
        }
        self.exact.sort_unstable();
        self.exact.dedup();
    }

    /// The kernel's counters, and whether the calling thread has a filter of system calls.
    fn counters(&self) -> Option<(KernelCounters, bool)> {
        let mut text = [0_u8; 4096];
        let len = sys::read_at(self.status, &mut text, 0).ok()?;
        probe::parse_status(text.get(..len)?)
    }
}

impl Default for PageLooks {
    fn default() -> Self {
        Self::new()
    }
}

/// Difference between the result and the kernel's counts before and after.
fn off(found: u64, before: &KernelCounters, after: &KernelCounters) -> u64 {
    let counted: RangeInclusive<u64> = before.anonymous.min(after.anonymous)..=before.anonymous.max(after.anonymous);
    counted.start().saturating_sub(found).max(found.saturating_sub(*counted.end()))
}

#[cfg(test)]
mod tests;
