use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tracehound_index::looks::LookedMapping;

use super::super::page_groups::{KeyGroups, PageGroups};
use super::*;

fn mapping(start: u64, end: u64) -> LookedMapping {
    LookedMapping {
        start,
        len: end - start,
        class: MappingClass::Anonymous,
        protection: 3,
        name: String::new(),
        thread: 0,
        seen: true,
    }
}

/// Pages of a look, from 0 on: of each, its mapping, and whether it is resident.
fn look(pages: &[(usize, bool)]) -> PageMap {
    let mut map = PageMap { page_bytes: PAGE, ..PageMap::default() };
    for (at, &(mapping_at, is_resident)) in (0..).zip(pages) {
        if mapping_at >= map.mappings.len() {
            map.mappings.push(mapping(at * PAGE, at * PAGE));
        }
        map.mappings[mapping_at].len += PAGE;
        let state = if is_resident { PageState::Anonymous } else { PageState::Absent };
        match map.runs.last_mut().filter(|run| run.mapping == mapping_at && run.state == state) {
            Some(run) => run.len += PAGE,
            None => map.runs.push(PageRun { mapping: mapping_at, start: at * PAGE, len: PAGE, state }),
        }
    }
    map
}

fn held(blocks: Vec<PlacedBlock>, map: Option<PageMap>, model: AllocatorModel) -> HeldPages {
    let resident = map.as_ref().map_or_else(|| std::iter::once(0..1 << 40).collect(), resident_heap);
    HeldPages {
        look: map,
        at_ns: 0,
        place: Position::default(),
        page_bytes: PAGE,
        basis: Basis::Exact,
        words: String::new(),
        outside: PinnedPages::default(),
        blocks,
        resident,
        model,
        slabs: None,
    }
}

/// Pages of each group by the walk, where the key of a block is its origin; and the pages of all.
fn count(held: &HeldPages, keys: &KeyGroups) -> (Vec<u64>, PinnedPages) {
    let nothing = || (PinnedPages::default(), PageGroups::new(keys));
    let parts = held.parts(&Cancel::new(), nothing, |(found, sums), block, pages| {
        found.count += pages.fresh;
        found.live_bytes += pages.live;
        sums.add(block.origin, pages, held.page_bytes, block.row);
    });
    let (found, parts): (Vec<PinnedPages>, Vec<PageGroups<'_>>) = parts.unwrap().into_iter().unzip();
    let mut all = PinnedPages::default();
    for part in found {
        all.count += part.count;
        all.live_bytes += part.live_bytes;
    }
    (PageGroups::sum(keys, parts).pages, all)
}

/// Weight of the units all of whose keys have the group.
fn recount(units: &BTreeMap<u64, (u64, BTreeSet<u32>)>, of_key: &[Vec<u32>], group: u32) -> u64 {
    let is_held = |keys: &BTreeSet<u32>| keys.iter().all(|&key| of_key[key as usize].contains(&group));
    units.values().filter(|(_, keys)| is_held(keys)).map(|(weight, _)| weight).sum()
}

fn keys() -> impl Strategy<Value = Vec<Vec<u32>>> {
    prop::collection::vec(prop::collection::btree_set(0_u32..6, 1..4), 1..6)
        .prop_map(|sets| sets.into_iter().map(|set| set.into_iter().collect()).collect())
}

const HUGE_PAGES: u64 = HUGE / PAGE;

proptest! {
    /// Huge pages: the units are the ranges of 2 MiB whose 512 pages are all resident and in one mapping.
    #[test]
    fn huge_pages_are_those_of_a_recount(
        of_key in keys(),
        // Of each 2 MiB: pages that are absent, and whether a mapping begins in it.
        ranges in prop::collection::vec((prop_oneof![3 => Just(0_u64), 1 => 1_u64..400], prop::bool::weighted(0.2), 0..HUGE_PAGES), 1..8),
        blocks in prop::collection::vec((0_u64..1 << 20, 1_u64..3 << 20, 0_u32..6), 0..30),
    ) {
        let (mut pages, mut mapping) = (Vec::new(), 0);
        for &(absent, splits, at) in &ranges {
            for page in 0..HUGE_PAGES {
                if splits && page == at && !pages.is_empty() {
                    mapping += 1;
                }
                pages.push((mapping, !(at..at + absent).contains(&page)));
            }
        }
        let (mut placed, mut at) = (Vec::new(), 0);
        for (gap, size, key) in blocks {
            placed.push(PlacedBlock { start: at + gap, size, row: 0, origin: key % of_key.len() as u32 });
            at += gap + size;
        }
        let is_unit = |unit: u64| {
            let inside = pages.get((unit * HUGE_PAGES) as usize..((unit + 1) * HUGE_PAGES) as usize);
            inside.is_some_and(|inside| inside.iter().all(|&(mapping, resident)| resident && mapping == inside[0].0))
        };
        let mut units: BTreeMap<u64, (u64, BTreeSet<u32>)> = BTreeMap::new();
        let mut outside: BTreeSet<u64> = BTreeSet::new();
        for block in &placed {
            for page in block.start / PAGE..=(block.start + block.size - 1) / PAGE {
                if is_unit(page / HUGE_PAGES) {
                    units.entry(page / HUGE_PAGES).or_insert((1, BTreeSet::new())).1.insert(block.origin);
                } else if pages.get(page as usize).is_some_and(|&(_, resident)| resident) {
                    outside.insert(page);
                }
            }
        }
        let mut held = held(placed, Some(look(&pages)), AllocatorModel::Other);
        held.only_huge(Some((0, 0)), &Cancel::new()).unwrap();
        prop_assert_eq!((held.page_bytes, held.outside.count), (HUGE, outside.len() as u64));
        let (counted, all) = count(&held, &KeyGroups::new(of_key.clone(), Vec::new()));
        prop_assert_eq!(all.count, units.len() as u64);
        for (group, pages) in (0..).zip(counted) {
            prop_assert_eq!(pages, recount(&units, &of_key, group), "group {}", group);
        }
    }

    /// Slabs: what a group holds are the resident pages of slabs all of whose blocks are its own, touched or not.
    #[test]
    fn slabs_are_those_of_a_recount(
        of_key in keys(),
        // Of each slab of five pages, with blocks of 320 bytes: its keys, and its resident pages.
        slabs in prop::collection::vec((prop::collection::vec(prop::option::weighted(0.2, 0_u32..6), 64), 0_u8..32, 0_u64..3), 1..10),
    ) {
        let (mut pages, mut placed) = (Vec::new(), Vec::new());
        let mut units: BTreeMap<u64, (u64, BTreeSet<u32>)> = BTreeMap::new();
        for (blocks, resident, gap) in slabs {
            pages.extend((0..gap).map(|_| (0, true)));
            let start = pages.len() as u64 * PAGE;
            pages.extend((0..5).map(|page| (0, resident >> page & 1 == 1)));
            for (at, key) in (0..).zip(blocks) {
                let Some(key) = key.map(|key| key % of_key.len() as u32) else { continue };
                placed.push(PlacedBlock { start: start + at * 320, size: 300, row: 0, origin: key });
                units.entry(start).or_insert((u64::from(resident.count_ones()), BTreeSet::new())).1.insert(key);
            }
        }
        let in_memory = |byte: u64| pages.get((byte / PAGE) as usize).is_some_and(|&(_, resident)| resident);
        let live: usize = placed.iter().map(|block| (block.start..block.start + 300).filter(|&byte| in_memory(byte)).count()).sum();
        let mut held = held(placed, Some(look(&pages)), AllocatorModel::Jemalloc);
        held.put_into_slabs(&SlabRules::Jemalloc, |_| 1).unwrap();
        let (counted, all) = count(&held, &KeyGroups::new(of_key.clone(), Vec::new()));
        prop_assert_eq!(all.count, units.values().map(|(weight, _)| weight).sum::<u64>());
        prop_assert_eq!(all.live_bytes, live as u64);
        for (group, pages) in (0..).zip(counted) {
            prop_assert_eq!(pages, recount(&units, &of_key, group), "group {}", group);
        }
    }
}
