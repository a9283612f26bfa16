//! Blocks that go from thread to thread: free ∥ alloc. Stamps tell the true order at each address.

use core::ffi::c_void;
use core::sync::atomic::Ordering;

use tracehound_format::record::Kind;
use tracehound_record::record;
use tracehound_shared::clock;
use tracehound_shared::gate;
use tracehound_shared::sync::atomic::AtomicU64;
use tracehound_shared::sync::model::{check, find_mutant, pause, shared, spawn};
use tracehound_shared::sync::system::may_run_ahead;
use tracehound_shared::thread::ThreadContext;
use tracehound_unwind::Caller;

use crate::stage;

/// The only block that the program's allocator has.
const BLOCK: u64 = 0x1000;

/// An allocator of one block, and the place where threads leave it for each other. 0: it is not there.
#[derive(Default)]
struct Program {
    free: AtomicU64,
    mailbox: AtomicU64,
}

const NOWHERE: Caller = Caller { pc: 0, sp: 0, fp: 0 };

fn take(place: &AtomicU64) -> u64 {
    may_run_ahead();
    while place.load(Ordering::Relaxed) == 0 {
        pause();
    }
    place.swap(0, Ordering::AcqRel)
}

fn allocate(context: &'static ThreadContext, program: &Program) -> u64 {
    // SAFETY: the context is this thread's, and no stack is taken without an unwinder.
    let block = unsafe { record::alloc(context, NOWHERE, Kind::Malloc, 16, || take(&program.free) as *mut c_void) };
    block as u64
}

fn free(context: &'static ThreadContext, program: &Program, block: u64) {
    let give_back = || program.free.store(block, Ordering::Release);
    // SAFETY: the context is this thread's, and no stack is taken without an unwinder.
    unsafe { record::free(context, NOWHERE, Kind::Free, block as *mut c_void, give_back) };
}

/// One thread allocates the block twice, the other frees it in between.
fn hand_over() {
    let session = stage::session();
    let program = shared(Program { free: AtomicU64::new(BLOCK), mailbox: AtomicU64::new(0) });
    let [own, other] = [stage::thread(session), stage::thread(session)];
    let thread = spawn(move || {
        gate::slot().context.set(core::ptr::from_ref(other).cast_mut());
        clock::joined();
        let block = take(&program.mailbox);
        free(other, program, block);
    });
    let block = allocate(own, program);
    program.mailbox.store(block, Ordering::Release);
    allocate(own, program);
    thread.join().expect("a thread");
    let mut all = stage::take(session, own);
    all.append(&mut stage::take(session, other));
    all.retain(|record| record.address == BLOCK && record.node == 0);
    all.sort_by_key(|record| record.tick);
    let kinds: Vec<u8> = all.iter().map(|record| record.kind).collect();
    assert_eq!(kinds, [Kind::Malloc, Kind::Free, Kind::Malloc].map(|kind| kind as u8));
}

#[test]
fn stamps_are_in_the_order_of_hand_overs() {
    check("free ∥ alloc", 2, hand_over);
}

/// The same, where the first thread was alone and stamped without waiting until the other one joined.
fn company() {
    clock::init();
    clock::joined();
    hand_over();
}

#[test]
fn stamps_are_in_order_when_a_second_thread_joins() {
    check("free ∥ alloc, joined", 2, company);
}

#[test]
fn mutant_a_thread_joins_without_a_word() {
    find_mutant("joined", 2, company).unwrap();
}

#[test]
fn mutant_a_stamp_does_not_wait_for_the_loads_before_it() {
    find_mutant("stamp-ordered", 2, hand_over).unwrap();
}
