//! A thread's first event and its end.

use core::sync::atomic::Ordering;

use tracehound_format::options;

use super::clock;
use super::publish;
use super::unwind::{Caller, Engine, Unwinder};
use crate::shared::gate;
use crate::shared::session;
use crate::shared::sys;
use crate::shared::thread::{EVENT, IDLE, ThreadContext, life};

/// Which engine the options ask for.
pub fn engine(options: &options::Options) -> Engine {
    match options.unwinder {
        options::Unwinder::Auto | options::Unwinder::Cached => Engine::Cached,
        options::Unwinder::Libunwind => Engine::LibUnwind,
        options::Unwinder::FramePointer => Engine::FramePointer,
    }
}

/// Gives the calling thread a context. `None` when it is not to be recorded: no session, no memory.
///
/// # Safety
/// `caller` must be the state of a caller on the calling thread.
#[cold]
pub unsafe fn attach(caller: Caller) -> Option<&'static ThreadContext> {
    let slot = gate::slot();
    let session = session::current()?;
    let _signals = sys::SignalsBlocked::new();
    session.close_leftovers();
    let Some(context) = session.threads.acquire() else {
        session.threads.homeless.fetch_add(1, Ordering::Relaxed);
        return None;
    };
    // A thread that comes back after its end, out of a late destructor, is the thread it was.
    let known = slot.session.get() == session.number && slot.thread.get() != 0;
    let id = if known { slot.thread.get() } else { session.threads.new_id() };
    let first_record = if known { slot.next_record.get() } else { 0 };
    context.os_thread.store(sys::thread_id(), Ordering::Relaxed);
    context.comeback.store(u32::from(known), Ordering::Relaxed);
    context.state.store(EVENT, Ordering::Relaxed);
    context.parked.store(0, Ordering::Relaxed);
    context.limit.store(0, Ordering::Relaxed);
    context.cursor.store(0, Ordering::Relaxed);
    context.next_record.store(first_record, Ordering::Relaxed);
    context.started_tick.store(clock::now_before_free(), Ordering::Relaxed);
    context.set_name(sys::thread_name());
    // The unwinder of a former thread saves its memory being mapped and touched anew.
    let kept = context.kept_unwinder.swap(core::ptr::null_mut(), Ordering::Relaxed);
    // SAFETY: as the caller promises; the former thread has ended.
    let unwinder = unsafe {
        match kept.cast::<Unwinder>().as_mut() {
            Some(unwinder) => {
                unwinder.adopt(caller);
                kept
            }
            None => Unwinder::create(engine(&session.options), session.tree, caller).cast::<()>(),
        }
    };
    context.alloc_unwinder.store(unwinder, Ordering::Relaxed);
    let for_frees = if session.options.free_stacks { unwinder } else { core::ptr::null_mut() };
    context.free_unwinder.store(for_frees, Ordering::Relaxed);
    context.id.store(id, Ordering::Release);
    slot.session.set(session.number);
    slot.thread.set(id);
    slot.context.set(core::ptr::from_ref(context).cast_mut());
    Some(context)
}

/// Ends the calling thread's part in the recording: hands its chunk over and gives its context back.
#[cold]
pub fn detach_thread() {
    let slot = gate::slot();
    // SAFETY: contexts stay mapped.
    let Some(context) = (unsafe { slot.context.get().as_ref() }) else { return };
    let Some(session) = session::current() else { return };
    if context.id.load(Ordering::Relaxed) == 0 || context.mode() != IDLE {
        return;
    }
    let _signals = sys::SignalsBlocked::new();
    slot.context.set(core::ptr::null_mut());
    {
        let _held = context.lock_chunks();
        publish::detach(context, session, false);
    }
    slot.next_record.set(context.next_record.load(Ordering::Relaxed));
    context.set_name(sys::thread_name());
    session.retire(context);
    context.ended_tick.store(clock::now_after_alloc(), Ordering::Relaxed);
    context.life.store(life::ENDED, Ordering::Release);
}

/// See [`Session::unwinder_figures`](crate::shared::session::Session::unwinder_figures).
///
/// # Safety
/// `unwinder` must be alive. The figures of a running one may be a little old.
pub unsafe fn unwinder_figures(unwinder: *mut ()) -> [u64; 3] {
    // SAFETY: plain counters of a live unwinder.
    let stats = unsafe { (*unwinder.cast::<Unwinder>()).stats() };
    [stats.truncated, stats.guessed, stats.slow]
}
