//! Which groups hold each page alone, and which two own all of it: sums of one part of the address space, which add up.
//!
//! ```text
//! groups(page) = groups(key 1) ∩ groups(key 2) ∩ …     of the keys of its blocks, each once
//! pages(group) = number of pages whose set has it
//! ```
//! Most keys share some groups, such as `main`. These stand for themselves: of the sets only the rest is intersected, which
//! is soon empty.

use rustc_hash::FxHashMap;

use crate::live_blocks::{BlockPages, NO_ROW};

/// Figures of a key or a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PinSum {
    /// Bytes of blocks in resident pages.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
    /// Pages that nobody else holds.
    pub pages: u64,
    /// Earliest allocation: its row, plus one; 0: before the recording.
    pub first: u64,
    /// Latest allocation.
    pub last: u64,
}

impl PinSum {
    /// Adds another one.
    pub fn join(&mut self, other: &Self) {
        if other.blocks > 0 {
            self.first = if self.blocks == 0 { other.first } else { self.first.min(other.first) };
            self.last = self.last.max(other.last);
        }
        self.bytes += other.bytes;
        self.blocks += other.blocks;
        self.pages += other.pages;
    }
}

/// The groups of each key.
#[derive(Debug, Clone, Default)]
pub struct KeyGroups {
    /// All of them, in order.
    of_key: Vec<Vec<u32>>,
    /// The one that allocates; none where the groups are not functions.
    own: Vec<Option<u32>>,
    /// Groups that most keys share, in order.
    common: Vec<u32>,
    /// Without the common ones, where a key has all of these.
    rest: Lists,
    has_common: Vec<bool>,
    all_have_common: bool,
    count: usize,
}

impl KeyGroups {
    /// `of_key` in order; `own` may be shorter.
    pub fn new(of_key: Vec<Vec<u32>>, own: Vec<Option<u32>>) -> Self {
        let count = of_key.iter().flatten().max().map_or(0, |&most| most as usize + 1);
        let mut keys_of_group = vec![0_u32; count];
        for &group in of_key.iter().flatten() {
            keys_of_group[group as usize] += 1;
        }
        let most = (0..).zip(&keys_of_group).max_by_key(|(_, keys)| **keys).map_or(u32::MAX, |(group, _)| group);
        let has_common: Vec<bool> = of_key.iter().map(|groups| groups.binary_search(&most).is_ok()).collect();
        let mut sharing = of_key.iter().zip(&has_common).filter(|(_, has)| **has).map(|(groups, _)| groups);
        let mut common = sharing.next().cloned().unwrap_or_default();
        for groups in sharing {
            keep_those_of(&mut common, groups);
        }
        let mut rest = Lists::default();
        for (groups, has) in of_key.iter().zip(&has_common) {
            let is_rest = |group: &u32| !has || common.binary_search(group).is_err();
            rest.push(groups.iter().copied().filter(is_rest));
        }
        let all_have_common = has_common.iter().all(|has| *has);
        Self { of_key, own, common, rest, has_common, all_have_common, count }
    }

    /// Groups of a key, in order.
    pub fn of(&self, key: u32) -> &[u32] {
        self.of_key.get(key as usize).map(Vec::as_slice).unwrap_or_default()
    }

    /// The group of a key that allocates.
    pub fn own(&self, key: u32) -> Option<u32> {
        self.own.get(key as usize).copied().flatten()
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.of_key.len()
    }

    fn rest(&self, key: u32) -> &[u32] {
        self.rest.of(key)
    }

    fn has_common(&self, key: u32) -> bool {
        self.has_common.get(key as usize) == Some(&true)
    }
}

/// Keeps those of some groups that are among others; both are in order.
fn keep_those_of(groups: &mut Vec<u32>, of: &[u32]) {
    let (mut kept, mut at) = (0, 0);
    for number in 0..groups.len() {
        let group = groups[number];
        while at < of.len() && of[at] < group {
            at += 1;
        }
        if at < of.len() && of[at] == group {
            groups[kept] = group;
            kept += 1;
        }
    }
    groups.truncate(kept);
}

/// One list of numbers for each key, behind one another.
#[derive(Debug, Clone, Default)]
struct Lists {
    items: Vec<u32>,
    /// Where the list of each key ends.
    ends: Vec<usize>,
}

impl Lists {
    fn push(&mut self, list: impl Iterator<Item = u32>) {
        self.items.extend(list);
        self.ends.push(self.items.len());
    }

    #[inline]
    fn of(&self, key: u32) -> &[u32] {
        let Some(&end) = self.ends.get(key as usize) else { return &[] };
        let start = (key as usize).checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.items.get(start..end).unwrap_or_default()
    }
}

/// Groups that own the blocks of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owners {
    None,
    One(Option<u32>),
    Two(Option<u32>, Option<u32>),
    More,
}

impl Owners {
    fn with(self, own: Option<u32>) -> Self {
        match self {
            Self::None => Self::One(own),
            Self::One(one) if one == own => self,
            Self::One(one) => Self::Two(one.min(own), one.max(own)),
            Self::Two(one, two) if one == own || two == own => self,
            Self::Two(..) | Self::More => Self::More,
        }
    }
}

/// See the module's description.
#[derive(Debug)]
pub struct PageGroups<'a> {
    keys: &'a KeyGroups,
    /// Figures of the keys, without pages.
    pub by_key: Vec<PinSum>,
    /// Pages of each group.
    pub pages: Vec<u64>,
    common_pages: u64,
    /// Pages that a group owns alone.
    pub alone: FxHashMap<u32, u64>,
    /// Pages that two groups own together.
    pub shared: FxHashMap<(u32, u32), u64>,
    /// The page at hand, and the pages that it counts as.
    open: Option<(u64, u64)>,
    /// Groups that all its keys have; the common ones left out, if `has_common`.
    groups: Vec<u32>,
    has_common: bool,
    owners: Owners,
    /// No further block changes what is known of the page at hand.
    is_settled: bool,
    /// Number of the last page that each key was on.
    seen: Vec<u64>,
    page_number: u64,
    last_block: Option<usize>,
}

impl<'a> PageGroups<'a> {
    /// No page yet.
    pub fn new(keys: &'a KeyGroups) -> Self {
        Self {
            keys,
            by_key: vec![PinSum::default(); keys.len()],
            pages: vec![0; keys.count],
            common_pages: 0,
            alone: FxHashMap::default(),
            shared: FxHashMap::default(),
            open: None,
            groups: Vec::new(),
            has_common: false,
            owners: Owners::None,
            is_settled: false,
            seen: vec![0; keys.len()],
            page_number: 0,
            last_block: None,
        }
    }

    /// A block of a key and a row reaches into pages, which come by address.
    #[inline]
    pub fn add(&mut self, key: u32, found: BlockPages, page_bytes: u64, row: u64) {
        if let Some(sum) = self.by_key.get_mut(key as usize) {
            sum.bytes += found.extent;
            if self.last_block != Some(found.block) {
                let allocated = if row == NO_ROW { 0 } else { row + 1 };
                sum.first = if sum.blocks == 0 { allocated } else { sum.first.min(allocated) };
                sum.last = sum.last.max(allocated);
                sum.blocks += 1;
            }
        }
        self.last_block = Some(found.block);
        let (mut first, mut left) = (found.first, found.pages);
        if self.open.is_some_and(|(page, _)| page == first) {
            if !self.is_settled {
                self.join_page(key);
            }
            first += page_bytes;
            left -= 1;
        }
        if left > 0 {
            self.finish();
            // All but the last one are this block's alone.
            if left > 1 {
                let alone = (left - 1) * found.weight;
                self.count(self.keys.of(key), alone);
                self.count_owners(Owners::One(self.keys.own(key)), alone);
            }
            self.open_page((first + (left - 1) * page_bytes, found.weight), key);
        }
    }

    fn open_page(&mut self, page: (u64, u64), key: u32) {
        self.open = Some(page);
        self.page_number += 1;
        self.mark_seen(key);
        self.has_common = self.keys.has_common(key);
        self.groups.clear();
        self.groups.extend_from_slice(self.keys.rest(key));
        self.owners = Owners::One(self.keys.own(key));
        self.is_settled = false;
    }

    /// Whether the key was not yet on the page at hand.
    fn mark_seen(&mut self, key: u32) -> bool {
        let number = self.page_number;
        self.seen.get_mut(key as usize).is_some_and(|seen| std::mem::replace(seen, number) != number)
    }

    fn join_page(&mut self, key: u32) {
        if !self.mark_seen(key) {
            return;
        }
        let keys = self.keys;
        if self.owners != Owners::More {
            self.owners = self.owners.with(keys.own(key));
        }
        if self.has_common && keys.has_common(key) {
            keep_those_of(&mut self.groups, keys.rest(key));
        } else {
            if self.has_common {
                self.groups.extend_from_slice(&keys.common);
                self.groups.sort_unstable();
                self.has_common = false;
            }
            keep_those_of(&mut self.groups, keys.of(key));
        }
        let none_left = self.groups.is_empty() && (!self.has_common || keys.all_have_common);
        self.is_settled = none_left && self.owners == Owners::More;
    }

    /// The page at hand gets no further blocks.
    pub fn finish(&mut self) {
        if let Some((_, weight)) = self.open.take() {
            let groups = std::mem::take(&mut self.groups);
            self.count(&groups, weight);
            self.groups = groups;
            self.common_pages += if self.has_common { weight } else { 0 };
            self.count_owners(self.owners, weight);
        }
    }

    fn count(&mut self, groups: &[u32], pages: u64) {
        for &group in groups {
            self.pages[group as usize] += pages;
        }
    }

    fn count_owners(&mut self, owners: Owners, pages: u64) {
        match owners {
            Owners::One(Some(one)) => *self.alone.entry(one).or_default() += pages,
            Owners::Two(Some(one), Some(two)) => *self.shared.entry((one, two)).or_default() += pages,
            _ => {}
        }
    }

    /// The sums of all parts; no page may lie in two of them.
    pub fn sum(keys: &'a KeyGroups, parts: Vec<Self>) -> Self {
        let mut all = Self::new(keys);
        for mut part in parts {
            part.finish();
            for (sum, more) in all.by_key.iter_mut().zip(&part.by_key) {
                sum.join(more);
            }
            for (sum, more) in all.pages.iter_mut().zip(&part.pages) {
                *sum += more;
            }
            all.count(&keys.common, part.common_pages);
            for (group, pages) in part.alone {
                *all.alone.entry(group).or_default() += pages;
            }
            for (pair, pages) in part.shared {
                *all.shared.entry(pair).or_default() += pages;
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    const PAGE: u64 = 16;

    proptest! {
        /// Against a recount: for each group, the pages all of whose blocks belong to it; in one part and in two.
        #[test]
        fn pages_are_those_of_a_recount(
            groups in prop::collection::vec((prop::collection::btree_set(0_u32..12, 1..6), any::<bool>()), 1..14),
            blocks in prop::collection::vec((0_u64..20, 1_u64..60, 0_usize..14), 0..60),
            cut in 0_usize..60,
        ) {
            // Most keys share two groups, as most backtraces do.
            let with_common = |(set, shares): &(BTreeSet<u32>, bool)| -> Vec<u32> {
                let more = [3, 7].into_iter().filter(|_| *shares);
                set.iter().copied().chain(more).collect::<BTreeSet<u32>>().into_iter().collect()
            };
            let of_key: Vec<Vec<u32>> = groups.iter().map(with_common).collect();
            let own: Vec<Option<u32>> = (0_u32..).zip(&of_key).map(|(key, set)| (key % 5 > 0).then(|| set[0])).collect();
            let keys = KeyGroups::new(of_key.clone(), own.clone());
            let mut parts = vec![PageGroups::new(&keys)];
            let mut on_page: BTreeMap<u64, BTreeSet<usize>> = BTreeMap::new();
            let (mut bytes, mut at) = (vec![0; of_key.len()], 0_u64);
            for (block, &(gap, len, key)) in blocks.iter().enumerate() {
                if block == cut {
                    at = at.next_multiple_of(PAGE);
                    parts.push(PageGroups::new(&keys));
                }
                let key = key % of_key.len();
                let (start, end) = (at + gap, at + gap + len);
                at = end;
                let (first, last) = (start / PAGE, (end - 1) / PAGE);
                for page in first..=last {
                    on_page.entry(page).or_default().insert(key);
                }
                bytes[key] += len;
                let pages = last - first + 1;
                let found = BlockPages { block, first: first * PAGE, pages, weight: 1, fresh: 0, live: len, extent: len };
                parts.last_mut().unwrap().add(key as u32, found, PAGE, block as u64);
            }
            let sums = PageGroups::sum(&keys, parts);
            for (key, bytes) in bytes.iter().enumerate() {
                prop_assert_eq!(sums.by_key[key].bytes, *bytes);
                let mut rows = (0_u64..).zip(&blocks).filter(|(_, block)| block.2 % of_key.len() == key).map(|(row, _)| row + 1);
                let first: u64 = rows.next().unwrap_or(0);
                prop_assert_eq!((sums.by_key[key].first, sums.by_key[key].last), (first, rows.last().unwrap_or(first)));
            }
            for group in 0..12_u32 {
                let all_have = |on: &BTreeSet<usize>| on.iter().all(|&key| of_key[key].contains(&group));
                let expected = on_page.values().filter(|on| all_have(on)).count() as u64;
                prop_assert_eq!(sums.pages.get(group as usize).copied().unwrap_or(0), expected, "group {}", group);
                for other in group..12 {
                    let of_pair: BTreeSet<Option<u32>> = [Some(group), Some(other)].into();
                    let owners = |on: &&BTreeSet<usize>| on.iter().map(|&key| own[key]).collect::<BTreeSet<_>>() == of_pair;
                    let expected = on_page.values().filter(owners).count() as u64;
                    let got = if group == other { sums.alone.get(&group) } else { sums.shared.get(&(group, other)) };
                    prop_assert_eq!(got.copied().unwrap_or(0), expected, "{} and {}", group, other);
                }
            }
        }
    }
}
