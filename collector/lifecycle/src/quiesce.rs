//! The orderly end of a recording while the program's other threads run: at exit, before an exec, or because recording
//! must stop for good. The states are the gate's (`shared/gate.rs`); docs/decisions/0027-quiescence.md has the reasons.
//!
//! ```text
//! drain   the writer brings everything into the file; all threads record on
//! hold    the gate is held: a thread waits at its next event, at most LEASE_NS
//! settle  those in the middle of an event finish it, or are counted
//! write   the writer writes the rest and the end, and ends the gate if it is still held
//! ```
//! Every wait here is bounded, except a single write where the process has no recorder thread. A wait that times out is
//! recorded as given up, the threads go on recording, and the side file keeps what the file lacks.

use tracehound_shared::sync::atomic::Ordering;

use super::driver;
use tracehound_background::file;
use tracehound_format::live::Ending;
use tracehound_shared::clock;
use tracehound_shared::gate;
use tracehound_shared::log;
use tracehound_shared::session::Session;
use tracehound_shared::sys;
use tracehound_shared::thread::RECORDING;

/// A writer that has written nothing for this long counts as stuck.
const STUCK_NS: u64 = 3_000_000_000;
/// Longest time for the whole end.
const TOTAL_NS: u64 = 10_000_000_000;
/// Longest time for the last part of it, while other threads are held; less than their leases.
const WRITE_NS: u64 = 1_500_000_000;
/// Longest wait for threads in the middle of an event.
const SETTLE_NS: u64 = 300_000_000;

fn now() -> u64 {
    sys::clock(libc::CLOCK_MONOTONIC)
}

/// How long the end has taken, and since when the writer has written nothing.
struct EndWait {
    started: u64,
    writes: u64,
    wrote: u64,
}

impl EndWait {
    fn new() -> Self {
        let started = now();
        Self { started, writes: file::WRITES.load(Ordering::Relaxed), wrote: started }
    }

    fn waited(&self) -> u64 {
        now().saturating_sub(self.started)
    }

    fn is_over(&mut self) -> bool {
        let (now, writes) = (now(), file::WRITES.load(Ordering::Relaxed));
        if writes != self.writes {
            (self.writes, self.wrote) = (writes, now);
        }
        now.saturating_sub(self.wrote) > STUCK_NS || now.saturating_sub(self.started) > TOTAL_NS
    }
}

/// Result of the attempt to hold the gate.
enum Hold {
    /// Other threads wait.
    Held,
    /// Recording was off: nobody records.
    Off,
    /// There is nothing to end, or this thread is at it already, below a signal handler.
    Nothing,
}

/// Ends the recording; true when that is done, and the gate is ended (or recording was off). The calling thread passes
/// the gate from then on.
pub(super) fn end(session: &'static Session, why: Ending) -> bool {
    let slot = gate::slot();
    if slot.exempt.get() != 0 {
        return false;
    }
    let mut patience = EndWait::new();
    // Without a recorder thread this one writes itself. After the time is over it finishes the write in progress and
    // starts no other.
    let by_itself = !session.writer_alive.load(Ordering::Acquire);
    if by_itself {
        file::write_until(patience.started + TOTAL_NS);
    }
    let outcome = attempt(session, why, &mut patience);
    let late = by_itself && file::write_until(0);
    match outcome {
        EndOutcome::Nothing => false,
        EndOutcome::Done if !late => true,
        _ => {
            give_up(session, why, patience.waited());
            false
        }
    }
}

/// Result of an attempt to end the recording.
enum EndOutcome {
    /// It has ended.
    Done,
    /// The time for the end is over.
    Late,
    /// There is nothing to end.
    Nothing,
}

/// [`end`], as long as its time lasts.
fn attempt(session: &'static Session, why: Ending, patience: &mut EndWait) -> EndOutcome {
    let slot = gate::slot();
    loop {
        let alone = !others(session);
        if !alone && gate::state() == gate::RECORDING && !drain(session, patience) {
            break;
        }
        let signals = sys::SignalsBlocked::new();
        let hold = hold(patience);
        match hold {
            Hold::Nothing => return EndOutcome::Nothing,
            Hold::Held => {
                slot.exempt.set(1);
                let started = now();
                let late = settle(session, SETTLE_NS);
                if late > 0 {
                    session.give_up(names(why)[1], now().saturating_sub(started), late, false);
                }
            }
            Hold::Off => slot.exempt.set(1),
        }
        let limit = if alone || matches!(hold, Hold::Off) { u64::MAX } else { WRITE_NS };
        let started = now();
        let asked = driver::command_until(session, command(why), || {
            let state = gate::state();
            // Once the gate is ended, what is left to the writer is to remove the side file.
            let revoked = matches!(hold, Hold::Held) && state == gate::RECORDING;
            let late = state == gate::HELD && now().saturating_sub(started) > limit;
            revoked || late || patience.is_over()
        });
        let done = match hold {
            Hold::Off => asked,
            // Only the writer ends the gate, or closes it when the disk refuses. Otherwise the threads record on.
            _ => !gate::change(gate::HELD, gate::RECORDING) && gate::state() != gate::RECORDING,
        };
        if done {
            return EndOutcome::Done;
        }
        slot.exempt.set(0);
        drop(signals);
        if alone || patience.is_over() || matches!(hold, Hold::Off) {
            break;
        }
        session.give_up("hold", now().saturating_sub(started), 0, false);
    }
    EndOutcome::Late
}

/// After [`end`], when the process goes on after all: continues recording in the same file.
pub(super) fn go_on(session: &'static Session) {
    let (started, slot) = (now(), gate::slot());
    session.side.set_ending(Ending::None, 0, 0);
    if slot.exempt.get() != 0 {
        session.go_on();
        // A gate that was not ended has not to be moved, only the file.
        let pending = || {
            let state = gate::state();
            state == gate::ENDED || state == gate::MOVING || session.switches.go_on.load(Ordering::SeqCst)
        };
        while pending() && now().saturating_sub(started) < gate::LEASE_NS {
            if session.writer_alive.load(Ordering::Acquire) {
                gate::wait(gate::state(), 1_000_000);
            } else {
                driver::drive(session);
                sys::sleep(100_000);
            }
        }
        if gate::change(gate::ENDED, gate::RECORDING) {
            session.give_up("resume-writer", now().saturating_sub(started), 0, false);
        }
        slot.exempt.set(0);
    }
    session.pool.ring();
}

fn command(why: Ending) -> u32 {
    match why {
        Ending::Exec => driver::FINISH_EXEC,
        Ending::Stopped => driver::FINISH_STOPPED,
        _ => driver::FINISH_EXIT,
    }
}

/// Names of the waits for the writer and for threads.
fn names(why: Ending) -> [&'static str; 2] {
    match why {
        Ending::Exec => ["exec-writer", "exec-threads"],
        Ending::Stopped => ["stopped-writer", "stopped-threads"],
        _ => ["exit-writer", "exit-threads"],
    }
}

/// Whether other threads may record.
fn others(session: &Session) -> bool {
    let own = gate::slot().context.get();
    session.threads.iter().any(|context| !core::ptr::eq(own, context) && context.is_in_use())
}

/// Waits until everything recorded so far is in the file.
fn drain(session: &'static Session, patience: &mut EndWait) -> bool {
    let wanted = session.flush_wanted.fetch_add(1, Ordering::AcqRel) + 1;
    loop {
        let done = session.flush_done.load(Ordering::Acquire);
        if done.wrapping_sub(wanted) as i32 >= 0 || gate::state() != gate::RECORDING {
            return true;
        }
        if patience.is_over() {
            return false;
        }
        if session.writer_alive.load(Ordering::Acquire) {
            session.pool.ring();
            sys::futex_wait(&session.flush_done, done, 20_000_000);
            driver::check_writer(session);
        } else {
            driver::drive(session);
            sys::sleep(100_000);
        }
    }
}

fn hold(patience: &mut EndWait) -> Hold {
    loop {
        match gate::state() {
            gate::RECORDING if gate::change(gate::RECORDING, gate::HELD) => return Hold::Held,
            gate::RECORDING => {}
            gate::PASS => return Hold::Off,
            gate::COLD => return Hold::Nothing,
            // Another thread ends the recording: the process will be gone, or goes on in a moment.
            _ if patience.is_over() => return Hold::Nothing,
            _ => gate::wait_while_held(),
        }
    }
}

/// Sets the limits of all other threads to 0, so that their next record looks at the gate, and waits until none is in the
/// middle of an event. Returns how many still were when the time was over.
pub fn settle(session: &Session, limit: u64) -> u32 {
    let own = gate::slot().context.get();
    let others = || session.threads.iter().filter(|context| !core::ptr::eq(own, *context) && context.is_in_use());
    take_room(session);
    let started = now();
    for attempt in 0..u64::MAX {
        let late = others()
            .filter(|context| context.mode_seen() == RECORDING && context.parked.load(Ordering::SeqCst) == 0)
            .count();
        if late == 0 || now().saturating_sub(started) > limit {
            return late as u32;
        }
        sys::sleep(20_000 * (attempt / 8 + 1).min(50));
    }
    0
}

/// Sets the limits of all other threads to 0. A thread that finds room after this has stamped its event before.
pub(super) fn take_room(session: &Session) {
    let own = gate::slot().context.get();
    for context in session.threads.iter() {
        // The holder of the lock is about to get room and looks at the gate first, or has looked: then it is in its event.
        if !core::ptr::eq(own, context)
            && context.is_in_use()
            && let Some(_held) = context.try_lock_chunks()
        {
            context.limit.store(0, Ordering::Relaxed);
        }
    }
    sys::barrier();
}

#[cold]
fn give_up(session: &'static Session, why: Ending, waited_ns: u64) {
    let has_side_file = session.side.is_shared();
    session.give_up(names(why)[0], waited_ns, 0, !has_side_file);
    session.side.set_ending(why, clock::now(), waited_ns);
    let (path, tenths) = (driver::path(), waited_ns / 100_000_000);
    let path = core::str::from_utf8(path.as_bytes()).unwrap_or("the recording");
    let (when, rest) = match why {
        Ending::Exec => ("before exec", "exec"),
        Ending::Stopped => ("at the end of recording", "the program"),
        _ => ("at exit", "the program"),
    };
    let kept = if has_side_file { "the side file keeps the rest" } else { "the rest is lost" };
    let (whole, part) = (tenths / 10, tenths % 10);
    log::error_line(format_args!(
        "{path}: the disk did not accept the end of the recording within {whole}.{part} s {when}; {rest} continues, {kept}"
    ));
}
