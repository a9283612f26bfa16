//! The ends and the splittings of a recorded process: exit, exec, fork, and the ends of its threads.

use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tracehound_format::meta::ForkedFrom;

use super::driver::{self, command};
use crate::hot::{attach, clock};
use crate::shared::call_tree::CallTree;
use crate::shared::gate::{self, Internal};
use crate::shared::log;
use crate::shared::session::{self, Session};
use crate::shared::sys;
use crate::shared::thread::{RECORDING, ThreadContext};

/// Stops all other threads at their next event, so that nothing completes any more that would not be in the file.
fn freeze(session: &Session) {
    gate::slot().exempt.set(1);
    gate::set(gate::FROZEN);
    settle_others(session);
}

/// Makes all other threads look at the gate at their next event, and waits until none is in the last nanoseconds of one.
pub(super) fn settle_others(session: &Session) {
    let own = gate::slot().context.get();
    for context in session.threads.iter() {
        if !core::ptr::eq(own, context) && context.is_in_use() {
            let _held = context.lock_chunks();
            context.limit.store(0, Ordering::Relaxed);
        }
    }
    sys::barrier();
    // Threads that had room before are now in the last nanoseconds of an event, unless they wait for a processor.
    // A fork's child must not find locks of ours held, so that the wait is long enough for a machine that is very busy.
    for attempt in 0..600_u64 {
        let busy = session.threads.iter().any(|context| {
            !core::ptr::eq(own, context)
                && context.is_in_use()
                && context.mode() == RECORDING
                && context.parked.load(Ordering::SeqCst) == 0
        });
        if !busy {
            return;
        }
        sys::sleep(20_000 * (attempt / 8 + 1).min(250));
    }
}

/// Why the recording is to be finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finish {
    /// The process ends.
    Exit,
    /// The process is about to exec.
    Exec,
}

/// Finishes the recording; other threads wait at their next event. True if there was one to finish.
pub fn finish(reason: Finish) -> bool {
    let Some(session) = session::current() else { return false };
    if session.pid != sys::process_id() || !matches!(gate::state(), gate::RECORDING | gate::PASS) {
        return false;
    }
    let _internal = Internal::enter();
    let was = gate::state();
    freeze(session);
    command(session, if reason == Finish::Exec { driver::FINISH_EXEC } else { driver::FINISH_EXIT });
    if was == gate::PASS {
        gate::set(gate::PASS);
    }
    true
}

/// The exec for which the recording was finished has failed: it goes on.
pub fn resume() {
    let Some(session) = session::current() else { return };
    let _internal = Internal::enter();
    command(session, driver::RESUME);
    gate::slot().exempt.set(0);
    gate::change(gate::FROZEN, gate::RECORDING);
    session.pool.ring();
}

/// Ends the recording while the process goes on: soon the program's threads may make none of the recorder's system calls.
/// From here on they do not.
pub fn end_early(why: &str) {
    let Some(session) = session::current() else { return };
    if session.pid != sys::process_id() || !matches!(gate::state(), gate::RECORDING | gate::PASS) {
        return;
    }
    let _internal = Internal::enter();
    log::error(&format!("{why}; recording stops here, the program goes on"));
    session.remark(clock::now_after_alloc(), "stopped", format!("{why}: recording ended before the program did"));
    freeze(session);
    command(session, driver::FINISH_STOPPED);
    driver::wait_for_end(session);
    session.paused.store(false, Ordering::SeqCst);
    session::forget();
    gate::set(gate::PASS);
    // Who was on the way into the recorder, or waits in it, makes system calls until it is out.
    let own = gate::slot().context.get();
    for _ in 0..2000 {
        let inside = |context: &ThreadContext| {
            !core::ptr::eq(own, context) && context.is_in_use() && context.mode() == RECORDING
        };
        if !gate::has_company() && !session.threads.iter().any(inside) {
            break;
        }
        sys::sleep(500_000);
    }
    gate::slot().exempt.set(0);
}

/// The program puts a filter on a thread that would kill it for system calls which the recording can do without. The
/// threads of the program make none such from here on.
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

/// Whether the calling thread, one of the program's, may do what only [`confine`] forbids; if not, the recording says that
/// `what` was left out.
pub(super) fn is_free(session: &Session, what: &str) -> bool {
    let confined = session.confined.load(Ordering::SeqCst);
    if confined {
        let _internal = Internal::enter();
        session.remark(
            clock::now_after_alloc(),
            "confined",
            format!("a seccomp filter of the program forbids it: {what}"),
        );
    }
    !confined
}

/// What a followed child takes over from its parent.
pub struct Heritage {
    /// The parent's recording, and the fork: what was alive then is found there.
    pub(super) from: ForkedFrom,
    /// The call tree: the child's copy of it goes on with the same ids.
    pub(super) tree: &'static CallTree,
}

/// The thread in a followed fork, by its gate slot, whose address the child's only thread has, too; 0: none.
static FORKING: AtomicUsize = AtomicUsize::new(0);
/// The fork in the parent's time.
static FORK_TICK: AtomicU64 = AtomicU64::new(0);

fn own_slot() -> usize {
    core::ptr::from_ref(gate::slot()) as usize
}

/// Before a fork whose child will be followed: the writer and all other threads stand still, so that the child finds a
/// consistent picture of its heritage. What has happened so far may reach the file later.
pub fn before_followed_fork() {
    let Some(session) = session::current() else { return };
    if session.pid != sys::process_id() || gate::is_internal() {
        return;
    }
    if !is_free(session, "a forked child is not recorded") {
        return;
    }
    // One fork at a time: another thread's ends in a moment.
    while !gate::change(gate::RECORDING, gate::FROZEN) {
        if gate::state() != gate::FROZEN || gate::slot().exempt.get() != 0 {
            return;
        }
        gate::wait_while_frozen();
    }
    let _internal = Internal::enter();
    session.close_leftovers();
    gate::slot().exempt.set(1);
    settle_others(session);
    driver::hold_writer();
    FORK_TICK.store(clock::now_after_alloc(), Ordering::SeqCst);
    FORKING.store(own_slot(), Ordering::SeqCst);
}

/// In the parent, after such a fork.
pub fn after_followed_fork() {
    if FORKING.compare_exchange(own_slot(), 0, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
        // SAFETY: held by this thread since `before_followed_fork`.
        unsafe { driver::release_writer() };
        gate::slot().exempt.set(0);
        gate::change(gate::FROZEN, gate::RECORDING);
    }
}

/// In a forked child: forgets the parent's recording. Gives what there is to take over.
pub fn forget_in_child() -> Option<Heritage> {
    let slot = gate::slot();
    gate::set(gate::PASS);
    slot.context.set(core::ptr::null_mut());
    slot.exempt.set(0);
    let session = session::current()?;
    gate::forget_company();
    let confined = session.confined.load(Ordering::SeqCst);
    if !confined {
        session.close_descriptors();
    }
    let followed = FORKING.swap(0, Ordering::SeqCst) == own_slot();
    // SAFETY: the child of a fork has one thread, this one.
    unsafe { driver::forget_writer() };
    session::forget();
    if confined {
        return None;
    }
    let from = ForkedFrom {
        recording_id: session.recording_id,
        path: session.path.clone(),
        // Where the fork was not prepared for, the present is the best that there is to say.
        tick: if followed { FORK_TICK.load(Ordering::SeqCst) } else { clock::now_after_alloc() },
        nodes: session.tree.len(),
        recording: !session.paused.load(Ordering::Relaxed),
    };
    Some(Heritage { from, tree: session.tree })
}

/// The calling thread ends.
pub fn thread_ends() {
    let Some(session) = session::current() else { return };
    if session.pid == sys::process_id() {
        if sys::thread_id() == session.pid {
            session.main_gone.store(true, Ordering::Release);
        }
        attach::thread_ends();
    }
}
