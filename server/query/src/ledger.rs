//! Ledger of resident memory: rows that add up to it, page by page, by the recorder's look at the page tables.
//!
//! ```text
//! a page is …                                          decided in this order
//!   the recorder's · of a module or another file · of a stack    by its mapping
//!   pinned by live blocks: live + rounding + holes              by the blocks that reach into it
//!   of a mapping that the program made                          by the call that made it
//!   free, between blocks or above the last one                  its mapping has held blocks
//!   other
//! ```
//! Without a look the rows are estimates from the last sample of the resident set.

mod forecast;
pub mod regions;
mod words;

use std::collections::BTreeMap;

use tracehound_format::look::{MappingClass, PageState};

use super::Result;
use super::live_blocks::{HeapRegions, PageWalk, PlacedBlock};
use super::window::{TimeExpr, labelled};
pub(crate) use regions::is_runtime;
use regions::{Region, RegionKind};
use tracehound_api::ledger::{Basis, BesideRow, LedgerRow, MemoryLedger};
use tracehound_index::block_extents::AllocatorModel;
use tracehound_index::facts::{LookFacts, MemoryDetailFacts};
use tracehound_index::looks::PageMap;
use tracehound_index::symbols::RecordingSymbols;
use tracehound_index::{Cancel, Trace};
use words::AllocatorWords;

/// Keys of the rows, in their order.
pub const KEYS: [&str; 14] = [
    "live",
    "rounding",
    "holes",
    "free_pages",
    "free_top",
    "allocator_metadata",
    "stacks",
    "mappings",
    "runtime_heaps",
    "modules",
    "files",
    "recorder",
    "other",
    "unexplained",
];
/// Most children of a row.
const MOST_CHILDREN: usize = 50;
/// The kernel's kinds of memory are those of a look where the resident sets differ by at most a twentieth, or these bytes.
const MOST_OFF: u64 = 4 << 20;

/// The look that a moment is answered by: one with that label, else the last one up to the moment if `before` is asked for,
/// else of the last one before and the first one behind it that at which memory was more alike.
#[must_use]
pub fn look_for<'a>(trace: &'a Trace, at: Option<&TimeExpr>, at_ns: u64, before: bool) -> Option<&'a LookFacts> {
    let named = match at {
        Some(TimeExpr::Mark(label)) => labelled(trace.looks(), |look| &look.label, label),
        _ => None,
    };
    let (earlier, later) = trace.looks().split_at(trace.looks().partition_point(|look| look.t_ns <= at_ns));
    let alike = || {
        let columns = trace.columns();
        let sampled = columns.sample_time.partition_point(|&t_ns| t_ns <= at_ns).saturating_sub(1);
        let sample = columns.sample_time.get(sampled).copied().zip(columns.sample_rss.get(sampled).copied());
        // Known last: by a sample, or by the look.
        let known = earlier.last().map(|look| (look.t_ns, look.counters.rss())).max(sample);
        let (rss, live) = (known.map(|known| known.1), trace.live_bytes_at(at_ns));
        // Memory may be given back at once behind its peak: the nearest in time may be the look at which nothing is left.
        let difference = |look: &&LookFacts| {
            let resident = rss.map_or(0, |rss| look.counters.rss().abs_diff(rss));
            let of_live = trace.live_bytes_at(look.t_ns).abs_diff(live);
            (resident.saturating_add(of_live), look.t_ns.abs_diff(at_ns))
        };
        [earlier.last(), later.first()].into_iter().flatten().min_by_key(difference)
    };
    named.or_else(|| earlier.last().filter(|_| before)).or_else(alike)
}

/// Resident memory of a look, and the recorder's part of it: `rss_bytes` and the row `recorder` of its ledger, without the
/// other rows. `None` where the look cannot be read.
#[must_use]
pub fn resident_and_recorder(trace: &Trace, look: &LookFacts) -> Option<(u64, u64)> {
    let map = trace.page_map(look).ok()?;
    let own = |mapping: usize| map.mappings.get(mapping).is_some_and(|m| m.class == MappingClass::Recorder);
    let (mut found, mut recorder) = (0, 0);
    for run in map.runs.iter().filter(|run| matches!(run.state, PageState::Anonymous | PageState::File)) {
        found += run.len;
        recorder += if own(run.mapping) { run.len } else { 0 };
    }
    Some((resident_of(&map, found), recorder))
}

/// Resident memory of a look: what the kernel counted before and after it, but no less than what was found.
fn resident_of(map: &PageMap, found: u64) -> u64 {
    found.max(map.before.rss().min(map.after.rss()))
}

/// Bytes of a row, by what its children are called.
#[derive(Debug, Clone, Default)]
struct RowSum {
    bytes: u64,
    is_modelled: bool,
    children: BTreeMap<(&'static str, String), u64>,
}

impl RowSum {
    fn add(&mut self, bytes: u64, kind: &'static str, name: &str) {
        if bytes > 0 {
            self.bytes += bytes;
            *self.children.entry((kind, name.to_owned())).or_default() += bytes;
        }
    }
}

/// Rows by key.
#[derive(Debug, Clone, Default)]
struct LedgerSums {
    rows: BTreeMap<&'static str, RowSum>,
}

impl LedgerSums {
    fn row(&mut self, key: &'static str) -> &mut RowSum {
        self.rows.entry(key).or_default()
    }

    fn add(&mut self, key: &'static str, bytes: u64, kind: &'static str, name: &str) {
        self.row(key).add(bytes, kind, name);
    }

    fn bytes(&self, key: &str) -> u64 {
        self.rows.get(key).map_or(0, |row| row.bytes)
    }

    /// Parts of a row of one kind, by name.
    fn children(&self, key: &str, kind: &str) -> Vec<(&str, u64)> {
        let all = self.rows.get(key).into_iter().flat_map(|row| &row.children);
        all.filter(|((of, _), _)| *of == kind).map(|((_, name), bytes)| (name.as_str(), *bytes)).collect()
    }

    fn total(&self) -> u64 {
        self.rows.values().map(|row| row.bytes).sum()
    }

    /// All rows in the order of their keys.
    fn documents(&self) -> Vec<LedgerRow> {
        let document = |key: &&'static str| {
            let row = self.rows.get(key).cloned().unwrap_or_default();
            let mut children: Vec<LedgerRow> = row
                .children
                .into_iter()
                .map(|((kind, name), bytes)| LedgerRow {
                    key: kind.into(),
                    name: Some(name),
                    bytes,
                    ..LedgerRow::default()
                })
                .collect();
            children.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
            if children.len() > MOST_CHILDREN {
                let rest = children.split_off(MOST_CHILDREN - 1);
                let (bytes, name) = (rest.iter().map(|row| row.bytes).sum(), format!("{} more", rest.len()));
                children.push(LedgerRow { key: "rest".into(), name: Some(name), bytes, ..LedgerRow::default() });
            }
            let basis = if row.is_modelled { Basis::Modelled } else { Basis::Exact };
            LedgerRow { key: (*key).into(), name: None, bytes: row.bytes, basis, children }
        };
        KEYS.iter().map(document).collect()
    }
}

/// What is known of one region of the heap.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct HeapFacts {
    name: String,
    resident: u64,
    /// Resident pages above the last block.
    top: u64,
    /// Resident pages without a block, those above the last one left out.
    free: u64,
    blocks: u64,
    /// Size of the last block.
    last_block: u64,
}

/// Makes the ledger from a look. `blocks` are those that were live then.
///
/// # Errors
/// When cancelled.
pub fn from_look(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    map: &PageMap,
    blocks: &[PlacedBlock],
    heap: &HeapRegions,
    cancel: &Cancel,
) -> Result<MemoryLedger> {
    let model = AllocatorModel::of(trace);
    let regions = regions::of(trace, symbols, map, heap, model);
    let page = map.page_bytes;
    let mut sums = LedgerSums::default();
    let mut heaps: Vec<HeapFacts> = Vec::new();
    let mut walk = PageWalk::new(blocks, model, page);
    let mut untouched = Untouched::new(blocks);
    let mut not_resident = 0;
    let mut runs = map.runs.iter().peekable();
    for (number, region) in regions.iter().enumerate() {
        if number.is_multiple_of(1024) {
            cancel.check()?;
        }
        let mut facts = HeapFacts { name: region.name.clone(), ..HeapFacts::default() };
        // Free pages that no block has followed yet.
        let mut pending = 0;
        while let Some(run) = runs.peek() {
            let (from, to) = (run.start.max(region.start), (run.start + run.len).min(region.end));
            if run.start >= region.end {
                break;
            }
            if from < to {
                let bytes = to - from;
                match run.state {
                    PageState::Anonymous | PageState::File => {
                        facts.resident += bytes;
                        if region.holds_blocks() {
                            let mut pinned = 0;
                            let (mut live, mut extent) = (0, 0);
                            let mut first_touch = None;
                            walk.run(from..to, |found| {
                                first_touch.get_or_insert(found.first);
                                pinned += found.fresh * page;
                                live += found.live;
                                extent += found.extent;
                                facts.blocks += 1;
                                facts.last_block = blocks.get(found.block).map_or(0, |block| block.size);
                                pending = to.saturating_sub(found.first + found.pages * page);
                            });
                            sums.add("live", live, "heap", &region.name);
                            sums.add("rounding", extent - live, "heap", &region.name);
                            sums.add("holes", pinned - extent, "heap", &region.name);
                            let free = bytes - pinned;
                            // What lies behind the last block of all so far may turn out to be the top.
                            let behind = if first_touch.is_some() { pending } else { bytes };
                            let inner = free - behind.min(free);
                            if first_touch.is_some() {
                                facts.free += facts.top + inner;
                                facts.top = behind.min(free);
                            } else {
                                facts.top += behind;
                            }
                        } else {
                            region.add(&mut sums, bytes, run.state);
                        }
                    }
                    // What is in swap was touched.
                    PageState::Swapped => {}
                    PageState::Absent | PageState::Zero => {
                        let live = untouched.absent(from..to);
                        if run.state == PageState::Absent && region.kind == RegionKind::Heap && region.is_writable {
                            not_resident += bytes.saturating_sub(live);
                        }
                    }
                }
            }
            if run.start + run.len > region.end {
                break;
            }
            runs.next();
        }
        if region.holds_blocks() {
            close(region, &mut facts, model, &mut sums);
            heaps.push(facts);
        }
    }
    for key in ["rounding", "holes"] {
        sums.row(key).is_modelled = model != AllocatorModel::Other || key == "holes";
    }
    let knows_all = trace.knows_all_blocks(map.t_ns);
    sums.row("free_pages").is_modelled = model != AllocatorModel::Glibc;
    for key in ["holes", "free_pages", "free_top"].into_iter().filter(|_| !knows_all) {
        sums.row(key).is_modelled = true;
    }
    sums.row("allocator_metadata").is_modelled = true;
    let found = sums.total();
    let rss = resident_of(map, found);
    sums.row("unexplained").bytes = rss - found;
    let trim = (model == AllocatorModel::Glibc && knows_all).then(|| forecast::trim(map, &regions, blocks));
    let mut beside = vec![
        BesideRow { key: "swapped".into(), bytes: map.after.swap },
        BesideRow { key: "live_untouched".into(), bytes: untouched.bytes },
        BesideRow { key: "free_not_resident".into(), bytes: not_resident },
        BesideRow { key: "page_tables".into(), bytes: map.after.page_tables },
    ];
    let counted = map.after.rss();
    let is_alike = |near: &&MemoryDetailFacts| near.kinds.rss.abs_diff(counted) <= (counted / 20).max(MOST_OFF);
    if let Some(MemoryDetailFacts { kinds, .. }) = nearest_kinds(trace, map.t_ns).filter(is_alike) {
        beside.push(BesideRow { key: "lazy_free".into(), bytes: kinds.lazy_free });
        beside.push(BesideRow { key: "huge_pages".into(), bytes: kinds.anonymous_huge });
    }
    beside.extend(map.cgroup.iter().map(|(name, bytes)| BesideRow { key: format!("cgroup_{name}"), bytes: *bytes }));
    let knows_mappings = super::memory::has_mappings(trace);
    let words = AllocatorWords { model, knows_all, knows_mappings, trim, heaps: &heaps };
    Ok(MemoryLedger {
        look_ns: Some(map.t_ns),
        rss_bytes: rss,
        explained_bytes: found,
        live_bytes: sums.bytes("live"),
        live_count: blocks.len() as u64,
        knows_all_blocks: knows_all,
        returnable_by_trim_bytes: trim,
        allocator: model.name().into(),
        why: words::why(&sums, rss, &words),
        rows: sums.documents(),
        beside,
    })
}

/// Adds the free pages of a region of the heap to the rows.
fn close(region: &Region, facts: &mut HeapFacts, model: AllocatorModel, sums: &mut LedgerSums) {
    if region.kind != RegionKind::Heap {
        // The program made this mapping, and blocks lie in it: the rest of it is the program's.
        region.add(sums, facts.free + facts.top, PageState::Anonymous);
        return;
    }
    // Only glibc's heaps end with a top that grows and shrinks.
    if model != AllocatorModel::Glibc || facts.blocks == 0 {
        facts.free += std::mem::take(&mut facts.top);
    }
    sums.add("free_pages", facts.free, "heap", &region.name);
    sums.add("free_top", facts.top, "heap", &region.name);
}

/// Live bytes on pages that were never written to.
struct Untouched<'a> {
    blocks: &'a [PlacedBlock],
    at: usize,
    bytes: u64,
}

impl<'a> Untouched<'a> {
    fn new(blocks: &'a [PlacedBlock]) -> Self {
        Self { blocks, at: 0, bytes: 0 }
    }

    /// The next such range, by address; gives the live bytes in it.
    fn absent(&mut self, range: std::ops::Range<u64>) -> u64 {
        let before = self.bytes;
        while let Some(block) = self.blocks.get(self.at) {
            let end = block.start.saturating_add(block.size);
            if block.start >= range.end {
                break;
            }
            self.bytes += end.min(range.end).saturating_sub(block.start.max(range.start));
            if end > range.end {
                // It reaches into what comes next.
                break;
            }
            self.at += 1;
        }
        self.bytes - before
    }
}

/// Memory by the kernel's kinds, as counted nearest to a time.
#[must_use]
pub fn nearest_kinds(trace: &Trace, t_ns: u64) -> Option<&MemoryDetailFacts> {
    trace.facts().memory_details.iter().min_by_key(|detail| detail.t_ns.abs_diff(t_ns))
}

/// Parts of a resident set without a look at its pages:
/// `live + page_rest − untouched + other_anonymous + files + recorder` is the resident set of the last sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResidentEstimate {
    /// Live blocks.
    pub live: u64,
    /// The rest of the pages that hold them.
    pub page_rest: u64,
    /// Of these pages about so much is not resident.
    pub untouched: u64,
    /// Other memory without a file.
    pub other_anonymous: u64,
    /// Files and shared memory.
    pub files: u64,
    /// The recorder's own, from above.
    pub recorder: u64,
}

/// Makes the ledger of a recording without looks, from an estimate.
#[must_use]
pub fn from_estimate(
    trace: &Trace,
    at_ns: u64,
    rss: u64,
    live_count: u64,
    estimate: &ResidentEstimate,
) -> MemoryLedger {
    let mut sums = LedgerSums::default();
    let untouched = estimate.untouched;
    let rows = [
        ("live", estimate.live.saturating_sub(untouched)),
        ("holes", estimate.page_rest.saturating_sub(untouched.saturating_sub(estimate.live))),
        ("other", estimate.other_anonymous),
        ("files", estimate.files),
        ("recorder", estimate.recorder),
    ];
    for (key, bytes) in rows {
        let row = sums.row(key);
        (row.bytes, row.is_modelled) = (bytes, true);
    }
    let found = sums.total();
    let rss = rss.max(found);
    sums.row("unexplained").bytes = rss - found;
    MemoryLedger {
        look_ns: None,
        rss_bytes: rss,
        explained_bytes: found,
        live_bytes: sums.bytes("live"),
        live_count,
        knows_all_blocks: trace.knows_all_blocks(at_ns),
        returnable_by_trim_bytes: None,
        allocator: AllocatorModel::of(trace).name().into(),
        why: "This recording has no looks at the page tables: the rows are estimates.".into(),
        rows: sums.documents(),
        beside: vec![
            BesideRow { key: "swapped".into(), bytes: 0 },
            BesideRow { key: "live_untouched".into(), bytes: untouched },
        ],
    }
}
