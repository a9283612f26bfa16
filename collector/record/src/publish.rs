//! Publishing of records: puts them into the thread's chunk, and gets the thread a new chunk when it is full.
//!
//! A slot is reserved by one compare-and-swap that is atomic against signals of the same thread (on x86-64 without the
//! lock prefix), then filled, word 0 last. A signal handler that allocates in between gets the next slot.

use tracehound_shared::sync::atomic::{AtomicU64, Ordering, compiler_fence};
use tracehound_shared::sync::{light_barrier, order};

use tracehound_format::options::OnFull;
use tracehound_format::record::{Kind, RECORD_BYTES, Record};

use crate::attach;
use crate::request_context;
use tracehound_shared::chunk::{Chunk, LARGEST};
use tracehound_shared::clock;
use tracehound_shared::gate;
use tracehound_shared::session::{self, Session};
use tracehound_shared::sys;
use tracehound_shared::thread::{self, MODE, NO_CHUNK, PINNED, ThreadContext};
use tracehound_unwind::Caller;
use tracehound_unwind::room::with_room;

const BYTES: u64 = RECORD_BYTES as u64;

/// Publishes one record.
#[inline(always)]
pub fn one(context: &ThreadContext, record: Record) {
    loop {
        let at = context.cursor.load(Ordering::Relaxed);
        let next = at + BYTES;
        if next > context.limit.load(Ordering::Relaxed) {
            if !refill(context, 1, [record.tick; 2], false) {
                return in_forked_child(context, &[record]);
            }
            continue;
        }
        if reserve(&context.cursor, at, next) {
            // SAFETY: the slot at `at`, below the limit of the thread's chunk, is reserved for this record.
            unsafe { fill(at, record) };
            return;
        }
    }
}

/// Publishes records that belong together, so that a reader sees all of them or none, next to each other.
/// `nested`: in the middle of an event that the calling signal handler has interrupted.
pub fn several(context: &ThreadContext, records: &[Record], nested: bool) {
    let count = records.len() as u64;
    loop {
        let at = context.cursor.load(Ordering::Relaxed);
        let next = at + count * BYTES;
        if next > context.limit.load(Ordering::Relaxed) {
            let ticks = [records.first(), records.last()].map(|record| record.map_or(0, |record| record.tick));
            if !refill(context, count, ticks, nested) {
                return in_forked_child(context, records);
            }
            continue;
        }
        if reserve(&context.cursor, at, next) {
            for (i, &record) in records.iter().enumerate().rev() {
                // SAFETY: so many slots from `at` on, below the limit of the thread's chunk, are reserved for these records.
                unsafe { fill(at + i as u64 * BYTES, record) };
            }
            return;
        }
    }
}

/// Moves the cursor from `from` to `to`, if it is still there.
#[cfg(all(target_arch = "x86_64", not(loom)))]
#[inline(always)]
fn reserve(cursor: &AtomicU64, from: u64, to: u64) -> bool {
    let done: u8;
    // SAFETY: the cursor is valid; one instruction, hence atomic for signal handlers of this thread, the only others
    // that move it while the thread is recording.
    unsafe {
        core::arch::asm!(
            "cmpxchg qword ptr [{cursor}], {to}",
            "sete {done}",
            cursor = in(reg) cursor.as_ptr(),
            to = in(reg) to,
            done = out(reg_byte) done,
            inout("rax") from => _,
            options(nostack),
        );
    }
    done != 0
}

/// Moves the cursor from `from` to `to`, if it is still there.
#[cfg(all(not(target_arch = "x86_64"), not(loom)))]
#[inline(always)]
fn reserve(cursor: &AtomicU64, from: u64, to: u64) -> bool {
    cursor.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// Moves the cursor from `from` to `to`, if it is still there: in two steps, as other threads see it.
#[cfg(loom)]
fn reserve(cursor: &AtomicU64, from: u64, to: u64) -> bool {
    let is_there = cursor.load(Ordering::Relaxed) == from;
    if is_there {
        tracehound_shared::sync::model::require(from != 0, "a record is written to no chunk");
        cursor.store(to, Ordering::Relaxed);
    }
    is_there
}

/// Writes a record into its slot, word 0 last.
///
/// # Safety
/// `at` must be a slot of the calling thread's chunk that was reserved for this record.
#[inline(always)]
pub(super) unsafe fn fill(at: u64, record: Record) {
    let [first, second, third] = record.to_words();
    let slot = at as *const AtomicU64;
    // SAFETY: nobody else writes to a slot that was reserved for this record: the contract of `fill`.
    unsafe {
        (*slot.add(1)).store(second, Ordering::Relaxed);
        (*slot.add(2)).store(third, Ordering::Relaxed);
        (*slot).store(first, order!("publish-first-word": Release, not Relaxed));
    }
}

/// Gets room for `count` records, the first and the last of which have these stamps, of an event; false when they are lost, which is counted, or when they
/// belong to a time in which recording was off.
#[cold]
#[inline(never)]
pub fn refill(context: &ThreadContext, count: u64, [first, tick]: [u64; 2], nested: bool) -> bool {
    let id = context.id.load(Ordering::Relaxed);
    // A child that was cloned without fork has a zeroed context and writes nowhere.
    let Some(session) = session::current().filter(|_| id != 0) else { return false };
    if is_off(session, tick) {
        return false;
    }
    let mut patience = ChunkWait::default();
    let done = loop {
        let signals = sys::SignalsBlocked::new();
        match with_room(|| try_refill(context, session, count, first, nested)) {
            Refill::Room => break true,
            Refill::NoWay => break false,
            Refill::NoChunk => {}
        }
        drop(signals);
        session.close_leftovers();
        context.parked.store(1, Ordering::SeqCst);
        let held = gate::is_held(gate::state()) && gate::slot().exempt.get() == 0;
        let give_up = if held {
            gate::wait_while_held();
            false
        } else {
            wait_for_chunk(context, session, tick, &mut patience)
        };
        context.parked.store(0, Ordering::SeqCst);
        // A signal handler has forked meanwhile: this is the child, and the context is the parent's.
        if context.id.load(Ordering::Relaxed) != id || !session::is_current(session) {
            return false;
        }
        if give_up {
            break false;
        }
    };
    if patience.started_ns != 0 {
        let waited = sys::clock(libc::CLOCK_MONOTONIC).saturating_sub(patience.started_ns);
        context.waits.fetch_add(1, Ordering::Relaxed);
        context.wait_ns.fetch_add(waited, Ordering::Relaxed);
    }
    if !done && !is_off(session, tick) {
        // Records that belong together are one event.
        context.lost.fetch_add(1, Ordering::Relaxed);
        context.lost_unreported.fetch_add(1, Ordering::Relaxed);
    }
    done
}

/// Whether an event stamped `tick` belongs to a time in which recording was off. Its thread was in the middle of it when
/// recording was stopped, and may come much later.
fn is_off(session: &Session, tick: u64) -> bool {
    if gate::slot().exempt.get() != 0 {
        return false;
    }
    let switches = &session.switches;
    // A stop that is under way is about to be stamped, by a thread that waits for nothing meanwhile.
    const ATTEMPTS: u32 = 1000;
    let mut paused = false;
    let mut stopped = u64::MAX;
    for _ in 0..ATTEMPTS {
        // In this order: a stop stores STOPPING before it sets `paused`.
        paused = session.paused.load(Ordering::SeqCst);
        stopped = switches.stopped.load(Ordering::SeqCst);
        if stopped != u64::MAX && paused == session.paused.load(Ordering::SeqCst) {
            break;
        }
        sys::sleep(20_000);
    }
    tick >= stopped && (paused || tick < switches.started.load(Ordering::SeqCst))
}

/// Publishes an event during which a signal handler has forked: it completes in the followed child, too, and goes into the
/// child's new context. Its stamp is then the time of its end, which is in the child. In the parent it comes after the
/// record of the fork, since a thread's records keep their order. An event that already had its slot comes before that
/// record: the child inherits it and does not come here.
#[cold]
#[inline(never)]
fn in_forked_child(context: &ThreadContext, records: &[Record]) {
    if context.id.load(Ordering::Relaxed) != 0 || gate::state() != gate::RECORDING {
        return;
    }
    if session::current().is_none_or(|session| session.pid != sys::process_id()) {
        return;
    }
    let (slot, here) = (gate::slot(), 0_u64);
    let caller = Caller { pc: 0, sp: &raw const here as u64, fp: 0 };
    // SAFETY: contexts stay mapped; the caller's state only shows where this thread's stack is.
    let own = unsafe { slot.context.get().as_ref().or_else(|| attach::attach(caller)) };
    let Some(own) = own.filter(|own| !core::ptr::eq(*own, context)) else { return };
    let state = own.state.load(Ordering::Relaxed);
    enter(own, state, thread::RECORDING);
    let tick = clock::now();
    let mut moved = [Record::new(Kind::SizeHigh, 0, 0, 0, 0); 4];
    for (to, from) in moved.iter_mut().zip(records) {
        *to = Record { tick, ..*from };
    }
    several(own, moved.get(..records.len()).unwrap_or_default(), true);
    settle(own, after(state));
}

enum Refill {
    /// There is room.
    Room,
    /// There will be none: the handler that asks has filled all chunks that it may.
    NoWay,
    /// The pool is empty, or the gate held.
    NoChunk,
}

/// One attempt, with all signals blocked.
fn try_refill(context: &ThreadContext, session: &'static Session, count: u64, tick: u64, nested: bool) -> Refill {
    let held = gate::is_held(gate::state()) && gate::slot().exempt.get() == 0;
    let _held = context.lock_chunks();
    let room = context.limit.load(Ordering::Relaxed).saturating_sub(context.cursor.load(Ordering::Relaxed));
    if room >= count * BYTES && request_context::of_records(context).is_none() {
        return Refill::Room;
    }
    if held {
        return Refill::NoChunk;
    }
    if request_context::put_in_chunk(context, session, count, tick) {
        return Refill::Room;
    }
    if nested && context.pinned_len.load(Ordering::Relaxed) as usize >= PINNED {
        return Refill::NoWay;
    }
    let class = next_class(context, session, nested);
    detach(context, session, nested);
    let Some((number, chunk)) = session.pool.take(class, may_grow(session)) else { return Refill::NoChunk };
    context.taken_at.store(session.pool.flushes.load(Ordering::Relaxed), Ordering::Relaxed);
    let first = context.next_record.load(Ordering::Relaxed);
    let mut at = chunk.first_address();
    if context.os_thread.load(Ordering::Relaxed) == 0 {
        context.os_thread.store(attach::os_thread(session), Ordering::Relaxed);
    }
    chunk.open(context.id.load(Ordering::Relaxed), context.os_thread.load(Ordering::Relaxed), first);
    let lost = context.lost_unreported.swap(0, Ordering::Relaxed);
    if lost > 0 {
        // SAFETY: the first slot of a chunk that has just been taken, and that nobody else knows yet.
        unsafe { fill(at, Record::new(Kind::Lost, clock::now(), lost, 0, 0)) };
        at += BYTES;
    }
    if let Some(id) = request_context::of_records(context) {
        // SAFETY: one of the first two slots of that chunk, which has at least 4 KiB.
        unsafe { fill(at, Record::new(Kind::Context, tick, id, 0, 0)) };
        at += BYTES;
        context.request_context.store(id, Ordering::Relaxed);
    }
    context.cursor.store(at, Ordering::Relaxed);
    context.limit.store(chunk.end_address(), Ordering::Relaxed);
    context.active.store(number, Ordering::Release);
    Refill::Room
}

/// The size class of the thread's next chunk: the next larger one when a chunk was full soon, a smaller one when it lasted
/// for seconds, and never more than the thread's part of the memory. A handler's chunks stay aside until the event that it
/// has interrupted is complete, and only a few may: they are large.
fn next_class(context: &ThreadContext, session: &Session, nested: bool) -> u32 {
    /// The writer flushes five times a second, or less often when there is much to flush.
    const SOON: u32 = 2;
    const LONG: u32 = 10;
    if nested {
        return LARGEST;
    }
    let mut class = context.class.load(Ordering::Relaxed);
    if context.active.load(Ordering::Relaxed) != NO_CHUNK {
        let lasted =
            session.pool.flushes.load(Ordering::Relaxed).wrapping_sub(context.taken_at.load(Ordering::Relaxed));
        if lasted <= SOON {
            class += 1;
        } else if lasted > LONG {
            class = class.saturating_sub(1);
        }
    }
    class = class.min(session.pool.fair_class(session.threads.alive()));
    context.class.store(class, Ordering::Relaxed);
    class
}

/// Takes the chunk from the thread and hands it over; or, if an unfinished event below may still write to it, keeps it
/// aside until the next time. The chunk fields must be locked.
pub fn detach(context: &ThreadContext, session: &Session, nested: bool) {
    if !nested {
        let pinned = context.pinned_len.swap(0, Ordering::AcqRel) as usize;
        for slot in context.pinned.iter().take(pinned) {
            session.pool.send(slot.load(Ordering::Relaxed));
        }
    }
    let number = context.active.load(Ordering::Relaxed);
    let Some(chunk) = session.pool.chunk(number).filter(|_| number != NO_CHUNK) else { return };
    let used = used_records(context, chunk);
    context.limit.store(0, Ordering::Relaxed);
    context.cursor.store(0, Ordering::Relaxed);
    context.active.store(NO_CHUNK, Ordering::Release);
    context.next_record.fetch_add(u64::from(used), Ordering::Relaxed);
    chunk.close(used);
    if nested {
        let at = context.pinned_len.load(Ordering::Relaxed);
        if let Some(slot) = context.pinned.get(at as usize) {
            slot.store(number, Ordering::Relaxed);
            context.pinned_len.store(at + 1, Ordering::Release);
        }
    } else {
        session.pool.send(number);
    }
}

fn used_records(context: &ThreadContext, chunk: Chunk) -> u32 {
    (context.cursor.load(Ordering::Relaxed).saturating_sub(chunk.first_address()) / BYTES) as u32
}

/// Wait of a thread for a chunk.
#[derive(Default)]
struct ChunkWait {
    /// Since when; 0: it has not waited.
    started_ns: u64,
    /// The writer's steps at the last change of their number, the time of that, and this thread's looks since then.
    beats: u64,
    beat_ns: u64,
    looks: u32,
}

/// Whether the pool may grow: not while the writer, which is behind, makes steps. It gives chunks back soon then, and
/// with more of them it would only be further behind.
fn may_grow(session: &Session) -> bool {
    /// A writer that makes no step for this long waits for the disk, or for a processor.
    const STALLED_NS: u64 = 100_000_000;
    let pool = &session.pool;
    session.options.on_full == OnFull::Drop
        || !pool.awaits_writer()
        || sys::clock(libc::CLOCK_MONOTONIC).saturating_sub(pool.beat_ns.load(Ordering::Relaxed)) >= STALLED_NS
}

/// Waits a little for a chunk, if the options allow it; true: give up.
fn wait_for_chunk(context: &ThreadContext, session: &'static Session, tick: u64, patience: &mut ChunkWait) -> bool {
    /// A writer that makes no step for this long, while its thread exists and this one has looked so often, is blocked by
    /// something that waits for us. The time alone proves nothing: where ten thousand threads want two processors, the
    /// writer may not have had one.
    const PATIENCE_NS: u64 = 10_000_000_000;
    const LOOKS: u32 = 100;
    if gate::state() == gate::PASS && (!session.paused.load(Ordering::SeqCst) || is_off(session, tick)) {
        return true;
    }
    if session.options.on_full == OnFull::Drop && session.pool.free_bytes() == 0 {
        session.pool.starve();
        return true;
    }
    let now = sys::clock(libc::CLOCK_MONOTONIC);
    let beats = session.pool.heartbeat.load(Ordering::Relaxed);
    if patience.started_ns == 0 {
        *patience = ChunkWait { started_ns: now, beats, beat_ns: now, looks: 0 };
    }
    if session.writer_alive.load(Ordering::Acquire) {
        session.pool.wait(20_000_000);
        let writer = session.writer_thread.load(Ordering::Relaxed);
        if writer != 0 && !sys::thread_exists(session.pid, writer) {
            session.writer_alive.store(false, Ordering::Release);
        }
    } else {
        // The writer's thread does not exist: this thread does its work.
        let state = context.state.load(Ordering::Relaxed);
        let internal = gate::Internal::enter();
        (session.drive)(session);
        drop(internal);
        context.state.store(state, Ordering::Relaxed);
        if session.pool.heartbeat.load(Ordering::Relaxed) == beats {
            sys::sleep(100_000);
        }
    }
    let (now, beats) = (sys::clock(libc::CLOCK_MONOTONIC), session.pool.heartbeat.load(Ordering::Relaxed));
    if beats != patience.beats {
        (patience.beats, patience.beat_ns, patience.looks) = (beats, now, 0);
    }
    patience.looks += 1;
    patience.looks > LOOKS && now.saturating_sub(patience.beat_ns) > PATIENCE_NS
}

/// Restores the thread's state from before an event; keeps the compiler from moving the event's stores past it.
#[inline(always)]
pub fn settle(context: &ThreadContext, state: u64) {
    compiler_fence(Ordering::SeqCst);
    context.state.store(state, order!("settle": Release, not Relaxed));
}

/// Enters a mode.
#[inline(always)]
pub fn enter(context: &ThreadContext, state: u64, mode: u64) {
    context.state.store(state & !MODE | mode, Ordering::Relaxed);
    light_barrier();
}

/// The state after one more event, idle.
#[inline(always)]
pub fn after(state: u64) -> u64 {
    (state & !MODE).wrapping_add(thread::EVENT)
}
