//! Blocks that a forked process has inherited, in made-up families: against brute force, and with parents that are
//! damaged, lie or are no files at all.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use tracehound_format::columns::RecordColumns;
use tracehound_format::meta::{Clock, ClockSample, ClockSource, EndReason, ForkedFrom, Meta, Process};
use tracehound_format::nodes::Node;
use tracehound_format::record::{Kind, Record};
use tracehound_index::Trace;
use tracehound_ingest::{OpenOptions, Recording};
use tracehound_query::info;
use tracehound_recordings::Writer;

const PARENT: [u8; 16] = [1; 16];
const CHILD: [u8; 16] = [2; 16];
const START: u64 = 1_000_000;

fn process(started_tick: u64, forked_from: Option<[u8; 16]>) -> Meta {
    Meta::Process(Process {
        pid: 10,
        parent_pid: 1,
        executable: b"/bin/p".to_vec(),
        arguments: Vec::new(),
        directory: b"/".to_vec(),
        started_unix_ns: 0,
        started_tick,
        page_bytes: 4096,
        recorder: String::new(),
        options: Vec::new(),
        forked_from,
    })
}

/// About 162.5 MHz, as the time stamp counter of many a machine has it.
fn clock() -> Meta {
    Meta::Clock(Clock { source: ClockSource::Tsc, shift: 4, millihertz: 162_500_000_000, note: String::new() })
}

fn node(parent: u32, pc: u64) -> Node {
    Node { parent, pc, generation: 0 }
}

/// Nodes 1 to 4, that both recordings have, and then those of one of them.
fn tree(own: u64) -> Vec<Node> {
    let shared = [node(0, 0x1000), node(1, 0x1010), node(1, 0x1020), node(3, 0x1030)];
    shared.into_iter().chain([node(2, own), node(5, own + 0x10)]).collect()
}

/// An event of the parent's: tick, thread, and what.
#[derive(Debug, Clone, Copy)]
enum What {
    Alloc { address: u64, size: u64, node: u32 },
    Free { address: u64 },
    Move { from: u64, to: u64, size: u64, node: u32 },
}

/// Turns random numbers into events that a process could have made.
fn script(numbers: &[(u8, u8, u16, u8)]) -> Vec<(u64, u32, What)> {
    let (mut live, mut tick, mut next) = (Vec::new(), START + 10, 0x10_0000_u64);
    let mut events = Vec::new();
    for &(kind, step, size, pick) in numbers {
        tick += u64::from(step) % 7 + 1;
        let (thread, node) = (u32::from(pick % 3) + 1, u32::from(pick % 7));
        let size = if size % 50 == 0 { (1 << 32) + u64::from(size) } else { u64::from(size) };
        let victim = (!live.is_empty()).then(|| usize::from(pick) % live.len());
        match (kind % 5, victim) {
            (0 | 1, Some(at)) => events.push((tick, thread, What::Free { address: live.swap_remove(at) })),
            (2, Some(at)) => {
                let from = std::mem::replace(&mut live[at], next);
                events.push((tick, thread, What::Move { from, to: next, size, node }));
                next += 16;
            }
            _ => {
                live.push(next);
                events.push((tick, thread, What::Alloc { address: next, size, node }));
                next += 16;
            }
        }
    }
    events
}

/// Blocks that are alive when `tick` is over, by address: size and node.
fn alive(events: &[(u64, u32, What)], tick: u64) -> BTreeMap<u64, (u64, u32)> {
    let mut live = BTreeMap::new();
    for &(_, _, what) in events.iter().take_while(|(at, ..)| *at <= tick) {
        match what {
            What::Alloc { address, size, node } => drop(live.insert(address, (size, node))),
            What::Free { address } => drop(live.remove(&address)),
            What::Move { from, to, size, node } => {
                live.remove(&from);
                live.insert(to, (size, node));
            }
        }
    }
    live
}

fn push(columns: &mut RecordColumns, kind: Kind, tick: u64, address: u64, node: u32, size: u64) {
    if size >> 32 != 0 {
        columns.push(Record::new(Kind::SizeHigh, tick, size >> 32, 0, 0));
    }
    columns.push(Record::new(kind, tick, address, node, size as u32));
}

fn write_parent(path: &Path, events: &[(u64, u32, What)], jitter: &[u8]) {
    let mut writer = Writer::new(Vec::new(), PARENT).unwrap();
    writer.meta(&[process(START, None), clock()]).unwrap();
    writer.nodes(&tree(0x2000)).unwrap();
    for thread in 1..=3 {
        let mut columns = RecordColumns::default();
        for &(tick, _, what) in events.iter().filter(|(_, by, _)| *by == thread) {
            match what {
                What::Alloc { address, size, node } => push(&mut columns, Kind::Malloc, tick, address, node, size),
                What::Free { address } => push(&mut columns, Kind::Free, tick, address, 1, 0),
                What::Move { from, to, size, node } => {
                    push(&mut columns, Kind::ReallocFrom, tick, from, node, 0);
                    push(&mut columns, Kind::ReallocTo, tick, to, node, size);
                }
            }
        }
        writer.events(thread, &columns).unwrap();
    }
    // A clock that is not quite steady: the line from ticks to nanoseconds has bends.
    let (mut tick, mut monotonic_ns) = (START, 5_000_000);
    for &step in jitter {
        writer.meta(&[Meta::ClockSample(ClockSample { tick, monotonic_ns, realtime_ns: 0 })]).unwrap();
        tick += 1 + u64::from(step) * 3;
        monotonic_ns += 7 + u64::from(step) * 18 + u64::from(step % 5);
    }
    let last = events.last().map_or(START, |event| event.0);
    writer.end(EndReason::Exit, last + 1_000).unwrap();
    fs::write(path, writer.into_inner().unwrap()).unwrap();
}

fn write_child(path: &Path, id: [u8; 16], fork: ForkedFrom, columns: &RecordColumns) {
    let mut writer = Writer::new(Vec::new(), id).unwrap();
    writer.meta(&[process(fork.tick + 500, Some(fork.recording_id)), Meta::ForkedFrom(fork), clock()]).unwrap();
    writer.nodes(&tree(0x3000)).unwrap();
    writer.events(1, columns).unwrap();
    writer.end(EndReason::Exit, u64::MAX >> 8).unwrap();
    fs::write(path, writer.into_inner().unwrap()).unwrap();
}

fn fork(parent: &Path, tick: u64, nodes: u32) -> ForkedFrom {
    let path = parent.as_os_str().as_bytes().to_vec();
    ForkedFrom { recording_id: PARENT, path, tick, nodes, recording: true }
}

fn open(path: &Path) -> Arc<Trace> {
    Recording::open(path, OpenOptions::default()).unwrap().trace()
}

/// Allocations of kind *inherited*: size and node by address.
fn inherited(trace: &Trace) -> BTreeMap<u64, (u64, u32)> {
    let allocs = (0..trace.alloc_count()).map(|row| trace.alloc(row));
    let inherited = allocs.filter(|alloc| alloc.kind == Kind::Inherited as u8);
    inherited.map(|alloc| (alloc.address, (alloc.size, alloc.node))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn what_was_alive_at_the_tick_is_inherited(
        numbers in prop::collection::vec(any::<(u8, u8, u16, u8)>(), 1..300),
        jitter in prop::collection::vec(any::<u8>(), 0..40),
        at in any::<prop::sample::Index>(), off in 0_u64..3, frees in any::<u64>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let (parent, child) = (folder.path().join("parent.dat"), folder.path().join("child.dat"));
        let events = script(&numbers);
        write_parent(&parent, &events, &jitter);
        // Before an event, with it, and after it.
        let tick = events[at.index(events.len())].0 + off - 1;
        let truth = alive(&events, tick);
        let mut columns = RecordColumns::default();
        let freed: Vec<u64> = truth.keys().copied().enumerate().filter(|(i, _)| frees >> (i % 64) & 1 == 1).map(|(_, a)| a).collect();
        for (i, &address) in freed.iter().enumerate() {
            push(&mut columns, Kind::Free, tick + 600 + i as u64, address, 5, 0);
        }
        // Of six nodes only four are the same in both trees.
        write_child(&child, CHILD, fork(&parent, tick, 5), &columns);
        let trace = open(&child);
        let got = inherited(&trace);
        prop_assert_eq!(got.keys().collect::<Vec<_>>(), truth.keys().collect::<Vec<_>>());
        for (address, &(size, node)) in &truth {
            let expected = match node { 5 | 6 => 2, other => other };
            prop_assert_eq!(got[address], (size, expected), "at {:#x}", address);
        }
        let info = info::run(&trace);
        prop_assert_eq!(info.recorder.unmatched_frees, 0);
        prop_assert_eq!(info.leaked.count as usize, truth.len() - freed.len());
        prop_assert!(info.complete);
        prop_assert_eq!(info.temporary.count, 0, "nothing here was made by the child");
        // The same from the index that lies there now.
        prop_assert_eq!(inherited(&open(&child)), got);
    }
}

fn remark(trace: &Trace) -> String {
    let info = info::run(trace);
    assert!(!info.complete);
    info.remarks.iter().find(|remark| remark.topic == "inherited").unwrap().text.clone()
}

#[test]
fn parents_that_are_none() {
    let folder = tempfile::tempdir().unwrap();
    let child = folder.path().join("child.dat");
    let none = RecordColumns::default();
    // Its own parent.
    write_child(&child, PARENT, fork(&child, START, 1), &none);
    assert!(remark(&open(&child)).contains("cannot be an ancestor's"));
    // A circle of two.
    let other = folder.path().join("other.dat");
    write_child(&child, CHILD, fork(&other, START, 1), &none);
    write_child(&other, PARENT, ForkedFrom { recording_id: CHILD, ..fork(&child, START, 1) }, &none);
    assert!(remark(&open(&child)).contains("cannot be an ancestor's"));
    fs::remove_file(&other).unwrap();
    // A pipe that nobody writes to, a folder, a device, a file that is no recording, another recording.
    let pipe = folder.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    let text = folder.path().join("text");
    fs::write(&text, [7; 500]).unwrap();
    for path in [&pipe, folder.path(), Path::new("/dev/zero"), &text, &child, Path::new("")] {
        write_child(&child, CHILD, fork(path, START, 1), &none);
        assert!(remark(&open(&child)).contains("is not there"), "{}", path.display());
    }
}

#[test]
fn a_damaged_parent_is_said_to_be_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let (parent, child) = (folder.path().join("parent.dat"), folder.path().join("child.dat"));
    let numbers: Vec<_> = (0..3000_u32).map(|i| (i as u8, 3, (i % 40) as u16 + 1, (i * 7) as u8)).collect();
    let events = script(&numbers);
    write_parent(&parent, &events, &[]);
    let whole = fs::read(&parent).unwrap();
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0xff;
    fs::write(&parent, &damaged).unwrap();
    let tick = events[2500].0;
    write_child(&child, CHILD, fork(&parent, tick, 5), &RecordColumns::default());
    assert!(remark(&open(&child)).contains("is damaged or lacks events"));
    // Mended: the child's index notices.
    fs::write(&parent, &whole).unwrap();
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
    fs::File::options().append(true).open(&parent).unwrap().set_modified(later).unwrap();
    let trace = open(&child);
    assert_eq!(inherited(&trace).len(), alive(&events, tick).len());
    assert!(info::run(&trace).complete);
    // Cut off: so is what the child knows.
    fs::remove_dir_all(folder.path().join("child.dat.idx")).unwrap();
    fs::write(&parent, &whole[..middle]).unwrap();
    assert!(remark(&open(&child)).contains("is damaged or lacks events"));
}

#[test]
fn a_recording_that_holds_its_inherited_blocks_itself_is_read_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old.dat");
    let mut writer = Writer::new(Vec::new(), CHILD).unwrap();
    writer.meta(&[process(START, Some(PARENT)), clock()]).unwrap();
    writer.nodes(&tree(0x3000)).unwrap();
    let mut columns = RecordColumns::default();
    push(&mut columns, Kind::Inherited, START + 1, 0x100, 2, 40);
    push(&mut columns, Kind::Inherited, START + 2, 0x200, 3, 50);
    push(&mut columns, Kind::Free, START + 3, 0x100, 1, 0);
    writer.events(1, &columns).unwrap();
    writer.end(EndReason::Exit, START + 9).unwrap();
    fs::write(&path, writer.into_inner().unwrap()).unwrap();
    let info = info::run(&open(&path));
    assert_eq!((info.leaked.count, info.leaked.bytes, info.recorder.unmatched_frees), (1, 50, 0));
    assert!(info.complete, "{:?}", info.remarks);
}
