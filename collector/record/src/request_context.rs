//! Request contexts: the id that the program assigns to a thread's events.
//!
//! An event does not carry it: it is a timeline of the thread. A record of kind
//! [`Context`](tracehound_format::record::Kind::Context) precedes the first event of another request context. It is
//! written lazily, so that a change without an event costs nothing but two stores:
//!
//! ```text
//! set(id)      ThreadGate::request_context = id, ThreadContext::limit = CONTEXT_CHANGED
//! next event   finds no room in its chunk ─▶ refill ─▶ record of the change, the chunk's limit as it was
//! ```
//! An event needs no extra instruction for it: it compares the limit anyway.

use tracehound_shared::sync::atomic::Ordering;

use tracehound_format::record::{Kind, RECORD_BYTES, Record};

use crate::publish::fill;
use tracehound_shared::clock;
use tracehound_shared::gate::{self, Internal};
use tracehound_shared::session::{self, Session};
use tracehound_shared::sys;
use tracehound_shared::thread::{CONTEXT_CHANGED, NO_CHUNK, ThreadContext};

/// Longest name; the rest is cut off.
const MAX_NAME: usize = 4096;
const BYTES: u64 = RECORD_BYTES as u64;

/// Sets the request context of the calling thread's later events; 0: none.
pub fn set(id: u64) {
    let slot = gate::slot();
    slot.request_context.set(id);
    // SAFETY: a thread's context stays mapped.
    if let Some(context) = unsafe { slot.context.get().as_ref() }
        && context.request_context.load(Ordering::Relaxed) != id
    {
        // Not 0: the writer, which sets the limit to 0 to look at the thread, restores its value only over its own 0.
        context.limit.store(CONTEXT_CHANGED, Ordering::Relaxed);
    }
}

/// The calling thread's request context.
pub fn get() -> u64 {
    gate::slot().request_context.get()
}

/// Gives request context `id` a name.
pub fn name(id: u64, name: &[u8]) {
    let Some(session) = session::current().filter(|session| session.pid == sys::process_id()) else { return };
    let _internal = Internal::enter();
    let name = name.get(..name.len().min(MAX_NAME)).unwrap_or_default().to_vec();
    session.with_notes(|notes| notes.context_names.push((id, clock::now(), name)));
    session.hurry();
}

/// The id to be recorded before the calling thread's next event; `None` when its last record of a change has it already.
pub(super) fn of_records(context: &ThreadContext) -> Option<u64> {
    Some(get()).filter(|&id| id != context.request_context.load(Ordering::Relaxed))
}

/// Writes the change into the thread's chunk, if only the change had set the limit, and the chunk has room for `count`
/// records more. The chunk fields must be locked and signals blocked.
pub(super) fn put_in_chunk(context: &ThreadContext, session: &Session, count: u64, tick: u64) -> bool {
    let limit = context.limit.load(Ordering::Relaxed);
    let number = context.active.load(Ordering::Relaxed);
    if limit == 0 || number == NO_CHUNK {
        return false;
    }
    let Some(chunk) = session.pool.chunk(number) else { return false };
    let change = of_records(context);
    let at = context.cursor.load(Ordering::Relaxed);
    if at + (count + u64::from(change.is_some())) * BYTES > chunk.end_address() {
        return false;
    }
    if let Some(id) = change {
        context.cursor.store(at + BYTES, Ordering::Relaxed);
        // SAFETY: below the end of the thread's chunk, as checked above; nobody else reserves it while the chunk fields are
        // locked and signals blocked.
        unsafe { fill(at, Record::new(Kind::Context, tick, id, 0, 0)) };
        context.request_context.store(id, Ordering::Relaxed);
    }
    context.limit.store(chunk.end_address(), Ordering::Relaxed);
    true
}
