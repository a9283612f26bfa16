//! Slabs: what an allocator gives back as a whole, by its rules.
//!
//! ```text
//! jemalloc    slab of a size class: lcm(4 KiB, class), so that the place of a block in its page has one place in the slab;
//!             larger blocks: their own pages
//! mimalloc    page of 64 KiB up to 16 KiB a block; of 512 KiB up to 128 KiB; larger blocks: their own 64 KiB
//! tcmalloc    span of the class: some pages of 8 KiB; larger blocks: their own pages
//! ```
//! Spans, and mimalloc's pages of 512 KiB, can begin where several places fit: then the last one before their first live block
//! is taken, and the slab is not *certain*.

use std::ops::Range;

use tracehound_index::Trace;
use tracehound_index::block_extents::AllocatorModel;
use tracehound_index::facts::ModuleFacts;

use crate::live_blocks::PlacedBlock;
use crate::{QueryError, Result};

const PAGE: u64 = 4096;
/// jemalloc: larger blocks have pages of their own.
const JEMALLOC_SMALL: u64 = 14336;
/// mimalloc 2: what its pages consist of.
const MIMALLOC_SLICE: u64 = 64 << 10;
const MIMALLOC_SMALL: u64 = 16 << 10;
const MIMALLOC_MEDIUM: u64 = 128 << 10;
const MIMALLOC_MEDIUM_PAGE: u64 = 512 << 10;
/// tcmalloc of gperftools: its pages, and the largest size that has a class.
const TCMALLOC_PAGE: u64 = 8 << 10;
const TCMALLOC_MOST: u64 = 256 << 10;
/// Of so many blocks one may contradict the rules; if more do, they are not this allocator's.
const FEW: usize = 20;

/// Sizes below are looked up only once.
const KNOWN_SIZES: usize = 16 << 10;

/// An allocator whose slabs are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlabRules {
    /// The C library: single pages.
    Glibc,
    /// jemalloc 4 and 5.
    Jemalloc,
    /// mimalloc 2.
    Mimalloc,
    /// gperftools' tcmalloc.
    Tcmalloc(Vec<SpanClass>),
}

/// A size class of tcmalloc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanClass {
    size: u64,
    span: u64,
}

/// Where a block can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Placement {
    /// In a slab of `len` bytes that begins at a multiple of `step` and has blocks of `region` bytes from its start on.
    Regions { region: u64, step: u64, len: u64 },
    /// In the range of so many bytes that begins at a multiple of them.
    Aligned(u64),
    /// In memory of its own: from the multiple of `step` before it, `len` bytes.
    Own { step: u64, len: u64 },
}

impl Placement {
    /// Slabs that a block can be in, the last one first.
    fn slabs(self, address: u64) -> impl Iterator<Item = Range<u64>> {
        let (step, len, region) = match self {
            Self::Regions { region, step, len } => (step, len, region),
            Self::Aligned(bytes) => (bytes, bytes, 1),
            Self::Own { step, len } => (step, len, 1),
        };
        let steps = if matches!(self, Self::Regions { .. }) { len / step } else { 1 };
        let inside = address % step;
        (0..steps).filter_map(move |before| {
            let offset = before * step + inside;
            let fits = offset.is_multiple_of(region) && offset.saturating_add(region) <= len;
            let start = address.checked_sub(offset).filter(|_| fits)?;
            Some(start..start.saturating_add(len))
        })
    }
}

impl Placement {
    /// Whether one of these slabs begins at `start`.
    fn can_begin(self, address: u64, start: u64) -> bool {
        let Some(offset) = address.checked_sub(start) else { return false };
        match self {
            Self::Regions { region, step, len } => {
                offset.saturating_add(region) <= len && start.is_multiple_of(step) && offset.is_multiple_of(region)
            }
            Self::Aligned(step) | Self::Own { step, .. } => offset == address % step,
        }
    }
}

impl SlabRules {
    /// Those of the recording's allocator.
    ///
    /// # Errors
    /// When they are not known.
    pub fn of(trace: &Trace) -> Result<Self> {
        let names: Vec<String> = trace.modules().iter().map(ModuleFacts::name).collect();
        let has = |prefixes: &[&str]| names.iter().any(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)));
        let model = AllocatorModel::of(trace);
        let is_other = trace.facts().remarks.iter().all(|remark| remark.topic != "static-allocator");
        match model {
            AllocatorModel::Glibc => Ok(Self::Glibc),
            AllocatorModel::Jemalloc => Ok(Self::Jemalloc),
            AllocatorModel::Other if is_other && has(&["libmimalloc.so.2", "libmimalloc-secure.so.2"]) => {
                Ok(Self::Mimalloc)
            }
            AllocatorModel::Other if is_other && has(&["libtcmalloc.so.4", "libtcmalloc_minimal.so.4"]) => {
                Ok(Self::Tcmalloc(span_classes()))
            }
            AllocatorModel::Other => Err(QueryError::bad(
                "unit",
                "the slabs of this program's allocator are not known: only those of glibc, libjemalloc, libmimalloc 2 and \
                 gperftools' libtcmalloc are; `4k` counts pages with every allocator",
            )),
        }
    }

    /// Where a block of a size and an alignment is; 1: none was asked for.
    fn placement(&self, size: u64, alignment: u64) -> Placement {
        let aligned = size.max(1).checked_next_multiple_of(alignment.max(1)).unwrap_or(u64::MAX);
        let own =
            |step: u64, len: u64| Placement::Own { step, len: len.checked_next_multiple_of(step).unwrap_or(step) };
        match self {
            Self::Glibc => Placement::Aligned(PAGE),
            Self::Jemalloc => match AllocatorModel::Jemalloc.extent(0, aligned).end {
                class @ ..=JEMALLOC_SMALL if alignment <= PAGE => {
                    Placement::Regions { region: class, step: PAGE, len: least_common_multiple(PAGE, class) }
                }
                // By default such a block begins anywhere in its first page, and has one page more.
                class => own(PAGE, class.saturating_add(PAGE)),
            },
            // An aligned block is in one that has room for the alignment, too.
            Self::Mimalloc => match if alignment > 16 { size.saturating_add(alignment) } else { size } {
                ..=MIMALLOC_SMALL => Placement::Aligned(MIMALLOC_SLICE),
                room @ ..=MIMALLOC_MEDIUM => {
                    let region = if alignment > 16 { PAGE } else { mimalloc_bin(room) };
                    Placement::Regions { region, step: MIMALLOC_SLICE, len: MIMALLOC_MEDIUM_PAGE }
                }
                room => own(MIMALLOC_SLICE, room),
            },
            Self::Tcmalloc(classes) => {
                let first = classes.partition_point(|class| class.size < size.max(1));
                let mut fitting =
                    classes.iter().skip(first).filter(|class| class.size.is_multiple_of(alignment.max(1)));
                match fitting.next() {
                    Some(&SpanClass { size, span }) => {
                        Placement::Regions { region: size, step: TCMALLOC_PAGE, len: span }
                    }
                    None => own(TCMALLOC_PAGE, aligned),
                }
            }
        }
    }

    /// What a unit is, and how far it is known, in sentences.
    pub fn words(&self, slabs: Option<&Slabs>) -> String {
        let unit = match self {
            Self::Glibc => return "glibc gives back single pages: its unit is the page.".into(),
            Self::Jemalloc => "jemalloc gives back whole slabs of a size class, and large blocks by themselves",
            Self::Mimalloc => "mimalloc gives back its pages, of 64 and 512 KiB, as a whole",
            Self::Tcmalloc(_) => "tcmalloc gives back whole spans",
        };
        let Some(slabs) = slabs else { return format!("{unit}.") };
        let mut words = format!("{unit}; bounds by the rules of its usual settings, pages are resident ones of 4 KiB.");
        if slabs.uncertain > 0 {
            let count = slabs.units.len();
            words +=
                &format!(" {} of {count} begin where several places fit, of which the last is taken.", slabs.uncertain);
        }
        if slabs.misfits > 0 {
            words += &format!(" {} of {} blocks contradict the rules.", slabs.misfits, slabs.of_block.len());
        }
        words
    }
}

/// Bytes of tcmalloc's blocks and spans, as it computes them when it starts.
fn span_classes() -> Vec<SpanClass> {
    let mut classes: Vec<SpanClass> = Vec::new();
    let mut size = 8;
    while size <= TCMALLOC_MOST {
        let at_once = ((64_u64 << 10) / size).clamp(2, 32) / 4;
        let mut span = 0;
        while span == 0 || span / size < at_once {
            span += TCMALLOC_PAGE;
            while span % size > span / 8 {
                span += TCMALLOC_PAGE;
            }
        }
        match classes.last_mut() {
            // As many blocks fit in the same span: the class before takes them in.
            Some(last) if last.span == span && span / size == span / last.size => last.size = size,
            _ => classes.push(SpanClass { size, span }),
        }
        size += match size {
            ..16 => 8,
            16..128 => 16,
            _ => (1 << size.ilog2()) / 8,
        }
        .min(TCMALLOC_PAGE);
    }
    classes
}

/// mimalloc: four sizes to each doubling.
fn mimalloc_bin(size: u64) -> u64 {
    let doubling = (size.max(8) - 1).ilog2();
    size.checked_next_multiple_of(1 << (doubling - 2)).unwrap_or(size)
}

fn least_common_multiple(one: u64, two: u64) -> u64 {
    let (mut a, mut b) = (one, two);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    one / a * two
}

/// A slab with live blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocatorSlab {
    /// First address.
    pub start: u64,
    /// Address behind it.
    pub end: u64,
    /// Resident pages in it.
    pub pages: u64,
    /// Where it begins is the only place where it can.
    certain: bool,
    /// It may end earlier.
    open_end: bool,
}

/// The slabs that blocks are in, by address; none overlaps another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Slabs {
    /// Slab of each block.
    pub of_block: Vec<u32>,
    /// The slabs.
    pub units: Vec<AllocatorSlab>,
    /// Slabs that can begin elsewhere.
    pub uncertain: usize,
    /// Blocks that cannot be where they are by the rules.
    pub misfits: usize,
}

impl Slabs {
    /// Puts blocks, by address, into slabs. `alignment` is that of an origin, 1 if none was asked for; `resident` are runs of
    /// resident pages by address.
    pub fn new(
        rules: &SlabRules,
        blocks: &[PlacedBlock],
        alignment: impl Fn(u32) -> u64,
        resident: &[Range<u64>],
    ) -> Self {
        let mut found = Self { of_block: Vec::with_capacity(blocks.len()), ..Self::default() };
        // Where the last block in a slab ends.
        let mut filled = 0;
        let mut known = vec![None; KNOWN_SIZES];
        for block in blocks {
            let alignment = alignment(block.origin);
            let placement = match known.get_mut(block.size as usize) {
                Some(known) if alignment <= 1 => *known.get_or_insert_with(|| rules.placement(block.size, 1)),
                _ => rules.placement(block.size, alignment),
            };
            found.place(block.start, placement, filled);
            filled = block.start.saturating_add(block.size.max(1));
            if let Some(slab) = found.units.last_mut() {
                slab.end = slab.end.max(page_up(filled));
            }
            found.of_block.push((found.units.len() - 1) as u32);
        }
        found.uncertain = found.units.iter().filter(|slab| !slab.certain).count();
        found.count_resident(resident);
        found
    }

    /// Puts the next block into the last slab or a new one; the block before it ends at `filled`.
    fn place(&mut self, address: u64, placement: Placement, filled: u64) {
        let floor = match self.units.last_mut().filter(|last| address < last.end) {
            Some(last) if placement.can_begin(address, last.start) => return,
            // Part of what seemed to be one slab is another one.
            Some(last) if last.open_end && page_up(filled) <= address => {
                last.end = page_up(filled);
                last.end
            }
            Some(_) => {
                self.misfits += 1;
                return;
            }
            None => self.units.last().map_or(0, |last| last.end),
        };
        let mut slabs = placement.slabs(address).filter(|slab| slab.start >= floor);
        let (slab, certain) = match slabs.next() {
            Some(slab) => (slab, slabs.next().is_none()),
            None => {
                let page = (address - address % PAGE).max(floor);
                self.misfits += 1;
                (page..page.saturating_add(PAGE), false)
            }
        };
        let open_end = !certain || matches!(placement, Placement::Own { .. });
        self.units.push(AllocatorSlab { start: slab.start, end: slab.end, pages: 0, certain, open_end });
    }

    fn count_resident(&mut self, resident: &[Range<u64>]) {
        let mut first = 0;
        for slab in &mut self.units {
            while resident.get(first).is_some_and(|run| run.end <= slab.start) {
                first += 1;
            }
            let inside = resident.iter().skip(first).take_while(|run| run.start < slab.end);
            slab.pages = inside.map(|run| run.end.min(slab.end) - run.start.max(slab.start)).sum::<u64>() / PAGE;
        }
    }

    /// The slab of a block.
    pub fn of(&self, block: usize) -> Option<(u32, &AllocatorSlab)> {
        let slab = *self.of_block.get(block)?;
        Some((slab, self.units.get(slab as usize)?))
    }

    /// The same blocks, but from the first slab on that begins in this range, and up to the last one that does.
    pub fn whole(&self, blocks: Range<usize>) -> Range<usize> {
        let up = |at: usize| {
            let before = at.checked_sub(1).and_then(|before| self.of_block.get(before));
            let more = self.of_block.iter().skip(at).take_while(|slab| before == Some(*slab)).count();
            at + more
        };
        up(blocks.start)..up(blocks.end)
    }

    /// That the blocks are where the rules have them.
    ///
    /// # Errors
    /// When too many are not.
    pub fn check(&self) -> Result<()> {
        if self.misfits * FEW <= self.of_block.len() {
            return Ok(());
        }
        let why = format!(
            "{} of {} blocks are not where this program's allocator puts them with its usual settings, so its slabs are not known; \
             `4k` counts pages with every allocator",
            self.misfits,
            self.of_block.len()
        );
        Err(QueryError::bad("unit", why))
    }
}

fn page_up(address: u64) -> u64 {
    address.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX - u64::MAX % PAGE)
}

#[cfg(test)]
mod tests;
