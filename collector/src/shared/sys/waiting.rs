//! Time and other threads: futexes, clocks, barriers.

use super::call;

/// Waits while `*word == expected`, at most `nanos`.
pub fn futex_wait(word: &core::sync::atomic::AtomicU32, expected: u32, nanos: u64) {
    let timeout = [(nanos / 1_000_000_000) as i64, (nanos % 1_000_000_000) as i64];
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: word and timeout are valid for the call.
    let _ = unsafe { call!(libc::SYS_futex, core::ptr::from_ref(word), operation, expected, timeout.as_ptr()) };
}

/// Wakes up to `count` waiters.
pub fn futex_wake(word: &core::sync::atomic::AtomicU32, count: i32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is valid for the call.
    let _ = unsafe { call!(libc::SYS_futex, core::ptr::from_ref(word), operation, count) };
}

/// Lets other threads run.
pub fn sleep(nanos: u64) {
    let time = [(nanos / 1_000_000_000) as i64, (nanos % 1_000_000_000) as i64];
    // SAFETY: the time is valid for the call.
    let _ = unsafe { call!(libc::SYS_nanosleep, time.as_ptr(), 0) };
}

/// A clock's time in nanoseconds.
pub fn clock(id: i32) -> u64 {
    let mut time = [0_i64; 2];
    // SAFETY: the kernel fills two words.
    let _ = unsafe { call!(libc::SYS_clock_gettime, id, time.as_mut_ptr()) };
    time[0] as u64 * 1_000_000_000 + time[1] as u64
}

/// Announces that [`barrier`] will be used; false where the kernel has none.
pub fn barrier_register() -> bool {
    const REGISTER_PRIVATE_EXPEDITED: usize = 1 << 4;
    // SAFETY: numbers only.
    unsafe { call!(libc::SYS_membarrier, REGISTER_PRIVATE_EXPEDITED, 0) }.is_ok()
}

/// Makes every running thread of the process pass a full memory barrier.
pub fn barrier() {
    const PRIVATE_EXPEDITED: usize = 1 << 3;
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    // SAFETY: numbers only.
    if unsafe { call!(libc::SYS_membarrier, PRIVATE_EXPEDITED, 0) }.is_err() {
        // Without the system call: a store buffer drains in well under a microsecond.
        sleep(200_000);
    }
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}
