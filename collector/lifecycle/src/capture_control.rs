//! Control of recording: start, stop, marks and flush, by the program's own calls, by a signal, or from outside.
//!
//! A switch is exact. The record of a start is stamped before the gate opens. A stop closes the gate, sets the limit of
//! every thread to 0, and is stamped then. From then on time stamps decide: an event in progress that was stamped
//! before the stop is recorded, however late it is published; an event that is stamped after it is not.

use core::sync::atomic::Ordering;

use tracehound_shared::sync::atomic::AtomicU32;

use tracehound_format::look::LookReason;
use tracehound_format::record::Kind;

use super::driver::drive;
use super::quiesce;
use tracehound_record::record;
use tracehound_shared::clock;
use tracehound_shared::gate::{self, Internal};
use tracehound_shared::lock::{Lock, LockGuard};
use tracehound_shared::session::{self, Session};
use tracehound_shared::sys;
use tracehound_unwind::Caller;

/// Held while recording is switched, with signals blocked: a handler may switch, too.
static SWITCH: Lock<()> = Lock::new(());

/// Stands in for the tick of a stop that is not stamped yet.
const STOPPING: u64 = u64::MAX;
/// Longest wait for threads in the middle of an event, after a stop.
const SETTLE_NS: u64 = 50_000_000;

/// Longest label of a mark; the rest is cut off.
const MAX_LABEL: usize = tracehound_format::control::MAX_LABEL;

/// Starts recording again, after [`stop`] or `TRACEHOUND_START=off`.
///
/// # Safety
/// `caller` must be the state of a caller on the calling thread.
pub unsafe fn resume_recording(caller: Caller) {
    let Some(session) = own_session() else { return };
    let _signals = sys::SignalsBlocked::new();
    // SAFETY: `caller` is the state of a caller on the calling thread: the contract of `resume_recording`.
    open(session, &SWITCH.lock(), |kind, tick| unsafe { announce(caller, kind, tick) });
}

/// Stops recording until [`resume_recording`].
///
/// # Safety
/// As for [`resume_recording`].
pub unsafe fn stop(caller: Caller) {
    let Some(session) = own_session() else { return };
    let _signals = sys::SignalsBlocked::new();
    // SAFETY: the caller keeps the contract of `resume_recording`, which covers this call.
    close(session, &SWITCH.lock(), |kind, tick| unsafe { announce(caller, kind, tick) });
}

/// Stops when recording, starts when stopped.
///
/// # Safety
/// As for [`resume_recording`].
pub unsafe fn toggle(caller: Caller) {
    let Some(session) = own_session() else { return };
    let _signals = sys::SignalsBlocked::new();
    let held = SWITCH.lock();
    if session.paused.load(Ordering::SeqCst) {
        // SAFETY: the caller keeps the contract of `resume_recording`, which covers this call.
        open(session, &held, |kind, tick| unsafe { announce(caller, kind, tick) });
    } else {
        // SAFETY: the caller keeps the contract of `resume_recording`, which covers this call.
        close(session, &held, |kind, tick| unsafe { announce(caller, kind, tick) });
    }
}

/// Starts or stops for a request from outside the process. `None` while another thread switches: try again.
pub fn from_outside(session: &'static Session, on: bool) -> Option<()> {
    let held = SWITCH.try_lock()?;
    let announce = |kind, tick| session.note_from_outside(kind, tick, 0);
    if on {
        open(session, &held, announce)
    } else {
        close(session, &held, announce)
    }
    Some(())
}

/// In a forked child: opens the lock, since nobody switches there.
pub(super) fn forget() {
    // SAFETY: the child has one thread; the lock has no value.
    unsafe { SWITCH.abandon(()) }
}

fn open(session: &Session, _held: &LockGuard<'_, ()>, announce: impl FnOnce(Kind, u64)) {
    if !session.paused.load(Ordering::SeqCst) || gate::state() != gate::PASS {
        return;
    }
    let tick = clock::now();
    announce(Kind::CaptureStart, tick);
    session.switches.started.store(tick, Ordering::SeqCst);
    if session.options.mappings {
        // What the program maps from now on is reported by records.
        session.existing_wanted.store(clock::now().max(1), Ordering::Release);
    }
    session.paused.store(false, Ordering::SeqCst);
    gate::change(gate::PASS, gate::RECORDING);
}

fn close(session: &Session, _held: &LockGuard<'_, ()>, announce: impl FnOnce(Kind, u64)) {
    if session.paused.load(Ordering::SeqCst) {
        return;
    }
    // In this order: a thread that finds recording off must not compare its stamp with the stop before this one.
    let before = session.switches.stopped.swap(STOPPING, Ordering::SeqCst);
    session.paused.store(true, Ordering::SeqCst);
    while !gate::change(gate::RECORDING, gate::PASS) {
        // An end that may yet be given up is under way. But when it is this thread's own, or recording is at its end,
        // there is nothing to switch.
        if !gate::is_held(gate::state()) || gate::slot().exempt.get() != 0 || gate::is_internal() {
            session.paused.store(false, Ordering::SeqCst);
            session.switches.stopped.store(before, Ordering::SeqCst);
            return;
        }
        gate::wait_while_held();
    }
    quiesce::take_room(session);
    // An event in progress that has found room was stamped before this; others compare their stamp with this tick.
    let tick = clock::now();
    session.switches.stopped.store(tick, Ordering::SeqCst);
    announce(Kind::CaptureStop, tick);
    session.want_look(LookReason::Stop, b"");
    // Nothing is lost without this wait. With it, everything is in the file after a flush that follows.
    let late = quiesce::settle(session, SETTLE_NS);
    if late > 0 {
        session.give_up("stop-threads", SETTLE_NS, late, false);
    }
}

/// Records a switch on the calling thread, which has requested it.
///
/// # Safety
/// As for [`resume_recording`].
unsafe fn announce(caller: Caller, kind: Kind, tick: u64) {
    let slot = gate::slot();
    let before = slot.exempt.replace(1);
    // SAFETY: the caller keeps the contract of `resume_recording`, which covers this call.
    unsafe { record::switched(caller, kind, tick) };
    slot.exempt.set(before);
    // SAFETY: contexts stay mapped.
    if let (Kind::CaptureStop, Some(context)) = (kind, unsafe { slot.context.get().as_ref() }) {
        // An event of this thread that a signal handler has interrupted must look at the gate, too.
        let _held = context.lock_chunks();
        context.limit.store(0, Ordering::Relaxed);
    }
}

/// Sets a mark with a label.
///
/// # Safety
/// As for [`resume_recording`].
pub unsafe fn mark(caller: Caller, label: &[u8]) {
    // While a fork or an end of the recording holds the threads, the mark waits as an event does.
    let Some(session) = session::current().filter(|_| gate::state() != gate::PASS) else { return };
    let ordinal = session.marks.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the caller keeps the contract of `resume_recording`, which covers this call.
    let Some((thread, tick)) = (unsafe { record::single(caller, Kind::Mark, ordinal, 0) }) else { return };
    let _internal = Internal::enter();
    note_label(session, ordinal, thread, tick, label);
}

/// Sets a mark for a request from outside the process; false when recording is stopped.
pub(super) fn mark_from_outside(session: &Session, label: &[u8]) -> bool {
    if gate::state() == gate::PASS {
        return false;
    }
    let (ordinal, tick) = (session.marks.fetch_add(1, Ordering::Relaxed), clock::now());
    session.note_from_outside(Kind::Mark, tick, ordinal);
    note_label(session, ordinal, 0, tick, label);
    true
}

fn note_label(session: &Session, ordinal: u64, thread: u32, tick: u64, label: &[u8]) {
    let label = label.get(..label.len().min(MAX_LABEL)).unwrap_or_default().to_vec();
    session.with_notes(|notes| notes.marks.push((ordinal, thread, tick, label.clone())));
    session.hurry();
    session.want_look(LookReason::Mark, &label);
}

/// Looks at the page tables now, and waits until that is done, at most two seconds.
pub fn look(label: &[u8]) {
    let Some(session) = own_session() else { return };
    let _internal = Internal::enter();
    let request = session.want_look(LookReason::Asked, label.get(..label.len().min(MAX_LABEL)).unwrap_or_default());
    wait_for(session, &session.looks.done, request, "look-writer");
}

/// Waits until everything recorded so far is in the file, at most two seconds.
pub fn flush() {
    let Some(session) = own_session() else { return };
    let _internal = Internal::enter();
    let request = session.flush_wanted.fetch_add(1, Ordering::AcqRel) + 1;
    wait_for(session, &session.flush_done, request, "flush-writer");
}

/// Waits until the writer has served a request, at most two seconds; otherwise the recording names the wait by `what`.
fn wait_for(session: &'static Session, served: &AtomicU32, request: u32, what: &'static str) {
    let started = sys::clock(libc::CLOCK_MONOTONIC);
    for _ in 0..100 {
        let done = served.load(Ordering::Acquire);
        if done.wrapping_sub(request) as i32 >= 0 {
            return;
        }
        if session.writer_alive.load(Ordering::Acquire) {
            session.pool.ring();
            sys::futex_wait(served, done, 20_000_000);
        } else {
            drive(session);
        }
    }
    session.give_up(what, sys::clock(libc::CLOCK_MONOTONIC).saturating_sub(started), 0, false);
}

fn own_session() -> Option<&'static Session> {
    session::current().filter(|session| session.pid == sys::process_id())
}
