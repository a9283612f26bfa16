//! Takes chunks away from threads that are not recording.
//!
//! A thread announces each event by its mode before it looks whether its chunk has room. So a chunk is taken in this
//! order: lock the chunk fields, set the limit to 0, barrier, read the mode. A thread that is recording keeps its
//! chunk; a thread that begins an event after the barrier finds no room and waits for the lock.

use tracehound_shared::pool::Pool;
use tracehound_shared::sync::atomic::Ordering;
use tracehound_shared::sys;
use tracehound_shared::thread::{NO_CHUNK, RECORDING, ThreadContext};

use tracehound_format::record::RECORD_BYTES;

/// Sends the chunks of those threads that are not recording to the writer. One barrier for all of them; a thread that
/// begins an event meanwhile waits until it is over.
pub fn seize(threads: &[&'static ThreadContext], pool: &Pool) {
    let lock = |context: &&'static ThreadContext| {
        let guard = context.lock_chunks();
        (*context, context.limit.swap(0, Ordering::Relaxed), guard)
    };
    let held: Vec<_> = threads.iter().map(lock).collect();
    sys::barrier();
    // A thread that starts an event from here on finds no room and waits for the lock.
    for (context, limit, guard) in held {
        let quiet = context.mode_seen() != RECORDING && context.active.load(Ordering::Relaxed) != NO_CHUNK;
        if quiet {
            hand_over(context, pool);
        } else {
            // The thread may have changed its request context meanwhile: its limit must stay as it is then.
            let _ = context.limit.compare_exchange(0, limit, Ordering::Relaxed, Ordering::Relaxed);
        }
        drop(guard);
    }
}

/// Hands over the chunks of a thread that is not recording and cannot begin to: its chunk fields are locked.
pub fn hand_over(context: &ThreadContext, pool: &Pool) {
    let pinned = context.pinned_len.swap(0, Ordering::AcqRel) as usize;
    for slot in context.pinned.iter().take(pinned) {
        pool.send(slot.load(Ordering::Relaxed));
    }
    let number = context.active.swap(NO_CHUNK, Ordering::AcqRel);
    let Some(chunk) = pool.chunk(number) else { return };
    let used = context.cursor.load(Ordering::Relaxed).saturating_sub(chunk.first_address()) / RECORD_BYTES as u64;
    context.limit.store(0, Ordering::Relaxed);
    context.cursor.store(0, Ordering::Relaxed);
    context.class.store(0, Ordering::Relaxed);
    context.next_record.fetch_add(used, Ordering::Relaxed);
    chunk.close(used as u32);
    pool.send(number);
}
