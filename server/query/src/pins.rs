//! Pinned pages: the blocks that hold pages which would be given back without them.
//!
//! A page is given back by a group of blocks when every block in it belongs to the group. Functions are groups that overlap:
//! a page is given back by each function that is on the backtraces of all its blocks.

pub mod graph;
mod held_pages;
mod page_groups;
mod slabs;

use std::collections::{BTreeMap, HashMap};

use rustc_hash::FxHashMap;
use tracehound_api::ledger::Basis;
use tracehound_api::pins::{PinGroup, PinPair, PinRow, PinUnit, PinnedPages, Pins};
use tracehound_index::frame_tree::NO_FUNCTION;
use tracehound_index::symbols::{FunctionId, RecordingSymbols};
use tracehound_index::{Cancel, Trace};

use super::filter::Selection;
use super::live_blocks::{NO_ROW, PlacedBlock};
use super::window::{TimeExpr, Window};
use super::{Result, site_handle, stacks};
use held_pages::HeldPages;
use page_groups::{KeyGroups, PageGroups, PinSum};

/// What is asked.
#[derive(Debug, Clone, Default)]
pub struct PinsParams {
    /// The moment; the end, if none is given.
    pub at: Option<TimeExpr>,
    /// Of the looks the last one up to the moment, not the one most like it.
    pub before: bool,
    /// What a row is.
    pub by: PinGroup,
    /// What is given back as a whole.
    pub unit: PinUnit,
    /// Most rows; `None`: all.
    pub limit: Option<usize>,
}

/// Pairs in the answer.
const MOST_PAIRS: usize = 10;
/// Blocks that hold this part of all pages, in percent, are the whole program.
const NEARLY_ALL: u64 = 90;

/// Finds the pins.
///
/// # Errors
/// When the moment does not fit the recording, or cancelled.
pub fn run(trace: &Trace, symbols: &dyn RecordingSymbols, params: &PinsParams, cancel: &Cancel) -> Result<Pins> {
    let window = Window { at: params.at.clone().or(Some(TimeExpr::End)), ..Window::default() };
    let window = window.resolve(trace, &Selection::all(), cancel)?;
    let (at_ns, place) = window.at.unwrap_or((window.to_ns, window.span.to));
    let held = || HeldPages::new(trace, params.unit, (params.at.as_ref(), params.before), at_ns, place, cancel);
    // The tree of functions is made meanwhile; it stays with the snapshot.
    let tree = || if params.by == PinGroup::Function { trace.frame_tree(symbols, cancel).map(drop) } else { Ok(()) };
    let (held, tree) = rayon::join(held, tree);
    let (held, ()) = (held?, tree?);
    let page_bytes = held.page_bytes;
    let groups = Groups::new(trace, symbols, params.by, held.at_ns, cancel)?;
    let mut found = PinnedPages::default();
    let nothing = || (PinnedPages::default(), PageGroups::new(&groups.keys));
    let parts = held.parts(cancel, nothing, |(found, sums), block, pages| {
        found.count += pages.fresh;
        found.live_bytes += pages.live;
        sums.add(groups.key_of(block), pages, page_bytes, block.row);
    })?;
    let sum = |(part, sums): (PinnedPages, _)| {
        found.count += part.count;
        found.live_bytes += part.live_bytes;
        sums
    };
    let parts = parts.into_iter().map(sum).collect();
    let sums = PageGroups::sum(&groups.keys, parts);
    found.bytes = found.count * page_bytes;
    let mut rows = groups.rows(trace, symbols, &sums, page_bytes);
    let total = found.count;
    let is_all = |row: &PinRow| row.pages * 100 >= total * NEARLY_ALL;
    // Those that hold nearly everything say least, but for the ones that allocate it themselves; what libraries do in between
    // says less than whose call it was.
    rows.sort_by(|(a, a_own), (b, b_own)| {
        let key = |row: &PinRow, own: u64| {
            (is_all(row) && own * 2 < row.own_bytes, row.library, std::cmp::Reverse(row.given_back_bytes))
        };
        let by_value = key(a, *a_own).cmp(&key(b, *b_own)).then_with(|| b_own.cmp(a_own));
        by_value.then_with(|| a.function.cmp(&b.function)).then_with(|| a.line.cmp(&b.line))
    });
    let total_rows = rows.len() as u64;
    let rows = rows.into_iter().map(|(row, _)| row).take(params.limit.unwrap_or(usize::MAX)).collect();
    let pairs = groups.pairs(trace, symbols, &sums, page_bytes);
    Ok(Pins {
        schema: "heaptrace.pins/1".into(),
        at_ns,
        look_ns: held.look.as_ref().map(|look| look.t_ns),
        page_bytes,
        unit: params.unit,
        unit_basis: held.basis,
        unit_words: held.words,
        by: params.by,
        basis: match &held.look {
            Some(look) if trace.knows_all_blocks(look.t_ns) => Basis::Exact,
            _ => Basis::Modelled,
        },
        pages: found,
        outside: held.outside,
        total_rows,
        rows,
        pairs,
        exactness: trace.exactness(),
    })
}

/// Which blocks belong together. A *key* is what tells two blocks apart at all: their site, thread or age; every key belongs
/// to one group or to several.
struct Groups {
    by: PinGroup,
    keys: KeyGroups,
    /// Key of each origin; by age there is none.
    key_of_origin: Vec<u32>,
    /// Function behind a group, where groups are functions.
    functions: Vec<FunctionId>,
    /// Node of each key that is a site.
    nodes: Vec<u32>,
    /// Rows of blocks of each age lie before this one.
    ages: Vec<(u64, &'static str)>,
    /// Key and group of the blocks from before the recording, which have no origin.
    existing: Option<(u32, u32)>,
}

/// Groups of each key in order, and the group that allocates where a key has one.
type GroupsOfKeys = (Vec<Vec<u32>>, Vec<Option<u32>>);

impl Groups {
    fn new(trace: &Trace, symbols: &dyn RecordingSymbols, by: PinGroup, moment: u64, cancel: &Cancel) -> Result<Self> {
        let origins = trace.origin_count();
        let mut groups = Self {
            by,
            keys: KeyGroups::default(),
            key_of_origin: Vec::new(),
            functions: Vec::new(),
            nodes: Vec::new(),
            ages: Vec::new(),
            existing: None,
        };
        // Groups of each key, and of a key that is a function the one that allocates: the program's innermost.
        let mut of_key: Vec<Vec<u32>>;
        let mut own = Vec::new();
        match by {
            PinGroup::Age => {
                let of = |percent: u64| {
                    let latest = moment - (u128::from(moment) * u128::from(percent) / 100) as u64;
                    trace.position_before(latest.saturating_add(1)).allocs
                };
                groups.ages = vec![
                    (of(90), "older than 90 % of the time"),
                    (of(50), "older than 50 % of the time"),
                    (of(10), "older than 10 % of the time"),
                    (of(1), "older than 1 % of the time"),
                    (u64::MAX, "younger"),
                ];
                // An old block belongs to all classes that are not older.
                let count = groups.ages.len() as u32;
                of_key = (0..count)
                    .map(|age| if age + 1 == count { vec![age] } else { (age..count - 1).collect() })
                    .collect();
            }
            PinGroup::Thread => {
                groups.key_of_origin = (0..origins).map(|id| trace.origin(id).thread).collect();
                of_key = (0..trace.threads().len() as u32).map(|thread| vec![thread]).collect();
            }
            PinGroup::Site | PinGroup::Function => {
                groups.key_of_origin = (0..origins).map(|id| trace.origin(id).site).collect();
                groups.nodes = (0..trace.site_count()).map(|site| trace.site_node(site).unwrap_or(0)).collect();
                if by == PinGroup::Site {
                    of_key = (0..trace.site_count()).map(|site| vec![site]).collect();
                } else {
                    (of_key, own) = groups.find_functions(trace, symbols, cancel)?;
                }
            }
        }
        if by != PinGroup::Age && trace.facts().events.existing.count > 0 {
            let key = of_key.len() as u32;
            let group = of_key.iter().flatten().max().map_or(0, |last| last + 1);
            of_key.push(vec![group]);
            if by == PinGroup::Function {
                own.push(Some(group));
            }
            groups.existing = Some((key, group));
        }
        groups.keys = KeyGroups::new(of_key, own);
        Ok(groups)
    }

    /// Functions on the backtrace of each site, as groups, and the one of them that allocates.
    fn find_functions(
        &mut self,
        trace: &Trace,
        symbols: &dyn RecordingSymbols,
        cancel: &Cancel,
    ) -> Result<GroupsOfKeys> {
        let (mut of_key, mut own_group) = (Vec::new(), Vec::new());
        let tree = trace.frame_tree(symbols, cancel)?;
        let shape = tree.shape();
        let mut numbers: FxHashMap<FunctionId, u32> = FxHashMap::default();
        let mut kinds = FxHashMap::default();
        for (at, &node) in self.nodes.iter().enumerate() {
            if at.is_multiple_of(4096) {
                cancel.check()?;
            }
            let path = shape.path(tree.of_node(node)).map(|row| shape.frame[row as usize].function);
            let path: Vec<FunctionId> = path.filter(|&function| function != NO_FUNCTION).collect();
            let kind =
                |function: &FunctionId| *kinds.entry(*function).or_insert_with(|| symbols.function(*function).kind);
            let own = tracehound_index::program::program_frame(path.iter().map(kind)).unwrap_or(0);
            let mut number = |function: FunctionId| {
                let next = numbers.len() as u32;
                let number = *numbers.entry(function).or_insert(next);
                if number == next {
                    self.functions.push(function);
                }
                number
            };
            own_group.push(path.get(own).map(|&function| number(function)));
            let mut set: Vec<u32> = path.iter().map(|&function| number(function)).collect();
            set.sort_unstable();
            set.dedup();
            of_key.push(set);
        }
        Ok((of_key, own_group))
    }

    #[inline]
    fn key_of(&self, block: &PlacedBlock) -> u32 {
        match self.by {
            PinGroup::Age if block.row == NO_ROW => 0,
            PinGroup::Age => self.ages.iter().position(|(limit, _)| block.row < *limit).unwrap_or(0) as u32,
            _ => {
                let existing = self.existing.map_or(u32::MAX, |(key, _)| key);
                self.key_of_origin.get(block.origin as usize).copied().unwrap_or(existing)
            }
        }
    }

    /// Rows with the bytes that the group allocates itself.
    fn rows(
        &self,
        trace: &Trace,
        symbols: &dyn RecordingSymbols,
        sums: &PageGroups<'_>,
        page_bytes: u64,
    ) -> Vec<(PinRow, u64)> {
        let own = self.own_bytes(sums);
        // In order, as rows that are alike keep it.
        let mut groups: BTreeMap<u32, PinSum> = BTreeMap::new();
        for (key, sum) in (0..).zip(&sums.by_key).filter(|(_, sum)| sum.blocks > 0) {
            for &group in self.keys.of(key) {
                groups.entry(group).or_default().join(sum);
            }
        }
        for (group, &pages) in (0..).zip(&sums.pages).filter(|(_, pages)| **pages > 0) {
            groups.entry(group).or_default().pages += pages;
        }
        let born_ns = |allocated: u64| allocated.checked_sub(1).map_or(0, |row| trace.born_ns(row));
        let row = |(group, sum): (u32, PinSum)| {
            let mut row = self.name(trace, symbols, group);
            row.given_back_bytes = (sum.pages * page_bytes).saturating_sub(sum.bytes);
            (row.own_bytes, row.pages, row.blocks) = (sum.bytes, sum.pages, sum.blocks);
            (row.born_first_ns, row.born_last_ns) = (born_ns(sum.first), born_ns(sum.last));
            let own = if self.by == PinGroup::Function { own.get(&group).copied().unwrap_or(0) } else { sum.bytes };
            (row, own)
        };
        groups.into_iter().filter(|(_, sum)| sum.blocks > 0).map(row).collect()
    }

    /// Bytes of the blocks of each group that allocates.
    fn own_bytes(&self, sums: &PageGroups<'_>) -> HashMap<u32, u64> {
        let mut own: HashMap<u32, u64> = HashMap::new();
        for (key, sum) in (0..).zip(&sums.by_key) {
            if let Some(group) = self.keys.own(key) {
                *own.entry(group).or_default() += sum.bytes;
            }
        }
        own
    }

    fn name(&self, trace: &Trace, symbols: &dyn RecordingSymbols, group: u32) -> PinRow {
        let at = group as usize;
        if self.existing.is_some_and(|(_, existing)| existing == group) {
            return PinRow { function: "(blocks from before the recording)".into(), ..PinRow::default() };
        }
        match self.by {
            PinGroup::Age => PinRow {
                function: self.ages.get(at).map(|(_, words)| (*words).to_owned()).unwrap_or_default(),
                ..PinRow::default()
            },
            PinGroup::Thread => PinRow {
                function: trace.threads().get(at).map(|thread| thread.name.clone()).unwrap_or_default(),
                id: Some(trace.thread_id(group).to_string()),
                ..PinRow::default()
            },
            PinGroup::Site => {
                let frame = stacks::allocated_by(trace, symbols, self.nodes.get(at).copied().unwrap_or(0));
                let (function, file, line) =
                    frame.map_or((None, None, None), |frame| (frame.function.or(frame.offset), frame.file, frame.line));
                let function = function.unwrap_or_else(|| "unknown".into());
                PinRow { function, file, line, id: Some(site_handle(group)), ..PinRow::default() }
            }
            PinGroup::Function => {
                let Some(&function) = self.functions.get(at) else { return PinRow::default() };
                let facts = symbols.function(function);
                PinRow {
                    function: facts.display().as_ref().to_owned(),
                    file: facts.file.map(|file| symbols.file(file).as_ref().to_owned()),
                    line: facts.line,
                    library: facts.kind.is_library(),
                    ..PinRow::default()
                }
            }
        }
    }

    /// Functions that allocate, two by two.
    fn pairs(
        &self,
        trace: &Trace,
        symbols: &dyn RecordingSymbols,
        sums: &PageGroups<'_>,
        page_bytes: u64,
    ) -> Vec<PinPair> {
        let bytes = self.own_bytes(sums);
        let own = |group| bytes.get(&group).copied().unwrap_or(0);
        let alone = |group| sums.alone.get(&group).copied().unwrap_or(0);
        let of_pair = |(&(a, b), &pages): (&(u32, u32), &u64)| {
            let all = alone(a) + alone(b) + pages;
            ((a, b), pages, (all * page_bytes).saturating_sub(own(a) + own(b)))
        };
        let mut pairs: Vec<((u32, u32), u64, u64)> = sums.shared.iter().map(of_pair).collect();
        pairs.sort_by_key(|&(pair, pages, given_back)| (std::cmp::Reverse((given_back, pages)), pair));
        pairs.truncate(MOST_PAIRS);
        let name = |group| self.name(trace, symbols, group).function;
        pairs
            .into_iter()
            .map(|((a, b), shared_pages, given_back_bytes)| PinPair {
                functions: vec![name(a), name(b)],
                given_back_bytes,
                shared_pages,
            })
            .collect()
    }
}
