//! Recording on and off, marks, flush: by the program's own calls, by a signal, or from outside.
//!
//! A switch is exact. The record of a start is stamped before the gate opens. A stop closes the gate, takes their room
//! from all threads, waits until none of them is in the middle of a record, and is stamped then: what was recorded
//! before is stamped before it, and a call that is still under way belongs to the time after it.

use core::sync::atomic::Ordering;

use tracehound_format::record::Kind;

use super::driver::drive;
use super::ends::settle_others;
use crate::hot::unwind::Caller;
use crate::hot::{clock, record};
use crate::shared::gate::{self, Internal};
use crate::shared::lock::{Guard, Lock};
use crate::shared::session::{self, Session};
use crate::shared::sys;

/// Held while recording is switched, with signals blocked: a handler may switch, too.
static SWITCH: Lock<()> = Lock::new(());

/// Longest label of a mark; the rest is cut off.
const MAX_LABEL: usize = tracehound_format::control::MAX_LABEL;

/// Records from now on, after [`stop`] or `TRACEHOUND_START=off`.
///
/// # Safety
/// `caller` must be the state of a caller on the calling thread.
pub unsafe fn resume_recording(caller: Caller) {
    let Some(session) = own_session() else { return };
    let _signals = sys::SignalsBlocked::new();
    // SAFETY: passed on.
    open(session, &SWITCH.lock(), |kind| unsafe { announce(caller, kind) });
}

/// Records nothing until [`resume_recording`].
///
/// # Safety
/// As for [`resume_recording`].
pub unsafe fn stop(caller: Caller) {
    let Some(session) = own_session() else { return };
    let _signals = sys::SignalsBlocked::new();
    // SAFETY: passed on.
    close(session, &SWITCH.lock(), |kind| unsafe { announce(caller, kind) });
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
        // SAFETY: passed on.
        open(session, &held, |kind| unsafe { announce(caller, kind) });
    } else {
        // SAFETY: passed on.
        close(session, &held, |kind| unsafe { announce(caller, kind) });
    }
}

/// Starts or stops for somebody outside the process. `None` while another thread is at it: try again.
pub(super) fn from_outside(session: &'static Session, on: bool) -> Option<()> {
    let held = SWITCH.try_lock()?;
    let announce = |kind| session.note_from_outside(kind, clock::now_after_alloc(), 0);
    if on {
        open(session, &held, announce)
    } else {
        close(session, &held, announce)
    }
    Some(())
}

/// In a forked child: nobody is switching.
pub(super) fn forget() {
    // SAFETY: the child has one thread; the value is none.
    unsafe { SWITCH.abandon(()) }
}

fn open(session: &Session, _held: &Guard<'_, ()>, announce: impl FnOnce(Kind)) {
    if !session.paused.load(Ordering::SeqCst) || gate::state() != gate::PASS {
        return;
    }
    announce(Kind::CaptureStart);
    if session.options.mappings {
        // What the program maps from now on is told by records.
        session.existing_wanted.store(clock::now_after_alloc().max(1), Ordering::Release);
    }
    session.paused.store(false, Ordering::SeqCst);
    gate::change(gate::PASS, gate::RECORDING);
}

fn close(session: &Session, _held: &Guard<'_, ()>, announce: impl FnOnce(Kind)) {
    if session.paused.swap(true, Ordering::SeqCst) {
        return;
    }
    while !gate::change(gate::RECORDING, gate::PASS) {
        // A fork, or an exec that may fail, is under way; but when it is this thread's own, or recording is at its end,
        // there is nothing to switch.
        if gate::state() != gate::FROZEN || gate::slot().exempt.get() != 0 || gate::is_internal() {
            session.paused.store(false, Ordering::SeqCst);
            return;
        }
        gate::wait_while_frozen();
    }
    settle_others(session);
    announce(Kind::CaptureStop);
}

/// Records a switch on the calling thread, whose call it is.
///
/// # Safety
/// As for [`resume_recording`].
unsafe fn announce(caller: Caller, kind: Kind) {
    let slot = gate::slot();
    let before = slot.exempt.replace(1);
    // SAFETY: passed on.
    unsafe { record::single(caller, kind, 0, 0) };
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
    let Some(session) = session::current().filter(|_| gate::state() == gate::RECORDING) else { return };
    let ordinal = session.marks.fetch_add(1, Ordering::Relaxed);
    // SAFETY: passed on.
    let Some(thread) = (unsafe { record::single(caller, Kind::Mark, ordinal, 0) }) else { return };
    let _internal = Internal::enter();
    note_label(session, ordinal, thread, clock::now_after_alloc(), label);
}

/// Sets a mark for somebody outside the process; false when recording is stopped.
pub(super) fn mark_from_outside(session: &Session, label: &[u8]) -> bool {
    if gate::state() == gate::PASS {
        return false;
    }
    let (ordinal, tick) = (session.marks.fetch_add(1, Ordering::Relaxed), clock::now_after_alloc());
    session.note_from_outside(Kind::Mark, tick, ordinal);
    note_label(session, ordinal, 0, tick, label);
    true
}

fn note_label(session: &Session, ordinal: u64, thread: u32, tick: u64, label: &[u8]) {
    let label = label.get(..label.len().min(MAX_LABEL)).unwrap_or_default().to_vec();
    session.notes.lock().marks.push((ordinal, thread, tick, label));
}

/// Waits until everything recorded so far is in the file, at most two seconds.
pub fn flush() {
    let Some(session) = own_session() else { return };
    let _internal = Internal::enter();
    let request = session.flush_wanted.fetch_add(1, Ordering::AcqRel) + 1;
    for _ in 0..100 {
        let done = session.flush_done.load(Ordering::Acquire);
        if done.wrapping_sub(request) as i32 >= 0 {
            return;
        }
        if session.writer_alive.load(Ordering::Acquire) {
            session.pool.ring();
            sys::futex_wait(&session.flush_done, done, 20_000_000);
        } else {
            drive(session);
        }
    }
}

fn own_session() -> Option<&'static Session> {
    session::current().filter(|session| session.pid == sys::process_id())
}
