//! Groups that hold a page alone, by intersections of sets that are computed once.

use rustc_hash::FxHashMap;

use crate::live_blocks::BlockPages;

/// Figures of a key or a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PinSum {
    /// Bytes of blocks in resident pages.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
    /// Pages that nobody else holds.
    pub pages: u64,
    /// Earliest allocation.
    pub first_ns: u64,
    /// Latest allocation.
    pub last_ns: u64,
}

impl PinSum {
    /// Adds another one.
    pub fn join(&mut self, other: &Self) {
        self.first_ns = if self.blocks == 0 { other.first_ns } else { self.first_ns.min(other.first_ns) };
        self.last_ns = self.last_ns.max(other.last_ns);
        self.bytes += other.bytes;
        self.blocks += other.blocks;
        self.pages += other.pages;
    }
}

/// Keys on one page beyond which only the groups that are common to all of them are kept.
const MOST_KEYS: usize = 8;

/// A state of a page: the groups that all its keys have in common, and the keys, if they are few.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PageSet {
    groups: Vec<u32>,
    /// Sorted; more than [`MOST_KEYS`]: unknown.
    keys: Option<Vec<u32>>,
}

/// See the module's description.
#[derive(Debug)]
pub struct PageSets<'a> {
    of_key: &'a [Vec<u32>],
    by_key: Vec<PinSum>,
    sets: Vec<PageSet>,
    numbers: FxHashMap<PageSet, u32>,
    /// Cache: the set that adding a key to a set makes.
    steps: FxHashMap<(u32, u32), u32>,
    /// Pages of each set.
    pages: Vec<u64>,
    /// The current page: number, set.
    open: Option<(u64, u32)>,
    last_block: Option<usize>,
}

/// The set of an untouched page.
const NO_SET: u32 = u32::MAX;

impl<'a> PageSets<'a> {
    /// `of_key`: the groups of each key, in order.
    pub fn new(of_key: &'a [Vec<u32>]) -> Self {
        Self {
            of_key,
            by_key: vec![PinSum::default(); of_key.len()],
            sets: Vec::new(),
            numbers: FxHashMap::default(),
            steps: FxHashMap::default(),
            pages: Vec::new(),
            open: None,
            last_block: None,
        }
    }

    /// Adds a block of a key; pages must come by address.
    pub fn add(&mut self, key: u32, found: BlockPages, page_bytes: u64, born_ns: u64) {
        if let Some(sum) = self.by_key.get_mut(key as usize) {
            sum.bytes += found.extent;
            if self.last_block != Some(found.block) {
                sum.first_ns = if sum.blocks == 0 { born_ns } else { sum.first_ns.min(born_ns) };
                sum.last_ns = sum.last_ns.max(born_ns);
                sum.blocks += 1;
            }
        }
        self.last_block = Some(found.block);
        let mut first = found.first;
        let mut left = found.pages;
        if let Some((page, set)) = self.open.filter(|(page, _)| *page == first) {
            self.open = Some((page, self.step(set, key)));
            first += page_bytes;
            left -= 1;
        }
        if left > 0 {
            self.finish();
            let set = self.step(NO_SET, key);
            // All but the last one are this block's alone.
            self.pages[set as usize] += left - 1;
            self.open = Some((first + (left - 1) * page_bytes, set));
        }
    }

    /// Finishes the current page.
    pub fn finish(&mut self) {
        if let Some((_, set)) = self.open.take() {
            self.pages[set as usize] += 1;
        }
    }

    fn step(&mut self, set: u32, key: u32) -> u32 {
        if let Some(&known) = self.steps.get(&(set, key)) {
            return known;
        }
        let groups = self.of_key.get(key as usize).map(Vec::as_slice).unwrap_or_default();
        let next = match self.sets.get(set as usize) {
            None => PageSet { groups: groups.to_vec(), keys: Some(vec![key]) },
            Some(before) => {
                let mut keys = before.keys.clone();
                if let Some(known) = &mut keys
                    && let Err(at) = known.binary_search(&key)
                {
                    known.insert(at, key);
                }
                PageSet {
                    groups: before.groups.iter().copied().filter(|group| groups.binary_search(group).is_ok()).collect(),
                    keys: keys.filter(|keys| keys.len() <= MOST_KEYS),
                }
            }
        };
        let number = match self.numbers.get(&next) {
            Some(&number) => number,
            None => {
                let number = self.sets.len() as u32;
                self.sets.push(next.clone());
                self.pages.push(0);
                self.numbers.insert(next, number);
                number
            }
        };
        self.steps.insert((set, key), number);
        number
    }

    /// Figures of the keys, without pages, and behind them those of the groups, of which only pages are counted.
    pub fn sums(&self) -> Vec<PinSum> {
        let groups = self.of_key.iter().flatten().max().map_or(0, |&most| most as usize + 1);
        let mut all = self.by_key.clone();
        let keys = all.len();
        all.resize(keys + groups, PinSum::default());
        for (set, &pages) in self.sets.iter().zip(&self.pages) {
            for &group in &set.groups {
                all[keys + group as usize].pages += pages;
            }
        }
        all
    }

    /// Pages by the keys in them, where these are few.
    pub fn pages_by_keys(&self) -> impl Iterator<Item = (&[u32], u64)> {
        let sets = self.sets.iter().zip(&self.pages);
        sets.filter(|(_, pages)| **pages > 0).filter_map(|(set, &pages)| Some((set.keys.as_deref()?, pages)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    const PAGE: u64 = 16;

    proptest! {
        /// Against a recount: for each group, the pages all of whose blocks belong to it.
        #[test]
        fn pages_are_those_of_a_recount(
            groups in prop::collection::vec(prop::collection::btree_set(0_u32..12, 1..6), 1..14),
            blocks in prop::collection::vec((0_u64..20, 1_u64..60, 0_usize..14), 0..60),
        ) {
            let of_key: Vec<Vec<u32>> = groups.iter().map(|set| set.iter().copied().collect()).collect();
            let mut sets = PageSets::new(&of_key);
            let mut on_page: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
            let mut bytes = vec![0; of_key.len()];
            let mut at = 0;
            for (block, &(gap, len, key)) in blocks.iter().enumerate() {
                let key = key % of_key.len();
                let (start, end) = (at + gap, at + gap + len);
                at = end;
                let (first, last) = (start / PAGE, (end - 1) / PAGE);
                for page in first..=last {
                    on_page.entry(page).or_default().insert(key as u32);
                }
                bytes[key] += len;
                let pages = last - first + 1;
                let found = BlockPages { block, first: first * PAGE, pages, fresh: 0, live: len, extent: len };
                sets.add(key as u32, found, PAGE, block as u64);
            }
            sets.finish();
            let sums = sets.sums();
            for (key, bytes) in bytes.iter().enumerate() {
                prop_assert_eq!(sums[key].bytes, *bytes);
            }
            for group in 0..12_u32 {
                let all_have = |keys: &BTreeSet<u32>| keys.iter().all(|&key| of_key[key as usize].contains(&group));
                let expected = on_page.values().filter(|keys| all_have(keys)).count() as u64;
                let got = sums.get(of_key.len() + group as usize).map_or(0, |sum| sum.pages);
                prop_assert_eq!(got, expected, "group {}", group);
            }
            for pair in 0..of_key.len() {
                let expected = on_page.values().filter(|keys| keys.len() == 1 && keys.contains(&(pair as u32))).count();
                let got: u64 = sets.pages_by_keys().filter(|(keys, _)| **keys == [pair as u32]).map(|(_, pages)| pages).sum();
                prop_assert_eq!(got, expected as u64);
            }
        }
    }
}
