//! The heap map: which addresses were occupied at which time, by which site, and which of them were in memory.
//!
//! ```text
//! columns   moments, equally spaced: what is live at the end of each interval of the window
//! rows      aligned ranges of addresses that a block of a column reaches into, all of one size: the least power of two
//!           (a page at least) with which they are few enough
//! cells     go from column to column: blocks that are new since the last one are added, those that are gone are taken
//!           out; what lived between two columns alone is never looked at
//! ```
//! Memory is that of the sums by row and site, whatever the length of the recording.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use tracehound_api::Frame;
use tracehound_api::heap_map::{HeapMap, MapSite};
use tracehound_format::record::Kind;
use tracehound_index::facts::LookFacts;
use tracehound_index::symbols::RecordingSymbols;
use tracehound_index::{Cancel, Position, Trace};

use super::amounts::ranges;
use super::filter::{AddressRange, Filter};
use super::scan::{Also, BLOCK, Picker, RowTest};
use super::window::Window;
use super::{QueryError, Result, site_handle, stacks, trend};

/// Parameters of the query.
#[derive(Debug, Clone)]
pub struct HeapMapParams {
    /// Window of time.
    pub window: Window,
    /// Of what; a range of addresses cuts the rows.
    pub filter: Filter,
    /// Most rows.
    pub rows: usize,
    /// Moments.
    pub columns: usize,
}

/// Most rows of an answer.
pub const MAX_ROWS: usize = 512;
/// Most moments of an answer.
pub const MAX_COLUMNS: usize = 400;
/// Sites in the answer.
const MOST_SITES: usize = 64;
/// log2 of the bytes of the smallest row.
const LEAST_SHIFT: u32 = 12;

/// Draws the map.
///
/// # Errors
/// When a parameter does not fit, or cancelled.
pub fn run(trace: &Trace, symbols: &dyn RecordingSymbols, params: &HeapMapParams, cancel: &Cancel) -> Result<HeapMap> {
    for (name, value, least, most) in [("rows", params.rows, 2, MAX_ROWS), ("columns", params.columns, 1, MAX_COLUMNS)]
    {
        if !(least..=most).contains(&value) {
            return Err(QueryError::bad(name, format!("{least} to {most}")));
        }
    }
    crate::need_addresses(trace)?;
    let selection = params.filter.select(trace, symbols, cancel)?;
    let window = params.window.resolve(trace, &selection, cancel)?;
    let columns = (params.columns as u64).min((window.to_ns - window.from_ns).max(1)) as usize;
    let moments = trend::moments(trace, &window, columns);
    let blocks = MomentBlocks {
        trace,
        test: selection.rows(trace),
        clip: params.filter.address.unwrap_or(AddressRange::ALL),
        places: moments.iter().map(|moment| moment.1).collect(),
        with_existing: Filter { address: None, ..params.filter.clone() }.is_empty()
            && trace.facts().events.existing.count > 0,
        cancel,
    };
    let axis = blocks.axis(params.rows)?;
    let cells = blocks.cells(&axis)?;
    let t_ns: Vec<u64> = moments.iter().map(|moment| moment.0).collect();
    let (look_ns, resident) = residents(trace, &t_ns, &axis, blocks.clip, cancel)?;
    let (sites, places) = cells.sites(trace, symbols);
    let listed = |site: &u32| places.get(site).copied();
    Ok(HeapMap {
        schema: "heaptrace.map/1".into(),
        from_ns: window.from_ns,
        to_ns: window.to_ns,
        t_ns,
        look_ns,
        row_bytes: 1 << axis.shift,
        addresses: axis.units.iter().map(|unit| unit << axis.shift).collect(),
        occupied: cells.occupied,
        resident,
        dominant: cells.dominant.iter().map(|row| row.iter().map(listed).collect()).collect(),
        sites,
        total_sites: cells.dominates.len() as u64,
        exactness: trace.exactness(),
    })
}

/// The part of a block in the addresses that are shown.
struct PlacedPart {
    /// Its addresses; a block of no bytes counts as one byte.
    place: Range<u64>,
    /// Behind its last requested byte there.
    end: u64,
    site: u32,
}

/// The blocks of each moment, by what changes from one to the next.
struct MomentBlocks<'a> {
    trace: &'a Trace,
    test: RowTest<'a>,
    clip: AddressRange,
    places: Vec<Position>,
    /// Blocks from before the recording count, too.
    with_existing: bool,
    cancel: &'a Cancel,
}

/// Site of blocks from before the recording.
const NO_SITE: u32 = u32::MAX;

impl MomentBlocks<'_> {
    fn before(&self, column: usize) -> Position {
        column.checked_sub(1).map_or(Position::default(), |before| self.places[before])
    }

    /// Visits the blocks that are live at a moment and were not at the one before; `state` is made for each thread.
    fn new_blocks<S: Send>(
        &self,
        column: usize,
        state: impl Fn() -> S + Sync,
        each: impl Fn(&mut S, PlacedPart) + Sync,
    ) -> Result<Vec<S>> {
        let (from, place) = (self.before(column).allocs, self.places[column]);
        let over = |range: Range<u64>| {
            let (mut state, mut picker) = (state(), Picker::new(&self.test, Also::LiveAt(place.frees)));
            for (at, start) in range.clone().step_by(BLOCK).enumerate() {
                if at.is_multiple_of(256) {
                    self.cancel.check()?;
                }
                for &offset in picker.pick(start, (start + BLOCK as u64).min(range.end)) {
                    if let Some(part) = self.part(start + u64::from(offset)) {
                        each(&mut state, part);
                    }
                }
            }
            Ok(state)
        };
        ranges(from, place.allocs).into_par_iter().map(over).collect()
    }

    /// The same for those that were live at the moment before and are not any more.
    fn gone_blocks<S: Send>(
        &self,
        column: usize,
        state: impl Fn() -> S + Sync,
        each: impl Fn(&mut S, PlacedPart) + Sync,
    ) -> Result<Vec<S>> {
        let (before, place) = (self.before(column), self.places[column]);
        let over = |range: Range<u64>| {
            let (mut state, mut picker) = (state(), Picker::new(&self.test, Also::Nothing));
            for (at, start) in range.clone().step_by(BLOCK).enumerate() {
                if at.is_multiple_of(256) {
                    self.cancel.check()?;
                }
                for &offset in picker.pick_frees(start, (start + BLOCK as u64).min(range.end)) {
                    let row = self.trace.row_of_free(start + u64::from(offset));
                    if let Some(part) = self.part(row).filter(|_| row < before.allocs) {
                        each(&mut state, part);
                    }
                }
            }
            Ok(state)
        };
        ranges(before.frees, place.frees).into_par_iter().map(over).collect()
    }

    /// A block as far as it is shown; `None` for one of a pool, which lies in another.
    fn part(&self, row: u64) -> Option<PlacedPart> {
        let origin = self.trace.origin_of_alloc(row);
        let (address, size) = (self.trace.address_of(row), self.trace.size_of(row));
        (origin.kind != Kind::PoolAlloc as u8).then(|| self.clipped(address, size, origin.site)).flatten()
    }

    fn clipped(&self, address: u64, size: u64, site: u32) -> Option<PlacedPart> {
        let start = address.max(self.clip.start);
        let behind = |size: u64| address.saturating_add(size).min(self.clip.end);
        let place = start..behind(size.max(1));
        (!place.is_empty()).then(|| PlacedPart { place, end: behind(size).max(start), site })
    }

    fn existing(&self, column: usize) -> Vec<PlacedPart> {
        if !self.with_existing {
            return Vec::new();
        }
        let blocks = self.trace.existing_blocks(self.places[column]);
        blocks.into_iter().filter_map(|(address, size)| self.clipped(address, size, NO_SITE)).collect()
    }

    /// The rows.
    fn axis(&self, most: usize) -> Result<AddressAxis> {
        let mut touched = TouchedUnits::new(most);
        for column in 0..self.places.len() {
            let add = |units: &mut TouchedUnits, part: PlacedPart| units.add(&part.place);
            for units in self.new_blocks(column, || TouchedUnits::new(most), add)? {
                touched.merge(units);
            }
            self.existing(column).iter().for_each(|part| touched.add(&part.place));
        }
        let mut units: Vec<u64> = touched.units.into_iter().collect();
        units.sort_unstable();
        Ok(AddressAxis { shift: touched.shift, units })
    }

    fn cells(&self, axis: &AddressAxis) -> Result<MapCells> {
        let mut cells = MapCells::new(axis.units.len());
        let mut by_site: Vec<FxHashMap<u32, u64>> = vec![FxHashMap::default(); axis.units.len()];
        for column in 0..self.places.len() {
            let add = |sums: &mut FxHashMap<(usize, u32), u64>, part: PlacedPart| {
                axis.each_row(part.place.start..part.end, |row, bytes| {
                    *sums.entry((row, part.site)).or_default() += bytes
                });
            };
            for ((row, site), bytes) in self.new_blocks(column, FxHashMap::default, add)?.into_iter().flatten() {
                *by_site[row].entry(site).or_default() += bytes;
            }
            for ((row, site), bytes) in self.gone_blocks(column, FxHashMap::default, add)?.into_iter().flatten() {
                if let Some(sum) = by_site[row].get_mut(&site) {
                    *sum -= bytes.min(*sum);
                    if *sum == 0 {
                        by_site[row].remove(&site);
                    }
                }
            }
            let mut existing = vec![0; axis.units.len()];
            for part in self.existing(column) {
                axis.each_row(part.place.start..part.end, |row, bytes| existing[row] += bytes);
            }
            cells.push(&by_site, &existing);
        }
        Ok(cells)
    }
}

/// Units of addresses that blocks reach into: of a page at first, twice as large whenever they become too many. At the
/// end their size is the least possible, in whatever order blocks come.
struct TouchedUnits {
    shift: u32,
    most: usize,
    units: FxHashSet<u64>,
}

impl TouchedUnits {
    fn new(most: usize) -> Self {
        Self { shift: LEAST_SHIFT, most, units: FxHashSet::default() }
    }

    fn add(&mut self, place: &Range<u64>) {
        let units = |shift: u32| (place.start >> shift)..=((place.end - 1) >> shift);
        while units(self.shift).end() - units(self.shift).start() >= self.most as u64 {
            self.coarsen();
        }
        self.units.extend(units(self.shift));
        self.shrink();
    }

    fn merge(&mut self, other: Self) {
        while self.shift < other.shift {
            self.coarsen();
        }
        let up = self.shift - other.shift;
        self.units.extend(other.units.into_iter().map(|unit| unit >> up));
        self.shrink();
    }

    fn shrink(&mut self) {
        while self.units.len() > self.most {
            self.coarsen();
        }
    }

    fn coarsen(&mut self) {
        self.shift += 1;
        self.units = self.units.drain().map(|unit| unit >> 1).collect();
    }
}

/// The rows: units of addresses, ascending.
struct AddressAxis {
    shift: u32,
    units: Vec<u64>,
}

impl AddressAxis {
    /// Calls `each` with the rows that a range reaches into, and its bytes there.
    fn each_row(&self, range: Range<u64>, mut each: impl FnMut(usize, u64)) {
        let first = self.units.partition_point(|&unit| unit < range.start >> self.shift);
        for (row, &unit) in self.units.iter().enumerate().skip(first) {
            let start = unit << self.shift;
            if start >= range.end {
                return;
            }
            let end = start.saturating_add(1 << self.shift).min(range.end);
            if let Some(bytes) = end.checked_sub(start.max(range.start)).filter(|bytes| *bytes > 0) {
                each(row, bytes);
            }
        }
    }
}

/// Sums by row and column.
struct MapCells {
    occupied: Vec<Vec<u64>>,
    /// The site with most bytes; [`NO_SITE`] where there is none.
    dominant: Vec<Vec<u32>>,
    /// By site: cells in which it has most bytes.
    dominates: HashMap<u32, u64>,
}

impl MapCells {
    fn new(rows: usize) -> Self {
        Self { occupied: vec![Vec::new(); rows], dominant: vec![Vec::new(); rows], dominates: HashMap::new() }
    }

    /// Adds a column.
    fn push(&mut self, by_site: &[FxHashMap<u32, u64>], existing: &[u64]) {
        let summed = |(sites, existing): (&FxHashMap<u32, u64>, &u64)| {
            let most = sites.iter().map(|(&site, &bytes)| (bytes, Reverse(site))).max();
            let most = most.filter(|(bytes, _)| bytes > existing).map_or(NO_SITE, |(_, site)| site.0);
            (sites.values().sum::<u64>() + existing, most)
        };
        let column: Vec<(u64, u32)> = by_site.par_iter().zip(existing).map(summed).collect();
        for (row, (occupied, site)) in column.into_iter().enumerate() {
            self.occupied[row].push(occupied);
            self.dominant[row].push(site);
            if site != NO_SITE {
                *self.dominates.entry(site).or_default() += 1;
            }
        }
    }

    /// The sites of most cells, and their positions.
    fn sites(&self, trace: &Trace, symbols: &dyn RecordingSymbols) -> (Vec<MapSite>, HashMap<u32, u32>) {
        let mut order: Vec<(u32, u64)> = self.dominates.iter().map(|(&site, &cells)| (site, cells)).collect();
        order.sort_by_key(|&(site, cells)| (Reverse(cells), site));
        order.truncate(MOST_SITES);
        let row = |&(site, cells): &(u32, u64)| {
            let frame = stacks::allocated_by(trace, symbols, trace.site_node(site).unwrap_or(0));
            let (function, file, line, module) = frame.map_or((None, None, None, None), |frame| {
                (frame.function.or(frame.offset), frame.file, frame.line, frame.module)
            });
            MapSite { id: site_handle(site), function, file, line, module, caller: None, cells }
        };
        let mut sites: Vec<MapSite> = order.iter().map(row).collect();
        let backtrace = |at: usize| stacks::frames(trace, symbols, trace.site_node(order[at].0).unwrap_or(0));
        tell_apart(&mut sites, backtrace);
        (sites, order.iter().map(|site| site.0).zip(0..).collect())
    }
}

/// Gives sites of one function and line the frame that tells them apart.
fn tell_apart(sites: &mut [MapSite], backtrace: impl Fn(usize) -> Vec<Frame>) {
    let mut alike: HashMap<_, Vec<usize>> = HashMap::new();
    for (at, site) in sites.iter().enumerate() {
        let name = (site.function.clone(), site.file.clone(), site.line, site.module.clone());
        alike.entry(name).or_default().push(at);
    }
    let is_same = |a: &Frame, b: &Frame| (&a.function, &a.offset, a.line) == (&b.function, &b.offset, b.line);
    for group in alike.into_values().filter(|group| group.len() > 1) {
        let backtraces: Vec<Vec<Frame>> = group.iter().map(|&at| backtrace(at)).collect();
        for (at, own) in group.iter().zip(&backtraces) {
            let in_common = |other: &Vec<Frame>| own.iter().zip(other).take_while(|(a, b)| is_same(a, b)).count();
            let others = backtraces.iter().filter(|&other| !core::ptr::eq(own, other));
            let depth = others.map(in_common).max().unwrap_or(0);
            sites[*at].caller = own.get(depth).cloned();
        }
    }
}

/// For each moment the time of the look that is nearest, and what of each row was in memory then.
fn residents(
    trace: &Trace,
    t_ns: &[u64],
    axis: &AddressAxis,
    clip: AddressRange,
    cancel: &Cancel,
) -> Result<(Vec<u64>, Vec<Vec<u64>>)> {
    let looks: Option<Vec<&LookFacts>> = t_ns.iter().map(|&t| trace.look_near(t)).collect();
    let Some(looks) = looks else { return Ok((Vec::new(), Vec::new())) };
    let mut distinct = looks.clone();
    distinct.dedup_by_key(|look| look.t_ns);
    let read = |look: &&LookFacts| -> Result<Option<(u64, Vec<u64>)>> {
        cancel.check()?;
        let Ok(map) = trace.page_map(look) else { return Ok(None) };
        let mut bytes = vec![0; axis.units.len()];
        for run in map.runs.iter().filter(|run| run.state.is_resident()) {
            let (start, end) = (run.start.max(clip.start), run.start.saturating_add(run.len).min(clip.end));
            axis.each_row(start..end.max(start), |row, part| bytes[row] += part);
        }
        Ok(Some((look.t_ns, bytes)))
    };
    let known: HashMap<u64, Vec<u64>> =
        distinct.par_iter().map(read).collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
    // A look that cannot be read leaves the map without this part rather than with a wrong one.
    if looks.iter().any(|look| !known.contains_key(&look.t_ns)) {
        return Ok((Vec::new(), Vec::new()));
    }
    let of_row = |row: usize| looks.iter().map(|look| known[&look.t_ns][row]).collect();
    Ok((looks.iter().map(|look| look.t_ns).collect(), (0..axis.units.len()).map(of_row).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn units_are_the_smallest_that_are_few_enough(
            places in prop::collection::vec((0_u64..1 << 40, 1_u64..1 << 24), 1..60),
            most in 2_usize..40,
            cut in 0_usize..60,
        ) {
            let touched = |shift: u32| -> FxHashSet<u64> {
                let units = places.iter().flat_map(|&(start, len)| (start >> shift)..=((start + len - 1) >> shift));
                units.collect()
            };
            let (mut one, mut other) = (TouchedUnits::new(most), TouchedUnits::new(most));
            for (at, &(start, len)) in places.iter().enumerate() {
                if at < cut { one.add(&(start..start + len)) } else { other.add(&(start..start + len)) }
            }
            one.merge(other);
            let shift = (LEAST_SHIFT..64).find(|&shift| touched(shift).len() <= most).unwrap();
            prop_assert_eq!((one.shift, one.units), (shift, touched(shift)));
        }
    }
}
