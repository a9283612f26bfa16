//! A look at the page tables: every mapping of the process, and which of its pages are in memory.
//!
//! The pages of all mappings that were looked into follow each other in [`PageLook::runs`], by address: varints of
//! `pages << 3 | state`. A look that is too long for one record is several, with the same tick and rising parts.

use serde::{Deserialize, Serialize};

use crate::varint::{Reader, put};
use crate::wire::{wire_enum, wire_struct};
use crate::{FormatError, Result};

wire_enum! {
    /// Reason of a look.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
    pub enum LookReason {
        /// The resident set had changed, or the period was over.
        #[default]
        Change = 0,
        /// A mark was set.
        Mark = 1,
        /// The program or `heaptrace ctl` asked for it.
        Asked = 2,
        /// Recording was switched off.
        Stop = 3,
        /// The recording ended.
        End = 4,
    }
}

wire_enum! {
    /// Class of a mapping, as far as kernel and recorder know it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
    pub enum MappingClass {
        /// Private memory without a file.
        #[default]
        Anonymous = 0,
        /// The program break (`[heap]`).
        Break = 1,
        /// A stack: the main thread's, or one on which a recorded thread has been seen.
        Stack = 2,
        /// A file, private: code and data of modules, too.
        File = 3,
        /// A file or memory that is shared.
        Shared = 4,
        /// The kernel's own, such as `[vdso]`.
        Special = 5,
        /// The recorder's own.
        Recorder = 6,
    }
}

wire_struct! {
    /// A mapping, or a part of one where only a part is the recorder's.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
    pub struct LookMapping {
        /// Pages between the end of the mapping before and this one; for the first of a record, from address 0.
        pub gap: u64,
        /// Its pages.
        pub pages: u64,
        /// What it is.
        pub class: MappingClass,
        /// 1 = read, 2 = write, 4 = execute.
        pub protection: u8,
        /// Position of its name in `names`, plus one; 0: it has none.
        pub name: u32,
        /// Recording-wide id of a thread whose stack it is; 0: of none that is known.
        pub thread: u32,
        /// `runs` has its pages.
        pub seen: bool,
    }
}

wire_struct! {
    /// The kernel's counters of the process. Bytes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
    pub struct KernelCounters {
        /// Resident and of no file.
        pub anonymous: u64,
        /// Resident, of files.
        pub file: u64,
        /// Resident, shared memory.
        pub shared: u64,
        /// Swapped out.
        pub swap: u64,
        /// Page tables.
        pub page_tables: u64,
    }
}

impl KernelCounters {
    /// The resident set.
    #[must_use]
    pub const fn rss(&self) -> u64 {
        self.anonymous + self.file + self.shared
    }
}

wire_struct! {
    /// A look at the page tables of the process.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
    pub struct PageLook {
        /// Begin of the look, ticks.
        pub tick: u64,
        /// Its end, ticks.
        pub until: u64,
        /// Why.
        pub reason: LookReason,
        /// Label that was given with the request.
        pub label: Vec<u8>,
        /// Number of this record among those of the look, from 0.
        pub part: u32,
        /// No further record of this look follows.
        pub last: bool,
        /// Bytes of a page.
        pub page_bytes: u32,
        /// Counters before the look.
        pub before: KernelCounters,
        /// Counters after it.
        pub after: KernelCounters,
        /// The process's control group, at most once a second: `current` and some rows of `memory.stat`, bytes.
        pub cgroup: Vec<(String, u64)>,
        /// Names of mappings, as `/proc/self/maps` has them.
        pub names: Vec<Vec<u8>>,
        /// Mappings by address.
        pub mappings: Vec<LookMapping>,
        /// Pages of those that were looked into: varints of `pages << 3 | state`, see `PageState`.
        pub runs: Vec<u8>,
    }
}

/// State of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum PageState {
    /// Not in memory.
    #[default]
    Absent = 0,
    /// In memory, of no file.
    Anonymous = 1,
    /// In memory, of a file or shared memory.
    File = 2,
    /// Swapped out.
    Swapped = 3,
    /// The kernel's page of zeros: it was only read, and is not counted.
    Zero = 4,
}

impl PageState {
    const ALL: [Self; 5] = [Self::Absent, Self::Anonymous, Self::File, Self::Swapped, Self::Zero];

    /// Whether the page counts as resident.
    #[must_use]
    pub const fn is_resident(self) -> bool {
        matches!(self, Self::Anonymous | Self::File)
    }
}

/// Gathers runs of pages; neighbours with the same state become one run.
#[derive(Debug, Default)]
pub struct RunWriter {
    bytes: Vec<u8>,
    state: PageState,
    pages: u64,
}

impl RunWriter {
    /// More pages.
    pub fn add(&mut self, pages: u64, state: PageState) {
        if state != self.state {
            self.close();
            self.state = state;
        }
        self.pages = self.pages.saturating_add(pages);
    }

    /// Ends the run at hand: the next page begins a new one, as the next mapping must.
    pub fn close(&mut self) {
        if self.pages > 0 {
            put(&mut self.bytes, self.pages << 3 | self.state as u64);
            self.pages = 0;
        }
    }

    /// Bytes so far.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing is there.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.pages == 0
    }

    /// Takes the bytes out.
    pub fn take(&mut self) -> Vec<u8> {
        self.close();
        core::mem::take(&mut self.bytes)
    }
}

/// A run of pages of one mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRun {
    /// Position of the mapping in the record.
    pub mapping: usize,
    /// First address.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// State of its pages.
    pub state: PageState,
}

impl PageLook {
    /// First address and bytes of each mapping.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let page = u64::from(self.page_bytes.max(1));
        self.mappings.iter().scan(0_u64, move |at, mapping| {
            let start = at.saturating_add(mapping.gap.saturating_mul(page));
            let len = mapping.pages.saturating_mul(page).min(u64::MAX - start);
            *at = start + len;
            Some((start, len))
        })
    }

    /// All runs, absent ones too, by address.
    ///
    /// # Errors
    /// When they do not fit the mappings.
    pub fn page_runs(&self) -> Result<Vec<PageRun>> {
        let malformed = |why: &str| FormatError::malformed("a look at pages", why);
        let page = u64::from(self.page_bytes.max(1));
        let mut reader = Reader::new(&self.runs);
        let mut found = Vec::new();
        for (mapping, (start, len)) in self.ranges().enumerate() {
            let Some(about) = self.mappings.get(mapping).filter(|about| about.seen) else { continue };
            let (mut at, mut left) = (start, about.pages);
            while left > 0 {
                let word = reader.next_u64().ok_or_else(|| malformed("its runs end early"))?;
                let state = PageState::ALL.get((word & 7) as usize).ok_or_else(|| malformed("an unknown state"))?;
                let pages = word >> 3;
                let behind = pages.checked_mul(page).and_then(|bytes| at.checked_add(bytes));
                let Some(next) = behind.filter(|&next| pages > 0 && pages <= left && next <= start + len) else {
                    return Err(malformed("a run is longer than its mapping"));
                };
                found.push(PageRun { mapping, start: at, len: next - at, state: *state });
                at = next;
                left -= pages;
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mapping(gap: u64, pages: u64, seen: bool) -> LookMapping {
        LookMapping { gap, pages, seen, ..LookMapping::default() }
    }

    proptest! {
        #[test]
        fn runs_come_back(maps in prop::collection::vec((0_u64..9, prop::collection::vec(0_usize..5, 1..40)), 0..8)) {
            let (mut look, mut writer) = (PageLook { page_bytes: 4096, ..PageLook::default() }, RunWriter::default());
            let (mut expected, mut at) = (Vec::new(), 0);
            for (gap, states) in &maps {
                look.mappings.push(mapping(*gap, states.len() as u64, true));
                at += gap * 4096;
                for &state in states {
                    writer.add(1, PageState::ALL[state]);
                    expected.push((at, PageState::ALL[state]));
                    at += 4096;
                }
                writer.close();
            }
            look.runs = writer.take();
            let pages = |run: PageRun| (0..run.len / 4096).map(move |i| (run.start + i * 4096, run.state));
            prop_assert_eq!(look.page_runs().unwrap().into_iter().flat_map(pages).collect::<Vec<_>>(), expected);
        }

        #[test]
        fn hostile_runs_are_no_trouble(runs: Vec<u8>, gaps in prop::collection::vec((any::<u64>(), any::<u64>(), any::<bool>()), 0..6)) {
            let mappings = gaps.into_iter().map(|(gap, pages, seen)| mapping(gap, pages, seen)).collect();
            let look = PageLook { page_bytes: 4096, mappings, runs, ..PageLook::default() };
            for run in look.page_runs().unwrap_or_default() {
                prop_assert!(run.start.checked_add(run.len).is_some());
            }
        }
    }

    #[test]
    fn a_mapping_beyond_all_addresses_is_refused() {
        let mut look = PageLook { page_bytes: 4096, runs: vec![1 << 3], ..PageLook::default() };
        look.mappings = vec![mapping(u64::MAX, 1, true)];
        assert!(look.page_runs().is_err());
    }

    #[test]
    fn what_was_not_looked_into_has_no_runs() {
        let mut look = PageLook { page_bytes: 4096, ..PageLook::default() };
        look.mappings = vec![mapping(1, 5, false), mapping(0, 2, true)];
        look.runs = vec![1 << 3 | 1, 1 << 3];
        let runs = look.page_runs().unwrap();
        assert_eq!((runs.len(), runs[0].start, runs[0].state), (2, 6 * 4096, PageState::Anonymous));
        assert_eq!(look.ranges().collect::<Vec<_>>(), [(4096, 5 * 4096), (6 * 4096, 2 * 4096)]);
    }
}
