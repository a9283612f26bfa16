//! System calls that report which pages are in memory.

use core::num::NonZero;
use std::ops::Range;

use tracehound_format::look::{KernelCounters, PageState, RunWriter};

use tracehound_shared::sys::{self, Errno, PAGE_FILE, PAGE_PRESENT, PAGE_SWAPPED, PAGE_ZERO, ScannedRange};

/// Pages that are asked about at once: the kernel holds its lock on the address space so long.
pub const SLICE_PAGES: usize = 4096;
/// Empty address space costs mincore a call for each slice, and pagemap next to nothing: above this, pagemap says where the
/// next page is. Where there are pages, mincore takes a tenth of pagemap's time.
const LONG_BYTES: usize = 4 * SLICE_PAGES * 4096;

/// See the module's description.
pub struct PageProbe {
    /// Descriptor of `/proc/self/pagemap`; -1: none.
    pub pagemap: i32,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// System calls other than reads may kill.
    pub is_filtered: bool,
    /// The kernel has `PAGEMAP_SCAN`, as far as is known.
    has_scan: bool,
    bytes: Vec<u8>,
    ranges: Vec<ScannedRange>,
    /// First address of what was gathered, and the state of each page from there.
    start: usize,
    states: Vec<PageState>,
}

impl PageProbe {
    /// Without a descriptor.
    pub fn new(page_bytes: u64) -> Self {
        Self {
            pagemap: -1,
            page_bytes,
            is_filtered: false,
            has_scan: true,
            bytes: Vec::new(),
            ranges: Vec::new(),
            start: 0,
            states: Vec::new(),
        }
    }

    /// Bytes of a page.
    pub fn page(&self) -> NonZero<usize> {
        NonZero::new(self.page_bytes as usize).unwrap_or(NonZero::<usize>::MIN)
    }

    /// Whether empty address space costs next to nothing.
    pub fn can_scan(&self) -> bool {
        self.pagemap != -1 && self.has_scan && !self.is_filtered
    }

    /// The pages of private memory without a file, by mincore. Pages of zeros are taken for others, swapped ones for absent
    /// ones. Gives the resident ones.
    pub fn quickly(&mut self, range: &Range<usize>, runs: &mut RunWriter) -> u64 {
        let page = self.page();
        let mut resident = 0;
        let mut at = range.start;
        while at < range.end {
            let count = ((range.end - at) / page).min(SLICE_PAGES);
            self.bytes.clear();
            self.bytes.resize(count, 0);
            // What was unmapped meanwhile is absent.
            if sys::resident_pages(at as u64, &mut self.bytes, self.page_bytes).is_err() {
                self.bytes.fill(0);
            }
            let mut from = 0;
            while let Some(first) = self.bytes.get(from) {
                let same = self.bytes.iter().skip(from).take_while(|byte| *byte & 1 == first & 1).count();
                let is_resident = first & 1 != 0;
                resident += if is_resident { same as u64 } else { 0 };
                runs.add(same as u64, if is_resident { PageState::Anonymous } else { PageState::Absent });
                from += same;
            }
            at += count.max(1) * page.get();
            if range.end.saturating_sub(at) > LONG_BYTES && self.bytes.iter().all(|byte| byte & 1 == 0) {
                let next = self.next_page(at..range.end);
                runs.add(((next - at) / page) as u64, PageState::Absent);
                at = next;
            }
        }
        resident
    }

    /// Where the next page of a range is, or its end; its start where pagemap does not tell.
    fn next_page(&mut self, range: Range<usize>) -> usize {
        if !self.can_scan() {
            return range.start;
        }
        self.ranges.resize(512, ScannedRange::default());
        let one = self.ranges.get_mut(..1).unwrap_or_default();
        match sys::scan_pages(self.pagemap, range.start as u64, range.end as u64, 1, one) {
            Ok(0) => range.end,
            Ok(_) => self.ranges.first().map_or(range.start, |found| {
                let at = usize::try_from(found.start).unwrap_or(range.start);
                at.clamp(range.start, range.end)
            }),
            Err(Errno(libc::ENOTTY | libc::EINVAL)) => {
                self.has_scan = false;
                range.start
            }
            Err(_) => range.start,
        }
    }

    /// Finds out by pagemap about all pages of a range of private mappings, at most [`SLICE_PAGES`]. False where it cannot be
    /// read.
    pub fn gather(&mut self, range: &Range<usize>) -> bool {
        let mut states = core::mem::take(&mut self.states);
        states.clear();
        let add = &mut |pages: u64, state| {
            let room = SLICE_PAGES - states.len();
            states.extend(core::iter::repeat_n(state, room.min(pages as usize)));
        };
        let is_read = self.exactly(range, true, add).is_some();
        (self.start, self.states) = (range.start, states);
        is_read
    }

    /// The pages of a part of what was gathered; gives the resident ones that are of no file.
    pub fn gathered(&self, piece: &Range<usize>, runs: &mut RunWriter) -> u64 {
        let page = self.page();
        let (skipped, count) = (piece.start.saturating_sub(self.start) / page, piece.len() / page);
        let states = self.states.iter().copied().chain(core::iter::repeat(PageState::Absent));
        let mut resident = 0;
        for state in states.skip(skipped).take(count) {
            resident += u64::from(state == PageState::Anonymous);
            runs.add(1, state);
        }
        resident
    }

    /// The pages of any mapping, by pagemap; gives the resident ones that are of no file, or `None` where it cannot be read.
    pub fn exactly(
        &mut self,
        range: &Range<usize>,
        is_private: bool,
        add: &mut impl FnMut(u64, PageState),
    ) -> Option<u64> {
        if self.pagemap == -1 {
            return None;
        }
        if self.can_scan() {
            match self.scan(range, is_private, add) {
                // An old kernel, or a range that pagemap does not know.
                Err(Errno(libc::ENOTTY | libc::EINVAL)) => self.has_scan = false,
                Err(_) => return None,
                Ok(pages) => return Some(pages),
            }
        }
        self.read(range, is_private, add)
    }

    fn scan(
        &mut self,
        range: &Range<usize>,
        is_private: bool,
        add: &mut impl FnMut(u64, PageState),
    ) -> sys::Result<u64> {
        let (page, end) = (page_of(self.page_bytes), range.end as u64);
        let (mut at, mut written, mut resident) = (range.start as u64, range.start as u64, 0);
        self.ranges.resize(512, ScannedRange::default());
        while at < end {
            let most = SLICE_PAGES as u64;
            let count = match sys::scan_pages(self.pagemap, at, end, most, &mut self.ranges) {
                Ok(count) => count,
                Err(error) if written == range.start as u64 => return Err(error),
                // The range is gone in the middle of it: the rest is absent.
                Err(_) => break,
            };
            let mut pages = 0;
            for found in self.ranges.iter().take(count) {
                let (from, to) = (found.start.max(written), found.end.min(end));
                if from >= to {
                    continue;
                }
                let state = state_of(found.categories, is_private);
                let len = (to - from) / page;
                add((from - written) / page, PageState::Absent);
                add(len, state);
                resident += if state == PageState::Anonymous { len } else { 0 };
                pages += len;
                written = to;
            }
            if count < self.ranges.len() && pages < most {
                break;
            }
            // More may follow. Without progress there is none.
            if written <= at {
                break;
            }
            at = written;
        }
        add(end.saturating_sub(written) / page, PageState::Absent);
        Ok(resident)
    }

    /// Eight bytes a page: bit 63 present, 62 swapped, 61 of a file.
    fn read(&mut self, range: &Range<usize>, is_private: bool, add: &mut impl FnMut(u64, PageState)) -> Option<u64> {
        const ENTRY: usize = 8;
        let page = self.page();
        let mut resident = 0;
        let mut at = range.start;
        while at < range.end {
            let wanted = ((range.end - at) / page).clamp(1, SLICE_PAGES);
            self.bytes.resize(wanted * ENTRY, 0);
            let offset = (at / page * ENTRY) as u64;
            let len = match sys::read_at(self.pagemap, &mut self.bytes, offset) {
                Ok(len) if len >= ENTRY => len / ENTRY * ENTRY,
                _ if at == range.start => return None,
                _ => {
                    add(((range.end - at) / page) as u64, PageState::Absent);
                    break;
                }
            };
            for entry in self.bytes.get(..len).unwrap_or_default().chunks_exact(ENTRY) {
                let word = entry.try_into().map_or(0, u64::from_le_bytes);
                let bit = |from: u32, to: u64| if word >> from & 1 != 0 { to } else { 0 };
                let categories = bit(63, PAGE_PRESENT) | bit(62, PAGE_SWAPPED) | bit(61, PAGE_FILE);
                let state = state_of(categories, is_private);
                resident += u64::from(state == PageState::Anonymous);
                add(1, state);
            }
            at += len / ENTRY * page.get();
        }
        Some(resident)
    }
}

/// Bytes of a page, as what may be divided by.
pub fn page_of(bytes: u64) -> NonZero<u64> {
    NonZero::new(bytes).unwrap_or(NonZero::<u64>::MIN)
}

fn state_of(categories: u64, is_private: bool) -> PageState {
    let has = |category: u64| categories & category != 0;
    match (has(PAGE_PRESENT), has(PAGE_FILE)) {
        (true, _) if has(PAGE_ZERO) => PageState::Zero,
        (true, true) => PageState::File,
        (true, false) if is_private => PageState::Anonymous,
        // Memory of a device: it is not counted.
        (true, false) => PageState::Absent,
        (false, _) if has(PAGE_SWAPPED) => PageState::Swapped,
        (false, _) => PageState::Absent,
    }
}

/// Lines of `Name:  number kB`, and how system calls are filtered.
pub fn parse_status(text: &[u8]) -> Option<(KernelCounters, bool)> {
    let line = |name: &[u8]| {
        text.split(|&byte| byte == b'\n')
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(b":"))
            .and_then(|rest| std::str::from_utf8(rest).ok())
            .map(str::trim)
    };
    let of = |name: &[u8]| line(name)?.strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib.saturating_mul(1024));
    let counters = KernelCounters {
        anonymous: of(b"RssAnon")?,
        file: of(b"RssFile")?,
        shared: of(b"RssShmem")?,
        swap: of(b"VmSwap").unwrap_or(0),
        page_tables: of(b"VmPTE").unwrap_or(0),
    };
    // Without the line the kernel has no filters.
    Some((counters, line(b"Seccomp").is_some_and(|mode| mode != "0")))
}

/// What the process's control group counts: what the kernel looks at when it runs out of memory.
pub fn control_group() -> Vec<(String, u64)> {
    let read =
        |path: &str| -> Option<Vec<u8>> { sys::read_file(libc::AT_FDCWD, &std::ffi::CString::new(path).ok()?).ok() };
    let group = || -> Option<Vec<(String, u64)>> {
        let membership = read("/proc/self/cgroup")?;
        let path = membership.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"0::"))?;
        let folder = format!("/sys/fs/cgroup{}", std::str::from_utf8(path).ok()?.trim_end_matches('/'));
        let text = String::from_utf8(read(&format!("{folder}/memory.stat"))?).ok()?;
        let current = read(&format!("{folder}/memory.current")).and_then(|text| String::from_utf8(text).ok());
        let current = current.and_then(|text| Some(("current".to_owned(), text.trim().parse().ok()?)));
        let row = |line: &str| {
            let (name, value) = line.split_once(' ')?;
            let wanted = ["anon", "file", "kernel", "pagetables", "shmem", "slab", "sock"].contains(&name);
            if wanted { Some((name.to_owned(), value.parse().ok()?)) } else { None }
        };
        Some(current.into_iter().chain(text.lines().filter_map(row)).collect())
    };
    group().unwrap_or_default()
}
