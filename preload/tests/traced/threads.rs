//! Many threads: exact numbers, bounded memory.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tracehound_format::meta::Meta;
use tracehound_format::record::Kind;

use crate::run::{Run, unharmed};

fn check(run: &Run, threads: usize) {
    let recording = run.recording();
    let heap = recording.heap_without(Some(Kind::Calloc));
    assert_eq!(heap.allocs, (run.printed("allocs"), run.printed("bytes")));
    assert_eq!((heap.frees, heap.unmatched), (run.printed("frees"), 0));
    assert_eq!(recording.threads(), threads);
    let starts = recording.metas.iter().filter(|meta| matches!(meta, Meta::ThreadStart(_))).count();
    assert_eq!(starts, threads);
    let statistics = recording.end.expect("an end").statistics;
    assert_eq!(statistics.lost, 0);
    assert_eq!(statistics.records, (recording.events.len() + recording.existing.len()) as u64);
}

/// Tests with thousands of threads run one at a time: together they would measure each other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn forty_eight_threads_share_a_megabyte_of_chunks() {
    let run = unharmed("churn", &["48", "20000"], &[("TRACEHOUND_BUFFER", "1M")]);
    check(&run, 49);
    let end = run.recording().end.expect("an end");
    assert_eq!(end.statistics.chunk_bytes, 1 << 20);
    assert!(end.statistics.waits > 0);
}

#[test]
fn more_live_threads_than_chunks() {
    check(&unharmed("churn", &["300", "500"], &[("TRACEHOUND_BUFFER", "1M")]), 301);
}

#[test]
fn two_thousand_short_threads() {
    let _one_at_a_time = alone();
    check(&unharmed("churn", &["8", "30", "250"], &[]), 2001);
}

#[test]
fn threads_that_come_and_go_while_chunks_are_taken_away_end_nothing() {
    let _one_at_a_time = alone();
    // Two hundred at a time for a twelfth of the chunks that they would like: the writer looks for quiet ones all the
    // time.
    for _ in 0..4 {
        check(&unharmed("churn", &["200", "400", "4"], &[("TRACEHOUND_BUFFER", "1M")]), 801);
    }
}

#[test]
fn a_thousand_threads_alive_at_once() {
    let _one_at_a_time = alone();
    check(&unharmed("alive", &["1000", "20", "5"], &[]), 1001);
}

#[test]
fn ten_thousand_threads_that_come_and_go() {
    let _one_at_a_time = alone();
    check(&unharmed("churn", &["100", "20", "100"], &[]), 10_001);
}

/// More threads than the memory has chunks of the smallest size; as many as the machine lets one process have.
#[test]
fn ten_thousand_threads_alive_at_once() {
    let _one_at_a_time = alone();
    let run = unharmed("alive", &["10000", "3", "2"], &[("TRACEHOUND_BUFFER", "32M")]);
    if run.output.status.code() == Some(3) {
        // The limit of this machine: as many as it has let begin were the same with and without the recorder.
        return;
    }
    check(&run, 10_001);
    assert_eq!(
        run.recording().end.expect("an end").statistics.chunk_bytes,
        32 << 20,
        "the bound of chunk memory holds"
    );
}

#[test]
fn idle_chunks_come_back_and_grow_again() {
    let run = unharmed("idle", &["200", "6000"], &[("TRACEHOUND_BUFFER", "1M")]);
    check(&run, 201);
    assert!(run.recording().end.expect("an end").statistics.chunk_bytes <= 1 << 20);
}

#[test]
fn dropping_is_counted() {
    let options = [("TRACEHOUND_BUFFER", "1M"), ("TRACEHOUND_ON_FULL", "drop")];
    let run = unharmed("churn", &["48", "40000"], &options);
    let recording = run.recording();
    let end = recording.end.as_ref().expect("an end");
    let reported: u64 =
        recording.events.iter().filter(|(_, r)| r.kind == Kind::Lost as u8).map(|(_, r)| r.address).sum();
    assert_eq!(reported, end.statistics.lost);
    // A realloc is one event, of two records.
    let made = run.printed("allocs") + run.printed("frees") - run.printed("reallocs");
    let loaders = 2 * 48;
    let second_halves = recording.count(Kind::Lost) + recording.count(Kind::ReallocTo);
    let kept = recording.events.len() as u64 - second_halves as u64;
    assert!((made..=made + loaders).contains(&(kept + end.statistics.lost)), "{made} {kept} {}", end.statistics.lost);
}
