//! Exit, exec and fork of a recorded process, and the ends of its threads.

use tracehound_shared::sync::atomic::Ordering;

use tracehound_format::live::Ending;
use tracehound_format::meta::{Forked, ForkedFrom};
use tracehound_format::record::Kind;

use super::{driver, quiesce};
use tracehound_record::attach;
use tracehound_shared::call_tree::CallTree;
use tracehound_shared::clock;
use tracehound_shared::gate::{self, Internal, fork_ends};
use tracehound_shared::log;
use tracehound_shared::session::{self, Session};
use tracehound_shared::sys;
use tracehound_shared::thread::{RECORDING, ThreadContext};

/// Why the recording is to be finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finish {
    /// The process ends.
    Exit,
    /// The process is about to exec.
    Exec,
}

/// Finishes the recording; other threads wait at their next event. True if [`resume`] must be called when the process
/// goes on after all. Bounded in time, see [`quiesce`].
pub fn finish(reason: Finish) -> bool {
    let Some(session) = session::current().filter(|session| session.pid == sys::process_id()) else { return false };
    if gate::state() == gate::COLD {
        return false;
    }
    let _internal = Internal::enter();
    quiesce::end(session, if reason == Finish::Exec { Ending::Exec } else { Ending::Exit });
    true
}

/// Continues the recording that was finished for an exec that has failed.
pub fn resume() {
    let Some(session) = session::current() else { return };
    let _internal = Internal::enter();
    quiesce::go_on(session);
}

/// Ends the recording while the process goes on: soon the program's threads may make none of the recorder's system
/// calls. After this call they make none.
pub fn end_early(why: &str) {
    let Some(session) = session::current() else { return };
    if session.pid != sys::process_id() || gate::state() == gate::COLD {
        return;
    }
    let _internal = Internal::enter();
    log::error(&format!("{why}; recording stops here, the program goes on"));
    session.remark(clock::now(), "stopped", format!("{why}: recording ended before the program did"));
    if quiesce::end(session, Ending::Stopped) {
        driver::wait_for_end(session);
    }
    session.paused.store(false, Ordering::SeqCst);
    session::forget();
    gate::set(gate::PASS);
    super::attached::ended_early();
    // A thread that was on its way into the recorder, or waits in it, may make system calls until it has left it.
    let own = gate::slot().context.get();
    for _ in 0..2000 {
        let inside = |context: &ThreadContext| {
            !core::ptr::eq(own, context) && context.is_in_use() && context.mode_seen() == RECORDING
        };
        if !gate::has_company() && !session.threads.iter().any(inside) {
            break;
        }
        sys::sleep(500_000);
    }
    gate::slot().exempt.set(0);
}

/// Notes that the program puts a filter on a thread that would kill it for system calls which the recording can do
/// without. From here on no thread of the program makes those calls.
pub fn confine() {
    let Some(session) = session::current().filter(|session| session.pid == sys::process_id()) else { return };
    let _internal = Internal::enter();
    session.close_leftovers();
    session.confined.store(true, Ordering::SeqCst);
}

/// Whether [`confine`] was called.
pub fn is_confined() -> bool {
    session::current().is_some_and(|session| session.confined.load(Ordering::SeqCst))
}

/// Whether the calling thread, one of the program's, may make calls that only [`confine`] forbids; if not, the recording
/// notes that `what` was left out.
pub(super) fn is_free(session: &Session, what: &str) -> bool {
    let confined = session.confined.load(Ordering::SeqCst);
    if confined {
        let _internal = Internal::enter();
        session.remark(clock::now(), "confined", format!("a seccomp filter of the program forbids it: {what}"));
    }
    !confined
}

/// State that a followed child takes over from its parent.
pub struct InheritedState {
    /// The parent's recording, and the fork: what was alive then is found there.
    pub(super) from: ForkedFrom,
    /// The call tree: the child's copy of it goes on with the same ids.
    pub(super) tree: &'static CallTree,
}

/// Ends the recording at the next fork of the calling thread, which is `daemon`'s, after the program's fork handlers
/// have run: they may wait for a lock whose holder would wait for us.
pub fn end_at_fork() {
    gate::slot().fork_ends.set(fork_ends::WANTED);
}

/// After that fork, or without one: whether the recording has ended, so that [`resume`] must be called since the process
/// goes on.
pub fn ended_at_fork() -> bool {
    gate::slot().fork_ends.replace(fork_ends::NO) == fork_ends::DONE
}

/// Called before any fork, as late as possible.
pub fn before_fork() {
    let slot = gate::slot();
    if slot.fork_ends.get() == fork_ends::WANTED && finish(Finish::Exec) {
        slot.fork_ends.set(fork_ends::DONE);
    }
    // SAFETY: contexts stay mapped.
    let context = unsafe { slot.context.get().as_ref() };
    slot.fork_in_event.set(u32::from(context.is_some_and(|context| context.mode() == RECORDING)));
}

/// Called before a fork whose child will be followed, as late as possible. No thread of the program has to wait: the
/// call tree is consistent at any instant, and everything else the child makes anew.
pub fn before_followed_fork() {
    let slot = gate::slot();
    // Of a process that was attached to, children are not followed.
    let Some(session) = session::current().filter(|session| session.options.children) else { return };
    // A signal handler may fork in the middle of this.
    if session.pid != sys::process_id() || slot.fork_tick.get() != 0 {
        return;
    }
    if gate::is_internal() {
        // Inside the recorder's own code: the child cannot be made ready.
        return session.give_up("fork-inside", 0, 0, false);
    }
    if !is_free(session, "a forked child is not recorded") {
        return;
    }
    {
        let _internal = Internal::enter();
        session.close_leftovers();
    }
    slot.fork_missed.set(0);
    slot.fork_tick.set(clock::now().max(1));
}

/// In the parent, after such a fork.
pub fn after_followed_fork() {
    let slot = gate::slot();
    let tick = slot.fork_tick.replace(0);
    if tick == 0 {
        return;
    }
    slot.forked_ticks[0].set(tick);
    slot.forked_ticks[1].set(clock::now());
}

/// In the parent, when fork has returned: records the child.
pub fn forked(child: u32) {
    let slot = gate::slot();
    let [tick, after] = slot.forked_ticks.each_ref().map(|tick| tick.replace(0));
    if let Some(session) = session::current().filter(|_| tick != 0) {
        let _internal = Internal::enter();
        session.with_notes(|notes| notes.forks.push(Forked { tick, after, child }));
    }
}

/// In a forked child: forgets the parent's recording. Returns the state to take over.
pub fn forget_in_child() -> Option<InheritedState> {
    let slot = gate::slot();
    gate::set(gate::PASS);
    slot.context.set(core::ptr::null_mut());
    slot.exempt.set(0);
    super::attached::forget_in_child();
    LEFT_LIBUNWIND.store(tracehound_unwind::after_fork_in_child(), Ordering::Relaxed);
    clock::forget_others();
    let session = session::current()?;
    gate::forget_company();
    let confined = session.confined.load(Ordering::SeqCst);
    if !confined {
        session.close_descriptors();
    }
    slot.fork_ends.set(fork_ends::NO);
    if slot.fork_in_event.replace(0) != 0 {
        // The event that the handler has interrupted may be about to write into its chunk, which only the parent has.
        session.side.stand_in();
    }
    // SAFETY: the child of a fork has one thread, this one.
    unsafe { driver::forget_writer() };
    session::forget();
    if confined {
        return None;
    }
    let from = ForkedFrom {
        recording_id: session.recording_id,
        path: session.path.clone(),
        tick: slot.fork_tick.get(),
        nodes: session.tree.len(),
        recording: !session.paused.load(Ordering::Relaxed),
    };
    (from.tick != 0).then_some(InheritedState { from, tree: session.tree })
}

/// In a forked child that is about to be recorded: libunwind is not used any more.
static LEFT_LIBUNWIND: core::sync::atomic::AtomicBool = core::sync::atomic::AtomicBool::new(false);

/// In a followed child, when it is recorded.
pub fn child_is_ready() {
    let slot = gate::slot();
    slot.fork_tick.set(0);
    let missed = u64::from(slot.fork_missed.replace(0));
    let Some(session) = session::current() else { return };
    let _internal = Internal::enter();
    if LEFT_LIBUNWIND.swap(false, Ordering::Relaxed) {
        let text =
            "a thread of the parent was in libunwind at the fork and has left its locks taken: it is no longer used";
        session.remark(clock::now(), "no-libunwind", text.into());
    }
    if missed > 0 {
        session.retired.lost.fetch_add(missed, Ordering::Relaxed);
        session.note_from_outside(Kind::Lost, clock::now(), missed);
        session.give_up("fork-child", 0, 0, false);
    }
}

/// Called when the calling thread ends.
pub fn thread_ends() {
    let Some(session) = session::current() else { return };
    if session.pid == sys::process_id() {
        if sys::thread_id() == session.pid {
            session.main_gone.store(true, Ordering::Release);
        }
        attach::thread_ends();
    }
}
