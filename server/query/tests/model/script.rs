//! Random programs: lists of steps of several threads.

use proptest::prelude::*;

/// One step of a random program.
#[derive(Debug, Clone)]
pub enum Step {
    Alloc {
        slot: u8,
        size: u32,
        node: u8,
        kind: u8,
    },
    Free {
        pick: u8,
        node: u8,
    },
    /// `held`: how many steps of other threads come between its two records.
    Realloc {
        pick: u8,
        slot: u8,
        size: u32,
        node: u8,
        held: u8,
    },
    /// Two threads at one address, the second stamped `early`, before the first.
    HandOver {
        slot: u8,
        size: u32,
        node: u8,
        kind: u8,
        to: u8,
        early: u16,
        how: HandOver,
    },
    Unmatched {
        slot: u8,
        node: u8,
        realloc: bool,
    },
    Pool {
        slot: u8,
        size: u32,
        node: u8,
    },
    PoolFree {
        pick: u8,
    },
    Map {
        page: u8,
        pages: u8,
        node: u8,
    },
    Unmap {
        page: u8,
        pages: u8,
    },
    Remap {
        page: u8,
        pages: u8,
        to: u8,
        to_pages: u8,
        node: u8,
    },
    /// Moves the program break by so many pages.
    Brk {
        pages: i8,
        node: u8,
    },
    Mark,
    Sample {
        rss: u32,
    },
    Flush,
    Watermark,
}

/// What a hand-over is made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum HandOver {
    /// An alloc and a free.
    Free,
    /// An alloc and a realloc.
    Realloc,
    /// A free and an alloc.
    Reuse,
}

#[derive(Debug, Clone)]
pub struct Script {
    /// (thread, pause, step)
    pub steps: Vec<(u8, u16, Step)>,
    /// Parents of nodes 1…, taken modulo what is there.
    pub nodes: Vec<(u8, u8)>,
    pub chunk: usize,
}

pub const START: u64 = 5_000;
pub const ID: [u8; 16] = [9; 16];

fn hand_over() -> impl Strategy<Value = HandOver> {
    prop_oneof![2 => Just(HandOver::Free), 1 => Just(HandOver::Realloc), 1 => Just(HandOver::Reuse)]
}

pub fn script(max: usize) -> impl Strategy<Value = Script> {
    let size = prop_oneof![4 => 0_u32..64, 2 => 0_u32..5000, 1 => Just(u32::MAX), 1 => any::<u32>()];
    let step = prop_oneof![
        9 => (any::<u8>(), size.clone(), any::<u8>(), 0_u8..9).prop_map(|(slot, size, node, kind)| Step::Alloc { slot, size, node, kind }),
        8 => (any::<u8>(), any::<u8>()).prop_map(|(pick, node)| Step::Free { pick, node }),
        3 => (any::<u8>(), any::<u8>(), size.clone(), any::<u8>(), 0_u8..4)
            .prop_map(|(pick, slot, size, node, held)| Step::Realloc { pick, slot, size, node, held }),
        4 => ((any::<u8>(), size.clone(), any::<u8>(), 0_u8..9), 0_u8..3, prop_oneof![Just(0_u16), 1_u16..9, 1_u16..9000], hand_over())
            .prop_map(|((slot, size, node, kind), to, early, how)| Step::HandOver { slot, size, node, kind, to, early, how }),
        1 => (any::<u8>(), any::<u8>(), any::<bool>()).prop_map(|(slot, node, realloc)| Step::Unmatched { slot, node, realloc }),
        1 => (any::<u8>(), size, any::<u8>()).prop_map(|(slot, size, node)| Step::Pool { slot, size, node }),
        1 => any::<u8>().prop_map(|pick| Step::PoolFree { pick }),
        2 => (0_u8..48, 0_u8..16, any::<u8>()).prop_map(|(page, pages, node)| Step::Map { page, pages, node }),
        1 => (0_u8..48, 0_u8..16).prop_map(|(page, pages)| Step::Unmap { page, pages }),
        1 => (0_u8..48, 0_u8..16, 0_u8..48, 0_u8..16, any::<u8>())
            .prop_map(|(page, pages, to, to_pages, node)| Step::Remap { page, pages, to, to_pages, node }),
        1 => (-9_i8..10, any::<u8>()).prop_map(|(pages, node)| Step::Brk { pages, node }),
        1 => Just(Step::Mark),
        1 => any::<u32>().prop_map(|rss| Step::Sample { rss }),
        1 => Just(Step::Flush),
        1 => Just(Step::Watermark),
    ];
    let pause = prop_oneof![6 => 0_u16..4, 3 => 0_u16..200, 1 => any::<u16>()];
    (
        prop::collection::vec((0_u8..4, pause, step), 0..max),
        prop::collection::vec((any::<u8>(), any::<u8>()), 1..24),
        1_usize..40,
    )
        .prop_map(|(steps, nodes, chunk)| Script { steps, nodes, chunk })
}
