//! Memory at one moment: live blocks against the pages that they lie in and the mappings around them.
//!
//! ```text
//! resident memory = live blocks + the rest of their pages (fragmentation) + pages without live blocks
//! ```
//! The last part is what the allocator keeps for later, code, stacks and files.

use std::collections::HashMap;
use std::ops::Range;

use rayon::prelude::*;
use tracehound_format::meta::MemoryPart;
use tracehound_format::record::Kind;

use super::amounts::ranges;
use super::filter::Selection;
use super::ledger::ResidentEstimate;
use super::live_blocks::{self, HeapRegions};
use super::scan::{Also, BLOCK, Picker};
use super::window::{TimeExpr, Window};
use super::{Result, ledger, stacks};
use tracehound_api::Amount;
use tracehound_api::ledger::{Basis, HistoryRow, MemoryHistory, MemoryLedger};
use tracehound_api::memory::{KernelKinds, Mapper, Memory, Pages, Sample};
use tracehound_index::facts::LookFacts;
use tracehound_index::looks::PageMap;
use tracehound_index::mappings::AddressSpace;
use tracehound_index::symbols::RecordingSymbols;
use tracehound_index::{Cancel, Position, Trace};

/// Parameters of the query.
#[derive(Debug, Clone, Default)]
pub struct MemoryParams {
    /// The moment; the end, if none is given.
    pub at: Option<TimeExpr>,
    /// Of the looks the last one up to the moment, not the one most like it.
    pub before: bool,
    /// Most backtraces in the answer; what the others mapped is one entry without a stack.
    pub limit: Option<usize>,
}

/// Whether the recording has the program's mappings: `TRACEHOUND_MAPPINGS` can leave them out.
#[must_use]
pub fn has_mappings(trace: &Trace) -> bool {
    let off = |option: &String| {
        option.strip_prefix("TRACEHOUND_MAPPINGS=").is_some_and(|value| ["0", "off", "no", "false"].contains(&value))
    };
    !trace.facts().process.as_ref().is_some_and(|process| process.options.iter().any(off))
}

/// Computes the parts of memory at the moment.
///
/// # Errors
/// When the recording has no addresses, when the moment does not fit it, or cancelled.
pub fn run(trace: &Trace, symbols: &dyn RecordingSymbols, params: &MemoryParams, cancel: &Cancel) -> Result<Memory> {
    crate::need_addresses(trace)?;
    let window = Window { at: params.at.clone().or(Some(TimeExpr::End)), ..Window::default() };
    let window = window.resolve(trace, &Selection::all(), cancel)?;
    let (at_ns, place) = window.at.unwrap_or((window.to_ns, window.span.to));
    let (live, blocks) = blocks(trace, place, cancel)?;
    let page_bytes = trace.facts().process.as_ref().map_or(4096, |p| u64::from(p.page_bytes)).max(1);
    let space = trace.mapped_at(at_ns);
    let mut tenths = vec![0; 10];
    let mut filled = Filled::default();
    for page in PagesOf::new(&blocks, page_bytes) {
        let full = (page.used * 10).div_ceil(page_bytes).clamp(1, 10);
        tenths[full as usize - 1] += page.count;
        filled.add(page, page_bytes);
    }
    let mappers = mappers(trace, symbols, &space, params.limit);
    let curve = trace.mapped_curve();
    let sample = sample(trace, at_ns);
    let ledger = match ledger(trace, symbols, params, at_ns, cancel)? {
        Some(ledger) => Some(ledger),
        None => sample.as_ref().map(|sample| {
            let estimate = estimate(sample, recorder_sample(trace, at_ns), &filled, &trace.facts().recorder_parts);
            ledger::from_estimate(trace, at_ns, sample.rss_bytes, live.count, &estimate)
        }),
    };
    let until = curve.partition_point(|&(t_ns, _)| t_ns <= at_ns);
    Ok(Memory {
        schema: "heaptrace.memory/2".into(),
        at_ns,
        ledger,
        sample,
        kernel: kernel_kinds(trace, at_ns),
        live,
        pages: Pages {
            page_bytes,
            count: filled.count,
            bytes: filled.bytes,
            used_bytes: filled.used,
            by_tenths: tenths,
        },
        mapped_bytes: space.bytes(),
        mapped_peak_bytes: curve[..until].iter().map(|c| c.1).max().unwrap_or(0),
        mappers,
        exactness: trace.exactness(),
    })
}

/// Looks of one answer.
pub const MAX_LOOKS: usize = 200;

/// Makes the ledger of several looks of a window: at most `points`, spread over the looks, the one with most resident memory
/// among them.
///
/// # Errors
/// When the window does not fit the recording, or cancelled.
pub fn history(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    window: &Window,
    points: usize,
    cancel: &Cancel,
) -> Result<MemoryHistory> {
    let window = window.resolve(trace, &Selection::all(), cancel)?;
    let inside: Vec<&LookFacts> =
        trace.looks().iter().filter(|look| (window.from_ns..=window.to_ns).contains(&look.t_ns)).collect();
    let mut chosen: Vec<usize> =
        (0..points.min(inside.len())).map(|i| (i + 1) * inside.len() / points.min(inside.len()) - 1).collect();
    let highest = (0..inside.len()).max_by_key(|&at| inside[at].counters.rss());
    if let Some((at, nearest)) = highest.and_then(|at| Some((at, chosen.iter_mut().min_by_key(|c| c.abs_diff(at))?))) {
        *nearest = at;
    }
    let mut history = MemoryHistory {
        schema: "heaptrace.memory_history/1".into(),
        total_looks: inside.len() as u64,
        t_ns: Vec::new(),
        rss_bytes: Vec::new(),
        rows: Vec::new(),
        exactness: trace.exactness(),
    };
    for look in chosen.into_iter().map(|at| inside[at]) {
        let Ok(map) = trace.page_map(look) else { continue };
        let ledger = of_look(trace, symbols, look, &map, cancel)?;
        for (at, row) in ledger.rows.into_iter().enumerate() {
            if history.rows.len() <= at {
                history.rows.push(HistoryRow { key: row.key, basis: Basis::Exact, bytes: Vec::new() });
            }
            history.rows[at].bytes.push(row.bytes);
            if row.basis == Basis::Modelled && row.bytes > 0 {
                history.rows[at].basis = Basis::Modelled;
            }
        }
        history.t_ns.push(look.t_ns);
        history.rss_bytes.push(ledger.rss_bytes);
    }
    history.rows.retain(|row| row.bytes.iter().any(|&bytes| bytes > 0));
    Ok(history)
}

fn of_look(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    look: &LookFacts,
    map: &PageMap,
    cancel: &Cancel,
) -> Result<MemoryLedger> {
    let place = trace.position_before(look.t_ns + 1);
    let blocks = live_blocks::placed_blocks(trace, place, cancel)?;
    let heap = HeapRegions::of(trace, place, cancel)?;
    ledger::from_look(trace, symbols, map, &blocks, &heap, cancel)
}

/// The ledger of the look that answers for a moment; `None` where there is none that can be read.
fn ledger(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    params: &MemoryParams,
    at_ns: u64,
    cancel: &Cancel,
) -> Result<Option<MemoryLedger>> {
    let Some(look) = ledger::look_for(trace, params.at.as_ref(), at_ns, params.before) else { return Ok(None) };
    let Ok(map) = trace.page_map(look) else { return Ok(None) };
    of_look(trace, symbols, look, &map, cancel).map(Some)
}

/// Who has mapped address space that is still mapped, most bytes first.
fn mappers(trace: &Trace, symbols: &dyn RecordingSymbols, space: &AddressSpace, limit: Option<usize>) -> Vec<Mapper> {
    let mut by_node: HashMap<u32, (u64, u64)> = HashMap::new();
    for mapping in space.mappings() {
        let entry = by_node.entry(mapping.node).or_default();
        *entry = (entry.0 + mapping.len, entry.1 + 1);
    }
    let mut sorted: Vec<(u32, (u64, u64))> = by_node.into_iter().collect();
    sorted.sort_by_key(|&(node, (bytes, _))| (std::cmp::Reverse(bytes), node));
    let rest = sorted.split_off(limit.unwrap_or(usize::MAX).min(sorted.len()));
    let mapper = |mapped_bytes, mappings, stack| Mapper { mapped_bytes, mappings, stack };
    let mut mappers: Vec<Mapper> = sorted
        .into_iter()
        .map(|(node, (bytes, mappings))| mapper(bytes, mappings, stacks::frames(trace, symbols, node)))
        .collect();
    if !rest.is_empty() {
        let sum = |of: fn(&(u64, u64)) -> u64| rest.iter().map(|(_, entry)| of(entry)).sum();
        mappers.push(mapper(sum(|entry| entry.0), sum(|entry| entry.1), Vec::new()));
    }
    mappers
}

/// Splits the resident set of a recording without looks. The recorder's memory in its side file is not anonymous memory.
/// Its other memory is an estimate from above, and is reduced where less than the pages of live blocks would be left; only
/// where these are more than the whole resident set have some of them certainly not been touched.
fn estimate(sample: &Sample, recorder_bytes: u64, filled: &Filled, parts: &[MemoryPart]) -> ResidentEstimate {
    let anonymous = sample.rss_anonymous_bytes.min(sample.rss_bytes);
    let files = sample.rss_bytes - anonymous;
    let side = in_side_file(recorder_bytes, parts).min(files);
    let most = anonymous.checked_sub(filled.bytes).unwrap_or(anonymous);
    let own = recorder_bytes.saturating_sub(side).min(most);
    let programs = anonymous - own;
    ResidentEstimate {
        live: filled.used,
        page_rest: filled.bytes - filled.used,
        untouched: filled.bytes.saturating_sub(programs),
        other_anonymous: programs.saturating_sub(filled.bytes),
        files: files - side,
        recorder: side + own,
    }
}

/// How much of the recorder's memory lies in its side file, by the latest figures of its parts: events, and of each
/// node of the call tree 16 bytes beside 32 in memory.
fn in_side_file(recorder: u64, parts: &[MemoryPart]) -> u64 {
    let all: u64 = parts.iter().map(|part| part.bytes).sum();
    let side: u64 = parts
        .iter()
        .map(|part| match part.name.as_str() {
            "events" => part.bytes,
            "call_tree" => part.bytes / 3,
            _ => 0,
        })
        .sum();
    if all == 0 { 0 } else { (u128::from(recorder) * u128::from(side) / u128::from(all)) as u64 }
}

fn sample(trace: &Trace, at_ns: u64) -> Option<Sample> {
    let c = trace.columns();
    let at = c.sample_time.partition_point(|&t| t <= at_ns).checked_sub(1)?;
    let of = |column: &[u64]| column.get(at).copied().unwrap_or(0);
    Some(Sample {
        t_ns: of(&c.sample_time),
        rss_bytes: of(&c.sample_rss),
        rss_anonymous_bytes: of(&c.sample_anonymous),
        virtual_bytes: of(&c.sample_virtual),
    })
}

/// What the recorder said of its own memory in the last sample, an estimate from above.
fn recorder_sample(trace: &Trace, at_ns: u64) -> u64 {
    let c = trace.columns();
    let at = c.sample_time.partition_point(|&t| t <= at_ns).checked_sub(1);
    at.and_then(|at| c.sample_recorder.get(at)).copied().unwrap_or(0)
}

fn kernel_kinds(trace: &Trace, at_ns: u64) -> Option<KernelKinds> {
    let details = &trace.facts().memory_details;
    let at = details.partition_point(|d| d.t_ns <= at_ns).checked_sub(1)?;
    let (t_ns, k) = details.get(at).map(|d| (d.t_ns, d.kinds))?;
    Some(KernelKinds {
        t_ns,
        rss_bytes: k.rss,
        pss_bytes: k.pss,
        anonymous_bytes: k.anonymous,
        anonymous_huge_bytes: k.anonymous_huge,
        lazy_free_bytes: k.lazy_free,
        private_dirty_bytes: k.private_dirty,
        private_clean_bytes: k.private_clean,
        shared_bytes: k.shared_clean.saturating_add(k.shared_dirty),
        swap_bytes: k.swap,
        locked_bytes: k.locked,
    })
}

/// Number and bytes of live blocks, and their address ranges in order. Blocks of pools lie in other blocks; those from
/// before the recording are among the ranges alone.
fn blocks(trace: &Trace, place: Position, cancel: &Cancel) -> Result<(Amount, Vec<Range<u64>>)> {
    let test = Selection::all().rows(trace);
    let is_pool: Vec<bool> =
        (0..trace.origin_count()).map(|id| trace.origin(id).kind == Kind::PoolAlloc as u8).collect();
    let origins = &trace.columns().alloc_origin;
    let parts: Vec<(Amount, Vec<Range<u64>>)> = ranges(0, place.allocs)
        .into_par_iter()
        .map(|range| {
            let mut picker = Picker::new(&test, Also::LiveAt(place.frees));
            let (mut live, mut blocks) = (Amount::default(), Vec::new());
            for (at, start) in range.clone().step_by(BLOCK).enumerate() {
                if at.is_multiple_of(256) {
                    cancel.check()?;
                }
                for &offset in picker.pick(start, (start + BLOCK as u64).min(range.end)) {
                    let row = start + u64::from(offset);
                    let (address, size) = (trace.address_of(row), trace.size_of(row));
                    live.bytes += size;
                    live.count += 1;
                    let origin = origins.get(row as usize).copied().unwrap_or(u32::MAX);
                    if is_pool.get(origin as usize) == Some(&false) {
                        // A block of no bytes takes a place, too.
                        blocks.push(address..address.saturating_add(size.max(1)));
                    }
                }
            }
            Ok((live, blocks))
        })
        .collect::<Result<_>>()?;
    let (mut live, mut blocks) = (Amount::default(), Vec::new());
    for (amount, part) in parts {
        live.bytes += amount.bytes;
        live.count += amount.count;
        blocks.extend(part);
    }
    blocks.extend(trace.existing_blocks(place).into_iter().map(|(start, size)| start..start.saturating_add(size)));
    cancel.check()?;
    blocks.par_sort_unstable_by_key(|b| (b.start, b.end));
    Ok((live, blocks))
}

/// Pages and what is used of them.
#[derive(Debug, Clone, Copy, Default)]
struct Filled {
    count: u64,
    bytes: u64,
    used: u64,
}

impl Filled {
    fn add(&mut self, page: MemoryPage, page_bytes: u64) {
        self.count += page.count;
        self.bytes += page.count * page_bytes;
        self.used += page.count * page.used;
    }
}

/// A page with a live block, or a run of full ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MemoryPage {
    start: u64,
    /// Bytes of blocks in each.
    used: u64,
    count: u64,
}

/// The pages under address ranges that are sorted by their starts and may overlap.
struct PagesOf<'a> {
    ranges: std::slice::Iter<'a, Range<u64>>,
    page_bytes: u64,
    /// What is left of the range at hand.
    rest: Range<u64>,
    /// Everything before is counted.
    counted: u64,
    open: Option<MemoryPage>,
}

impl<'a> PagesOf<'a> {
    fn new(ranges: &'a [Range<u64>], page_bytes: u64) -> Self {
        Self { ranges: ranges.iter(), page_bytes, rest: 0..0, counted: 0, open: None }
    }
}

impl Iterator for PagesOf<'_> {
    type Item = MemoryPage;

    fn next(&mut self) -> Option<MemoryPage> {
        loop {
            if self.rest.is_empty() {
                let Some(next) = self.ranges.next() else { return self.open.take() };
                self.rest = next.start.max(self.counted)..next.end;
                continue;
            }
            let start = self.rest.start - self.rest.start % self.page_bytes;
            let whole = (self.rest.end - self.rest.start) / self.page_bytes;
            if start == self.rest.start && whole > 0 {
                if let Some(done) = self.open.take() {
                    return Some(done);
                }
                self.rest.start += whole * self.page_bytes;
                self.counted = self.rest.start;
                return Some(MemoryPage { start, used: self.page_bytes, count: whole });
            }
            let end = self.rest.end.min(start.saturating_add(self.page_bytes));
            let used = end - self.rest.start;
            self.rest.start = end;
            self.counted = end;
            match &mut self.open {
                Some(page) if page.start == start => page.used += used,
                open => {
                    if let Some(done) = open.replace(MemoryPage { start, used, count: 1 }) {
                        return Some(done);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn pages_are_what_their_bytes_are(mut ranges in prop::collection::vec((0_u64..300, 1_u64..70), 0..40)) {
            ranges.sort_unstable();
            let ranges: Vec<Range<u64>> = ranges.iter().map(|&(start, len)| start..start + len).collect();
            let mut pages: BTreeMap<u64, u64> = BTreeMap::new();
            for byte in 0..400 {
                if ranges.iter().any(|r| r.contains(&byte)) {
                    *pages.entry(byte - byte % 16).or_default() += 1;
                }
            }
            let each = |p: MemoryPage| (0..p.count).map(move |i| (p.start + i * 16, p.used));
            let got: Vec<(u64, u64)> = PagesOf::new(&ranges, 16).flat_map(each).collect();
            prop_assert_eq!(got, pages.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_last_page_of_all_ends_the_walk() {
        let ranges = [5..6, u64::MAX - 10..u64::MAX];
        assert_eq!(PagesOf::new(&ranges, 4096).map(|p| p.used).collect::<Vec<_>>(), [1, 10]);
    }

    const MIB: u64 = 1 << 20;

    fn part(name: &str, mib: u64) -> MemoryPart {
        MemoryPart { name: name.into(), bytes: mib * MIB, limit: 0 }
    }

    fn split(anonymous: u64, rss: u64, recorder: u64, filled: u64, parts: &[MemoryPart]) -> ResidentEstimate {
        let sample = Sample { t_ns: 0, rss_bytes: rss * MIB, rss_anonymous_bytes: anonymous * MIB, virtual_bytes: 0 };
        let filled = Filled { bytes: filled * MIB, used: filled * MIB / 2, ..Filled::default() };
        let r = estimate(&sample, recorder * MIB, &filled, parts);
        let all = r.live + r.page_rest + r.other_anonymous + r.files + r.recorder;
        assert_eq!(all - r.untouched, rss * MIB);
        r
    }

    #[test]
    fn what_lies_in_the_side_file_is_not_taken_from_the_heap() {
        let parts = [part("events", 16), part("call_tree", 6), part("stacks", 10)];
        // 32 MiB of recorder, 18 of them in its file: 14 of the 26 anonymous ones are its own.
        let r = split(26, 60, 32, 8, &parts);
        assert_eq!((r.untouched, r.other_anonymous), (0, 4 * MIB));
        assert_eq!((r.files, r.recorder), (16 * MIB, 32 * MIB));
        // Without its parts all of it is anonymous.
        let r = split(26, 60, 16, 8, &[]);
        assert_eq!((r.untouched, r.other_anonymous, r.files), (0, 2 * MIB, 34 * MIB));
        // The estimate gives way to the pages of live blocks.
        let r = split(10, 60, 32, 8, &[]);
        assert_eq!((r.untouched, r.files, r.recorder), (0, 50 * MIB, 2 * MIB));
        // More pages than memory: the program has not touched them all.
        let r = split(10, 60, 4, 100, &[]);
        assert_eq!((r.untouched, r.recorder), (94 * MIB, 4 * MIB));
    }
}
