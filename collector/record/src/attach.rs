//! A thread's first event and its end.

use core::sync::atomic::Ordering;

use tracehound_format::options;

use tracehound_shared::clock;
use tracehound_shared::gate;
use tracehound_shared::session;
use tracehound_shared::sys;
use tracehound_shared::thread::{EVENT, IDLE, ThreadContext, life};
use tracehound_unwind::room;
use tracehound_unwind::{Caller, UnwindEngine, Unwinder};

/// Which engine the options ask for.
pub fn engine(options: &options::LaunchOptions) -> UnwindEngine {
    match options.unwinder {
        options::UnwinderChoice::Auto | options::UnwinderChoice::Cached => UnwindEngine::Cached,
        options::UnwinderChoice::Libunwind => UnwindEngine::LibUnwind,
        options::UnwinderChoice::FramePointer => UnwindEngine::FramePointer,
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
        session.threads.contexts_unavailable.fetch_add(1, Ordering::Relaxed);
        return None;
    };
    let id = session.threads.new_id();
    context.os_thread.store(sys::thread_id(), Ordering::Relaxed);
    context.state.store(EVENT, Ordering::Relaxed);
    context.inner.store(IDLE, Ordering::Relaxed);
    context.parked.store(0, Ordering::Relaxed);
    context.limit.store(0, Ordering::Relaxed);
    context.class.store(0, Ordering::Relaxed);
    context.cursor.store(0, Ordering::Relaxed);
    context.next_record.store(0, Ordering::Relaxed);
    context.request_context.store(0, Ordering::Relaxed);
    context.ended_tick.store(0, Ordering::Relaxed);
    clock::joined();
    context.started_tick.store(clock::now(), Ordering::Relaxed);
    context.set_name(sys::thread_name());
    // The unwinder of a former thread: its memory need not be mapped and touched anew.
    let kept = context.kept_unwinder.swap(core::ptr::null_mut(), Ordering::Relaxed);
    // SAFETY: `caller` is a state on this thread: the contract of `attach`; the former thread has ended.
    let unwinder = unsafe {
        match kept.cast::<Unwinder>().as_mut() {
            Some(unwinder) => {
                unwinder.adopt(caller);
                kept
            }
            None => {
                let block = session.threads.block(context);
                Unwinder::create_in(block, engine(&session.options), session.tree, &context.stacks, caller).cast::<()>()
            }
        }
    };
    context.alloc_unwinder.store(unwinder, Ordering::Relaxed);
    let for_frees = if session.options.free_stacks { unwinder } else { core::ptr::null_mut() };
    context.free_unwinder.store(for_frees, Ordering::Relaxed);
    room::keep(context);
    context.id.store(id, Ordering::Release);
    slot.context.set(core::ptr::from_ref(context).cast_mut());
    Some(context)
}

/// Marks the calling thread as about to end. Calls by libc and by later destructors are still recorded in its context; the
/// writer takes the context over when the thread is gone.
#[cold]
pub fn thread_ends() {
    // SAFETY: contexts stay mapped.
    let Some(context) = (unsafe { gate::slot().context.get().as_ref() }) else { return };
    if context.id.load(Ordering::Relaxed) == 0 {
        return;
    }
    context.set_name(sys::thread_name());
    context.ended_tick.store(clock::now(), Ordering::Relaxed);
    context.life.store(life::ENDING, Ordering::Release);
}
