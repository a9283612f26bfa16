//! Tests with numbers of allocations and frees that 32 bits do not hold. The columns begin with holes where the earlier
//! rows would be: they take no room on the disk, and nothing reads them.

use std::collections::HashMap;
use std::path::Path;

use super::*;
use crate::free_ledgers::FreeLedgers;
use crate::intake::Intake;
use crate::merge::Merger;
use crate::scan::Scan;
use crate::seal::Sealer;
use crate::sizes::SizeCodes;
use crate::snapshot::{IndexEnding, NodeStore, facts};
use tracehound_index::files::Ledgers;
use tracehound_index::schema::{Columns, Writers};
use tracehound_index::symbols::Addresses;
use tracehound_index::{Cancel, Parts, Position, Span, Tail, Trace};
use tracehound_query::allocations::{self, AllocationSort};
use tracehound_query::filter::{Filter, LifetimeKind};
use tracehound_query::scan::{Also, Picker};
use tracehound_query::{TimeExpr, Window};

/// Behind so many allocations and frees the events begin.
type Before = (u64, u64);

/// An engine and a sealer that go on behind rows that nobody has written.
fn parts(folder: &Path, (allocs, frees): Before) -> (PairingEngine, Sealer) {
    let fine = Granularity { page_events: 7, chunk_events: 20, zone_rows: 1 << 16, ..Granularity::default() };
    let live = LiveMap::new(folder.into(), u64::MAX).unwrap();
    let mut engine = PairingEngine::new(live, ClockMap::new(0, 0), fine);
    engine.totals.allocs = allocs;
    engine.totals.frees = frees;
    engine.totals.bucket_start = (allocs, frees);
    engine.start_chunk();

    let mut writers = Writers::create(folder).unwrap();
    let hole = |writer: &mut tracehound_index::column::ColumnWriter<u32>, len: u64| match len {
        0 => {}
        _ => writer.write_at(len - 1, &[0]).unwrap(),
    };
    hole(&mut writers.alloc_time, allocs);
    hole(&mut writers.alloc_origin, allocs);
    hole(&mut writers.alloc_address, allocs);
    hole(&mut writers.free_time, frees);
    hole(&mut writers.free_origin, frees);
    hole(&mut writers.free_row, frees);
    for (writer, len) in
        [(&mut writers.alloc_size, allocs), (&mut writers.alloc_address_high, allocs), (&mut writers.free_size, frees)]
    {
        if len > 0 {
            writer.write_at(len - 1, &[0]).unwrap();
        }
    }
    let mut ledgers = FreeLedgers::create(folder, fine).unwrap();
    ledgers.free.begin_at(allocs).unwrap();
    ledgers.lifetime_class.begin_at(allocs).unwrap();
    let mut sealer = Sealer::new(writers, ledgers, SizeCodes::new(fine.table_sizes, &[]));
    sealer.reopen_bucket(allocs, frees);
    (engine, sealer)
}

fn trace_of(folder: &Path, engine: &PairingEngine, mut sealer: Sealer) -> Trace {
    sealer.append_new_pairs().unwrap();
    let totals = &engine.totals;
    let (scan, intake, merger) = (Scan::default(), Intake::default(), Merger::default());
    let nodes = NodeStore::default();
    let facts = facts([0; 16], 0, &scan, &intake, engine, &merger, &sealer, None, None, &nodes, IndexEnding::default());
    let (allocs, frees, tail) = (
        totals.allocs,
        totals.frees,
        Tail { page: totals.page, order_word: totals.order_word, occupied: totals.occupied.parts() },
    );
    sealer.writers.finish().unwrap();
    sealer.ledgers.finish(allocs, frees, facts.lengths.far > 0).unwrap();
    let (columns, ledgers) = (Columns::open(folder, &facts.lengths).unwrap(), Ledgers::open(folder, &facts).unwrap());
    let path = folder.to_path_buf();
    Trace::assemble(Parts { folder: path.clone(), path, facts, columns, ledgers, tail, revision: 0, keep: None })
}

/// Address, size, allocated, freed and the row that realloc made it from, of a block; all of them come in the order of
/// allocations.
type Made = (u64, u64, u64, Option<u64>, Option<u64>);

type Truth = Vec<Made>;

/// Two hundred blocks come, half of them go, and some are moved.
fn run(engine: &mut PairingEngine, sealer: &mut Sealer, first_row: u64) -> Truth {
    let thread = engine.thread(1);
    let mut truth = Truth::new();
    let mut live: HashMap<u64, usize> = HashMap::new();
    let mut events = Vec::new();
    for i in 0..200_u64 {
        let tick = 10 + i * 10;
        let mut push = |kind: Kind, address: u64, size: u32, origin: u32| {
            events.push(MergedEvent { tick, address, size, origin, thread, kind: kind as u8 });
        };
        let address = 0x1000 + i * 64;
        let [allocated, freed] = [Kind::Malloc, Kind::Free].map(|kind| engine.origin(1, thread, kind as u8));
        let [from, to] = [Kind::ReallocFrom, Kind::ReallocTo].map(|kind| engine.origin(2, thread, kind as u8));
        push(Kind::Malloc, address, i as u32, allocated);
        live.insert(address, truth.len());
        truth.push((address, i, tick, None, None));
        if i % 2 == 1 {
            // The one of some rounds ago.
            let old = 0x1000 + (i / 2) * 64;
            if let Some(index) = live.remove(&old) {
                truth[index].3 = Some(tick);
                if i % 3 == 0 {
                    let new = old + 0x100_0000;
                    push(Kind::ReallocFrom, old, 0, from);
                    push(Kind::ReallocTo, new, 7, to);
                    truth.push((new, 7, tick, None, Some(first_row + index as u64)));
                } else {
                    push(Kind::Free, old, 0, freed);
                }
            }
        }
    }
    let mut hand_over = |chunk: EventBatch| {
        sealer.take(&chunk).unwrap();
        Ok(EventBatch::default())
    };
    engine.take(&mut events, None, &mut hand_over).unwrap();
    engine.flush(&mut hand_over).unwrap();
    truth
}

fn check(before: Before) {
    let folder = tempfile::tempdir().unwrap();
    let (mut engine, mut sealer) = parts(folder.path(), before);
    let truth = run(&mut engine, &mut sealer, before.0);
    let trace = trace_of(folder.path(), &engine, sealer);
    let symbols = Addresses::new(&trace);
    let begin = Position { allocs: before.0, frees: before.1 };
    let span = Span { from: begin, to: trace.end_position() };
    let freed = truth.iter().filter(|block| block.3.is_some()).count() as u64;
    assert_eq!((trace.alloc_count(), trace.free_count()), (before.0 + truth.len() as u64, before.1 + freed));

    for (row, block) in (before.0..).zip(&truth) {
        let alloc = trace.alloc(row);
        let got = (alloc.address, alloc.size, alloc.born_ns, alloc.free.map(|free| free.died_ns), alloc.previous);
        assert_eq!((alloc.row, got), (row, *block));
        if let Some(free) = alloc.free {
            assert!(free.ordinal >= before.1);
            assert_eq!(trace.row_of_free(free.ordinal), row);
        }
        if let Some(previous) = alloc.previous {
            assert_eq!(trace.alloc(previous).next, Some(row));
        }
    }
    let blocks: Truth =
        trace.blocks(span).map(|b| (b.address, b.size, b.born_ns, b.free.map(|free| free.0), b.previous)).collect();
    assert_eq!(blocks, truth);
    let steps: Vec<u64> = trace.steps(span).filter(|step| step.allocated).map(|step| step.row).collect();
    assert_eq!(steps, (before.0..trace.alloc_count()).collect::<Vec<_>>());
    assert_eq!(
        trace.events(span).count(),
        truth.len() + freed as usize - truth.iter().filter(|b| b.4.is_some()).count()
    );

    // Conditions, by columns and by zones: the place in the middle of the events.
    let middle = trace.position_before(1000);
    let pick = |filter: &Filter, also: Also| -> Vec<u64> {
        let selection = filter.select(&trace, &symbols, &Cancel::new()).unwrap();
        let test = selection.rows(&trace);
        let mut picker = Picker::new(&test, also);
        picker.pick(before.0, trace.alloc_count()).iter().map(|&at| before.0 + u64::from(at)).collect()
    };
    let those = |passes: &dyn Fn(&Made) -> bool| -> Vec<u64> {
        (before.0..).zip(&truth).filter(|(_, block)| passes(block)).map(|(row, _)| row).collect()
    };
    let all = Filter::default();
    assert_eq!(pick(&all, Also::LiveAt(middle.frees)), those(&|b| b.3.is_none_or(|freed| freed >= 1000)));
    assert_eq!(pick(&all, Also::Freed(before.1..middle.frees)), those(&|b| b.3.is_some_and(|freed| freed < 1000)));
    let old = Filter { min_lifetime: Some(300), lifetime: Some(LifetimeKind::Freed), ..Filter::default() };
    assert_eq!(pick(&old, Also::Nothing), those(&|b| b.3.is_some_and(|freed| freed - b.2 >= 300)));

    // A question as it comes from outside, of all blocks but the first.
    let params = allocations::AllocationsParams {
        window: Window { from: Some(TimeExpr::Ns(11)), ..Window::default() },
        sort: AllocationSort::Size.into(),
        descending: true,
        limit: 3,
        ..allocations::AllocationsParams::default()
    };
    let got = allocations::run(&trace, &symbols, &params, &Cancel::new()).unwrap();
    assert_eq!((got.total, got.allocations[0].size), (truth.len() as u64 - 1, 199));
    let index = truth.iter().position(|block| block.1 == 199).unwrap() as u64;
    assert_eq!(got.allocations[0].index, before.0 + index);
    let peak = trace.facts().peak;
    assert!(peak.events > before.0 + before.1 && peak.events <= trace.end_position().events());
}

#[test]
fn allocs_and_frees_pass_the_thirty_second_bit() {
    check(((1 << 32) - 50, (1 << 32) - 70));
}

#[test]
fn allocs_far_ahead_of_frees() {
    check(((1 << 32) + (1 << 31), 0));
}

#[test]
fn allocs_and_frees_pass_the_thirty_third_bit() {
    check(((2 << 32) - 3, (2 << 32) - 20));
}

#[test]
fn blocks_from_before_are_counted_apart_and_their_ends_are_known() {
    let folder = tempfile::tempdir().unwrap();
    let (mut engine, mut sealer) = parts(folder.path(), (0, 0));
    let (outside, thread) = (engine.thread(0), engine.thread(1));
    let origins: HashMap<u8, u32> =
        (0..64).map(|kind| (kind, engine.origin(1, if kind == 38 { outside } else { thread }, kind))).collect();
    let mut events = Vec::new();
    let mut push = |tick: u64, kind: Kind, address: u64, size: u32| {
        let thread = if kind == Kind::ExistingBlock { outside } else { thread };
        events.push(MergedEvent { tick, address, size, origin: origins[&(kind as u8)], thread, kind: kind as u8 });
    };
    for (address, size) in [(0x100, 24), (0x200, 40), (0x300, 56), (0x400, 72), (0x400, 72)] {
        push(10, Kind::ExistingBlock, address, size);
    }
    push(20, Kind::Free, 0x100, 0);
    push(30, Kind::ReallocFrom, 0x200, 0);
    push(30, Kind::ReallocTo, 0x900, 100);
    // Its end was not seen; and what nobody knows.
    push(40, Kind::Malloc, 0x300, 8);
    push(50, Kind::Free, 0x300, 0);
    push(60, Kind::Free, 0x100, 0);
    let mut hand_over = |chunk: EventBatch| {
        sealer.take(&chunk).unwrap();
        Ok(EventBatch::default())
    };
    engine.take(&mut events, None, &mut hand_over).unwrap();
    engine.flush(&mut hand_over).unwrap();
    let counts = engine.totals.counts;
    let existing = counts.existing;
    assert_eq!((existing.count, existing.bytes), (4, 192));
    assert_eq!((existing.freed_count, existing.freed_bytes), (3, 120));
    assert_eq!((counts.unmatched, counts.overwritten, counts.alloc, counts.free, counts.realloc), (1, 0, 1, 3, 1));
    assert_eq!((engine.totals.allocs, engine.totals.live), (2, 100));
    let trace = trace_of(folder.path(), &engine, sealer);
    assert_eq!(trace.existing_blocks(trace.end_position()), [(0x400, 72)]);
    let mut again = ExistingBlocks::default();
    again.restore(trace.columns());
    assert!(again.holds(0x400) && [0x100, 0x200, 0x300].iter().all(|&address| !again.holds(address)));
}
