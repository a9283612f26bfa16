//! Hand-overs whose stamps are equal or the wrong way round: who freed which block is reported as it was.

use std::collections::BTreeMap;

use tracehound_format::columns::RecordColumns;
use tracehound_format::meta::EndReason;
use tracehound_format::nodes::Node;
use tracehound_format::record::{Kind, Record};
use tracehound_index::{Trace, What};
use tracehound_ingest::{OpenOptions, Recording, WINDOW_NS};
use tracehound_query::info;
use tracehound_recordings::Writer;

use crate::program;
use crate::script::ID;

/// A record: thread, kind, tick, address.
type Made = (u32, Kind, u64, u64);

/// Every thread has a node of its own for allocs, and one for frees.
fn node(thread: u32, kind: Kind) -> u32 {
    thread * 2 + u32::from(kind.is_free() || kind.is_realloc_from())
}

fn open(made: &[Made]) -> (std::sync::Arc<Trace>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::new(Vec::new(), ID).unwrap();
    writer.start(0).unwrap();
    let nodes: Vec<Node> = (1..20).map(|n| Node { parent: 0, pc: 0x1000 + n * 16, generation: 0 }).collect();
    writer.nodes(&nodes).unwrap();
    let mut threads: BTreeMap<u32, RecordColumns> = BTreeMap::new();
    for &(thread, kind, tick, address) in made {
        let size = if kind.is_free() || kind.is_realloc_from() { 0 } else { 10 };
        threads.entry(thread).or_default().push(Record::new(kind, tick, address, node(thread, kind), size));
    }
    threads.iter().for_each(|(&thread, columns)| writer.events(thread, columns).unwrap());
    writer.end(EndReason::Exit, 1_000_000_000).unwrap();
    let path = program::store(folder.path(), &writer.into_inner().unwrap());
    (Recording::open(&path, OpenOptions::default()).unwrap().trace(), folder)
}

/// What happened: `+` or `-`, thread and address, in the order of events; a free of no block is a `?`.
fn reported(trace: &Trace) -> String {
    let mut words = Vec::new();
    let mut last = 0;
    for event in trace.events(trace.everything()) {
        let (sign, address, free) = match event.what {
            What::Alloc { address, .. } => ("+", address, false),
            What::Free { address, row: Some(_), .. } => ("-", address, true),
            What::Free { address, row: None, .. } => ("?", address, true),
            What::Realloc { address, .. } => ("~", address, false),
            What::Overwritten { address, .. } => ("!", address, true),
            _ => continue,
        };
        assert!(event.t_ns >= last);
        last = event.t_ns;
        if sign != "!" && sign != "~" {
            assert_eq!(event.node, event.thread * 2 + u32::from(free), "the stack is that of the thread and the call");
        }
        words.push(format!("{sign}{}:{address}", event.thread));
    }
    words.join(" ")
}

/// The events as reported, repairs, unmatched frees.
fn made(made: &[Made]) -> (String, u64, u64) {
    let (trace, _folder) = open(made);
    let info = info::run(&trace);
    (reported(&trace), info.recorder.order_repairs, info.recorder.unmatched_frees)
}

use Kind::{CaptureStart, CaptureStop, Free, Malloc, PoolAlloc, PoolFree, ReallocFrom, ReallocTo};

#[test]
fn a_free_before_the_alloc_of_its_block_waits_for_it() {
    let got = made(&[(1, Malloc, 100, 7), (2, Free, 95, 7), (2, Malloc, 300, 8)]);
    assert_eq!(got, ("+1:7 -2:7 +2:8".into(), 1, 0));
    // Its thread's own order stays: what it did behind the free comes behind it still.
    let got = made(&[(1, Malloc, 10, 9), (1, Malloc, 100, 7), (2, Free, 95, 7), (2, Free, 97, 9), (1, Malloc, 101, 5)]);
    assert_eq!(got, ("+1:9 +1:7 -2:7 -2:9 +1:5".into(), 1, 0));
    let (trace, _folder) = open(&[(1, Malloc, 100, 7), (2, Free, 95, 7)]);
    assert_eq!(trace.alloc(0).free.map(|free| free.died_ns), Some(100));
    assert!(info::run(&trace).complete);
}

#[test]
fn an_alloc_before_the_free_that_made_room_waits_for_it() {
    let got = made(&[(1, Malloc, 10, 7), (1, Free, 100, 7), (2, Malloc, 90, 7), (2, Free, 400, 7)]);
    assert_eq!(got, ("+1:7 -1:7 +2:7 -2:7".into(), 1, 0));
}

#[test]
fn equal_stamps_are_ordered_by_what_they_do() {
    // Threads with smaller numbers come first where nothing else says so.
    let got = made(&[(2, Malloc, 100, 7), (1, Free, 100, 7)]);
    assert_eq!(got, ("+2:7 -1:7".into(), 0, 0));
    let got = made(&[(2, Malloc, 10, 7), (2, Free, 100, 7), (1, Malloc, 100, 7)]);
    assert_eq!(got, ("+2:7 -2:7 +1:7".into(), 0, 0));
    // A whole chain within one tick.
    let got = made(&[(3, Malloc, 100, 7), (2, Free, 100, 7), (2, Malloc, 100, 7), (1, Free, 100, 7)]);
    assert_eq!(got, ("+3:7 -2:7 +2:7 -1:7".into(), 0, 0));
    // The thread with the smallest number can only be the last one.
    let got = made(&[(1, Malloc, 100, 7), (2, Malloc, 100, 7), (2, Free, 100, 7)]);
    assert_eq!(got, ("+2:7 -2:7 +1:7".into(), 0, 0));
}

#[test]
fn chains_of_hand_overs_are_put_right_one_by_one() {
    let got = made(&[
        (1, Malloc, 100, 7),
        (2, Free, 96, 7),
        (2, Malloc, 110, 7),
        (3, Free, 105, 7),
        (3, Malloc, 120, 7),
        (1, Free, 118, 7),
    ]);
    assert_eq!(got, ("+1:7 -2:7 +2:7 -3:7 +3:7 -1:7".into(), 3, 0));
}

/// One CPU's counter is behind the other's by a step, and a block goes back and forth within it.
#[test]
fn counters_that_differ_by_a_step_change_nothing() {
    const HAND_OVERS: u64 = 200;
    for behind in [1, 2] {
        let (mut events, mut truth) = (Vec::new(), Vec::new());
        for hand_over in 0..HAND_OVERS {
            let thread = 1 + (hand_over % 2) as u32;
            let late = if thread == 2 { behind } else { 0 };
            // The one allocates as soon as the other has freed; between the two, a thread is at work.
            let from = 100 + hand_over * 5;
            events.extend([(thread, Malloc, from - late, 7), (thread, Free, from + 4 - late, 7)]);
            truth.push(format!("+{thread}:7 -{thread}:7"));
        }
        let (reported, repairs, unmatched) = made(&events);
        assert_eq!(reported, truth.join(" "));
        assert_eq!((repairs > 0, unmatched), (behind > 1, 0));
    }
}

/// The free comes before that of the block's life before as well.
#[test]
fn a_free_that_took_an_older_block_gives_it_back() {
    let got =
        made(&[(3, Malloc, 10, 7), (1, Free, 100, 7), (1, Malloc, 105, 7), (2, Free, 95, 7), (2, Malloc, 106, 7)]);
    assert_eq!(got, ("+3:7 -1:7 +1:7 -2:7 +2:7".into(), 1, 0));
}

#[test]
fn a_realloc_takes_part() {
    let got = made(&[(1, Malloc, 100, 7), (2, ReallocFrom, 90, 7), (2, ReallocTo, 150, 8), (1, Free, 149, 8)]);
    assert_eq!(got, ("+1:7 ~2:8 -1:8".into(), 2, 0));
}

#[test]
fn a_pool_s_block_is_another_one() {
    let got = made(&[(1, Malloc, 50, 7), (1, PoolAlloc, 100, 7), (2, PoolFree, 95, 7), (2, Free, 200, 7)]);
    assert_eq!(got, ("+1:7 +1:7 -2:7 -2:7".into(), 1, 0));
}

#[test]
fn far_ones_are_no_hand_over() {
    let far = 100 + WINDOW_NS + 1;
    let got = made(&[(1, Malloc, far, 7), (2, Free, 100, 7)]);
    assert_eq!(got, ("?2:7 +1:7".into(), 0, 1));
    // Nor is what a thread does itself.
    let got = made(&[(1, Free, 100, 7), (1, Malloc, 101, 7)]);
    assert_eq!(got, ("?1:7 +1:7".into(), 0, 1));
}

#[test]
fn where_something_is_missing_only_a_contradiction_is_put_right() {
    // The freed block may have been allocated while recording was off.
    let off = [(1, CaptureStop, 10, 0), (1, CaptureStart, 20, 0)];
    let with = |events: &[Made]| [&off[..], events].concat();
    let got = made(&with(&[(2, Free, 100, 7), (3, Malloc, 105, 7), (3, Free, 110, 7)]));
    assert_eq!(got, ("?2:7 +3:7 -3:7".into(), 0, 1));
    let got = made(&with(&[(2, Free, 100, 7), (3, Malloc, 105, 7), (4, Malloc, 110, 7)]));
    assert_eq!(got, ("+3:7 -2:7 +4:7".into(), 1, 0));
}

#[test]
fn hostile_circles_come_to_an_end() {
    // Each of two threads frees what the other allocates later.
    let got = made(&[(1, Free, 100, 7), (1, Malloc, 101, 8), (2, Free, 100, 8), (2, Malloc, 101, 7)]);
    assert_eq!(got.0.split(' ').count(), 4);
    let many: Vec<Made> = (0..500)
        .flat_map(|i| [(1, Free, 100 + i, i % 5), (2, Malloc, 100 + i, i % 5), (3, Malloc, 100 + i, i % 5)])
        .collect();
    let (trace, _folder) = open(&many);
    assert_eq!(trace.alloc_count(), 1000);
}
