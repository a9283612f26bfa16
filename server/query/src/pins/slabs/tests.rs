use proptest::prelude::*;

use super::*;

/// Classes of jemalloc with slabs of one page to seven, and mimalloc's smallest.
const CLASSES: [u64; 12] = [8, 16, 48, 80, 112, 160, 320, 1024, 1792, 5120, 7168, 14336];
const EVERYWHERE: [Range<u64>; 1] = [Range { start: 0, end: 1 << 47 }];

fn block(start: u64, size: u64) -> PlacedBlock {
    PlacedBlock { start, size, row: 0, origin: 0 }
}

fn bounds(slabs: &Slabs) -> Vec<Range<u64>> {
    slabs.units.iter().map(|slab| slab.start..slab.end).collect()
}

proptest! {
    /// Whichever blocks of a slab of jemalloc live: its bounds are found from any of them, at any multiple of a page.
    #[test]
    fn slabs_of_jemalloc_are_found_from_their_blocks(
        layout in prop::collection::vec((0_u64..4, 0_usize..13, 1_u64..u64::MAX, 0_u64..8), 1..30),
    ) {
        let (mut at, mut blocks, mut expected, mut of_block) = (0x7000_0000_0000, Vec::new(), Vec::new(), Vec::new());
        for (gap, class, live, short) in layout {
            at += gap * PAGE;
            let mut add = |start: u64, size: u64| {
                blocks.push(block(start, size));
                of_block.push(expected.len() as u32);
            };
            let len = match CLASSES.get(class) {
                Some(&region) => {
                    let len = least_common_multiple(PAGE, region);
                    let live = (0..len / region).filter(|n| live >> (n % 64) & 1 == 1);
                    // Sizes are rounded up to the class.
                    live.for_each(|n| add(at + n * region, region - short.min(region / 8).min(7)));
                    len
                }
                // A large one begins somewhere in its first page.
                None => {
                    add(at + short * 64, 40_000);
                    40_960 + PAGE
                }
            };
            if of_block.last() == Some(&(expected.len() as u32)) {
                expected.push(at..at + len);
            }
            at += len;
        }
        let slabs = Slabs::new(&SlabRules::Jemalloc, &blocks, |_| 1, &EVERYWHERE);
        prop_assert_eq!((bounds(&slabs), &slabs.of_block), (expected, &of_block));
        prop_assert_eq!((slabs.uncertain, slabs.misfits), (0, 0));
        prop_assert!(slabs.units.iter().all(|slab| slab.pages == (slab.end - slab.start) / PAGE));
        // Parts of the blocks have whole slabs, and all of them.
        let middle = blocks.len() / 2;
        let (first, second) = (slabs.whole(0..middle), slabs.whole(middle..blocks.len()));
        prop_assert_eq!((first.start, first.end, second.end), (0, second.start, blocks.len()));
        prop_assert!(second.start == 0 || slabs.of_block.get(second.start) != slabs.of_block.get(second.start - 1));
    }

    /// A span of tcmalloc is found wherever it can begin at one place only; otherwise it is marked.
    #[test]
    fn spans_of_tcmalloc_are_found_or_marked(
        layout in prop::collection::vec((0_u64..3, any::<prop::sample::Index>(), 1_u64..u64::MAX), 1..20),
    ) {
        let classes = span_classes();
        let (mut at, mut blocks, mut spans) = (0x5000_0000_0000, Vec::new(), Vec::new());
        for (gap, class, live) in layout {
            at += gap * TCMALLOC_PAGE;
            let SpanClass { size, span } = *class.get(&classes);
            let before = blocks.len();
            let live = (0..span / size).filter(|n| live >> (n % 64) & 1 == 1);
            blocks.extend(live.map(|n| block(at + n * size, size)));
            if blocks.len() > before {
                spans.push(at..at + span);
            }
            at += span;
        }
        let slabs = Slabs::new(&SlabRules::Tcmalloc(classes), &blocks, |_| 1, &EVERYWHERE);
        prop_assert!(slabs.units.is_sorted_by(|one, next| one.start < one.end && one.end <= next.start));
        for (slab, found) in slabs.units.iter().zip(bounds(&slabs)).filter(|(slab, _)| slab.certain) {
            // One that is certain is no other than a span, if what comes before it is certain.
            prop_assert!(spans.contains(&found) || slabs.uncertain > 0, "{:x?} {:x?}", slab, spans);
        }
        let inside = blocks.iter().enumerate().all(|(at, block)| {
            slabs.of(at).is_some_and(|(_, slab)| slab.start <= block.start && block.start + block.size <= slab.end)
        });
        prop_assert!(inside);
    }

    /// Whatever the addresses are, nothing overflows, and slabs are by address and do not overlap.
    #[test]
    fn any_blocks_are_put_into_slabs(
        mut blocks in prop::collection::vec((prop_oneof![any::<u64>(), 0_u64..1 << 20], any::<u64>(), 0_u32..64), 0..40),
    ) {
        blocks.sort_unstable();
        let blocks: Vec<PlacedBlock> =
            blocks.into_iter().map(|(start, size, origin)| PlacedBlock { start, size: size >> (origin % 60), row: 0, origin }).collect();
        for rules in [SlabRules::Jemalloc, SlabRules::Mimalloc, SlabRules::Tcmalloc(span_classes())] {
            let slabs = Slabs::new(&rules, &blocks, |origin| 1 << origin, &EVERYWHERE);
            prop_assert_eq!(slabs.of_block.len(), blocks.len());
            prop_assert!(slabs.of_block.is_sorted() && slabs.units.is_sorted_by(|one, next| one.end <= next.start));
            // What is asked of one slab is the same as of all.
            for block in &blocks {
                let placement = rules.placement(block.size, 1 << block.origin);
                for slab in placement.slabs(block.start) {
                    prop_assert!(placement.can_begin(block.start, slab.start) && slab.contains(&block.start));
                    prop_assert!(!placement.can_begin(block.start, slab.start + 1));
                }
            }
        }
    }
}

#[test]
fn pages_of_mimalloc() {
    let start = 0x200_0000_0000;
    let blocks = [
        block(start + 0x1_0000, 100),
        block(start + 0x1_4000, 16 << 10),
        block(start + 0x2_0080, 64),
        // Of 20 KiB: the second block in a page of 512 KiB, which can begin at one place only.
        block(start + 0x3_0000 + 3 * (20 << 10), 20 << 10),
        block(start + 0xb_0000, 300_000),
    ];
    let slabs = Slabs::new(&SlabRules::Mimalloc, &blocks, |_| 1, &EVERYWHERE);
    let expected = [
        start + 0x1_0000..start + 0x2_0000,
        start + 0x2_0000..start + 0x3_0000,
        start + 0x3_0000..start + 0xb_0000,
        start + 0xb_0000..start + 0x10_0000,
    ];
    assert_eq!((bounds(&slabs), slabs.of_block, slabs.misfits), (expected.to_vec(), vec![0, 0, 1, 2, 3], 0));
}

#[test]
fn classes_of_tcmalloc() {
    let classes = span_classes();
    let of = |size: u64| {
        let at = classes.partition_point(|class| class.size < size);
        (classes[at].size, classes[at].span)
    };
    // As its own `nallocx` has them.
    for (size, class) in
        [(1, 8), (8, 8), (9, 16), (17, 32), (100, 112), (128, 128), (129, 144), (1000, 1024), (8193, 9216)]
    {
        assert_eq!(of(size).0, class, "{size}");
    }
    assert_eq!([of(16).1, of(1024).1, of(8192).1], [8192, 8192, 16384]);
    assert!(
        classes.is_sorted_by(|a, b| a.size < b.size) && classes.last().is_some_and(|last| last.size == TCMALLOC_MOST)
    );
}

#[test]
fn blocks_elsewhere_than_the_rules_have_them_are_an_error() {
    let start = 0x7000_0000_0000;
    let good: Vec<PlacedBlock> = (0..100).map(|n| block(start + n * 12_288, 48)).collect();
    let off = |every: u64| {
        good.iter().zip(0_u64..).map(move |(b, n)| block(b.start + u64::from(n % every == 0) * 24, 48)).collect()
    };
    let check = |blocks: Vec<PlacedBlock>| Slabs::new(&SlabRules::Jemalloc, &blocks, |_| 1, &EVERYWHERE).check();
    assert_eq!(check(off(50)), Ok(()));
    let error = check(off(2)).unwrap_err().to_string();
    assert!(error.starts_with("unit: ") && error.contains("of 100 blocks") && error.contains("`4k`"), "{error}");
}
