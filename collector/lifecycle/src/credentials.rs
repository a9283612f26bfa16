//! The writer's thread takes over the credentials of a thread of the program that is about to change users or groups.
//!
//! A C library makes such a change in all threads of the process, the writer's among them, and aborts the process if one of
//! them gets another answer than the first. Capabilities and secure bits belong to a thread, so the writer's would differ as
//! soon as the program has dropped or kept some.

use tracehound_shared::gate::Internal;
use tracehound_shared::lock::Lock;
use tracehound_shared::session::{self, Session};
use tracehound_shared::sync::atomic::{AtomicU32, Ordering};
use tracehound_shared::sys::{self, ThreadCredentials};

/// What the writer is to take over.
static WANTED: Lock<Option<ThreadCredentials>> = Lock::new(None);
/// Counts the requests.
static REQUESTED: AtomicU32 = AtomicU32::new(0);
/// The last request that the writer has carried out.
static DONE: AtomicU32 = AtomicU32::new(0);
/// Longest wait for the writer, which may be waiting for the disk.
const PATIENCE_NS: u64 = 3_000_000_000;

/// Before a call by which the C library changes users or groups of all threads: the writer takes over the credentials of the
/// calling one. Where a filter forbids that, nothing is done.
pub fn before_change_of_user() {
    let session = session::current().filter(|session| session.pid == sys::process_id());
    let Some(session) = session.filter(|session| session.writer_alive.load(Ordering::Acquire)) else { return };
    // A filter may kill the process for what would be asked of the kernel here.
    if session.confined.load(Ordering::SeqCst) || session.filtered.load(Ordering::SeqCst) {
        return;
    }
    let _internal = Internal::enter();
    let Ok(own) = sys::thread_credentials() else { return };
    let request = {
        // A handler on this thread must not find the lock taken.
        let _signals = sys::SignalsBlocked::new();
        let mut wanted = WANTED.lock();
        *wanted = Some(own);
        REQUESTED.fetch_add(1, Ordering::SeqCst) + 1
    };
    let started = sys::clock(libc::CLOCK_MONOTONIC);
    loop {
        let done = DONE.load(Ordering::SeqCst);
        if done.wrapping_sub(request).cast_signed() >= 0 {
            return;
        }
        let waited = sys::clock(libc::CLOCK_MONOTONIC).saturating_sub(started);
        if waited > PATIENCE_NS {
            return session.give_up("credentials", waited, 0, false);
        }
        session.pool.ring();
        sys::futex_wait(&DONE, done, 20_000_000);
        super::driver::check_writer(session);
        if !session.writer_alive.load(Ordering::Acquire) {
            return;
        }
    }
}

/// Carries out a request, on the writer's thread.
pub(super) fn serve(session: &Session) {
    let request = REQUESTED.load(Ordering::SeqCst);
    if request == DONE.load(Ordering::SeqCst) {
        return;
    }
    let wanted = *WANTED.lock();
    if let Some(Err(error)) = wanted.map(|wanted| sys::take_credentials(&wanted)) {
        let text = format!("the recorder's thread cannot take over the credentials of the program's: {error}");
        session.remark(tracehound_shared::clock::now(), "credentials", text);
    }
    DONE.store(request, Ordering::SeqCst);
    sys::futex_wake(&DONE, i32::MAX);
}

/// In a forked child: forgets what a thread of the parent wanted.
///
/// # Safety
/// The calling thread must be the child's only one.
pub(super) unsafe fn forget() {
    // SAFETY: the contract of `forget`.
    unsafe { WANTED.abandon(None) };
    DONE.store(REQUESTED.load(Ordering::SeqCst), Ordering::SeqCst);
}
