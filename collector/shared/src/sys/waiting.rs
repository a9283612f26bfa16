//! Time and other threads: futexes, clocks, barriers.

use core::sync::atomic::{AtomicU32, Ordering, fence};

use rustix::thread::{MembarrierCommand, futex, membarrier, nanosleep};
use rustix::time::Timespec;

fn timespec(nanos: u64) -> Timespec {
    Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 }
}

/// Waits while `*word == expected`, at most `nanos`.
pub fn futex_wait(word: &AtomicU32, expected: u32, nanos: u64) {
    let _ = futex::wait(word, futex::Flags::PRIVATE, expected, Some(&timespec(nanos)));
}

/// Wakes up to `count` waiters.
pub fn futex_wake(word: &AtomicU32, count: i32) {
    let _ = futex::wake(word, futex::Flags::PRIVATE, count as u32);
}

/// Lets other threads run.
pub fn sleep(nanos: u64) {
    let _ = nanosleep(&timespec(nanos));
}

/// Announces that [`barrier`] will be used; false where the kernel has none.
pub fn barrier_register() -> bool {
    membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
}

/// Makes every running thread of the process pass a full memory barrier.
pub fn barrier() {
    fence(Ordering::SeqCst);
    if membarrier(MembarrierCommand::PrivateExpedited).is_err() {
        // Without the system call: a store buffer drains in well under a microsecond.
        sleep(200_000);
    }
    fence(Ordering::SeqCst);
}
