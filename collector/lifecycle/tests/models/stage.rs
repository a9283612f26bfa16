//! A recording of the model: a session whose writer is the model, and threads that record into it.

use core::sync::atomic::Ordering;

use tracehound_background::seize::seize;
use tracehound_format::options::LaunchOptions;
use tracehound_format::record::{Kind, Record};
use tracehound_record::publish::{self, after, enter, settle};
use tracehound_shared::call_tree::CallTree;
use tracehound_shared::chunk::Chunk;
use tracehound_shared::gate;
use tracehound_shared::lock::Lock;
use tracehound_shared::pool::Pool;
use tracehound_shared::session::{self, LookRequests, Notes, Retired, Session, Switches};
use tracehound_shared::side_file::SideMemory;
use tracehound_shared::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use tracehound_shared::thread::{EVENT, NO_CHUNK, RECORDING, ThreadContext};
use tracehound_shared::threads::ThreadTable;

/// Records with no more to them than a number.
pub fn record(number: u64) -> Record {
    Record::new(Kind::Malloc, 100 + number, 0x1000 * number, number as u32, 16 * number as u32)
}

/// A pool over `slots` slots.
pub fn pool(slots: u32) -> (SideMemory, Pool) {
    let side = SideMemory::in_private_memory(slots).expect("memory");
    // SAFETY: the chunks lie at this address, zeroed, to the end of the execution.
    let pool = unsafe { Pool::new(side.first_chunk(), side.header(), side.is_shared(), side.chunks()) };
    (side, pool)
}

/// The current session, with the gate open. Its memory is one slot.
pub fn session() -> &'static Session {
    let (side, pool) = pool(1);
    gate::set(gate::RECORDING);
    session::install(Session {
        number: 1,
        // The process of this session is none that there is: what a forked child may do, nobody does.
        pid: 1,
        options: LaunchOptions::default(),
        recording_id: [7; 16],
        path: Vec::new(),
        forked_from: None,
        started_tick: 1,
        started_unix_ns: 0,
        tree: tree(),
        pool,
        threads: ThreadTable::default(),
        side,
        notes: Lock::new(Notes::default()),
        writer_alive: AtomicBool::new(true),
        writer_thread: AtomicU32::new(0),
        leftovers: Lock::new(Vec::new()),
        has_leftovers: AtomicBool::new(false),
        flush_wanted: AtomicU32::new(0),
        flush_done: AtomicU32::new(0),
        looks: LookRequests::new(),
        names_changed: AtomicBool::new(false),
        names_wanted: AtomicBool::new(false),
        marks: AtomicU64::new(0),
        main_gone: AtomicBool::new(false),
        paused: AtomicBool::new(false),
        filtered: AtomicBool::new(false),
        confined: AtomicBool::new(false),
        retired: Retired::default(),
        switches: Switches::default(),
        existing_wanted: AtomicU64::new(0),
        unwinder_limit: |_, _| 0,
        drive: |_| {},
    })
}

/// A tree of a few nodes.
pub fn tree() -> &'static CallTree {
    use core::ptr::NonNull;
    use tracehound_shared::sync::model::{memory, shared};
    const BYTES: usize = CallTree::NODES_OFFSET + 8 * CallTree::NODE_BYTES;
    let memory = NonNull::new(memory(BYTES)).expect("memory");
    // SAFETY: zeroed, page-aligned, the tree's alone to the end of the execution.
    shared(unsafe { CallTree::create_in(memory, BYTES) }.expect("room for some nodes"))
}

/// A thread of the program: its context, with a chunk in which record 1 is.
pub fn thread(session: &Session) -> &'static ThreadContext {
    let context = session.threads.acquire().expect("memory");
    context.state.store(EVENT, Ordering::Relaxed);
    context.id.store(session.threads.new_id(), Ordering::Release);
    publish(context, 1);
    gate::slot().context.set(core::ptr::null_mut());
    context
}

/// An event of the thread.
pub fn publish(context: &'static ThreadContext, number: u64) {
    gate::slot().context.set(core::ptr::from_ref(context).cast_mut());
    let state = context.state.load(Ordering::Relaxed);
    enter(context, state, RECORDING);
    publish::one(context, record(number));
    settle(context, after(state));
}

/// What the writer does with full chunks: their records, in the order of the chunks; the chunks are free again.
pub fn receive(pool: &Pool) -> Vec<Record> {
    let mut found = Vec::new();
    while let Some(number) = pool.receive() {
        let chunk = pool.chunk(number).expect("a chunk that was sent");
        found.extend(records(chunk, chunk.used()));
        chunk.wipe();
        pool.give_back(number);
    }
    found
}

/// The first `count` records of a chunk.
pub fn records(chunk: Chunk, count: u32) -> Vec<Record> {
    (0..count).map(|index| chunk.record(index).expect("what a chunk is said to hold is there")).collect()
}

/// What the writer finds of the thread without taking anything: in what it has sent, and in its chunk so far.
pub fn look(session: &Session, context: &'static ThreadContext) -> Vec<Record> {
    let mut found = receive(&session.pool);
    if let Some(chunk) = session.pool.chunk(context.active.load(Ordering::Acquire)) {
        found.extend((0..).map_while(|index| chunk.record(index)));
    }
    found
}

/// Takes the thread's chunk if the thread is not recording, and all that it has sent.
pub fn take(session: &Session, context: &'static ThreadContext) -> Vec<Record> {
    if context.active.load(Ordering::Acquire) != NO_CHUNK {
        seize(&[context], &session.pool);
    }
    receive(&session.pool)
}

/// The numbers of [`record`]s.
pub fn numbers(records: &[Record]) -> Vec<u64> {
    records.iter().map(|found| found.to_words()).map(|words| number(words)).collect()
}

fn number(words: [u64; 3]) -> u64 {
    (0..16).find(|&number| record(number).to_words() == words).expect("a record that is seen is whole")
}
