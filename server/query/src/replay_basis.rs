//! Basis of a replay: how much memory the recorded process had without the recorder, what of it was not the
//! allocator's, and how much of their blocks the sites write to.

use std::collections::{HashMap, HashSet};

use tracehound_format::look::{MappingClass, PageState};
use tracehound_index::block_extents::AllocatorModel;
use tracehound_index::facts::LookFacts;
use tracehound_index::looks::PageMap;
use tracehound_index::mappings::{AddressSpace, Mapping, MappingUse};
use tracehound_index::symbols::RecordingSymbols;
use tracehound_index::{Cancel, Trace};

use super::Result;
use super::filter::Selection;
use super::ledger::regions::{self, RegionKind};
use super::live_blocks::{HeapRegions, live_blocks_of};
use super::suppress::is_library_start_at;

/// See the module's description.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReplayBasis {
    /// The allocator, by name.
    pub allocator: String,
    /// It is inside the program's file, where `LD_PRELOAD` does not replace it.
    pub is_inside_program: bool,
    /// Resident anonymous memory at most, without the recorder's.
    pub peak_bytes: u64,
    /// When.
    pub peak_ns: u64,
    /// The part of it that is not the allocator's.
    pub other_bytes: u64,
    /// The same at other looks, by time: when, and how many bytes.
    pub others: Vec<(u64, u64)>,
    /// Moments between looks, by time; none where the program has mapped nothing by itself.
    pub samples: Vec<SampleBetweenLooks>,
    /// By looks; else by samples, and then `other_bytes` is not known.
    pub has_looks: bool,
    /// Of sites with large blocks: the part of these that was written to.
    pub touched: HashMap<u32, f64>,
    /// Sites where the C++ library allocates while it is loaded.
    pub library_starts: HashSet<u32>,
}

/// Memory at a moment of no look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleBetweenLooks {
    /// When.
    pub t_ns: u64,
    /// Resident memory of no file, without the recorder's.
    pub anonymous_bytes: u64,
    /// Address space that the program has mapped without a file, and in which no block has been: no more than this of it can be
    /// in the program's own mappings.
    pub mapped_bytes: u64,
}

/// Looks that may be the highest once the recorder's part is taken off.
const CANDIDATES: usize = 6;
/// Looks beside those that tell how much of their blocks sites write to, and what memory is not the allocator's.
const SPREAD: usize = 24;
/// Samples that are taken: of so many parts of the time the highest each.
const SAMPLES: u64 = 256;
/// Mappings of less than this are not worth it.
const LEAST_MAPPED: u64 = 1 << 20;
/// Blocks of which it is asked how much of them is written to.
const LARGE: u64 = 32 << 10;

/// Gathers it.
///
/// # Errors
/// When cancelled.
pub fn run(trace: &Trace, symbols: &dyn RecordingSymbols, cancel: &Cancel) -> Result<ReplayBasis> {
    let model = AllocatorModel::of(trace);
    let is_start = |site: u32| trace.site_node(site).is_some_and(|node| is_library_start_at(trace, node));
    let mut basis = ReplayBasis {
        allocator: allocator_of(trace).into(),
        is_inside_program: inside_program(trace).is_some(),
        library_starts: (0..trace.site_count()).filter(|&site| is_start(site)).collect(),
        ..ReplayBasis::default()
    };
    let mut looks: Vec<&LookFacts> = trace.looks().iter().collect();
    looks.sort_by_key(|look| std::cmp::Reverse(look.counters.anonymous));
    looks.truncate(CANDIDATES);
    let heap = HeapRegions::of(trace, trace.end_position(), cancel)?;
    let mut highest: Option<PageMap> = None;
    for look in &looks {
        let Ok(map) = trace.page_map(look) else { continue };
        let anonymous = anonymous(&map);
        if anonymous >= basis.peak_bytes {
            (basis.peak_bytes, basis.peak_ns) = (anonymous, map.t_ns);
            highest = Some(map);
        }
    }
    let Some(map) = highest else {
        // The recorder's own figure is an estimate from above.
        let columns = trace.columns();
        let samples =
            columns.sample_anonymous.iter().zip(columns.sample_recorder.iter()).zip(columns.sample_time.iter());
        let of_program = samples.map(|((anonymous, recorder), &t_ns)| (anonymous.saturating_sub(*recorder), t_ns));
        (basis.peak_bytes, basis.peak_ns) = of_program.max().unwrap_or_default();
        return Ok(basis);
    };
    basis.has_looks = true;
    let other = |map: &PageMap| other_bytes(map, &regions::of(trace, symbols, map, &heap, model));
    basis.other_bytes = other(&map);
    let mut written = WrittenParts::default();
    for look in looks_between(trace.looks(), &looks) {
        cancel.check()?;
        let Ok(map) = trace.page_map(look) else { continue };
        basis.others.push((map.t_ns, other(&map)));
        written.look_at(trace, &map, cancel)?;
    }
    basis.touched = written.by_site();
    basis.samples = samples(trace, &heap, cancel)?;
    Ok(basis)
}

/// The highest sample of each part of the time, and what the program had mapped then.
fn samples(trace: &Trace, heap: &HeapRegions, cancel: &Cancel) -> Result<Vec<SampleBetweenLooks>> {
    let columns = trace.columns();
    let sizes = columns.sample_anonymous.iter().zip(columns.sample_recorder.iter());
    let all = columns.sample_time.iter().zip(sizes).map(|(&t_ns, (anonymous, recorder))| SampleBetweenLooks {
        t_ns,
        anonymous_bytes: anonymous.saturating_sub(*recorder),
        mapped_bytes: 0,
    });
    let part_ns = (trace.facts().duration_ns / SAMPLES).max(1);
    let mut samples: Vec<SampleBetweenLooks> = Vec::new();
    for sample in all {
        match samples.last_mut().filter(|last| last.t_ns / part_ns == sample.t_ns / part_ns) {
            Some(last) if last.anonymous_bytes >= sample.anonymous_bytes => {}
            Some(last) => *last = sample,
            None => samples.push(sample),
        }
    }
    let mut space = AddressSpace::default();
    let mut events = trace.other_events().peekable();
    let is_own = |mapping: &&Mapping| {
        mapping.kind == MappingUse::Anonymous && !heap.touch(mapping.start..mapping.start + mapping.len)
    };
    for sample in &mut samples {
        cancel.check()?;
        while let Some(event) = events.next_if(|event| event.t_ns <= sample.t_ns) {
            space.apply(&event);
        }
        sample.mapped_bytes = space.mappings().filter(is_own).map(|mapping| mapping.len).sum();
    }
    if samples.iter().all(|sample| sample.mapped_bytes < LEAST_MAPPED) {
        samples.clear();
    }
    Ok(samples)
}

/// Resident memory of no file that is neither the allocator's nor the recorder's.
fn other_bytes(map: &PageMap, regions: &[regions::Region]) -> u64 {
    let (mut at, mut sum) = (0, 0);
    for run in map.runs.iter().filter(|run| run.state == PageState::Anonymous) {
        while regions.get(at).is_some_and(|region| region.end <= run.start) {
            at += 1;
        }
        for region in regions.iter().skip(at).take_while(|region| region.start < run.start + run.len) {
            let bytes = region.end.min(run.start + run.len).saturating_sub(region.start.max(run.start));
            if !matches!(region.kind, RegionKind::Heap | RegionKind::Metadata | RegionKind::Recorder) {
                sum += bytes;
            }
        }
    }
    sum
}

/// Resident memory of no file, without the recorder's.
fn anonymous(map: &PageMap) -> u64 {
    let own = |mapping: usize| map.mappings.get(mapping).is_some_and(|m| m.class == MappingClass::Recorder);
    let runs = map.runs.iter().filter(|run| run.state == PageState::Anonymous && !own(run.mapping));
    runs.map(|run| run.len).sum()
}

/// Allocators that a program may use in place of the C library's.
const OTHERS: [&str; 3] = ["jemalloc", "tcmalloc", "mimalloc"];

/// The name of a recording's allocator, as far as it is known.
#[must_use]
pub fn allocator_of(trace: &Trace) -> &'static str {
    inside_program(trace).unwrap_or_else(|| loaded_allocator(trace, AllocatorModel::of(trace)))
}

fn loaded_allocator(trace: &Trace, model: AllocatorModel) -> &'static str {
    let names: Vec<String> = trace.modules().iter().map(tracehound_index::facts::ModuleFacts::name).collect();
    let other = OTHERS.into_iter().find(|name| names.iter().any(|n| n.contains(name)));
    match (model, other) {
        (AllocatorModel::Jemalloc, _) => "jemalloc",
        (_, Some(name)) => name,
        (AllocatorModel::Glibc, None) => "glibc",
        (AllocatorModel::Other, None) => "unknown",
    }
}

/// The allocator inside the program's own file, which the recorder names in a remark.
fn inside_program(trace: &Trace) -> Option<&'static str> {
    let mut remarks = trace.facts().remarks.iter().filter(|remark| remark.topic == "static-allocator");
    remarks.find_map(|remark| OTHERS.into_iter().find(|name| remark.text.contains(name)))
}

/// What was written of large blocks: of each what the look saw that saw most of it, since one that was about to be filled is
/// full later.
#[derive(Default)]
struct WrittenParts {
    /// By row: site, size, most resident bytes.
    blocks: HashMap<u64, (u32, u64, u64)>,
}

impl WrittenParts {
    fn look_at(&mut self, trace: &Trace, map: &PageMap, cancel: &Cancel) -> Result<()> {
        let large = Selection { min_size: LARGE, ..Selection::all() };
        let resident: Vec<(u64, u64)> =
            map.runs.iter().filter(|run| run.state.is_resident()).map(|run| (run.start, run.start + run.len)).collect();
        for block in live_blocks_of(trace, &large, trace.position_before(map.t_ns + 1), cancel)? {
            let end = block.start.saturating_add(block.size);
            let first = resident.partition_point(|run| run.1 <= block.start);
            let inside = resident.iter().skip(first).take_while(|run| run.0 < end);
            let bytes: u64 = inside.map(|run| run.1.min(end) - run.0.max(block.start)).sum();
            let site = || trace.origin(block.origin).site;
            let most = self.blocks.entry(block.row).or_insert_with(|| (site(), block.size, 0));
            most.2 = most.2.max(bytes);
        }
        Ok(())
    }

    /// The part of their blocks that sites write to.
    fn by_site(self) -> HashMap<u32, f64> {
        let mut sums: HashMap<u32, (u64, u64)> = HashMap::new();
        for (site, size, bytes) in self.blocks.into_values() {
            let sum = sums.entry(site).or_default();
            sum.0 += bytes;
            sum.1 += size;
        }
        sums.into_iter().map(|(site, (bytes, size))| (site, bytes as f64 / size as f64)).collect()
    }
}

/// The highest looks, and others at equal distances.
fn looks_between<'a>(all: &'a [LookFacts], highest: &[&'a LookFacts]) -> Vec<&'a LookFacts> {
    let step = all.len().div_ceil(SPREAD).max(1);
    let mut looks: Vec<&LookFacts> = highest.iter().copied().chain(all.iter().rev().step_by(step)).collect();
    looks.sort_unstable_by_key(|look| look.t_ns);
    looks.dedup_by_key(|look| look.t_ns);
    looks
}
