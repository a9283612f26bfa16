//! The gate: record ∥ stop, record ∥ hold.

use core::ffi::c_void;
use core::sync::atomic::Ordering;

use tracehound_format::record::{Kind, Record};
use tracehound_lifecycle::{from_outside, settle};
use tracehound_record::record;
use tracehound_shared::clock;
use tracehound_shared::gate;
use tracehound_shared::sync::model::{check, find_mutant, spawn};
use tracehound_shared::thread::ThreadContext;
use tracehound_unwind::Caller;

use crate::stage::{self, numbers};

/// An allocation as the hook sees it; where it is to be recorded, a time after its stamp.
fn allocate(context: &'static ThreadContext, block: u64) -> Option<u64> {
    gate::slot().context.set(core::ptr::from_ref(context).cast_mut());
    let caller = Caller { pc: 0, sp: 0, fp: 0 };
    let context = record::ready()?;
    // SAFETY: the context is this thread's, and no stack is taken without an unwinder.
    unsafe { record::alloc(context, caller, Kind::Malloc, 16, || block as *mut c_void) };
    Some(clock::now())
}

fn ticks(records: &[Record]) -> Vec<u64> {
    records.iter().map(|record| record.tick).collect()
}

/// What is stamped before the stop is in the recording when the stop is done; what is stamped after it is not.
fn stop(with_chunk: bool, events: u64) {
    let session = stage::session();
    let context = stage::thread(session);
    let first = if with_chunk { Vec::new() } else { stage::take(session, context) };
    let thread = spawn(move || (1..=events).map(|number| allocate(context, number << 12)).collect::<Vec<_>>());
    from_outside(session, false).expect("nobody else is switching");
    let stopped = session.switches.stopped.load(Ordering::SeqCst);
    let before = ticks(&[first, stage::look(session, context)].concat());
    let after = thread.join().expect("a thread");
    let all = ticks(&stage::look(session, context));
    assert!(before.ends_with(&all), "found {before:?} when the stop had settled, and {all:?} later");
    let found = before.get(1..).expect("the first one was there from the start");
    assert!(found.iter().all(|&tick| tick < stopped), "stamped {found:?}, stopped {stopped}");
    let due = after.iter().flatten().filter(|&&after| after < stopped).count();
    assert!(found.len() >= due, "{due} events were over before the stop, {} are there", found.len());
}

/// While the gate is held nothing more comes; when it opens, everything does.
fn hold() {
    let session = stage::session();
    let context = stage::thread(session);
    let thread = spawn(move || stage::publish(context, 2));
    assert!(gate::change(gate::RECORDING, gate::HELD));
    assert_eq!(settle(session, u64::MAX), 0);
    let mut seen = numbers(&stage::take(session, context));
    let held = numbers(&stage::take(session, context));
    assert!(held.is_empty(), "{held:?} came through a gate that is held");
    assert!(gate::change(gate::HELD, gate::RECORDING));
    thread.join().expect("a thread");
    seen.append(&mut numbers(&stage::take(session, context)));
    assert_eq!(seen, [1, 2], "every record arrives once, in order");
}

#[test]
fn a_stop_is_exact() {
    check("gate: record ∥ stop", 2, || stop(true, 2));
}

#[test]
fn a_stop_is_exact_for_who_gets_a_chunk_meanwhile() {
    check("gate: record in a new chunk ∥ stop", 2, || stop(false, 1));
}

#[test]
fn nothing_comes_through_a_gate_that_is_held() {
    check("gate: record ∥ hold", 2, hold);
}

#[test]
fn mutant_the_thread_does_not_announce_its_event_to_a_stop() {
    find_mutant("light-barrier", 2, || stop(true, 2)).unwrap();
}

#[test]
fn mutant_the_thread_does_not_announce_its_event_to_a_hold() {
    find_mutant("light-barrier", 2, hold).unwrap();
}
