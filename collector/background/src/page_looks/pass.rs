//! One pass over all mappings, from the text of `/proc/self/maps` to records.

use core::iter::Peekable;
use core::num::NonZero;
use std::collections::BTreeMap;
use std::ops::Range;

use tracehound_format::look::{LookMapping, MappingClass, PageLook, RunWriter};

use super::probe::{PageProbe, SLICE_PAGES};
use tracehound_shared::maps_text::{MapsLine, lines};

/// Bytes of a record, approximately.
const RECORD_BYTES: usize = 2 << 20;
const MAPPING_BYTES: usize = 24;
/// Mappings of at most so many pages are asked about together with their neighbours: a system call for each takes longer
/// than pagemap does for all of them.
const SMALL_PAGES: usize = 16;
/// Least number of mappings that are asked about together.
const LEAST_GROUP: usize = 4;
/// Largest guard below a stack.
const MOST_GUARD: usize = 1 << 20;

/// Result of a pass.
pub struct LookPass<'a> {
    /// Whole records, but for the last one, whose runs are still being gathered.
    pub looks: Vec<PageLook>,
    /// Start and resident pages of mappings that mincore was used for.
    pub quick: Vec<(u64, u64)>,
    /// Bytes of resident pages of no file.
    pub anonymous: u64,
    names: BTreeMap<&'a [u8], u32>,
    runs: RunWriter,
    /// End of the mapping before.
    end: usize,
}

impl<'a> LookPass<'a> {
    /// Looks at every mapping by `probe`. With `quickly` mincore is used where it is exact, except for mappings with these
    /// starts.
    pub fn run(
        probe: &mut PageProbe,
        text: &'a [u8],
        ours: &[Range<usize>],
        threads: &[(usize, u32)],
        quickly: Option<&Vec<u64>>,
    ) -> Self {
        let mut pass = Self {
            looks: vec![PageLook { page_bytes: probe.page_bytes as u32, ..PageLook::default() }],
            quick: Vec::new(),
            anonymous: 0,
            names: BTreeMap::new(),
            runs: RunWriter::default(),
            end: 0,
        };
        let mut rest = lines(text).peekable();
        let mut group = Vec::new();
        // End of the mapping before, where that is a guard.
        let mut guard = 0;
        while let Some(first) = rest.next() {
            gather(first, &mut rest, probe.page(), &mut group);
            let span = group.first().map_or(0, start_of)..group.last().map_or(0, end_of);
            let is_known = group.len() >= LEAST_GROUP && probe.gather(&span);
            for line in &group {
                let has_access = !line.permissions.starts_with(b"---");
                split(line.range.clone(), ours, |piece, is_ours| {
                    let mut mapping = pass.mapping(line, &piece, is_ours, probe.page());
                    let can_have_thread = guard == piece.start || line.path == b"[stack]";
                    mapping.thread = if can_have_thread && !is_ours { thread_on(&piece, threads) } else { 0 };
                    if mapping.thread != 0 && mapping.class == MappingClass::Anonymous {
                        mapping.class = MappingClass::Stack;
                    }
                    let pages = if is_known {
                        Some(probe.gathered(&piece, &mut pass.runs))
                    } else if mapping.class == MappingClass::Special {
                        None
                    } else {
                        pass.pages(probe, line, &piece, quickly)
                    };
                    pass.runs.close();
                    mapping.seen = pages.is_some();
                    pass.anonymous += pages.unwrap_or(0) * probe.page_bytes;
                    pass.add(mapping);
                });
                guard = if !has_access && line.range.len() <= MOST_GUARD { line.range.end } else { 0 };
            }
        }
        pass
    }

    /// Writes the runs of a piece of a mapping, and gives its resident pages of no file; `None` where nothing tells.
    fn pages(
        &mut self,
        probe: &mut PageProbe,
        line: &MapsLine<'a>,
        piece: &Range<usize>,
        quickly: Option<&Vec<u64>>,
    ) -> Option<u64> {
        let is_private = line.permissions.get(3) == Some(&b'p');
        let has_access = !line.permissions.starts_with(b"---");
        let start = piece.start as u64;
        let is_quick = quickly.is_some_and(|exact| exact.binary_search(&start).is_err());
        if is_private && !line.has_file && has_access && is_quick {
            let pages = probe.quickly(piece, &mut self.runs);
            self.quick.push((start, pages));
            return Some(pages);
        }
        let is_known = has_access || probe.can_scan();
        let runs = &mut self.runs;
        if is_known { probe.exactly(piece, is_private, &mut |pages, state| runs.add(pages, state)) } else { None }
    }

    fn mapping(
        &mut self,
        line: &MapsLine<'a>,
        piece: &Range<usize>,
        is_ours: bool,
        page: NonZero<usize>,
    ) -> LookMapping {
        let bit = |at: usize, letter: u8, value: u8| if line.permissions.get(at) == Some(&letter) { value } else { 0 };
        let gap = piece.start.saturating_sub(self.end) / page;
        self.end = piece.end;
        LookMapping {
            gap: gap as u64,
            pages: (piece.len() / page) as u64,
            class: if is_ours { MappingClass::Recorder } else { class_of(line) },
            protection: bit(0, b'r', 1) | bit(1, b'w', 2) | bit(2, b'x', 4),
            name: if is_ours { 0 } else { self.name(line.path) },
            thread: 0,
            seen: false,
        }
    }

    /// Position of a name in the current record, plus one.
    fn name(&mut self, name: &'a [u8]) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let next = self.names.len() as u32 + 1;
        let number = *self.names.entry(name).or_insert(next);
        if let (true, Some(look)) = (number == next, self.looks.last_mut()) {
            look.names.push(name.to_vec());
        }
        number
    }

    /// Finishes the current record where it has grown long enough.
    fn add(&mut self, mapping: LookMapping) {
        let Some(look) = self.looks.last_mut() else { return };
        look.mappings.push(mapping);
        if look.mappings.len() * MAPPING_BYTES + self.runs.len() > RECORD_BYTES {
            look.runs = self.runs.take();
            let next = PageLook { page_bytes: look.page_bytes, ..PageLook::default() };
            self.looks.push(next);
            self.names.clear();
            self.end = 0;
        }
    }

    /// The records.
    pub fn records(mut self) -> Vec<PageLook> {
        if let Some(look) = self.looks.last_mut() {
            look.runs = self.runs.take();
        }
        self.looks
    }
}

/// Fills a group: the first mapping, and where that is small private memory of no file, its neighbours of the same kind.
fn gather<'a>(
    first: MapsLine<'a>,
    rest: &mut Peekable<impl Iterator<Item = MapsLine<'a>>>,
    page: NonZero<usize>,
    group: &mut Vec<MapsLine<'a>>,
) {
    let is_small = |line: &MapsLine<'_>| {
        let memory = [MappingClass::Anonymous, MappingClass::Break, MappingClass::Stack];
        line.range.len() / page <= SMALL_PAGES && memory.contains(&class_of(line))
    };
    group.clear();
    let (start, mut end, joins) = (first.range.start, first.range.end, is_small(&first));
    group.push(first);
    while let Some(line) = rest.next_if(|line| {
        joins && line.range.start == end && is_small(line) && (line.range.end - start) / page <= SLICE_PAGES
    }) {
        end = line.range.end;
        group.push(line);
    }
}

const fn start_of(line: &MapsLine<'_>) -> usize {
    line.range.start
}

const fn end_of(line: &MapsLine<'_>) -> usize {
    line.range.end
}

fn class_of(line: &MapsLine<'_>) -> MappingClass {
    let path = line.path;
    // Pages of hugetlbfs are not in the resident set.
    if path.starts_with(b"[v") || path.starts_with(b"[uprobes") || path.starts_with(b"/anon_hugepage") {
        return MappingClass::Special;
    }
    match (line.permissions.get(3) == Some(&b'p'), line.has_file) {
        (false, _) => MappingClass::Shared,
        (true, true) => MappingClass::File,
        (true, false) if path == b"[heap]" => MappingClass::Break,
        (true, false) if path == b"[stack]" => MappingClass::Stack,
        (true, false) => MappingClass::Anonymous,
    }
}

/// The thread with an address in a range.
fn thread_on(range: &Range<usize>, threads: &[(usize, u32)]) -> u32 {
    let at = threads.partition_point(|thread| thread.0 < range.start);
    threads.get(at).filter(|thread| thread.0 < range.end).map_or(0, |thread| thread.1)
}

/// Splits a range where it becomes the recorder's or ceases to be; `ours` are by address.
fn split(range: Range<usize>, ours: &[Range<usize>], mut each: impl FnMut(Range<usize>, bool)) {
    let mut at = range.start;
    let first = ours.partition_point(|own| own.end <= range.start);
    for own in ours.iter().skip(first).take_while(|own| own.start < range.end) {
        let (start, end) = (own.start.max(at), own.end.min(range.end));
        if at < start {
            each(at..start, false);
        }
        if start < end {
            each(start..end, true);
            at = end;
        }
    }
    if at < range.end {
        each(at..range.end, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ours_is_cut_out() {
        let ours = [10..20, 20..25, 40..60];
        let cut = |range| {
            let mut pieces = Vec::new();
            split(range, &ours, |piece, is_ours| pieces.push((piece.start, piece.end, is_ours)));
            pieces
        };
        assert_eq!(cut(0..50), [(0, 10, false), (10, 20, true), (20, 25, true), (25, 40, false), (40, 50, true)]);
        assert_eq!(cut(12..15), [(12, 15, true)]);
        assert_eq!(cut(25..40), [(25, 40, false)]);
    }

    #[test]
    fn threads_are_found_by_their_stack_pointers() {
        let threads = [(5, 1), (50, 2)];
        assert_eq!((thread_on(&(0..10), &threads), thread_on(&(10..50), &threads)), (1, 0));
        assert_eq!(thread_on(&(50..51), &threads), 2);
    }
}
