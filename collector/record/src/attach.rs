//! A thread's first event and its end.

use core::sync::atomic::{AtomicUsize, Ordering};

use tracehound_format::options;

use tracehound_shared::clock;
use tracehound_shared::gate;
use tracehound_shared::session::{self, Session};
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

/// Where the first thread's storage is; 0: not known.
static FIRST_THREAD: AtomicUsize = AtomicUsize::new(0);

/// At the beginning of a recording: the calling thread may be the process's first one.
pub fn note_first_thread() {
    let is_first = sys::thread_id() == sys::process_id();
    FIRST_THREAD.store(if is_first { storage() } else { 0 }, Ordering::Relaxed);
}

fn storage() -> usize {
    core::ptr::from_ref(gate::slot()).addr()
}

/// The kernel's id of the thread that the calling thread's storage belongs to; 0 where that is not known. A child by vfork
/// has the storage of the thread that waits for it, and an id of its own that is soon gone.
pub fn os_thread(session: &Session) -> u32 {
    if sys::process_id() == session.pid {
        sys::thread_id()
    } else if FIRST_THREAD.load(Ordering::Relaxed) == storage() {
        session.pid
    } else {
        0
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
    context.os_thread.store(os_thread(session), Ordering::Relaxed);
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
