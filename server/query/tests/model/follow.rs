//! Growing recordings: what has been seen up to the watermark is the truth up to there; a second run goes on.

use std::fs::OpenOptions as FileOptions;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use tracehound_api::Metric;
use tracehound_api::info::End;
use tracehound_format::meta::{Meta, Watermark};
use tracehound_format::nodes::Node;
use tracehound_format::record::{Kind, Record};
use tracehound_index::{Cancel, Trace};
use tracehound_ingest::WINDOW_NS;
use tracehound_ingest::checkpoint::OnSaved;
use tracehound_ingest::liveness::start_time;
use tracehound_ingest::side_file::path_of;
use tracehound_ingest::{OnProgress, OpenOptions, Recording};
use tracehound_query::{Window, info, node_sums};
use tracehound_recordings::{LiveChunk, Writer, side_file};

use crate::ask::{asks, fine, options};
use crate::check::{blocks_agree, events_agree, facts_agree, queries_agree, zones_agree};
use crate::program;
use crate::reference::{Keep, Reference};
use crate::script;
use crate::symbols::Names;

/// A side file that says that this very process is being traced.
fn running(path: &std::path::Path) {
    let pid = std::process::id();
    let bytes = side_file(script::ID, pid, start_time(pid).unwrap(), &[], &[]);
    std::fs::write(path_of(path), bytes).unwrap();
}

/// What is less than the window of hand-overs before the watermark waits for what comes behind it.
fn live_agrees(trace: &Trace, truth: &Reference, watermark_ns: u64) {
    let watermark_ns = watermark_ns.saturating_sub(WINDOW_NS);
    assert_eq!(trace.watermark_ns(), watermark_ns);
    zones_agree(trace);
    let params = node_sums::NodeSumsParams { metric: Metric::Allocated, ..node_sums::NodeSumsParams::default() };
    let got = node_sums::run(trace, &Names, &params, &Cancel::new()).unwrap();
    let expected = truth.sums(Metric::Allocated, 0, watermark_ns, 0, &Keep::default());
    assert_eq!(
        got.nodes.iter().map(|n| (n.node, (n.sum.bytes, n.sum.count))).collect::<std::collections::BTreeMap<_, _>>(),
        expected
    );
    let at = truth.events_before(watermark_ns);
    let params = node_sums::NodeSumsParams {
        metric: Metric::Live,
        window: Window::default(),
        ..node_sums::NodeSumsParams::default()
    };
    let got = node_sums::run(trace, &Names, &params, &Cancel::new()).unwrap();
    let expected = truth.sums(Metric::Live, 0, 0, at, &Keep::default());
    assert_eq!(
        got.nodes.iter().map(|n| (n.node, (n.sum.bytes, n.sum.count))).collect::<std::collections::BTreeMap<_, _>>(),
        expected
    );
    let peak = truth.peak(0, watermark_ns);
    let info = info::run(trace);
    assert_eq!((info.peak.bytes, info.peak.count), (peak.0, peak.1));
    assert_eq!(info.end, End::Running);
    assert!(!info.complete);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_growing_recording_is_followed(
        script in script::script(220), asked in asks(), fine in fine(), reopen in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let written = program::run(&script);
        let path = program::store(folder.path(), &written.bytes[..FileHeaderAnd::START.min(written.bytes.len())]);
        running(&path);
        let mut recording = Recording::open(&path, options(fine)).unwrap();
        let mut file = FileOptions::new().append(true).open(&path).unwrap();
        let mut at = FileHeaderAnd::START.min(written.bytes.len());
        let mut older = Vec::new();
        for &(len, watermark_ns) in &written.watermarks {
            if len <= at {
                continue;
            }
            // Half a block first: it must not disturb.
            let middle = (at + len) / 2;
            file.write_all(&written.bytes[at..middle]).unwrap();
            recording.refresh().unwrap();
            file.write_all(&written.bytes[middle..len]).unwrap();
            at = len;
            prop_assert!(recording.refresh().unwrap());
            live_agrees(&recording.trace(), &written.truth, watermark_ns);
            older.push((recording.trace(), watermark_ns));
            if reopen {
                // Another run takes up what this one left.
                older.clear();
                drop(recording);
                recording = Recording::open(&path, options(fine)).unwrap();
                live_agrees(&recording.trace(), &written.truth, watermark_ns);
            }
        }
        // Snapshots stay what they were while the index grows.
        for (trace, watermark_ns) in &older {
            live_agrees(trace, &written.truth, *watermark_ns);
        }
        file.write_all(&written.bytes[at..]).unwrap();
        recording.refresh().unwrap();
        prop_assert!(!recording.is_running());
        std::fs::remove_file(path_of(&path)).unwrap();
        let trace = recording.trace();
        facts_agree(&trace, &written.truth);
        for raw in &asked {
            if let Some(ask) = crate::ask::Ask::new(&written.truth, raw) {
                queries_agree(&trace, &written.truth, &ask);
            }
        }
    }
}

/// A free that was stamped before the alloc of its block, and the end of what is known between the two stamps: neither
/// is reported before both are known.
#[test]
fn a_hand_over_across_the_end_of_what_is_known_is_reported_later() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::new(Vec::new(), script::ID).unwrap();
    writer.start(0).unwrap();
    writer.nodes(&[Node { parent: 0, pc: 0x1010, generation: 0 }]).unwrap();
    let (early, late) = (WINDOW_NS - 5, WINDOW_NS + 5);
    for (thread, kind, tick) in [(1, Kind::Malloc, late), (2, Kind::Free, early)] {
        let mut columns = tracehound_format::columns::RecordColumns::default();
        columns.push(Record::new(kind, tick, 0x7000, 1, 10));
        writer.events(thread, &columns).unwrap();
    }
    writer.meta(&[Meta::Watermark(Watermark { tick: 2 * WINDOW_NS })]).unwrap();
    let known = writer.bytes() as usize;
    writer.meta(&[Meta::Watermark(Watermark { tick: 4 * WINDOW_NS })]).unwrap();
    let bytes = writer.into_inner().unwrap();
    let path = program::store(folder.path(), &bytes[..known]);
    running(&path);
    let mut recording = Recording::open(&path, options((4, 8, 8))).unwrap();
    let counts = |trace: &Trace| (trace.alloc_count(), trace.free_count(), info::run(trace).recorder.unmatched_frees);
    assert_eq!(recording.trace().watermark_ns(), WINDOW_NS);
    assert_eq!(counts(&recording.trace()), (0, 0, 0));
    FileOptions::new().append(true).open(&path).unwrap().write_all(&bytes[known..]).unwrap();
    assert!(recording.refresh().unwrap());
    assert_eq!(counts(&recording.trace()), (1, 1, 0));
    assert_eq!(recording.trace().alloc(0).free.map(|free| free.died_ns), Some(late));
    assert_eq!(info::run(&recording.trace()).recorder.order_repairs, 1);
}

/// Copies the files of an index that `which` names.
fn copy_index(from: &Path, to: &Path, which: impl Fn(&str) -> bool) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let name = entry.unwrap().file_name();
        if which(name.to_str().unwrap()) {
            std::fs::copy(from.join(&name), to.join(&name)).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// A run that is killed leaves its last checkpoint and columns that reach beyond it.
    #[test]
    fn a_killed_ingest_is_gone_on_with(
        script in script::script(220), asked in asks(), fine in fine(), nth in 0_usize..9,
    ) {
        let (killed, next) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let written = program::run(&script);
        let path = program::store(killed.path(), &written.bytes);
        let index = next.path().join("memory-program-1.dat.idx");
        let (saves, left) = (AtomicUsize::new(0), index.clone());
        let saved = OnSaved(Arc::new(move |folder: &Path| {
            if saves.fetch_add(1, Ordering::Relaxed) == nth {
                copy_index(folder, &left, |name| name.ends_with(".json"));
            }
        }));
        let often = OpenOptions { save_every: Duration::ZERO, saved: Some(saved), ..options(fine) };
        drop(Recording::open(&path, often).unwrap());
        prop_assume!(index.exists());
        copy_index(&killed.path().join("memory-program-1.dat.idx"), &index, |name| name.ends_with(".arrow"));
        let resume: serde_json::Value = serde_json::from_slice(&std::fs::read(index.join("resume.json")).unwrap()).unwrap();
        let before = resume["totals"]["counts"]["total"].as_u64();
        let first = Arc::new(Mutex::new(None));
        let reported = Arc::clone(&first);
        let progress: OnProgress = Arc::new(move |p| { reported.lock().unwrap().get_or_insert(p.events); });
        let path = program::store(next.path(), &written.bytes);
        let trace = Recording::open(&path, OpenOptions { progress: Some(progress), ..options(fine) }).unwrap().trace();
        prop_assert_eq!(*first.lock().unwrap(), before, "it began anew");
        facts_agree(&trace, &written.truth);
        events_agree(&trace, &written.truth);
        blocks_agree(&trace, &written.truth);
        for raw in &asked {
            if let Some(ask) = crate::ask::Ask::new(&written.truth, raw) {
                queries_agree(&trace, &written.truth, &ask);
            }
        }
    }
}

struct FileHeaderAnd;

impl FileHeaderAnd {
    /// The header and the first block: what a recorder writes at once.
    const START: usize = 64;
}

#[test]
fn a_killed_process_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::new(Vec::new(), script::ID).unwrap();
    writer.start(0).unwrap();
    writer.nodes(&[Node { parent: 0, pc: 0x1010, generation: 0 }]).unwrap();
    let alloc = |tick: u64, slot: u64, node: u32| Record::new(Kind::Malloc, tick, 0x1000 + slot * 32, node, 10);
    let mut columns = tracehound_format::columns::RecordColumns::default();
    (0..5).for_each(|i| columns.push(alloc(100 + i, i, 1)));
    writer.events(1, &columns).unwrap();
    writer.meta(&[Meta::Watermark(Watermark { tick: 50 })]).unwrap();
    let path = program::store(folder.path(), &writer.into_inner().unwrap());
    // The chunk still holds two records that are in the recording, and three that are not; another thread's has two;
    // the node of the last ones was never written.
    let first: Vec<Record> = (3..8).map(|i| alloc(100 + i, i, 1)).collect();
    let second = vec![alloc(102, 20, 2), Record::new(Kind::Free, 106, 0x1000, 2, 0)];
    let chunks = [
        LiveChunk { thread: 1, first_record: 3, written: 1, records: first },
        LiveChunk { thread: 2, first_record: 0, written: 0, records: second },
    ];
    let node = Node { parent: 1, pc: 0x1030, generation: 0 };
    std::fs::write(path_of(&path), side_file(script::ID, 1, u64::MAX, &chunks, &[(2, node)])).unwrap();
    let trace = Recording::open(&path, options((4, 8, 8))).unwrap().trace();
    let info = info::run(&trace);
    assert_eq!(info.end, End::Killed);
    assert!(!info.complete);
    assert_eq!((info.events.alloc, info.events.free, info.events.lost), (9, 1, 0));
    assert_eq!(info.leaked.count, 8);
    assert_eq!(trace.node(2), Some(node));
    assert_eq!(trace.alloc(0).free.map(|d| (d.died_ns, d.node)), Some((106, 2)));
    // The index stays good when the side file is gone.
    std::fs::remove_file(path_of(&path)).unwrap();
    let again = Recording::open(&path, options((4, 8, 8))).unwrap().trace();
    assert_eq!(info::run(&again).end, End::Killed);
}
